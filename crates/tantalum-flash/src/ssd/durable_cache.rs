//! A durable cache: memory that capacitors keep alive for long enough to dump it ("Durable Write Cache in Flash Memory
//! SSD for Relational and NoSQL Databases", SIGMOD 2014, section 3).
//!
//! Promises: a write that has completed is there after a power cut, whole; one that has not is there whole or not at
//! all. That holds as long as the dump fits the energy of the capacitors. One that does not is counted
//! ([`Counters::dump_overruns`](crate::Counters)) and loses what was to be dumped last.
//!
//! - The buffer pool and its flusher are those of [`super`]: queues by channel, coalescing, two sectors to a page.
//! - Atomic writer (section 3.2): a command counts from its completion on; a dump leaves incomplete ones out.
//! - Recovery manager (section 3.4): the dump, and its replay at the next start.
//!
//! The dump area is a group of blocks on every plane that is clean whenever the drive answers (section 3.4.1), so that
//! nothing need be erased or mapped. A page of it is self-contained: its spare area names the sectors. The last page
//! says that the dump is complete. Recovery is idempotent: the area is erased only when flash holds all that was in it,
//! and until then the drive answers no command, so that recovery can begin again after another cut.

use serde::Deserialize;
use tantalum_device::sparse::Piece;
use tantalum_rt::Random;

use super::SolidState;
use crate::Nanos;
use crate::ftl::page_mapped::{Changes, kind, pairs, pieces_of};
use crate::nand::{Block, NO_UNIT, PAGE_PIECES_MAX, PageState, Spare};

/// The capacitors, and what they must feed, as a profile gives them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacitors {
    /// How many; 0 makes the memory volatile in truth, though the drive still claims that it is not.
    pub count: u32,
    /// Capacity of each, in microfarads.
    pub microfarads: f64,
    /// Voltage when charged.
    pub full_volts: f64,
    /// Voltage below which the drive stops.
    pub empty_volts: f64,
    /// What the drive draws while it dumps.
    pub dump_watts: f64,
    /// Time to charge them when power returns.
    pub recharge_ns: Nanos,
}

impl Capacitors {
    /// How long the drive goes on without power: half the capacity times the difference of the squares of the voltages,
    /// over the power.
    pub fn hold_ns(&self) -> Nanos {
        let farads = f64::from(self.count) * self.microfarads * 1e-6;
        let joules = farads * (self.full_volts.powi(2) - self.empty_volts.powi(2)) / 2.0;
        (joules.max(0.0) / self.dump_watts * 1e9).round() as Nanos
    }
}

/// The state of a protected memory.
#[derive(Debug)]
pub(crate) struct Protection {
    hold_ns: Nanos,
    recharge_ns: Nanos,
    /// Memory is restored, and can be dumped, from then on.
    ready: Nanos,
}

impl Protection {
    /// Memory under charged capacitors.
    pub fn new(capacitors: &Capacitors) -> Self {
        Self { hold_ns: capacitors.hold_ns(), recharge_ns: capacitors.recharge_ns, ready: 0 }
    }
}

/// Writes pages of a dump, a plane after the other.
struct Writer {
    plane: u32,
    at: Nanos,
    done: Nanos,
    pages: u32,
}

impl SolidState {
    /// The power fails: dumps memory as long as the capacitors hold.
    pub(super) fn dump(&mut self, now: Nanos, random: &mut Random) {
        let Some(protection) = &self.protection else { return };
        // A cut during recovery finds nothing in memory that the dump area does not hold.
        if now >= protection.ready {
            let dead = now + protection.hold_ns;
            self.ftl.retract(now);
            self.dump_until(now, dead);
            self.ftl.nand.power_cut(dead, random);
        } else {
            self.ftl.nand.power_cut(now, random);
        }
    }

    fn dump_until(&mut self, now: Nanos, dead: Nanos) {
        let unwritten = self.pool.unwritten(now);
        let changes: Vec<_> = self.ftl.changes_to_dump().collect();
        let sectors_per_page = self.ftl.layout.page_sectors as usize;
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
        let layout = &self.ftl.layout;
        let geometry = layout.geometry;
        let plane = writer.plane % geometry.planes();
        let mut blocks = layout.dump_blocks(plane);
        let nand = &self.ftl.nand;
        let open = blocks.find(|&block| nand.block(block).next_page < geometry.pages_per_block);
        let (Some(block), true) = (open, nand.lines().plane_free(plane) < dead) else {
            writer.done = Nanos::MAX;
            return Nanos::MAX;
        };
        let page = block * geometry.pages_per_block + nand.block(block).next_page;
        let sequence = self.ftl.next_sequence();
        let done = self.ftl.nand.program(writer.at, page, Spare { sequence, ..spare }, pieces);
        writer.done = writer.done.max(done);
        writer.plane += 1;
        writer.pages += 1;
        done
    }

    /// Power returns: charges the capacitors, rebuilds the map, replays the dump, and clears its area. Returns when the
    /// drive answers.
    pub(super) fn recover_dump(&mut self, now: Nanos) -> Nanos {
        let Some(protection) = &self.protection else { return now };
        let charged = now + protection.recharge_ns;
        let (mut sectors, changes, read) = self.read_dump(charged);
        sectors.extend(self.mirrored_within_energy());
        let mapped = self.ftl.recover(read, &changes);
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
        let mut sectors = self.pool.mirrored();
        let (layout, hold_ns) = (&self.ftl.layout, self.protection.as_ref().map_or(0, |protection| protection.hold_ns));
        let pages = hold_ns / self.ftl.nand.timing().program_ns.max(1) * u64::from(layout.geometry.planes());
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
        let page_bytes = self.ftl.layout.geometry.page_bytes;
        for page in self.dump_pages() {
            done = done.max(self.ftl.nand.read(now, page, page_bytes));
            let spare = self.ftl.nand.spare(page);
            if spare.state == PageState::Programmed {
                pages.push((spare.sequence, page));
            }
        }
        pages.sort_unstable();
        let (mut sectors, mut changes) = (Vec::new(), Vec::new());
        for (sequence, page) in pages {
            let spare = *self.ftl.nand.spare(page);
            match spare.kind {
                kind::DUMP_SECTORS => {
                    let named = spare.units.into_iter().enumerate().filter(|&(_, unit)| unit != NO_UNIT);
                    sectors.extend(named.map(|(index, unit)| (unit, self.ftl.nand.piece(page, index))));
                }
                kind::DUMP_CHANGES => changes.push((sequence, pairs(&self.ftl.page_words(page), spare.units[0]))),
                _ => {}
            }
        }
        (sectors, changes, done)
    }

    /// Programs dumped sectors where any sector goes, and journals the map.
    fn replay(&mut self, now: Nanos, sectors: &[(u32, Piece)]) -> Nanos {
        let limit = self.ftl.layout.page_sectors;
        let channels = self.ftl.layout.geometry.channels;
        let mut queues = vec![Vec::new(); channels as usize];
        for sector in sectors {
            queues[(sector.0 / limit % channels) as usize].push(sector.clone());
        }
        let mut done = now;
        for (channel, queue) in queues.iter().enumerate() {
            for batch in queue.chunks(limit as usize) {
                if !self.ftl.has_room(channel as u32, 0) {
                    self.counters.dump_lost_sectors += batch.len() as u64;
                    continue;
                }
                done = done.max(self.ftl.program(now, channel as u32, 0, batch));
            }
        }
        self.ftl.sync(done)
    }

    /// Erases what was used of the dump area. If too little of it is left for the next dump, nothing more is written.
    fn clear_dump(&mut self, now: Nanos) -> Nanos {
        let layout = &self.ftl.layout;
        let blocks: Vec<u32> = (0..layout.geometry.planes()).flat_map(|plane| layout.dump_blocks(plane)).collect();
        let mut done = now;
        for block in blocks {
            let Block { next_page, is_bad, .. } = self.ftl.nand.block(block);
            if next_page > 0 && !is_bad {
                // One that is worn out stays as it is, and holds nothing.
                done = done.max(self.ftl.nand.erase(now, block).unwrap_or_else(|worn| worn.done));
            }
        }
        let layout = &self.ftl.layout;
        let is_good = |block: &u32| !self.ftl.nand.block(*block).is_bad;
        let good = |plane: u32| layout.dump_blocks(plane).filter(is_good).count();
        if (0..layout.geometry.planes()).any(|plane| good(plane) < layout.dump_blocks_min()) {
            self.ftl.is_read_only = true;
        }
        done
    }

    fn dump_pages(&self) -> Vec<u32> {
        let layout = &self.ftl.layout;
        let pages = layout.geometry.pages_per_block;
        let blocks = (0..layout.geometry.planes()).flat_map(|plane| layout.dump_blocks(plane));
        let written = |block: u32| block * pages..block * pages + self.ftl.nand.block(block).next_page;
        blocks.flat_map(written).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Model, Profile};

    fn drive(capacitors: u32) -> Box<dyn Model> {
        let text = Profile::text("durassd").unwrap();
        let text = text.replace("count = 15", &format!("count = {capacitors}"));
        // Fewer planes and smaller blocks, so that collection and cuts meet.
        let text = text.replace("packages_per_channel = 4", "packages_per_channel = 1");
        let text =
            text.replace("channels = 8", "channels = 2").replace("pages_per_block = 128", "pages_per_block = 16");
        let text = text.replace("pool_bytes = 8388608", "pool_bytes = 262144");
        let text = text.replace("max_command_bytes = 524288", "max_command_bytes = 65536");
        Profile::parse("small-durassd", &text).unwrap().with_capacity(CAPACITY).build().unwrap()
    }

    #[test]
    fn capacitors_hold_by_their_energy() {
        let (full_volts, empty_volts, dump_watts) = (10.0, 5.0, 7.5);
        let ten = Capacitors { count: 10, microfarads: 200.0, full_volts, empty_volts, dump_watts, recharge_ns: 0 };
        assert_eq!(ten.hold_ns(), 10_000_000, "0.002 F x 75 V² / 2 / 7.5 W");
    }

    const CAPACITY: u64 = 2 << 20;
    const SECTORS: usize = (CAPACITY / 4096) as usize;

    /// What the host knows: the last acknowledged write of each sector, and the writes not acknowledged since.
    struct Oracle {
        now: Nanos,
        versions: Vec<u64>,
        /// End, first sector, sectors, version.
        under_way: Vec<(Nanos, usize, usize, u64)>,
        next: u64,
    }

    impl Oracle {
        fn write(&mut self, drive: &mut dyn Model, random: &mut Random) {
            let sectors = 1 + random.usize(0..8).saturating_sub(4);
            let first = random.usize(0..SECTORS - sectors);
            self.next += 1;
            let data = [self.next; 512].map(u64::to_le_bytes).concat().repeat(sectors);
            let outcome = drive.write(self.now, first as u64 * 4096, &data, false);
            outcome.result.unwrap();
            self.under_way.push((outcome.done, first, sectors, self.next));
        }

        fn settle(&mut self, now: Nanos) {
            self.now = now;
            for &(_, first, sectors, version) in self.under_way.iter().filter(|write| write.0 <= now) {
                self.versions[first..first + sectors].fill(version);
            }
            self.under_way.retain(|write| write.0 > now);
        }

        /// Compares after a cut, and returns how many sectors are lost or torn.
        fn check(&mut self, drive: &mut dyn Model) -> usize {
            self.under_way.clear();
            let mut wrong = 0;
            let mut data = vec![0; 4096];
            for sector in 0..SECTORS {
                drive.read(self.now, sector as u64 * 4096, &mut data).result.unwrap();
                let expected = self.versions[sector].to_le_bytes();
                if data.as_chunks::<8>().0.iter().any(|word| *word != expected) {
                    wrong += 1;
                    self.versions[sector] = u64::from_le_bytes(data[..8].try_into().unwrap());
                }
            }
            wrong
        }
    }

    /// So many cuts, each after some writes; some come while the drive recovers from the one before. Returns wrong sectors.
    fn cut_often(drive: &mut dyn Model, cuts: u64, seed: u64) -> usize {
        let mut random = Random::with_seed(seed);
        let mut oracle = Oracle { now: 0, versions: vec![0; SECTORS], under_way: Vec::new(), next: 0 };
        let mut wrong = 0;
        let mut done = 0;
        while done < cuts {
            for _ in 0..random.usize(1..60) {
                oracle.write(drive, &mut random);
                // Now and then the host waits, mostly it keeps the queue full.
                let wait = if random.u8(0..8) == 0 { random.u64(0..3_000_000) } else { random.u64(0..40_000) };
                oracle.settle(oracle.now + wait);
                match random.u8(0..40) {
                    0 => {
                        let flushed = drive.flush(oracle.now).done;
                        oracle.settle(flushed);
                    }
                    1 => oracle.settle(oracle.now + 20_000_000),
                    _ => {}
                }
            }
            drive.power_cut(oracle.now, &mut random);
            done += 1;
            oracle.under_way.clear();
            let mut ready = drive.power_on(oracle.now);
            while random.u8(0..3) == 0 {
                let cut = random.u64(oracle.now..=ready - 1);
                drive.power_cut(cut, &mut random);
                done += 1;
                ready = drive.power_on(cut);
                oracle.now = cut;
            }
            oracle.now = ready;
            wrong += oracle.check(drive);
        }
        wrong
    }

    #[test]
    fn no_acknowledged_write_is_lost_or_torn() {
        for seed in 0..20 {
            let mut drive = drive(15);
            assert_eq!(cut_often(&mut *drive, 500, seed), 0, "seed {seed}");
            let counters = drive.counters();
            assert_eq!((counters.dump_overruns, counters.dump_lost_sectors), (0, 0));
            assert!(counters.gc_copies > 0 && counters.dumped_pages > 0 && counters.coalesced > 0, "{counters:?}");
        }
    }

    #[test]
    fn without_capacitors_writes_are_lost_and_it_is_reported() {
        let mut drive = drive(0);
        assert!(cut_often(&mut *drive, 100, 1) > 0);
        let counters = drive.counters();
        assert!(counters.dump_overruns > 0 && counters.dump_lost_sectors > 0, "{counters:?}");
    }

    #[test]
    fn a_dump_that_exceeds_the_energy_loses_its_end_and_is_reported() {
        let mut drive = drive(1);
        assert!(cut_often(&mut *drive, 300, 1) > 0);
        let counters = drive.counters();
        assert!(counters.dump_overruns > 0 && counters.dumped_pages > 0, "{counters:?}");
    }
}
