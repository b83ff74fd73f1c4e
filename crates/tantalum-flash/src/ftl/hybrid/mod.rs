//! A log-block translation layer: units are mapped whole, and a few open log blocks take what is written.
//!
//! Promises: when a write has returned its time, it survives a power cut from that time on; a page is whole, old or
//! new, whenever the power fails. A unit's old blocks are erased only when all of it is programmed elsewhere; every page
//! carries its number and a sequence in its spare area, so that the map is rebuilt from the flash alone.
//!
//! This is what cheap drives are made of, and what makes them what they are: appends run at the speed of the flash;
//! anything else, one stream too many or a rewrite of what was just written, costs a merge, which copies a unit. A log
//! block that was filled in order takes its unit's place (switch merge); one that was begun in order is filled up from
//! the old block first (partial merge); out of order, everything is copied to a third block (full merge).
//!
//! Part of a page at the end of a log goes to a scratch unit until the page is full: a page is programmed only once.

mod hybrid_parameters;
mod log_block;
mod merge;
mod recovery;

use std::collections::BTreeSet;

use tantalum_device::sparse::{PIECE_BYTES, Part, parts, piece_of};
use tantalum_rt::Random;

pub use self::hybrid_parameters::{HybridParameters, InitialState, UpdateOrder};
use self::log_block::Log;
use crate::contents::Contents;
use crate::nand::{Nand, Spare};
use crate::{Counters, MediaError, Nanos};

/// No block, page or position.
const NONE: u32 = u32::MAX;

/// What a page is for, in its spare area.
const KIND_UNIT: u8 = 1;
/// A page of the scratch unit: its first bytes are newer than the unit's page.
const KIND_SCRATCH: u8 = 2;

/// The bytes of a page.
type Image = [u8; PIECE_BYTES];

/// A log-block translation layer over its flash.
#[derive(Debug)]
pub(crate) struct Hybrid {
    parameters: HybridParameters,
    nand: Nand,
    capacity_bytes: u64,
    unit_pages: u32,
    /// By logical unit: its block, as a number within every plane.
    map: Vec<u32>,
    logs: Vec<Log>,
    /// Blocks of which nothing is needed, by wear. All are erased, or will be when what was asked of their planes is done,
    /// apart from `stale` ones.
    free: BTreeSet<(u32, u32)>,
    /// By plane: free blocks whose erase is still to be asked for, and from when on it may be.
    stale: Vec<Vec<(u32, Nanos)>>,
    /// Blocks that are not bad on any plane.
    good_blocks: u32,
    /// A recovery found no block to write to.
    is_dead: bool,
    /// The block that takes parts of pages, and its next position.
    scratch: Option<(u32, u32)>,
    /// The sequence of what it took last.
    scratch_used: u64,
    sequence: u64,
    /// When everything that was programmed is.
    settled_at: Nanos,
    random: Random,
    counters: Counters,
}

impl Hybrid {
    /// An empty layer for so many bytes on erased flash; `contents` makes what holds the flash's bytes. If that lies in
    /// a file from before, nothing is known of it until [`Hybrid::power_on`].
    pub fn new(parameters: HybridParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the translation layer is possible");
        let geometry = parameters.whole_geometry(capacity_bytes);
        let nand = Nand::new(geometry, parameters.timing, contents(geometry.capacity_bytes()));
        let nand = nand.with_wear(parameters.wear, 0);
        let mut layer = Self {
            unit_pages: parameters.unit_pages(),
            map: vec![NONE; parameters.logical_units(capacity_bytes) as usize],
            logs: Vec::new(),
            free: BTreeSet::new(),
            good_blocks: 0,
            is_dead: false,
            stale: vec![Vec::new(); geometry.planes() as usize],
            scratch: None,
            scratch_used: 0,
            sequence: 1,
            settled_at: 0,
            random: Random::with_seed(parameters.seed),
            counters: Counters::default(),
            nand,
            capacity_bytes,
            parameters,
        };
        layer.free =
            (0..geometry.blocks_per_plane).filter(|&block| !layer.is_bad(block)).map(|block| (0, block)).collect();
        layer.good_blocks = layer.free.len() as u32;
        if layer.parameters.initial_state == InitialState::Steady && layer.nand.is_new() {
            layer.write_all_units();
        }
        layer
    }

    /// Gives every unit a block of zeros, as if that had taken no time.
    fn write_all_units(&mut self) {
        for unit in 0..self.map.len() as u32 {
            let block = self.allocate(0);
            for index in 0..self.unit_pages {
                let place = self.page_at(block, index);
                self.nand.program(0, place, spare(KIND_UNIT, unit * self.unit_pages + index, NONE, 1), &[None]);
            }
            self.nand.settle(Nanos::MAX);
            self.map[unit as usize] = block;
        }
        self.nand.forget_history();
    }

    /// Bytes that can be addressed.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> u64 {
        u64::from(self.unit_pages) * PIECE_BYTES as u64
    }

    /// Fills `buffer` from `offset`, not before `at`. Returns when the last byte has come from the flash.
    pub fn read(&mut self, at: Nanos, offset: u64, buffer: &mut [u8]) -> Nanos {
        let mut done = at;
        for Part { unit: page, start, range } in parts(offset, buffer.len(), PIECE_BYTES) {
            let (image, read_at) = self.image(at, page as u32);
            buffer[range.clone()].copy_from_slice(&image[start..start + range.len()]);
            done = done.max(read_at);
        }
        done
    }

    /// Fills `buffer` from `offset`, in no time.
    pub fn peek(&self, offset: u64, buffer: &mut [u8]) {
        for Part { unit: page, start, range } in parts(offset, buffer.len(), PIECE_BYTES) {
            let image = self.peek_image(page as u32);
            buffer[range.clone()].copy_from_slice(&image[start..start + range.len()]);
        }
    }

    /// Writes `data` at `offset`, not before `at`. Returns when it is on the flash, apart from what comes after the last
    /// spare block has gone: see [`Hybrid::is_read_only`].
    pub fn write(&mut self, at: Nanos, offset: u64, data: &[u8]) -> Nanos {
        self.nand.settle(at);
        let mut done = at;
        for Part { unit: page, start, range } in parts(offset, data.len(), PIECE_BYTES) {
            if self.is_read_only() {
                break;
            }
            done = done.max(self.write_part(at, page as u32, start, &data[range]));
        }
        done
    }

    /// Power fails at `now`: programs and erases under way are torn, and the controller's memory is lost.
    pub fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.nand.power_cut(now, random);
        self.counters.power_cuts += 1;
    }

    /// What has happened; host operations are counted by the front end.
    pub fn counters(&self) -> Counters {
        self.nand.counters() + self.counters
    }

    /// The first failure of the file behind it, or that it does not work any more.
    pub fn failure(&self) -> Option<MediaError> {
        if self.is_dead { Some(MediaError::Dead) } else { self.nand.failure() }
    }

    /// Whether it can only be read: so many blocks are worn out that none is left to take the place of another.
    pub fn is_read_only(&self) -> bool {
        self.good_blocks < self.parameters.blocks_min(self.capacity_bytes)
    }

    /// A block's numbers, one for each plane.
    fn on_planes(&self, block: u32) -> impl Iterator<Item = u32> + use<> {
        let (planes, per_plane) = (self.nand.geometry().planes(), self.nand.geometry().blocks_per_plane);
        (0..planes).map(move |plane| plane * per_plane + block)
    }

    /// Whether a block is bad on one of its planes.
    fn is_bad(&self, block: u32) -> bool {
        self.on_planes(block).any(|number| self.nand.block(number).is_bad)
    }

    /// The flash page at a position of a block. Positions go round the planes.
    fn page_at(&self, block: u32, position: u32) -> u32 {
        let (geometry, run) = (self.nand.geometry(), self.parameters.interleave_pages);
        let page = position / run / geometry.planes() * run + position % run;
        self.number(self.plane_of(position), block) * geometry.pages_per_block + page
    }

    /// The plane of a position.
    fn plane_of(&self, position: u32) -> usize {
        (position / self.parameters.interleave_pages % self.nand.geometry().planes()) as usize
    }

    /// A block's number in the whole memory.
    fn number(&self, plane: usize, block: u32) -> u32 {
        plane as u32 * self.nand.geometry().blocks_per_plane + block
    }

    /// Whether the flash page at a position of a block holds something.
    fn is_programmed(&self, block: u32, position: u32) -> bool {
        self.nand.spare(self.page_at(block, position)).state == crate::nand::PageState::Programmed
    }

    /// The flash page that holds a page of a unit, apart from its newest part in the scratch unit.
    fn place(&self, unit: u32, index: u32) -> Option<u32> {
        let log = self.logs.iter().find(|log| log.unit == unit);
        if let Some(log) = log
            && let Some(position) = log.position(index)
        {
            return Some(self.page_at(log.block, position));
        }
        let block = self.map[unit as usize];
        (block != NONE && self.is_programmed(block, index)).then(|| self.page_at(block, index))
    }

    /// The newest bytes of a page, and when they have been read.
    fn image(&mut self, at: Nanos, page: u32) -> (Image, Nanos) {
        let place = self.place(page / self.unit_pages, page % self.unit_pages);
        let done = place.map_or(at, |place| self.nand.read(at, place, PIECE_BYTES as u32));
        (self.peek_image(page), done)
    }

    /// The newest bytes of a page.
    fn peek_image(&self, page: u32) -> Image {
        let (unit, index) = (page / self.unit_pages, page % self.unit_pages);
        let mut image = [0; PIECE_BYTES];
        if let Some(place) = self.place(unit, index) {
            self.load(place, &mut image, PIECE_BYTES);
        }
        let pending = self.logs.iter().find(|log| log.unit == unit).and_then(|log| log.pending);
        // The part of a page that a log ends with is still in the controller's memory.
        if let Some(pending) = pending.filter(|pending| pending.index == index) {
            self.load(pending.place, &mut image, pending.filled);
        }
        image
    }

    /// Copies the first `len` bytes of a flash page.
    fn load(&self, place: u32, image: &mut Image, len: usize) {
        match self.nand.piece(place, 0) {
            Some(bytes) => image[..len].copy_from_slice(&bytes[..len]),
            None => image[..len].fill(0),
        }
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Programs a page at a position of a block.
    fn program(&mut self, at: Nanos, block: u32, position: u32, spare: Spare, image: &Image) -> Nanos {
        self.program_first(at, block, position, spare, image, PIECE_BYTES)
    }

    /// Programs the first `filled` bytes of a page at a position of a block.
    fn program_first(
        &mut self,
        at: Nanos,
        block: u32,
        position: u32,
        spare: Spare,
        image: &Image,
        filled: usize,
    ) -> Nanos {
        let page = self.page_at(block, position);
        let done = self.nand.program_first(at, page, spare, &[piece_of(image)], filled as u32);
        self.settled_at = self.settled_at.max(done);
        if self.stale.iter().any(|stale| !stale.is_empty()) {
            self.erase_beside(position, at);
        }
        done
    }
}

/// What a spare area says of a page.
fn spare(kind: u8, page: u32, filled: u32, sequence: u64) -> Spare {
    Spare { kind, sequence, units: [page, filled, NONE, NONE], ..Spare::default() }
}

#[cfg(test)]
mod tests;
