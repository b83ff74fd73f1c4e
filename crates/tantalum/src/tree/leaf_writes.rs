//! A transaction's writes to one leaf: making room for them first, then staging them in the transaction's change group.

use super::cursor::LeafPosition;
use super::node::{self, Found, Node, Payload, Stored};
use super::{Tree, merge, overflow, split};
use crate::buffer::{ChangeGroup, PinnedPage};
use crate::error::{Error, Result};
use crate::page::{Change, PageKind, header, slots};
use tantalum_rt::interleave;

/// What a key is to become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafWrite<'a> {
    /// The key, at most [`max_key_bytes`](crate::limits::max_key_bytes) long.
    pub(crate) key: &'a [u8],
    /// The new value, at most [`MAX_VALUE_BYTES`](crate::limits::MAX_VALUE_BYTES) long; `None` deletes.
    pub(crate) value: Option<&'a [u8]>,
}

/// What came of staging writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staged {
    /// They are in the group.
    Done {
        /// Whether the leaf shrinks and will be so empty that [`Tree::rebalance`] is worth a try.
        is_sparse: bool,
    },
    /// The page is no longer the leaf of these keys, or has no room any more: the group must be dropped and the writes
    /// prepared again.
    Stale,
}

impl Tree {
    /// Makes room for the first of `writes`, which must be in key order without duplicates and not empty: splits the
    /// leaf of the first key, in groups of its own, until all those that belong to it fit. Returns that leaf, not
    /// latched, and how many (at least one) belong to it.
    ///
    /// When the caller has latched the page that may be wrong again: [`Tree::accepts`] tells. Two calls for different
    /// writes can return the same page, when a merge came between. A transaction latches its leaves in ascending order,
    /// asking `accepts` of each, and stages only when it has them all: staging may latch space maps, after which nobody
    /// may wait for a leaf.
    pub(crate) fn prepare(&self, writes: &[LeafWrite<'_>]) -> Result<(PinnedPage, usize)> {
        debug_assert!(writes.is_sorted_by(|a, b| a.key < b.key), "writes are in key order");
        loop {
            let leaf = self.descend(LeafPosition::Containing(writes[0].key), 0)?;
            let node = Node::read(&leaf.guard)?;
            let count = writes.partition_point(|write| node.is_below_upper(write.key));
            if fits(&node, &leaf.guard, &writes[..count], self.inline_limit())? {
                return Ok((leaf.page, count));
            }
            drop(leaf);
            interleave();
            self.make_room(writes[0].key, 0, &split::Need::Writes(&writes[..count]))?;
        }
    }

    /// The most pages that are pinned at a time for writes to one leaf: it, and those of large values.
    pub(crate) fn pages_pinned(&self, writes: &[LeafWrite<'_>]) -> usize {
        let large = writes.iter().filter_map(|write| write.value).filter(|value| value.len() > self.inline_limit());
        1 + large.map(|value| overflow::pages(value.len(), self.pool.page_size())).sum::<usize>()
    }

    /// Whether a page that the caller has latched is the leaf of all these keys and has room for the writes.
    ///
    /// Who latches several leaves must ask this of each before waiting for the next: waiting with a page that is
    /// something else by now could close a circle.
    pub(crate) fn accepts(&self, page: &[u8], writes: &[LeafWrite<'_>]) -> Result<bool> {
        if header::kind(page)? != PageKind::Leaf || header::owner(page) != self.owner {
            return Ok(false);
        }
        let node = Node::read(page)?;
        Ok(writes.iter().all(|write| node.covers(write.key)) && fits(&node, page, writes, self.inline_limit())?)
    }

    /// Puts `writes`, in key order, into `group`, in which the page at `index` is the latched leaf that
    /// [`Tree::prepare`] returned. Large values get pages of their own in the group, and those of the values replaced
    /// are freed in it.
    ///
    /// # Errors
    /// The group must then be dropped. Nothing has changed.
    pub(crate) fn stage(&self, group: &mut ChangeGroup, index: usize, writes: &[LeafWrite<'_>]) -> Result<Staged> {
        let leaf = group.page(index);
        if !self.accepts(leaf, writes)? {
            return Ok(Staged::Stale);
        }
        let node = Node::read(leaf)?;
        let (prefix_bytes, used_bytes) = (node.prefix().len(), node.used_bytes());
        match self.stage_fitting(group, index, prefix_bytes, used_bytes, writes) {
            // A space map could not be waited for in this order.
            Err(Error::Busy { .. }) => Ok(Staged::Stale),
            Ok(after) => {
                // A leaf that grows is not worth a merge, however empty: where a table grows, new leaves begin so.
                let is_sparse = after < used_bytes && after < merge::sparse_bytes(self.pool.page_size());
                Ok(Staged::Done { is_sparse })
            }
            Err(error) => Err(error),
        }
    }

    /// Stages writes that were found to fit; returns the bytes that the leaf will use.
    fn stage_fitting(
        &self,
        group: &mut ChangeGroup,
        index: usize,
        prefix_bytes: usize,
        mut used_bytes: usize,
        writes: &[LeafWrite<'_>],
    ) -> Result<usize> {
        let mut deletions = Deletions::default();
        let mut freed = Vec::new();
        let leaf = header::page_id(group.page(index));
        let mut added = Added::default();
        // From the highest key down: no change moves a slot that a later one names.
        for write in writes.iter().rev() {
            let (found, old) = locate(group.page(index), write.key)?;
            if let Some(Stored::Overflow { length, first }) = old.stored {
                freed.extend(self.chain_pages(length, first)?);
            }
            used_bytes = used_bytes.saturating_sub(old.bytes);
            match (found, write.value) {
                (Found::At(entry), None) => {
                    added.is_run = false;
                    deletions.add(group, index, slot(entry))?;
                }
                (Found::Before(_), None) => {}
                (_, Some(value)) => {
                    deletions.flush(group, index)?;
                    let cell = self.encode_cell(group, &write.key[prefix_bytes..], value)?;
                    used_bytes += slots::SLOT_BYTES + cell.len();
                    let change = match found {
                        Found::At(entry) => Change::ReplaceSlot { slot: slot(entry), cell: &cell },
                        Found::Before(entry) => {
                            added.note(entry);
                            Change::InsertSlot { slot: slot(entry), cell: &cell }
                        }
                    };
                    group.change(index, change)?;
                }
            }
        }
        deletions.flush(group, index)?;
        self.free_chains(group, freed)?;
        if let Some(next) = added.end() {
            self.runs.note(leaf, next);
        }
        Ok(used_bytes)
    }

    /// The cell for a value; a large value's chain is written into fresh pages of the group.
    fn encode_cell(&self, group: &mut ChangeGroup, suffix: &[u8], value: &[u8]) -> Result<Vec<u8>> {
        if value.len() <= self.inline_limit() {
            return Ok(Payload::inline(value).with_suffix(suffix));
        }
        let first = self.write_chain(group, value)?;
        Ok(Payload::overflow(&node::encode_overflow(value.len() as u32, first)).with_suffix(suffix))
    }
}

/// Rows that are added to a leaf, the last first.
struct Added {
    before: usize,
    count: usize,
    /// Whether all go between the same two entries, and nothing moves these.
    is_run: bool,
}

impl Default for Added {
    fn default() -> Self {
        Self { before: 0, count: 0, is_run: true }
    }
}

impl Added {
    fn note(&mut self, before: usize) {
        self.is_run &= self.count == 0 || self.before == before;
        (self.before, self.count) = (before, self.count + 1);
    }

    /// The number of the entry behind them, if they are together.
    fn end(&self) -> Option<usize> {
        (self.is_run && self.count > 0).then_some(self.before + self.count)
    }
}

/// Whether the writes that a leaf covers fit in it in any order: room that some of them free is not counted on.
pub(super) fn fits(node: &Node<'_>, leaf: &[u8], writes: &[LeafWrite<'_>], inline_limit: usize) -> Result<bool> {
    let free_bytes = slots::free_bytes(leaf);
    let mut needed_bytes = 0;
    for write in writes {
        let Some(value) = write.value else { continue };
        let suffix_bytes = write.key.len().saturating_sub(node.prefix().len());
        let cell_bytes = node::leaf_cell_bytes(suffix_bytes, value.len(), inline_limit);
        needed_bytes += match node.search(write.key)? {
            Found::At(index) => cell_bytes.saturating_sub(node.cell_bytes(index)?),
            Found::Before(_) => slots::SLOT_BYTES + cell_bytes,
        };
        if needed_bytes > free_bytes {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What a key has in a leaf.
struct Old<'a> {
    stored: Option<Stored<'a>>,
    /// Of its cell and slot.
    bytes: usize,
}

fn locate<'a>(leaf: &'a [u8], key: &[u8]) -> Result<(Found, Old<'a>)> {
    let node = Node::read(leaf)?;
    let found = node.search(key)?;
    let old = match found {
        Found::At(index) => {
            Old { stored: Some(node.value(index)?), bytes: slots::SLOT_BYTES + node.cell_bytes(index)? }
        }
        Found::Before(_) => Old { stored: None, bytes: 0 },
    };
    Ok((found, old))
}

fn slot(entry: usize) -> u16 {
    (node::FENCES + entry) as u16
}

/// Slots to delete, met from the highest down; neighbours go in one change.
#[derive(Default)]
struct Deletions {
    /// From the first to go to the first to stay.
    run: Option<(u16, u16)>,
}

impl Deletions {
    fn add(&mut self, group: &mut ChangeGroup, index: usize, slot: u16) -> Result<()> {
        self.run = match self.run {
            Some((from, to)) if from == slot + 1 => Some((slot, to)),
            _ => {
                self.flush(group, index)?;
                Some((slot, slot + 1))
            }
        };
        Ok(())
    }

    fn flush(&mut self, group: &mut ChangeGroup, index: usize) -> Result<()> {
        match self.run.take() {
            Some((from, to)) => group.change(index, Change::DeleteSlots { from, to }),
            None => Ok(()),
        }
    }
}
