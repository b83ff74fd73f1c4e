//! Rows put in transactions of bounded size.

use std::sync::atomic::{AtomicU64, Ordering};

use tantalum::{Db, Table, Transaction};

use crate::error::Result;

/// A transaction is committed when its rows reach this many bytes. Small enough for the smallest log and buffer
/// pool: a commit is one log record, and holds all pages that it changes.
const TRANSACTION_BYTES: usize = 16 << 10;

/// Rows, too: index entries are short and may each fall on another page.
const TRANSACTION_ROWS: u64 = 200;

/// Rows of one unit under way.
pub(crate) struct Batch<'l> {
    db: &'l Db,
    /// Rows that are committed, of all units.
    committed: &'l AtomicU64,
    transaction: Option<Transaction>,
    bytes: usize,
    rows: u64,
}

impl<'l> Batch<'l> {
    pub(super) fn new(db: &'l Db, committed: &'l AtomicU64) -> Self {
        Self { db, committed, transaction: None, bytes: 0, rows: 0 }
    }

    pub(crate) fn put(&mut self, table: &Table, key: &[u8], row: &[u8]) -> Result<()> {
        let mut transaction = match self.transaction.take() {
            Some(transaction) => transaction,
            None => self.db.begin()?,
        };
        transaction.put(table, key, row)?;
        self.transaction = Some(transaction);
        self.bytes += key.len() + row.len();
        self.rows += 1;
        if self.bytes >= TRANSACTION_BYTES || self.rows >= TRANSACTION_ROWS { self.commit() } else { Ok(()) }
    }

    /// Index entries are put in order of their keys, so that a transaction touches few pages.
    pub(crate) fn put_index(&mut self, table: &Table, mut keys: Vec<Vec<u8>>) -> Result<()> {
        keys.sort_unstable();
        keys.iter().try_for_each(|key| self.put(table, key, b""))
    }

    pub(super) fn commit(&mut self) -> Result<()> {
        if let Some(transaction) = self.transaction.take() {
            transaction.commit()?;
        }
        self.committed.fetch_add(self.rows, Ordering::Relaxed);
        (self.bytes, self.rows) = (0, 0);
        Ok(())
    }
}
