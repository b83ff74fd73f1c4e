//! How [`ZonedDrive`] loses its power, starts again, and finds its zones in a file.

use tantalum_device::sparse::PIECE_BYTES;
use tantalum_rt::Random;

use super::ZonedDrive;
use super::zone::{Change, Marks, Waiting, Zone};
use crate::Nanos;
use crate::nand::NO_UNIT;

impl ZonedDrive {
    /// The power fails: what has completed stays. The capacitors hold until flash has what is on its way there.
    pub(super) fn cut_zones(&mut self, now: Nanos, random: &mut Random) {
        let page_sectors = u64::from(self.page_sectors());
        for zone in std::mem::take(&mut self.busy) {
            if random.bool() {
                self.conclude(zone);
            }
            let found = &mut self.zones[zone as usize];
            // What was under way has not happened otherwise.
            if let Some((_, Change::Reset { before })) = found.change.take() {
                *found = *before;
            }
            found.note_completed(now);
            let kept = random.u32(found.completed.max(found.programmed)..=found.written);
            let lost: Vec<Waiting> = found.waiting.drain((kept - found.programmed) as usize..).collect();
            found.under_way.clear();
            (found.written, found.completed, found.last_done) = (kept, kept, now);
            found.waiting.iter_mut().for_each(|sector| sector.ready = now);
            let dumped = (found.waiting.len() as u64).div_ceil(page_sectors);
            self.counters.dumped_pages += dumped;
            self.counters.programs += dumped;
            self.counters.media_written_bytes += dumped * page_sectors * PIECE_BYTES as u64;
            self.forget_waiting(lost);
            let found = &mut self.zones[zone as usize];
            if found.is_empty() {
                let Zone { blocks, .. } = std::mem::take(found);
                self.give_blocks(blocks);
            } else if !found.waiting.is_empty() {
                self.busy.insert(zone);
            }
        }
        self.leaving.clear();
        self.occupied = self.zones.iter().map(|zone| zone.waiting.len()).sum();
        self.nand.power_cut(now + self.hold_ns, random);
        self.host.reset(now);
    }

    /// The power returns: charges the capacitors, takes what was dumped back into memory, and erases what the cut has kept from
    /// it. Returns when that is done.
    pub(super) fn restart_zones(&mut self, now: Nanos) -> Nanos {
        let charged = now + self.recharge_ns;
        let dumped = self.occupied.div_ceil(self.page_sectors() as usize) as u64;
        let mut done = charged + dumped.div_ceil(self.free.len() as u64) * self.nand.timing().read_ns;
        for plane in 0..self.free.len() {
            for block in std::mem::take(&mut self.free[plane]) {
                if self.nand.block(block).next_page == 0 {
                    self.free[plane].push(block);
                    continue;
                }
                match self.nand.erase(charged, block) {
                    Ok(erased) => {
                        done = done.max(erased);
                        self.free[plane].push(block);
                    }
                    Err(worn) => done = done.max(worn.done),
                }
            }
        }
        done
    }

    /// Finds the zones: from the factory all are empty; in a file they are what the program left that had the drive before.
    pub(super) fn find_zones(&mut self) {
        let geometry = *self.nand.geometry();
        let (zone_sectors, page_sectors) = (self.zone_sectors(), self.page_sectors());
        for block in (0..geometry.blocks()).filter(|block| !self.nand.block(*block).is_bad).collect::<Vec<_>>() {
            let first = block * geometry.pages_per_block;
            let pages = self.nand.block(block).next_page;
            let unit = self.nand.spare(first).units[0];
            let zone = unit / zone_sectors;
            if pages == 0 || unit == NO_UNIT || zone as usize >= self.zones.len() {
                self.free[geometry.plane_of(block) as usize].push(block);
                continue;
            }
            let found = &mut self.zones[zone as usize];
            found.blocks.resize(self.zoning.blocks as usize, None);
            found.blocks[(unit % zone_sectors / page_sectors % self.zoning.blocks) as usize] = Some(block);
            for page in first..first + pages {
                let units = self.nand.spare(page).units;
                found.written += units.iter().filter(|unit| **unit != NO_UNIT).count() as u32;
            }
        }
        for zone in 0..self.zones.len() as u32 {
            match self.marks.get(zone) {
                Marks::RESETTING => {
                    let Zone { blocks, .. } = std::mem::take(&mut self.zones[zone as usize]);
                    self.erase_blocks(0, blocks);
                    self.marks.set(zone, Marks::NONE);
                }
                mark => self.zones[zone as usize].is_finished = mark == Marks::FINISHED,
            }
            let found = &mut self.zones[zone as usize];
            found.programmed = found.written;
        }
        let kept = self.mirror.as_mut().map_or(Vec::new(), |mirror| mirror.adopt());
        for (unit, piece, place) in kept {
            let zone = unit / zone_sectors;
            match self.zones.get_mut(zone as usize).filter(|found| found.written == unit % zone_sectors) {
                Some(found) => {
                    found.waiting.push_back(Waiting { piece, ready: 0, place: Some(place) });
                    found.written += 1;
                    self.occupied += 1;
                    self.busy.insert(zone);
                }
                // Flash has it, or its zone was reset.
                None => self.release(Some(place)),
            }
        }
        for zone in 0..self.zones.len() as u32 {
            let found = &mut self.zones[zone as usize];
            found.completed = found.written;
            if found.written > 0 {
                // Blocks that no page was programmed in are as good as others.
                self.take_blocks(zone);
            }
        }
    }
}
