//! Merges: a sparse node and a neighbour under the same parent become one, and a root with one child takes its place.
//!
//! They are opportunistic: what is busy, or does not fit, is left as it is.

use super::Tree;
use super::descent::{Latched, Parent};
use super::draft::{self, Fences};
use super::node::{self, Node};
use crate::buffer::{ChangeGroup, PageWriteGuard, Reservation};
use crate::error::{GroupError, GroupResult, Lack, Result};
use std::sync::Arc;
use tantalum_rt::interleave;
use tantalum_store::{Change, PageId, page::slots};

/// A node that uses less than this is worth merging: a quarter of its page.
pub(super) fn sparse_bytes(page_size: usize) -> usize {
    slots::capacity(page_size) / 4
}

/// A merge must not make a node fuller than this, or the next insert would split it again: three quarters.
fn merged_bytes_max(page_size: usize) -> usize {
    slots::capacity(page_size) / 4 * 3
}

impl Tree {
    /// Merges the leaf of `key` with a neighbour if it has become sparse, and then its ancestors likewise. The caller
    /// holds no latch.
    pub(crate) fn rebalance(&self, key: &[u8]) -> Result<()> {
        let mut level = 0;
        let reservation = Reservation::new(&self.pool);
        // The log being full is no reason to wait: no task needs the merge.
        loop {
            interleave();
            match self.try_merge(key, level, &reservation, false) {
                Ok(true) => level += 1,
                Ok(false) => break,
                Err(GroupError::Lacks(Lack::LogSpace(_) | Lack::LogSize(_) | Lack::Latch(_))) => return Ok(()),
                Err(GroupError::Lacks(lack)) => self.space.supply(&reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
            }
        }
        if level == 0 { Ok(()) } else { self.lower_root(&reservation) }
    }

    /// Frees the page of the leaf of `key` if it is empty and another stands before it under its parent: nothing has to move for that. The
    /// caller holds no latch.
    pub(crate) fn free_empty_leaf(&self, key: &[u8]) -> Result<()> {
        let reservation = Reservation::new(&self.pool);
        loop {
            interleave();
            match self.try_merge(key, 0, &reservation, true) {
                Ok(_) | Err(GroupError::Lacks(Lack::LogSpace(_) | Lack::LogSize(_) | Lack::Latch(_))) => return Ok(()),
                Err(GroupError::Lacks(lack)) => self.space.supply(&reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Merges the node of `level` on the way to `key`, unless entries had to move and it `must_be_empty`. Returns whether the level above
    /// may now be sparse.
    fn try_merge(
        &self,
        key: &[u8],
        level: u8,
        reservation: &Arc<Reservation>,
        must_be_empty: bool,
    ) -> GroupResult<bool> {
        let Some(Latched { parent: Some(parent), node }) = self.latch_for_change(key, level)? else {
            return Ok(false);
        };
        if Node::read(&node)?.used_bytes() >= sparse_bytes(self.pool.page_size()) {
            return Ok(false);
        }
        let above = Node::read(&parent.guard)?;
        if must_be_empty && (parent.entry == 0 || Node::read(&node)?.len() > 0) {
            return Ok(false);
        }
        if above.len() == 1 {
            return Ok(true);
        }
        // The neighbour on the right, or in the last child, and of a node without entries, of which nothing has to move, the one on
        // the left; `try_write` because latches are taken downwards only.
        let is_empty = Node::read(&node)?.len() == 0 && parent.entry > 0;
        let is_last = parent.entry + 1 == above.len() || is_empty;
        let right_entry = if is_last { parent.entry } else { parent.entry + 1 };
        let neighbour = above.child(if is_last { parent.entry - 1 } else { right_entry })?;
        let Some(neighbour) = self.pool.pin_in_memory(neighbour).ok_or(Lack::Page(neighbour))?.try_write() else {
            return Ok(false);
        };
        self.check_owner(&neighbour)?;
        let (left, right) = if is_last { (neighbour, node) } else { (node, neighbour) };
        let group = ChangeGroup::with(&self.pool, Some(reservation));
        self.merge(group, parent, left, right, right_entry)
    }

    /// Moves the entries of `right` into `left` and frees its page. Returns whether that was possible.
    fn merge(
        &self,
        mut group: ChangeGroup,
        parent: Parent,
        left: PageWriteGuard,
        right: PageWriteGuard,
        right_entry: usize,
    ) -> GroupResult<bool> {
        let (left_page, right_page) = (left.to_vec(), right.to_vec());
        let (left_node, right_node) = (Node::read(&left_page)?, Node::read(&right_page)?);
        if left_node.level() != right_node.level() || left_node.upper() != Some(right_node.lower()) {
            return Err(right_node.error("it does not start where its left neighbour ends").into());
        }
        // Rows behind it may fill all leaves, and there is to be room before it.
        if self.large_rows.is_some_and(|fence| fence == right_node.lower()) {
            return Ok(false);
        }
        let level = left_node.level();
        let fences = Fences { lower: left_node.lower(), upper: right_node.upper() };
        let mut items = draft::take_apart(&left_node)?;
        items.extend(draft::take_apart(&right_node)?);
        // Where one is empty, the other becomes no fuller.
        let is_one_empty = left_node.len() == 0 || right_node.len() == 0;
        let page_size = self.pool.page_size();
        let most = if is_one_empty { slots::capacity(page_size) } else { merged_bytes_max(page_size) };
        if draft::node_bytes(level, fences, &items) > most {
            return Ok(false);
        }
        let right_id = Node::read(&parent.guard)?.child(right_entry)?;

        let parent = group.add(parent.guard);
        let left = group.add(left);
        let right = group.add(right);
        let slot = (node::FENCES + right_entry) as u16;
        group.change(parent, Change::DeleteSlots { from: slot, to: slot + 1 })?;
        if fences.prefix() == left_node.prefix().len() {
            group.change(left, Change::ReplaceSlot { slot: 1, cell: &node::encode_upper(fences.upper) })?;
            draft::append_items(&mut group, left, level, fences, left_node.len(), &items[left_node.len()..])?;
        } else {
            draft::write_node(&mut group, left, level, self.owner, fences, &items)?;
        }
        self.clear_page(&mut group, right)?;
        self.space.free(&mut group, right_id)?;
        group.append(0, 0)?;
        Ok(true)
    }

    /// Lets a root with one child take that child's place, as often as there is one.
    fn lower_root(&self, reservation: &Arc<Reservation>) -> Result<()> {
        loop {
            match self.try_lower_root(reservation) {
                Ok(true) => {}
                Ok(false) | Err(GroupError::Lacks(Lack::LogSpace(_) | Lack::LogSize(_) | Lack::Latch(_))) => {
                    return Ok(());
                }
                Err(GroupError::Lacks(lack)) => self.space.supply(reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
            }
        }
    }

    /// Returns whether there may be another such child.
    fn try_lower_root(&self, reservation: &Arc<Reservation>) -> GroupResult<bool> {
        let only_child = |page: &[u8]| -> Result<Option<PageId>> {
            let node = Node::read(page)?;
            if node.is_leaf() || node.len() != 1 { Ok(None) } else { node.child(0).map(Some) }
        };
        let root = self.read_root()?;
        if only_child(&root)?.is_none() {
            return Ok(false);
        }
        let pinned = root.pin();
        drop(root);
        interleave();
        let root = pinned.write();
        if self.root() != root.id() {
            return Ok(true);
        }
        self.check_owner(&root)?;
        let Some(child_id) = only_child(&root)? else { return Ok(false) };
        let child = self.pool.pin_in_memory(child_id).ok_or(Lack::Page(child_id))?.write();
        self.check_owner(&child)?;
        let page = child.to_vec();
        let node = Node::read(&page)?;
        let fences = Fences { lower: node.lower(), upper: node.upper() };
        if !(fences.lower.is_empty() && fences.upper.is_none()) {
            return Err(node.error("the root's only child does not hold all keys").into());
        }
        let mut group = ChangeGroup::with(&self.pool, Some(reservation));
        let root = group.add(root);
        let child = group.add(child);
        draft::write_node(&mut group, root, node.level(), self.owner, fences, &draft::take_apart(&node)?)?;
        self.clear_page(&mut group, child)?;
        self.space.free(&mut group, child_id)?;
        group.append(0, 0)?;
        Ok(true)
    }
}
