//! Initial databases, made by several tasks in many transactions of bounded size.
//!
//! The work is cut into units. Each unit has its own random numbers, so the rows are the same whatever the number of
//! tasks and their order. The first table of a workload has one row: its parameters, and whether the load is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum::{Db, Table, Transaction};
use tantalum_rt::Random;

use crate::error::Result;
use crate::row::{Decoder, Field};
use crate::tasks::map_by_tasks;

/// What a load tells while it is under way, about twice a second.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Rows written, index entries included.
    pub rows: u64,
    /// Rows to be written in all; where they depend on chance, their expected number.
    pub total_rows: u64,
}

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
    fn new(db: &'l Db, committed: &'l AtomicU64) -> Self {
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

    fn commit(&mut self) -> Result<()> {
        if let Some(transaction) = self.transaction.take() {
            transaction.commit()?;
        }
        self.committed.fetch_add(self.rows, Ordering::Relaxed);
        (self.bytes, self.rows) = (0, 0);
        Ok(())
    }
}

/// The pieces of a load.
pub(crate) struct Units<U> {
    pub(crate) units: Vec<U>,
    /// Expected.
    pub(crate) total_rows: u64,
    pub(crate) seed: u64,
}

impl<U: Send + Sync + 'static> Units<U> {
    /// Has `loaders` tasks make all units; whatever they put into their batches is committed when it returns.
    pub(crate) fn make<M>(self, db: &Db, loaders: usize, make: M, progress: &mut dyn FnMut(&LoadProgress)) -> Result<()>
    where
        M: Fn(&U, &mut Batch<'_>, &mut Random) -> Result<()> + Send + Sync + 'static,
    {
        let Self { units, total_rows, seed } = self;
        let (db, committed) = (db.clone(), Arc::new(AtomicU64::new(0)));
        let rows = committed.clone();
        let rows = || rows.load(Ordering::Relaxed);
        let mut tick = || {
            progress(&LoadProgress { rows: rows(), total_rows });
            Duration::from_millis(500)
        };
        let make_unit = move |number: usize, unit: &U| {
            let seed = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut batch = Batch::new(&db, &committed);
            make(unit, &mut batch, &mut Random::with_seed(seed))?;
            batch.commit()
        };
        map_by_tasks("loader", loaders, units, make_unit, &mut tick)?;
        progress(&LoadProgress { rows: rows(), total_rows: rows() });
        Ok(())
    }
}

/// The key of the one row of a workload's first table: the format of the parameters, whether the load is complete, and the
/// parameters that the database was loaded with.
pub(crate) const PARAMETERS_KEY: &[u8] = b"parameters";

/// Of the encoding of parameters; raised when it changes.
const FORMAT: u16 = 1;

/// The parameters that the database was loaded with; `None` unless a load in today's format is complete.
pub(crate) fn loaded<P>(db: &Db, table: &'static str, decode: impl FnOnce(&[u8]) -> Result<P>) -> Result<Option<P>> {
    // Opening a table would create it.
    if !db.tables()?.iter().any(|name| name == table) {
        return Ok(None);
    }
    let Some(row) = db.get(&db.table(table)?, PARAMETERS_KEY)? else { return Ok(None) };
    let mut decoder = Decoder::new(table, &row);
    let head = (u16::take(&mut decoder)?, u8::take(&mut decoder)?);
    (head == (FORMAT, 1)).then(|| decode(decoder.rest())).transpose()
}

/// Creates the tables and has `load` fill them, after dropping what an unfinished load left behind. The row of parameters is
/// written first as unfinished and last as finished, so that a later run sees whether the load came to its end.
pub(crate) fn load(db: &Db, tables: &[&str], parameters: &[u8], load: impl FnOnce() -> Result<()>) -> Result<()> {
    drop_tables(db, tables)?;
    let tables = tables.iter().map(|name| db.table(name)).collect::<tantalum::Result<Vec<Table>>>()?;
    let mark = |is_complete: u8| -> Result<()> {
        let mut row = Vec::new();
        FORMAT.put(&mut row);
        is_complete.put(&mut row);
        row.extend_from_slice(parameters);
        let mut tx = db.begin()?;
        tx.put(&tables[0], PARAMETERS_KEY, &row)?;
        tx.commit()?;
        Ok(())
    };
    mark(0)?;
    load()?;
    mark(1)
}

/// Drops those of the tables that exist.
fn drop_tables(db: &Db, names: &[&str]) -> Result<()> {
    let existing = db.tables()?;
    for name in names {
        if existing.iter().any(|existing| existing == name) {
            db.drop_table(name)?;
        }
    }
    Ok(())
}
