//! The dump at a power cut, and recovery at the next start.
//!
//! The dump area is a group of blocks on every plane that is clean whenever the drive answers (section 3.4.1), so that
//! nothing need be erased or mapped. A page of it is self-contained: its spare area names the sectors. The last page
//! says that the dump is complete. Recovery is idempotent: the area is erased only when flash holds all that was in it,
//! and until then the drive answers no command, so that recovery can begin again after another cut.

use tantalum_rt::Random;

use crate::Nanos;
use crate::contents::Piece;
use crate::ftl::page_mapped::{Changes, kind, pairs, pieces_of};
use crate::nand::{Block, NO_UNIT, PAGE_PIECES_MAX, PageState, Spare};
use crate::ssd::SolidState;

/// Writes pages of a dump, a plane after the other.
struct Writer {
    plane: u32,
    at: Nanos,
    done: Nanos,
    pages: u32,
}

impl SolidState {
    /// The power fails: dumps memory as long as the capacitors hold.
    pub(crate) fn dump(&mut self, now: Nanos, random: &mut Random) {
        let Some(protection) = &self.protection else { return };
        // A cut during recovery finds nothing in memory that the dump area does not hold.
        if now >= protection.ready {
            let dead = now + protection.hold_ns;
            self.ftl.retract(now);
            self.dump_until(now, dead);
            self.ftl.power_cut(dead, random);
        } else {
            self.ftl.power_cut(now, random);
        }
    }

    fn dump_until(&mut self, now: Nanos, dead: Nanos) {
        let unwritten = self.unwritten(now);
        let changes: Vec<_> = self.ftl.changes_to_dump().collect();
        let sectors_per_page = self.ftl.layout().page_sectors as usize;
        let mut writer = Writer { plane: 0, at: now, done: now, pages: 0 };
        let mut lost = 0;
        for sectors in unwritten.chunks(sectors_per_page) {
            let mut spare = Spare { kind: kind::DUMP_SECTORS, ..Spare::default() };
            let mut pieces: [Piece; PAGE_PIECES_MAX] = [const { None }; PAGE_PIECES_MAX];
            for (index, (unit, piece)) in sectors.iter().enumerate() {
                spare.units[index] = *unit;
                pieces[index] = piece.clone();
            }
            if self.dump_page(&mut writer, dead, spare, &pieces) > dead {
                lost += sectors.len() as u64;
            }
        }
        for (count, bytes) in &changes {
            let mut spare = Spare { kind: kind::DUMP_CHANGES, ..Spare::default() };
            spare.units[0] = *count;
            self.dump_page(&mut writer, dead, spare, &pieces_of(bytes));
        }
        let mut end = Spare { kind: kind::DUMP_END, ..Spare::default() };
        end.units[0] = writer.pages;
        writer.at = writer.done;
        let done = self.dump_page(&mut writer, dead, end, &[]);
        self.counters.dumped_pages += u64::from(writer.pages);
        self.counters.dump_overruns += u64::from(done > dead && !(unwritten.is_empty() && changes.is_empty()));
        self.counters.dump_lost_sectors += lost;
    }

    /// Programs a page of the dump area on the next plane. Returns when it is done; nothing begins when the drive is
    /// dead.
    fn dump_page(&mut self, writer: &mut Writer, dead: Nanos, spare: Spare, pieces: &[Piece]) -> Nanos {
        let layout = self.ftl.layout();
        let geometry = layout.geometry;
        let plane = writer.plane % geometry.planes();
        let mut blocks = layout.dump_blocks(plane);
        let nand = self.ftl.nand();
        let open = blocks.find(|&block| nand.block(block).next_page < geometry.pages_per_block);
        let (Some(block), true) = (open, nand.lines().plane_free(plane) < dead) else {
            writer.done = Nanos::MAX;
            return Nanos::MAX;
        };
        let page = block * geometry.pages_per_block + nand.block(block).next_page;
        let sequence = self.ftl.next_sequence();
        let done = self.ftl.nand_mut().program(writer.at, page, Spare { sequence, ..spare }, pieces);
        writer.done = writer.done.max(done);
        writer.plane += 1;
        writer.pages += 1;
        done
    }

    /// Power returns: charges the capacitors, rebuilds the map, replays the dump, and clears its area. Returns when the
    /// drive answers.
    pub(crate) fn recover_dump(&mut self, now: Nanos) -> Nanos {
        let Some(protection) = &self.protection else { return now };
        let charged = now + protection.recharge_ns;
        let (mut sectors, changes, read) = self.read_dump(charged);
        sectors.extend(self.mirrored_within_energy());
        let mapped = self.ftl.recover_with(read, &changes);
        let replayed = self.replay(mapped, &sectors);
        let ready = self.clear_dump(replayed);
        if let Some(protection) = &mut self.protection {
            protection.ready = ready;
        }
        ready
    }

    /// What memory held when the program died, which is as if it had been dumped then: as far as the capacitors' energy
    /// would have gone.
    fn mirrored_within_energy(&mut self) -> Vec<(u32, Piece)> {
        let mut sectors = self.mirrored();
        let (layout, hold_ns) =
            (self.ftl.layout(), self.protection.as_ref().map_or(0, |protection| protection.hold_ns));
        let pages = hold_ns / self.ftl.nand().timing().program_ns.max(1) * u64::from(layout.geometry.planes());
        let most = pages.saturating_mul(u64::from(layout.page_sectors));
        let lost = (sectors.len() as u64).saturating_sub(most);
        sectors.retain(|&(unit, _)| unit < layout.units);
        sectors.truncate(usize::try_from(most).unwrap_or(usize::MAX));
        self.counters.dump_overruns += u64::from(lost > 0);
        self.counters.dump_lost_sectors += lost;
        sectors
    }

    /// What the dump area holds: sectors in the order of their dump, and changes of the map.
    fn read_dump(&mut self, now: Nanos) -> (Vec<(u32, Piece)>, Vec<Changes>, Nanos) {
        let mut pages = Vec::new();
        let mut done = now;
        let page_bytes = self.ftl.layout().geometry.page_bytes;
        for page in self.dump_pages() {
            done = done.max(self.ftl.nand_mut().read(now, page, page_bytes));
            let spare = self.ftl.nand().spare(page);
            if spare.state == PageState::Programmed {
                pages.push((spare.sequence, page));
            }
        }
        pages.sort_unstable();
        let (mut sectors, mut changes) = (Vec::new(), Vec::new());
        for (sequence, page) in pages {
            let spare = *self.ftl.nand().spare(page);
            match spare.kind {
                kind::DUMP_SECTORS => {
                    let named = spare.units.into_iter().enumerate().filter(|&(_, unit)| unit != NO_UNIT);
                    sectors.extend(named.map(|(index, unit)| (unit, self.ftl.nand().piece(page, index))));
                }
                kind::DUMP_CHANGES => changes.push((sequence, pairs(&self.ftl.page_words(page), spare.units[0]))),
                _ => {}
            }
        }
        (sectors, changes, done)
    }

    /// Programs dumped sectors where any sector goes, and journals the map.
    fn replay(&mut self, now: Nanos, sectors: &[(u32, Piece)]) -> Nanos {
        let limit = self.ftl.layout().page_sectors;
        let channels = self.ftl.layout().geometry.channels;
        let mut queues = vec![Vec::new(); channels as usize];
        for sector in sectors {
            queues[(sector.0 / limit % channels) as usize].push(sector.clone());
        }
        let mut done = now;
        for (channel, queue) in queues.iter().enumerate() {
            for batch in queue.chunks(limit as usize) {
                if !self.ftl.has_room(channel as u32) {
                    self.counters.dump_lost_sectors += batch.len() as u64;
                    continue;
                }
                done = done.max(self.ftl.program(now, channel as u32, batch));
            }
        }
        self.ftl.sync(done)
    }

    /// Erases what was used of the dump area. If too little of it is left for the next dump, nothing more is written.
    fn clear_dump(&mut self, now: Nanos) -> Nanos {
        let layout = self.ftl.layout();
        let blocks: Vec<u32> = (0..layout.geometry.planes()).flat_map(|plane| layout.dump_blocks(plane)).collect();
        let mut done = now;
        for block in blocks {
            let Block { next_page, is_bad, .. } = self.ftl.nand().block(block);
            if next_page > 0 && !is_bad {
                // One that is worn out stays as it is, and holds nothing.
                done = done.max(self.ftl.nand_mut().erase(now, block).unwrap_or_else(|worn| worn.done));
            }
        }
        let layout = self.ftl.layout();
        let is_good = |block: &u32| !self.ftl.nand().block(*block).is_bad;
        let good = |plane: u32| layout.dump_blocks(plane).filter(is_good).count();
        if (0..layout.geometry.planes()).any(|plane| good(plane) < layout.dump_blocks_min()) {
            self.ftl.make_read_only();
        }
        done
    }

    fn dump_pages(&self) -> Vec<u32> {
        let layout = self.ftl.layout();
        let pages = layout.geometry.pages_per_block;
        let blocks = (0..layout.geometry.planes()).flat_map(|plane| layout.dump_blocks(plane));
        let written = |block: u32| block * pages..block * pages + self.ftl.nand().block(block).next_page;
        blocks.flat_map(written).collect()
    }
}
