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
//! - a root page never moves; a root that splits moves its contents down into two fresh pages
//! - a parent's separators are exactly its children's fences, so a node knows what it is responsible for
//! - every change of structure is one change group: recovery sees a split or a merge whole or not at all
//! - latches are taken downwards; a task that holds a leaf's latch waits for no inner page (the whole order stands in
//!   [`crate::buffer`])

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
mod split;
#[cfg(test)]
mod tests;
mod tree_check;

pub(crate) use cursor::{LeafPosition, LeafView};
pub(crate) use insert_runs::InsertRuns;
pub(crate) use leaf_copy::{CopiedValue, LeafCopy};
pub(crate) use leaf_writes::{LeafWrite, Place};
pub(crate) use overflow::Chains;
pub use tree_check::TreeReport;

use crate::buffer::{BufferPool, ChangeGroup};
use crate::error::{self, Error, GroupResult, Result};
use crate::space::Space;
use node::{Found, Node, Stored};
use tantalum_log::Lsn;
use tantalum_store::{Change, PageId, PageKind, TableId, page::header};

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

/// One table's tree. A clone is another handle on the same tree.
#[derive(Clone)]
pub(crate) struct Tree {
    pool: BufferPool,
    space: Space,
    runs: InsertRuns,
    owner: TableId,
    root: PageId,
}

impl Tree {
    /// A handle on the tree of table `owner` whose root page is `root`. Reads nothing. The trees of a database share `runs`.
    pub(crate) fn new(pool: BufferPool, space: Space, runs: InsertRuns, owner: TableId, root: PageId) -> Self {
        Tree { pool, space, runs, owner, root }
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
        self.root
    }

    /// The table that the tree belongs to.
    pub(crate) fn owner(&self) -> TableId {
        self.owner
    }

    /// Shows `f` the value of `key`, if there is one, and the LSN of the leaf that says so. The leaf is latched for
    /// reading while `f` runs, unless the value is large: it must be quick and latch no other page. A value that fits in its page is
    /// shown in place; nothing is copied.
    pub(crate) fn read<R>(&self, key: &[u8], f: impl FnOnce(Option<&[u8]>, Lsn) -> R) -> Result<R> {
        let mut f = Some(f);
        loop {
            // Each time, another commit has replaced a large value while it was read.
            if let Some(read) = self.try_read(key, &mut f)? {
                return Ok(read);
            }
        }
    }

    /// As [`read`](Self::read), but `None` if a large value was replaced while it was read; `f` is left then.
    pub(crate) fn try_read<R, F: FnOnce(Option<&[u8]>, Lsn) -> R>(
        &self,
        key: &[u8],
        f: &mut Option<F>,
    ) -> Result<Option<R>> {
        let mut show = |value: Option<&[u8]>, lsn| f.take().map(|f| f(value, lsn));
        let (read, large) = self.at_leaf(LeafPosition::Containing(key), |node, page, guess| {
            let lsn = page.lsn();
            Ok(match node.search_at(guess, key)? {
                Found::Before(index) => ((show(None, lsn), None), index),
                Found::At(index) => match node.value(index)? {
                    Stored::Inline(value) => ((show(Some(value), lsn), None), index),
                    Stored::Overflow { length, first } => ((None, Some((self.large_value(length, first), lsn))), index),
                },
            })
        })?;
        let Some((value, lsn)) = large else { return Ok(read) };
        Ok(self.read_large(key, value, lsn)?.and_then(|(value, lsn)| show(Some(&value), lsn)))
    }

    /// The largest value that stays in its leaf, in bytes.
    fn inline_limit(&self) -> usize {
        self.pool.page_size() / INLINE_PART
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
