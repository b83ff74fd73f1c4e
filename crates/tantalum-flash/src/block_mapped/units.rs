//! The units of the flash: where each is, how it is rewritten, and how they are found again.
//!
//! Invariant: a unit's old block is erased when all of the new one is programmed. Every page carries its unit and the
//! number of the rewriting, so that after a power cut the newest block that is whole is the unit's.

use std::collections::BTreeSet;

use tantalum_device::sparse::{PIECE_BYTES, Part, Piece, parts, piece_of};

use super::BlockMappedParameters;
use crate::contents::Contents;
use crate::nand::{Nand, PAGE_PIECES_MAX, PageState, Spare};
use crate::writeback::Dirty;
use crate::{Counters, Nanos};

/// No block.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Units {
    pub nand: Nand,
    /// By unit: its block.
    map: Vec<u32>,
    /// Erased blocks, or such as will be when what was asked of their planes is done: the least worn first, and of equal
    /// ones those of all planes in turn.
    free: BTreeSet<(u32, u32, u32)>,
    segment_units: u32,
    sequence: u64,
    counters: Counters,
}

impl Units {
    pub fn new(
        parameters: &BlockMappedParameters,
        capacity_bytes: u64,
        contents: impl FnOnce(u64) -> Contents,
    ) -> Self {
        let geometry = parameters.whole_geometry(capacity_bytes);
        let nand = Nand::new(geometry, parameters.timing, contents(geometry.capacity_bytes()));
        let mut made = Self {
            nand: nand.with_wear(parameters.wear, 0),
            map: vec![NONE; parameters.units(capacity_bytes) as usize],
            free: BTreeSet::new(),
            segment_units: parameters.segment_units,
            sequence: 0,
            counters: Counters::default(),
        };
        made.good_blocks().for_each(|block| made.set_free(block));
        made
    }

    fn good_blocks(&self) -> impl Iterator<Item = u32> + use<> {
        let bad: BTreeSet<u32> =
            (0..self.nand.geometry().blocks()).filter(|&block| self.nand.block(block).is_bad).collect();
        (0..self.nand.geometry().blocks()).filter(move |block| !bad.contains(block))
    }

    /// Whether too many blocks are worn out for a unit to be rewritten.
    pub fn is_read_only(&self) -> bool {
        self.free.is_empty()
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.nand.geometry().page_bytes)
    }

    /// The unit that a page of the host belongs to, and its index within.
    fn place(&self, page: u64) -> (u32, u32) {
        let (units, pages) = (u64::from(self.segment_units), u64::from(self.nand.geometry().pages_per_block));
        let (segment, within) = (page / (units * pages), page % (units * pages));
        ((segment * units + within % units) as u32, (within / units) as u32)
    }

    /// First byte of a page of a unit.
    fn offset(&self, unit: u32, index: u32) -> u64 {
        let (units, pages) = (u64::from(self.segment_units), u64::from(self.nand.geometry().pages_per_block));
        let (segment, column) = (u64::from(unit) / units, u64::from(unit) % units);
        (segment * units * pages + u64::from(index) * units + column) * self.page_bytes()
    }

    /// The flash page that holds a page of a unit.
    fn flash_page(&self, unit: u32, index: u32) -> Option<u32> {
        let block = self.map[unit as usize];
        (block != NONE).then(|| block * self.nand.geometry().pages_per_block + index)
    }

    /// The parts of a range that lie in one page each, with the flash page.
    fn pages(&self, offset: u64, len: usize) -> impl Iterator<Item = (Option<u32>, Part)> {
        parts(offset, len, self.page_bytes() as usize).map(|part| {
            let (unit, index) = self.place(part.unit);
            (self.flash_page(unit, index), part)
        })
    }

    /// Reads from `offset`, not before `at`. Returns when the first byte is there, and the last; [`Units::peek`] tells
    /// which bytes.
    pub fn read(&mut self, at: Nanos, offset: u64, len: usize) -> (Nanos, Nanos) {
        let (mut first, mut done) = (None, at);
        let pages: Vec<(u32, usize)> =
            self.pages(offset, len).filter_map(|(page, part)| Some((page?, part.range.len()))).collect();
        for (page, bytes) in pages {
            let read = self.nand.read(at, page, bytes as u32);
            first.get_or_insert(read.saturating_sub(self.nand.timing().transfer_ns(bytes as u32)).max(at));
            done = done.max(read);
        }
        (first.unwrap_or(at), done)
    }

    /// Fills `buffer` from `offset`, in no time.
    pub fn peek(&self, offset: u64, buffer: &mut [u8]) {
        for (page, Part { start, range, .. }) in self.pages(offset, buffer.len()) {
            match page {
                Some(page) => self.copy(page, start, &mut buffer[range]),
                None => buffer[range].fill(0),
            }
        }
    }

    /// Copies bytes of a flash page.
    fn copy(&self, page: u32, start: usize, target: &mut [u8]) {
        for Part { unit: piece, start, range } in parts(start as u64, target.len(), PIECE_BYTES) {
            match self.nand.piece(page, piece as usize) {
                Some(bytes) => target[range.clone()].copy_from_slice(&bytes[start..start + range.len()]),
                None => target[range].fill(0),
            }
        }
    }

    /// Rewrites every unit of a segment in which something is dirty, not before `at`, as long as blocks are left; what was
    /// rewritten is not dirty any more. Returns when that is done.
    pub fn rewrite(&mut self, at: Nanos, segment: u64, dirty: &mut Dirty) -> Nanos {
        self.nand.settle(at);
        let first = segment as u32 * self.segment_units;
        let pages = self.nand.geometry().pages_per_block;
        let mut done = at;
        for unit in first..first + self.segment_units {
            let is_dirty = (0..pages).any(|index| dirty.overlaps(self.offset(unit, index), self.page_bytes()));
            if is_dirty && !self.is_read_only() {
                done = done.max(self.rewrite_unit(at, unit, dirty));
                (0..pages).for_each(|index| _ = dirty.remove(self.offset(unit, index), self.page_bytes()));
            }
        }
        done
    }

    fn rewrite_unit(&mut self, at: Nanos, unit: u32, dirty: &Dirty) -> Nanos {
        let (_, _, target) = self.free.pop_first().expect("the caller looks whether a block is left");
        self.sequence += 1;
        let spare = Spare { sequence: self.sequence, units: [unit, 0, 0, 0], ..Spare::default() };
        let pages = self.nand.geometry().pages_per_block;
        let (mut done, mut copied) = (at, false);
        let mut image = vec![0; self.page_bytes() as usize];
        for index in 0..pages {
            let offset = self.offset(unit, index);
            let held = dirty.read(offset, &mut image);
            let mut pieces = [const { None }; PAGE_PIECES_MAX];
            let mut ready = at;
            if let (Some(page), true) = (self.flash_page(unit, index), held < image.len()) {
                copied = true;
                ready = self.nand.read(at, page, image.len() as u32);
                if held > 0 {
                    self.copy(page, 0, &mut image);
                    dirty.read(offset, &mut image);
                }
                (0..image.len() / PIECE_BYTES).for_each(|piece| pieces[piece] = self.nand.piece(page, piece));
            }
            if held > 0 {
                into_pieces(&image, &mut pieces);
                image.fill(0);
            }
            let count = image.len() / PIECE_BYTES;
            done = done.max(self.nand.program(ready, target * pages + index, spare, &pieces[..count]));
        }
        let old = std::mem::replace(&mut self.map[unit as usize], target);
        let merges = if copied { &mut self.counters.full_merges } else { &mut self.counters.switch_merges };
        *merges += 1;
        match old {
            NONE => done,
            old => self.release(done, old),
        }
    }

    /// Erases a block, not before `at`. If that fails it is not used any more. Returns when that is done.
    fn release(&mut self, at: Nanos, block: u32) -> Nanos {
        match self.nand.erase(at, block) {
            Ok(done) => {
                self.set_free(block);
                done
            }
            Err(worn) => worn.done,
        }
    }

    fn set_free(&mut self, block: u32) {
        let within = block % self.nand.geometry().blocks_per_plane;
        self.free.insert((self.nand.block(block).erase_count, within, block));
    }

    /// Power returns: the newest whole block of each unit is its block, and all others are erased. Returns when that is
    /// done.
    pub fn power_on(&mut self, now: Nanos) -> Nanos {
        self.map.fill(NONE);
        self.free.clear();
        let pages = self.nand.geometry().pages_per_block;
        let mut ready = now;
        let mut newest = vec![0; self.map.len()];
        let mut useless = Vec::new();
        for block in self.good_blocks() {
            // The last page is programmed last: its spare area tells of the whole block.
            ready = ready.max(self.nand.read(now, (block + 1) * pages - 1, 0));
            let spares = || (block * pages..(block + 1) * pages).map(|page| self.nand.spare(page));
            self.counters.torn_found += spares().filter(|spare| spare.state == PageState::Torn).count() as u64;
            let Spare { sequence, units: [unit, ..], .. } = *self.nand.spare(block * pages);
            if spares().all(|spare| spare.state == PageState::Erased) {
                self.set_free(block);
                continue;
            }
            let is_whole = spares().all(|spare| spare.state == PageState::Programmed);
            if !is_whole || newest.get(unit as usize).is_none_or(|&newer| newer > sequence) {
                useless.push(block);
                continue;
            }
            newest[unit as usize] = sequence;
            self.sequence = self.sequence.max(sequence);
            match std::mem::replace(&mut self.map[unit as usize], block) {
                NONE => {}
                older => useless.push(older),
            }
        }
        useless.into_iter().fold(ready, |done, block| done.max(self.release(ready, block)))
    }

    /// What has happened.
    pub fn counters(&self) -> Counters {
        self.nand.counters() + self.counters
    }
}

fn into_pieces(image: &[u8], pieces: &mut [Piece]) {
    for (piece, bytes) in pieces.iter_mut().zip(image.as_chunks::<PIECE_BYTES>().0) {
        *piece = piece_of(bytes);
    }
}
