//! A drive with zones: NVMe's Zoned Namespaces (ZNS Command Set 1.1). No translation layer moves anything: a zone is a row of whole
//! erase blocks, on as many planes, and the host writes it from its beginning to its end.
//!
//! Promises: a write is taken only at its zone's write pointer, within the zone, and as long as not too many zones are partly written;
//! behind the pointer a zone reads as zeros. A write that has completed is there after a power cut, and of one under way a part from its
//! beginning, of any length: the pointer is at its end. A reset or finish under way has happened, or has not.
//!
//! - Memory keeps what fills no flash page yet. Whole pages are programmed in the order of the zone, a block's page after the same page
//!   of the block before it: the zone's sequential writes use all its planes.
//! - Capacitors hold until flash has what is on its way there, and the rest is dumped; a profile whose capacitors do not is refused.
//! - The part before the first zone is a drive of its own with a page-mapped layer ([`SolidState`]), on blocks, channels and a link of
//!   its own: that the two wait for each other is not modelled. Nor are zones with a capacity below their size.
//! - In a file, a zone is what its blocks say, and behind that the [`Mirror`]; one byte for each zone tells what neither can.

mod parts;
mod power;
mod reading;
mod zone;

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use tantalum_device::Zones;
use tantalum_device::sparse::{PIECE_BYTES, piece_in};
use tantalum_rt::Random;

use super::SolidState;
use super::interface::{Host, Interface};
use super::mirror::Mirror;
use crate::nand::{NO_UNIT, Nand, PAGE_PIECES_MAX, Spare};
use crate::{Contents, Counters, MediaError, Model, Nanos, Outcome, Shape};
pub(crate) use parts::Parts;
pub use parts::Zoning;
use zone::{Change, Marks, Waiting, Zone};

/// A drive with zones.
///
/// Made from a [`Profile`](crate::Profile).
#[derive(Debug)]
pub(crate) struct ZonedDrive {
    /// What lies before the first zone.
    conventional: SolidState,
    interface: Interface,
    host: Host,
    nand: Nand,
    zoning: Zoning,
    shape: Zones,
    zones: Vec<Zone>,
    /// The zones that the drive has something to do for: data waits for flash, or a reset or finish for its time.
    busy: BTreeSet<u32>,
    /// The erased blocks of each plane.
    free: Vec<Vec<u32>>,
    /// Sectors in memory, and of those that are on their way to flash, when each leaves.
    occupied: usize,
    leaving: BinaryHeap<Reverse<Nanos>>,
    limit: usize,
    mirror: Option<Mirror>,
    marks: Marks,
    /// How long the capacitors hold, and are charged.
    hold_ns: Nanos,
    recharge_ns: Nanos,
    counters: Counters,
}

impl ZonedDrive {
    /// A drive whose zones take so many bytes behind its conventional part; its parts have been checked.
    pub fn new(
        conventional: SolidState,
        parts: &Parts<'_>,
        zones_bytes: u64,
        contents: impl Fn(u64) -> Contents,
    ) -> Self {
        let geometry = parts.whole_geometry(zones_bytes);
        let mut nand = Nand::new(geometry, parts.timing, contents(geometry.capacity_bytes())).with_wear(parts.wear, 0);
        if parts.interface.reads_pass {
            nand.let_reads_pass();
        }
        let bytes = parts.zoning.zone_bytes(&geometry);
        let count = (zones_bytes / bytes) as usize;
        let limit = (parts.pool_bytes / PIECE_BYTES as u64) as usize;
        let marks = Marks::new(nand.beside(count as u64));
        let mirror = nand.beside(Mirror::bytes(limit)).map(|area| Mirror::new(area, limit));
        let mut drive = Self {
            conventional,
            host: Host::new(parts.interface.clone()),
            interface: parts.interface.clone(),
            zoning: parts.zoning,
            shape: Zones { start: parts.zoning.conventional_bytes, bytes, max_active: parts.zoning.max_active },
            zones: vec![Zone::default(); count],
            busy: BTreeSet::new(),
            free: vec![Vec::new(); geometry.planes() as usize],
            occupied: 0,
            leaving: BinaryHeap::new(),
            limit,
            mirror,
            marks,
            hold_ns: parts.capacitors.hold_ns(),
            recharge_ns: parts.capacitors.recharge_ns,
            counters: Counters::default(),
            nand,
        };
        drive.find_zones();
        drive
    }

    fn page_sectors(&self) -> u32 {
        self.nand.geometry().page_bytes / PIECE_BYTES as u32
    }

    fn zone_sectors(&self) -> u32 {
        (self.shape.bytes / PIECE_BYTES as u64) as u32
    }

    /// The zone that begins at a byte.
    fn zone_at(&self, offset: u64) -> Result<u32, MediaError> {
        let Zones { start, bytes, .. } = self.shape;
        let zone = offset.checked_sub(start).filter(|within| within.is_multiple_of(bytes)).map(|within| within / bytes);
        let exists = |zone: &u64| *zone < self.zones.len() as u64;
        zone.filter(exists).map(|zone| zone as u32).ok_or(MediaError::NoZone { offset, start, bytes })
    }

    fn beginning_of(&self, zone: u32) -> u64 {
        self.shape.start + u64::from(zone) * self.shape.bytes
    }

    /// The plane of one of a zone's blocks: neighbours lie on other channels.
    fn plane_of(&self, zone: u32, slot: usize) -> usize {
        (zone as usize * self.zoning.blocks as usize + slot) % self.free.len()
    }

    /// The least worn free block of a plane.
    fn take_block(&mut self, plane: usize) -> Option<u32> {
        let free = &mut self.free[plane];
        let wear = |&at: &usize| (self.nand.block(free[at]).erase_count, free[at]);
        let least = (0..free.len()).min_by_key(wear)?;
        Some(free.swap_remove(least))
    }

    /// Gives a zone those of its blocks that it lacks. False if so many are worn out that there are none.
    fn take_blocks(&mut self, zone: u32) -> bool {
        let mut blocks = std::mem::take(&mut self.zones[zone as usize].blocks);
        blocks.resize(self.zoning.blocks as usize, None);
        for (slot, block) in blocks.iter_mut().enumerate() {
            if block.is_none() {
                *block = self.take_block(self.plane_of(zone, slot));
            }
        }
        let has_all = blocks.iter().all(Option::is_some);
        if has_all {
            self.zones[zone as usize].blocks = blocks;
        } else {
            self.give_blocks(blocks);
        }
        has_all
    }

    /// Takes blocks back that are erased, or will be when the power returns.
    fn give_blocks(&mut self, blocks: Vec<Option<u32>>) {
        for block in blocks.into_iter().flatten() {
            self.free[self.nand.geometry().plane_of(block) as usize].push(block);
        }
    }

    /// Everything that happens without the host up to `now`.
    fn advance(&mut self, now: Nanos) {
        self.nand.settle(now);
        for zone in self.busy.clone() {
            if self.zones[zone as usize].changes_by(now) {
                self.conclude(zone);
            }
            self.program_pages(zone, now);
            let found = &mut self.zones[zone as usize];
            found.note_completed(now);
            if found.is_idle() {
                self.busy.remove(&zone);
            }
        }
    }

    /// A reset or finish that is under way has happened.
    fn conclude(&mut self, zone: u32) {
        let Some((done, change)) = self.zones[zone as usize].change.take() else { return };
        match change {
            Change::Finish => {
                self.marks.set(zone, Marks::FINISHED);
                self.zones[zone as usize].is_finished = true;
            }
            Change::Reset { before } => {
                self.marks.set(zone, Marks::RESETTING);
                let begun = done.saturating_sub(self.nand.timing().erase_ns);
                self.forget_waiting(before.waiting);
                self.erase_blocks(begun, before.blocks);
                self.marks.set(zone, Marks::NONE);
            }
        }
    }

    /// Erases blocks, not before `at`. Those that are worn out are not used any more.
    fn erase_blocks(&mut self, at: Nanos, mut blocks: Vec<Option<u32>>) {
        for block in &mut blocks {
            let is_good = block.is_some_and(|block| self.nand.erase(at, block).is_ok());
            *block = block.filter(|_| is_good);
        }
        self.give_blocks(blocks);
    }

    /// Sectors in memory need not reach flash.
    fn forget_waiting(&mut self, waiting: impl IntoIterator<Item = Waiting>) {
        for sector in waiting {
            self.release(sector.place);
            self.occupied -= 1;
        }
    }

    fn release(&mut self, place: Option<u32>) {
        if let (Some(mirror), Some(place)) = (&mut self.mirror, place) {
            mirror.release(place);
        }
    }

    /// Programs the whole pages of a zone that can begin until `until`; the last one as it is if the zone is finished.
    fn program_pages(&mut self, zone: u32, until: Nanos) {
        let page_sectors = self.page_sectors();
        loop {
            let found = &self.zones[zone as usize];
            let sectors = (found.waiting.len() as u32).min(page_sectors);
            if sectors == 0 || (sectors < page_sectors && !found.is_finished) {
                return;
            }
            let page = found.programmed / page_sectors;
            let (slot, index) = (page % self.zoning.blocks, page / self.zoning.blocks);
            let block = found.blocks[slot as usize].expect("a zone that is written has its blocks");
            let plane = self.nand.geometry().plane_of(block);
            let ready = found.waiting[sectors as usize - 1].ready;
            let start = ready.max(self.nand.lines().plane_free(plane));
            if start > until {
                return;
            }
            let first = zone * self.zone_sectors() + found.programmed;
            let mut spare = Spare { units: [NO_UNIT; PAGE_PIECES_MAX], ..Spare::default() };
            let mut pieces = [const { None }; PAGE_PIECES_MAX];
            let found = &mut self.zones[zone as usize];
            found.programmed += sectors;
            let taken: Vec<Waiting> = found.waiting.drain(..sectors as usize).collect();
            let mut places = [None; PAGE_PIECES_MAX];
            for (at, Waiting { piece, place, .. }) in taken.into_iter().enumerate() {
                (pieces[at], places[at], spare.units[at]) = (piece, place, first + at as u32);
            }
            let page = block * self.nand.geometry().pages_per_block + index;
            let done = self.nand.program(start, page, spare, &pieces[..page_sectors as usize]);
            // The file behind the flash has them from now on.
            places.into_iter().for_each(|place| self.release(place));
            self.leaving.extend((0..sectors).map(|_| Reverse(done)));
        }
    }

    /// When memory has taken in so many sectors, not before `at`: the command waits until others have left.
    fn wait_for_room(&mut self, sectors: usize, mut at: Nanos) -> Nanos {
        loop {
            while let Some(&Reverse(end)) = self.leaving.peek()
                && (end <= at || self.occupied + sectors > self.limit)
            {
                at = at.max(end);
                self.leaving.pop();
                self.occupied -= 1;
            }
            if self.occupied + sectors <= self.limit {
                self.occupied += sectors;
                return at;
            }
            // Those whose end is known do not leave enough room: let flash go ahead.
            for zone in self.busy.clone() {
                if self.zones[zone as usize].is_being_reset() {
                    self.conclude(zone);
                }
                self.program_pages(zone, Nanos::MAX);
            }
        }
    }

    /// Zones that are partly written.
    fn active(&self) -> impl Iterator<Item = u32> {
        let full = self.zone_sectors();
        (0..).zip(&self.zones).filter(move |(_, zone)| zone.is_active(full)).map(|(number, _)| number)
    }

    /// The zone that a write goes to, if the rules of zones allow it.
    fn zone_for(&self, offset: u64, len: u64) -> Result<u32, MediaError> {
        let Some(beginning) = self.shape.beginning_of(offset) else {
            return Err(MediaError::ZoneEnd { offset, end: self.shape.start });
        };
        let zone = self.zone_at(beginning)?;
        let end = beginning + self.shape.bytes;
        if offset + len > end {
            return Err(MediaError::ZoneEnd { offset, end });
        }
        let found = &self.zones[zone as usize];
        if found.is_full(self.zone_sectors()) {
            return Err(MediaError::ZoneFull { offset });
        }
        let pointer = beginning + u64::from(found.written) * PIECE_BYTES as u64;
        if offset != pointer {
            return Err(MediaError::WritePointer { offset, pointer });
        }
        let most = self.shape.max_active;
        let others = self.active().filter(|active| *active != zone).count();
        if found.written == 0 && others >= most as usize {
            return Err(MediaError::ActiveZones { offset, most });
        }
        Ok(zone)
    }

    /// One write command at a zone's pointer. Returns when it completes.
    fn write_command(&mut self, now: Nanos, zone: u32, data: &[u8]) -> Nanos {
        self.counters.write(data.len());
        let start = self.host.admit(now);
        let sectors = data.len() / PIECE_BYTES;
        let room = self.wait_for_room(sectors, start);
        let done = self.host.write(start, sectors as u64, data.len() as u64, room);
        // What has completed is there from the zone's beginning on, without a gap.
        let done = done.max(self.zones[zone as usize].last_done);
        self.host.enqueue(done);
        let first = zone * self.zone_sectors();
        for sector in data.as_chunks::<PIECE_BYTES>().0 {
            let piece = piece_in(self.nand.take_used_piece(), sector);
            let found = &mut self.zones[zone as usize];
            let place = self.mirror.as_mut().map(|mirror| mirror.keep(first + found.written, &piece));
            found.waiting.push_back(Waiting { piece, ready: done, place });
            found.written += 1;
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.commit();
        }
        let found = &mut self.zones[zone as usize];
        found.last_done = done;
        found.under_way.push_back((done, found.written));
        done
    }

    /// A command for a zone that takes effect when it completes.
    fn change(&mut self, now: Nanos, offset: u64, flash_ns: Nanos, change: impl FnOnce(Zone) -> Zone) -> Outcome {
        self.advance(now);
        let start = self.host.admit(now);
        let done = self.host.write(start, 0, 0, start) + flash_ns;
        self.host.enqueue(done);
        match self.zone_at(offset) {
            Ok(zone) => {
                // What was asked for before has happened then.
                self.conclude(zone);
                let found = std::mem::take(&mut self.zones[zone as usize]);
                self.zones[zone as usize] = change(Zone { last_done: found.last_done.max(done), ..found });
                self.busy.insert(zone);
                let done = self.zones[zone as usize].last_done;
                if let Some((ends, _)) = &mut self.zones[zone as usize].change {
                    *ends = done;
                }
                Outcome::at(done, self.nand.failure())
            }
            Err(error) => Outcome::failed(done, error),
        }
    }
}

impl Model for ZonedDrive {
    fn describe(&self) -> Shape {
        let capacity_bytes = self.shape.start + self.zones.len() as u64 * self.shape.bytes;
        // Of a write to a zone, a power cut may leave any part.
        Shape { capacity_bytes, atomic_write_bytes: 0, zones: Some(self.shape), ..self.conventional.describe() }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        let before = self.shape.start.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (conventional, zones) = buffer.split_at_mut(before);
        let outcome = match conventional {
            [] => Outcome::ok(now),
            _ => self.conventional.read(now, offset, conventional),
        };
        if zones.is_empty() || outcome.result.is_err() {
            return outcome;
        }
        let done = self.read_zones(now, offset + before as u64, zones);
        Outcome::at(done.max(outcome.done), self.nand.failure())
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.advance(now);
        let len = data.len() as u64;
        if offset + len <= self.shape.start {
            return self.conventional.write(now, offset, data, durable);
        }
        if data.is_empty() {
            return Outcome::ok(now);
        }
        if let Some(beginning) = self.shape.beginning_of(offset)
            && let Ok(zone) = self.zone_at(beginning)
            && self.zones[zone as usize].is_being_reset()
        {
            self.conclude(zone);
        }
        let zone = match self.zone_for(offset, len) {
            Ok(zone) => zone,
            Err(error) => return Outcome::failed(now + self.interface.command_ns, error),
        };
        if !self.take_blocks(zone) {
            return Outcome::failed(now, MediaError::WornOut);
        }
        self.busy.insert(zone);
        let commands = data.chunks(self.interface.max_command_bytes as usize);
        let done = commands.map(|command| self.write_command(now, zone, command)).max().unwrap_or(now);
        Outcome::at(done, self.nand.failure())
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.advance(now);
        // The zones' memory is protected: they have nothing to do.
        self.conventional.flush(now)
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        self.advance(now);
        // In a zone it is a hint that nothing follows from.
        let conventional = self.shape.start.saturating_sub(offset).min(len);
        self.conventional.discard(now, offset, conventional)
    }

    fn reset_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        self.counters.zone_resets += 1;
        let is_empty = self.zone_at(offset).is_ok_and(|zone| self.zones[zone as usize].is_empty());
        let erase_ns = if is_empty { 0 } else { self.nand.timing().erase_ns };
        self.change(now, offset, erase_ns, |before| Zone {
            last_done: before.last_done,
            change: Some((0, Change::Reset { before: Box::new(before) })),
            ..Zone::default()
        })
    }

    fn finish_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        self.counters.zone_finishes += 1;
        self.change(now, offset, 0, |zone| Zone { change: Some((0, Change::Finish)), ..zone })
    }

    fn active_zones(&self) -> Vec<u64> {
        self.active().map(|zone| self.beginning_of(zone)).collect()
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        let before = self.shape.start.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (conventional, zones) = buffer.split_at_mut(before);
        self.conventional.peek(offset, conventional);
        if !zones.is_empty() {
            self.copy(offset + before as u64, zones, |_, _| ());
        }
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.advance(now);
        self.conventional.power_cut(now, random);
        self.cut_zones(now, random);
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        let ready = self.conventional.power_on(now).max(self.restart_zones(now));
        self.host.reset(ready);
        ready
    }

    fn catch_up(&mut self, now: Nanos) {
        self.advance(now);
        self.conventional.catch_up(now);
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        self.advance(now);
        for zone in self.busy.clone() {
            self.conclude(zone);
            self.program_pages(zone, Nanos::MAX);
        }
        let done = self.leaving.iter().map(|Reverse(done)| *done).max().unwrap_or(now);
        self.conventional.shut_down(now).max(done)
    }

    fn counters(&self) -> Counters {
        self.conventional.counters() + self.nand.counters() + self.counters
    }
}

#[cfg(test)]
mod tests;
