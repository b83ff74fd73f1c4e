//! The entries that were appended last, in memory: all that are not durable yet, and the newest others up to a bound.
//!
//! Invariant: an entry is here only while its group has it, since both change under the group's lock. Only eviction needs no such lock.

use std::collections::VecDeque;
use std::sync::Arc;

use tantalum_log::Lsn;
use tantalum_rt::collections::HashMap;

/// The group and the index.
type Key = (u64, u64);

/// More places in the queue than this, and than twice the entries, are looked through for those of entries that have gone.
const STALE_PLACES: usize = 1024;

pub(crate) struct Cache {
    entries: HashMap<Key, Cached>,
    /// In the order in which they came, with their ends; also some of entries that have gone.
    queue: VecDeque<(Lsn, Key)>,
    bytes: usize,
    max_bytes: usize,
}

struct Cached {
    bytes: Arc<[u8]>,
    /// Where its first record ends.
    end: Lsn,
}

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Cache {
        Cache { entries: HashMap::default(), queue: VecDeque::new(), bytes: 0, max_bytes }
    }

    pub(crate) fn get(&self, group: u64, index: u64) -> Option<Arc<[u8]>> {
        self.entries.get(&(group, index)).map(|cached| Arc::clone(&cached.bytes))
    }

    /// Adds an entry whose record ends at `end`, and evicts the oldest of those before `durable`.
    pub(crate) fn insert(&mut self, group: u64, index: u64, bytes: Arc<[u8]>, end: Lsn, durable: Lsn) {
        let key = (group, index);
        self.bytes += bytes.len();
        let before = self.entries.insert(key, Cached { bytes, end });
        assert!(before.is_none(), "an entry goes before another has its index");
        self.queue.push_back((end, key));
        while self.bytes > self.max_bytes
            && let Some(&(end, key)) = self.queue.front()
            && end <= durable
        {
            self.queue.pop_front();
            if self.is_current(end, key) {
                self.take(key);
            }
        }
        if self.queue.len() > STALE_PLACES.max(2 * self.entries.len()) {
            let queue = std::mem::take(&mut self.queue);
            self.queue = queue.into_iter().filter(|&(end, key)| self.is_current(end, key)).collect();
        }
    }

    /// Forgets entries that their group has no more.
    pub(crate) fn forget(&mut self, group: u64, indexes: impl Iterator<Item = u64>) {
        indexes.for_each(|index| self.take((group, index)));
    }

    fn take(&mut self, key: Key) {
        if let Some(taken) = self.entries.remove(&key) {
            self.bytes -= taken.bytes.len();
        }
    }

    fn is_current(&self, end: Lsn, key: Key) -> bool {
        self.entries.get(&key).is_some_and(|cached| cached.end == end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_durable_entries_go_first_and_no_other() {
        let mut cache = Cache::new(250);
        let bytes = || Arc::from([0; 100].as_slice());
        for n in 0..4 {
            cache.insert(1, n, bytes(), Lsn::new(n + 1), Lsn::ZERO);
        }
        assert!((0..4).all(|n| cache.get(1, n).is_some()), "nothing is durable");
        // Its index is used again: the first place in the queue is not that of the new one.
        cache.forget(1, 0..1);
        cache.insert(1, 0, bytes(), Lsn::new(9), Lsn::new(2));
        assert!(cache.get(1, 0).is_some() && cache.get(1, 1).is_none() && cache.get(1, 2).is_some());
        cache.insert(2, 7, bytes(), Lsn::new(10), Lsn::new(9));
        assert!(cache.get(1, 0).is_some() && cache.get(2, 7).is_some());
        assert_eq!((cache.bytes, cache.entries.len()), (200, 2));
    }

    #[test]
    fn places_of_entries_that_went_do_not_pile_up() {
        let mut cache = Cache::new(1 << 20);
        cache.insert(0, 0, Arc::from([1].as_slice()), Lsn::new(1), Lsn::ZERO);
        for n in 1..100_000 {
            cache.insert(1, n, Arc::from([1].as_slice()), Lsn::new(n + 1), Lsn::new(n));
            cache.forget(1, n..=n);
        }
        assert!(cache.queue.len() <= STALE_PLACES + 1);
        assert!(cache.get(0, 0).is_some());
    }
}
