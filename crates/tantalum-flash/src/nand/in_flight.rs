//! What a power cut does to flash operations.
//!
//! An operation that had not begun is taken back as if it had never been asked for; one under way leaves cells that
//! have only partly changed: a program has cleared a subset of its bits, an erase has set a subset.

use tantalum_device::sparse::{PIECE_BYTES, Piece};
use tantalum_rt::Random;

use super::tables::Spares;
use super::{Block, Nand, PAGE_PIECES_MAX, PageState, Spare};
use crate::Nanos;

/// An operation that a power cut may still reach.
#[derive(Debug)]
pub(super) struct InFlight {
    /// When cells begin to change.
    pub(super) start: Nanos,
    pub(super) done: Nanos,
    pub(super) work: Work,
}

/// What it takes to undo an operation.
#[derive(Debug)]
pub(super) enum Work {
    Program { page: u32, old: [Piece; PAGE_PIECES_MAX] },
    Part { page: u32, offset: u64, old: Box<[u8]>, mask: u32, next_page: u32, spare: Spare },
    Erase { block: u32, spares: Spares, old: Block },
}

impl Nand {
    /// The power fails at `now`. Returns how many programs and erases it caught under way.
    pub fn power_cut(&mut self, now: Nanos, random: &mut Random) -> u64 {
        let mut caught = 0;
        // Backwards, since later operations on a block stand on earlier ones.
        for operation in std::mem::take(&mut self.in_flight).into_iter().rev() {
            if operation.done <= now {
                continue;
            }
            let has_begun = operation.start < now;
            caught += u64::from(has_begun);
            match (operation.work, has_begun) {
                (Work::Program { page, old }, false) => self.undo_program(page, old),
                (Work::Program { page, .. }, true) => self.tear(page, random),
                (Work::Part { page, offset, old, mask, .. }, true) => {
                    self.tear_part(page, offset, old.len(), mask, random);
                }
                (Work::Part { page, offset, old, next_page, spare, .. }, false) => {
                    self.contents.write(offset, &old);
                    self.tables.set_spare(page, spare);
                    self.tables.set_next_page(self.geometry.block_of(page), next_page);
                }
                (Work::Erase { block, spares, old }, false) => {
                    self.counters.bad_blocks -= u64::from(self.block(block).is_bad);
                    self.tables.restore(block, spares, old);
                }
                (Work::Erase { block, .. }, true) => {
                    for page in self.pages_of(block) {
                        self.tear(page, random);
                    }
                    self.tables.set_next_page(block, self.geometry.pages_per_block);
                }
            }
        }
        self.lines.stop(now);
        caught
    }

    /// Pages whose programming has not begun at `now`.
    pub(crate) fn not_begun(&self, now: Nanos) -> Vec<u32> {
        let pages = self.in_flight.iter().filter(|operation| operation.start >= now);
        pages
            .filter_map(|operation| if let Work::Program { page, .. } = operation.work { Some(page) } else { None })
            .collect()
    }

    /// Takes back what has not begun at `now`, while what is under way goes on: the power is to fail soon.
    pub(crate) fn retract(&mut self, now: Nanos) {
        let (begun, ahead) =
            std::mem::take(&mut self.in_flight).into_iter().partition(|operation| operation.start < now);
        self.in_flight = ahead;
        // None of them is under way, so chance has no part in it.
        self.power_cut(now, &mut Random::with_seed(0));
        self.in_flight = begun;
        let ends: Vec<(u32, Nanos)> =
            self.in_flight.iter().map(|operation| (self.block_of(operation), operation.done)).collect();
        for (block, done) in ends {
            self.lines.busy_until(self.geometry.plane_of(block), done);
        }
    }

    fn block_of(&self, operation: &InFlight) -> u32 {
        match operation.work {
            Work::Program { page, .. } | Work::Part { page, .. } => self.geometry.block_of(page),
            Work::Erase { block, .. } => block,
        }
    }

    fn undo_program(&mut self, page: u32, old: [Piece; PAGE_PIECES_MAX]) {
        self.tables.set_spare(page, Spare::default());
        let first = self.first_piece(page);
        let pieces = (self.geometry.page_bytes as usize / PIECE_BYTES).min(PAGE_PIECES_MAX);
        for (index, piece) in old.into_iter().take(pieces).enumerate() {
            self.contents.replace(first + index, piece);
        }
        let (block, index) = (self.geometry.block_of(page), page % self.geometry.pages_per_block);
        debug_assert_eq!(self.block(block).next_page, index + 1, "programs are undone backwards");
        self.tables.set_next_page(block, index);
    }

    /// Cells that should be zero are still one here and there.
    fn tear(&mut self, page: u32, random: &mut Random) {
        self.counters.torn_found += 1;
        let spare = Spare { state: PageState::Torn, ..*self.spare(page) };
        self.tables.set_spare(page, spare);
        let page_bytes = self.geometry.page_bytes as usize;
        self.mix(u64::from(page) * page_bytes as u64, page_bytes, random);
    }

    /// A partial program is cut short. The cells of the page's other parts were held back from it ("program inhibit"), and
    /// error correction goes by sectors, so only its own part is torn. Of the spare area's second word, all ones when
    /// erased, the bits of `mask` become zero.
    fn tear_part(&mut self, page: u32, offset: u64, len: usize, mask: u32, random: &mut Random) {
        self.counters.torn_found += 1;
        let mut spare = *self.spare(page);
        spare.units[1] &= !mask;
        self.tables.set_spare(page, spare);
        self.mix(offset, len, random);
    }

    fn mix(&mut self, offset: u64, len: usize, random: &mut Random) {
        let mut data = vec![0; len];
        self.contents.read(offset, &mut data);
        for word in data.as_chunks_mut::<8>().0 {
            *word = (u64::from_le_bytes(*word) | (random.u64(..) & random.u64(..))).to_le_bytes();
        }
        self.contents.write(offset, &data);
    }
}
