//! Garbage collection and wear levelling: each plane by itself, a few pages with every page of the host.
//!
//! Collection begins when a plane runs low on free blocks, moves as many pages per page of the host as its victim needs
//! to be empty in time, and finishes the victim at once when the plane is down to its reserve.

use tantalum_device::sparse::{PIECE_BYTES, Piece};

use super::{BlockUse, Collection, Open, PageMapped};
use crate::Nanos;
use crate::nand::{Block, NO_UNIT, PAGE_PIECES_MAX};

/// A block being emptied.
#[derive(Debug)]
pub(super) struct Victim {
    block: u32,
    /// The next page to look at.
    page: u32,
    /// Pages to look at for each page of the host.
    pace: u32,
    /// Sectors read but not yet programmed, and where they lay.
    carry: Vec<(u32, u32)>,
    /// When what was read so far is there.
    read_done: Nanos,
}

/// Collection begins below so many free blocks.
pub(super) const FREE_LOW: usize = 5;
/// The host takes no block below so many free ones: collection needs one, and another if a power cut interrupts it.
const FREE_RESERVE: usize = 3;
/// Collections of a plane between looks at its wear.
const WEAR_INTERVAL: u32 = 16;

impl PageMapped {
    /// Sees to it that the plane has room for a page of the host.
    pub(super) fn make_room(&mut self, plane: u32, at: Nanos) {
        let index = plane as usize;
        if self.planes[index].free.len() < FREE_LOW || self.planes[index].victim.is_some() {
            self.collect(plane, at, false);
        }
        while self.planes[index].free.len() < FREE_RESERVE && !self.is_read_only {
            self.collect(plane, at, true);
        }
    }

    /// Moves some sectors out of the plane's victim, or all of them.
    fn collect(&mut self, plane: u32, at: Nanos, to_the_end: bool) {
        let Some(mut victim) = self.planes[plane as usize].victim.take().or_else(|| self.choose_victim(plane)) else {
            return;
        };
        let pages = self.nand.geometry().pages_per_block;
        let end = if to_the_end { pages } else { pages.min(victim.page + victim.pace) };
        while victim.page < end {
            self.read_survivors(at, &mut victim);
            victim.page += 1;
            while victim.carry.len() >= self.layout.page_sectors as usize {
                self.program_survivors(plane, &mut victim);
            }
        }
        if victim.page < pages {
            self.planes[plane as usize].victim = Some(victim);
            return;
        }
        while !victim.carry.is_empty() {
            self.program_survivors(plane, &mut victim);
        }
        self.free_block(plane, victim.block, at.max(victim.read_done));
        self.counters.gc_blocks += 1;
    }

    /// Erases a block that holds nothing valid, and makes it free; or, if that fails, a spare one.
    pub(super) fn free_block(&mut self, plane: u32, block: u32, at: Nanos) -> Nanos {
        let usage = std::mem::take(&mut self.blocks[block as usize]);
        assert_eq!(usage.valid, 0, "block {block} holds nothing valid when it is erased");
        let erased = self.nand.erase(at.max(usage.erasable_at), block);
        self.blocks[block as usize] = BlockUse::default();
        let state = &mut self.planes[plane as usize];
        match erased {
            Ok(done) => {
                state.free.push(block);
                done
            }
            Err(worn) => {
                self.is_read_only |= state.spares.is_empty();
                state.free.extend(state.spares.pop());
                worn.done
            }
        }
    }

    /// Reads the valid sectors of the victim's next page.
    fn read_survivors(&mut self, at: Nanos, victim: &mut Victim) {
        let page = victim.block * self.nand.geometry().pages_per_block + victim.page;
        let units = self.nand.spare(page).units;
        let mut found = 0;
        for index in 0..self.layout.page_sectors {
            let (unit, slot) = (units[index as usize], page * self.layout.page_sectors + index);
            if self.map.get(unit as usize) == Some(&slot) {
                victim.carry.push((unit, slot));
                found += 1;
            }
        }
        if found > 0 {
            let bytes = found * PIECE_BYTES as u32;
            victim.read_done = victim.read_done.max(self.nand.read(at, page, bytes));
        }
    }

    /// Programs up to a page of what was read and is still valid.
    fn program_survivors(&mut self, plane: u32, victim: &mut Victim) {
        let mut sectors: [(u32, Piece); PAGE_PIECES_MAX] = [const { (NO_UNIT, None) }; PAGE_PIECES_MAX];
        let mut count = 0;
        let limit = self.layout.page_sectors as usize;
        let mut taken = 0;
        for &(unit, slot) in &victim.carry {
            if count == limit {
                break;
            }
            taken += 1;
            if self.map[unit as usize] == slot {
                let (page, index) = self.layout.place(slot);
                sectors[count] = (unit, self.nand.piece(page, index));
                count += 1;
            }
        }
        victim.carry.drain(..taken);
        if count > 0 {
            self.counters.gc_copies += count as u64;
            let page = self.next_page(plane, Open::Survivors);
            self.program_page(victim.read_done, plane, page, &sectors[..count]);
        }
    }

    fn choose_victim(&mut self, plane: u32) -> Option<Victim> {
        let state = &mut self.planes[plane as usize];
        state.collections += 1;
        let looks_at_wear = state.collections.is_multiple_of(WEAR_INTERVAL);
        let worn = if looks_at_wear { self.coldest_block(plane) } else { None };
        self.counters.wear_moves += u64::from(worn.is_some());
        let block = worn.or_else(|| self.dirtiest_block(plane))?;
        let geometry = self.nand.geometry();
        let sectors = geometry.pages_per_block * self.layout.page_sectors;
        let garbage = (sectors - self.blocks[block as usize].valid).max(1);
        let pace = sectors.div_ceil(garbage).min(geometry.pages_per_block);
        Some(Victim { block, page: 0, pace, carry: Vec::new(), read_done: 0 })
    }

    /// Blocks of a plane that are neither free nor open.
    pub(super) fn closed_blocks(&self, plane: u32) -> impl Iterator<Item = u32> {
        let state = &self.planes[plane as usize];
        self.layout.data_blocks(plane).filter(move |&block| {
            let Block { next_page, is_bad, .. } = self.nand.block(block);
            next_page > 0 && !is_bad && !state.host.contains(&Some(block)) && state.survivors != Some(block)
        })
    }

    fn dirtiest_block(&self, plane: u32) -> Option<u32> {
        let sectors = self.nand.geometry().pages_per_block * self.layout.page_sectors;
        let garbage = |block: u32| sectors - self.blocks[block as usize].valid;
        let dirty = self.closed_blocks(plane).filter(|&block| garbage(block) > 0);
        match self.mapping.collection {
            Collection::Greedy => dirty.max_by_key(|&block| (garbage(block), std::cmp::Reverse(block))),
            Collection::CostBenefit => dirty.max_by_key(|&block| {
                let age = u128::from(self.sequence - self.blocks[block as usize].youngest) + 1;
                let score = u128::from(garbage(block)) * age * 1024;
                (score / u128::from(2 * self.blocks[block as usize].valid + 1), std::cmp::Reverse(block))
            }),
        }
    }

    /// The least worn closed block, if the most worn block of the plane is far ahead of it.
    fn coldest_block(&self, plane: u32) -> Option<u32> {
        let wear = |block: u32| self.nand.block(block).erase_count;
        let most = self.layout.data_blocks(plane).filter(|&block| !self.nand.block(block).is_bad).map(wear).max()?;
        let coldest = self.closed_blocks(plane).min_by_key(|&block| (wear(block), block))?;
        (most - wear(coldest) > self.mapping.wear_spread).then_some(coldest)
    }
}
