//! Keys, values, and what is chosen among them: the same for all engines.

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tantalum_workloads::choice::{Scatter, Zipf};

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;

/// A number, the highest byte first, so that the order of keys is that of numbers.
pub type Key = [u8; KEY_BYTES];

/// The key with this number.
pub fn key(number: u64) -> Key {
    u128::from(number).to_be_bytes()
}

/// The number of a key that [`key`] made.
pub fn number_of(key: &[u8]) -> u64 {
    key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// What a database is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dataset {
    /// Rows, with keys from number 0.
    pub rows: u64,
    /// Bytes of each value, which no engine can compress.
    pub value_bytes: usize,
}

impl Dataset {
    /// All rows, in the order of keys.
    pub fn load(&self, seed: u64) -> impl Iterator<Item = (Key, Vec<u8>)> + use<> {
        let (mut random, value_bytes) = (Rng::with_seed(seed), self.value_bytes);
        (0..self.rows).map(move |number| {
            let mut value = vec![0; value_bytes];
            random.fill(&mut value);
            (key(number), value)
        })
    }
}

/// Which row a client picks.
#[derive(Debug)]
pub enum Chooser {
    /// All alike, among the first so many.
    Uniform(u64),
    /// A few favourites, scattered over all rows: the k-th in proportion to 1 / k^0.99, as YCSB has it.
    Zipfian {
        /// Picks a rank.
        zipf: Zipf,
        /// The row of each rank.
        scatter: Scatter,
    },
}

impl Chooser {
    /// Favourites among so many rows.
    pub fn zipfian(rows: u64) -> Self {
        const SHAPE: f64 = 0.99;
        // The same for every engine and round.
        const SEED: u64 = 7;
        Self::Zipfian { zipf: Zipf::new(rows, SHAPE), scatter: Scatter::new(rows, SEED) }
    }

    /// The number of a row.
    pub fn choose(&self, random: &mut Rng) -> u64 {
        match self {
            Self::Uniform(rows) => random.u64(0..*rows),
            Self::Zipfian { zipf, scatter } => scatter.place(zipf.choose(random)),
        }
    }

    /// So many different rows, in the order of their keys: clients that lock them in this order meet no deadlock.
    pub fn choose_different(&self, random: &mut Rng, count: usize, numbers: &mut Vec<u64>) {
        numbers.clear();
        while numbers.len() < count {
            let number = self.choose(random);
            if !numbers.contains(&number) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_is_that_of_numbers() {
        for number in [0, 255, 256, u64::MAX - 1] {
            assert_eq!(number_of(&key(number)), number);
            assert!(key(number) < key(number + 1));
        }
    }

    #[test]
    fn a_load_is_the_same_for_the_same_seed() {
        let dataset = Dataset { rows: 10, value_bytes: 33 };
        let rows: Vec<_> = dataset.load(5).collect();
        assert_eq!(rows, dataset.load(5).collect::<Vec<_>>());
        assert!(rows.len() == 10 && rows.is_sorted() && rows.iter().all(|(_, value)| value.len() == 33));
        assert_ne!(rows, dataset.load(6).collect::<Vec<_>>());
    }

    #[test]
    fn favourites_have_their_shares() {
        let (chooser, mut random) = (Chooser::zipfian(1000), Rng::with_seed(1));
        let mut counts = vec![0u32; 1000];
        (0..100_000).for_each(|_| counts[chooser.choose(&mut random) as usize] += 1);
        counts.sort_unstable();
        // 1 / (sum of k^-0.99 for k to 1000) = 0.129; the second 2^-0.99 of that.
        assert!((12_300..13_500).contains(&counts[999]), "{}", counts[999]);
        assert!((6_000..7_000).contains(&counts[998]), "{}", counts[998]);
    }

    #[test]
    fn chosen_rows_differ_and_are_in_order() {
        let mut numbers = Vec::new();
        for seed in 0..100 {
            Chooser::Uniform(3).choose_different(&mut Rng::with_seed(seed), 3, &mut numbers);
            assert_eq!(numbers, [0, 1, 2]);
        }
    }
}
