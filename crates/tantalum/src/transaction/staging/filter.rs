//! A Bloom filter of keys, to which tasks add and which they ask at the same time: it says of most keys that are not among those added
//! that they are not, without a look at a page.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::buffer::HintKey;

/// Bits that are set for a key: with sixteen bits for each key, one key in four hundred is wrongly taken for one that was added.
const PROBES: u64 = 4;

#[derive(Debug)]
pub(super) struct Filter {
    words: Box<[AtomicU64]>,
}

impl Filter {
    /// An empty filter of so many bits, about.
    pub fn new(bits: usize) -> Self {
        let words = bits.div_ceil(64).max(1);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Adds a key. A task that learns of the key's row later, through a lock or a latch, finds it added.
    pub fn add(&self, key: &[u8]) {
        for (word, bit) in self.probes(key) {
            self.words[word].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// False only if the key was not added.
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.probes(key).all(|(word, bit)| self.words[word].load(Ordering::Relaxed) & bit != 0)
    }

    fn probes(&self, key: &[u8]) -> impl Iterator<Item = (usize, u64)> + use<> {
        let hash = HintKey::new(key).hash();
        let (bits, step) = (self.words.len() as u64 * 64, (hash >> 32) | 1);
        (0..PROBES).map(move |probe| {
            let bit = hash.wrapping_add(probe.wrapping_mul(step)) % bits;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_were_added_are_found_and_few_others_are() {
        let filter = Filter::new(16 * 1000);
        let key = |number: u32| number.to_be_bytes();
        (0..1000).for_each(|number| filter.add(&key(number)));
        assert!((0..1000).all(|number| filter.may_have(&key(number))));
        let wrong = (1000..11_000).filter(|number| filter.may_have(&key(*number))).count();
        assert!(wrong < 100, "{wrong} of 10,000");
        assert!(!Filter::new(0).may_have(b""));
    }
}
