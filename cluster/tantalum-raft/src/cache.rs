//! The newest entries in memory: all that are not durable yet, and the newest others up to a bound.
//!
//! Each group has its own, as the bytes of its last entries ([`GroupState`](crate::state::GroupState)), so that appending and reading
//! take no lock but the group's. Here is what those of all groups take together, and how the oldest are evicted.

use std::sync::atomic::{AtomicUsize, Ordering};

use tantalum_log::Lsn;
use tantalum_rt::Mutex;

use crate::log::Shared;

/// An eviction looks at all groups, so it is worth it only if it may free this part of the bound,
const EVICTED_PART: usize = 16;
/// and so many bytes.
const LEAST_EVICTED_BYTES: usize = 4096;

pub(crate) struct Cache {
    /// Of all groups' cached entries.
    bytes: AtomicUsize,
    max_bytes: usize,
    /// Up to here the last eviction evicted.
    evicted_before: Mutex<Lsn>,
}

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Cache {
        Cache { bytes: AtomicUsize::new(0), max_bytes, evicted_before: Mutex::new(Lsn::ZERO) }
    }

    /// Counts what a group has cached, under its lock.
    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts what a group has cached no more, under its lock.
    pub(crate) fn sub(&self, bytes: usize) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "what is evicted was counted");
    }

    fn is_exceeded(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.max_bytes
    }

    /// Before which position entries are evicted, so that those behind it are no more than the bound, if the log ends at `end`: what
    /// cached entries take is less than their part of the log. `None` if that evicts too little.
    fn target(&self, end: Lsn, durable: Lsn, evicted_before: Lsn) -> Option<Lsn> {
        let part = self.max_bytes / EVICTED_PART;
        let kept = (self.max_bytes - part) as u64;
        let target = Lsn::new(end.get().saturating_sub(kept)).min(durable);
        let evicted = target.get().saturating_sub(evicted_before.get());
        (evicted >= part.max(LEAST_EVICTED_BYTES) as u64).then_some(target)
    }
}

impl Shared {
    /// Evicts the oldest cached entries if there are too many. Takes the groups' locks one after another, so none may be held.
    pub(crate) fn evict(&self) {
        if !self.cache.is_exceeded() {
            return;
        }
        // If another task evicts, that suffices.
        let Some(mut evicted_before) = self.cache.evicted_before.try_lock() else { return };
        let (durable, end) = (self.log.durable_lsn(), self.log.end_lsn());
        let Some(target) = self.cache.target(end, durable, *evicted_before) else { return };
        *evicted_before = target;
        let cells: Vec<_> = self.groups.lock().values().cloned().collect();
        for cell in cells {
            let mut state = cell.state.lock();
            self.cache.sub(state.evict_before(target));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_device::{Device, Fault, MemoryDevice};

    use super::*;
    use crate::{Entry, RaftLog, RaftLogOptions};

    fn log(cache_bytes: usize) -> RaftLog {
        log_on(&MemoryDevice::new("raft", 4 << 20), cache_bytes)
    }

    fn log_on(device: &Arc<MemoryDevice>, cache_bytes: usize) -> RaftLog {
        let devices: Vec<Arc<dyn Device>> = vec![Arc::clone(device) as _];
        let options = RaftLogOptions { cache_bytes, ..RaftLogOptions::default() };
        RaftLog::create(devices.clone(), &options).expect("create");
        RaftLog::open(devices, &options).expect("open")
    }

    fn entries(indexes: std::ops::Range<u64>) -> Vec<Entry> {
        indexes.map(|index| Entry::new(index, 1, [index as u8; 1000])).collect()
    }

    fn cached(log: &RaftLog, group: u64) -> Vec<u64> {
        let group = log.group(group);
        let state = group.cell.state.lock();
        state.indexes().filter(|&index| state.cached(index).is_some()).collect()
    }

    #[test]
    fn the_oldest_durable_entries_of_all_groups_are_evicted() {
        let device = MemoryDevice::new("raft", 4 << 20);
        let log = log_on(&device, 64_000);
        let end = log.group(1).append(&entries(0..60)).expect("append");
        log.flush(end).expect("flush");
        assert_eq!(cached(&log, 1), (0..60).collect::<Vec<_>>());
        device.inject(Fault::HangWrites);
        let end = log.group(2).append(&entries(0..40)).expect("append");
        let kept = [cached(&log, 1), cached(&log, 2)];
        device.clear_faults();
        assert_eq!(kept[1], (0..40).collect::<Vec<_>>(), "they are not durable");
        let count = kept.concat().len();
        assert!((56..=60).contains(&count), "{count} are 60,000 bytes, less what the log adds to each");
        assert_eq!(kept[0].last(), Some(&59), "the newest stay");
        log.flush(end).expect("flush");
        log.group(1).append(&entries(60..120)).expect("append");
        assert_eq!(cached(&log, 1), (60..120).collect::<Vec<_>>());
        assert!(cached(&log, 2).is_empty());
        assert_eq!(log.shared().cache.bytes.load(Ordering::Relaxed), 60_000);
        for (group, indexes) in [(1, 0..120), (2, 0..40)] {
            assert_eq!(log.group(group).entries(0..999, usize::MAX).expect("read"), entries(indexes));
        }
    }

    #[test]
    fn what_is_not_durable_is_cached_beyond_the_bound() {
        let device = MemoryDevice::new("raft", 4 << 20);
        let log = log_on(&device, 0);
        device.inject(Fault::HangWrites);
        for index in 0..100 {
            log.group(1).append(&entries(index..index + 1)).expect("append");
        }
        assert_eq!(cached(&log, 1).len(), 100);
        device.clear_faults();
        log.flush(log.group(1).append(&entries(100..101)).expect("append")).expect("flush");
        log.group(1).append(&entries(101..102)).expect("append");
        assert_eq!(cached(&log, 1), [101]);
    }

    #[test]
    fn entries_that_go_are_counted_no_more() {
        let log = log(1 << 20);
        let group = log.group(1);
        group.append(&entries(0..50)).expect("append");
        group.purge(9, 1, b"").expect("purge");
        group.truncate_after(Some(39)).expect("truncate");
        assert_eq!(cached(&log, 1), (10..40).collect::<Vec<_>>());
        let bytes = || log.shared().cache.bytes.load(Ordering::Relaxed);
        assert_eq!(bytes(), 30_000);
        let other = [Entry::new(40, 2, *b"another")];
        group.append(&other).expect("append");
        assert_eq!(group.entries(40..41, usize::MAX).expect("read"), other);
        group.purge(100, 2, b"").expect("purge");
        assert_eq!(bytes(), 0);
        group.append(&entries(101..103)).expect("append");
        group.remove().expect("remove");
        assert_eq!(bytes(), 0);
    }
}
