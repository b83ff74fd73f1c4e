//! A transaction or snapshot as the five transactions use it, and what both have in common for those that only read.
//! `before_call`, if set, is told of each call to the engine.

use tantalum::{Snapshot, Table, Transaction, Value};

use super::schema::Key;
use super::terminal::{Call, Context};
use crate::error::{self, Result};

/// A read-write transaction.
pub(super) struct Session<'c> {
    context: &'c Context,
    tx: Transaction,
}

/// A snapshot.
pub(super) struct Reading<'c> {
    context: &'c Context,
    snapshot: Snapshot,
}

impl Context {
    pub(super) fn begin(&self) -> Result<Session<'_>> {
        Ok(Session { context: self, tx: self.db.begin()? })
    }

    pub(super) fn snapshot(&self) -> Result<Reading<'_>> {
        Ok(Reading { context: self, snapshot: self.db.snapshot()? })
    }

    fn before(&self, call: Call) {
        if let Some(before_call) = &self.before_call {
            before_call(call);
        }
    }
}

impl Session<'_> {
    pub(super) fn get_for_update(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.context.before(Call::Read);
        self.tx.get_for_update(table, key)
    }

    pub(super) fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, row: impl AsRef<[u8]>) -> Result<()> {
        self.context.before(Call::Write);
        self.tx.put(table, key, row)
    }

    pub(super) fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, row: impl AsRef<[u8]>) -> Result<()> {
        self.context.before(Call::Write);
        self.tx.insert(table, key, row)
    }

    pub(super) fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.context.before(Call::Write);
        self.tx.delete(table, key)
    }

    pub(super) fn commit(self) -> Result<()> {
        self.context.before(Call::Commit);
        self.tx.commit()?;
        Ok(())
    }

    pub(super) fn rollback(self) {
        self.tx.rollback();
    }
}

impl Source for Session<'_> {
    fn prefetch(&mut self, table: &Table, keys: &[Key]) -> Result<()> {
        self.tx.prefetch(table, keys)
    }

    fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.context.before(Call::Read);
        self.tx.get(table, key)
    }

    fn rows(
        &mut self,
        table: &Table,
        low: &[u8],
        high: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>> {
        self.context.before(Call::Read);
        self.tx.range(table, low..high)
    }
}

impl Source for Reading<'_> {
    fn prefetch(&mut self, table: &Table, keys: &[Key]) -> Result<()> {
        self.snapshot.prefetch(table, keys)
    }

    fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.context.before(Call::Read);
        self.snapshot.get(table, key)
    }

    fn rows(
        &mut self,
        table: &Table,
        low: &[u8],
        high: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>> {
        self.context.before(Call::Read);
        self.snapshot.range(table, low..high)
    }
}

/// Reads rows.
pub(super) trait Source {
    /// Says that rows will be wanted soon.
    fn prefetch(&mut self, table: &Table, keys: &[Key]) -> Result<()>;

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
    fn prefetch(&mut self, table: &Table, keys: &[Key]) -> Result<()> {
        Snapshot::prefetch(self, table, keys)
    }

    fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        Snapshot::get(self, table, key)
    }

    fn rows(
        &mut self,
        table: &Table,
        low: &[u8],
        high: &[u8],
    ) -> Result<impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>> {
        self.range(table, low..high)
    }
}

/// The row that must be there.
pub(super) fn present(row: Option<Value>, table: &'static str, key: &[u8]) -> Result<Value> {
    row.ok_or_else(|| error::missing(table, key))
}
