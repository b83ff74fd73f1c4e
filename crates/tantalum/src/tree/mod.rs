//! The B+-tree of one table: keys and values of any bytes, in key order, in slotted pages.
//!
//! Reading goes down from the root with read latches, each taken before its parent's is released (but none is held while a page is
//! read from the store), or to the leaf at once where a hint says that it was found before ([`descent`]). Writing is done in
//! two steps, so that one transaction can change many leaves in one change group: [`Tree::prepare`] makes room in the
//! leaf that a key belongs to, by splits that are change groups of their own and change no contents; [`Tree::stage`]
//! then puts the writes into the transaction's group, under the leaf's write latch, or reports that the leaf is not the
//! right one any more.
//!
//! Invariants:
//! - a root that splits moves its contents down into two fresh pages and stays where it is; it moves only when the database is
//!   [compacted](relocate), under its latch, and a task that latches the root's page looks whether it still is that
//! - a parent's separators are exactly its children's fences, so a node knows what it is responsible for
//! - every change of structure is one change group: recovery sees a split or a merge whole or not at all
//! - latches are taken downwards; a task that holds a leaf's latch waits for no inner page (the whole order stands in
//!   [`crate::buffer`])

mod build;
mod cursor;
mod descent;
mod draft;
mod drop;
mod insert_runs;
mod leaf_copy;
mod leaf_writes;
mod merge;
mod node;
mod overflow;
mod reference;
mod relocate;
mod split;
#[cfg(test)]
mod tests;
mod tree_check;

pub(crate) use build::{BuiltRoot, TreeBuilder};
pub(crate) use cursor::{LeafPosition, LeafView};
pub(crate) use insert_runs::InsertRuns;
pub(crate) use leaf_copy::{CopiedValue, LeafCopy};
pub(crate) use leaf_writes::{LeafWrite, Place};
pub(crate) use overflow::{ChainRow, Chains};
pub(crate) use reference::{LeafValue, REFERENCE_BYTES, Reference};
pub(crate) use relocate::{Moved, or_no_room};
pub use tree_check::TreeReport;
pub(crate) use tree_check::{LostKeys, ReferenceCheck, RowSight, no_reference};

use crate::buffer::{BufferPool, ChangeGroup, PageView, PageWriteGuard};
use crate::error::{self, Error, GroupResult, Lack, Result};
use crate::space::Space;
use node::{Found, Node, Stored};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tantalum_log::Lsn;
use tantalum_store::{
    Change, PageId, PageKind, TableId,
    page::{header, slots},
};

/// The largest value kept in its leaf, as a part of the page. Four keys of the largest size (two fences, and the
/// entries on both sides of a cut) and a value must fit in one page, or a split would not always find a place where
/// both halves fit.
const INLINE_PART: usize = 4;

/// Reads all of the node in a page, for fuzzers.
pub(crate) fn decode_node(page: &[u8]) {
    let Ok(node) = Node::read(page) else { return };
    for index in 0..node.len() {
        let _key = node.key(index);
        let _value = if node.is_leaf() { node.value(index).map(drop) } else { node.child(index).map(drop) };
    }
    let lower = node.lower().to_vec();
    let _found = match node.is_leaf() {
        true => node.search(&lower).and_then(|_| node.lower_bound(&lower)),
        false => node.child_for(&lower),
    };
}

/// The lower fence of the node in a page.
pub(crate) fn lower_fence(page: &[u8]) -> Result<&[u8]> {
    Node::read(page).map(|node| node.lower())
}

/// One table's tree. A clone is another handle on the same tree.
#[derive(Clone)]
pub(crate) struct Tree {
    pool: BufferPool,
    space: Space,
    runs: InsertRuns,
    owner: TableId,
    /// The same for all handles.
    shared: Arc<Shared>,
    /// A row may fill a leaf; keys are short. Leaves before and behind this fence are not merged.
    large_rows: Option<&'static [u8]>,
}

/// What the handles of one tree share.
struct Shared {
    root: AtomicU64,
    /// The LSN of pages that are being built to become the tree's; 0 if none are.
    building: AtomicU64,
    /// Where in the log the pages became the tree's that were built last. Until then it was empty.
    loaded_at: AtomicU64,
}

impl Tree {
    /// A handle on the tree of table `owner` whose root page is `root`. Reads nothing. The trees of a database share `runs`. Of
    /// handles that are not clones, none is used when the root has moved.
    pub(crate) fn new(pool: BufferPool, space: Space, runs: InsertRuns, owner: TableId, root: PageId) -> Self {
        let shared = Shared { root: AtomicU64::new(root.0), building: AtomicU64::new(0), loaded_at: AtomicU64::new(0) };
        Tree { pool, space, runs, owner, shared: Arc::new(shared), large_rows: None }
    }

    /// The same tree, if rows may fill leaves: all keys are much shorter then than they may be. Rows before the fence, if there is
    /// [one](Self::divide), have leaves of their own.
    pub(crate) fn with_large_rows(self, fence: &'static [u8]) -> Self {
        Tree { large_rows: Some(fence), ..self }
    }

    /// Allocates an empty tree's root page in `group`.
    pub(crate) fn create(space: &Space, owner: TableId, group: &mut ChangeGroup) -> GroupResult<PageId> {
        let root = space.allocate(group, owner)?;
        let index = group.add_new(root)?;
        draft::write_node(group, index, 0, owner, draft::Fences { lower: &[], upper: None }, &[])?;
        Ok(root)
    }

    /// The page that the tree hangs on.
    pub(crate) fn root(&self) -> PageId {
        PageId(self.shared.root.load(Ordering::Acquire))
    }

    /// Says which LSN pages bear that are being built to become the tree's; a leaf that bears it is not taken for the tree's until then.
    /// 0 if none are, or what was built has become the tree's. If that comes to nothing, it stays as it is.
    pub(crate) fn set_building(&self, lsn: Lsn) {
        self.shared.building.store(lsn.get(), Ordering::Release);
    }

    /// Says where in the log pages become the tree's that were built, which was empty until then. The root's page is latched and not
    /// changed yet.
    pub(crate) fn set_loaded_at(&self, position: Lsn) {
        self.shared.loaded_at.store(position.get(), Ordering::Release);
    }

    /// A view of the past from before this position saw nothing in the leaves: what they hold was built.
    pub(crate) fn loaded_at(&self) -> u64 {
        self.shared.loaded_at.load(Ordering::Acquire)
    }

    /// The log must be durable up to here before what a leaf shows is told: up to its last change, or, if it was built and not changed
    /// since, to where it became the tree's.
    fn lsn_of(&self, leaf: &PageView<'_>) -> Lsn {
        leaf.lsn().max(Lsn::new(self.loaded_at()))
    }

    /// The root, if it is a leaf without rows, latched for writing.
    pub(crate) fn latch_empty_root(&self) -> GroupResult<Option<PageWriteGuard>> {
        loop {
            let id = self.root();
            let root = self.pool.pin_in_memory(id).ok_or(Lack::Page(id))?.write_further_leaf()?;
            // Under its latch: until then it may have moved.
            if self.root() == id {
                let node = Node::read(&root)?;
                let is_empty = node.is_leaf() && node.len() == 0;
                return Ok(is_empty.then_some(root));
            }
        }
    }

    /// The table that the tree belongs to.
    pub(crate) fn owner(&self) -> TableId {
        self.owner
    }

    /// Shows `f` the value of `key`, if there is one, and the LSN of the leaf that says so. The leaf is latched for
    /// reading while `f` runs, unless the value is large: it must be quick and latch no other page. A value that fits in its page is
    /// shown in place; nothing is copied.
    pub(crate) fn read<R>(&self, key: &[u8], f: impl FnOnce(Option<LeafValue<'_>>, Lsn) -> R) -> Result<R> {
        let mut f = Some(f);
        loop {
            // Each time, another commit has replaced a large value while it was read.
            if let Some(read) = self.try_read(key, &mut f)? {
                return Ok(read);
            }
        }
    }

    /// As [`read`](Self::read), but `None` if a large value was replaced while it was read; `f` is left then.
    pub(crate) fn try_read<R, F: FnOnce(Option<LeafValue<'_>>, Lsn) -> R>(
        &self,
        key: &[u8],
        f: &mut Option<F>,
    ) -> Result<Option<R>> {
        let mut show = |value: Option<LeafValue<'_>>, lsn| f.take().map(|f| f(value, lsn));
        let (read, large) = self.at_leaf(LeafPosition::Containing(key), |node, page, guess| {
            let lsn = self.lsn_of(page);
            Ok(match node.search_at(guess, key)? {
                Found::Before(index) => ((show(None, lsn), None), index),
                Found::At(index) => match node.value(index)? {
                    Stored::Inline(value) => ((show(Some(LeafValue::Bytes(value)), lsn), None), index),
                    Stored::Reference(reference) => ((show(Some(LeafValue::Reference(reference)), lsn), None), index),
                    Stored::Overflow { length, first } => ((None, Some((self.large_value(length, first), lsn))), index),
                },
            })
        })?;
        let Some((value, lsn)) = large else { return Ok(read) };
        Ok(self.read_large(key, value, lsn)?.and_then(|(value, lsn)| show(Some(LeafValue::Bytes(&value)), lsn)))
    }

    /// As [`read`](Self::read), of a tree whose rows have all of their values.
    pub(crate) fn read_bytes<R>(&self, key: &[u8], f: impl FnOnce(Option<&[u8]>) -> R) -> Result<R> {
        self.read(key, |value, _| match value {
            Some(LeafValue::Bytes(bytes)) => Ok(f(Some(bytes))),
            None => Ok(f(None)),
            Some(LeafValue::Reference(_)) => {
                let what = format!("a row of table {} names a large value, which no row there does", self.owner);
                Err(Error::new(error::ErrorKind::Corrupt, what + "; restore the database from a backup"))
            }
        })?
    }

    /// The largest value that stays in its leaf, in bytes.
    pub(crate) fn inline_limit(&self) -> usize {
        if self.large_rows.is_some() {
            slots::capacity(self.pool.page_size())
        } else {
            self.pool.page_size() / INLINE_PART
        }
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.pool.page_size()
    }

    /// Bytes of an empty leaf that are free, but for its fences.
    pub(crate) fn free_bytes_of_empty(&self) -> usize {
        slots::capacity(self.pool.page_size())
    }

    /// The largest value of a tree with large rows: a leaf has room for it under a key of so many bytes, beside two fences that are
    /// as long.
    pub(crate) fn row_limit(&self, key_bytes: usize) -> usize {
        let fence = vec![0; key_bytes];
        let others = node::fence_bytes(&fence, Some(&fence)) + slots::SLOT_BYTES;
        slots::capacity(self.pool.page_size()) - others - node::leaf_cell_bytes(key_bytes, LeafValue::Bytes(&[]), 0)
    }

    /// Checks that a page belongs to this tree.
    fn check_owner(&self, page: &[u8]) -> Result<()> {
        if header::owner(page) == self.owner {
            return Ok(());
        }
        Err(damaged(page, &format!("it belongs to table {}, not to {}", header::owner(page), self.owner)))
    }

    /// Turns a page of `group` into a free one: a task that still has it pinned sees that it is gone.
    fn clear_page(&self, group: &mut ChangeGroup, index: usize) -> Result<()> {
        group.change(index, Change::Format { kind: PageKind::Free, level: 0, owner: TableId(0) })
    }
}

/// A page of a tree that does not hold what it must.
#[cold]
fn damaged(page: &[u8], what: &str) -> Error {
    error::corrupt_page(page, what)
}
