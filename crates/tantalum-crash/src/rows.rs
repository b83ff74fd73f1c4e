//! Rows as the engine returns them, and as the model names them.

use std::{collections::BTreeMap, ops::Bound};

use tantalum::{Snapshot, Table, Value};
use tantalum_rt::Random;

use crate::{
    content::{Key, Version, decode_key, decode_value, encode_key},
    session::{Contradiction, Session},
    stop::Stop,
};

/// A range of a table to read: keys `low..=high`, from one end, so many rows at most.
pub(crate) struct Span {
    table: u8,
    low: u32,
    high: u32,
    is_backward: bool,
    rows_max: usize,
    key_pad: u16,
}

/// What a read of a span covered: all `rows` from `low` to `high`, in ascending order.
pub(crate) struct Covered {
    pub low: u32,
    pub high: u32,
    pub rows: Vec<(u32, Version)>,
}

impl Span {
    /// A random one of a table with so many keys.
    pub fn new(random: &mut Random, table: u8, keys: u32, key_pad: u16) -> Self {
        let low = random.u32(0..keys);
        let high = low + random.u32(0..=keys - low).min(random.u32(1..=40));
        let rows_max = if random.bool() { usize::MAX } else { random.usize(1..6) };
        Self { table, low, high, is_backward: random.bool(), rows_max, key_pad }
    }

    pub fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let high = if self.high.is_multiple_of(2) {
            Bound::Included(encode_key(self.high, self.key_pad))
        } else {
            Bound::Excluded(encode_key(self.high + 1, self.key_pad))
        };
        (Bound::Included(encode_key(self.low, self.key_pad)), high)
    }

    /// The same with all rows within the bounds.
    pub fn whole(self) -> Self {
        Self { rows_max: usize::MAX, ..self }
    }

    /// The keys within the bounds, those that no client writes too.
    pub fn keys(&self) -> impl Iterator<Item = Key> + use<> {
        let table = self.table;
        (self.low..=self.high).map(move |number| Key { table, number })
    }

    /// The transaction was told that there are no rows within the bounds.
    pub fn saw_nothing(&self, session: &mut Session) -> Result<(), Contradiction> {
        session.saw_range(self.table, self.low, self.high, Vec::new())
    }

    /// Takes rows from one end of those within the bounds.
    pub fn read(
        &self,
        rows: impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>,
    ) -> Result<Covered, Stop> {
        let found = if self.is_backward {
            rows.rev().take(self.rows_max).collect::<tantalum::Result<Vec<_>>>()?
        } else {
            rows.take(self.rows_max).collect::<tantalum::Result<Vec<_>>>()?
        };
        let mut rows = rows_of(self.table, self.key_pad, &found)?;
        let (mut low, mut high) = (self.low, self.high);
        if let Some(&(last, _)) = rows.last()
            && rows.len() == self.rows_max
        {
            *(if self.is_backward { &mut low } else { &mut high }) = last;
        }
        if self.is_backward {
            rows.reverse();
        }
        Ok(Covered { low, high, rows })
    }
}

/// The model's names of rows.
fn rows_of(table: u8, key_pad: u16, rows: &[(Value, Value)]) -> Result<Vec<(u32, Version)>, Stop> {
    let name = |(key, value): &(Value, Value)| {
        let number = decode_key(key, key_pad).ok_or_else(|| {
            let key = key.escape_ascii().to_string();
            Stop::Violation(format!("table {table} holds a key that was never written: {key:?}"))
        })?;
        Ok((number, version_of(Key { table, number }, value)?))
    };
    rows.iter().map(name).collect()
}

/// The operation that wrote the value found at `key`.
pub(crate) fn version_of(key: Key, value: &[u8]) -> Result<Version, Stop> {
    decode_value(value).ok_or_else(|| {
        let begins = value[..value.len().min(16)].escape_ascii();
        Stop::Violation(format!("key {key} holds {} bytes that were never written: {begins}...", value.len()))
    })
}

/// All rows of all tables.
pub(crate) fn read_everything(
    snapshot: &Snapshot,
    tables: &[(u8, Table)],
    key_pad: u16,
) -> Result<BTreeMap<Key, Version>, Stop> {
    let mut contents = BTreeMap::new();
    for (number, table) in tables {
        let forward = snapshot.range(table, ..)?.collect::<tantalum::Result<Vec<_>>>()?;
        let mut backward = snapshot.range(table, ..)?.rev().collect::<tantalum::Result<Vec<_>>>()?;
        backward.reverse();
        if forward != backward {
            return Err(Stop::Odd(format!("table {number} reads differently backward")));
        }
        let rows = rows_of(*number, key_pad, &forward)?;
        contents.extend(rows.into_iter().map(|(row, version)| (Key { table: *number, number: row }, version)));
    }
    Ok(contents)
}
