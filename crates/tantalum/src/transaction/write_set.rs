//! What a transaction has written and not committed, and the way back to its savepoints.

use std::{collections::BTreeMap, convert::Infallible};

use tantalum_store::TableId;

use super::{Value, key_range::Interval, sorted_rows::SortedRows};
use crate::{error::Result, limits::GroupLimit};

/// What a record of the log holds for a write beyond key and value, at most: the change's head, the cell's head, and
/// the share of a page's head.
const WRITE_OVERHEAD_BYTES: usize = 64;
/// One byte more for so many of a value: the heads and space-map changes of the pages that a large one takes.
const VALUE_BYTES_PER_EXTRA: usize = 64;

/// The uncommitted writes of a transaction.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    tables: BTreeMap<TableId, SortedRows>,
    /// For each write since the first mark, oldest first, what its key had before.
    history: Vec<Undo>,
    is_marked: bool,
    bytes: usize,
}

#[derive(Debug)]
struct Undo {
    table: TableId,
    key: Value,
    /// `None` if the key had not been written.
    before: Option<Option<Value>>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(SortedRows::is_empty)
    }

    /// What the transaction has made of a key: `None` if it has not written it, `Some(None)` if it has deleted it.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<&Option<Value>> {
        self.tables.get(&table)?.get(key)
    }

    /// Notes a write.
    ///
    /// # Errors
    /// [`TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge) when all writes together are beyond `limit`.
    pub fn set(&mut self, table: TableId, key: Value, value: Option<Value>, limit: GroupLimit) -> Result<()> {
        let rows = self.tables.entry(table).or_default();
        let (key_bytes, cost_after) = (key.len(), cost(key.len(), value.as_ref()));
        let undone = self.is_marked.then(|| key.clone());
        let mut bytes = self.bytes;
        let before = rows.set(key, value, |before| {
            let replaced = before.map_or(0, |before| cost(key_bytes, before.as_ref()));
            bytes = bytes - replaced + cost_after;
            if bytes > limit.bytes { Err(limit.refuse(bytes)) } else { Ok(()) }
        })?;
        self.bytes = bytes;
        self.history.extend(undone.map(|key| Undo { table, key, before }));
        Ok(())
    }

    /// The writes of a table within an interval, in key order.
    pub fn range(&self, table: TableId, interval: &Interval) -> impl Iterator<Item = (&Value, &Option<Value>)> {
        let rows = self.tables.get(&table).filter(|_| !interval.is_empty());
        rows.into_iter().flat_map(|rows| rows.range(interval))
    }

    /// All writes, by table and key.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &SortedRows)> {
        self.tables.iter().map(|(table, rows)| (*table, rows)).filter(|(_, rows)| !rows.is_empty())
    }

    /// A place to come back to: how many writes there have been since the first.
    pub fn mark(&mut self) -> usize {
        self.is_marked = true;
        self.history.len()
    }

    /// Takes back every write since `mark`.
    pub fn roll_back_to(&mut self, mark: usize) {
        for Undo { table, key, before } in self.history.drain(mark..).rev() {
            let rows = self.tables.entry(table).or_default();
            let key_bytes = key.len();
            let cost_of = |write: &Option<Value>| cost(key_bytes, write.as_ref());
            self.bytes += before.as_ref().map_or(0, cost_of);
            let written = match before {
                Some(before) => match rows.set(key, before, |_| Ok::<_, Infallible>(())) {
                    Ok(written) => written,
                },
                None => rows.remove(&key),
            };
            self.bytes -= written.as_ref().map_or(0, cost_of);
        }
    }
}

fn cost(key_bytes: usize, value: Option<&Value>) -> usize {
    let value_bytes = value.map_or(0, |value| value.len() + value.len() / VALUE_BYTES_PER_EXTRA);
    key_bytes + value_bytes + WRITE_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(2);

    fn set(writes: &mut WriteSet, key: &str, value: Option<&str>) {
        let value = value.map(|value| Value::from(value.as_bytes()));
        writes.set(T, Value::from(key.as_bytes()), value, GroupLimit { bytes: 1 << 20, remedy: None }).unwrap();
    }

    fn state(writes: &WriteSet) -> Vec<(Value, Option<Value>)> {
        let rows = writes.tables().flat_map(|(_, rows)| rows.iter());
        rows.map(|(key, write)| (key.clone(), write.clone())).collect()
    }

    #[test]
    fn savepoints_bring_back_what_was() {
        let mut writes = WriteSet::default();
        let start = writes.mark();
        set(&mut writes, "a", Some("1"));
        let (mark, before, bytes) = (writes.mark(), state(&writes), writes.bytes);
        set(&mut writes, "a", Some("2"));
        set(&mut writes, "a", None);
        set(&mut writes, "b", Some("3"));
        assert_eq!(writes.get(T, b"a"), Some(&None));
        writes.roll_back_to(mark);
        assert_eq!((state(&writes), writes.bytes), (before, bytes));
        assert_eq!(writes.get(T, b"b"), None);
        writes.roll_back_to(start);
        assert!(writes.is_empty());
        assert_eq!(writes.bytes, 0);
    }

    #[test]
    fn what_was_written_before_the_first_mark_stays() {
        let mut writes = WriteSet::default();
        for key in ["b", "a", "c"] {
            set(&mut writes, key, Some("1"));
        }
        let (mark, before, bytes) = (writes.mark(), state(&writes), writes.bytes);
        for key in ["c", "a", "aa", "d", "b"] {
            set(&mut writes, key, Some("two"));
        }
        writes.roll_back_to(mark);
        assert_eq!((state(&writes), writes.bytes), (before, bytes));
    }

    #[test]
    fn the_limit_counts_what_will_be_written_and_a_refusal_changes_nothing() {
        let mut writes = WriteSet::default();
        let big = Value::from(vec![0; 1000]);
        let limit = GroupLimit { bytes: 1116, remedy: None };
        writes.set(T, Value::from(b"k".as_slice()), Some(big.clone()), limit).unwrap();
        writes.set(T, Value::from(b"k".as_slice()), Some(big.clone()), limit).unwrap();
        let refused = writes.set(T, Value::from(b"l".as_slice()), Some(big), limit);
        assert!(matches!(&refused, Err(error) if error.to_string().contains("it can have at most 1116;")));
        assert_eq!((state(&writes).len(), writes.bytes), (1, 1080));
    }

    #[test]
    fn ranges_are_in_key_order() {
        let mut writes = WriteSet::default();
        for key in ["c", "a", "b", "d"] {
            set(&mut writes, key, None);
        }
        let keys: Vec<_> = writes.range(T, &Interval::of("b"..="c")).map(|(key, _)| key.clone()).collect();
        assert_eq!(keys, [Value::from(b"b".as_slice()), Value::from(b"c".as_slice())]);
        assert_eq!(writes.range(T, &Interval::of("z".."a")).count(), 0);
        assert_eq!(writes.range(TableId(9), &Interval::of(..)).count(), 0);
    }
}
