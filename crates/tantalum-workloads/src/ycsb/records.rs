//! Records: their keys, their contents, and which of them there are.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum::{Db, Table};
use tantalum_rt::{Mutex, Random};

use super::load_phase::Parameters;
use super::mix::Chooser;
use crate::choice::{Zipf, bytes};
use crate::error::Result;

/// The shape of Zipf's distribution, as YCSB has it.
const SHAPE: f64 = 0.99;

/// The key of the record with this number: its order among the others looks like chance.
pub(super) fn key(number: u64) -> Vec<u8> {
    format!("user{:020}", mix(number)).into_bytes()
}

/// Another number for each number (the finalizer of splitmix64, which can be undone).
fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// A new value of a field.
pub(super) fn field(parameters: &Parameters, random: &mut Random) -> Vec<u8> {
    let field_bytes = parameters.field_bytes as usize;
    let random_bytes = (field_bytes * parameters.random_percent as usize).div_ceil(100);
    bytes(random, random_bytes, b' ', b'~').into_iter().cycle().take(field_bytes).collect()
}

/// A new record's fields.
pub(super) fn record(parameters: &Parameters, random: &mut Random) -> Vec<u8> {
    (0..parameters.fields).flat_map(|_| field(parameters, random)).collect()
}

/// The record numbers in use, and how one is chosen among them.
pub(super) struct Records {
    zipf: Zipf,
    /// The number of the record that is inserted next.
    next: AtomicU64,
    /// Records before this one have all been inserted.
    inserted: AtomicU64,
    /// Records from that one on that have been inserted.
    ahead: Mutex<BTreeSet<u64>>,
}

impl Records {
    /// Finds out how many records there are. Of inserts that a crash cut off some may be missing among others; they are
    /// made up for.
    pub(super) fn find(db: &Db, table: &Table, parameters: &Parameters) -> Result<Self> {
        /// More than inserts can be under way at the same time.
        const GAP: u64 = 10_000;
        let snapshot = db.snapshot()?;
        let (mut count, mut missing, mut number) = (parameters.records, Vec::new(), parameters.records);
        // Numbers are given in order: after so many that no insert used, no more follow.
        while number - count < GAP.min(parameters.records.max(1000)) {
            if snapshot.get(table, key(number))?.is_some() {
                count = number + 1;
            } else {
                missing.push(number);
            }
            number += 1;
        }
        let mut random = Random::with_seed(parameters.seed);
        for number in missing.into_iter().filter(|&number| number < count) {
            let mut tx = db.begin()?;
            tx.put(table, key(number), record(parameters, &mut random))?;
            tx.commit()?;
        }
        let zipf = Zipf::new(parameters.records, SHAPE);
        Ok(Self { zipf, ..Self::loaded(count) })
    }

    /// Those that were loaded, and no others.
    pub(super) fn loaded(count: u64) -> Self {
        Self {
            zipf: Zipf::new(count, SHAPE),
            next: AtomicU64::new(count),
            inserted: AtomicU64::new(count),
            ahead: Mutex::new(BTreeSet::new()),
        }
    }

    /// A record that is there.
    pub(super) fn choose(&self, chooser: Chooser, random: &mut Random) -> u64 {
        let count = self.inserted.load(Ordering::Acquire);
        match chooser {
            Chooser::Uniform => random.u64(0..count),
            Chooser::Zipfian => mix(self.zipf.choose(random)) % count,
            Chooser::Latest => count - 1 - self.zipf.choose(random),
        }
    }

    /// A number for a new record.
    pub(super) fn reserve(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// From now on the record may be chosen, once all before it may.
    pub(super) fn add(&self, number: u64) {
        let mut ahead = self.ahead.lock();
        ahead.insert(number);
        let mut count = self.inserted.load(Ordering::Relaxed);
        while ahead.remove(&count) {
            count += 1;
        }
        self.inserted.store(count, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_have_one_length() {
        let keys: BTreeSet<Vec<u8>> = (0..10_000).map(key).collect();
        assert!(keys.len() == 10_000 && keys.iter().all(|key| key.len() == 24));
        assert!(key(1) > key(2) || key(2) > key(3) || key(3) > key(4), "not in the order of numbers");
    }

    #[test]
    fn choosers_have_their_favourites() {
        let (records, mut random) = (Records::loaded(1000), Random::with_seed(1));
        let mut counts = |chooser| {
            let mut counts = vec![0u32; 1000];
            (0..50_000).for_each(|_| counts[records.choose(chooser, &mut random) as usize] += 1);
            counts
        };
        let latest = counts(Chooser::Latest);
        assert!(latest[999] > latest[998] && latest[998] > latest[900]);
        let zipfian = counts(Chooser::Zipfian);
        assert_eq!(zipfian.iter().max(), Some(&zipfian[(mix(0) % 1000) as usize]));
        assert!(*counts(Chooser::Uniform).iter().max().unwrap() < 100);
    }

    #[test]
    fn what_is_not_inserted_is_not_chosen() {
        let (records, mut random) = (Records::loaded(10), Random::with_seed(1));
        let numbers = [records.reserve(), records.reserve(), records.reserve()];
        assert_eq!(numbers, [10, 11, 12]);
        records.add(12);
        records.add(11);
        assert!((0..100).all(|_| records.choose(Chooser::Uniform, &mut random) < 10), "10 is under way");
        records.add(10);
        let latest: BTreeSet<u64> = (0..200).map(|_| records.choose(Chooser::Latest, &mut random)).collect();
        assert!(latest.contains(&12) && latest.contains(&10));
    }
}
