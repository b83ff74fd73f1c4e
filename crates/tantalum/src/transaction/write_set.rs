//! What a transaction has written and not committed, and the way back to its savepoints.

use std::convert::Infallible;

use tantalum_store::TableId;

use super::{Content, Value, key_range::Interval, sorted_rows::SortedRows, table_map::TableMap};
use crate::limits::GroupLimit;

/// What a record of the log holds for a write beyond key and value, at most: the change's head, the cell's head, and
/// the share of a page's head.
const WRITE_OVERHEAD_BYTES: usize = 64;
/// One byte more for so many of a value: the heads and space-map changes of the pages that a large one takes.
const VALUE_BYTES_PER_EXTRA: usize = 64;

/// Memory for a write beyond key and value, about: its places in the write set and among the locks.
const WRITE_MEMORY_BYTES: usize = 320;
/// Memory for what undoes a write, about.
const UNDO_MEMORY_BYTES: usize = 96;

/// The uncommitted writes of a transaction that are in memory.
#[derive(Debug, Default)]
pub(crate) struct WriteSet {
    tables: TableMap<SortedRows>,
    /// For each write since the first mark that was not spilled, oldest first, what its key had before.
    history: Vec<Undo>,
    /// How many were spilled before these.
    spilled_history: usize,
    is_marked: bool,
    bytes: usize,
    /// Memory for them, about.
    memory_bytes: usize,
}

/// What undoes a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Undo {
    pub table: TableId,
    pub key: Value,
    /// `None` if the key had not been written.
    pub before: Option<Option<Content>>,
}

impl WriteSet {
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(SortedRows::is_empty)
    }

    /// What the transaction has made of a key: `None` if it has not written it, `Some(None)` if it has deleted it.
    pub fn get(&self, table: TableId, key: &[u8]) -> Option<&Option<Content>> {
        self.tables.get(table)?.get(key)
    }

    /// Whether all writes fit in one record.
    pub fn fits(&self, limit: GroupLimit) -> bool {
        self.bytes <= limit.bytes
    }

    /// Whether a write of a row fits in the given memory beside all that is here already, or is the only one.
    pub fn has_memory_for(&self, key: &[u8], value: Option<&Content>, memory_bytes: usize) -> bool {
        let more = key.len() + value.map_or(0, |value| value.memory_bytes()) + WRITE_MEMORY_BYTES;
        self.memory_bytes == 0 || self.memory_bytes + more <= memory_bytes
    }

    /// Whether writes can be undone.
    pub fn is_marked(&self) -> bool {
        self.is_marked
    }

    /// Notes a write. `spilled` is what the key had before, if it is not here.
    pub fn set(&mut self, table: TableId, key: Value, value: Option<Content>, spilled: Option<Option<Content>>) {
        let rows = self.tables.or_default(table);
        let (key_bytes, cost_after) = (key.len(), cost(key.len(), value.as_ref()));
        let value_bytes = |value: Option<&Content>| value.map_or(0, Content::memory_bytes);
        let after_bytes = value_bytes(value.as_ref());
        let undone = self.is_marked.then(|| key.clone());
        let Ok(before) = rows.set(key, value, |_| Ok::<_, Infallible>(()));
        self.bytes += cost_after;
        self.bytes -= before.as_ref().map_or(0, |before| cost(key_bytes, before.as_ref()));
        self.memory_bytes += after_bytes;
        match &before {
            Some(before) => self.memory_bytes -= value_bytes(before.as_ref()),
            None => self.memory_bytes += key_bytes + WRITE_MEMORY_BYTES,
        }
        if let Some(key) = undone {
            let before = before.or(spilled);
            self.memory_bytes += UNDO_MEMORY_BYTES + before.iter().flatten().map(Content::memory_bytes).sum::<usize>();
            self.history.push(Undo { table, key, before });
        }
    }

    /// Forgets all writes, and what undoes them, which were spilled.
    pub fn clear(&mut self) {
        self.spilled_history += self.history.len();
        let Self { spilled_history, is_marked, .. } = *self;
        *self = Self { spilled_history, is_marked, ..Self::default() };
    }

    /// Forgets a write, which is undone elsewhere.
    pub fn forget(&mut self, table: TableId, key: &[u8]) {
        let written = self.tables.get_mut(table).and_then(|rows| rows.remove(key));
        if let Some(written) = written {
            self.bytes -= cost(key.len(), written.as_ref());
            self.memory_bytes -= key.len() + written.as_ref().map_or(0, Content::memory_bytes) + WRITE_MEMORY_BYTES;
        }
    }

    /// What undoes writes, oldest first, but for what was spilled.
    pub fn history(&self) -> &[Undo] {
        &self.history
    }

    /// How much of what undoes writes was spilled.
    pub fn spilled_history(&self) -> usize {
        self.spilled_history
    }

    /// Takes out what undoes the newest write since `mark`; where that was spilled, its number.
    pub fn pop_history(&mut self, mark: usize) -> (Option<Undo>, Option<usize>) {
        if self.spilled_history + self.history.len() <= mark {
            return (None, None);
        }
        match self.history.pop() {
            Some(undo) => {
                let value_bytes = undo.before.iter().flatten().map(Content::memory_bytes).sum::<usize>();
                self.memory_bytes -= UNDO_MEMORY_BYTES + value_bytes;
                (Some(undo), None)
            }
            None => {
                self.spilled_history -= 1;
                (None, Some(self.spilled_history))
            }
        }
    }

    /// The writes to a table.
    pub fn rows(&self, table: TableId) -> Option<&SortedRows> {
        self.tables.get(table)
    }

    /// The writes of a table within an interval, in key order.
    pub fn range(&self, table: TableId, interval: &Interval) -> impl Iterator<Item = (&Value, &Option<Content>)> {
        let rows = self.tables.get(table).filter(|_| !interval.is_empty());
        rows.into_iter().flat_map(|rows| rows.range(interval))
    }

    /// All writes, by table and key.
    pub fn tables(&self) -> impl Iterator<Item = (TableId, &SortedRows)> {
        self.tables.iter().filter(|(_, rows)| !rows.is_empty())
    }

    /// A place to come back to: how many writes there have been since the first.
    pub fn mark(&mut self) -> usize {
        self.is_marked = true;
        self.spilled_history + self.history.len()
    }

    /// Takes back every write since `mark`, where none was spilled.
    pub fn roll_back_to(&mut self, mark: usize) {
        assert_eq!(self.spilled_history, 0, "nothing was spilled");
        while let (Some(Undo { table, key, before }), _) = self.pop_history(mark) {
            self.forget(table, &key);
            if let Some(before) = before {
                let is_marked = std::mem::replace(&mut self.is_marked, false);
                self.set(table, key, before, None);
                self.is_marked = is_marked;
            }
        }
    }
}

/// What a record of the log holds for a write, at most.
pub(crate) fn cost(key_bytes: usize, value: Option<&Content>) -> usize {
    let value_bytes = value.map_or(0, |value| value.memory_bytes() + value.memory_bytes() / VALUE_BYTES_PER_EXTRA);
    key_bytes + value_bytes + WRITE_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: TableId = TableId(2);

    fn set(writes: &mut WriteSet, key: &str, value: Option<&str>) {
        let value = value.map(|value| Value::from(value.as_bytes()).into());
        writes.set(T, Value::from(key.as_bytes()), value, None);
    }

    fn state(writes: &WriteSet) -> Vec<(Value, Option<Content>)> {
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
    fn the_limit_counts_what_will_be_written() {
        let mut writes = WriteSet::default();
        let big = Content::from(Value::from(vec![0; 1000]));
        let limit = GroupLimit { bytes: 1116, remedy: None };
        for _ in 0..2 {
            writes.set(T, Value::from(b"k".as_slice()), Some(big.clone()), None);
            assert_eq!((writes.fits(limit), writes.bytes), (true, 1080));
        }
        writes.set(T, Value::from(b"l".as_slice()), None, None);
        assert!(!writes.fits(limit));
    }

    #[test]
    fn memory_is_that_of_what_is_there() {
        let mut writes = WriteSet::default();
        let mark = writes.mark();
        for (key, value) in [("a", Some("1")), ("b", None), ("a", None), ("a", Some("222"))] {
            set(&mut writes, key, value);
        }
        assert!(writes.memory_bytes > 2 * WRITE_MEMORY_BYTES + 4 * UNDO_MEMORY_BYTES);
        assert!(!writes.has_memory_for(b"c", None, writes.memory_bytes));
        let marks = writes.mark();
        writes.roll_back_to(mark);
        assert_eq!((writes.memory_bytes, writes.bytes), (0, 0));
        assert!(writes.has_memory_for(b"c", None, 0), "one write always has");
        (0..4).for_each(|_| set(&mut writes, "a", Some("1")));
        writes.clear();
        assert_eq!((writes.memory_bytes, writes.mark(), writes.is_empty()), (0, marks, true));
        assert_eq!(writes.pop_history(3), (None, Some(3)));
        assert_eq!(writes.pop_history(3), (None, None));
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
