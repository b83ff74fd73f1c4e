//! Reading pages ahead: several that a task needs one after the other are brought into memory at the same time.
//!
//! It is a help and promises nothing: a page that cannot be read, or for which no frame is at hand, is left to the task that comes to
//! need it.

use std::sync::atomic::Ordering;

use tantalum_rt::may_wait;
use tantalum_store::PageId;

use super::{
    BufferPool,
    pinning::{Loading, Source},
};

/// The most pages that are read ahead at a time.
const MOST_PAGES: usize = 32;
/// One frame in so many may be filled by them: in a small pool they would be evicted before they are used.
const POOL_PART: usize = 8;

impl BufferPool {
    /// The most pages that [`read_ahead`](Self::read_ahead) reads.
    pub fn most_read_ahead(&self) -> usize {
        (self.shared.frames.len() / POOL_PART).min(MOST_PAGES)
    }

    /// Reads pages, as far as they are not in memory. Waits for no frame. No latch may be held.
    pub fn read_ahead(&self, pages: &[PageId]) {
        may_wait("pages of the store");
        let shared = &*self.shared;
        let mut loading: Vec<Loading<'_>> = Vec::with_capacity(pages.len());
        for page in pages.iter().take(self.most_read_ahead()) {
            let Some(frame) = shared.take_frame_at_hand() else { break };
            // None that is in memory by now, or that another task reads.
            loading.extend(shared.begin_load(frame, *page));
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
