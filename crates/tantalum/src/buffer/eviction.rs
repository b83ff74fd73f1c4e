//! Which page leaves when another needs room: the clock, an approximation of least recently used.
//!
//! Only clean pages that nobody has pinned leave. A task that misses takes a free frame, else evicts, else writes dirty
//! pages back itself; the cleaner works ahead so that it rarely comes to that.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    page_cleaning::{PageCleaning, Turns},
    pool::Shared,
};
use crate::{
    error::{Error, Result},
    page::PageId,
    store::PageBatch,
};

/// How long a task waits for others to unpin something.
const PATIENCE: Duration = Duration::from_secs(10);

/// A frame without a page, which the taker owns.
pub(super) struct Taken {
    pub frame: usize,
    /// Whether it took a write of other pages, or waiting for one.
    pub has_waited: bool,
}

impl Shared {
    /// Finds room for a page.
    pub(super) fn take_frame(&self) -> Result<Taken> {
        self.reserve.count_demand();
        let mut deadline = None;
        let mut has_waited = false;
        // Who cleans on demand looks at one page.
        let batch = match self.cleaning {
            PageCleaning::Ahead => PageBatch::MAX_PAGES,
            PageCleaning::OnDemand => 1,
        };
        loop {
            if let Some(frame) = self.take_free_frame() {
                return Ok(Taken { frame, has_waited });
            }
            let mut found = self.walk(1, batch);
            if found.clean.is_empty() && !found.dirty.is_empty() {
                has_waited = true;
                found.clean = match self.cleaning {
                    PageCleaning::Ahead => self.clean(&mut found.dirty)?,
                    PageCleaning::OnDemand => self.clean_in_turn()?,
                };
                if found.clean.is_empty() {
                    tantalum_rt::yield_now();
                    continue;
                }
            }
            if let Some(frame) = found.clean.pop() {
                self.free.lock().append(&mut found.clean);
                return Ok(Taken { frame, has_waited });
            }
            if tantalum_rt::now() > *deadline.get_or_insert_with(|| tantalum_rt::now() + PATIENCE) {
                return Err(Error::PoolExhausted { frames: self.frames.len() });
            }
            has_waited = true;
            tantalum_rt::sleep(Duration::from_millis(1));
        }
    }

    fn take_free_frame(&self) -> Option<usize> {
        let (frame, left) = {
            let mut free = self.free.lock();
            (free.pop(), free.len())
        };
        if left < self.reserve.frames() / 2
            && let Some(cleaner) = self.cleaner.get()
        {
            cleaner.unpark();
        }
        frame
    }

    /// Evicts and cleans until the reserve is there, or nothing more can be done.
    pub(super) fn refill_reserve(&self) -> Result<()> {
        loop {
            let missing = self.reserve.frames().saturating_sub(self.free.lock().len());
            if missing == 0 {
                return Ok(());
            }
            let mut found = self.walk(missing, PageBatch::MAX_PAGES);
            let mut evicted = found.clean.len();
            self.free.lock().append(&mut found.clean);
            if evicted < missing && !found.dirty.is_empty() {
                let mut cleaned = self.reserve.learn(|| self.clean(&mut found.dirty))?;
                evicted += cleaned.len();
                self.free.lock().append(&mut cleaned);
            }
            if evicted == 0 {
                return Ok(());
            }
        }
    }

    /// Moves the clock's hand on until `wanted` clean pages that were not used since it last passed are evicted, or
    /// `batch` dirty ones are met: so many clean pages are not worth passing by more dirty ones, which are as old.
    fn walk(&self, wanted: usize, batch: usize) -> Found {
        let mut found = Found::default();
        // Two rounds: the first may only take the marks of recent use away.
        for _ in 0..2 * self.frames.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let state = &self.frames[index].state;
            let Some(id) = state.page() else { continue };
            if self.frames[index].is_pinned() || state.take_reference() {
                continue;
            }
            if state.rec_lsn().is_some() {
                // A small pool is walked round within a batch.
                if !found.dirty.contains(&(id, index)) {
                    found.dirty.push((id, index));
                }
            } else if self.evict(id, index) {
                found.clean.push(index);
            }
            if found.clean.len() == wanted || found.dirty.len() == batch {
                break;
            }
        }
        found
    }

    /// Makes room for the caller, and for some of those who wait for their turn to do so.
    fn clean_in_turn(&self) -> Result<Vec<usize>> {
        let waiting = self.turns.wait();
        let _turn = self.turns.turn.lock();
        // Who had the turn before may have made room.
        if let Some(frame) = self.take_free_frame() {
            return Ok(vec![frame]);
        }
        let together = waiting.count().min(Turns::TOGETHER);
        let mut found = self.walk(together, together);
        match self.clean(&mut found.dirty) {
            Ok(mut cleaned) => found.clean.append(&mut cleaned),
            Err(error) if found.clean.is_empty() => return Err(error),
            // It was traced and counted where it happened; there is room without.
            Err(_) => {}
        }
        Ok(found.clean)
    }

    /// Stores dirty pages and evicts those that nobody uses meanwhile. Returns their frames, which are the caller's.
    fn clean(&self, dirty: &mut [(PageId, usize)]) -> Result<Vec<usize>> {
        self.write_pages_back(dirty)?;
        let evicted = dirty.iter().filter(|(id, index)| self.evict(*id, *index));
        Ok(evicted.map(|(_, index)| *index).collect())
    }

    /// Evicts a page, unless somebody uses it or it is dirty. Then the frame is the caller's.
    fn evict(&self, id: PageId, index: usize) -> bool {
        let frame = &self.frames[index];
        // Asked under the lock of the shard, where nobody can pin it; what nobody has pinned stays clean.
        let evicted = self.table.remove_if(id, index, || !frame.is_pinned() && frame.state.rec_lsn().is_none());
        if evicted {
            frame.state.set_loaded(false);
            frame.state.set_page(None);
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        }
        evicted
    }
}

/// What the clock's hand met.
#[derive(Default)]
struct Found {
    /// Frames whose pages were evicted; they belong to the finder.
    clean: Vec<usize>,
    /// Pages that could be evicted if they were clean.
    dirty: Vec<(PageId, usize)>,
}
