//! A transaction's writes to one leaf: making room for them first, then staging them in the transaction's change group.

use super::cursor::LeafPosition;
use super::node::{self, Found, Node, Payload};
use super::{Chains, LeafValue, Reference, Tree, merge, split};
use crate::buffer::{ChangeGroup, PageView, PinnedPage, Reservation};
use crate::error::{GroupResult, Lack, Result};
use std::sync::Arc;
use tantalum_log::Lsn;
use tantalum_rt::interleave;
use tantalum_store::{
    Change, PageId, PageKind,
    page::{header, slots},
};

/// What a key is to become.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeafWrite<'a> {
    /// The key, at most [`max_key_bytes`](crate::limits::max_key_bytes) long.
    pub(crate) key: &'a [u8],
    /// The new value, if it is bytes at most [`Tree::inline_limit`] of them; `None` deletes.
    pub(crate) value: Option<LeafValue<'a>>,
}

/// What a look at the leaf of some writes comes to.
enum Looked {
    /// The leaf has room for those that belong to it; its LSN.
    HasRoom(PinnedPage, Lsn),
    /// It has not, for so many.
    Full(usize),
}

/// Where a write goes in its leaf, and what it replaces there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    found: Found,
    /// Of the cell that is there, with its slot.
    old_bytes: usize,
    /// The value that is there has pages of its own: its bytes, and the first page.
    pub(super) large: Option<(u32, PageId)>,
    /// The value that is there lies in the table's value tree.
    pub(crate) reference: Option<Reference>,
}

impl Place {
    /// Whether the key is there.
    pub(crate) fn is_there(self) -> bool {
        matches!(self.found, Found::At(_))
    }
}

impl Tree {
    /// Makes room for the first of `writes`, which must be in key order without duplicates and not empty: splits the
    /// leaf of the first key, in groups of its own, until all those that belong to it fit. Returns that leaf, not
    /// latched, and its LSN, and adds to `places` where those (at least one) go that belong to it.
    ///
    /// When the caller has latched the page that may be wrong again: [`Tree::accepts`] tells. Two calls for different
    /// writes can return the same page, when a merge came between. A transaction latches its leaves in ascending order,
    /// asking `accepts` of each, and stages only when it has them all: staging may latch space maps, after which the task
    /// may not wait for a leaf.
    pub(crate) fn prepare(
        &self,
        writes: &[LeafWrite<'_>],
        places: &mut Vec<Place>,
        reservation: &Arc<Reservation>,
    ) -> Result<(PinnedPage, Lsn)> {
        loop {
            let first = LeafPosition::Containing(writes[0].key);
            let look =
                |node: &Node<'_>, page: &PageView<'_>, entry| self.find_places(node, page, writes, places, entry);
            let count = match self.at_leaf_before(first, writes, look)? {
                Looked::HasRoom(leaf, lsn) => return Ok((leaf, lsn)),
                Looked::Full(count) => count,
            };
            interleave();
            self.make_room(writes[0].key, 0, &split::Need::Writes(&writes[..count]), reservation)?;
        }
    }

    /// As [`prepare`](Self::prepare), but instead of waiting for the store it says what page is not in memory: the leaf, or one on the way to
    /// it. If it `must_be_dirty`, it also gives the leaf if all changes of that are stored.
    pub(crate) fn prepare_in_memory(
        &self,
        writes: &[LeafWrite<'_>],
        places: &mut Vec<Place>,
        reservation: &Arc<Reservation>,
        must_be_dirty: bool,
    ) -> Result<Result<(PinnedPage, Lsn), PageId>> {
        loop {
            let first = LeafPosition::Containing(writes[0].key);
            let look = |node: &Node<'_>, page: &PageView<'_>, entry| match must_be_dirty && !page.is_dirty() {
                true => Ok((Err(page.id()), entry)),
                false => self.find_places(node, page, writes, places, entry).map(|(looked, entry)| (Ok(looked), entry)),
            };
            let count = match self.at_leaf_in_memory(first, look)?.flatten() {
                Err(page) => return Ok(Err(page)),
                Ok(Looked::HasRoom(leaf, lsn)) => return Ok(Ok((leaf, lsn))),
                Ok(Looked::Full(count)) => count,
            };
            interleave();
            self.make_room(writes[0].key, 0, &split::Need::Writes(&writes[..count]), reservation)?;
        }
    }

    /// Adds to `places` where the first writes go, if the leaf, to which at least one belongs, has room for those that belong to it.
    fn find_places(
        &self,
        node: &Node<'_>,
        page: &PageView<'_>,
        writes: &[LeafWrite<'_>],
        places: &mut Vec<Place>,
        entry: usize,
    ) -> Result<(Looked, usize)> {
        debug_assert!(writes.is_sorted_by(|a, b| a.key < b.key), "writes are in key order");
        let known = places.len();
        let count = writes.partition_point(|write| node.is_below_upper(write.key));
        if fits(node, page, &writes[..count], self.inline_limit(), places)? {
            return Ok((Looked::HasRoom(page.pin(), page.lsn()), entry));
        }
        places.truncate(known);
        Ok((Looked::Full(count), entry))
    }

    /// Whether a page that the caller has latched is the leaf of all these keys and has room for the writes. They go to
    /// `places`, which were found when the page had the LSN `found_at`, and are found again if it was changed since.
    ///
    /// A task that latches several leaves must ask this of each before waiting for the next: waiting with a page that is
    /// something else by now could close a circle.
    pub(crate) fn accepts(
        &self,
        page: &[u8],
        writes: &[LeafWrite<'_>],
        found_at: Lsn,
        places: &mut [Place],
    ) -> Result<bool> {
        if header::lsn(page) == found_at {
            debug_assert!(
                self.find_again(page, writes)?.is_some_and(|found| found == *places),
                "each change has an LSN"
            );
            return Ok(true);
        }
        let found = self.find_again(page, writes)?;
        found.iter().for_each(|found| places.copy_from_slice(found));
        Ok(found.is_some())
    }

    /// Where the writes go in a page, if it is the leaf of all these keys and has room for them.
    fn find_again(&self, page: &[u8], writes: &[LeafWrite<'_>]) -> Result<Option<Vec<Place>>> {
        if header::kind(page)? != PageKind::Leaf || header::owner(page) != self.owner {
            return Ok(None);
        }
        let node = Node::read(page)?;
        if !writes.iter().all(|write| node.covers(write.key)) {
            return Ok(None);
        }
        let mut places = Vec::with_capacity(writes.len());
        let has_room = fits(&node, page, writes, self.inline_limit(), &mut places)?;
        Ok(has_room.then_some(places))
    }

    /// Puts `writes`, in key order, into `group`, in which the page at `index` is the latched leaf that
    /// [`Tree::prepare`] returned and that [`accepts`](Self::accepts) them in these places. The overflow pages of values that are
    /// replaced are freed in it: they stand in `chains`, which [`find_chains`](Self::find_chains) has found. Returns whether the leaf shrinks and will be so empty that
    /// [`Tree::rebalance`] is worth a try.
    ///
    /// # Errors
    /// The group must then be dropped. Nothing has changed. [`Lack`]: let
    /// [`Space::supply`](crate::space::Space::supply) get what is needed, and start over.
    pub(crate) fn stage(
        &self,
        group: &mut ChangeGroup,
        index: usize,
        writes: &[LeafWrite<'_>],
        places: &[Place],
        chains: &Chains,
    ) -> GroupResult<bool> {
        debug_assert_eq!(writes.len(), places.len());
        let node = Node::read(group.page(index))?;
        let (prefix_bytes, before_bytes) = (node.prefix().len(), node.used_bytes());
        let leaf = header::page_id(group.page(index));
        let (mut used_bytes, mut freed) = (before_bytes, Vec::new());
        let (mut deletions, mut added) = (Deletions::default(), Added::default());
        // From the highest key down: no change moves a slot that a later one names.
        for (write, place) in writes.iter().zip(places).rev() {
            if let Some((length, first)) = place.large {
                freed.extend_from_slice(chains.get(first).ok_or(Lack::Chain { length, first })?);
            }
            used_bytes = used_bytes.saturating_sub(place.old_bytes);
            match (place.found, write.value) {
                (Found::At(entry), None) => {
                    added.is_run = false;
                    deletions.add(group, index, slot(entry))?;
                }
                (Found::Before(_), None) => {}
                (_, Some(value)) => {
                    deletions.flush(group, index)?;
                    let cell = self.encode_cell(group, &write.key[prefix_bytes..], value)?;
                    used_bytes += slots::SLOT_BYTES + cell.len();
                    let change = match place.found {
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
        // A leaf that grows is not worth a merge, however empty: where a table grows, new leaves begin so.
        Ok(used_bytes < before_bytes && used_bytes < merge::sparse_bytes(self.pool.page_size()))
    }

    /// The cell for a value.
    #[cfg(not(test))]
    fn encode_cell(&self, _: &mut ChangeGroup, suffix: &[u8], value: LeafValue<'_>) -> GroupResult<Vec<u8>> {
        Ok(self.encode_row(suffix, value))
    }

    /// As in versions without value trees: a large value's chain is written into fresh pages of the group.
    #[cfg(test)]
    fn encode_cell(&self, group: &mut ChangeGroup, suffix: &[u8], value: LeafValue<'_>) -> GroupResult<Vec<u8>> {
        match value {
            LeafValue::Bytes(value) if value.len() > self.inline_limit() => {
                let first = self.write_chain(group, value)?;
                Ok(Payload::overflow(&node::encode_overflow(value.len() as u32, first)).with_suffix(suffix))
            }
            _ => Ok(self.encode_row(suffix, value)),
        }
    }

    fn encode_row(&self, suffix: &[u8], value: LeafValue<'_>) -> Vec<u8> {
        match value {
            LeafValue::Bytes(value) => {
                assert!(value.len() <= self.inline_limit(), "a large value lies in a value tree");
                Payload::inline(value).with_suffix(suffix)
            }
            LeafValue::Reference(reference) => Payload::reference(&reference.encode()).with_suffix(suffix),
        }
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

/// Whether the writes that a leaf covers fit in it in any order: room that some of them free is not counted on. If so, adds
/// to `places` where they go; if not, some of them.
pub(super) fn fits(
    node: &Node<'_>,
    leaf: &[u8],
    writes: &[LeafWrite<'_>],
    inline_limit: usize,
    places: &mut Vec<Place>,
) -> Result<bool> {
    let free_bytes = slots::free_bytes(leaf);
    let (mut needed_bytes, mut next) = (0, 0);
    for write in writes {
        let found = node.search_from(next, write.key)?;
        let (old_bytes, large, reference) = match found {
            Found::At(index) => {
                (slots::SLOT_BYTES + node.cell_bytes(index)?, node.large(index)?, node.reference(index)?)
            }
            Found::Before(_) => (0, None, None),
        };
        places.push(Place { found, old_bytes, large, reference });
        let (Found::At(at) | Found::Before(at)) = found;
        next = at;
        let Some(value) = write.value else { continue };
        let suffix_bytes = write.key.len().saturating_sub(node.prefix().len());
        let cell_bytes = slots::SLOT_BYTES + node::leaf_cell_bytes(suffix_bytes, value, inline_limit);
        needed_bytes += cell_bytes.saturating_sub(old_bytes);
        if needed_bytes > free_bytes {
            return Ok(false);
        }
    }
    Ok(true)
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
