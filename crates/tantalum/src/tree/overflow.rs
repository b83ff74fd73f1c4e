//! Values too large for a leaf, in a chain of pages of their own, as versions before value trees wrote them: they are read and freed,
//! and no new ones come.
//!
//! Body of an overflow page: next page u64 (0 in the last), bytes here u32, bytes. A chain belongs to one leaf entry
//! and is written once, in one record, so all of its pages have the same LSN. It is read without that leaf's latch, which no task
//! holds while the store is read; its LSN tells whether it is still the same.

use std::collections::BTreeMap;

use tantalum_log::Lsn;
use tantalum_store::{PageId, PageKind, page::header};

use super::cursor::LeafPosition;
use super::leaf_writes::{LeafWrite, Place};
use super::node::{Found, Stored};
use super::{Tree, damaged};
use crate::buffer::ChangeGroup;
use crate::error::{GroupResult, Result};

const NEXT_BYTES: usize = 8;
/// The largest value of the versions that wrote chains.
pub(super) const CHAIN_BYTES_MAX: usize = 1 << 20;

/// Where a large value is.
#[derive(Clone, Copy, Debug)]
pub(super) struct LargeValue {
    length: u32,
    first: PageId,
    /// The end of the record that wrote it, if its first page was in memory.
    written: Option<Lsn>,
}

impl LargeValue {
    /// Whether it is in the place of the other, and may be the same.
    fn is_at(&self, other: Self) -> bool {
        let may_be_one = |(a, b): (Lsn, Lsn)| a == b;
        (self.length, self.first) == (other.length, other.first)
            && self.written.zip(other.written).is_none_or(may_be_one)
    }
}

/// The pages of large values, by the first: found before a leaf that names them is latched for writing.
#[derive(Debug, Default)]
pub(crate) struct Chains(BTreeMap<PageId, Vec<PageId>>);

impl Chains {
    /// The pages of the value that begins there.
    pub(super) fn get(&self, first: PageId) -> Option<&[PageId]> {
        self.0.get(&first).map(Vec::as_slice)
    }

    pub(super) fn insert(&mut self, first: PageId, pages: Vec<PageId>) {
        self.0.insert(first, pages);
    }
}

/// A row whose value has pages of its own.
#[derive(Debug)]
pub(crate) struct ChainRow {
    pub key: Vec<u8>,
    /// How many pages the value has.
    pub pages: u64,
}

impl Tree {
    /// The rows of a leaf, from a key on, whose values have pages of their own, one of them `end` or behind. Also returns the first key
    /// of the next leaf. The caller holds no latch.
    pub(crate) fn chains_behind(&self, from: &[u8], end: PageId) -> Result<(Vec<ChainRow>, Option<Vec<u8>>)> {
        let (values, next) = self.read_leaf(LeafPosition::Containing(from), |leaf| {
            let entries = leaf.lower_bound(from)?..leaf.len();
            let mut values = Vec::new();
            if leaf.has_large(entries.clone()) {
                for entry in entries {
                    if let Some(value) = leaf.large_value(entry)? {
                        values.push((leaf.key(entry)?, value));
                    }
                }
            }
            Ok::<_, crate::error::Error>((values, leaf.upper().map(<[u8]>::to_vec)))
        })??;
        let mut rows = Vec::new();
        for (key, value) in values {
            let (mut pages, mut last) = (0, PageId(0));
            let is_there = self.visit_large(&key, value, Lsn::ZERO, &mut |page, _| {
                pages += 1;
                last = last.max(page);
            })?;
            if is_there.is_some() && last >= end {
                rows.push(ChainRow { key, pages });
            }
        }
        Ok((rows, next))
    }

    /// Where a large value is, asked under the latch of the leaf that names it.
    pub(super) fn large_value(&self, length: u32, first: PageId) -> LargeValue {
        let written = self.pool.read_in_memory(first).map(|page| page.lsn());
        LargeValue { length, first, written }
    }

    /// Reads a large value that the leaf of `key` named when it had the LSN `leaf`. Returns it with the LSN of the leaf that named
    /// it last, which says so as well; `None` if the leaf names another by now. The caller holds no latch.
    ///
    /// The pages of a value are written once, in one record. So those that have the LSN of its first one, asked under the leaf's
    /// latch, are the value's, and any others are not.
    pub(super) fn read_large(&self, key: &[u8], value: LargeValue, leaf: Lsn) -> Result<Option<(Vec<u8>, Lsn)>> {
        let mut bytes = Vec::with_capacity((value.length as usize).min(CHAIN_BYTES_MAX));
        let lsn = self.visit_large(key, value, leaf, &mut |_, part| bytes.extend_from_slice(part))?;
        Ok(lsn.map(|lsn| (bytes, lsn)))
    }

    /// As [`read_large`](Self::read_large), but shows `visit` the pages and what they hold. What it has seen counts only if the
    /// value is there.
    fn visit_large(
        &self,
        key: &[u8],
        value: LargeValue,
        leaf: Lsn,
        visit: &mut dyn FnMut(PageId, &[u8]),
    ) -> Result<Option<Lsn>> {
        if let Some(written) = value.written {
            let error = match self.walk_chain(value.length, value.first, Some(written), visit) {
                Ok(()) => return Ok(Some(leaf)),
                Err(error) => error,
            };
            // Of a value that is no longer the key's the pages may be others, or free; and another may have come to the same place,
            // which its first page tells while it is in memory.
            let first = self.pool.pin(value.first);
            let still = self.large_value_of(key)?.filter(|(still, _)| still.is_at(value));
            let is_same = still.is_some_and(|(still, _)| first.is_err() || still.written == value.written);
            return if is_same { Err(error) } else { Ok(None) };
        }
        let first = self.pool.pin(value.first);
        match self.large_value_of(key)? {
            Some((still, leaf)) if still.is_at(value) => {
                let _in_memory = first?;
                assert!(still.written.is_some(), "its first page is pinned");
                self.visit_large(key, still, leaf, visit)
            }
            _ => Ok(None),
        }
    }

    /// Where the value of a key is, if it has pages of its own, and the LSN of the leaf.
    fn large_value_of(&self, key: &[u8]) -> Result<Option<(LargeValue, Lsn)>> {
        self.at_leaf(LeafPosition::Containing(key), |node, page, guess| {
            Ok(match node.search_at(guess, key)? {
                Found::Before(index) => (None, index),
                Found::At(index) => match node.value(index)? {
                    Stored::Inline(_) | Stored::Reference(_) => (None, index),
                    Stored::Overflow { length, first } => (Some((self.large_value(length, first), page.lsn())), index),
                },
            })
        })
    }

    /// The pages of a large value that the leaf of `key` named just now; `None` if it names another by now. The caller holds no
    /// latch.
    pub(super) fn large_pages(&self, key: &[u8], length: u32, first: PageId) -> Result<Option<Vec<PageId>>> {
        let mut pages = Vec::new();
        let value = LargeValue { length, first, written: None };
        let found = self.visit_large(key, value, Lsn::ZERO, &mut |id, _| pages.push(id))?;
        Ok(found.map(|_| pages))
    }

    /// The pages of a chain of `length` bytes. The caller holds no latch, and no other task changes the value.
    pub(super) fn chain_pages(&self, length: u32, first: PageId) -> Result<Vec<PageId>> {
        let mut pages = Vec::new();
        self.walk_chain(length, first, None, |id, _| pages.push(id))?;
        Ok(pages)
    }

    /// Adds the pages of the large values that writes replace; false if another task has replaced one of them meanwhile. That
    /// may be so although the key is locked: a row that was staged for it, and committed, is moved without the lock. The caller
    /// holds no latch.
    pub(crate) fn find_chains(&self, writes: &[LeafWrite<'_>], places: &[Place], chains: &mut Chains) -> Result<bool> {
        for (write, place) in writes.iter().zip(places) {
            let Some((length, first)) = place.large else { continue };
            let Some(pages) = self.large_pages(write.key, length, first)? else { return Ok(false) };
            chains.insert(first, pages);
        }
        Ok(true)
    }

    /// Gives the pages of chains back, in ascending order: that of the latches on the space maps.
    pub(super) fn free_chains(&self, group: &mut ChangeGroup, mut pages: Vec<PageId>) -> GroupResult<()> {
        pages.sort_unstable();
        pages.into_iter().try_for_each(|page| self.space.free(group, page))
    }

    /// Visits the pages of a chain with the bytes that each holds. Every page brings the end nearer, so no damage makes
    /// this endless.
    fn walk_chain(
        &self,
        length: u32,
        first: PageId,
        written: Option<Lsn>,
        mut visit: impl FnMut(PageId, &[u8]),
    ) -> Result<()> {
        let (mut missing, mut id) = (length as usize, first);
        let mut lsn = written;
        while missing > 0 {
            let page = self.pool.read(id)?;
            if header::kind(&page)? != PageKind::Overflow {
                return Err(damaged(&page, "a part of a large value was expected here"));
            }
            self.check_owner(&page)?;
            // A device that loses a write leaves a part of another value, sound by itself.
            if *lsn.get_or_insert(header::lsn(&page)) != header::lsn(&page) {
                return Err(damaged(&page, "this part of a large value was not written together with its first part"));
            }
            let (next, part) = decode(&page).ok_or_else(|| damaged(&page, "its part of a large value is malformed"))?;
            missing = match missing.checked_sub(part.len()) {
                Some(rest) if !part.is_empty() && (rest == 0) == (next.0 == 0) => rest,
                _ => {
                    return Err(damaged(
                        &page,
                        &format!("a value of {length} bytes does not end where its length says"),
                    ));
                }
            };
            visit(id, part);
            id = next;
        }
        Ok(())
    }
}

/// The next page and the bytes of an overflow page.
fn decode(page: &[u8]) -> Option<(PageId, &[u8])> {
    let (next, rest) = header::body(page).split_first_chunk::<NEXT_BYTES>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let part = rest.get(..u32::from_le_bytes(*length) as usize)?;
    Some((PageId(u64::from_le_bytes(*next)), part))
}
