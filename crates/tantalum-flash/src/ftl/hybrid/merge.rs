//! Merges: how a log block and its unit's block become one block again.
//!
//! Invariant: a block is erased when everything it held that is still valid has been programmed elsewhere.

use tantalum_device::sparse::PIECE_BYTES;

use super::log_block::Log;
use super::{Hybrid, KIND_UNIT, NONE, spare};
use crate::Nanos;
use crate::nand::PageState;

/// Blocks of a plane that wait to be erased, at most.
const STALE_MAX: usize = 2;

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
        let target = self.allocate(at);
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

    /// Begins a write command of the host: now and then the controller moves a unit first, and the host waits. Returns
    /// when it goes on.
    pub fn begin_command(&mut self, at: Nanos) -> Nanos {
        self.level(at, self.parameters.level_every_writes)
    }

    /// Evens out wear: once in `every` calls, on average, some unit moves to another block. Returns when it has.
    pub(super) fn level(&mut self, at: Nanos, every: u32) -> Nanos {
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

    /// The least worn of the free blocks that are erased. If none is, one is erased now.
    pub(super) fn allocate(&mut self, at: Nanos) -> u32 {
        loop {
            let is_erased = |block| self.stale.iter().flatten().all(|&(stale, _)| stale != block);
            let erased = self.free.iter().find(|&&(_, block)| is_erased(block));
            let chosen = erased.or(self.free.first()).copied();
            let (wear, block) = chosen
                .expect("merges free a block for each that they take, or enough are left when the last spare one goes");
            for plane in 0..self.stale.len() {
                if let Some(place) = self.stale[plane].iter().position(|&(stale, _)| stale == block) {
                    let (_, from) = self.stale[plane].swap_remove(place);
                    self.erase_stale(at.max(from), plane, block);
                }
            }
            // It is not there any more if its erase failed.
            if self.free.remove(&(wear, block)) {
                return block;
            }
        }
    }

    /// Frees a block of which nothing is needed once everything is settled. Where planes take turns, each erases its part
    /// while others are programmed; else that is done at once.
    pub(super) fn release(&mut self, block: u32) {
        let is_crowded = self.stale.iter().any(|stale| stale.len() >= STALE_MAX);
        if self.stale.len() == 1 || self.parameters.interleave_pages == 1 || is_crowded {
            return self.erase_block(block);
        }
        let mut wear = 0;
        for plane in 0..self.stale.len() {
            let state = self.nand.block(self.number(plane, block));
            wear = wear.max(state.erase_count + u32::from(state.next_page > 0));
            if state.next_page > 0 {
                self.stale[plane].push((block, self.settled_at));
            }
        }
        self.free.insert((wear, block));
    }

    /// Frees and erases a block of which nothing is needed once everything is settled. If that fails on one of its planes,
    /// it is not used any more.
    pub(super) fn erase_block(&mut self, block: u32) {
        let mut wear = 0;
        for number in self.on_planes(block) {
            if self.nand.block(number).next_page > 0 && self.nand.erase(self.settled_at, number).is_err() {
                self.good_blocks -= 1;
                return;
            }
            wear = wear.max(self.nand.block(number).erase_count);
        }
        self.free.insert((wear, block));
    }

    /// Erases a stale block of each plane that has nothing to do while a page at `position` is programmed, nor soon after.
    pub(super) fn erase_beside(&mut self, position: u32, at: Nanos) {
        let log = self.logs.iter().max_by_key(|log| log.used).map(|log| log.next);
        let is_scratch_used = self.sequence - self.scratch_used < u64::from(self.unit_pages);
        let scratch = self.scratch.filter(|_| is_scratch_used).map(|(_, next)| next);
        let busy = [Some(position), log, scratch].map(|position| position.map(|position| self.plane_of(position)));
        for plane in (0..self.stale.len()).filter(|&plane| !busy.contains(&Some(plane))) {
            let is_idle = self.nand.lines().plane_free(plane as u32) <= at;
            if let Some((block, _)) = self.stale[plane].pop_if(|&mut (_, from)| is_idle && from <= at) {
                self.erase_stale(at, plane, block);
            }
        }
    }

    /// Erases a free block's part on one plane. If that fails, the block is not used any more.
    fn erase_stale(&mut self, at: Nanos, plane: usize, block: u32) {
        if self.nand.erase(at, self.number(plane, block)).is_err() {
            self.good_blocks -= 1;
            self.free.retain(|&(_, free)| free != block);
            self.stale.iter_mut().for_each(|stale| stale.retain(|&(other, _)| other != block));
        }
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
