//! The map on flash: a ring of blocks with pages of the map, and with lists of what changed since.
//!
//! Invariant: every page of the map has a copy in the ring (its base), and every list of changes that is younger than
//! the base of a page it concerns is in the ring too. So before the ring's oldest block is erased, the pages of the map
//! whose base lies in it are written anew; that makes its lists of changes superfluous as well.

use tantalum_device::sparse::{PIECE_BYTES, Piece, piece_of};

use super::{Layout, PageMapped, kind};
use crate::Nanos;
use crate::nand::{NO_UNIT, PAGE_PIECES_MAX, Spare};

/// The journal's state in memory.
#[derive(Debug)]
pub(super) struct Journal {
    /// The block of the ring that is being written. The one after it is erased.
    pub(super) head: usize,
    /// Sequence number of each map page's base.
    pub(super) bases: Vec<u64>,
    /// Sequence number of the youngest page of each block of the ring.
    pub(super) youngest: Vec<u64>,
    /// Sectors that have moved since they were last journaled, without repeats.
    pub(super) changed: Vec<u32>,
    is_changed: Vec<bool>,
}

impl Journal {
    pub(super) fn new(layout: &Layout) -> Self {
        let pages = layout.units.div_ceil(layout.map_page_entries) as usize;
        Self {
            head: 0,
            bases: vec![0; pages],
            youngest: vec![0; layout.journal_blocks.len()],
            changed: Vec::new(),
            is_changed: vec![false; layout.units as usize],
        }
    }

    pub(super) fn note(&mut self, unit: u32) {
        if !std::mem::replace(&mut self.is_changed[unit as usize], true) {
            self.changed.push(unit);
        }
    }

    fn take(&mut self, count: usize) -> Vec<u32> {
        let taken: Vec<u32> = self.changed.drain(..count).collect();
        taken.iter().for_each(|&unit| self.is_changed[unit as usize] = false);
        taken
    }

    pub(super) fn clear(&mut self) {
        let all = self.changed.len();
        self.take(all);
    }
}

impl PageMapped {
    /// Journals all that has changed, unless the layer is read-only: spare areas tell it all the same. Begins once all programs are done, not
    /// before `at`. Returns when that is done.
    pub fn sync(&mut self, at: Nanos) -> Nanos {
        let mut done = at;
        while !self.journal.changed.is_empty() && !self.is_read_only {
            done = self.journal_changes(done);
        }
        done
    }

    /// Journals by the page, whenever there is enough for one.
    pub(super) fn journal_in_background(&mut self) {
        if self.journal.changed.len() >= self.changes_per_page() && !self.is_read_only {
            self.journal_changes(self.programs_done);
        }
    }

    fn changes_per_page(&self) -> usize {
        self.layout.geometry.page_bytes as usize / 8
    }

    fn journal_changes(&mut self, at: Nanos) -> Nanos {
        let count = self.journal.changed.len().min(self.changes_per_page());
        let units = self.journal.take(count);
        let bytes = self.encode_changes(&units);
        let done = self.append_journal(at, kind::DELTA, count as u32, &bytes);
        self.advance_journal(done);
        done
    }

    /// Pairs of sector and slot.
    fn encode_changes(&self, units: &[u32]) -> Vec<u8> {
        units.iter().flat_map(|&unit| [unit, self.map[unit as usize]]).flat_map(u32::to_le_bytes).collect()
    }

    /// What a dump must keep of the map: the changes that are not in the journal, a page each.
    pub(crate) fn changes_to_dump(&self) -> impl Iterator<Item = (u32, Vec<u8>)> {
        let pages = self.journal.changed.chunks(self.changes_per_page());
        pages.map(|units| (units.len() as u32, self.encode_changes(units)))
    }

    /// Writes every page of the map: the journal of an empty device.
    pub(super) fn format_journal(&mut self) {
        for page in 0..self.journal.bases.len() {
            self.append_base(0, page);
            let block = self.layout.journal_blocks[self.journal.head];
            if self.nand.block(block).next_page == self.layout.block_bases_max() {
                self.journal.head = self.next_in_ring(self.journal.head);
            }
        }
    }

    /// The next block of the ring that is not bad.
    pub(super) fn next_in_ring(&self, index: usize) -> usize {
        let ring = self.layout.journal_blocks.len();
        let good = (1..=ring).map(|step| (index + step) % ring).find(|&next| !self.is_bad_in_ring(next));
        good.unwrap_or(index)
    }

    pub(super) fn is_bad_in_ring(&self, index: usize) -> bool {
        self.nand.block(self.layout.journal_blocks[index]).is_bad
    }

    /// Whether bad blocks have left too few for the ring to turn.
    pub(super) fn ring_is_worn_out(&self) -> bool {
        let good = (0..self.layout.journal_blocks.len()).filter(|&index| !self.is_bad_in_ring(index)).count();
        good < self.layout.journal_blocks_min as usize
    }

    fn append_base(&mut self, at: Nanos, page: usize) {
        let first = page * self.layout.map_page_entries as usize;
        let last = self.map.len().min(first + self.layout.map_page_entries as usize);
        // Inverted, so that the pages of a device that holds little are zeros, which take no memory.
        let bytes: Vec<u8> = self.map[first..last].iter().flat_map(|slot| (!slot).to_le_bytes()).collect();
        self.append_journal(at, kind::MAP, page as u32, &bytes);
        self.journal.bases[page] = self.sequence;
    }

    fn append_journal(&mut self, at: Nanos, kind: u8, word: u32, bytes: &[u8]) -> Nanos {
        self.sequence += 1;
        self.counters.map_programs += 1;
        let block = self.layout.journal_blocks[self.journal.head];
        let page = block * self.layout.geometry.pages_per_block + self.nand.block(block).next_page;
        let mut spare = Spare { kind, sequence: self.sequence, ..Spare::default() };
        spare.units[0] = word;
        let pieces = pieces_of(bytes);
        self.journal.youngest[self.journal.head] = self.sequence;
        // What the page tells of must be on flash when it is.
        let at = at.max(self.programs_done);
        let done = self.nand.program(at, page, spare, &pieces[..self.layout.page_sectors as usize]);
        self.programs_done = self.programs_done.max(done);
        done
    }

    /// Goes on to the next block when one is full, and cleans the one after that.
    pub(super) fn advance_journal(&mut self, at: Nanos) {
        let pages = self.layout.geometry.pages_per_block;
        while self.nand.block(self.layout.journal_blocks[self.journal.head]).next_page == pages {
            self.journal.head = self.next_in_ring(self.journal.head);
            self.clean_next(at);
            if self.is_read_only {
                return;
            }
        }
    }

    /// Makes the block after the head clean.
    pub(super) fn clean_next(&mut self, at: Nanos) {
        while !self.is_read_only && !self.clean_journal(at, self.next_in_ring(self.journal.head)) {
            self.is_read_only = self.ring_is_worn_out();
        }
    }

    /// Makes a block of the ring clean. Its bases move to the head, which holds nothing but what power
    /// cuts have torn during earlier attempts, and a block never holds more bases than leave room for that.
    /// Tells whether it is clean then; else it is worn out.
    fn clean_journal(&mut self, at: Nanos, index: usize) -> bool {
        let block = self.layout.journal_blocks[index];
        if self.nand.block(block).next_page == 0 {
            return true;
        }
        let youngest = self.journal.youngest[index];
        for page in 0..self.journal.bases.len() {
            if self.journal.bases[page] <= youngest {
                self.append_base(at, page);
            }
        }
        self.journal.youngest[index] = 0;
        self.nand.erase(self.programs_done, block).is_ok()
    }
}

/// A page's pieces that begin with `bytes`, the rest [`NO_UNIT`]s.
pub(crate) fn pieces_of(bytes: &[u8]) -> [Piece; PAGE_PIECES_MAX] {
    let mut pieces = [const { None }; PAGE_PIECES_MAX];
    for (piece, bytes) in pieces.iter_mut().zip(bytes.chunks(PIECE_BYTES)) {
        let mut whole = [NO_UNIT as u8; PIECE_BYTES];
        whole[..bytes.len()].copy_from_slice(bytes);
        *piece = piece_of(&whole);
    }
    pieces
}
