//! Which page leaves the [`BufferPool`](super::BufferPool) when another needs room: the clock, an approximation of least recently used.
//!
//! Only clean pages that are not pinned leave. A task that misses takes a free frame, else evicts, else writes dirty
//! pages back itself or waits for others that do ([`free_list`](super::free_list)); the cleaner works ahead so that it rarely
//! comes to that.

use std::{sync::atomic::Ordering, time::Duration};

use tantalum_rt::{holds_none, may_wait};
use tantalum_store::PageId;

use super::{
    frame::Stage,
    free_list::{FrameOrPermit, WritePermit},
    latches::WRITE_PERMIT,
    pool::Shared,
};
use crate::error::{Error, ErrorKind, Result};

/// How long a task waits until other tasks unpin a page.
const PIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A frame without a page, which the taker owns.
pub(super) struct Taken {
    pub frame: usize,
    /// Whether it took a write of other pages, or waiting for one.
    pub has_waited: bool,
}

impl Shared {
    /// Finds room for a page, if nothing must be waited for.
    pub(super) fn take_frame_at_hand(&self) -> Option<usize> {
        self.free_list.reserve.count_demand();
        self.free_list.take().or_else(|| self.walk(1).clean.pop())
    }

    /// Finds room for a page. No latch may be held.
    pub(super) fn take_frame(&self) -> Result<Taken> {
        holds_none(&[WRITE_PERMIT], "a frame");
        may_wait("a frame");
        self.free_list.reserve.count_demand();
        let mut deadline = None;
        let mut has_waited = false;
        loop {
            if let Some(frame) = self.free_list.take() {
                return Ok(Taken { frame, has_waited });
            }
            let mut found = self.walk(1);
            if let Some(frame) = found.clean.pop() {
                return Ok(Taken { frame, has_waited });
            }
            if found.dirty.is_empty() && !found.others_store {
                if tantalum_rt::now() > *deadline.get_or_insert_with(|| tantalum_rt::now() + PIN_TIMEOUT) {
                    return Err(Error::new(
                        ErrorKind::PoolExhausted,
                        format!(
                            "all {frames} frames of the buffer pool are in use; make the pool larger or the transactions smaller",
                            frames = self.frames.len()
                        ),
                    ));
                }
                has_waited = true;
                tantalum_rt::sleep(Duration::from_millis(1));
                continue;
            }
            has_waited = true;
            match self.free_list.frame_or_permit(!found.dirty.is_empty()) {
                FrameOrPermit::Frame(frame) => return Ok(Taken { frame, has_waited }),
                FrameOrPermit::Permit(mut permit) => {
                    let mut cleaned = self.clean(&mut permit, &mut found.dirty)?;
                    let own = cleaned.pop();
                    self.free_list.give(cleaned);
                    drop(permit);
                    if let Some(frame) = own {
                        return Ok(Taken { frame, has_waited });
                    }
                    tantalum_rt::yield_now();
                }
                FrameOrPermit::Nothing => tantalum_rt::yield_now(),
            }
        }
    }

    /// Evicts and cleans until the reserve is there or on its way; false if there is nothing more that can be done.
    pub(super) fn refill_reserve(&self) -> Result<bool> {
        loop {
            let missing = self.free_list.missing();
            if missing == 0 {
                return Ok(true);
            }
            let mut found = self.walk(missing);
            let mut evicted = found.clean.len();
            self.free_list.give(found.clean);
            if evicted < missing && !found.dirty.is_empty() {
                let Some(mut permit) = self.free_list.try_write_permit() else { return Ok(false) };
                let cleaned = self.free_list.reserve.learn(|| self.clean(&mut permit, &mut found.dirty))?;
                evicted += cleaned.len();
                self.free_list.give(cleaned);
            }
            if evicted == 0 {
                return Ok(false);
            }
        }
    }

    /// Moves the clock's hand on until `wanted` clean pages that were not used since it last passed are evicted, or
    /// a batch of dirty ones is met: so many clean pages are not worth passing by more dirty ones, which are as old.
    fn walk(&self, wanted: usize) -> Found {
        let mut found = Found::default();
        // Two rounds: the first may only take the marks of recent use away.
        for _ in 0..2 * self.frames.len() {
            let index = self.hand.fetch_add(1, Ordering::Relaxed) % self.frames.len();
            let frame = &self.frames[index];
            let Some(id) = frame.state.page() else { continue };
            if frame.is_pinned() || frame.take_reference() {
                continue;
            }
            match frame.state.stage() {
                Stage::BeingStored => found.others_store = true,
                // A small pool is walked round within a batch.
                Stage::Dirty if found.dirty.contains(&(id, index)) => {}
                Stage::Dirty => found.dirty.push((id, index)),
                Stage::Clean if self.evict(id, index) => found.clean.push(index),
                Stage::Clean => {}
            }
            if found.clean.len() == wanted || found.dirty.len() == self.batch_pages {
                break;
            }
        }
        found
    }

    /// Stores dirty pages and evicts those that are not in use meanwhile. Returns their frames, which are the caller's: to be
    /// given to waiting tasks before the permit is.
    fn clean(&self, permit: &mut WritePermit<'_>, dirty: &mut [(PageId, usize)]) -> Result<Vec<usize>> {
        self.sink.write_back(self, permit, dirty)?;
        let evicted = dirty.iter().filter(|(id, index)| self.evict(*id, *index));
        Ok(evicted.map(|(_, index)| *index).collect())
    }

    /// Evicts a page, unless it is in use or dirty. Then the frame is the caller's.
    fn evict(&self, id: PageId, index: usize) -> bool {
        // Asked under the lock of the shard, where it cannot be pinned; a page that is not pinned stays clean.
        let frame = &self.frames[index];
        let is_unused = frame.is_unused();
        let evicted = self.table.remove_if(id, index, || frame.vacate());
        if evicted {
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
            if is_unused {
                self.counters.read_in_vain.fetch_add(1, Ordering::Relaxed);
                self.ahead.note_evicted();
            }
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
    /// There are such pages that other tasks are storing.
    others_store: bool,
}
