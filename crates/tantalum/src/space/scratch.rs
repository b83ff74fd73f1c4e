//! Scratch pages of a [`Space`]: free pages of the data device, lent in memory only, for data that ends with the process.
//!
//! The space maps never say that a scratch page is in use, so recovery finds it free, whatever is in it. It is written without
//! the log, directly to the store, with a valid checksum, of kind [`Free`](PageKind::Free) and with LSN 0; it is read through the
//! buffer pool like any page.
//!
//! Invariants:
//! - A free page is lent only if redo does not need what is stored of it: the log is durable up to the change of the map that
//!   freed it, and every logged change of the page lies before the point where redo would start, and before the start of each
//!   base backup that is being copied, whose restore repeats the log from there.
//! - While a page is lent, no tree gets it, and it is not dirty in the buffer pool.

use std::collections::BTreeMap;

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;
use tantalum_store::{Load, Logging, PageBatch, PageId, PageKind, page::header};

use super::{Space, bit_is_set};
use crate::error::{self, Result};

/// Free pages whose stored LSN is looked at before the store is asked to grow instead.
pub(super) const TRIES_BEFORE_GROWTH: usize = 4 * PageBatch::MAX_PAGES;

/// Which pages are lent.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Of each extent with scratch pages, a bit for each of its pages.
    extents: BTreeMap<u64, Box<[u8]>>,
    pages: u64,
    /// Those of them that are filled for trees.
    pub(super) unnamed: u64,
    /// Where the search for the next goes on.
    next: u64,
    /// Where redo starts for each base backup that is being copied.
    pub(super) backups: Vec<Lsn>,
}

impl Scratch {
    /// The pages of an extent that are lent, a bit each; `None` if there are none.
    pub fn bits(&self, extent: u64) -> Option<&[u8]> {
        self.extents.get(&extent).map(|bits| &**bits)
    }

    /// The page behind the last one that is lent.
    pub fn end(&self, extent_pages: u64) -> u64 {
        let last = self.extents.iter().rev().find_map(|(extent, bits)| {
            let (at, byte) = bits.iter().enumerate().rev().find(|(_, byte)| **byte != 0)?;
            Some(extent * extent_pages + 8 * at as u64 + u64::from(7 - byte.leading_zeros() as u8))
        });
        last.map_or(0, |last| last + 1)
    }

    /// How many pages are lent.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Lends pages that are filled for trees.
    pub fn begin_unnamed(&mut self, pages: impl Iterator<Item = PageId>, extent_pages: u64) {
        for page in pages {
            self.set(page.0 / extent_pages, extent_pages, page.0 % extent_pages, true);
            self.unnamed += 1;
        }
    }

    /// Such pages are lent no more.
    pub fn end_unnamed(&mut self, pages: impl Iterator<Item = PageId>, extent_pages: u64) {
        for page in pages {
            self.set(page.0 / extent_pages, extent_pages, page.0 % extent_pages, false);
            self.unnamed -= 1;
        }
    }

    fn set(&mut self, extent: u64, extent_pages: u64, bit: u64, is_lent: bool) {
        let bits = self.extents.entry(extent).or_insert_with(|| vec![0; extent_pages.div_ceil(8) as usize].into());
        let (byte, mask) = (&mut bits[(bit / 8) as usize], 1 << (bit % 8));
        assert_ne!(*byte & mask != 0, is_lent, "a page is lent once, and given back once");
        *byte ^= mask;
        match is_lent {
            true => self.pages += 1,
            false => self.pages -= 1,
        }
        if self.pages == 0 {
            self.extents.clear();
        }
    }
}

/// Keeps pages that a base backup's restore would still change from becoming scratch pages.
#[derive(Debug)]
pub struct BackupFloor {
    space: Space,
    lsn: Lsn,
}

impl Drop for BackupFloor {
    fn drop(&mut self) {
        let backups = &mut self.space.scratch.lock().backups;
        let at = backups.iter().position(|lsn| *lsn == self.lsn).expect("it was added when the backup began");
        backups.swap_remove(at);
    }
}

/// Free pages of one extent that were marked as lent and are still to be examined.
struct Candidates {
    pages: Vec<PageId>,
    /// The last change of the map that says that they are free.
    map_lsn: Lsn,
}

impl Space {
    /// Takes free pages for scratch data: about `wanted`, at least one, in ascending order. The store grows if it must. No latch may
    /// be held.
    ///
    /// # Errors
    /// [`StoreFull`](crate::ErrorKind::StoreFull) when no page can be lent and the store cannot grow; what a device or the log
    /// reports.
    pub fn take_scratch(&self, wanted: usize) -> Result<Vec<PageId>> {
        loop {
            let capacity = self.usable_pages();
            let found = self.lend_free_pages(wanted, TRIES_BEFORE_GROWTH)?;
            if !found.is_empty() {
                return Ok(found);
            }
            if let Err(error) = self.growth.grow_beyond(&**self.pool.store(), capacity) {
                let found = self.lend_free_pages(wanted, usize::MAX)?;
                return if found.is_empty() { Err(error) } else { Ok(found) };
            }
        }
    }

    /// Gives scratch pages back. Nothing in them is needed.
    ///
    /// # Panics
    /// When one of them is not lent.
    pub fn free_scratch(&self, pages: &[PageId]) {
        let store = self.pool.store();
        let group = store.scratch_group_pages();
        pages.iter().filter(|page| page.0.is_multiple_of(group)).for_each(|page| store.free_scratch(*page));
        let mut scratch = self.scratch.lock();
        for page in pages {
            scratch.set(page.0 / self.extent_pages(), self.extent_pages(), page.0 % self.extent_pages(), false);
        }
    }

    /// How many pages are lent as scratch pages, but for those that are filled for trees.
    pub fn scratch_pages(&self) -> u64 {
        let scratch = self.scratch.lock();
        scratch.pages - scratch.unnamed
    }

    /// Writes scratch pages, which are in no other batch meanwhile.
    ///
    /// # Errors
    /// When the device cannot write; the pages then hold anything.
    pub fn write_scratch(&self, batch: &mut PageBatch) -> Result<()> {
        batch.set_may_tear(true);
        batch.seal();
        self.pool.store().store(batch)?;
        // A read by an old page number may have brought in what was stored before.
        for page in batch.ids() {
            while !self.pool.discard_clean(*page) {
                tantalum_rt::yield_now();
            }
        }
        Ok(())
    }

    /// The buffer pool through which scratch pages are read.
    pub fn pool(&self) -> &crate::buffer::BufferPool {
        &self.pool
    }

    /// Called before the checkpoint that a base backup begins with: until the guard is dropped, no page becomes a scratch page
    /// that the log changes from the present checkpoint on.
    pub fn begin_base_backup(&self) -> BackupFloor {
        let lsn = {
            // The store keeps its size from here on.
            let _growing = self.growth.growing.lock();
            let mut scratch = self.scratch.lock();
            let lsn = self.pool.log().checkpoint_lsn();
            scratch.backups.push(lsn);
            lsn
        };
        BackupFloor { space: self.clone(), lsn }
    }

    /// Whether a page is free as of now, by its map: for a page that is found damaged.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn is_free(&self, id: PageId) -> Result<bool> {
        if self.is_reserved(id) || id.0 / self.extent_pages() >= self.extents() {
            return Ok(false);
        }
        let map = self.pool.pin_or_blank(self.map_for(id))?.read();
        Ok(!bit_is_set(&map, id.0 % self.extent_pages()))
    }

    /// Looks for free pages that can be lent, after at most so many that cannot.
    pub(super) fn lend_free_pages(&self, wanted: usize, mut tries: usize) -> Result<Vec<PageId>> {
        let (extents, extent_pages) = (self.extents(), self.extent_pages());
        if extents == 0 {
            return Ok(Vec::new());
        }
        let start = self.scratch.lock().next;
        let first_extent = (start / extent_pages).min(extents - 1);
        // The first extent comes twice: from where the last search ended, and up to there.
        for turn in 0..=extents {
            let extent = (first_extent + turn) % extents;
            let mut from = if turn == 0 { start.saturating_sub(extent * extent_pages) } else { 0 };
            loop {
                let (candidates, next) = self.mark_candidates(extent, from, wanted)?;
                if candidates.pages.is_empty() {
                    break;
                }
                let marked = candidates.pages.len();
                let lent = self.examine(candidates)?;
                if !lent.is_empty() {
                    self.scratch.lock().next = extent * extent_pages + next;
                    return Ok(lent);
                }
                tries = tries.saturating_sub(marked);
                if tries == 0 {
                    self.scratch.lock().next = extent * extent_pages + next;
                    return Ok(lent);
                }
                from = next;
            }
        }
        Ok(Vec::new())
    }

    /// Marks whole groups of free pages as lent, from a bit of an extent on. Also returns where to go on.
    fn mark_candidates(&self, extent: u64, from: u64, wanted: usize) -> Result<(Candidates, u64)> {
        let base = extent * self.extent_pages();
        let group = self.pool.store().scratch_group_pages();
        // Allocation changes the bits under the exclusive latch.
        let page = self.pool.pin_or_blank(self.map_of(extent))?;
        if header::kind(&page.read())? == PageKind::Free {
            self.check_blank_map(extent)?;
        }
        let map = page.read();
        let is_used: &dyn Fn(u64) -> bool = match header::kind(&map)? {
            PageKind::SpaceMap => &|bit| bit_is_set(&map, bit),
            PageKind::Free => &|_| false,
            _ => return Err(error::corrupt_page(&map, "a space map was expected here")),
        };
        let mut scratch = self.scratch.lock();
        // As of now: a task that gives pages back has looked for lent ones before, or looks later.
        let limit = self.usable_limit(extent);
        let mut candidates = Candidates { pages: Vec::new(), map_lsn: header::lsn(&map) };
        let mut first = (base + from).next_multiple_of(group) - base;
        while first + group <= limit && candidates.pages.len() < wanted {
            let bits = first..first + group;
            let is_lent =
                |bit: u64| scratch.bits(extent).is_some_and(|lent| lent[(bit / 8) as usize] & (1 << (bit % 8)) != 0);
            let is_free =
                bits.clone().all(|bit| !is_used(bit) && !is_lent(bit) && !self.is_reserved(PageId(base + bit)));
            if is_free {
                for bit in bits {
                    scratch.set(extent, self.extent_pages(), bit, true);
                    candidates.pages.push(PageId(base + bit));
                }
            }
            first += group;
        }
        Ok((candidates, first))
    }

    /// Keeps those of the marked pages that can be lent; the others are given back.
    fn examine(&self, candidates: Candidates) -> Result<Vec<PageId>> {
        let Candidates { pages, map_lsn } = candidates;
        let suitable = self.make_durable(map_lsn).and_then(|()| self.suitable(&pages));
        let is_kept = |index: usize| suitable.as_ref().is_ok_and(|suitable| suitable[index]);
        let (mut kept, mut others) = (Vec::new(), Vec::new());
        for (index, page) in pages.into_iter().enumerate() {
            if is_kept(index) { &mut kept } else { &mut others }.push(page);
        }
        let mut scratch = self.scratch.lock();
        for page in others {
            scratch.set(page.0 / self.extent_pages(), self.extent_pages(), page.0 % self.extent_pages(), false);
        }
        drop(scratch);
        suitable?;
        Ok(kept)
    }

    /// Makes the log durable up to a change of a map, in the archive too: a log that is made anew from it must know of the change.
    fn make_durable(&self, map_lsn: Lsn) -> Result<()> {
        self.pool.flush(map_lsn)?;
        match self.pool.store().logging() {
            Logging::Redo => self.pool.log().flush_archived(map_lsn),
            Logging::CommitStatus => Ok(()),
        }
    }

    /// Which of the marked pages redo does not need, and no frame holds.
    fn suitable(&self, pages: &[PageId]) -> Result<Vec<bool>> {
        let store = self.pool.store();
        let group = store.scratch_group_pages() as usize;
        if store.logging() == Logging::CommitStatus {
            let mut suitable = Vec::with_capacity(pages.len());
            for group in pages.chunks(group) {
                let takes = group.iter().all(|page| self.pool.discard_clean(*page)) && store.take_scratch(group[0]);
                suitable.extend(group.iter().map(|_| takes));
            }
            return Ok(suitable);
        }
        let redo_start = {
            let scratch = self.scratch.lock();
            scratch.backups.iter().copied().fold(self.pool.log().checkpoint_lsn(), Lsn::min)
        };
        let mut suitable: Vec<bool> = pages.iter().map(|page| self.pool.discard_clean(*page)).collect();
        let mut buffer = AlignedBuffer::zeroed(self.pool.page_size() * PageBatch::MAX_PAGES);
        let mut start = 0;
        let follows = |a: &PageId, b: &PageId| a.0 + 1 == b.0;
        for run in pages.chunk_by(follows).flat_map(|run| run.chunks(PageBatch::MAX_PAGES)) {
            let bytes = &mut buffer[..run.len() * self.pool.page_size()];
            let loaded = store.load_run(run[0], bytes)?;
            for (index, load) in loaded.iter().enumerate() {
                let page = &bytes[index * self.pool.page_size()..];
                suitable[start + index] &= match load {
                    Load::Page => header::lsn(page) <= redo_start,
                    Load::NeverWritten => true,
                    Load::Damaged(_) => false,
                };
            }
            start += run.len();
        }
        Ok(suitable)
    }
}
