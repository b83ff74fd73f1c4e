//! Appends. Batches of new pages are queued: one task appends for all that came while the last append was under way. An append is
//! one write: a summary, and the pages behind it.
//!
//! The streams begin in fresh segments, behind a checkpoint that says where: before the first append after opening, and after an
//! append that failed. What stands behind the last whole append of the old streams belongs to a session that is over, and is never
//! looked at again.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
    time::Duration,
};

use tantalum_device::{AlignedBuffer, Durability};
use tantalum_log::Lsn;
use tantalum_rt::{Condvar, Instant, Mutex, Random, now, random_seed};

use super::{
    Shared,
    layout::{BLOCK_BYTES, Place},
    nilfs2,
    root::Position,
    segment_counters::Counters,
    summary::{ENTRIES_MAX, Entry, Stream, Summary},
    table::{Slot, Table},
};
use crate::{MetadataWrites, PageBatch, PageId, Result, page::header};

/// How long a task waits for free space before it looks again.
const SPACE_WAIT_TIMEOUT: Duration = Duration::from_millis(100);

/// The batches.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, PageBatch)>,
    results: BTreeMap<u64, Result<()>>,
    tickets: u64,
    is_writing: bool,
}

impl State {
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

impl Shared {
    /// Stores a batch, together with those that others store.
    ///
    /// # Errors
    /// When the device cannot write, or there is no room.
    pub(super) fn store_batch(&self, batch: &PageBatch) -> Result<()> {
        let mut state = self.queue.state.lock();
        let ticket = state.tickets;
        state.tickets += 1;
        state.waiting.push_back((ticket, batch.clone()));
        loop {
            if let Some(result) = state.results.remove(&ticket) {
                return result;
            }
            if state.is_writing {
                self.queue.ended.wait(&mut state);
                continue;
            }
            state.is_writing = true;
            let taken = state.take();
            drop(state);
            let result = self.append_all(&taken);
            state = self.queue.state.lock();
            state.is_writing = false;
            state.results.extend(taken.into_iter().map(|(ticket, _)| (ticket, result.clone())));
            self.queue.ended.notify_all();
        }
    }

    fn append_all(&self, batches: &[(u64, PageBatch)]) -> Result<()> {
        let items = batches.iter().flat_map(|(_, batch)| {
            let pages = batch.bytes().chunks_exact(self.layout.page_bytes());
            batch.ids().iter().zip(pages).map(|(&id, bytes)| Item { id, bytes, from: None, stamp: 0 })
        });
        let mut items: Vec<Item<'_>> = items.collect();
        let stamp = {
            let mut table = self.table.write();
            table.clock += items.len() as u64 * u64::from(self.layout.page_blocks());
            table.clock
        };
        items.iter_mut().for_each(|item| item.stamp = stamp);
        let mut rest = &items[..];
        while !rest.is_empty() {
            let slot = self.slot_for_new_pages(rest.len())?;
            let appended = self.append(slot, rest).inspect_err(|_| self.must_begin.store(true, Ordering::Release))?;
            rest = &rest[appended..];
        }
        Ok(())
    }

    /// Where so many new pages go, or as many as a segment has room for, once there is room for them.
    fn slot_for_new_pages(&self, pages: usize) -> Result<Slot> {
        let mut waited_since = None;
        loop {
            if self.must_begin() {
                self.begin_streams()?;
            }
            let (slot, is_low, is_exhausted) = {
                let mut table = self.table.write();
                let reserve = self.layout.cleaning_reserve(table.segments.count());
                let waited = waited_since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                let has_room = self.has_room_for(pages, waited, &table);
                let slot = has_room.then(|| table.next_slot(Stream::Hot, &self.layout, reserve)).flatten();
                (slot, self.is_work_due(&table), table.is_exhausted())
            };
            if is_low {
                self.kick();
            }
            if let Some(slot) = slot {
                if let Some(since) = waited_since {
                    self.count_wait(since);
                }
                return Ok(slot);
            }
            if is_exhausted {
                return Err(self.full());
            }
            waited_since.get_or_insert_with(now);
            let mut waiting = self.waiting.lock();
            // A signal that came before this is not missed for long.
            self.room.wait_for(&mut waiting, SPACE_WAIT_TIMEOUT);
        }
    }

    fn count_wait(&self, since: Instant) {
        let waited_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        Counters::add(&self.counters.waits, 1);
        Counters::add(&self.counters.waited_us, waited_us);
        self.counters.longest_wait_us.fetch_max(waited_us, Ordering::Relaxed);
    }
}

/// A page to append.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Which.
    pub id: PageId,
    /// Its bytes, sealed.
    pub bytes: &'a [u8],
    /// Where cleaning read it.
    pub from: Option<Place>,
    /// When it was stored, if it is moved.
    pub stamp: u64,
}

impl Item<'_> {
    fn lsn(&self) -> Lsn {
        header::lsn(self.bytes)
    }
}

impl Shared {
    /// Appends as many of the pages as go into one append, durably, and notes where they are. Returns how many.
    ///
    /// One task at a time appends to a stream.
    pub(super) fn append(&self, slot: Slot, items: &[Item<'_>]) -> Result<usize> {
        let layout = self.layout;
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
        let page_blocks = items.len() as u32 * layout.page_blocks();
        let entry = |item: &Item<'_>| Entry::Page {
            id: item.id,
            lsn: item.lsn(),
            crc: header::checksum(item.bytes),
            from: item.from,
        };
        let stamp = items.iter().map(|item| item.stamp).max().unwrap_or(0);
        let summary = Summary {
            session: slot.session,
            sequence: slot.sequence,
            stream: slot.stream,
            segment: slot.segment,
            block: slot.block,
            next: slot.next,
            stamp,
            entries: items.iter().map(entry).collect(),
            filler_blocks,
        };
        let blocks = summary.blocks(layout.page_blocks());
        let mut buffer = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
        summary.encode(&mut buffer, self.database);
        for (item, place) in items.iter().zip(buffer[BLOCK_BYTES..].chunks_exact_mut(layout.page_bytes())) {
            place.copy_from_slice(item.bytes);
        }
        let offset = layout.place(slot.segment, slot.block).offset();
        self.device.write(offset, &[&buffer], Durability::Durable)?;
        let mut table = self.table.write();
        table.apply(&summary, &layout);
        table.advance(&slot, blocks);
        drop(table);
        let counters = &self.counters;
        Counters::add(&counters.appends, 1);
        Counters::add(&counters.bytes_written, buffer.len() as u64);
        Counters::add(&counters.filler_bytes_written, u64::from(filler_blocks) * BLOCK_BYTES as u64);
        let moved_or_stored = if is_hot { &counters.pages_stored } else { &counters.pages_moved };
        Counters::add(moved_or_stored, items.len() as u64);
        debug_assert_eq!(blocks, 1 + page_blocks + filler_blocks);
        Ok(items.len())
    }
}

impl Shared {
    /// Begins the streams, if they must. Nothing is appended to that of new pages meanwhile.
    ///
    /// # Errors
    /// When no segments are free, or the checkpoint cannot be written: then nothing can be stored.
    pub(super) fn begin_streams(&self) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        if !self.must_begin() {
            return Ok(());
        }
        {
            let mut table = self.table.write();
            table.leave_streams();
            let positions = table.open_streams().ok_or_else(|| self.full())?;
            table.positions = Some(positions);
            table.session = Random::with_seed(random_seed()).u64(..);
        }
        self.checkpoint()?;
        self.must_begin.store(false, Ordering::Release);
        tracing::debug!(device = self.device.name(), "appends begin in fresh segments");
        Ok(())
    }
}

impl Table {
    /// Closes what the streams had open.
    fn leave_streams(&mut self) {
        self.forget_exhausted();
        for Position { segment, block, next, .. } in self.positions.take().into_iter().flatten() {
            self.segments.close(segment, block > 0);
            self.segments.close(next, false);
        }
        if let Some((segment, block)) = self.map_position.take() {
            self.segments.close_map(segment, block > 0);
        }
    }

    fn open_streams(&mut self) -> Option<[Position; 2]> {
        let mut opened = Vec::with_capacity(4);
        while opened.len() < 4 {
            match self.segments.open(0) {
                Some(segment) => opened.push(segment),
                None => {
                    opened.into_iter().for_each(|segment| self.segments.close(segment, false));
                    return None;
                }
            }
        }
        let position = |at: usize| Position { segment: opened[at], block: 0, next: opened[at + 1], after: 0 };
        Some([position(0), position(2)])
    }
}
