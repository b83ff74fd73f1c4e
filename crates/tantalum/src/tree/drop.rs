//! Giving back all pages of a dropped table, a bounded number in each change group: no more than the pool has frames for.
//!
//! Pages are taken off the tree's right end, so that it is whole after each group and a crash loses nothing but time.
//! The root goes last; afterwards it is not this table's page any more, which is how a repeated call knows that all is
//! done.

use std::collections::BTreeSet;
use std::sync::Arc;

use tantalum_store::{Change, PageId, PageKind, page::header};

use super::descent::check_step;
use super::node::{self, Node, Stored};
use super::{Chains, Tree};
use crate::buffer::{ChangeGroup, PageWriteGuard, PinnedPage, Reservation};
use crate::error::{GroupError, GroupResult, Lack, Result};

/// About how many pages one group frees at most. One large value is freed whole, and may exceed it.
const PAGES_PER_STEP: usize = 128;

/// Space maps that one group changes at most: the log may need an image of each, and a small log has no space for many at once.
const MAPS_PER_STEP: usize = 4;

/// What one group frees.
struct Step<'t> {
    tree: &'t Tree,
    group: ChangeGroup,
    freed: Vec<PageId>,
    /// The space maps that will say so.
    maps: BTreeSet<PageId>,
    /// The pages that the group may pin.
    frames: usize,
    /// The pages of large values that are known.
    chains: &'t Chains,
}

impl Tree {
    /// Frees some of the tree's pages. Returns whether none are left. No other task may use the table any more. The caller
    /// holds no latch.
    pub(crate) fn free_step(&self) -> Result<bool> {
        let (reservation, mut chains) = (Reservation::new(&self.pool), Chains::default());
        let mut pins = self.pool.pins().wait_for(PAGES_PER_STEP);
        loop {
            // What is read for a step is not read under its latches, but before, and kept in memory until it is freed.
            match self.try_free_step(pins.granted(), &reservation, &chains) {
                Err(GroupError::Lacks(Lack::Chain { length, first })) => {
                    chains.insert(first, self.chain_pages(length, first)?);
                }
                Err(GroupError::Lacks(lack @ (Lack::LogSpace(_) | Lack::LogSize(_)))) => {
                    drop(pins);
                    self.space.supply(&reservation, lack)?;
                    pins = self.pool.pins().wait_for(PAGES_PER_STEP);
                }
                Err(GroupError::Lacks(lack)) => self.space.supply(&reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
                Ok(done) => return Ok(done),
            }
        }
    }

    fn try_free_step(&self, frames: usize, reservation: &Arc<Reservation>, chains: &Chains) -> GroupResult<bool> {
        let root = self.pool.pin(self.root())?.write();
        let is_node = matches!(header::kind(&root)?, PageKind::Leaf | PageKind::Inner);
        if !is_node || header::owner(&root) != self.owner {
            return Ok(true);
        }
        let mut step = Step {
            tree: self,
            group: ChangeGroup::with(&self.pool, Some(reservation)),
            freed: Vec::new(),
            maps: BTreeSet::new(),
            frames,
            chains,
        };
        let node = self.rightmost_branch(root)?;
        let is_root = node.id() == self.root();
        let index = step.group.add(node);
        let left = step.strip(index)?;
        let is_gone = left == 0 && is_root;
        if is_gone {
            step.free_node(index, self.root())?;
        } else {
            step.shorten(index, left)?;
        }
        step.append()?;
        Ok(is_gone)
    }

    /// The lowest page on the right edge that has no non-empty inner page below it.
    fn rightmost_branch(&self, mut guard: PageWriteGuard) -> GroupResult<PageWriteGuard> {
        loop {
            let node = Node::read(&guard)?;
            if node.level() < 2 || node.len() == 0 {
                return Ok(guard);
            }
            let child = self.pin_child(&node, node.len() - 1)?.write();
            check_step(node.level(), &child)?;
            if Node::read(&child)?.len() == 0 {
                return Ok(guard);
            }
            guard = child;
        }
    }

    fn pin_child(&self, node: &Node<'_>, entry: usize) -> GroupResult<PinnedPage> {
        let child = node.child(entry)?;
        Ok(self.pool.pin_in_memory(child).ok_or(Lack::Page(child))?)
    }
}

impl Step<'_> {
    /// Whether one more entry may go: for a child and a map of what hangs on it there must be frames.
    fn has_room(&self) -> bool {
        self.freed.len() < PAGES_PER_STEP
            && self.maps.len() < MAPS_PER_STEP
            && self.group.ids().count() + self.maps.len() + 2 <= self.frames
    }

    /// Frees what hangs on the last entries of a page, as far as there is room. Returns how many entries are left.
    fn strip(&mut self, index: usize) -> GroupResult<usize> {
        let page = self.group.page(index).to_vec();
        let node = Node::read(&page)?;
        let mut left = node.len();
        while left > 0 && self.has_room() {
            let is_free = if node.is_leaf() {
                self.free_value(&node, left - 1)?;
                true
            } else {
                self.strip_child(&node, left - 1)?
            };
            if !is_free {
                break;
            }
            left -= 1;
        }
        Ok(left)
    }

    /// Takes the entries off a page that were stripped. Not off one that becomes free: that is formatted as it is, so that the log
    /// needs no image of it.
    fn shorten(&mut self, index: usize, left: usize) -> Result<()> {
        let entries = Node::read(self.group.page(index))?.len();
        if left == entries {
            return Ok(());
        }
        let (from, to) = (node::FENCES + left, node::FENCES + entries);
        self.group.change(index, Change::DeleteSlots { from: from as u16, to: to as u16 })
    }

    /// Strips a child that is a leaf or empty, and frees its page when nothing is left in it. Returns whether it did.
    fn strip_child(&mut self, node: &Node<'_>, entry: usize) -> GroupResult<bool> {
        let child = self.tree.pin_child(node, entry)?;
        // Further leaves are latched already: this one must not be waited for.
        let child = child.try_write().ok_or(Lack::Latch(child.id()))?;
        check_step(node.level(), &child)?;
        self.tree.check_owner(&child)?;
        let view = Node::read(&child)?;
        if !view.is_leaf() && view.len() > 0 {
            return Ok(false);
        }
        let id = child.id();
        let child = self.group.add(child);
        let left = self.strip(child)?;
        if left == 0 {
            self.free_node(child, id)?;
        } else {
            self.shorten(child, left)?;
        }
        Ok(left == 0)
    }

    /// Frees the pages of an entry's value, if it has any.
    fn free_value(&mut self, leaf: &Node<'_>, entry: usize) -> GroupResult<()> {
        if let Stored::Overflow { length, first } = leaf.value(entry)? {
            self.chains.get(first).ok_or(Lack::Chain { length, first })?.iter().for_each(|page| self.free(*page));
        }
        Ok(())
    }

    /// Frees a page of the group.
    fn free_node(&mut self, index: usize, id: PageId) -> Result<()> {
        self.free(id);
        self.tree.clear_page(&mut self.group, index)
    }

    fn free(&mut self, page: PageId) {
        self.maps.insert(self.tree.space.map_for(page));
        self.freed.push(page);
    }

    fn append(mut self) -> GroupResult<()> {
        self.tree.free_chains(&mut self.group, self.freed)?;
        self.group.append(0, 0).map(drop)
    }
}
