//! Old versions of rows, kept in memory for as long as a snapshot needs them.
//!
//! A commit's number is the end of its log record, so numbers order commits as the log does. A snapshot is the end of the log
//! when it began; it reads a row from its leaf unless a later commit has overwritten it, and then from here. A commit leaves
//! the old version here before it changes the leaf, and a snapshot looks under the leaf's latch, so it sees one or the other.
//!
//! Invariants:
//! - for each key, versions are in the order of the commits that overwrote them, and none is missing that was overwritten
//!   after the oldest snapshot began
//! - no snapshot begins between a commit's question whether there are any and its append; so a commit that does not keep
//!   versions is in the past of every later snapshot, and what a snapshot sees is before its number in the log

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicBool, Ordering},
};

use tantalum_rt::{RwLock, RwLockReadGuard, collections::HashMap};

use super::{Value, key_range::Interval};
use crate::page::TableId;

/// The snapshots that are alive, and the versions that they need.
#[derive(Debug, Default)]
pub(crate) struct Versions {
    /// How many snapshots there are of each number. Commits hold it for reading while they append.
    snapshots: RwLock<BTreeMap<u64, usize>>,
    /// Whether `tables` has any. Each read of a snapshot asks, and where nobody writes, all of them only read this. Who has latched
    /// a leaf knows of all that was kept before the leaf was changed.
    are_any: AtomicBool,
    /// Reads look here side by side.
    tables: RwLock<HashMap<TableId, BTreeMap<Value, Vec<Version>>>>,
}

/// What a row was before a commit.
#[derive(Debug)]
struct Version {
    overwritten_by: u64,
    value: Option<Value>,
}

/// Keeps snapshots from beginning.
pub(crate) struct Gate<'a>(RwLockReadGuard<'a, BTreeMap<u64, usize>>);

impl Gate<'_> {
    /// Whether a snapshot is alive, so that the versions which a commit overwrites must be kept.
    pub fn has_snapshots(&self) -> bool {
        !self.0.is_empty()
    }
}

impl Versions {
    /// Lets no snapshot begin until the gate is dropped: for a commit whose leaves are all latched, until it is in the log.
    pub fn gate(&self) -> Gate<'_> {
        Gate(self.snapshots.read())
    }

    /// Keeps what commit `number` overwrites. Called under the latch of the key's leaf, before it changes.
    pub fn keep(&self, table: TableId, key: &[u8], number: u64, value: Option<Value>) {
        let mut tables = self.tables.write();
        let versions = tables.entry(table).or_default().entry(Value::from(key)).or_default();
        assert!(versions.last().is_none_or(|last| last.overwritten_by < number), "versions are kept in commit order");
        versions.push(Version { overwritten_by: number, value });
        self.are_any.store(true, Ordering::Release);
    }

    /// Begins a snapshot at the end of the log, which is asked for while no commit appends. Returns its number.
    pub fn begin(&self, log_end: impl FnOnce() -> u64) -> u64 {
        let mut snapshots = self.snapshots.write();
        let number = log_end();
        *snapshots.entry(number).or_insert(0) += 1;
        number
    }

    /// Ends a snapshot and forgets what only it needed.
    pub fn end(&self, snapshot: u64) {
        let mut snapshots = self.snapshots.write();
        let oldest_before = snapshots.first_key_value().map(|(number, _)| *number);
        let count = snapshots.get_mut(&snapshot).expect("a snapshot ends once");
        *count -= 1;
        if *count == 0 {
            snapshots.remove(&snapshot);
        }
        let oldest = snapshots.first_key_value().map(|(number, _)| *number);
        if oldest != oldest_before {
            // Still under the snapshots' lock: a new one must not begin meanwhile.
            self.forget_before(oldest.unwrap_or(u64::MAX));
        }
    }

    fn forget_before(&self, oldest: u64) {
        let mut tables = self.tables.write();
        tables.retain(|_, rows| {
            rows.retain(|_, versions| {
                versions.retain(|version| version.overwritten_by > oldest);
                !versions.is_empty()
            });
            !rows.is_empty()
        });
        self.are_any.store(!tables.is_empty(), Ordering::Release);
    }

    /// The row as `snapshot` sees it, if it was overwritten since; `None` if the leaf has it. Called under the leaf's latch.
    pub fn find(&self, table: TableId, key: &[u8], snapshot: u64) -> Option<Option<Value>> {
        if !self.are_any.load(Ordering::Acquire) {
            return None;
        }
        self.tables.read().get(&table)?.get(key).and_then(|versions| visible(versions, snapshot))
    }

    /// As [`find`](Self::find), for all keys of an interval.
    pub fn find_range(&self, table: TableId, interval: &Interval, snapshot: u64) -> Vec<(Value, Option<Value>)> {
        if !self.are_any.load(Ordering::Acquire) {
            return Vec::new();
        }
        let tables = self.tables.read();
        let Some(rows) = tables.get(&table).filter(|_| !interval.is_empty()) else { return Vec::new() };
        let seen = |(key, versions): (&Value, &Vec<Version>)| Some((key.clone(), visible(versions, snapshot)?));
        rows.range::<[u8], _>(interval.bounds()).filter_map(seen).collect()
    }

    /// Snapshots alive, and versions kept for them.
    pub fn counts(&self) -> (u64, u64) {
        let snapshots = self.snapshots.read().values().map(|count| *count as u64).sum();
        let versions = self.tables.read().values().flat_map(BTreeMap::values).map(|v| v.len() as u64).sum();
        (snapshots, versions)
    }
}

/// The oldest version that was overwritten after the snapshot began.
fn visible(versions: &[Version], snapshot: u64) -> Option<Option<Value>> {
    let first = versions.partition_point(|version| version.overwritten_by <= snapshot);
    versions.get(first).map(|version| version.value.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(2);

    fn value(text: &str) -> Option<Value> {
        Some(Value::from(text.as_bytes()))
    }

    /// A log that a commit makes longer by one.
    struct Bed {
        versions: Versions,
        log_end: std::cell::Cell<u64>,
    }

    impl Bed {
        fn new() -> Self {
            Bed { versions: Versions::default(), log_end: 10.into() }
        }

        fn begin(&self) -> u64 {
            self.versions.begin(|| self.log_end.get())
        }

        fn overwrite(&self, key: &str, old: Option<Value>) {
            let gate = self.versions.gate();
            self.log_end.set(self.log_end.get() + 1);
            if gate.has_snapshots() {
                self.versions.keep(T, key.as_bytes(), self.log_end.get(), old);
            }
        }
    }

    #[test]
    fn each_snapshot_sees_its_own_past() {
        let bed = Bed::new();
        let versions = &bed.versions;
        bed.overwrite("a", None);
        assert_eq!(versions.counts(), (0, 0), "nobody needs it");
        let first = bed.begin();
        bed.overwrite("a", value("1"));
        let second = bed.begin();
        bed.overwrite("a", value("2"));
        bed.overwrite("b", None);
        assert_eq!(versions.find(T, b"a", first), Some(value("1")));
        assert_eq!(versions.find(T, b"a", second), Some(value("2")));
        assert_eq!(versions.find(T, b"c", first), None);
        let all = versions.find_range(T, &Interval::of(..), second);
        assert_eq!(all, [(value("a").unwrap(), value("2")), (value("b").unwrap(), None)]);

        versions.end(first);
        assert_eq!(versions.counts(), (1, 2), "the version that only the first saw is gone");
        assert_eq!(versions.find(T, b"a", second), Some(value("2")));
        versions.end(second);
        assert_eq!(versions.counts(), (0, 0));
    }

    #[test]
    fn the_order_of_ending_does_not_matter() {
        let bed = Bed::new();
        let versions = &bed.versions;
        let first = bed.begin();
        bed.overwrite("a", value("1"));
        let second = bed.begin();
        bed.overwrite("a", value("2"));
        versions.end(second);
        assert_eq!(versions.find(T, b"a", first), Some(value("1")));
        versions.end(first);
        assert_eq!(versions.counts(), (0, 0));
    }
}
