//! Proves that a tree is sound, or says where it is not.

use super::node::{Node, Stored};
use super::{Tree, draft};
use crate::buffer::PageReadGuard;
use crate::error::Error;
use crate::page::{PageId, header, slots};
use std::fmt;

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

/// What a parent says about a child.
struct Expected<'a> {
    level: u8,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
}

struct Check<'a> {
    tree: &'a Tree,
    visit: &'a mut dyn FnMut(PageId),
    report: TreeReport,
    node_pages: u64,
    used_bytes: u64,
    problems: Vec<Problem>,
    /// What kept the check from looking further, which says nothing about the tree.
    failure: Option<Error>,
}

impl Tree {
    /// Visits every page of the tree once and checks that each node is responsible for exactly what its parent says,
    /// that keys are in order and within the fences, and that every large value is whole. Readers and writers may go
    /// on; splits and merges wait.
    ///
    /// Returns, instead of a report, what is wrong: at least one and at most a hundred problems.
    ///
    /// # Errors
    /// What kept it from looking at everything, such as a device that takes no writes, so that no page can make room.
    pub(crate) fn check(
        &self,
        visit: &mut dyn FnMut(PageId),
    ) -> crate::error::Result<Result<TreeReport, Vec<Problem>>> {
        let mut check = Check {
            tree: self,
            visit,
            report: TreeReport::default(),
            node_pages: 0,
            used_bytes: 0,
            problems: Vec::new(),
            failure: None,
        };
        check.root();
        if let Some(error) = check.failure {
            return Err(error);
        }
        if !check.problems.is_empty() {
            return Ok(Err(check.problems));
        }
        let capacity = slots::capacity(self.pool.page_size()) as u64 * check.node_pages;
        Ok(Ok(TreeReport { fill: check.used_bytes as f64 / capacity as f64, ..check.report }))
    }
}

impl Check<'_> {
    fn root(&mut self) {
        let Some(root) = self.latch(self.tree.root) else { return };
        let level = header::level(&root);
        self.report.height = u32::from(level) + 1;
        self.node(root, Expected { level, lower: &[], upper: None });
    }

    fn latch(&mut self, id: PageId) -> Option<PageReadGuard> {
        (self.visit)(id);
        self.report.pages += 1;
        self.node_pages += 1;
        match self.tree.pool.pin(id) {
            Ok(page) => Some(page.read()),
            Err(error) => {
                self.judge(id, error);
                None
            }
        }
    }

    /// Checks a node and what hangs on it. Children are entered only where their fences are right, so that no damage
    /// leads to a page from two parents; their levels fall, so the recursion ends.
    fn node(&mut self, page: PageReadGuard, expected: Expected<'_>) {
        let id = page.id();
        let node = match self.tree.check_owner(&page).and_then(|()| Node::read(&page)) {
            Ok(node) => node,
            Err(error) => return self.judge(id, error),
        };
        if node.level() != expected.level {
            return self.problem(id, format!("its level is {}, expected {}", node.level(), expected.level));
        }
        if node.lower() != expected.lower || node.upper() != expected.upper {
            return self.problem(id, "its fences are not those that its parent says".into());
        }
        self.used_bytes += node.used_bytes() as u64;
        let checked = if node.is_leaf() { self.leaf(&node) } else { self.inner(id, &node) };
        if let Err(error) = checked {
            self.judge(id, error);
        }
    }

    fn leaf(&mut self, node: &Node<'_>) -> Result<(), Error> {
        draft::take_apart(node)?;
        for entry in 0..node.len() {
            self.report.entries += 1;
            if let Stored::Overflow { length, first } = node.value(entry)? {
                for id in self.tree.chain_pages(length, first)? {
                    (self.visit)(id);
                    self.report.pages += 1;
                    self.report.overflow_pages += 1;
                }
            }
        }
        Ok(())
    }

    fn inner(&mut self, id: PageId, node: &Node<'_>) -> Result<(), Error> {
        if node.len() == 0 {
            return Err(node.error("an inner page without children"));
        }
        let items = draft::take_apart(node)?;
        for (entry, item) in items.iter().enumerate() {
            let upper = items.get(entry + 1).map(|next| next.key.as_slice()).or(node.upper());
            if self.problems.len() >= PROBLEMS_MAX || self.failure.is_some() {
                return Ok(());
            }
            let child = node.child(entry)?;
            if child == id {
                return Err(node.error("it is its own child"));
            }
            if let Some(page) = self.latch(child) {
                self.node(page, Expected { level: node.level() - 1, lower: &item.key, upper });
            }
        }
        Ok(())
    }

    /// What an error at a page is: a problem of the tree, or the end of the check.
    fn judge(&mut self, page: PageId, error: Error) {
        if error.is_damage() {
            self.problem(page, error.to_string());
        } else {
            self.failure.get_or_insert(error);
        }
    }

    fn problem(&mut self, page: PageId, what: String) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { page, what });
        }
    }
}
