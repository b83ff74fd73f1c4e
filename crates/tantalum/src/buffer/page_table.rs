//! Which frame holds which page.
//!
//! Sharded, so that two lookups rarely meet; and a pin only reads its shard, since every descent of a tree
//! pins its root. Pages are evicted with the lock of their shard held for writing, so that neither can overlook the other.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tantalum_rt::{RwLock, collections::HashMap};
use tantalum_store::PageId;

use super::frame::{Frame, PinnedPage};

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct PageTable {
    shards: Box<[Shard]>,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    /// Page number to frame index.
    frames: RwLock<HashMap<PageId, usize>>,
    hits: AtomicU64,
}

impl PageTable {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, id: PageId) -> &Shard {
        &self.shards[id.0 as usize % SHARDS]
    }

    /// Pins a page that is in a frame, loaded or not, and returns the frame's index too.
    pub fn pin(&self, id: PageId, frames: &[Frame]) -> Option<(usize, PinnedPage)> {
        let shard = self.shard(id);
        // Locked until the page is pinned, so that it is not evicted meanwhile.
        let known = shard.frames.read();
        let frame = *known.get(&id)?;
        shard.hits.fetch_add(1, Ordering::Relaxed);
        Some((frame, PinnedPage { id, frame: frame as u32, latch: Arc::clone(&frames[frame].latch) }))
    }

    /// The frame that a page is in, loaded or not; perhaps not any more when this returns.
    pub fn find(&self, id: PageId) -> Option<usize> {
        let shard = self.shard(id);
        let frame = *shard.frames.read().get(&id)?;
        shard.hits.fetch_add(1, Ordering::Relaxed);
        Some(frame)
    }

    /// Notes that a page is in a frame, unless it already is in one: then false.
    pub fn insert(&self, id: PageId, frame: usize) -> bool {
        let mut known = self.shard(id).frames.write();
        if known.contains_key(&id) {
            return false;
        }
        known.insert(id, frame);
        true
    }

    /// Forgets that a page is in `frame`, if it is and `condition` holds. The page cannot be pinned meanwhile.
    pub fn remove_if(&self, id: PageId, frame: usize, condition: impl FnOnce() -> bool) -> bool {
        let mut known = self.shard(id).frames.write();
        known.get(&id) == Some(&frame) && condition() && known.remove(&id).is_some()
    }

    pub fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.hits.load(Ordering::Relaxed)).sum()
    }
}
