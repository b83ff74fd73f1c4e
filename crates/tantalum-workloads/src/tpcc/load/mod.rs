//! The initial database of clause 4.3.3, made by several tasks in many transactions of bounded size.
//!
//! The work is cut into units (a thousand items, one district's orders, ...). Each unit has its own random numbers,
//! so the rows are the same whatever the number of tasks and their order. The row of parameters is
//! written first as unfinished and last as finished: a load that was cut off is seen, dropped and made anew.

mod batch;
mod units;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tantalum::Db;
use tantalum_rt::Random;

use super::parameters::{Loaded, Parameters};
use super::random::Constants;
use super::schema::{TABLE_NAMES, Tables};
use crate::error::Result;
use crate::tasks;
use units::Unit;

/// What a load tells while it is under way, about twice a second.
#[derive(Clone, Copy, Debug)]
pub struct LoadProgress {
    /// Rows written, index entries included.
    pub rows: u64,
    /// Rows to be written in all; the number of order lines in it is their expected one.
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

/// What all loader tasks use.
struct Load {
    db: Db,
    tables: Tables,
    parameters: Parameters,
    constants: Constants,
    units: Vec<Unit>,
    next_unit: AtomicUsize,
    rows: AtomicU64,
    has_failed: AtomicBool,
}

/// The parameters of a finished load.
pub(super) fn loaded(db: &Db) -> Result<Option<Loaded>> {
    let [parameters, ..] = TABLE_NAMES;
    // Opening a table would create it.
    if !db.tables()?.iter().any(|name| name == parameters) {
        return Ok(None);
    }
    let row = db.snapshot()?.get(&db.table(parameters)?, Loaded::KEY)?;
    let loaded = row.map(|row| Loaded::decode(&row)).transpose()?;
    Ok(loaded.filter(Loaded::is_usable))
}

/// Loads, after dropping what an unfinished load left behind.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    drop_tables(db)?;
    let constants = Constants::for_load(&mut Random::with_seed(parameters.seed));
    let load = Arc::new(Load {
        db: db.clone(),
        tables: Tables::open(db)?,
        parameters,
        constants,
        units: Unit::all(&parameters),
        next_unit: AtomicUsize::new(0),
        rows: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
    });
    load.mark(false)?;
    let started = tantalum_rt::now();
    let total_rows = units::expected_rows(&parameters);
    let mut tick = || {
        let rows = load.rows.load(Ordering::Relaxed);
        progress(&LoadProgress { rows, total_rows, elapsed: started.elapsed() });
        Duration::from_millis(500)
    };
    let loader = |number| {
        let load = load.clone();
        (format!("loader {number}"), move || load.run())
    };
    tasks::run_all((0..loaders.max(1)).map(loader).collect(), &mut tick)?;
    load.mark(true)?;
    let rows = load.rows.load(Ordering::Relaxed);
    progress(&LoadProgress { rows, total_rows: rows, elapsed: started.elapsed() });
    Ok(())
}

fn drop_tables(db: &Db) -> Result<()> {
    let existing = db.tables()?;
    for name in TABLE_NAMES {
        if existing.iter().any(|existing| existing == name) {
            db.drop_table(name)?;
        }
    }
    Ok(())
}

impl Load {
    fn mark(&self, is_loaded: bool) -> Result<()> {
        let row = Loaded::new(&self.parameters, self.constants.last_name, is_loaded).encode();
        let mut tx = self.db.begin()?;
        tx.put(&self.tables.parameters, Loaded::KEY, &row)?;
        tx.commit()?;
        Ok(())
    }

    /// Takes unit after unit until none is left, or another loader has failed.
    fn run(&self) -> Result<()> {
        while !self.has_failed.load(Ordering::Relaxed) {
            let number = self.next_unit.fetch_add(1, Ordering::Relaxed);
            let Some(unit) = self.units.get(number) else { break };
            let seed = self.parameters.seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let made = unit.make(self, &mut Random::with_seed(seed));
            made.inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    }
}
