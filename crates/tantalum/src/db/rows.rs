//! Rows of a [`Db`] outside of a transaction: reads of the present state, and writes that are a transaction each.

use std::ops::RangeBounds;

use tantalum_log::Lsn;

use super::Db;
use crate::{
    error::Result,
    table::Table,
    transaction::{KeyRange, RangeIter, Value, ValueReader, read_present, read_present_value},
};

/// Reads show what is committed now, take no locks, and wait, if need be, until what they show is durable.
impl Db {
    /// The value of one key as it is committed now, or `None`: what a snapshot for this one read would show, for less.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let accounts = db.table("accounts")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&accounts, "alice", "100")?;
    /// assert_eq!(db.get(&accounts, "alice")?, None, "not committed yet");
    /// tx.commit()?;
    /// assert_eq!(db.get(&accounts, "alice")?.unwrap(), b"100");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed); [`NotFound`](crate::ErrorKind::NotFound) for a table that was dropped,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for one of another database; what a device or the log reports.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.read_now(table, |table| read_present_value(table, key.as_ref()))
    }

    /// Whether a key is there. Reads no large value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.read_now(table, |table| {
            let (content, lsn) = read_present(table, key.as_ref())?;
            Ok((content.is_some(), lsn))
        })
    }

    /// What is there now, and durable, by a read that tells how far the log must be.
    fn read_now<T>(&self, table: &Table, read: impl FnOnce(&Table) -> Result<(T, Lsn)>) -> Result<T> {
        let core = self.core();
        core.check_open()?;
        let log_id = core.log().log_id();
        table.check_usable(log_id)?;
        let read = read(table);
        // This read does not keep the table from being dropped meanwhile: for that, all readers would have to change one word. But
        // before the first of its pages is freed, the table is marked as dropped.
        table.check_usable(log_id)?;
        let (value, lsn) = core.if_open(read)?;
        core.pool.flush(lsn)?;
        Ok(value)
    }

    /// The values of keys, in the order of the keys, with `None` for each that is not there: all of the same moment.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        self.snapshot()?.get_many(table, keys)
    }

    /// A part of the value of one key, as far as the value has these bytes: only the pages with them are read. Otherwise as
    /// [`get`](Self::get).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_range(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        bytes: impl RangeBounds<u64>,
    ) -> Result<Option<Value>> {
        self.snapshot()?.get_range(table, key, bytes)
    }

    /// A reader of the value of one key as it is committed now, which needs no memory for it; `None` if the key is not there. While
    /// it lives, the pages of the value stay, whatever is written.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn reader(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.snapshot()?.reader(table, key)
    }

    /// The rows of a range of keys as of now, in key order from either end. The iterator holds a [snapshot](Self::snapshot).
    ///
    /// # Errors
    /// As [`Snapshot::range`](crate::Snapshot::range).
    pub fn range(&self, table: &Table, range: impl KeyRange) -> Result<RangeIter<'static>> {
        self.snapshot()?.range(table, range)
    }

    /// The rows whose keys begin with these bytes; otherwise as [`range`](Self::range).
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<RangeIter<'static>> {
        self.snapshot()?.prefix(table, prefix)
    }

    /// The row with the lowest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.snapshot()?.first(table)
    }

    /// The row with the highest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.snapshot()?.last(table)
    }
}

/// Each of these writes is a transaction of its own, run with [`Db::transact`]: durable when it returns. Do not call them while a
/// transaction of the same thread holds locks that they need.
impl Db {
    /// Sets the value of a key, whether it is there or not.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let accounts = db.table("accounts")?;
    /// db.put(&accounts, "alice", "100")?; // durable now
    /// assert!(db.contains(&accounts, "alice")?);
    /// assert!(db.delete(&accounts, "alice")?);
    /// assert!(!db.delete(&accounts, "alice")?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::put`](crate::Transaction::put) and [`transact`](Self::transact).
    pub fn put(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transact(|tx| tx.put(table, &key, &value))
    }

    /// Sets the value of a key that is not there.
    ///
    /// # Errors
    /// As [`Transaction::insert`](crate::Transaction::insert) and [`transact`](Self::transact).
    pub fn insert(&self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.transact(|tx| tx.insert(table, &key, &value))
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`Transaction::delete`](crate::Transaction::delete) and [`transact`](Self::transact).
    pub fn delete(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.transact(|tx| tx.delete(table, &key))
    }

    /// Deletes the rows of a range, all or none. Returns how many there were.
    ///
    /// # Errors
    /// As [`Transaction::delete_range`](crate::Transaction::delete_range) and [`transact`](Self::transact).
    pub fn delete_range(&self, table: &Table, range: impl KeyRange) -> Result<u64> {
        let bounds = range.into_bounds();
        self.transact(|tx| tx.delete_range(table, bounds.clone()))
    }

    /// Sets the value of a key to `new` if it is `expected`, and returns whether it was; `None` stands for a key that is not there.
    ///
    /// # Errors
    /// As [`Transaction::compare_and_swap`](crate::Transaction::compare_and_swap) and [`transact`](Self::transact).
    pub fn compare_and_swap(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        self.transact(|tx| tx.compare_and_swap(table, &key, expected, new))
    }

    /// Adds to the number that a key has as its value, and returns the sum; see
    /// [`Transaction::increment`](crate::Transaction::increment).
    ///
    /// # Errors
    /// As [`Transaction::increment`](crate::Transaction::increment) and [`transact`](Self::transact).
    pub fn increment(&self, table: &Table, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        self.transact(|tx| tx.increment(table, &key, by))
    }
}
