//! Ways to a node: by a hint to a leaf, down the tree with read latches, and with write latches to a node and its parent.
//!
//! A leaf of this table whose fences include a position is the leaf of that position: a table has one tree, and whatever takes keys
//! from a leaf, or a leaf from the tree, changes its page in the same group, under its latch. So a hint needs nothing but a look at
//! the page that it leads to. A leaf that a bulk load builds is none of the tree's yet; its LSN says so.
//!
//! No latch is held while a page is read from the store: a writer that wants a latched page waits, and keeps out all tasks that
//! come after it, so that one read would hold up everything below.

use super::cursor::LeafPosition;
use super::node::Node;
use super::{LeafWrite, Tree, damaged};
use crate::buffer::{HintKey, PageView, PageWriteGuard, PinnedPage};
use crate::error::Result;
use std::sync::atomic::Ordering;
use tantalum_rt::interleave;
use tantalum_store::{PageId, PageKind, page::header};

/// So many writes are looked at for pages to be read ahead.
const AHEAD_KEYS: usize = 64;
/// So many keys are prefetched at the same time: what is fetched of them fits the first cache.
const PREFETCHED_KEYS: usize = 32;

/// A node latched for a change of structure, and its parent.
pub(super) struct Latched {
    pub(super) parent: Option<Parent>,
    pub(super) node: PageWriteGuard,
}

/// The parent of a node that is about to change.
pub(super) struct Parent {
    pub(super) guard: PageWriteGuard,
    /// The parent's entry that names the node.
    pub(super) entry: usize,
}

impl LeafPosition<'_> {
    fn hint_key(self, tree: &Tree) -> HintKey {
        let (kind, key) = match self {
            LeafPosition::Containing(key) => (0u8, key),
            LeafPosition::Before(bound) => (1, bound),
            LeafPosition::First => (2, &[][..]),
            LeafPosition::Last => (3, &[][..]),
        };
        HintKey::new((tree.owner.0, kind, key))
    }

    /// The entry of an inner node to go down by.
    fn choose(self, node: &Node<'_>) -> Result<usize> {
        match self {
            LeafPosition::Containing(key) => node.child_for(key),
            LeafPosition::Before(bound) => node.child_before(bound),
            LeafPosition::First if node.len() > 0 => Ok(0),
            LeafPosition::Last if node.len() > 0 => Ok(node.len() - 1),
            LeafPosition::First | LeafPosition::Last => Err(node.error("an inner page without children")),
        }
    }

    /// Whether the way to this position can lead through the node.
    pub(super) fn is_in(self, node: &Node<'_>) -> bool {
        match self {
            LeafPosition::Containing(key) => node.covers(key),
            LeafPosition::Before(bound) => node.covers_before(bound),
            LeafPosition::First => node.lower().is_empty(),
            LeafPosition::Last => node.upper().is_none(),
        }
    }
}

impl Tree {
    /// Shows `f` the leaf of a position, latched for reading meanwhile, and the entry of it that `f` returned the last time, or any
    /// other. `f` must be quick and wait for no inner page.
    pub(super) fn at_leaf<R>(
        &self,
        at: LeafPosition<'_>,
        f: impl FnOnce(&Node<'_>, &PageView<'_>, usize) -> Result<(R, usize)>,
    ) -> Result<R> {
        self.at_leaf_before(at, &[], f)
    }

    /// As [`at_leaf`](Self::at_leaf); if the leaf is to be read from the store, those of these writes are read with it.
    pub(super) fn at_leaf_before<R>(
        &self,
        at: LeafPosition<'_>,
        ahead: &[LeafWrite<'_>],
        f: impl FnOnce(&Node<'_>, &PageView<'_>, usize) -> Result<(R, usize)>,
    ) -> Result<R> {
        let key = at.hint_key(self);
        let (page, hinted) = match self.hinted_leaf(at, key) {
            Some((page, entry)) => (page, Some(entry)),
            None => (self.descend_before(at, 0, ahead)?, None),
        };
        self.show(key, page, hinted, f)
    }

    /// As [`at_leaf`](Self::at_leaf), but instead of waiting for the store says what page is not in memory.
    pub(super) fn at_leaf_in_memory<R>(
        &self,
        at: LeafPosition<'_>,
        f: impl FnOnce(&Node<'_>, &PageView<'_>, usize) -> Result<(R, usize)>,
    ) -> Result<Result<R, PageId>> {
        let key = at.hint_key(self);
        let (page, hinted) = match self.hinted_leaf(at, key) {
            Some((page, entry)) => (page, Some(entry)),
            None => match self.descend_in_memory(at)? {
                Ok(page) => (page, None),
                Err(missing) => return Ok(Err(missing)),
            },
        };
        self.show(key, page, hinted, f).map(Ok)
    }

    /// The leaf of a position to which its hint leads, and the entry that was wanted of it.
    #[inline]
    fn hinted_leaf(&self, at: LeafPosition<'_>, key: HintKey) -> Option<(PageView<'_>, usize)> {
        // A page that a hint wrongly leads to is let go before anything else is latched.
        let (page, entry) = self.pool.hinted_page(key)?;
        let is_leaf = self.node_on_way(at, &page).is_some_and(|node| node.is_leaf());
        (is_leaf && page.lsn().get() != self.shared.building.load(Ordering::Acquire)).then_some((page, entry))
    }

    #[inline]
    fn show<R>(
        &self,
        key: HintKey,
        page: PageView<'_>,
        hinted: Option<usize>,
        f: impl FnOnce(&Node<'_>, &PageView<'_>, usize) -> Result<(R, usize)>,
    ) -> Result<R> {
        let (result, found) = f(&Node::read(&page)?, &page, hinted.unwrap_or(0))?;
        self.pool.note_hint(key, &page, found, hinted);
        Ok(result)
    }

    /// Goes down to the leaf of a position, or says what page is not in memory: that or one on the way to it.
    fn descend_in_memory(&self, at: LeafPosition<'_>) -> Result<Result<PageView<'_>, PageId>> {
        let mut page = match self.read_root_in_memory() {
            Ok(root) => root,
            Err(missing) => return Ok(Err(missing)),
        };
        loop {
            let node = Node::read(&page)?;
            self.check_owner(&page)?;
            if !at.is_in(&node) {
                return Err(node.error("the way to a key leads through it, but its fences exclude the key"));
            }
            if node.is_leaf() {
                return Ok(Ok(page));
            }
            let child = node.child(at.choose(&node)?)?;
            page = match self.pool.read_in_memory(child) {
                Some(below) => {
                    check_step(node.level(), &below)?;
                    below
                }
                None => return Ok(Err(child)),
            };
        }
    }

    /// Goes down to the node of the given level, or to the root when the tree is lower than that, taking each read
    /// latch before it releases the parent's. What is not in memory is read while nothing is latched; then the parent is looked at
    /// again. The caller holds no latch.
    pub(super) fn descend(&self, at: LeafPosition<'_>, level: u8) -> Result<PageView<'_>> {
        self.descend_before(at, level, &[])
    }

    /// As [`descend`](Self::descend), before the leaves of some writes are wanted.
    fn descend_before(&self, at: LeafPosition<'_>, level: u8, ahead: &[LeafWrite<'_>]) -> Result<PageView<'_>> {
        let mut ahead = ahead;
        let mut page = self.read_root()?;
        loop {
            let node = Node::read(&page)?;
            self.check_owner(&page)?;
            if !at.is_in(&node) {
                return Err(node.error("the way to a key leads through it, but its fences exclude the key"));
            }
            if node.level() <= level {
                return Ok(page);
            }
            let child = node.child(at.choose(&node)?)?;
            page = match self.pool.read_in_memory(child) {
                Some(below) => {
                    check_step(node.level(), &below)?;
                    below
                }
                None if ahead.len() > 1 => {
                    drop(page);
                    self.read_ahead(std::mem::take(&mut ahead))?;
                    self.read_root()?
                }
                None => self.step_by_reading(at, page, child)?,
            };
        }
    }

    /// Brings the leaves of keys closer that are wanted soon: into the processor's caches, and those that are not in memory into it,
    /// several at the same time where the device can. A help, which promises nothing. No latch may be held.
    pub(crate) fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K]) {
        let most = self.pool.most_read_ahead();
        for keys in keys.chunks(PREFETCHED_KEYS) {
            let mut hints = [HintKey::default(); PREFETCHED_KEYS];
            for (hint, key) in hints.iter_mut().zip(keys) {
                *hint = LeafPosition::Containing(key.as_ref()).hint_key(self);
            }
            let hints = &hints[..keys.len()];
            self.pool.prefetch_hinted(hints);
            // A hint may lead to a frame that has another page by now.
            let may_be_old = self.pool.has_been_full();
            let mut missing = Vec::new();
            for (key, hint) in keys.iter().zip(hints) {
                let key = key.as_ref();
                let is_there = match may_be_old {
                    true => self.hinted_leaf(LeafPosition::Containing(key), *hint).is_some(),
                    false => self.pool.has_hint(*hint),
                };
                if !is_there && missing.len() < most {
                    // An error is left to the task that comes to need the page.
                    let page = self.missing_page(key).ok().flatten();
                    missing.extend(page.filter(|page| !missing.contains(page)));
                }
            }
            if !missing.is_empty() {
                self.pool.read_ahead(&missing);
            }
        }
    }

    /// Reads what is not in memory on the ways to the leaves of some writes, the next page of each way, at the same time where the device
    /// can. No latch may be held.
    #[cold]
    fn read_ahead(&self, writes: &[LeafWrite<'_>]) -> Result<()> {
        let most = self.pool.most_read_ahead();
        let mut missing = Vec::with_capacity(most);
        for write in writes.iter().take(AHEAD_KEYS) {
            if missing.len() >= most {
                break;
            }
            missing.extend(self.missing_page(write.key)?.filter(|page| !missing.contains(page)));
        }
        if missing.len() > 1 {
            self.pool.read_ahead(&missing);
        }
        Ok(())
    }

    /// The first page on the way to the leaf of a key that is not in memory.
    fn missing_page(&self, key: &[u8]) -> Result<Option<PageId>> {
        let at = LeafPosition::Containing(key);
        let mut page = self.read_root()?;
        loop {
            // The tree may change meanwhile, and whatever is wrong is found on the way to the key.
            let Some(node) = self.node_on_way(at, &page).filter(|node| !node.is_leaf()) else { return Ok(None) };
            let child = node.child(at.choose(&node)?)?;
            page = match self.pool.read_in_memory(child) {
                Some(below) => {
                    check_step(node.level(), &below)?;
                    below
                }
                None => return Ok(Some(child)),
            };
        }
    }

    /// Latches the root for reading.
    pub(super) fn read_root(&self) -> Result<PageView<'_>> {
        loop {
            let root = self.root();
            let page = self.pool.read(root);
            // Under its latch: until then it may have moved, and its page be free or another one.
            if self.root() == root {
                return page;
            }
        }
    }

    /// As [`read_root`](Self::read_root), but instead of waiting for the store says that the root is not in memory.
    fn read_root_in_memory(&self) -> Result<PageView<'_>, PageId> {
        loop {
            let root = self.root();
            let page = self.pool.read_in_memory(root).ok_or(root)?;
            if self.root() == root {
                return Ok(page);
            }
        }
    }

    /// Reads a child that is not in memory. Returns it if the parent still names it then, or whatever else is on the way.
    #[cold]
    fn step_by_reading<'t>(&'t self, at: LeafPosition<'_>, page: PageView<'t>, child: PageId) -> Result<PageView<'t>> {
        let above = page.pin();
        drop(page);
        let below = self.pool.pin(child);
        let page = self.pool.latch(&above);
        // Meanwhile the parent may have become another page, or free, and so may the child.
        let Some(node) = self.node_on_way(at, &page).filter(|node| !node.is_leaf()) else {
            drop(page);
            return self.read_root();
        };
        if node.child(at.choose(&node)?)? != child {
            return Ok(page);
        }
        let below = self.pool.latch(&below?);
        check_step(node.level(), &below)?;
        Ok(below)
    }

    /// The node in a page that may be any, if the way to a position leads through it: whatever takes keys from a node, or a node
    /// from the tree, changes its page.
    fn node_on_way<'p>(&self, at: LeafPosition<'_>, page: &'p [u8]) -> Option<Node<'p>> {
        let is_node = matches!(header::kind(page), Ok(PageKind::Leaf | PageKind::Inner));
        let is_ours = is_node && header::owner(page) == self.owner;
        let node = is_ours.then(|| Node::read(page).ok())??;
        at.is_in(&node).then_some(node)
    }

    /// Latches the node of `level` on the way to `key` for writing, and its parent. `None` when the tree is lower than
    /// that. The caller holds no latch.
    pub(super) fn latch_for_change(&self, key: &[u8], level: u8) -> Result<Option<Latched>> {
        let at = LeafPosition::Containing(key);
        loop {
            // Both are in memory before one of them is latched for writing.
            let above = self.descend(at, level.saturating_add(1))?;
            let parent = (header::level(&above) > level).then(|| above.pin());
            drop(above);
            let below = self.descend(at, level)?;
            if header::level(&below) < level {
                return Ok(None);
            }
            let node = below.pin();
            drop(below);
            interleave();
            let latched = match parent {
                None => self.latch_root(&node, level),
                Some(parent) => self.latch_child(&parent, &node, at, level)?,
            };
            if latched.is_some() {
                return Ok(latched);
            }
        }
    }

    /// Latches the node of `level` if it is the root.
    fn latch_root(&self, node: &PinnedPage, level: u8) -> Option<Latched> {
        let node = node.write();
        let is_root = node.id() == self.root() && header::level(&node) == level;
        is_root.then_some(Latched { parent: None, node })
    }

    /// Latches the node of `level` if it is a child of `parent`. No task that holds the child's latch waits for an inner page, so
    /// waiting is safe.
    fn latch_child(
        &self,
        parent: &PinnedPage,
        node: &PinnedPage,
        at: LeafPosition<'_>,
        level: u8,
    ) -> Result<Option<Latched>> {
        let guard = parent.write();
        let Some(above) = self.node_on_way(at, &guard).filter(|above| above.level().checked_sub(1) == Some(level))
        else {
            return Ok(None);
        };
        let entry = at.choose(&above)?;
        if above.child(entry)? != node.id() {
            return Ok(None);
        }
        let child = node.write();
        check_step(above.level(), &child)?;
        self.check_owner(&child)?;
        if !at.is_in(&Node::read(&child)?) {
            return Err(damaged(&child, "the way to a key leads through it, but its fences exclude the key"));
        }
        Ok(Some(Latched { parent: Some(Parent { guard, entry }), node: child }))
    }
}

/// Checks that a step down goes down by one: no damage can make a descent endless.
pub(super) fn check_step(parent_level: u8, child: &[u8]) -> Result<()> {
    if header::level(child).checked_add(1) == Some(parent_level) {
        return Ok(());
    }
    Err(damaged(
        child,
        &format!("it stands below a page of level {parent_level}, but its own level is {}", header::level(child)),
    ))
}
