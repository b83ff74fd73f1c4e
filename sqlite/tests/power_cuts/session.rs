//! A connection to one of the databases, or to both, and how its statements may end.

use std::{path::Path, sync::Arc, time::Duration};

use rusqlite::{Connection, ErrorCode, Params};
use tantalum_rt::Random;

use crate::machine::Power;

/// The files of the databases, by number.
pub const FILES: [&str; 2] = ["one.db", "two.db"];

/// Why a transaction goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another connection has what it needs.
    Busy,
    /// There is no power.
    PowerLost,
}

/// A database that a connection uses.
#[derive(Clone, Debug)]
pub struct Schema {
    pub name: &'static str,
    /// Which of [`FILES`].
    pub database: usize,
    /// A commit is durable when it returns.
    pub is_durable: bool,
    /// So were all of this connection: what it is shown is not what it has itself committed and has in its page cache.
    pub was_always_durable: bool,
    /// SQLite writes a super-journal for transactions over several such databases, so that they commit in all or in none.
    pub is_together: bool,
}

/// An open connection.
pub struct Session {
    pub connection: Connection,
    pub schemas: Vec<Schema>,
    power: Arc<Power>,
}

impl Session {
    /// Opens a connection to a random one of the databases, and perhaps the other one too, with random settings.
    pub fn open(directory: &Path, power: &Arc<Power>, random: &mut Random) -> Result<Self, Stop> {
        let main = random.usize(0..2);
        let mut session = Self::open_one(directory, power, main)?;
        session.run(&format!("PRAGMA cache_size = {}", [4, 20, 2000][random.usize(0..3)]))?;
        let has_both = random.u32(0..3) > 0;
        if has_both {
            session.run(&format!("ATTACH '{}' AS other", uri(directory, 1 - main)))?;
            session.run(&format!("PRAGMA other.cache_size = {}", [4, 2000][random.usize(0..2)]))?;
        }
        session.schemas = [("main", main), ("other", 1 - main)][..1 + usize::from(has_both)]
            .iter()
            .map(|&(name, database)| Schema {
                name,
                database,
                is_durable: true,
                was_always_durable: true,
                is_together: true,
            })
            .collect();
        // Two that lock the databases in another order wait for each other.
        let is_in_order = main == 0 || !has_both;
        session.wait_for_others(Duration::from_millis(if is_in_order { 2000 } else { 60 }))?;
        session.choose_modes(random)?;
        Ok(session)
    }

    /// Opens a connection to one database, with default settings.
    pub fn open_one(directory: &Path, power: &Arc<Power>, database: usize) -> Result<Self, Stop> {
        let connection = Connection::open(uri(directory, database));
        let stop = |error| stop(power, &error, "opening");
        let schema = Schema { name: "main", database, is_durable: true, was_always_durable: true, is_together: true };
        let session = Self { connection: connection.map_err(stop)?, schemas: vec![schema], power: Arc::clone(power) };
        session.wait_for_others(Duration::from_secs(2))?;
        Ok(session)
    }

    fn wait_for_others(&self, at_most: Duration) -> Result<(), Stop> {
        self.ask(|connection| connection.busy_timeout(at_most))
    }

    /// Other journal modes, and how durable commits are.
    pub fn choose_modes(&mut self, random: &mut Random) -> Result<(), Stop> {
        let mut schemas = self.schemas.clone();
        for schema in &mut schemas {
            let mode = ["delete", "delete", "truncate", "persist", "memory"][random.usize(0..5)];
            let level = ["off", "normal", "full", "full", "extra"][random.usize(0..5)];
            let name = schema.name;
            self.run(&format!("PRAGMA {name}.journal_mode={mode}; PRAGMA {name}.synchronous={level}"))?;
            schema.is_durable = level != "off";
            schema.was_always_durable &= schema.is_durable;
            schema.is_together = schema.is_durable && mode != "memory";
        }
        self.schemas = schemas;
        Ok(())
    }

    /// Has SQLite do something.
    pub fn ask<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Stop> {
        ask(&self.connection).map_err(|error| stop(&self.power, &error, "asking"))
    }

    /// Runs statements.
    pub fn run(&self, sql: &str) -> Result<(), Stop> {
        self.connection.execute_batch(sql).map_err(|error| stop(&self.power, &error, sql))
    }

    /// Runs a statement.
    pub fn execute(&self, sql: &str, values: impl Params) -> Result<(), Stop> {
        self.connection.execute(sql, values).map(drop).map_err(|error| stop(&self.power, &error, sql))
    }

    /// Runs a statement; false if a constraint keeps it from doing anything.
    pub fn unless_constraint(&self, sql: &str, values: impl Params) -> Result<bool, Stop> {
        match self.connection.execute(sql, values) {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Ok(false),
            other => other.map(|_| true).map_err(|error| stop(&self.power, &error, sql)),
        }
    }

    /// Leaves the transaction, if there is one.
    pub fn roll_back(&self) -> Result<(), Stop> {
        if self.connection.is_autocommit() { Ok(()) } else { self.run("ROLLBACK") }
    }
}

/// The URI of a database.
pub fn uri(directory: &Path, database: usize) -> String {
    format!("file:{}?vfs=tantalum", directory.join(FILES[database]).display())
}

/// Why SQLite failed. With power, there is no reason but another connection.
pub fn stop(power: &Power, error: &rusqlite::Error, what: &str) -> Stop {
    let reason = tantalum_sqlite::last_error().unwrap_or_default();
    assert!(!reason.contains("panicked"), "{what}: {error}: {reason}");
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy) => Stop::Busy,
        _ if !power.is_on() => Stop::PowerLost,
        _ => panic!("{what}: {error}: {reason}"),
    }
}
