//! Batches on their way into the stream of new pages: one task appends for all that came while the last append was under way.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::Ordering,
    time::Duration,
};

use tantalum_rt::{Condvar, Instant, Mutex, now};

use super::{
    Shared,
    append::Item,
    counters::Counters,
    summary::{ENTRIES_MAX, Stream},
    table::Slot,
};
use crate::{PageBatch, Result};

/// How long somebody waits for room before looking for themselves.
const PATIENCE: Duration = Duration::from_millis(100);

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
            self.room.wait_for(&mut waiting, PATIENCE);
        }
    }

    fn count_wait(&self, since: Instant) {
        let waited_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        Counters::add(&self.counters.waits, 1);
        Counters::add(&self.counters.waited_us, waited_us);
        self.counters.longest_wait_us.fetch_max(waited_us, Ordering::Relaxed);
    }
}
