//! A search of power cuts against the simplest model there is: what may a sector hold after a cut?
//!
//! Every write gives its sectors a number. After a cut a sector must hold the number of the last write that was made
//! durable, or of any later one; half of a sector is never acceptable here, and reads always see the latest write.

use std::collections::BTreeMap;

use tantalum_device::WriteCache;
use tantalum_flash::{Model, Nanos, Outcome, Ticket};
use tantalum_rt::Random;

const SECTOR: usize = 512;

/// When an operation ended, as far as is known.
#[derive(Debug, Clone, Copy)]
struct End {
    done: Nanos,
    /// If it is queued. `done` is then when to ask.
    ticket: Option<Ticket>,
}

impl From<&Outcome> for End {
    fn from(outcome: &Outcome) -> Self {
        Self { done: outcome.done, ticket: outcome.ticket }
    }
}

impl End {
    const LONG_AGO: Self = Self { done: 0, ticket: None };

    /// Looks again at `now`: what has ended by then is known to have.
    fn look(&mut self, model: &mut dyn Model, now: Nanos) {
        while let Some(ticket) = self.ticket.filter(|_| self.done <= now) {
            match model.ask_again(now, ticket) {
                Some(later) => {
                    assert!(later > now, "a model names a later time");
                    self.done = later;
                }
                None => (self.ticket, self.done) = (None, now),
            }
        }
    }

    fn is_over(&self, now: Nanos) -> bool {
        self.ticket.is_none() && self.done <= now
    }
}

/// What was written to one sector since it was last known for certain.
#[derive(Debug)]
struct Sector {
    /// By order of submission: number, whether the write was durable by itself.
    writes: Vec<(u64, bool)>,
    /// Acceptable writes begin here.
    secured: usize,
}

impl Default for Sector {
    fn default() -> Self {
        Self { writes: vec![(0, true)], secured: 0 }
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
    /// Of each write, by its number.
    ends: Vec<End>,
    latest_done: Nanos,
    /// Flushes: submission and completion.
    flushes: Vec<(Nanos, End)>,
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
    /// Asks about everything that is queued.
    fn look(&mut self, now: Nanos) {
        for end in self.ends.iter_mut().chain(self.flushes.iter_mut().map(|flush| &mut flush.1)) {
            end.look(self.model, now);
        }
    }

    /// Waits until everything has ended.
    fn wait(&mut self) {
        self.now = self.now.max(self.latest_done);
        loop {
            self.look(self.now);
            let ends = self.ends.iter().chain(self.flushes.iter().map(|flush| &flush.1));
            let Some(later) = ends.filter(|end| !end.is_over(self.now)).map(|end| end.done).min() else { break };
            self.now = later;
        }
    }

    fn write(&mut self, random: &mut Random, search: &Search, append: &mut u64) {
        let count = random.u64(1..=search.largest);
        let sector = match random.u8(..4) {
            0..2 => std::mem::replace(append, (*append + count) % (search.sectors - search.largest)),
            2 => random.u64(..search.sectors - count),
            _ => append.saturating_sub(random.u64(..8)),
        };
        let durable = random.bool();
        let number = self.ends.len() as u64;
        let mut data = vec![0; count as usize * SECTOR];
        fill(&mut data, sector, number);
        let handle = number as u32 % self.model.describe().placement_handles;
        let outcome = self.model.write_placed(self.now, sector * SECTOR as u64, &data, durable, handle);
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.done > self.now);
        self.latest_done = self.latest_done.max(outcome.done);
        self.ends.push(End::from(&outcome));
        for touched in sector..sector + count {
            self.sectors.entry(touched).or_default().writes.push((number, durable));
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
        self.look(at);
        for held in self.sectors.values_mut() {
            let is_safe = |&(number, durable): &(u64, bool)| {
                let end = self.ends[number as usize];
                let is_flushed = |&(from, until): &(Nanos, End)| end.is_over(from) && until.is_over(at);
                end.is_over(at) && (durable || !is_volatile || self.flushes.iter().any(is_flushed))
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
        self.ends.fill(End::LONG_AGO);
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
            *held = Sector { writes: vec![(found, true)], secured: 0 };
        }
    }
}

/// Runs random operations and cuts on a new model, and panics where it breaks its promises.
pub fn search(seed: u64, model: &mut dyn Model, search: Search) {
    let random = &mut Random::with_seed(seed);
    let ends = vec![End::LONG_AGO];
    let mut run = Run { model, sectors: BTreeMap::new(), now: 0, ends, latest_done: 0, flushes: Vec::new() };
    let mut append = 0;
    for _ in 0..search.cuts {
        for _ in 0..random.u32(1..=search.operations) {
            match random.u8(..10) {
                0 => {
                    run.look(run.now);
                    let outcome = run.model.flush(run.now);
                    assert_eq!(outcome.result, Ok(()));
                    run.flushes.push((run.now, End::from(&outcome)));
                    run.latest_done = run.latest_done.max(outcome.done);
                }
                1 | 2 => run.read(random, &search),
                _ => run.write(random, &search, &mut append),
            }
            // Now and then several operations are under way at once.
            if random.u8(..4) != 0 {
                run.wait();
                run.now += u64::from(random.bool()) * random.u64(..20_000_000);
            }
        }
        run.cut(random, &search);
    }
}
