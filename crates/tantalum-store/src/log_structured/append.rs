//! How [`Shared`] appends pages. Batches of new pages are queued: one task appends for all that came while the last append was under
//! way. An append is one write: a summary, and the pages behind it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
    time::Duration,
};

use tantalum_device::Durability;
use tantalum_rt::{Condvar, Instant, Mutex, now};

use super::{
    Shared,
    layout::{BLOCK_BYTES, Place},
    maintenance::Maintenance,
    nilfs2,
    segment_counters::Counters,
    streams::Slot,
    summary::{ENTRIES_MAX, Entry, Stream},
};
use crate::{MetadataWrites, PageBatch, PageId, Result, page::header};

/// How long a task waits for free space before it looks again.
const SPACE_WAIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The batches that wait to be appended.
///
/// Invariant: one append of new pages is under way at a time, and made by a task that stores a batch; the queue is not locked
/// meanwhile. Nor is one while compaction begins the streams anew.
#[derive(Debug, Default)]
pub struct BatchQueue {
    state: Mutex<QueueState>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    waiting: VecDeque<(u64, PageBatch)>,
    results: BTreeMap<u64, Result<()>>,
    tickets: u64,
    is_writing: bool,
}

impl QueueState {
    /// The batches that the next append is for.
    fn take(&mut self) -> Vec<(u64, PageBatch)> {
        let mut pages = 0;
        let fits = |(_, batch): &&(u64, PageBatch)| {
            pages += batch.ids().len();
            pages <= ENTRIES_MAX
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        self.waiting.drain(..count.min(self.waiting.len())).collect()
    }
}

impl BatchQueue {
    /// Has a batch appended, together with those that other tasks store; by this task, with `append`, if none is appending.
    fn store(&self, batch: &PageBatch, append: impl Fn(&[(u64, PageBatch)]) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push_back((ticket, batch.clone()));
        loop {
            if let Some(result) = state.results.remove(&ticket) {
                return result;
            }
            if state.is_writing {
                self.ended.wait(&mut state);
                continue;
            }
            state.is_writing = true;
            let taken = state.take();
            drop(state);
            let result = append(&taken);
            state = self.state.lock();
            state.is_writing = false;
            state.results.extend(taken.into_iter().map(|(ticket, _)| (ticket, result.clone())));
            self.ended.notify_all();
        }
    }
}

impl BatchQueue {
    /// Does something while no append of new pages is under way.
    pub(super) fn between_appends<T>(&self, act: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock();
            while state.is_writing {
                self.ended.wait(&mut state);
            }
            state.is_writing = true;
        }
        let done = act();
        self.state.lock().is_writing = false;
        self.ended.notify_all();
        done
    }
}

/// A page to append.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub id: PageId,
    /// Its bytes, sealed.
    pub bytes: &'a [u8],
    /// Where cleaning read it.
    pub from: Option<Place>,
    /// When it was stored.
    pub stamp: u64,
}

impl Shared {
    /// Stores a batch, together with those that other tasks store.
    ///
    /// # Errors
    /// When the device cannot write, or there is no room.
    pub(super) fn store_batch(&self, batch: &PageBatch) -> Result<()> {
        self.batches.store(batch, |batches| self.append_all(batches))
    }

    fn append_all(&self, batches: &[(u64, PageBatch)]) -> Result<()> {
        let layout = self.io.layout;
        let pages: usize = batches.iter().map(|(_, batch)| batch.ids().len()).sum();
        let stamp = {
            let mut table = self.table.write();
            table.clock += pages as u64 * u64::from(layout.page_blocks());
            table.clock
        };
        let items = batches.iter().flat_map(|(_, batch)| {
            let pages = batch.bytes().chunks_exact(layout.page_bytes());
            batch.ids().iter().zip(pages).map(|(&id, bytes)| Item { id, bytes, from: None, stamp })
        });
        let items: Vec<Item<'_>> = items.collect();
        let mut rest = &items[..];
        while !rest.is_empty() {
            let slot = self.slot_for_new_pages(rest.len())?;
            rest = &rest[self.append(slot, rest)?..];
        }
        Ok(())
    }

    /// Where so many new pages go, or as many as a segment has room for, once there is room for them.
    fn slot_for_new_pages(&self, pages: usize) -> Result<Slot> {
        let mut waited_since = None;
        loop {
            if self.must_begin() {
                Maintenance::begin(self).begin_streams()?;
            }
            let (slot, is_work_due, is_exhausted) = {
                let mut table = self.table.write();
                let waited = waited_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                let has_room = table.is_exhausted() || table.free_space().has_room_for(pages, waited);
                let slot = has_room.then(|| table.slot_for_new_pages()).flatten();
                (slot, table.is_work_due(), table.is_exhausted())
            };
            if is_work_due {
                self.space.wake_cleaner();
            }
            if let Some(slot) = slot {
                if let Some(since) = waited_since {
                    self.count_wait(since);
                }
                return Ok(slot);
            }
            if is_exhausted {
                return Err(self.io.full());
            }
            waited_since.get_or_insert_with(now);
            // A signal that came before this is not missed for long.
            self.space.wait(SPACE_WAIT_TIMEOUT);
        }
    }

    fn count_wait(&self, since: Instant) {
        let (counters, waited_us) = (&self.io.counters, u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX));
        Counters::add(&counters.waits, 1);
        Counters::add(&counters.waited_us, waited_us);
        counters.longest_wait_us.fetch_max(waited_us, Ordering::Relaxed);
    }

    /// Appends as many of the pages as go into one append, durably, and notes where they are. Returns how many. After a failure the
    /// streams must begin anew.
    ///
    /// One task at a time appends to a stream.
    pub(super) fn append(&self, slot: Slot, items: &[Item<'_>]) -> Result<usize> {
        let (io, layout) = (&self.io, self.io.layout);
        let room = layout.segment_blocks() - slot.block - 1;
        let fit = (room / layout.page_blocks()) as usize;
        let items = &items[..items.len().min(fit).min(ENTRIES_MAX)];
        assert!(!items.is_empty(), "a segment is left when no page fits any more");
        let is_hot = slot.stream == Stream::Hot;
        let filler_blocks = match self.metadata_writes {
            MetadataWrites::Nilfs2 if is_hot => {
                let blocks = nilfs2::metadata_blocks(items.iter().map(|item| item.id), layout.page_blocks());
                blocks.min(room - items.len() as u32 * layout.page_blocks())
            }
            _ => 0,
        };
        let entry = |item: &Item<'_>| Entry::Page {
            id: item.id,
            lsn: header::lsn(item.bytes),
            crc: header::checksum(item.bytes),
            from: item.from,
        };
        let stamp = items.iter().map(|item| item.stamp).max().unwrap_or(0);
        let summary = slot.summary(stamp, items.iter().map(entry).collect(), filler_blocks);
        let pages = |buffer: &mut [u8]| {
            for (item, place) in items.iter().zip(buffer.chunks_exact_mut(layout.page_bytes())) {
                place.copy_from_slice(item.bytes);
            }
        };
        let written = io.write(&summary, Durability::Durable, pages);
        let blocks = written.inspect_err(|_| self.must_begin.store(true, Ordering::Release))?;
        let mut table = self.table.write();
        table.apply(&summary);
        table.streams.advance(&slot, blocks);
        drop(table);
        Counters::add(&io.counters.appends, 1);
        Counters::add(&io.counters.filler_bytes_written, u64::from(filler_blocks) * BLOCK_BYTES as u64);
        let moved_or_stored = if is_hot { &io.counters.pages_stored } else { &io.counters.pages_moved };
        Counters::add(moved_or_stored, items.len() as u64);
        Ok(items.len())
    }
}
