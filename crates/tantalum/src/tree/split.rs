//! Splits: one node becomes two, in one change group with the parent's new entry; a root's contents move down into two.

use super::descent::{Latched, Parent};
use super::draft::{self, Cut, Fences, Growth, Item};
use super::leaf_writes::{self, LeafWrite};
use super::node::{self, Node, Payload};
use super::{Tree, damaged};
use crate::buffer::{ChangeGroup, PageWriteGuard, Reservation};
use crate::error::{GroupError, GroupResult, Result};
use std::sync::Arc;
use tantalum_rt::interleave;
use tantalum_store::{
    Change, PageId,
    page::{header, slots},
};

/// What a node must have room for.
#[derive(Clone, Copy)]
pub(super) enum Need<'a> {
    /// These writes, as far as they belong to the leaf.
    Writes(&'a [LeafWrite<'a>]),
    /// One more entry of an inner node, of this many bytes with its slot.
    Entry(usize),
}

/// What came of trying to make room.
enum Step {
    Done,
    /// The parent first needs room for an entry of this many bytes.
    ParentFull(usize),
}

impl Tree {
    /// Splits the node of `level` on the way to `key` once, after its ancestors where they are full, unless it has the
    /// room needed. Waits for room in the log. The caller holds no latch.
    pub(super) fn make_room(
        &self,
        key: &[u8],
        level: u8,
        need: &Need<'_>,
        reservation: &Arc<Reservation>,
    ) -> Result<()> {
        loop {
            match self.try_split(key, level, need, reservation) {
                Ok(Step::Done) => return Ok(()),
                Ok(Step::ParentFull(bytes)) => self.make_room(key, level + 1, &Need::Entry(bytes), reservation)?,
                Err(GroupError::Lacks(lack)) => self.space.supply(reservation, lack)?,
                Err(GroupError::Failed(error)) => return Err(error),
            }
            interleave();
        }
    }

    /// Divides the root of a tree that is still empty in two leaves, so that those before the fence stay apart.
    pub(crate) fn divide(&self, fence: &[u8]) -> Result<()> {
        self.space.supplied(|reservation| {
            let Some(Latched { parent: None, node: guard }) = self.latch_for_change(fence, 0)? else { return Ok(()) };
            let page = guard.to_vec();
            let node = Node::read(&page)?;
            if node.len() > 0 {
                return Ok(());
            }
            let group = ChangeGroup::with(&self.pool, Some(reservation));
            self.split_root(group, guard, &node, &[], &Cut { at: 0, separator: fence.to_vec() })
        })
    }

    fn try_split(&self, key: &[u8], level: u8, need: &Need<'_>, reservation: &Arc<Reservation>) -> GroupResult<Step> {
        let Some(Latched { parent, node: guard }) = self.latch_for_change(key, level)? else {
            return Ok(Step::Done);
        };
        self.check_owner(&guard)?;
        let page = guard.to_vec();
        let node = Node::read(&page)?;
        if self.has_room(&node, &page, need)? {
            return Ok(Step::Done);
        }
        let items = draft::take_apart(&node)?;
        let cut = self
            .cut(header::page_id(&page), &node, &items, need)?
            .ok_or_else(|| damaged(&page, "it is full but cannot be split"))?;
        let group = ChangeGroup::with(&self.pool, Some(reservation));
        match parent {
            None => self.split_root(group, guard, &node, &items, &cut)?,
            Some(parent) => {
                let above = Node::read(&parent.guard)?;
                let Some(suffix) = cut.separator.strip_prefix(above.prefix()) else {
                    return Err(damaged(&page, "its keys do not lie between its parent's fences").into());
                };
                let bytes = slots::SLOT_BYTES + node::inner_cell_bytes(suffix.len());
                if bytes > slots::free_bytes(&parent.guard) {
                    return Ok(Step::ParentFull(bytes));
                }
                let suffix = suffix.to_vec();
                self.split_child(group, parent, &suffix, guard, &node, &items, &cut)?;
            }
        }
        Ok(Step::Done)
    }

    fn has_room(&self, node: &Node<'_>, page: &[u8], need: &Need<'_>) -> Result<bool> {
        match need {
            Need::Entry(bytes) => Ok(*bytes <= slots::free_bytes(page)),
            Need::Writes(writes) => {
                let belonging = &writes[..writes.partition_point(|write| node.is_below_upper(write.key))];
                leaf_writes::fits(node, page, belonging, self.inline_limit(), &mut Vec::new())
            }
        }
    }

    fn cut(&self, id: PageId, node: &Node<'_>, items: &[Item<'_>], need: &Need<'_>) -> Result<Option<Cut>> {
        match need {
            Need::Entry(_) => Ok(draft::cut_inner(items)),
            Need::Writes(writes) => {
                let belonging = &writes[..writes.partition_point(|write| node.is_below_upper(write.key))];
                let growth = match draft::added_before(items, belonging) {
                    Some(next) if next == items.len() => Growth::AtEnd,
                    Some(next) if self.runs.continues(id, next) => Growth::Before(next),
                    _ => Growth::Anywhere,
                };
                let (page_size, inline_limit) = (self.pool.page_size(), self.inline_limit());
                Ok(draft::cut_leaf(page_size, fences_of(node), items, belonging, growth, inline_limit))
            }
        }
    }

    /// The upper part moves to a fresh page, for which the parent gets an entry with `suffix`.
    #[expect(clippy::too_many_arguments, reason = "all of a split")]
    fn split_child(
        &self,
        mut group: ChangeGroup,
        parent: Parent,
        suffix: &[u8],
        guard: PageWriteGuard,
        node: &Node<'_>,
        items: &[Item<'_>],
        cut: &Cut,
    ) -> GroupResult<()> {
        let slot = (node::FENCES + parent.entry + 1) as u16;
        let (left, right) = halves(node, cut);

        let parent = group.add(parent.guard);
        let old = group.add(guard);
        let fresh = self.write_fresh(&mut group, node.level(), right, &items[cut.at..])?;
        group.change(
            parent,
            Change::InsertSlot { slot, cell: &Payload::child(&fresh.0.to_le_bytes()).with_suffix(suffix) },
        )?;
        let (from, to) = (node::FENCES + cut.at, node::FENCES + items.len());
        group.change(old, Change::DeleteSlots { from: from as u16, to: to as u16 })?;
        if left.prefix() > node.prefix().len() {
            draft::lengthen_prefix(&mut group, old, node.level(), left, &items[..cut.at])?;
        }
        group.change(old, Change::ReplaceSlot { slot: 1, cell: &node::encode_upper(left.upper) })?;
        group.append(0, 0).map(drop)
    }

    /// The root's contents move down into two fresh pages; the root stays where it is, one level higher.
    fn split_root(
        &self,
        mut group: ChangeGroup,
        guard: PageWriteGuard,
        node: &Node<'_>,
        items: &[Item<'_>],
        cut: &Cut,
    ) -> GroupResult<()> {
        let level = node.level().checked_add(1).ok_or_else(|| node.error("the tree cannot become higher"))?;
        let (left, right) = halves(node, cut);
        let root = group.add(guard);
        let low = self.write_fresh(&mut group, node.level(), left, &items[..cut.at])?.0.to_le_bytes();
        let high = self.write_fresh(&mut group, node.level(), right, &items[cut.at..])?.0.to_le_bytes();
        let children = [
            Item { key: Vec::new(), payload: Payload::child(&low) },
            Item { key: cut.separator.clone(), payload: Payload::child(&high) },
        ];
        draft::write_node(&mut group, root, level, self.owner, fences_of(node), &children)?;
        group.append(0, 0).map(drop)
    }

    /// Allocates a page and writes a node into it.
    fn write_fresh(
        &self,
        group: &mut ChangeGroup,
        level: u8,
        fences: Fences<'_>,
        items: &[Item<'_>],
    ) -> GroupResult<PageId> {
        let id = self.space.allocate(group, self.owner)?;
        let index = group.add_new(id)?;
        draft::write_node(group, index, level, self.owner, fences, items)?;
        Ok(id)
    }
}

fn fences_of<'a>(node: &Node<'a>) -> Fences<'a> {
    Fences { lower: node.lower(), upper: node.upper() }
}

/// What the two parts of a node are responsible for.
fn halves<'a>(node: &Node<'a>, cut: &'a Cut) -> (Fences<'a>, Fences<'a>) {
    (Fences { lower: node.lower(), upper: Some(&cut.separator) }, Fences { lower: &cut.separator, upper: node.upper() })
}
