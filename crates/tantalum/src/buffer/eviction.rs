//! Which page leaves when another needs room: the clock, an approximation of least recently used.
//!
//! Only clean pages that nobody has pinned leave. A task that misses takes a free frame, else evicts, else writes dirty
//! pages back itself; the cleaner works ahead so that it rarely comes to that.

use std::{sync::atomic::Ordering, time::Duration};

use super::pool::Shared;
use crate::{
    error::{Error, Result},
    page::PageId,
    store::PageBatch,
};

/// How long a task waits for others to unpin something.
const PATIENCE: Duration = Duration::from_secs(10);

impl Shared {
    /// A frame without a page, which the caller then owns.
    pub(super) fn take_frame(&self) -> Result<usize> {
        let mut deadline = None;
        loop {
            if let Some(frame) = self.take_free_frame().or_else(|| self.evict()) {
                return Ok(frame);
            }
            let mut dirty = self.evictable_dirty_pages();
            if !dirty.is_empty() {
                self.write_pages_back(&mut dirty)?;
                tantalum_rt::yield_now();
                continue;
            }
            if tantalum_rt::now() > *deadline.get_or_insert_with(|| tantalum_rt::now() + PATIENCE) {
                return Err(Error::PoolExhausted { frames: self.frames.len() });
            }
            tantalum_rt::sleep(Duration::from_millis(1));
        }
    }

    fn take_free_frame(&self) -> Option<usize> {
        let (frame, left) = {
            let mut free = self.free.lock();
            (free.pop(), free.len())
        };
        if left < self.reserve() / 2
            && let Some(cleaner) = self.cleaner.get()
        {
            cleaner.unpark();
        }
        frame
    }

    /// The free frames that the cleaner aims at.
    pub(super) fn reserve(&self) -> usize {
        (self.frames.len() / 16).clamp(4, 256)
    }

    /// Evicts and cleans until the reserve is there, or nothing more can be done.
    pub(super) fn refill_reserve(&self) -> Result<()> {
        while self.free.lock().len() < self.reserve() {
            if let Some(frame) = self.evict() {
                self.free.lock().push(frame);
                continue;
            }
            let mut dirty = self.evictable_dirty_pages();
            if dirty.is_empty() || self.write_pages_back(&mut dirty)? == 0 {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Evicts a clean page that was not used since the hand last passed, if there is one. The frame is the caller's.
    fn evict(&self) -> Option<usize> {
        // Two rounds: the first may only take the marks of recent use away.
        for _ in 0..2 * self.frames.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let frame = &self.frames[index];
            if frame.is_pinned() || frame.state.take_reference() || frame.state.rec_lsn().is_some() {
                continue;
            }
            let Some(id) = frame.state.page() else { continue };
            // Asked again under the lock of the shard, where nobody can pin it; what nobody has pinned stays clean.
            if self.table.remove_if(id, index, || !frame.is_pinned() && frame.state.rec_lsn().is_none()) {
                frame.state.set_loaded(false);
                frame.state.set_page(None);
                self.counters.evictions.fetch_add(1, Ordering::Relaxed);
                return Some(index);
            }
        }
        None
    }

    /// Dirty pages that could be evicted if they were clean: those that the hand meets next.
    fn evictable_dirty_pages(&self) -> Vec<(PageId, usize)> {
        let hand = self.hand.load(Ordering::Relaxed);
        (0..self.frames.len())
            .map(|step| (hand.wrapping_add(step)) % self.frames.len())
            .filter(|index| !self.frames[*index].is_pinned() && self.frames[*index].state.rec_lsn().is_some())
            .filter_map(|index| Some((self.frames[index].state.page()?, index)))
            .take(PageBatch::MAX_PAGES)
            .collect()
    }
}
