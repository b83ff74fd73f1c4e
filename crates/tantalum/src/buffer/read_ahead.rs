//! Reading pages ahead: several that a task needs one after the other are brought into memory at the same time.
//!
//! It is a help and promises nothing: a page that cannot be read, or for which no frame is at hand, is left to the task that comes to
//! need it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tantalum_rt::{Mutex, may_wait};
use tantalum_store::PageId;

use super::{
    BufferPool,
    pinning::{Loading, Source},
};

/// The most pages that are read ahead at a time.
const MOST_PAGES: usize = 32;
/// One frame in so many may be filled by them.
const POOL_PART: usize = 8;
/// Reading ahead does not pay when more than one page in so many is evicted before it is used.
const VAIN_PART: usize = 16;
/// When it does not, one call in so many reads ahead all the same, to see whether it does by now.
const TRIAL_CALLS: usize = 64;
/// The last pages that were read ahead, so many to twice as many, decide.
const RECENT_PAGES: usize = 256;

/// Whether reading ahead pays. In a pool that is small for the tasks that use it pages are evicted before they are used, are read
/// again, and have other pages evicted.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    recent: Mutex<Recent>,
    /// It does not.
    is_vain: AtomicBool,
    /// Calls since then.
    calls: AtomicUsize,
}

/// How many pages were read ahead, and how many of them were evicted before they were used. Both are halved now and then.
#[derive(Debug, Default)]
struct Recent {
    read: usize,
    in_vain: usize,
}

impl ReadAhead {
    fn pays(&self) -> bool {
        !self.is_vain.load(Ordering::Relaxed) || self.calls.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIAL_CALLS)
    }

    fn note_read(&self, pages: usize) {
        let mut recent = self.recent.lock();
        recent.read += pages;
        if recent.read >= 2 * RECENT_PAGES {
            recent.read /= 2;
            recent.in_vain /= 2;
        }
        self.decide(&recent);
    }

    /// A page was evicted that was read ahead and not used.
    pub fn note_evicted(&self) {
        let mut recent = self.recent.lock();
        recent.in_vain += 1;
        self.decide(&recent);
    }

    fn decide(&self, recent: &Recent) {
        // The first few say little.
        let enough = recent.read.max(RECENT_PAGES / 2);
        self.is_vain.store(recent.in_vain * VAIN_PART > enough, Ordering::Relaxed);
    }
}

impl BufferPool {
    /// The most pages to [read ahead](Self::read_ahead) now: none, mostly, while that does not pay.
    pub fn most_read_ahead(&self) -> usize {
        let most = (self.shared.frames.len() / POOL_PART).min(MOST_PAGES);
        if self.shared.ahead.pays() { most } else { 0 }
    }

    /// Reads pages, as far as they are not in memory: at most [`most_read_ahead`](Self::most_read_ahead) of them. Waits for no frame. No latch may be held.
    pub fn read_ahead(&self, pages: &[PageId]) {
        may_wait("pages of the store");
        let shared = &*self.shared;
        let mut loading: Vec<Loading<'_>> = Vec::with_capacity(pages.len());
        for page in pages {
            let Some(frame) = shared.take_frame_at_hand() else { break };
            // None that is in memory by now, or that another task reads.
            if let Some(mut load) = shared.begin_load(frame, *page) {
                load.is_ahead = true;
                loading.push(load);
            }
        }
        let mut buffers: Vec<_> = loading
            .iter_mut()
            .map(|loading| {
                let content = &mut *loading.content;
                (content.id, &mut content.bytes[..])
            })
            .collect();
        let loads = shared.store.load_many(&mut buffers);
        let count = loading.len() as u64;
        shared.counters.misses.fetch_add(count, Ordering::Relaxed);
        shared.counters.fault_reads.fetch_add(count, Ordering::Relaxed);
        shared.counters.read_ahead.fetch_add(count, Ordering::Relaxed);
        shared.ahead.note_read(loading.len());
        match loads {
            Ok(loads) => {
                for (mut loading, load) in loading.into_iter().zip(loads) {
                    let completed = shared.complete(&mut loading.content, load, Source::Store);
                    let _left_to_the_task_that_needs_it = shared.end_load(loading, completed);
                }
            }
            Err(error) => {
                for loading in loading {
                    let _left_to_the_task_that_needs_it = shared.end_load(loading, Err(error.clone()));
                }
            }
        }
    }
}
