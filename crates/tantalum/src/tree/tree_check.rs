//! Proves that a tree is sound, or says where it is not, while transactions change it.
//!
//! The nodes of one level after the other are looked at in the order of their keys. A node is compared with its parent under the
//! latches of both, which are held for no read of a device; then it is looked at by itself, and then each of its large values, as any
//! reader does. Between two nodes nothing is latched, so readers, commits, splits and merges go on.
//!
//! Exactly once is each page visited that is in the tree from the beginning to the end: while a node is in a tree, its lower fence
//! stays what it is (splits and merges keep the left page), so the walk meets it when it has come to that key; and the pages of a
//! value stay with its key. The root, visited first, stays the root, but takes the level of its only child, and its entries: where it
//! has come to the level that is walked, the walk goes on in it. Other pages, which are allocated or freed meanwhile, are visited or
//! not.

use std::{cmp::Ordering, fmt, ops::Deref};

use tantalum_store::{PageId, page::slots};

use super::cursor::LeafPosition;
use super::node::{Found, Node, Stored};
use super::{LeafValue, Reference, Tree, draft};
use crate::buffer::{PageReadGuard, PageView, PinnedPage};
use crate::error::{self, Error, Result};

/// More problems than this are not collected: one damaged page can cause many.
const PROBLEMS_MAX: usize = 100;

/// What a sound tree consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TreeReport {
    /// Its pages, those of large values included.
    pub pages: u64,
    /// The pages of large values.
    pub overflow_pages: u64,
    /// Levels from the root to the leaves, both included.
    pub height: u32,
    /// Rows.
    pub entries: u64,
    /// How full its leaves and inner pages are on average, from 0 to 1.
    pub fill: f64,
}

/// One thing that is wrong with a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub page: PageId,
    /// What was found, and what was expected.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "page {}: {}", self.page, self.what)
    }
}

/// The keys that a node is responsible for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    pub lower: Vec<u8>,
    pub upper: Option<Vec<u8>>,
}

/// Keys to which no sound nodes lead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LostKeys {
    pub keys: Keys,
    /// The node that is damaged, and how.
    pub problem: Problem,
}

impl Keys {
    const ALL: Self = Self { lower: Vec::new(), upper: None };

    fn contain(&self, key: &[u8]) -> bool {
        self.lower[..] <= *key && self.upper.as_deref().is_none_or(|upper| key < upper)
    }
}

/// A node that the walk has come to, and what its parent says of it.
enum Next<'t> {
    Node(PageReadGuard, Keys),
    /// The tree has become so low that the root is the only node of this level.
    Root(PageView<'t>),
    /// It cannot be read.
    Damaged(PageId, Error, Keys),
    /// The tree has become so low that it has no nodes of this level.
    None,
}

/// Looks at a large value that the row of a key names. Returns what is wrong with it.
pub(crate) type ReferenceCheck<'a> = &'a mut dyn FnMut(&[u8], Reference) -> Result<Option<String>>;

/// Is shown, in the order of the keys, each row whose value stands in its leaf: the key, and the bytes of the value. The leaf is latched.
pub(crate) type RowSight<'a> = &'a mut dyn FnMut(&[u8], usize);

/// For a tree whose rows have all of their values.
pub(crate) fn no_reference(_: &[u8], _: Reference) -> Result<Option<String>> {
    Ok(Some("names a large value, which no row here does".into()))
}

/// What the values of a leaf are that do not stand in it.
#[derive(Default)]
struct Apart {
    /// Keys whose values have pages of their own.
    chains: Vec<Vec<u8>>,
    references: Vec<(Vec<u8>, Reference)>,
}

struct Check<'a> {
    tree: &'a Tree,
    /// No row was beyond this key when the check began; `None` if it cannot be known.
    end: Option<Vec<u8>>,
    visit: &'a mut dyn FnMut(PageId) -> Result<()>,
    refer: ReferenceCheck<'a>,
    rows: Option<RowSight<'a>>,
    report: TreeReport,
    /// Nodes that were looked at from their first key on, and what they use: the root, if it takes another level, on each.
    nodes: u64,
    used_bytes: u64,
    problems: Vec<Problem>,
    problems_max: usize,
    lost: Vec<LostKeys>,
}

impl Tree {
    /// Visits every page of the tree once and checks that each node is responsible for exactly what its parent says,
    /// that keys are in order and within the fences, and that every large value is whole. Readers and writers go on; of pages
    /// that come or go meanwhile, some are visited.
    ///
    /// `refer` looks at the values in the table's value tree; `rows` is shown what a value tree has.
    ///
    /// Returns, instead of a report, what is wrong: at least one and at most a hundred problems.
    ///
    /// # Errors
    /// What kept it from looking at everything, such as a device that takes no writes, so that no page can make room; those of
    /// `visit`.
    pub(crate) fn check_with(
        &self,
        visit: &mut dyn FnMut(PageId) -> Result<()>,
        refer: ReferenceCheck<'_>,
        rows: Option<RowSight<'_>>,
    ) -> Result<std::result::Result<TreeReport, Vec<Problem>>> {
        // A shorter life for what it borrows.
        let rows = rows.map(|rows| rows as RowSight<'_>);
        let check = Check::of(self, PROBLEMS_MAX, visit, refer, rows)?;
        if !check.problems.is_empty() {
            return Ok(Err(check.problems));
        }
        let capacity = slots::capacity(self.pool.page_size()) as u64 * check.nodes;
        Ok(Ok(TreeReport { fill: check.used_bytes as f64 / capacity as f64, ..check.report }))
    }

    /// As [`check_with`](Self::check_with), of a tree whose rows have all of their values.
    #[cfg(test)]
    pub(crate) fn check(
        &self,
        visit: &mut dyn FnMut(PageId) -> Result<()>,
    ) -> Result<std::result::Result<TreeReport, Vec<Problem>>> {
        self.check_with(visit, &mut no_reference, None)
    }

    /// The keys to which no sound nodes lead, in order: their rows cannot be read. Large values are not looked at.
    ///
    /// # Errors
    /// As [`check_with`](Self::check_with).
    pub(crate) fn lost_keys(&self) -> Result<Vec<LostKeys>> {
        let mut lost = Check::of(self, usize::MAX, &mut |_| Ok(()), &mut |_, _| Ok(None), None)?.lost;
        lost.sort_by(|a, b| a.keys.lower.cmp(&b.keys.lower));
        Ok(lost)
    }

    /// The value that the row of a key names at present.
    pub(crate) fn reference_of(&self, key: &[u8]) -> Result<Option<Reference>> {
        self.read(key, |value, _| match value {
            Some(LeafValue::Reference(reference)) => Some(reference),
            _ => None,
        })
    }

    /// The leaf of a key, for tests that change it.
    #[cfg(test)]
    pub(crate) fn leaf_of(&self, key: &[u8]) -> PinnedPage {
        self.descend(LeafPosition::Containing(key), 0).expect("the tree is sound").pin()
    }
}

impl<'a> Check<'a> {
    /// Walks the tree.
    fn of(
        tree: &'a Tree,
        problems_max: usize,
        visit: &'a mut dyn FnMut(PageId) -> Result<()>,
        refer: ReferenceCheck<'a>,
        rows: Option<RowSight<'a>>,
    ) -> Result<Self> {
        // Nodes beyond it are of pages that were fresh later: where a tree grows at its end, the walk would never come there.
        let end = tree.end_key().ok();
        let mut check = Self {
            tree,
            end,
            visit,
            refer,
            rows,
            report: TreeReport::default(),
            nodes: 0,
            used_bytes: 0,
            problems: Vec::new(),
            problems_max,
            lost: Vec::new(),
        };
        let level = check.root()?;
        for level in (0..level).rev() {
            check.level(level)?;
        }
        Ok(check)
    }

    /// Checks the root. Returns its level.
    fn root(&mut self) -> Result<u8> {
        let id = self.tree.root();
        self.visit_node(id)?;
        let page = match self.tree.pool.pin(id) {
            Ok(page) => page.read(),
            Err(error) => return self.lose(id, error, &Keys::ALL).map(|()| 0),
        };
        let level = match Node::read(&page) {
            Ok(node) => node.level(),
            Err(error) => return self.lose(id, error, &Keys::ALL).map(|()| 0),
        };
        self.report.height = u32::from(level) + 1;
        self.node(id, page, level, &Keys::ALL, &[])?;
        Ok(level)
    }

    /// Checks the nodes of a level below the root.
    fn level(&mut self, level: u8) -> Result<()> {
        let mut at = Some(Vec::new());
        while let Some(key) = at
            && self.end.as_ref().is_none_or(|end| key <= *end)
            && self.problems.len() < self.problems_max
        {
            let keys = match self.lost.iter().find(|lost| lost.keys.contain(&key)) {
                Some(lost) => lost.keys.clone(),
                None => match self.next(&key, level) {
                    Ok(Next::Node(page, keys)) => {
                        // One that began before was met before, or is new.
                        if keys.lower == key {
                            self.visit_node(page.id())?;
                        }
                        self.node(page.id(), page, level, &keys, &key)?;
                        keys
                    }
                    // Visited already, on a higher level.
                    Ok(Next::Root(page)) => {
                        self.node(page.id(), page, level, &Keys::ALL, &key)?;
                        Keys::ALL
                    }
                    Ok(Next::Damaged(page, error, keys)) => {
                        if keys.lower == key {
                            self.visit_node(page)?;
                        }
                        self.lose(page, error, &keys)?;
                        keys
                    }
                    Ok(Next::None) => return Ok(()),
                    // On the way there, which was sound before.
                    Err(error) => {
                        return self.lose(self.tree.root(), error, &Keys::ALL);
                    }
                },
            };
            assert!(keys.upper.as_ref().is_none_or(|upper| *upper > key), "the walk makes progress");
            at = keys.upper;
        }
        Ok(())
    }

    /// The node of a level that a key belongs to. It is read from the device while nothing is latched.
    fn next(&self, key: &[u8], level: u8) -> Result<Next<'a>> {
        let tree = self.tree;
        let mut pinned: Option<(PageId, Result<PinnedPage>)> = None;
        loop {
            let parent = tree.descend(LeafPosition::Containing(key), level + 1)?;
            let node = Node::read(&parent)?;
            match node.level().cmp(&level) {
                Ordering::Less => return Ok(Next::None),
                Ordering::Equal => return Ok(Next::Root(parent)),
                Ordering::Greater => {}
            }
            let entry = node.child_for(key)?;
            let child = node.child(entry)?;
            let upper =
                if entry + 1 < node.len() { Some(node.key(entry + 1)?) } else { node.upper().map(<[u8]>::to_vec) };
            let keys = Keys { lower: node.key(entry)?, upper };
            if !keys.contain(key) {
                return Err(node.error("its entries are out of order"));
            }
            if child == parent.id() {
                return Err(node.error("it is its own child"));
            }
            match pinned.take() {
                Some((id, Ok(page))) if id == child => {
                    return Ok(Next::Node(page.read(), keys));
                }
                // Not because it was freed meanwhile: it is still there.
                Some((id, Err(error))) if id == child => return Ok(Next::Damaged(id, error, keys)),
                _ => {
                    drop(parent);
                    pinned = Some((child, tree.pool.pin(child)));
                }
            }
        }
    }

    /// Checks a latched node of which the parent says that it has these keys, and the values of those from `from` on.
    fn node(&mut self, id: PageId, page: impl Deref<Target = [u8]>, level: u8, keys: &Keys, from: &[u8]) -> Result<()> {
        let apart = match self.contents(&page, level, keys, from) {
            Ok(apart) => apart,
            Err(error) => {
                return self.lose(id, error, keys);
            }
        };
        drop(page);
        for key in apart.chains {
            if let Err(error) = self.large_value(&key) {
                self.judge(id, error)?;
            }
        }
        for (key, reference) in apart.references {
            match (self.refer)(&key, reference) {
                Ok(None) => {}
                Ok(Some(what)) => self.add_problem(id, format!("the row \"{}\" {what}", key.escape_ascii())),
                Err(error) => self.judge(id, error)?,
            }
        }
        Ok(())
    }

    /// Checks a node by itself. Returns where the values are that do not stand in it.
    fn contents(&mut self, page: &[u8], level: u8, keys: &Keys, from: &[u8]) -> Result<Apart> {
        self.tree.check_owner(page)?;
        let node = Node::read(page)?;
        if node.level() != level {
            return Err(node.error(&format!("its level is {}, expected {level}", node.level())));
        }
        if node.lower() != keys.lower || node.upper() != keys.upper.as_deref() {
            return Err(node.error("its fences are not those that its parent says"));
        }
        draft::take_apart(&node)?;
        if node.lower() == from {
            self.nodes += 1;
            self.used_bytes += node.used_bytes() as u64;
        }
        let mut apart = Apart::default();
        if !node.is_leaf() {
            if node.len() == 0 {
                return Err(node.error("an inner page without children"));
            }
            (0..node.len()).try_for_each(|entry| node.child(entry).map(drop))?;
            return Ok(apart);
        }
        for entry in node.lower_bound(from)?..node.len() {
            self.report.entries += 1;
            if node.large(entry)?.is_some() {
                apart.chains.push(node.key(entry)?);
            } else if let Some(reference) = node.reference(entry)? {
                apart.references.push((node.key(entry)?, reference));
            } else if let Some(rows) = &mut self.rows
                && let Stored::Inline(value) = node.value(entry)?
            {
                rows(&node.key(entry)?, value.len());
            }
        }
        Ok(apart)
    }

    /// Checks the value of a key, which may have another value by now, or none.
    fn large_value(&mut self, key: &[u8]) -> Result<()> {
        let large = {
            let leaf = self.tree.descend(LeafPosition::Containing(key), 0)?;
            let node = Node::read(&leaf)?;
            match node.search(key)? {
                Found::At(entry) => node.large(entry)?,
                Found::Before(_) => None,
            }
        };
        let Some((length, first)) = large else { return Ok(()) };
        // One that is replaced while it is read has pages that change meanwhile.
        let pages = self.tree.large_pages(key, length, first)?.unwrap_or_default();
        for id in pages {
            (self.visit)(id)?;
            self.report.pages += 1;
            self.report.overflow_pages += 1;
        }
        Ok(())
    }

    fn visit_node(&mut self, id: PageId) -> Result<()> {
        self.report.pages += 1;
        (self.visit)(id)
    }

    fn add_problem(&mut self, page: PageId, what: String) {
        if self.problems.len() < self.problems_max {
            self.problems.push(Problem { page, what });
        }
    }

    /// Notes that no sound node leads to these keys, if an error at a page is damage.
    fn lose(&mut self, page: PageId, error: Error, keys: &Keys) -> Result<()> {
        let what = error.to_string();
        self.judge(page, error)?;
        self.lost.push(LostKeys { keys: keys.clone(), problem: Problem { page, what } });
        Ok(())
    }

    /// What an error at a page is: a problem of the tree, or the end of the check.
    fn judge(&mut self, page: PageId, error: Error) -> Result<()> {
        if !error::is_damage(&error) {
            return Err(error);
        }
        self.add_problem(page, error.to_string());
        Ok(())
    }
}
