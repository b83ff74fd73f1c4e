//! Giving back the end of the store, where no page is in use.
//!
//! 1. No page of the end is taken from now on, nor lent. A task that finds no other free page puts an end to this: it gets one there.
//! 2. Each map is looked at under its latch: a group that had taken a page there, or freed one, has been appended.
//! 3. A checkpoint passes all records that name those pages, so redo does not, and their frames are clean. The archive has them too.
//! 4. Unless the pages are wanted again, or a base backup is being copied, the store gives them back.
//!
//! A crash leaves the store with its old size or with the new one; either is right, as no page there is in use.
//!
//! A store in which pages do not lie where their number says may have to move them first ([`Space::pack`]), which takes long: so it is
//! done between two such attempts, while all pages may be taken.

use std::sync::atomic::Ordering;

use tantalum_store::{PackProgress, PageId};

use super::{
    MAP_IN_EXTENT, Space,
    growth::{Growth, low_pages},
};
use crate::error::{Error, ErrorKind, Result};

/// A store keeps so many pages at least.
const LEAST_PAGES: u64 = 64;

/// So many times, what makes a store grow ahead of need stays free at its end.
const LOW_MARKS_KEPT: u64 = 2;

/// What came of giving back the end of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shrunk {
    /// Bytes of what stays that take no space on disk, as far as that is known.
    pub unallocated_bytes: u64,
    /// A task needed the pages meanwhile, so they stay.
    pub is_wanted: bool,
}

/// Ends it that pages at the end are not taken.
struct Limit<'g>(&'g Growth);

impl Drop for Limit<'_> {
    fn drop(&mut self) {
        let _growing = self.0.growing.lock();
        self.0.taken_below.store(0, Ordering::SeqCst);
    }
}

impl Space {
    /// The pages before which all lie that are in use or lent.
    pub fn used_end(&self) -> Result<u64> {
        let mut end = MAP_IN_EXTENT + 1;
        self.for_each_allocated(&mut |page| end = page.0 + 1)?;
        Ok(end.max(self.scratch.lock().end(self.extent_pages())))
    }

    /// Refuses a store that gives no space back, and what none may be given back beside.
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse) while a base backup is being copied; [`Unsupported`](ErrorKind::Unsupported) says why the store
    /// cannot.
    pub fn check_gives_space_back(&self) -> Result<()> {
        self.check_no_base_backup()?;
        self.pool.store().gives_space_back()
    }

    /// Has the store keep the pages that are in use in as little room as they need; [`shrink`](Self::shrink) then gives back more.
    /// False if there was nothing to do. `go_on` is told before each piece of work how far it is, and its error ends it. No latch may be
    /// held.
    ///
    /// # Errors
    /// What a device reports, and those of `go_on`.
    pub fn pack(&self, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        // The store forgets pages that are not in use, which redo may still have to change.
        self.pool.finish_redo()?;
        let kept = self.kept_pages(self.used_end()?);
        self.pool.store().pack(kept, go_on)
    }

    /// Where the pages would end that are in use by trees, if no page before were free, and those that lie there or behind, in ascending
    /// order.
    pub fn behind_those_in_use(&self) -> Result<(PageId, Vec<PageId>)> {
        let mut pages = Vec::new();
        self.for_each_allocated(&mut |page| pages.push(page))?;
        let end = PageId(self.end_if_packed(pages.len() as u64));
        let behind = pages.partition_point(|page| *page < end);
        Ok((end, pages.split_off(behind)))
    }

    /// How many pages are lent, and the page behind the last of them.
    pub fn lent(&self) -> (u64, PageId) {
        let scratch = self.scratch.lock();
        (scratch.pages(), PageId(scratch.end(self.extent_pages())))
    }

    /// Where the pages would end of which so many are in use by trees, if no page before were free.
    fn end_if_packed(&self, in_use: u64) -> u64 {
        let mapped = in_use + in_use.div_ceil(self.extent_pages() - 1);
        mapped + MAP_IN_EXTENT
    }

    /// How many pages the store would keep with so many in use at its beginning, and none behind.
    pub fn kept_pages(&self, used_end: u64) -> u64 {
        (used_end + LOW_MARKS_KEPT * low_pages(used_end)).max(LEAST_PAGES)
    }

    /// Gives back the end of the store, as far as no page there is in use, unless it is wanted again meanwhile. Takes a checkpoint. One task
    /// at a time calls this, and holds no latch.
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse) while a base backup is being copied; [`Unsupported`](ErrorKind::Unsupported) when the store cannot
    /// give pages back; what a device or the log reports.
    pub fn shrink(&self) -> Result<Shrunk> {
        let (store, growth) = (&**self.pool.store(), &*self.growth);
        let kept = self.kept_pages(self.used_end()?);
        let _limit = {
            let _growing = growth.growing.lock();
            if kept >= store.capacity_pages() {
                return Ok(Shrunk::default());
            }
            self.check_no_base_backup()?;
            growth.taken_below.store(kept, Ordering::SeqCst);
            Limit(growth)
        };
        let wanted = Shrunk { is_wanted: true, ..Shrunk::default() };
        if self.used_end()? > kept {
            return Ok(wanted);
        }
        let passed = self.pool.checkpoint()?;
        // A log that is made anew from the archive must know of the changes that made those pages free.
        self.pool.log().flush_archived(passed)?;
        // Dropped before the limit, which takes it too.
        let _growing = growth.growing.lock();
        if growth.taken_below.load(Ordering::SeqCst) != kept {
            return Ok(wanted);
        }
        self.check_no_base_backup()?;
        let before = store.capacity_pages();
        let unallocated_bytes = store.shrink(kept)?;
        growth.ends_at.store(0, Ordering::Relaxed);
        let pages = before.saturating_sub(store.capacity_pages());
        tantalum_rt::tracing::info!(pages, unallocated_bytes, file = store.name(), "space was given back");
        Ok(Shrunk { unallocated_bytes, is_wanted: false })
    }

    /// Refuses to give back pages that a base backup is about to read.
    fn check_no_base_backup(&self) -> Result<()> {
        if self.scratch.lock().backups.is_empty() {
            return Ok(());
        }
        let what =
            "a base backup is being copied, and the data file keeps its size until that is done; compact it then";
        Err(Error::new(ErrorKind::InUse, what))
    }
}
