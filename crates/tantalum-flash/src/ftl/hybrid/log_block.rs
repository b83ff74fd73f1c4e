//! Open log blocks: what is written goes to the end of one.
//!
//! A log is in order while its position `i` holds page `i` of its unit. Its last page may be there in part only: that
//! part is in the scratch unit, and the rest of the page is still the old one.

use tantalum_device::sparse::PIECE_BYTES;

use super::{Hybrid, Image, KIND_SCRATCH, KIND_UNIT, NONE, UpdateOrder, spare};
use crate::Nanos;

/// A log block.
#[derive(Debug)]
pub(super) struct Log {
    /// The logical unit that it is for.
    pub unit: u32,
    pub block: u32,
    /// The position that is programmed next.
    pub next: u32,
    pub is_in_order: bool,
    /// By page of the unit: its newest position. Empty while the log is in order.
    positions: Vec<u32>,
    pub pending: Option<Pending>,
    /// The sequence of the last write.
    pub used: u64,
}

/// The page after the end of a log that was in order, as far as it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub index: u32,
    /// Bytes from the page's beginning that are newer than the unit's page.
    pub filled: usize,
    /// The flash page in the scratch unit.
    pub place: u32,
    pub sequence: u64,
}

impl Log {
    pub fn new(unit: u32, block: u32) -> Self {
        Self { unit, block, next: 0, is_in_order: true, positions: Vec::new(), pending: None, used: 0 }
    }

    /// Where the log holds a page of its unit.
    pub fn position(&self, index: u32) -> Option<u32> {
        let position = match self.is_in_order {
            true => index,
            false => self.positions[index as usize],
        };
        (position < self.next).then_some(position)
    }

    /// The next position is programmed with a page.
    fn push(&mut self, index: u32, unit_pages: u32) -> u32 {
        let position = self.next;
        if self.is_in_order && index != position {
            self.is_in_order = false;
            self.positions = (0..unit_pages).map(|page| if page < position { page } else { NONE }).collect();
        }
        if !self.is_in_order {
            self.positions[index as usize] = position;
        }
        self.next += 1;
        position
    }

    /// The end of what was written in order, as page and byte.
    fn end(&self) -> (u32, usize) {
        (self.next, self.pending.map_or(0, |pending| pending.filled))
    }
}

impl Hybrid {
    /// Writes a part of a page. Returns when it is on the flash.
    pub(super) fn write_part(&mut self, at: Nanos, page: u32, start: usize, data: &[u8]) -> Nanos {
        let (unit, index) = (page / self.unit_pages, page % self.unit_pages);
        let (mut slot, mut at) = self.log_for(at, unit);
        let is_append = |log: &Log| log.is_in_order && (index, start) >= log.end();
        if self.parameters.update_order == UpdateOrder::Sequential {
            if !is_append(&self.logs[slot]) {
                at = self.close(at, slot);
                (slot, at) = self.log_for(at, unit);
            }
            at = self.fill_up(at, slot, index);
        }
        let (mut image, mut ready) = ([0; PIECE_BYTES], at);
        let log = &self.logs[slot];
        let continues = log.pending.is_some_and(|pending| pending.index == index && pending.filled == start);
        let is_next = log.is_in_order && index == log.next && is_append(log);
        let filled = start + data.len();
        if is_next && (continues || start == 0) {
            if let Some(pending) = log.pending {
                self.load(pending.place, &mut image, pending.filled);
            }
        } else if data.len() < PIECE_BYTES {
            (image, ready) = self.image(at, page);
        }
        image[start..filled].copy_from_slice(data);
        let sequence = self.next_sequence();
        self.logs[slot].used = sequence;
        if is_next && filled < PIECE_BYTES {
            return self.keep_part(ready, slot, index, filled, &image, sequence);
        }
        let ready = self.level(ready, self.parameters.level_every_pages);
        self.append(ready, slot, index, &image, sequence)
    }

    /// Programs a whole page at the end of a log, and ends the log if that was its last.
    pub(super) fn append(&mut self, at: Nanos, slot: usize, index: u32, image: &Image, sequence: u64) -> Nanos {
        let pending = self.logs[slot].pending;
        let mut at = at;
        match pending {
            Some(pending) if pending.index != index => at = self.complete_pending(at, slot),
            _ => self.logs[slot].pending = None,
        }
        if self.logs[slot].next == self.unit_pages {
            // The part that was pending took the last position.
            let unit = self.logs[slot].unit;
            at = self.close(at, slot);
            let (slot, at) = self.log_for(at, unit);
            return self.append(at, slot, index, image, sequence);
        }
        let unit_pages = self.unit_pages;
        let log = &mut self.logs[slot];
        let (block, unit, position) = (log.block, log.unit, log.push(index, unit_pages));
        let done =
            self.program(at, block, position, spare(KIND_UNIT, unit * unit_pages + index, NONE, sequence), image);
        match position + 1 == unit_pages && self.logs[slot].is_in_order {
            true => self.close(done, slot),
            false => done,
        }
    }

    /// Completes the page that a log ends with from the unit's old page. Returns when that is programmed.
    pub(super) fn complete_pending(&mut self, at: Nanos, slot: usize) -> Nanos {
        let Some(pending) = self.logs[slot].pending else {
            return at;
        };
        let unit_pages = self.unit_pages;
        let page = self.logs[slot].unit * unit_pages + pending.index;
        let (image, ready) = self.image(at, page);
        let log = &mut self.logs[slot];
        log.pending = None;
        let (block, position) = (log.block, log.push(pending.index, unit_pages));
        self.program(ready, block, position, spare(KIND_UNIT, page, NONE, pending.sequence), &image)
    }

    /// Copies old pages to the end of a log in order until page `index` comes next.
    fn fill_up(&mut self, at: Nanos, slot: usize, index: u32) -> Nanos {
        let mut at = at;
        if index > self.logs[slot].next {
            at = self.complete_pending(at, slot);
        }
        let mut done = at;
        while self.logs[slot].next < index {
            done = done.max(self.copy_next(at, slot));
        }
        done
    }

    /// Copies the old page, or zeros, to the next position of a log that is in order.
    pub(super) fn copy_next(&mut self, at: Nanos, slot: usize) -> Nanos {
        let unit_pages = self.unit_pages;
        let log = &mut self.logs[slot];
        let (unit, block, index) = (log.unit, log.block, log.next);
        log.push(index, unit_pages);
        let old = self.map[unit as usize];
        let mut image = [0; PIECE_BYTES];
        let (mut ready, mut sequence) = (at, 0);
        if old != NONE && self.is_programmed(old, index) {
            let place = self.page_at(old, index);
            ready = self.nand.read(at, place, PIECE_BYTES as u32);
            sequence = self.nand.spare(place).sequence;
            self.load(place, &mut image, PIECE_BYTES);
        }
        self.program(ready, block, index, spare(KIND_UNIT, unit * unit_pages + index, NONE, sequence), &image)
    }

    /// Programs the part of a page that a log ends with into the scratch unit.
    fn keep_part(&mut self, at: Nanos, slot: usize, index: u32, filled: usize, image: &Image, sequence: u64) -> Nanos {
        let unit = self.logs[slot].unit;
        // What it replaces needs no copy if the scratch unit is full.
        let replaced = self.logs[slot].pending.take();
        debug_assert!(replaced.is_none_or(|old| old.index == index), "a log ends with one page");
        let (place, done) = self.program_scratch(at, unit * self.unit_pages + index, filled, image, sequence);
        self.logs[slot].pending = Some(Pending { index, filled, place, sequence });
        done
    }

    fn program_scratch(&mut self, at: Nanos, page: u32, filled: usize, image: &Image, sequence: u64) -> (u32, Nanos) {
        let mut at = at;
        let full = self.scratch.filter(|&(_, next)| next == self.unit_pages);
        if full.is_some() || self.scratch.is_none() {
            self.scratch = Some((self.allocate(at), 0));
            for other in 0..self.logs.len() {
                if let Some(pending) = self.logs[other].pending {
                    let mut kept = [0; PIECE_BYTES];
                    self.load(pending.place, &mut kept, pending.filled);
                    let page = self.logs[other].unit * self.unit_pages + pending.index;
                    let (place, done) = self.program_scratch(at, page, pending.filled, &kept, pending.sequence);
                    self.logs[other].pending = Some(Pending { place, ..pending });
                    at = at.max(done);
                }
            }
        }
        let (block, position) = self.scratch.expect("a scratch unit was just opened");
        (self.scratch, self.scratch_used) = (Some((block, position + 1)), sequence);
        let spare = spare(KIND_SCRATCH, page, filled as u32, sequence);
        let done = self.program_first(at, block, position, spare, image, filled);
        if let Some((old, _)) = full {
            self.release(old);
        }
        (self.page_at(block, position), done)
    }

    /// The open log of a unit; opens one, and closes the one that was not used for longest, if need be.
    fn log_for(&mut self, at: Nanos, unit: u32) -> (usize, Nanos) {
        if let Some(slot) = self.logs.iter().position(|log| log.unit == unit) {
            if self.logs[slot].next < self.unit_pages {
                return (slot, at);
            }
            let closed = self.close(at, slot);
            return self.log_for(closed, unit);
        }
        let mut at = at;
        if self.logs.len() == self.parameters.open_logs as usize {
            let oldest = (0..self.logs.len()).min_by_key(|&slot| self.logs[slot].used);
            at = self.close(at, oldest.expect("some log is open"));
        }
        let block = self.allocate(at);
        self.logs.push(Log::new(unit, block));
        (self.logs.len() - 1, at)
    }
}
