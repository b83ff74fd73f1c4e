//! The promise of the durable cache, under power cuts at any time.

use tantalum_rt::Random;

use crate::{Model, Nanos, Profile};

fn drive(capacitors: u32) -> Box<dyn Model> {
    let text = Profile::text("durassd").unwrap();
    let text = text.replace("count = 15", &format!("count = {capacitors}"));
    // Fewer planes and smaller blocks, so that collection and cuts meet.
    let text = text.replace("packages_per_channel = 4", "packages_per_channel = 1");
    let text = text.replace("channels = 8", "channels = 2").replace("pages_per_block = 128", "pages_per_block = 16");
    let text = text.replace("pool_bytes = 8388608", "pool_bytes = 262144");
    let text = text.replace("max_command_bytes = 524288", "max_command_bytes = 65536");
    Profile::parse("small-durassd", &text).unwrap().with_capacity(CAPACITY).build().unwrap()
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
