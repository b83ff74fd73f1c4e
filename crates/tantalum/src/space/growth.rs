//! Room in the store ahead of need: growing it writes and syncs many megabytes, which no change group waits for under its latches.
//!
//! A task that takes one of the last free pages wakes the [`Grower`]. Where there is none, or it is too slow, a change group that finds
//! no free page fails, and its owner grows the store while nothing is latched.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tantalum_rt::{JoinHandle, Mutex, Parker, Unparker, may_wait};
use tantalum_store::PageStore;

use super::Space;
use crate::error::Result;

/// The store grows in the background when fewer than this part of its pages are left at its end, ...
const LOW_PART: u64 = 64;
/// ... but not before, and not after, so many are left. What is free at a checkpoint's begin is not fresh to the next one, which
/// costs the double write, so it is not many.
const LOW_PAGES: (u64, u64) = (32, 2048);

/// How far a store has grown, and the task that lets it grow.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Held by the task that changes the store's size.
    pub(super) growing: Mutex<()>,
    grower: OnceLock<Unparker>,
    is_due: AtomicBool,
    /// The store could not grow beyond so many pages when it was tried ahead.
    pub(super) ends_at: AtomicU64,
    /// Pages from this one on are about to be given back and are not taken; 0 if none are.
    pub(super) taken_below: AtomicU64,
}

impl Growth {
    /// How many pages may be taken, of so many.
    pub fn usable(&self, capacity: u64) -> u64 {
        match self.taken_below.load(Ordering::SeqCst) {
            0 => capacity,
            limit => limit.min(capacity),
        }
    }

    /// Takes note that a page was taken, of so many.
    pub fn taken(&self, page: u64, capacity: u64) {
        if page + low_pages(capacity) >= capacity
            && self.ends_at.load(Ordering::Relaxed) != capacity
            && let Some(grower) = self.grower.get()
            && !self.is_due.swap(true, Ordering::Relaxed)
        {
            grower.unpark();
        }
    }

    /// Lets the store grow, unless there is room for more than `capacity` pages that may be taken: another task let it grow, or pages
    /// were about to be given back, and are not now. No latch may be held.
    pub fn grow_beyond(&self, store: &dyn PageStore, capacity: u64) -> Result<()> {
        may_wait("the store to grow");
        let _growing = self.growing.lock();
        self.taken_below.store(0, Ordering::SeqCst);
        if store.capacity_pages() > capacity { Ok(()) } else { store.grow() }
    }

    fn grow_ahead(&self, store: &dyn PageStore) {
        // Cleared before the capacity is read, so that a page that is taken later is not overlooked.
        if !self.is_due.swap(false, Ordering::Relaxed) {
            return;
        }
        let capacity = store.capacity_pages();
        let _growing = self.growing.lock();
        // Pages that are about to be given back need not be kept yet: a task that finds no free page before them takes one of them.
        let is_shrinking = self.taken_below.load(Ordering::SeqCst) != 0;
        if is_shrinking || store.capacity_pages() > capacity {
            return;
        }
        if let Err(error) = store.grow() {
            // The next task without a free page tries again, and reports it.
            tantalum_rt::tracing::debug!(%error, "the store did not grow ahead of need");
            self.ends_at.store(capacity, Ordering::Relaxed);
        }
    }
}

/// So few pages at the end of a store with so many are too few.
pub(super) fn low_pages(capacity: u64) -> u64 {
    (capacity / LOW_PART).clamp(LOW_PAGES.0, LOW_PAGES.1)
}

/// The task that lets the store grow ahead of need. Dropping it stops it.
#[derive(Debug)]
pub struct Grower {
    stop: Arc<AtomicBool>,
    task: Option<(Unparker, JoinHandle<()>)>,
}

impl Grower {
    /// Starts it, for a space that has none.
    pub fn start(space: &Space) -> Self {
        let (parker, stop) = (Parker::new(), Arc::new(AtomicBool::new(false)));
        let unparker = parker.unparker();
        assert!(space.growth.grower.set(unparker.clone()).is_ok(), "a space has one grower");
        let task = tantalum_rt::spawn("tantalum-grower", {
            let (space, stop) = (space.clone(), Arc::clone(&stop));
            move || {
                loop {
                    parker.park();
                    if stop.load(Ordering::Acquire) {
                        break;
                    }
                    space.growth.grow_ahead(&**space.pool.store());
                }
            }
        });
        Self { stop, task: Some((unparker, task)) }
    }
}

impl Drop for Grower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some((unparker, task)) = self.task.take() {
            unparker.unpark();
            if task.join().is_err() {
                tantalum_rt::tracing::error!("the task that lets the store grow panicked");
            }
        }
    }
}
