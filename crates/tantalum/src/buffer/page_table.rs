//! Which frame holds which page.
//!
//! Sharded, so that two lookups rarely meet. Pins are made and pages evicted under the lock of the page's shard only,
//! which is why neither can overlook the other.

use std::sync::Arc;

use tantalum_rt::{Mutex, collections::HashMap};

use super::frame::{Frame, PinnedPage};
use crate::page::PageId;

const SHARDS: usize = 64;

#[derive(Debug)]
pub(super) struct PageTable {
    shards: Box<[Shard]>,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    content: Mutex<ShardContent>,
}

#[derive(Debug, Default)]
struct ShardContent {
    /// Page number to frame index.
    frames: HashMap<PageId, usize>,
    hits: u64,
}

impl PageTable {
    pub fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    fn shard(&self, id: PageId) -> &Mutex<ShardContent> {
        &self.shards[id.0 as usize % SHARDS].content
    }

    /// Pins a page that is in a frame, loaded or not, and returns the frame's index too.
    pub fn pin(&self, id: PageId, frames: &[Frame]) -> Option<(usize, PinnedPage)> {
        let mut shard = self.shard(id).lock();
        let frame = *shard.frames.get(&id)?;
        shard.hits += 1;
        Some((frame, PinnedPage { id, latch: Arc::clone(&frames[frame].latch) }))
    }

    /// Notes that a page is in a frame, unless it already is in one: then false.
    pub fn insert(&self, id: PageId, frame: usize) -> bool {
        let mut shard = self.shard(id).lock();
        if shard.frames.contains_key(&id) {
            return false;
        }
        shard.frames.insert(id, frame);
        true
    }

    /// Forgets that a page is in `frame`, if it is and `condition` holds. Nobody can pin the page meanwhile.
    pub fn remove_if(&self, id: PageId, frame: usize, condition: impl FnOnce() -> bool) -> bool {
        let mut shard = self.shard(id).lock();
        shard.frames.get(&id) == Some(&frame) && condition() && shard.frames.remove(&id).is_some()
    }

    pub fn hits(&self) -> u64 {
        self.shards.iter().map(|shard| shard.content.lock().hits).sum()
    }
}
