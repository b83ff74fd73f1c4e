//! NAND flash: channels, planes, blocks, pages with a spare area, and the rules that they impose.
//!
//! Asserted: pages are programmed only when erased and in order within their block, and in parts no more often than the
//! geometry allows; a block that is worn out is neither programmed nor erased again. Operations take effect at the call and carry the time at which they run, which may lie ahead; a
//! power cut takes back those that had not begun, and leaves torn pages and half-erased blocks of those under way,
//! detectable by [`PageState::Torn`].

mod chip;
mod in_flight;
mod lines;
mod raw;
mod tables;

pub use chip::{Geometry, Timing, Wear, Worn};
pub(crate) use lines::{Line, Lines};
pub use raw::RawNand;

use tantalum_device::sparse::{PIECE_BYTES, Piece};

use crate::contents::Contents;
use crate::{Counters, MediaError, Nanos};
use in_flight::{InFlight, Work};
use tables::Tables;

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
    /// Whether it must not be used: an erase failed, or it came so from the factory.
    pub is_bad: bool,
}

/// A flash memory.
#[derive(Debug)]
pub struct Nand {
    geometry: Geometry,
    timing: Timing,
    wear: Option<Wear>,
    lines: Lines,
    tables: Tables,
    contents: Contents,
    in_flight: Vec<InFlight>,
    /// What programs have replaced, to be used again.
    used_pieces: Vec<Piece>,
    /// Of the torn pages, those that power cuts have left: layers above count what they find.
    counters: Counters,
}

/// Operations remembered before those that are done are looked for.
const IN_FLIGHT_SWEEP: usize = 1024;

/// Pieces that are kept for their memory.
const USED_PIECES_MAX: usize = 4096;

impl Nand {
    /// An erased memory that bears any use; its contents must be empty, of [`Geometry::capacity_bytes`], or those of a
    /// file that was there before.
    pub fn new(geometry: Geometry, timing: Timing, contents: Contents) -> Self {
        assert!(
            geometry.page_bytes as usize <= PAGE_PIECES_MAX * PIECE_BYTES,
            "the geometry's pages are not too large"
        );
        assert_eq!(contents.len(), geometry.capacity_bytes(), "the contents fit the geometry");
        Self {
            wear: None,
            lines: Lines::new(&geometry),
            tables: Tables::new(&geometry, &contents),
            geometry,
            timing,
            contents,
            in_flight: Vec::new(),
            used_pieces: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// The memory wears out, and some of its blocks are bad from the beginning, but not the first `good` of each plane:
    /// a translation layer keeps there what it cannot move, in blocks chosen to be good.
    pub fn with_wear(mut self, wear: Option<Wear>, good: u32) -> Self {
        self.wear = wear;
        if let Some(wear) = wear.filter(|_| self.is_new()) {
            wear.factory_bad_blocks(&self.geometry, good).into_iter().for_each(|block| self.tables.set_bad(block));
        }
        self.counters.bad_blocks = (0..self.geometry.blocks()).filter(|&block| self.block(block).is_bad).count() as u64;
        self
    }

    /// Whether it comes from the factory. Otherwise it lies in a file that was there before: a layer above recovers.
    pub fn is_new(&self) -> bool {
        self.contents.is_new()
    }

    /// An area of a device's protected memory, if the flash lies in a file.
    pub(crate) fn beside(&self, len: u64) -> Option<Contents> {
        self.contents.beside(len)
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
        self.tables.block(block)
    }

    /// What lies beside a page's data. Takes no time: a caller that reads the medium for it calls [`Nand::read`].
    pub fn spare(&self, page: u32) -> &Spare {
        self.tables.spare(page)
    }

    /// A piece of a page's data. Takes no time either.
    pub fn piece(&self, page: u32, index: usize) -> Piece {
        self.contents.piece(self.first_piece(page) + index)
    }

    /// What it has done, without [`Nand::torn_pages`].
    pub fn counters(&self) -> Counters {
        let media_written_bytes = self.counters.programs * u64::from(self.geometry.page_bytes);
        Counters { media_written_bytes, torn_found: 0, ..self.counters }
    }

    /// Pages torn by power cuts, counting those of half-erased blocks.
    pub fn torn_pages(&self) -> u64 {
        self.counters.torn_found
    }

    /// The first failure of the file behind it.
    pub fn failure(&self) -> Option<MediaError> {
        self.contents.failure()
    }

    /// From now on data crosses a channel while a read waits there for its plane.
    pub(crate) fn let_reads_pass(&mut self) {
        self.lines.let_reads_pass();
    }

    /// Reads `bytes` of a page, not before `at`. Returns when they have crossed the channel.
    pub fn read(&mut self, at: Nanos, page: u32, bytes: u32) -> Nanos {
        self.counters.media_reads += 1;
        let plane = self.geometry.plane_of(self.geometry.block_of(page));
        let transfer = self.timing.transfer_ns(bytes + self.geometry.spare_bytes);
        self.lines.read(at, plane, self.geometry.channel_of(plane), self.timing.read_ns, transfer)
    }

    /// Programs a whole page, not before `at`. Returns when it is done.
    pub fn program(&mut self, at: Nanos, page: u32, spare: Spare, pieces: &[Piece]) -> Nanos {
        self.program_first(at, page, spare, pieces, self.geometry.page_bytes)
    }

    /// As [`Nand::program`], of a page of which only the first `filled` bytes cross the channel.
    pub fn program_first(&mut self, at: Nanos, page: u32, spare: Spare, pieces: &[Piece], filled: u32) -> Nanos {
        let block = self.geometry.block_of(page);
        let state = self.tables.block(block);
        assert_eq!(page % self.geometry.pages_per_block, state.next_page, "pages of block {block} go in order");
        assert!(!state.is_bad, "block {block} is worn out and not programmed");
        assert_eq!(self.spare(page).state, PageState::Erased, "page {page} is erased before it is programmed");
        let first = self.first_piece(page);
        let mut old = [const { None }; PAGE_PIECES_MAX];
        for (index, piece) in pieces.iter().enumerate() {
            old[index] = self.contents.replace(first + index, piece.clone());
        }
        self.tables.set_spare(page, Spare { state: PageState::Programmed, programs: 1, ..spare });
        self.tables.set_next_page(block, state.next_page + 1);
        let (start, done) = self.occupy_program(at, block, filled + self.geometry.spare_bytes);
        self.in_flight.push(InFlight { start, done, work: Work::Program { page, old } });
        done
    }

    /// Programs a part of a page (a page may take several), not before `at`. Returns when it is done. Of the spare
    /// area's first word, all ones when erased, the bits of `mask` become zero: they tell which sectors are programmed.
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
        let state = self.tables.block(block);
        let spare = *self.spare(page);
        assert!(!state.is_bad, "block {block} is worn out and not programmed");
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
        let mut new = Spare { state: PageState::Programmed, programs: spare.programs + 1, ..spare };
        new.units[0] &= !mask;
        let mut old = vec![0; data.len()];
        self.contents.read(offset, &mut old);
        self.contents.write(offset, data);
        self.tables.set_spare(page, new);
        self.tables.set_next_page(block, index + 1);
        let (start, done) = self.occupy_program(at, block, data.len() as u32 + self.geometry.spare_bytes);
        let work = Work::Part { page, offset, old: old.into(), mask, next_page: state.next_page, spare };
        self.in_flight.push(InFlight { start, done, work });
        Ok(done)
    }

    /// Erases a block, not before `at`. Returns when it is done.
    /// [`Worn`]: the block bears no more, its pages are torn, and it is bad from now on.
    pub fn erase(&mut self, at: Nanos, block: u32) -> std::result::Result<Nanos, Worn> {
        let old = self.tables.block(block);
        assert!(!old.is_bad, "block {block} is worn out and not erased again");
        self.counters.erases += 1;
        let spares = self.tables.erase(block);
        let plane = self.geometry.plane_of(block);
        let (start, done) = self.lines.erase(at, plane, self.timing.erase_ns);
        self.in_flight.push(InFlight { start, done, work: Work::Erase { block, spares, old } });
        match self.wear {
            Some(wear) if old.erase_count >= wear.endurance_of(block) => {
                self.fail(block);
                Err(Worn { done })
            }
            _ => Ok(done),
        }
    }

    /// The block is worn out: what it holds is nothing, and nothing comes to it.
    fn fail(&mut self, block: u32) {
        self.counters.bad_blocks += 1;
        self.tables.set_bad(block);
        for page in self.pages_of(block) {
            self.tables.set_spare(page, Spare { state: PageState::Torn, ..Spare::default() });
        }
        self.tables.set_next_page(block, self.geometry.pages_per_block);
    }

    /// What was done so far took no time and is not counted: the memory comes from the factory in this state.
    pub fn forget_history(&mut self) {
        self.in_flight.clear();
        self.lines.stop(0);
        self.counters = Counters { bad_blocks: self.counters.bad_blocks, ..Counters::default() };
    }

    /// Everything that is done at `now` is so for ever: no power cut comes before.
    pub fn settle(&mut self, now: Nanos) {
        if self.in_flight.len() < IN_FLIGHT_SWEEP {
            return;
        }
        let used_pieces = &mut self.used_pieces;
        self.in_flight.retain_mut(|operation| {
            let is_over = operation.done <= now;
            if let Work::Program { old, .. } = &mut operation.work
                && is_over
                && used_pieces.len() < USED_PIECES_MAX
            {
                used_pieces.extend(old.iter_mut().map(Option::take).filter(Option::is_some));
            }
            !is_over
        });
    }

    /// A piece that no operation needs any more, for its memory. Returning so much at once to the system and taking it back
    /// costs more than all of the emulation.
    pub(crate) fn take_used_piece(&mut self) -> Piece {
        self.used_pieces.pop().flatten()
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

    fn pages_of(&self, block: u32) -> std::ops::Range<u32> {
        let first = block * self.geometry.pages_per_block;
        first..first + self.geometry.pages_per_block
    }

    fn first_piece(&self, page: u32) -> usize {
        page as usize * (self.geometry.page_bytes as usize / PIECE_BYTES)
    }
}

#[cfg(test)]
mod tests;
