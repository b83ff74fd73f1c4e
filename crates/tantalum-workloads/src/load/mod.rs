//! Initial databases, made by several tasks in many transactions of bounded size.
//!
//! The work is cut into units. Each unit has its own random numbers, so the rows are the same whatever the number of
//! tasks and their order. A mark, one row that the workload defines, tells whether a load came to its end.

mod batch;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tantalum::{Db, Table, Value};
use tantalum_rt::Random;

use crate::error::Result;
use crate::tasks;

pub(crate) use batch::Batch;

/// What a load tells while it is under way, about twice a second.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Rows written, index entries included.
    pub rows: u64,
    /// Rows to be written in all; where they depend on chance, their expected number.
    pub total_rows: u64,
    /// Since the load began.
    pub elapsed: Duration,
}

impl LoadProgress {
    /// Rows in a second, so far.
    pub fn rows_per_second(&self) -> f64 {
        self.rows as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// The time that the rest takes at the rate so far.
    pub fn time_left(&self) -> Duration {
        let rows_left = self.total_rows.saturating_sub(self.rows) as f64;
        Duration::try_from_secs_f64(rows_left / self.rows_per_second().max(1e-9)).unwrap_or(Duration::MAX)
    }
}

/// The pieces of a load.
pub(crate) struct Units<U> {
    pub(crate) units: Vec<U>,
    /// Expected.
    pub(crate) total_rows: u64,
    pub(crate) seed: u64,
}

struct Shared<U, M> {
    db: Db,
    units: Vec<U>,
    make: M,
    seed: u64,
    next_unit: AtomicUsize,
    rows: AtomicU64,
    has_failed: AtomicBool,
}

impl<U: Send + Sync + 'static> Units<U> {
    /// Has `loaders` tasks make all units; whatever they put into their batches is committed when it returns.
    pub(crate) fn make<M>(self, db: &Db, loaders: usize, make: M, progress: &mut dyn FnMut(&LoadProgress)) -> Result<()>
    where
        M: Fn(&U, &mut Batch<'_>, &mut Random) -> Result<()> + Send + Sync + 'static,
    {
        let Self { units, total_rows, seed } = self;
        let shared = Arc::new(Shared {
            db: db.clone(),
            units,
            make,
            seed,
            next_unit: AtomicUsize::new(0),
            rows: AtomicU64::new(0),
            has_failed: AtomicBool::new(false),
        });
        let started = tantalum_rt::now();
        let rows = || shared.rows.load(Ordering::Relaxed);
        let mut tick = || {
            progress(&LoadProgress { rows: rows(), total_rows, elapsed: started.elapsed() });
            Duration::from_millis(500)
        };
        let loader = |number| {
            let shared = shared.clone();
            (format!("loader {number}"), move || shared.run())
        };
        tasks::run_all((0..loaders.max(1)).map(loader).collect(), &mut tick)?;
        progress(&LoadProgress { rows: rows(), total_rows: rows(), elapsed: started.elapsed() });
        Ok(())
    }
}

impl<U, M: Fn(&U, &mut Batch<'_>, &mut Random) -> Result<()>> Shared<U, M> {
    /// Takes unit after unit until none is left, or another loader has failed.
    fn run(&self) -> Result<()> {
        while !self.has_failed.load(Ordering::Relaxed) {
            let number = self.next_unit.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = self.units.get(number) else { break };
            let seed = self.seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let mut batch = Batch::new(&self.db, &self.rows);
            let made = (self.make)(unit, &mut batch, &mut Random::with_seed(seed)).and_then(|()| batch.commit());
            made.inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }
}

/// The row that says what the database was loaded with, if there is one.
pub(crate) fn mark(db: &Db, table: &str, key: &[u8]) -> Result<Option<Value>> {
    // Opening a table would create it.
    if !db.tables()?.iter().any(|name| name == table) {
        return Ok(None);
    }
    Ok(db.get(&db.table(table)?, key)?)
}

/// Makes it say something else.
pub(crate) fn put_mark(db: &Db, table: &Table, key: &[u8], row: &[u8]) -> Result<()> {
    let mut tx = db.begin()?;
    tx.put(table, key, row)?;
    tx.commit()?;
    Ok(())
}

/// Drops those of the tables that exist.
pub(crate) fn drop_tables(db: &Db, names: &[&str]) -> Result<()> {
    let existing = db.tables()?;
    for name in names {
        if existing.iter().any(|existing| existing == name) {
            db.drop_table(name)?;
        }
    }
    Ok(())
}
