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

mod log;
mod merge;
mod parameters;
mod recovery;

use std::collections::BTreeSet;

use tantalum_rt::Random;

use self::log::Log;
pub use self::parameters::{HybridParameters, UpdateOrder};
use crate::contents::{Contents, PIECE_BYTES, piece_of};
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
///
/// ```
/// use tantalum_flash::{Contents, ftl::hybrid::{Hybrid, HybridParameters}};
/// let mut stick = Hybrid::new(HybridParameters::example(), 16 << 20, Contents::in_memory);
/// let appended = stick.write(0, 0, &[1; 4096]);
/// let appended_again = stick.write(appended, 4096, &[2; 4096]) - appended;
/// let first = stick.write(1_000_000_000, 4096, &[3; 4096]) - 1_000_000_000;
/// assert!(first > 2 * appended_again, "what was just written is written again: a merge");
/// ```
#[derive(Debug)]
pub struct Hybrid {
    parameters: HybridParameters,
    nand: Nand,
    capacity_bytes: u64,
    unit_pages: u32,
    /// By logical unit: its block, as a number within every plane.
    map: Vec<u32>,
    logs: Vec<Log>,
    /// Erased blocks, or such as will be when what was asked of their planes is done; by wear.
    free: BTreeSet<(u32, u32)>,
    /// The block that takes parts of pages, and its next position.
    scratch: Option<(u32, u32)>,
    sequence: u64,
    /// When everything that was programmed is.
    settled_at: Nanos,
    random: Random,
    counters: Counters,
}

impl Hybrid {
    /// An empty layer for so many bytes on erased flash; `contents` makes what holds the flash's bytes.
    ///
    /// # Panics
    /// If the parameters do not pass [`HybridParameters::check`].
    pub fn new(parameters: HybridParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the translation layer is possible");
        let geometry = parameters.whole_geometry(capacity_bytes);
        let nand = Nand::new(geometry, parameters.timing, contents(geometry.capacity_bytes()));
        Self {
            unit_pages: parameters.unit_pages(),
            map: vec![NONE; parameters.logical_units(capacity_bytes) as usize],
            logs: Vec::new(),
            free: (0..geometry.blocks_per_plane).map(|block| (0, block)).collect(),
            scratch: None,
            sequence: 1,
            settled_at: 0,
            random: Random::with_seed(parameters.seed),
            counters: Counters::default(),
            nand,
            capacity_bytes,
            parameters,
        }
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
        for (page, start, part) in pages(offset, buffer.len()) {
            let (image, read_at) = self.image(at, page);
            buffer[part.clone()].copy_from_slice(&image[start..start + part.len()]);
            done = done.max(read_at);
        }
        done
    }

    /// Writes `data` at `offset`, not before `at`. Returns when it is on the flash.
    pub fn write(&mut self, at: Nanos, offset: u64, data: &[u8]) -> Nanos {
        self.nand.settle(at);
        let mut done = at;
        for (page, start, part) in pages(offset, data.len()) {
            let levelled = self.level(at);
            done = done.max(self.write_part(levelled, page, start, &data[part]));
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
        let nand = self.nand.counters();
        Counters {
            media_reads: nand.reads,
            programs: nand.programs,
            media_written_bytes: nand.programs * PIECE_BYTES as u64,
            erases: nand.erases,
            ..self.counters
        }
    }

    /// The first failure of the file behind it.
    pub fn failure(&self) -> Option<MediaError> {
        self.nand.failure()
    }

    /// The flash page at a position of a block. Positions go round the planes.
    fn page_at(&self, block: u32, position: u32) -> u32 {
        let geometry = self.nand.geometry();
        let (plane, page) = (position % geometry.planes(), position / geometry.planes());
        (plane * geometry.blocks_per_plane + block) * geometry.pages_per_block + page
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
        let (unit, index) = (page / self.unit_pages, page % self.unit_pages);
        let mut image = [0; PIECE_BYTES];
        let mut done = at;
        if let Some(place) = self.place(unit, index) {
            done = self.nand.read(at, place, PIECE_BYTES as u32);
            self.load(place, &mut image, PIECE_BYTES);
        }
        let pending = self.logs.iter().find(|log| log.unit == unit).and_then(|log| log.pending);
        // The part of a page that a log ends with is still in the controller's memory.
        if let Some(pending) = pending.filter(|pending| pending.index == index) {
            self.load(pending.place, &mut image, pending.filled);
        }
        (image, done)
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

    /// Programs a page of a unit at a position of a block.
    fn program(&mut self, at: Nanos, block: u32, position: u32, spare: Spare, image: &Image) -> Nanos {
        let page = self.page_at(block, position);
        let done = self.nand.program(at, page, spare, &[piece_of(image)]);
        self.settled_at = self.settled_at.max(done);
        done
    }
}

/// What a spare area says of a page.
fn spare(kind: u8, page: u32, filled: u32, sequence: u64) -> Spare {
    Spare { kind, sequence, units: [page, filled, NONE, NONE], ..Spare::default() }
}

/// The pages that a range touches: page, first byte in it, and the part of the range that lies in it.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u32, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let absolute = offset + at as u64;
        let start = (absolute % PIECE_BYTES as u64) as usize;
        let part = at..len.min(at + PIECE_BYTES - start);
        at = part.end;
        (!part.is_empty()).then_some(((absolute / PIECE_BYTES as u64) as u32, start, part))
    })
}

#[cfg(test)]
mod tests;
