//! What transactions and snapshots have in common for those that only read.

use tantalum::{Snapshot, Table, Value};

use crate::error::{Error, Result};

/// Reads rows.
pub(super) trait Source {
    fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>>;

    /// Rows with keys from `low` to before `high`.
    fn rows(
        &mut self,
        table: &Table,
        low: &[u8],
        high: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>>;
}

impl Source for &Snapshot {
    fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        Ok(Snapshot::get(self, table, key)?)
    }

    fn rows(
        &mut self,
        table: &Table,
        low: &[u8],
        high: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>> {
        Ok(self.range(table, low..high)?)
    }
}

/// The row that must be there.
pub(super) fn present(row: Option<Value>, table: &'static str, key: &[u8]) -> Result<Value> {
    row.ok_or_else(|| Error::Missing { table, key: key.to_vec() })
}
