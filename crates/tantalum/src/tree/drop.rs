//! Giving back all pages of a dropped table, a bounded number in each change group.
//!
//! Pages are taken off the tree's right end, so that it is whole after each group and a crash loses nothing but time.
//! The root goes last; afterwards it is not this table's page any more, which is how a repeated call knows that all is
//! done.

use super::Tree;
use super::descent::check_step;
use super::node::{self, Node, Stored};
use crate::buffer::{ChangeGroup, PageWriteGuard, PinnedPage};
use crate::error::{Error, Result};
use crate::page::{Change, PageId, PageKind, header};
use tantalum_rt::yield_now;

/// About how many pages one group frees. One large value is freed whole, and may exceed it.
const PAGES_PER_STEP: usize = 128;

impl Tree {
    /// Frees some of the tree's pages. Returns whether none are left. Nobody else may use the table any more.
    pub(crate) fn free_step(&self) -> Result<bool> {
        loop {
            match self.try_free_step() {
                Err(Error::LogFull { needed }) => self.pool.wait_for_log_space(needed)?,
                Err(Error::Busy { .. }) => yield_now(),
                done => return done,
            }
        }
    }

    fn try_free_step(&self) -> Result<bool> {
        let root = self.pool.pin(self.root)?.write();
        let is_node = matches!(header::kind(&root)?, PageKind::Leaf | PageKind::Inner);
        if !is_node || header::owner(&root) != self.owner {
            return Ok(true);
        }
        let mut budget = PAGES_PER_STEP;
        let mut freed = Vec::new();
        let mut group = ChangeGroup::new(&self.pool);
        let node = self.rightmost_branch(root)?;
        let is_root = node.id() == self.root;
        let index = group.add(node);
        let is_gone = self.strip(&mut group, index, &mut freed, &mut budget)? && is_root;
        if is_gone {
            self.clear_page(&mut group, index)?;
            freed.push(self.root);
        }
        self.free_chains(&mut group, freed)?;
        group.append(0, 0)?;
        Ok(is_gone)
    }

    /// The lowest page on the right edge that has no non-empty inner page below it.
    fn rightmost_branch(&self, mut guard: PageWriteGuard) -> Result<PageWriteGuard> {
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

    fn pin_child(&self, node: &Node<'_>, entry: usize) -> Result<PinnedPage> {
        self.pool.pin(node.child(entry)?)
    }

    /// Takes entries off a page's end and frees what hangs on them, as far as the budget goes. Returns whether none are
    /// left.
    fn strip(
        &self,
        group: &mut ChangeGroup,
        index: usize,
        freed: &mut Vec<PageId>,
        budget: &mut usize,
    ) -> Result<bool> {
        let page = group.page(index).to_vec();
        let node = Node::read(&page)?;
        let mut left = node.len();
        while left > 0 && *budget > 0 {
            let is_free = if node.is_leaf() {
                self.collect_chain(&node, left - 1, freed, budget)?;
                true
            } else {
                self.strip_child(group, &node, left - 1, freed, budget)?
            };
            if !is_free {
                break;
            }
            left -= 1;
        }
        if left < node.len() {
            let (from, to) = (node::FENCES + left, node::FENCES + node.len());
            group.change(index, Change::DeleteSlots { from: from as u16, to: to as u16 })?;
        }
        Ok(left == 0)
    }

    /// Strips a child that is a leaf or empty, and frees its page when nothing is left in it. Returns whether it did.
    fn strip_child(
        &self,
        group: &mut ChangeGroup,
        node: &Node<'_>,
        entry: usize,
        freed: &mut Vec<PageId>,
        budget: &mut usize,
    ) -> Result<bool> {
        let child = self.pin_child(node, entry)?;
        // Further leaves are latched already: this one must not be waited for.
        let child = child.try_write().ok_or(Error::Busy { page: child.id() })?;
        check_step(node.level(), &child)?;
        self.check_owner(&child)?;
        let view = Node::read(&child)?;
        if !view.is_leaf() && view.len() > 0 {
            return Ok(false);
        }
        let id = child.id();
        let child = group.add(child);
        if !self.strip(group, child, freed, budget)? {
            return Ok(false);
        }
        self.clear_page(group, child)?;
        freed.push(id);
        *budget = budget.saturating_sub(1);
        Ok(true)
    }

    fn collect_chain(&self, leaf: &Node<'_>, entry: usize, freed: &mut Vec<PageId>, budget: &mut usize) -> Result<()> {
        if let Stored::Overflow { length, first } = leaf.value(entry)? {
            let pages = self.chain_pages(length, first)?;
            *budget = budget.saturating_sub(pages.len());
            freed.extend(pages);
        }
        Ok(())
    }
}
