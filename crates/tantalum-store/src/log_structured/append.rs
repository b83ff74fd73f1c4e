//! How [`Shared`] appends pages. Batches of new pages are queued: one task appends for all that came while the last append was under
//! way. An append is one write: a summary, and the pages behind it.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
    sync::atomic::Ordering,
    time::Duration,
};

use tantalum_device::Durability;
use tantalum_log::Lsn;
use tantalum_rt::{Condvar, Instant, Mutex, MutexGuard, now};

use super::{
    Shared,
    compression::{Compressor, PageCompression},
    layout::{BLOCK_BYTES, BLOCK_UNITS, Extent, UNIT_BYTES},
    maintenance::Maintenance,
    nilfs2,
    segment_counters::Counters,
    streams::{PageStreams, Slot},
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
    waiting: VecDeque<(u64, ImageBatch)>,
    results: BTreeMap<u64, Result<()>>,
    tickets: u64,
    is_writing: bool,
}

impl QueueState {
    /// The batches that the next append is for.
    fn take(&mut self) -> Vec<(u64, ImageBatch)> {
        let mut pages = 0;
        let fits = |(_, images): &&(u64, ImageBatch)| {
            pages += images.batch.ids().len();
            pages <= ENTRIES_MAX
        };
        let count = self.waiting.iter().take_while(fits).count().max(1);
        self.waiting.drain(..count.min(self.waiting.len())).collect()
    }
}

impl BatchQueue {
    /// Has a batch appended, together with those that other tasks store; by this task, with `append`, if none is appending.
    fn store(&self, images: ImageBatch, append: impl Fn(&[(u64, ImageBatch)]) -> Result<()>) -> Result<()> {
        let mut state = self.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push_back((ticket, images));
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

/// A batch of pages, and what is to be stored of each.
#[derive(Debug)]
struct ImageBatch {
    batch: PageBatch,
    /// The images of those that are compressed.
    compressed: Vec<u8>,
    /// Where each page's image is; `None` for one that is stored as it is.
    ranges: Vec<Option<Range<usize>>>,
}

impl ImageBatch {
    fn of(batch: &PageBatch, compression: PageCompression, page_bytes: usize) -> Self {
        let mut compressed = Vec::new();
        let ranges = match compression {
            PageCompression::None => vec![None; batch.ids().len()],
            PageCompression::Lz4 => {
                let mut compressor = Compressor::new(page_bytes);
                let mut compress = |page: &[u8]| {
                    let start = compressed.len();
                    compressor.add(page, &mut compressed).then_some(start..compressed.len())
                };
                batch.pages().map(|(_, page)| compress(page)).collect()
            }
        };
        Self { batch: batch.clone(), compressed, ranges }
    }

    fn items(&self) -> impl Iterator<Item = Item<'_>> {
        self.batch.pages().zip(&self.ranges).map(|((id, page), range)| Item {
            id,
            lsn: header::lsn(page),
            crc: header::checksum(page),
            image: range.clone().map_or(page, |range| &self.compressed[range]),
            from: None,
            stamp: 0,
        })
    }
}

/// A page to append.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    pub id: PageId,
    /// Its last change, and its checksum, as its header has them.
    pub lsn: Lsn,
    pub crc: u32,
    /// What is stored of it.
    pub image: &'a [u8],
    /// Where cleaning read it.
    pub from: Option<Extent>,
    /// When it was stored.
    pub stamp: u64,
}

impl Item<'_> {
    fn units(&self) -> u32 {
        (self.image.len() / UNIT_BYTES) as u32
    }
}

/// The units that pages take.
fn units(items: &[Item<'_>]) -> u64 {
    items.iter().map(|item| u64::from(item.units())).sum()
}

/// The pages of each stream. Those that are stored as they are come first: each of them begins a block then, and is read without those
/// beside it.
pub fn by_stream<'a>(items: &mut [(Stream, Item<'a>)], page_bytes: usize) -> Vec<(Stream, Vec<Item<'a>>)> {
    items.sort_by_key(|(stream, item)| (*stream, item.image.len() < page_bytes));
    let streams = items.chunk_by(|(first, _), (second, _)| first == second);
    streams.map(|items| (items[0].0, items.iter().map(|(_, item)| *item).collect())).collect()
}

impl Shared {
    /// Stores a batch, together with those that other tasks store.
    ///
    /// # Errors
    /// When the device cannot write, or there is no room.
    pub(super) fn store_batch(&self, batch: &PageBatch) -> Result<()> {
        let images = ImageBatch::of(batch, self.compression, self.io.layout.page_bytes());
        self.batches.store(images, |batches| self.append_all(batches))
    }

    fn append_all(&self, batches: &[(u64, ImageBatch)]) -> Result<()> {
        let items = batches.iter().flat_map(|(_, images)| images.items());
        let mut items: Vec<(Stream, Item<'_>)> = {
            let mut table = self.table.write();
            let items: Vec<Item<'_>> = items.collect();
            table.clock += units(&items).div_ceil(BLOCK_UNITS.into());
            let stamp = table.clock;
            items.into_iter().map(|item| (table.stream_of_new_page(item.id), Item { stamp, ..item })).collect()
        };
        for (stream, items) in by_stream(&mut items, self.io.layout.page_bytes()) {
            let mut rest = &items[..];
            while !rest.is_empty() {
                rest = &rest[self.append_new_pages(stream, rest)?..];
            }
        }
        Ok(())
    }

    /// Appends new pages, as many as go into one append, once there is room for them. Returns how many.
    fn append_new_pages(&self, stream: Stream, items: &[Item<'_>]) -> Result<usize> {
        let mut waited_since = None;
        loop {
            let turn = self.turn_to_append();
            if self.must_begin() {
                drop(turn);
                Maintenance::begin(self).begin_streams()?;
                continue;
            }
            let (slot, is_work_due, is_exhausted) = {
                let mut table = self.table.write();
                let waited = waited_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                let has_room = table.is_exhausted() || table.free_space().has_room_for(units(items), waited);
                let slot = has_room.then(|| table.slot_for_new_pages(stream)).flatten();
                (slot, table.is_work_due(), table.is_exhausted())
            };
            if is_work_due {
                self.space.wake_cleaner();
            }
            if let Some(slot) = slot {
                if let Some(since) = waited_since {
                    self.count_wait(since);
                }
                return self.append(slot, items);
            }
            if is_exhausted {
                return Err(self.io.full());
            }
            drop(turn);
            waited_since.get_or_insert_with(now);
            // A signal that came before this is not missed for long.
            self.space.wait(SPACE_WAIT_TIMEOUT);
        }
    }

    /// Where new pages and those that cleaning moves go to one stream: held from before a place in it is chosen until what is appended
    /// there is durable. A task that has it must see afterwards that the streams need not begin anew.
    pub(super) fn turn_to_append(&self) -> Option<MutexGuard<'_, ()>> {
        (self.page_streams == PageStreams::One).then(|| self.turn.lock())
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
        let mut used_units = 0;
        let fits = |item: &&Item<'_>| {
            used_units += item.units();
            used_units <= room * BLOCK_UNITS
        };
        let items = &items[..items.iter().take(ENTRIES_MAX).take_while(fits).count()];
        assert!(!items.is_empty(), "a segment is left when no page fits any more");
        let is_new = items[0].from.is_none();
        let filler_blocks = match self.metadata_writes {
            MetadataWrites::Nilfs2 if is_new => {
                let blocks = nilfs2::metadata_blocks(items.iter().map(|item| item.id), layout.page_blocks());
                blocks.min(room - units(items).div_ceil(BLOCK_UNITS.into()) as u32)
            }
            _ => 0,
        };
        let entry = |item: &Item<'_>| Entry::Page {
            id: item.id,
            lsn: item.lsn,
            crc: item.crc,
            from: item.from,
            units: item.units(),
        };
        let stamp = items.iter().map(|item| item.stamp).max().unwrap_or(0);
        let summary = slot.summary(stamp, items.iter().map(entry).collect(), filler_blocks);
        let pages = |buffer: &mut [u8]| {
            let mut at = 0;
            for item in items {
                buffer[at..at + item.image.len()].copy_from_slice(item.image);
                at += item.image.len();
            }
        };
        let written = io.write(&summary, slot.was_reset, Durability::Durable, pages);
        let blocks = written.inspect_err(|_| self.must_begin.store(true, Ordering::Release))?;
        let mut table = self.table.write();
        table.apply(&summary);
        table.streams.advance(&slot, blocks, is_new);
        drop(table);
        Counters::add(&io.counters.appends, 1);
        Counters::add(&io.counters.filler_bytes_written, u64::from(filler_blocks) * BLOCK_BYTES as u64);
        let moved_or_stored = if is_new { &io.counters.pages_stored } else { &io.counters.pages_moved };
        Counters::add(moved_or_stored, items.len() as u64);
        if is_new {
            Counters::add(&io.counters.bytes_stored, units(items) * UNIT_BYTES as u64);
        }
        Ok(items.len())
    }
}
