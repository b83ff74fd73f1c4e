//! Old versions of rows, kept in memory for as long as a snapshot needs them.
//!
//! Commits are numbered while all their leaves are latched. A snapshot is the number of the last commit when it began; it
//! reads a row from its leaf unless a later commit has overwritten it, and then from here. A commit leaves the old
//! version here before it changes the leaf, and a snapshot looks under the leaf's latch, so it sees one or the other.
//!
//! Invariant: for each key, versions are in the order of the commits that overwrote them, and none is missing that was
//! overwritten after the oldest snapshot began.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use tantalum_rt::{Mutex, collections::HashMap};

use super::{Value, key_range::Interval};
use crate::page::TableId;

/// Commit numbers, the snapshots that are alive, and the versions that they need.
#[derive(Debug)]
pub(crate) struct Versions {
    /// The last number given to a commit.
    last_commit: AtomicU64,
    /// How many snapshots are alive. A commit looks at this without a lock.
    alive: AtomicUsize,
    snapshots: Mutex<BTreeMap<u64, usize>>,
    tables: Mutex<HashMap<TableId, BTreeMap<Value, Vec<Version>>>>,
}

/// What a row was before a commit.
#[derive(Debug)]
struct Version {
    overwritten_by: u64,
    value: Option<Value>,
}

impl Versions {
    /// No snapshots, and the number of the last commit that recovery has seen.
    pub fn new(last_commit: u64) -> Self {
        Self {
            last_commit: AtomicU64::new(last_commit),
            alive: AtomicUsize::new(0),
            snapshots: Mutex::new(BTreeMap::new()),
            tables: Mutex::new(HashMap::default()),
        }
    }

    /// Numbers a commit whose leaves are all latched. The flag tells whether a snapshot may be alive that needs the
    /// versions which the commit overwrites.
    pub fn number_commit(&self) -> (u64, bool) {
        let number = self.last_commit.fetch_add(1, Ordering::SeqCst) + 1;
        // After the number: a snapshot counts itself first and then reads the number, so one that does not see this
        // commit as its past is counted here.
        (number, self.alive.load(Ordering::SeqCst) > 0)
    }

    /// Keeps what commit `number` overwrites. Called under the latch of the key's leaf, before it changes.
    pub fn keep(&self, table: TableId, key: &[u8], number: u64, value: Option<Value>) {
        let mut tables = self.tables.lock();
        let versions = tables.entry(table).or_default().entry(Value::from(key)).or_default();
        assert!(versions.last().is_none_or(|last| last.overwritten_by < number), "versions are kept in commit order");
        versions.push(Version { overwritten_by: number, value });
    }

    /// Begins a snapshot: everything up to the commit number that is returned.
    pub fn begin(&self) -> u64 {
        let mut snapshots = self.snapshots.lock();
        self.alive.fetch_add(1, Ordering::SeqCst);
        let number = self.last_commit.load(Ordering::SeqCst);
        *snapshots.entry(number).or_insert(0) += 1;
        number
    }

    /// Ends a snapshot and forgets what only it needed.
    pub fn end(&self, snapshot: u64) {
        let mut snapshots = self.snapshots.lock();
        let oldest_before = snapshots.first_key_value().map(|(number, _)| *number);
        let count = snapshots.get_mut(&snapshot).expect("a snapshot ends once");
        *count -= 1;
        if *count == 0 {
            snapshots.remove(&snapshot);
        }
        self.alive.fetch_sub(1, Ordering::SeqCst);
        let oldest = snapshots.first_key_value().map(|(number, _)| *number);
        if oldest != oldest_before {
            // Still under the snapshots' lock: a new snapshot must not begin meanwhile.
            self.forget_before(oldest.unwrap_or(u64::MAX));
        }
    }

    fn forget_before(&self, oldest: u64) {
        let mut tables = self.tables.lock();
        tables.retain(|_, rows| {
            rows.retain(|_, versions| {
                versions.retain(|version| version.overwritten_by > oldest);
                !versions.is_empty()
            });
            !rows.is_empty()
        });
    }

    /// The row as `snapshot` sees it, if it was overwritten since; `None` if the leaf has it. Called under the leaf's latch.
    pub fn find(&self, table: TableId, key: &[u8], snapshot: u64) -> Option<Option<Value>> {
        self.tables.lock().get(&table)?.get(key).and_then(|versions| visible(versions, snapshot))
    }

    /// As [`find`](Self::find), for all keys of an interval.
    pub fn find_range(&self, table: TableId, interval: &Interval, snapshot: u64) -> Vec<(Value, Option<Value>)> {
        let tables = self.tables.lock();
        let Some(rows) = tables.get(&table).filter(|_| !interval.is_empty()) else { return Vec::new() };
        let seen = |(key, versions): (&Value, &Vec<Version>)| Some((key.clone(), visible(versions, snapshot)?));
        rows.range::<[u8], _>(interval.bounds()).filter_map(seen).collect()
    }

    /// Snapshots alive, and versions kept for them.
    pub fn counts(&self) -> (u64, u64) {
        let snapshots = self.alive.load(Ordering::SeqCst) as u64;
        let versions = self.tables.lock().values().flat_map(BTreeMap::values).map(|v| v.len() as u64).sum();
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

    fn overwrite(versions: &Versions, key: &str, old: Option<Value>) -> u64 {
        let (number, needed) = versions.number_commit();
        if needed {
            versions.keep(T, key.as_bytes(), number, old);
        }
        number
    }

    #[test]
    fn each_snapshot_sees_its_own_past() {
        let versions = Versions::new(10);
        overwrite(&versions, "a", None);
        assert_eq!(versions.counts(), (0, 0), "nobody needs it");
        let first = versions.begin();
        overwrite(&versions, "a", value("1"));
        let second = versions.begin();
        overwrite(&versions, "a", value("2"));
        overwrite(&versions, "b", None);
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
        let versions = Versions::new(0);
        let first = versions.begin();
        overwrite(&versions, "a", value("1"));
        let second = versions.begin();
        overwrite(&versions, "a", value("2"));
        versions.end(second);
        assert_eq!(versions.find(T, b"a", first), Some(value("1")));
        versions.end(first);
        assert_eq!(versions.counts(), (0, 0));
    }
}
