//! Range locks of one table: what scans have read, gaps included, so that no other transaction inserts there.
//!
//! Uncommitted rows are in no page, so there is no next key to hang a gap's lock on; a scan locks the interval itself.
//! A transaction's intervals that touch are one, so a scan that grows step by step stays one lock.

use super::TransactionId;
use crate::transaction::{Value, key_range::Interval};

/// The range locks of a table.
#[derive(Debug, Default)]
pub(super) struct RangeLocks {
    locks: Vec<RangeLock>,
    /// Keys with a waiting writer that a range stood in the way of, and whose range.
    blocked: Vec<(TransactionId, Value)>,
}

#[derive(Debug)]
struct RangeLock {
    owner: TransactionId,
    interval: Interval,
}

impl RangeLocks {
    /// Adds `interval` to what `owner` has locked.
    pub fn extend(&mut self, owner: TransactionId, mut interval: Interval) {
        self.locks.retain(|lock| {
            let joins = lock.owner == owner && lock.interval.touches(&interval);
            if joins {
                interval = interval.union(&lock.interval);
            }
            !joins
        });
        self.locks.push(RangeLock { owner, interval });
    }

    /// The transactions other than `writer` that have locked a range with `key` in it.
    pub fn against<'a>(&'a self, writer: TransactionId, key: &'a [u8]) -> impl Iterator<Item = TransactionId> + 'a {
        self.locks.iter().filter(move |lock| lock.owner != writer && lock.interval.contains(key)).map(|lock| lock.owner)
    }

    /// Notes that a writer waits for `key` because of `owner`'s range, so that the release tells.
    pub fn note_blocked(&mut self, owner: TransactionId, key: &Value) {
        if !self.blocked.iter().any(|(by, blocked)| *by == owner && blocked == key) {
            self.blocked.push((owner, key.clone()));
        }
    }

    /// Removes all ranges of `owner`; returns the keys whose waiting writers may now go on.
    pub fn release(&mut self, owner: TransactionId) -> Vec<Value> {
        self.locks.retain(|lock| lock.owner != owner);
        self.blocked.extract_if(.., |(by, _)| *by == owner).map(|(_, key)| key).collect()
    }

    /// Whether a range of `owner` has `key` in it.
    pub fn covers(&self, owner: TransactionId, key: &[u8]) -> bool {
        self.locks.iter().any(|lock| lock.owner == owner && lock.interval.contains(key))
    }

    /// Intervals locked.
    pub fn len(&self) -> usize {
        self.locks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn against(ranges: &RangeLocks, writer: u64, key: &[u8]) -> Vec<u64> {
        ranges.against(TransactionId(writer), key).map(|owner| owner.0).collect()
    }

    #[test]
    fn a_growing_scan_is_one_lock() {
        let mut ranges = RangeLocks::default();
        ranges.extend(TransactionId(1), Interval::of("b".."c"));
        ranges.extend(TransactionId(1), Interval::of("c".."d"));
        ranges.extend(TransactionId(1), Interval::of("a".."b"));
        assert_eq!(ranges.len(), 1);
        ranges.extend(TransactionId(1), Interval::of("x".."y"));
        ranges.extend(TransactionId(2), Interval::of("a".."z"));
        assert_eq!(ranges.len(), 3);
        assert_eq!(against(&ranges, 3, b"b"), [1, 2]);
        assert_eq!(against(&ranges, 3, b"d"), [2]);
        assert_eq!(against(&ranges, 2, b"d"), [0; 0]);
    }

    #[test]
    fn a_release_names_the_writers_that_waited_for_it() {
        let mut ranges = RangeLocks::default();
        ranges.extend(TransactionId(1), Interval::of(..));
        ranges.extend(TransactionId(2), Interval::of(..));
        let key = Value::from(b"k".as_slice());
        ranges.note_blocked(TransactionId(1), &key);
        ranges.note_blocked(TransactionId(1), &key);
        assert!(ranges.release(TransactionId(2)).is_empty());
        assert_eq!(ranges.release(TransactionId(1)), [key]);
        assert_eq!(ranges.len(), 0);
    }
}
