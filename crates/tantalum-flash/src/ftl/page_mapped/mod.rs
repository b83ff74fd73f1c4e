//! The page-mapped translation layer: any sector of 4 KiB can lie anywhere, several to a page.
//!
//! Sectors are programmed where a plane is free first; what they replace becomes garbage, which [`collect`](self)
//! moves out of the way, plane by plane. The map lives in memory and in a journal on flash; after a power cut it is
//! rebuilt from the journal and from the spare areas of the pages programmed since.
//!
//! A block whose erase fails is bad for ever, and a spare one takes its place. When a plane, or the journal, has none
//! left, the layer is read-only: it still takes what is on its way, as far as erased pages go, but erases nothing.
//!
//! Invariant: a block is erased only when the programs that made its pages garbage are done, so whatever a cut takes
//! back, the version before it is still there.

mod collect;
mod journal;
mod layout;
mod rebuild;

use serde::Deserialize;

pub(crate) use journal::pieces_of;
pub use layout::Layout;
pub(crate) use rebuild::{Changes, pairs};

use tantalum_device::sparse::{PIECE_BYTES, Piece};

use crate::nand::{NO_UNIT, Nand, PAGE_PIECES_MAX, Spare};
use crate::{Counters, Nanos};
use collect::Victim;
use journal::Journal;

/// What a page is for.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 1;
    pub(crate) const MAP: u8 = 2;
    pub(crate) const DELTA: u8 = 3;
    pub(crate) const DUMP_SECTORS: u8 = 4;
    pub(crate) const DUMP_CHANGES: u8 = 5;
    pub(crate) const DUMP_END: u8 = 6;
}

/// How the next block to collect is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Collection {
    /// The block with the fewest valid sectors.
    Greedy,
    /// The block with the most garbage for its copying, times the age of its youngest sector.
    CostBenefit,
}

/// Parameters of the layer, as a profile gives them.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageMapping {
    /// Flash beside the capacity, as a share of the capacity.
    pub over_provision: f64,
    /// How the next block to collect is chosen.
    pub collection: Collection,
    /// Difference of erase counts within a plane from which cold blocks are moved.
    pub wear_spread: u32,
    /// Placement handles: the host's sectors of each go to blocks of their own (NVMe's flexible data placement). What collection
    /// moves is not kept apart: the reclaim unit handles are *initially isolated*. 1 where the host has no say.
    #[serde(default = "one")]
    pub placement_handles: u32,
}

const fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Copy, Default)]
struct BlockUse {
    /// Sectors that the map points to.
    valid: u32,
    /// No erase before: a program that made a page garbage is under way until then.
    erasable_at: Nanos,
    /// Sequence number of its youngest page.
    youngest: u64,
}

#[derive(Debug, Default)]
struct Plane {
    free: Vec<u32>,
    /// Erased blocks that take the place of bad ones.
    spares: Vec<u32>,
    /// The blocks that the host's sectors go to, one for each placement handle.
    host: Vec<Option<u32>>,
    /// The block that collected sectors go to.
    survivors: Option<u32>,
    victim: Option<Victim>,
    valid: u32,
    collections: u32,
}

impl Plane {
    fn new(free: Vec<u32>, handles: u32) -> Self {
        Self { free, host: vec![None; handles as usize], ..Self::default() }
    }
}

/// A sector's place before a program that starts at a time ahead.
#[derive(Debug, Clone, Copy)]
struct Move {
    start: Nanos,
    unit: u32,
    from: u32,
}

/// Moves remembered before those that have begun are looked for.
const MOVES_SWEEP: usize = 4096;

/// A page-mapped translation layer over flash.
#[derive(Debug)]
pub struct PageMapped {
    /// Dump blocks are written beside the layer.
    pub nand: Nand,
    /// How the flash is divided.
    pub layout: Layout,
    mapping: PageMapping,
    /// Where each sector lies: page times sectors per page, plus the place in the page; [`NO_UNIT`] if it has none.
    map: Vec<u32>,
    blocks: Vec<BlockUse>,
    planes: Vec<Plane>,
    journal: Journal,
    sequence: u64,
    /// When the last program is done.
    programs_done: Nanos,
    /// Where sectors lay before programs that may not have begun yet.
    moves: Vec<Move>,
    /// Whether no spare block is left where one is needed, here or beside the layer. What is written from now on may find no room.
    pub is_read_only: bool,
    counters: Counters,
}

impl PageMapped {
    /// An empty layer on erased flash, formatted; or one on flash that lies in a file from before, of which nothing is
    /// known until [`PageMapped::recover`].
    pub fn new(nand: Nand, layout: Layout, mapping: PageMapping) -> Self {
        let geometry = *nand.geometry();
        let good = |plane: u32| layout.data_blocks(plane).filter(|&block| !nand.block(block).is_bad).collect();
        let planes = (0..geometry.planes()).map(|plane| Plane::new(good(plane), mapping.placement_handles));
        let mut layer = Self {
            map: vec![NO_UNIT; layout.units as usize],
            blocks: vec![BlockUse::default(); geometry.blocks() as usize],
            planes: planes.collect(),
            journal: Journal::new(&layout),
            nand,
            layout,
            mapping,
            sequence: 0,
            programs_done: 0,
            moves: Vec::new(),
            is_read_only: false,
            counters: Counters::default(),
        };
        if layer.nand.is_new() {
            layer.set_spares_aside();
            layer.format_journal();
        }
        layer.nand.forget_history();
        layer.programs_done = 0;
        layer.counters = Counters::default();
        layer
    }

    /// The number of the next page that is written beside the layer.
    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// What has happened; host operations are counted by the front end.
    pub fn counters(&self) -> Counters {
        Counters { torn_found: self.nand.torn_pages(), ..self.nand.counters() + self.counters }
    }

    /// The placement handles.
    pub fn handles(&self) -> u32 {
        self.mapping.placement_handles
    }

    /// Whether a page of a placement handle can be programmed on the channel: always, unless the layer is read-only.
    pub fn has_room(&self, channel: u32, handle: u32) -> bool {
        !self.is_read_only || self.planes_of(channel).any(|plane| self.plane_has_room(plane, handle))
    }

    /// Whether a page can be programmed without erasing anything.
    fn plane_has_room(&self, plane: u32, handle: u32) -> bool {
        let Plane { free, host, .. } = &self.planes[plane as usize];
        let pages = self.nand.geometry().pages_per_block;
        !free.is_empty() || host[handle as usize].is_some_and(|block| self.nand.block(block).next_page < pages)
    }

    /// Keeps blocks that are free back, as many as a plane has beyond what it needs.
    fn set_spares_aside(&mut self) {
        for plane in 0..self.layout.geometry.planes() {
            let good = self.layout.data_blocks(plane).filter(|&block| !self.nand.block(block).is_bad).count();
            self.is_read_only |= good < self.layout.data_blocks_min();
            let state = &mut self.planes[plane as usize];
            let beyond = good.saturating_sub(self.layout.data_blocks_min()).min(state.free.len());
            state.spares = state.free.split_off(state.free.len() - beyond);
        }
    }

    /// Everything that is done at `now` is so for ever: no power cut comes before.
    pub fn settle(&mut self, now: Nanos) {
        self.nand.settle(now);
        if self.moves.len() >= MOVES_SWEEP {
            self.moves.retain(|earlier| earlier.start >= now);
        }
    }

    /// What a sector holds. Takes no time: [`PageMapped::read`] does.
    pub fn piece(&self, unit: u32) -> Piece {
        let slot = self.map[unit as usize];
        if slot == NO_UNIT {
            return None;
        }
        let (page, index) = self.layout.place(slot);
        self.nand.piece(page, index)
    }

    /// Reads sectors, not before `at`. Returns when all are there; unwritten ones are there at once.
    pub fn read(&mut self, at: Nanos, units: std::ops::Range<u32>) -> Nanos {
        let mut done = at;
        let mut pending: Option<(u32, u32)> = None;
        for unit in units {
            let slot = self.map[unit as usize];
            if slot == NO_UNIT {
                continue;
            }
            let page = self.layout.place(slot).0;
            pending = match pending {
                Some((same, sectors)) if same == page => Some((page, sectors + 1)),
                other => {
                    if let Some((page, sectors)) = other {
                        done = done.max(self.nand.read(at, page, sectors * PIECE_BYTES as u32));
                    }
                    Some((page, 1))
                }
            };
        }
        match pending {
            Some((page, sectors)) => done.max(self.nand.read(at, page, sectors * PIECE_BYTES as u32)),
            None => done,
        }
    }

    /// When the first plane of the channel is free.
    pub fn channel_ready(&self, channel: u32) -> Nanos {
        let planes = self.planes_of(channel);
        planes.map(|plane| self.nand.lines().plane_free(plane)).min().unwrap_or(0)
    }

    /// Programs up to a page's worth of sectors of a placement handle on a plane of the channel, not before `at`. Returns when it is
    /// done.
    pub fn program(&mut self, at: Nanos, channel: u32, handle: u32, sectors: &[(u32, Piece)]) -> Nanos {
        let plane = self.choose_plane(channel, handle, at);
        if !self.is_read_only {
            self.make_room(plane, at);
        }
        let page = self.next_page(plane, Open::Host { handle });
        let done = self.program_page(at, plane, page, sectors);
        self.journal_in_background();
        done
    }

    /// Forgets what a sector holds: it reads as zeros.
    pub fn discard(&mut self, unit: u32) {
        if self.map[unit as usize] != NO_UNIT {
            self.point(unit, NO_UNIT, 0);
        }
    }

    fn planes_of(&self, channel: u32) -> impl Iterator<Item = u32> + use<> {
        let geometry = self.nand.geometry();
        (channel..geometry.planes()).step_by(geometry.channels as usize)
    }

    /// The plane that is free first, of those equally free the emptiest.
    fn choose_plane(&self, channel: u32, handle: u32, at: Nanos) -> u32 {
        let key = |plane: u32| {
            let valid = self.planes[plane as usize].valid;
            let is_full =
                valid >= self.layout.plane_sectors_max || self.is_read_only && !self.plane_has_room(plane, handle);
            (is_full, self.nand.lines().plane_free(plane).max(at), valid)
        };
        let plane = self.planes_of(channel).min_by_key(|&plane| key(plane)).expect("a channel has planes");
        assert!(!key(plane).0, "the capacity fits the planes of every channel");
        plane
    }

    fn program_page(&mut self, at: Nanos, plane: u32, page: u32, sectors: &[(u32, Piece)]) -> Nanos {
        self.sequence += 1;
        let mut spare = Spare { kind: kind::DATA, sequence: self.sequence, ..Spare::default() };
        let mut pieces = [const { None }; PAGE_PIECES_MAX];
        for (index, (unit, piece)) in sectors.iter().enumerate() {
            spare.units[index] = *unit;
            pieces[index] = piece.clone();
        }
        let done = self.nand.program(at, page, spare, &pieces[..self.layout.page_sectors as usize]);
        self.programs_done = self.programs_done.max(done);
        self.blocks[self.nand.geometry().block_of(page) as usize].youngest = self.sequence;
        debug_assert_eq!(plane, self.nand.geometry().plane_of(self.nand.geometry().block_of(page)));
        let start = done - self.nand.timing().program_ns;
        for (index, &(unit, _)) in sectors.iter().enumerate() {
            self.moves.push(Move { start, unit, from: self.map[unit as usize] });
            self.point(unit, page * self.layout.page_sectors + index as u32, done);
        }
        done
    }

    /// Lets a sector lie at `slot` from now on; what was there before is garbage once that is `done`.
    fn point(&mut self, unit: u32, slot: u32, done: Nanos) {
        let old = std::mem::replace(&mut self.map[unit as usize], slot);
        if old != NO_UNIT {
            let block = self.nand.geometry().block_of(self.layout.place(old).0);
            let usage = &mut self.blocks[block as usize];
            usage.valid -= 1;
            usage.erasable_at = usage.erasable_at.max(done);
            self.planes[self.nand.geometry().plane_of(block) as usize].valid -= 1;
        }
        if slot != NO_UNIT {
            let block = self.nand.geometry().block_of(self.layout.place(slot).0);
            self.blocks[block as usize].valid += 1;
            self.planes[self.nand.geometry().plane_of(block) as usize].valid += 1;
        }
        self.journal.note(unit);
    }

    /// The next page to program of one of a plane's open blocks.
    fn next_page(&mut self, plane: u32, open: Open) -> u32 {
        let pages = self.nand.geometry().pages_per_block;
        let current = *self.open_block(plane, open);
        let block = match current {
            Some(block) if self.nand.block(block).next_page < pages => block,
            _ => {
                let block = self.take_free(plane);
                *self.open_block(plane, open) = Some(block);
                block
            }
        };
        block * pages + self.nand.block(block).next_page
    }

    fn open_block(&mut self, plane: u32, open: Open) -> &mut Option<u32> {
        let plane = &mut self.planes[plane as usize];
        match open {
            Open::Host { handle } => &mut plane.host[handle as usize],
            Open::Survivors => &mut plane.survivors,
        }
    }

    /// The least worn free block.
    fn take_free(&mut self, plane: u32) -> u32 {
        let free = &mut self.planes[plane as usize].free;
        let least = (0..free.len()).min_by_key(|&at| (self.nand.block(free[at]).erase_count, free[at]));
        let block = free.swap_remove(least.expect("collection keeps blocks free, or the channel was asked for room"));
        self.blocks[block as usize] = BlockUse::default();
        block
    }
}

/// A plane's open blocks.
#[derive(Debug, Clone, Copy)]
enum Open {
    Host { handle: u32 },
    Survivors,
}

#[cfg(test)]
mod tests;
