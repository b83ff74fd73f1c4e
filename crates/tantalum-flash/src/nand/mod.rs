//! NAND flash: channels, planes, blocks, pages with a spare area, and the rules that they impose.
//!
//! Asserted: pages are programmed only when erased and in order within their block, and in parts no more often than the
//! geometry allows. Operations take effect at the call and carry the time at which they run, which may lie ahead; a
//! power cut takes back those that had not begun, and leaves torn pages and half-erased blocks of those under way,
//! detectable by [`PageState::Torn`].

mod cut;
mod geometry;
mod raw;

pub use geometry::{Geometry, Lines, Timing};
pub use raw::RawNand;

use crate::contents::{Contents, PIECE_BYTES, Piece};
use crate::{MediaError, Nanos};
use cut::{InFlight, Work};

/// Sectors of [`PIECE_BYTES`] in the largest page.
pub const PAGE_PIECES_MAX: usize = 4;

/// No logical sector.
pub const NO_UNIT: u32 = u32::MAX;

/// What a page's cells hold, as its error correction tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum PageState {
    /// All ones.
    #[default]
    Erased,
    /// What was programmed, whole.
    Programmed,
    /// Neither: a program or erase was cut short. The block must be erased.
    Torn,
}

/// What a translation layer keeps beside a page's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spare {
    /// Whether data and spare can be trusted.
    pub state: PageState,
    /// What the page is for: the translation layer's own code.
    pub kind: u8,
    /// Times the page was programmed since its block was erased.
    pub programs: u8,
    /// When it was programmed, in the translation layer's count.
    pub sequence: u64,
    /// The logical sectors it holds, or other words of the translation layer.
    pub units: [u32; PAGE_PIECES_MAX],
}

impl Default for Spare {
    fn default() -> Self {
        Self { state: PageState::Erased, kind: 0, programs: 0, sequence: 0, units: [NO_UNIT; PAGE_PIECES_MAX] }
    }
}

/// A block's state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Block {
    /// The page to be programmed next; all before it are not erased.
    pub next_page: u32,
    /// How often it was erased: its wear.
    pub erase_count: u32,
}

/// Totals since the memory was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NandCounters {
    /// Pages read.
    pub reads: u64,
    /// Pages programmed, in whole or in part.
    pub programs: u64,
    /// Blocks erased.
    pub erases: u64,
    /// Pages torn by power cuts, counting those of half-erased blocks.
    pub torn_pages: u64,
}

/// A flash memory.
///
/// ```
/// use tantalum_flash::{Contents, nand::{Geometry, Nand, Spare, Timing}};
/// let geometry = Geometry {
///     channels: 1, packages_per_channel: 1, dies_per_package: 1, planes_per_die: 1, blocks_per_plane: 2,
///     pages_per_block: 4, page_bytes: 4096, spare_bytes: 64, partial_programs: 1,
/// };
/// let timing = Timing { read_ns: 25_000, program_ns: 200_000, erase_ns: 1_500_000, bus_mb_per_s: 40 };
/// let mut nand = Nand::new(geometry, timing, Contents::in_memory(geometry.capacity_bytes()));
/// let programmed = nand.program(0, 0, Spare { units: [7, 0, 0, 0], ..Spare::default() }, &[None]);
/// assert_eq!(programmed, 4160 * 25 + 200_000);
/// assert_eq!(nand.erase(programmed, 0), programmed + 1_500_000);
/// ```
#[derive(Debug)]
pub struct Nand {
    geometry: Geometry,
    timing: Timing,
    lines: Lines,
    blocks: Vec<Block>,
    spares: Vec<Spare>,
    contents: Contents,
    in_flight: Vec<InFlight>,
    counters: NandCounters,
}

/// Operations remembered before those that are done are looked for.
const IN_FLIGHT_SWEEP: usize = 1024;

impl Nand {
    /// An erased memory; its contents must be empty, of [`Geometry::capacity_bytes`].
    ///
    /// # Panics
    /// If a page has more than [`PAGE_PIECES_MAX`] pieces, or the contents have another size.
    pub fn new(geometry: Geometry, timing: Timing, contents: Contents) -> Self {
        assert!(
            geometry.page_bytes as usize <= PAGE_PIECES_MAX * PIECE_BYTES,
            "the geometry's pages are not too large"
        );
        assert_eq!(contents.len(), geometry.capacity_bytes(), "the contents fit the geometry");
        Self {
            lines: Lines::new(&geometry),
            blocks: vec![Block::default(); geometry.blocks() as usize],
            spares: vec![Spare::default(); geometry.pages() as usize],
            geometry,
            timing,
            contents,
            in_flight: Vec::new(),
            counters: NandCounters::default(),
        }
    }

    /// How it is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// How fast its parts are.
    pub fn timing(&self) -> &Timing {
        &self.timing
    }

    /// When each plane is free.
    pub fn lines(&self) -> &Lines {
        &self.lines
    }

    /// A block's state.
    pub fn block(&self, block: u32) -> Block {
        self.blocks[block as usize]
    }

    /// What lies beside a page's data. Takes no time: whoever reads the medium for it calls [`Nand::read`].
    pub fn spare(&self, page: u32) -> &Spare {
        &self.spares[page as usize]
    }

    /// A piece of a page's data. Takes no time either.
    pub fn piece(&self, page: u32, index: usize) -> Piece {
        self.contents.piece(self.first_piece(page) + index)
    }

    /// Totals.
    pub fn counters(&self) -> NandCounters {
        self.counters
    }

    /// The first failure of the file behind it.
    pub fn failure(&self) -> Option<MediaError> {
        self.contents.failure()
    }

    /// Reads `bytes` of a page, not before `at`. Returns when they have crossed the channel.
    pub fn read(&mut self, at: Nanos, page: u32, bytes: u32) -> Nanos {
        self.counters.reads += 1;
        let plane = self.geometry.plane_of(self.geometry.block_of(page));
        let transfer = self.timing.transfer_ns(bytes + self.geometry.spare_bytes);
        self.lines.read(at, plane, self.geometry.channel_of(plane), self.timing.read_ns, transfer)
    }

    /// Programs a whole page, not before `at`. Returns when it is done.
    ///
    /// # Panics
    /// If the page is not the next one of its block.
    pub fn program(&mut self, at: Nanos, page: u32, spare: Spare, pieces: &[Piece]) -> Nanos {
        let block = self.geometry.block_of(page);
        let state = &mut self.blocks[block as usize];
        assert_eq!(page % self.geometry.pages_per_block, state.next_page, "pages of block {block} go in order");
        state.next_page += 1;
        let slot = &mut self.spares[page as usize];
        assert_eq!(slot.state, PageState::Erased, "page {page} is erased before it is programmed");
        *slot = Spare { state: PageState::Programmed, programs: 1, ..spare };
        let first = self.first_piece(page);
        let mut old = [const { None }; PAGE_PIECES_MAX];
        for (index, piece) in pieces.iter().enumerate() {
            old[index] = self.contents.replace(first + index, piece.clone());
        }
        let bytes = self.geometry.page_bytes + self.geometry.spare_bytes;
        let (start, done) = self.occupy_program(at, block, bytes);
        self.remember(InFlight { start, done, work: Work::Program { page, old } });
        done
    }

    /// Programs a part of a page (a page may take several), not before `at`. Returns when it is done. Of the spare
    /// area's first word, all ones when erased, the bits of `mask` become zero: they tell which sectors are programmed.
    ///
    /// # Errors
    /// Nothing is done if the part is not erased, pages of the block after this one are programmed already, or the page
    /// was programmed too often; says which rule it was.
    pub fn program_part(
        &mut self,
        at: Nanos,
        page: u32,
        start_byte: u32,
        data: &[u8],
        mask: u32,
    ) -> std::result::Result<Nanos, &'static str> {
        let block = self.geometry.block_of(page);
        let index = page % self.geometry.pages_per_block;
        let state = self.blocks[block as usize];
        let spare = self.spares[page as usize];
        if index + 1 < state.next_page {
            return Err("pages of a block are programmed in order");
        }
        if spare.state == PageState::Torn {
            return Err("the page is torn");
        }
        if spare.programs >= self.geometry.partial_programs {
            return Err("the page has had all its partial programs");
        }
        let offset = u64::from(page) * u64::from(self.geometry.page_bytes) + u64::from(start_byte);
        self.blocks[block as usize].next_page = index + 1;
        let mut new = Spare { state: PageState::Programmed, programs: spare.programs + 1, ..spare };
        new.units[0] &= !mask;
        self.spares[page as usize] = new;
        let mut old = vec![0; data.len()];
        self.contents.read(offset, &mut old);
        self.contents.write(offset, data);
        let (start, done) = self.occupy_program(at, block, data.len() as u32 + self.geometry.spare_bytes);
        let work = Work::Part { page, offset, old: old.into(), next_page: state.next_page, spare };
        self.remember(InFlight { start, done, work });
        Ok(done)
    }

    /// Erases a block, not before `at`. Returns when it is done.
    pub fn erase(&mut self, at: Nanos, block: u32) -> Nanos {
        self.counters.erases += 1;
        let pages = self.pages_of(block);
        let spares = self.spares[pages.clone()].into();
        self.spares[pages].fill(Spare::default());
        let state = &mut self.blocks[block as usize];
        let old = *state;
        *state = Block { next_page: 0, erase_count: old.erase_count + 1 };
        let plane = self.geometry.plane_of(block);
        let (start, done) = self.lines.erase(at, plane, self.timing.erase_ns);
        self.remember(InFlight { start, done, work: Work::Erase { block, spares, old } });
        done
    }

    /// What was done so far took no time and is not counted: the memory comes from the factory in this state.
    pub fn forget_history(&mut self) {
        self.in_flight.clear();
        self.lines = Lines::new(&self.geometry);
        self.counters = NandCounters::default();
    }

    /// Everything that is done at `now` is so for ever: no power cut comes before.
    pub fn settle(&mut self, now: Nanos) {
        if self.in_flight.len() >= IN_FLIGHT_SWEEP {
            self.in_flight.retain(|operation| operation.done > now);
        }
    }

    /// Reads bytes of the data area, as the raw device shows them. Takes no time.
    pub(crate) fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.contents.read(offset, buffer);
    }

    fn occupy_program(&mut self, at: Nanos, block: u32, bytes: u32) -> (Nanos, Nanos) {
        self.counters.programs += 1;
        let plane = self.geometry.plane_of(block);
        let transfer = self.timing.transfer_ns(bytes);
        self.lines.program(at, plane, self.geometry.channel_of(plane), transfer, self.timing.program_ns)
    }

    fn remember(&mut self, operation: InFlight) {
        self.in_flight.push(operation);
    }

    fn pages_of(&self, block: u32) -> std::ops::Range<usize> {
        let first = (block * self.geometry.pages_per_block) as usize;
        first..first + self.geometry.pages_per_block as usize
    }

    fn first_piece(&self, page: u32) -> usize {
        page as usize * (self.geometry.page_bytes as usize / PIECE_BYTES)
    }
}

#[cfg(test)]
mod tests;
