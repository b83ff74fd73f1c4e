//! Merges: how a log block and its unit's block become one block again.
//!
//! Invariant: a block is erased when everything it held that is still valid has been programmed elsewhere.

use super::log::Log;
use super::{Hybrid, KIND_UNIT, NONE, spare};
use crate::Nanos;
use crate::contents::PIECE_BYTES;
use crate::nand::PageState;

impl Hybrid {
    /// Closes a log, which has room for the page that is pending in it, by the cheapest merge that its order allows. Returns when its unit is whole again.
    pub(super) fn close(&mut self, at: Nanos, slot: usize) -> Nanos {
        let mut done = self.complete_pending(at, slot);
        if !self.logs[slot].is_in_order {
            let log = self.logs.swap_remove(slot);
            self.counters.full_merges += 1;
            return self.fold(done, log.unit, Some(log));
        }
        let old = self.map[self.logs[slot].unit as usize];
        let end = self.programmed_end(old);
        let start = done;
        match self.logs[slot].next < end {
            true => self.counters.partial_merges += 1,
            false => self.counters.switch_merges += 1,
        }
        while self.logs[slot].next < end {
            done = done.max(self.copy_next(start, slot));
        }
        let log = self.logs.swap_remove(slot);
        self.map[log.unit as usize] = log.block;
        if old != NONE {
            self.release(old);
        }
        done
    }

    /// Copies a unit's newest pages to another block. Returns when they are programmed.
    fn fold(&mut self, at: Nanos, unit: u32, log: Option<Log>) -> Nanos {
        let old = self.map[unit as usize];
        let target = self.allocate();
        let newest = |layer: &Self, index| {
            let logged = log.as_ref().and_then(|log| Some(layer.page_at(log.block, log.position(index)?)));
            logged.or_else(|| (old != NONE && layer.is_programmed(old, index)).then(|| layer.page_at(old, index)))
        };
        let last = (0..self.unit_pages).rev().find(|&index| newest(self, index).is_some());
        let mut done = at;
        for index in 0..last.map_or(0, |last| last + 1) {
            let mut image = [0; PIECE_BYTES];
            let (mut ready, mut sequence) = (at, 0);
            if let Some(place) = newest(self, index) {
                ready = self.nand.read(at, place, PIECE_BYTES as u32);
                sequence = self.nand.spare(place).sequence;
                self.load(place, &mut image, PIECE_BYTES);
            }
            let spare = spare(KIND_UNIT, unit * self.unit_pages + index, NONE, sequence);
            done = done.max(self.program(ready, target, index, spare, &image));
        }
        self.map[unit as usize] = target;
        for block in [old, log.map_or(NONE, |log| log.block)] {
            if block != NONE {
                self.release(block);
            }
        }
        done
    }

    /// Evens out wear: now and then some unit moves to another block, and the host waits. Returns when it goes on.
    pub(super) fn level(&mut self, at: Nanos) -> Nanos {
        let every = self.parameters.level_every_pages;
        if every == 0 || self.random.u32(..every) != 0 {
            return at;
        }
        let unit = self.random.u32(..self.map.len() as u32);
        if self.map[unit as usize] == NONE || self.logs.iter().any(|log| log.unit == unit) {
            return at;
        }
        self.counters.wear_moves += 1;
        self.fold(at, unit, None)
    }

    /// An erased block, the least worn.
    pub(super) fn allocate(&mut self) -> u32 {
        self.free.pop_first().expect("merges free a block for each that they take").1
    }

    /// Erases a block of which nothing is needed once everything is settled.
    pub(super) fn release(&mut self, block: u32) {
        let mut wear = 0;
        let (planes, per_plane) = (self.nand.geometry().planes(), self.nand.geometry().blocks_per_plane);
        for plane in 0..planes {
            let number = plane * per_plane + block;
            if self.nand.block(number).next_page > 0 {
                self.nand.erase(self.settled_at, number);
            }
            wear = wear.max(self.nand.block(number).erase_count);
        }
        self.free.insert((wear, block));
    }

    /// The position after the last that is programmed; 0 without a block.
    fn programmed_end(&self, block: u32) -> u32 {
        if block == NONE {
            return 0;
        }
        let is_erased = |&position: &u32| self.nand.spare(self.page_at(block, position)).state == PageState::Erased;
        (0..self.unit_pages).rev().find(|position| !is_erased(position)).map_or(0, |last| last + 1)
    }
}
