//! Moving a node to a page further in front, so that the end of the store can be given back ([`Space::shrink`](crate::space::Space::shrink)).
//!
//! A move is one change group: the node's contents in a fresh page, its parent's entry, or the catalog's row of a root, and the old
//! page, which becomes free. For other tasks it is as if the node had been merged away: hints, positions and prepared commits find a
//! page that is no node any more, and go down anew.

use std::sync::{Arc, atomic::Ordering};

use tantalum_store::{Change, PageId, page::header};

use super::{
    Tree,
    descent::Latched,
    draft::{self, Fences},
    node::{self, Node, Payload},
};
use crate::{
    buffer::{ChangeGroup, PageWriteGuard, Reservation},
    error::{GroupError, GroupResult, Lack, Result},
};

/// What came of moving a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// It is in a page further in front.
    Forward,
    /// The page does not hold that node any more.
    Gone,
    /// There is no free page before it.
    NoRoom,
    /// It is the tree's root, which is moved with the row that names it.
    IsRoot,
}

impl Tree {
    /// Moves the node in page `id`, of this lower fence and level. The caller holds no latch.
    pub(crate) fn move_node(&self, id: PageId, lower: &[u8], level: u8) -> Result<Moved> {
        self.space.supplied(|reservation| or_no_room(self.try_move_node(id, lower, level, reservation)))
    }

    fn try_move_node(&self, id: PageId, lower: &[u8], level: u8, reservation: &Arc<Reservation>) -> GroupResult<Moved> {
        let Some(Latched { parent, node }) = self.latch_for_change(lower, level)? else { return Ok(Moved::Gone) };
        if node.id() != id {
            return Ok(Moved::Gone);
        }
        let Some(parent) = parent else { return Ok(Moved::IsRoot) };
        let mut group = ChangeGroup::with(&self.pool, Some(reservation));
        let (above, entry) = (group.add(parent.guard), parent.entry);
        let Some(fresh) = self.move_to_fresh(&mut group, node)? else { return Ok(Moved::NoRoom) };
        let cell = {
            let above = Node::read(group.page(above))?;
            // The first child has no key of its own.
            let suffix = if entry == 0 { &[] } else { above.suffix(entry)? };
            Payload::child(&fresh.0.to_le_bytes()).with_suffix(suffix)
        };
        group.change(above, Change::ReplaceSlot { slot: (node::FENCES + entry) as u16, cell: &cell })?;
        group.append(0, 0)?;
        Ok(Moved::Forward)
    }

    /// Plans that the root, which is latched, moves; `None` if there is no free page before it. The caller has the row that names it
    /// say so in the same group, and appends that with [`append_moved_root`](Self::append_moved_root).
    pub(crate) fn move_root(&self, group: &mut ChangeGroup, root: PageWriteGuard) -> GroupResult<Option<PageId>> {
        assert_eq!(root.id(), self.root(), "the root is latched");
        self.move_to_fresh(group, root)
    }

    /// Appends a group in which the root moves to `fresh`.
    pub(crate) fn append_moved_root(&self, group: ChangeGroup, fresh: PageId) -> GroupResult<()> {
        // While both pages are latched: a task that latches the old one afterwards sees that it is not the root.
        group.append_with(0, 0, &[], |_| self.shared.root.store(fresh.0, Ordering::Release)).map(drop)
    }

    /// Plans that a node moves to a free page before its own, which becomes free. Returns that, if there is one.
    fn move_to_fresh(&self, group: &mut ChangeGroup, node: PageWriteGuard) -> GroupResult<Option<PageId>> {
        self.check_owner(&node)?;
        let (id, page) = (node.id(), node.to_vec());
        let old = group.add(node);
        let fresh = self.space.allocate(group, self.owner)?;
        if fresh > id {
            return Ok(None);
        }
        let node = Node::read(&page)?;
        let fences = Fences { lower: node.lower(), upper: node.upper() };
        let new = group.add_new(fresh)?;
        draft::write_node(group, new, header::level(&page), self.owner, fences, &draft::take_apart(&node)?)?;
        self.clear_page(group, old)?;
        self.space.free(group, id)?;
        Ok(Some(fresh))
    }
}

/// The result of an attempt that needs no page at the end of the store: it does not grow for a node that would move there.
pub(crate) fn or_no_room(attempt: GroupResult<Moved>) -> GroupResult<Moved> {
    match attempt {
        Err(GroupError::Lacks(Lack::FreePage { .. })) => Ok(Moved::NoRoom),
        other => other,
    }
}
