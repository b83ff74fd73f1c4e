//! A search of power cuts against the simplest model there is: what may a sector hold after a cut?
//!
//! Every write gives its sectors a number. After a cut a sector must hold the number of the last write that was made
//! durable, or of any later one; half of a sector is never acceptable here, and reads always see the latest write.

use std::collections::BTreeMap;

use tantalum_device::WriteCache;
use tantalum_flash::{Model, Nanos};
use tantalum_rt::Random;

const SECTOR: usize = 512;

/// What was written to one sector since it was last known for certain.
#[derive(Debug)]
struct Sector {
    /// By order of submission: number, completion, whether the write was durable by itself.
    writes: Vec<(u64, Nanos, bool)>,
    /// Acceptable writes begin here.
    secured: usize,
}

impl Default for Sector {
    fn default() -> Self {
        Self { writes: vec![(0, 0, true)], secured: 0 }
    }
}

/// The shape of a search.
#[derive(Debug, Clone, Copy)]
pub struct Search {
    /// Operations between two cuts are at most this.
    pub operations: u32,
    /// Cuts of one run.
    pub cuts: u32,
    /// The range of sectors that are used, from the beginning of the device.
    pub sectors: u64,
    /// Largest write in sectors.
    pub largest: u64,
}

struct Run<'a> {
    model: &'a mut dyn Model,
    sectors: BTreeMap<u64, Sector>,
    now: Nanos,
    next_number: u64,
    latest_done: Nanos,
    /// Flushes: submission and completion.
    flushes: Vec<(Nanos, Nanos)>,
}

fn fill(buffer: &mut [u8], sector: u64, number: u64) {
    for (i, sector_bytes) in buffer.chunks_mut(SECTOR).enumerate() {
        for word in sector_bytes.chunks_mut(16) {
            word[..8].copy_from_slice(&(sector + i as u64).to_le_bytes());
            word[8..].copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// The number that a sector holds; 0 if it was never written.
fn number_of(bytes: &[u8], sector: u64) -> u64 {
    let number = u64::from_le_bytes(bytes[8..16].try_into().expect("eight bytes"));
    let mut expected = [0; SECTOR];
    if number != 0 {
        fill(&mut expected, sector, number);
    }
    assert!(bytes == expected, "sector {sector} is whole: {:?}", &bytes[..32]);
    number
}

impl Run<'_> {
    fn write(&mut self, random: &mut Random, search: &Search, append: &mut u64) {
        let count = random.u64(1..=search.largest);
        let sector = match random.u8(..4) {
            0..2 => std::mem::replace(append, (*append + count) % (search.sectors - search.largest)),
            2 => random.u64(..search.sectors - count),
            _ => append.saturating_sub(random.u64(..8)),
        };
        let durable = random.bool();
        let number = self.next_number;
        self.next_number += 1;
        let mut data = vec![0; count as usize * SECTOR];
        fill(&mut data, sector, number);
        let outcome = self.model.write(self.now, sector * SECTOR as u64, &data, durable);
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.done > self.now);
        self.latest_done = self.latest_done.max(outcome.done);
        for touched in sector..sector + count {
            self.sectors.entry(touched).or_default().writes.push((number, outcome.done, durable));
        }
    }

    fn read(&mut self, random: &mut Random, search: &Search) {
        let count = random.u64(1..=search.largest);
        let sector = random.u64(..search.sectors - count);
        let mut buffer = vec![0; count as usize * SECTOR];
        let outcome = self.model.read(self.now, sector * SECTOR as u64, &mut buffer);
        assert_eq!(outcome.result, Ok(()));
        self.latest_done = self.latest_done.max(outcome.done);
        for (i, bytes) in buffer.chunks(SECTOR).enumerate() {
            let at = sector + i as u64;
            let latest = self.sectors.get(&at).and_then(|held| held.writes.last()).map_or(0, |write| write.0);
            assert_eq!(number_of(bytes, at), latest, "sector {at} reads as it was written last");
        }
    }

    fn cut(&mut self, random: &mut Random, search: &Search) {
        let is_volatile = self.model.describe().write_cache == WriteCache::Volatile;
        // Often in the middle of something, sometimes long after it.
        let span = self.latest_done.saturating_sub(self.now) + 1;
        let at = self.now + if random.u8(..8) == 0 { 100 * span } else { random.u64(..2 * span) };
        for held in self.sectors.values_mut() {
            let is_safe = |&(_, done, durable): &(u64, Nanos, bool)| {
                done <= at
                    && (durable
                        || !is_volatile
                        || self.flushes.iter().any(|&(from, until)| done <= from && until <= at))
            };
            held.secured = held.writes.iter().rposition(is_safe).unwrap_or(held.secured);
        }
        self.model.power_cut(at, random);
        let mut ready = self.model.power_on(at);
        let mut last = at;
        while random.u8(..3) == 0 {
            last = random.u64(last..=ready.max(last + 1));
            self.model.power_cut(last, random);
            ready = self.model.power_on(last);
        }
        self.now = ready;
        self.flushes.clear();
        for sector in 0..search.sectors {
            let mut bytes = [0; SECTOR];
            assert_eq!(self.model.read(self.now, sector * SECTOR as u64, &mut bytes).result, Ok(()));
            let found = number_of(&bytes, sector);
            let held = self.sectors.entry(sector).or_default();
            let allowed = &held.writes[held.secured..];
            assert!(
                allowed.iter().any(|write| write.0 == found),
                "sector {sector} holds write {found} after the cut at {at}, not one of {allowed:?}"
            );
            *held = Sector { writes: vec![(found, 0, true)], secured: 0 };
        }
    }
}

/// Runs random operations and cuts on a new model, and panics where it breaks its promises.
pub fn search(seed: u64, model: &mut dyn Model, search: Search) {
    let random = &mut Random::with_seed(seed);
    let mut run = Run { model, sectors: BTreeMap::new(), now: 0, next_number: 1, latest_done: 0, flushes: Vec::new() };
    let mut append = 0;
    for _ in 0..search.cuts {
        for _ in 0..random.u32(1..=search.operations) {
            match random.u8(..10) {
                0 => {
                    let outcome = run.model.flush(run.now);
                    assert_eq!(outcome.result, Ok(()));
                    run.flushes.push((run.now, outcome.done));
                    run.latest_done = run.latest_done.max(outcome.done);
                }
                1 | 2 => run.read(random, &search),
                _ => run.write(random, &search, &mut append),
            }
            // Now and then several operations are under way at once.
            if random.u8(..4) != 0 {
                run.now = run.now.max(run.latest_done) + u64::from(random.bool()) * random.u64(..20_000_000);
            }
        }
        run.cut(random, &search);
    }
}
