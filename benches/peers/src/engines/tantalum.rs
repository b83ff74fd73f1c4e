//! Tantalum: the in-place store on files of a directory, all as it comes but for sizes and the partitions of the log.
//!
//! - `log_partitions`: from `--log-partitions`, as `tantalum probe` recommends it for the device; the log writes to all of them
//!   at the same time.
//! - Everything else is the default: serializable transactions, early lock release, double-write area, direct I/O, so the
//!   buffer pool is all the memory that pages have.
//! - Reads are of what is committed, and ranges of a snapshot; neither takes locks. Read-modify-write locks its keys for writing
//!   at once.

use std::{collections::VecDeque, thread, time::Duration};

use tantalum::{Builder, Db, Table, Ticket, Transaction};

use crate::{
    engine::{Engine, Pipeline, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "tantalum";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str = "in-place store, one log file in --log-partitions partitions, defaults: serializable, early lock release, direct I/O";

/// The open database.
pub struct Tantalum {
    db: Db,
    table: Table,
}

fn failed(doing: &'static str) -> impl Fn(tantalum::Error) -> Error {
    move |error| match error.is_retryable() {
        true => Error::Conflict,
        false => Error::engine(NAME, doing)(error),
    }
}

fn builder(setup: &Setup) -> Builder {
    Db::builder().buffer_pool_bytes(setup.cache_bytes).log_bytes(setup.log_bytes).log_partitions(setup.log_partitions)
}

impl Tantalum {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Of the engine.
    pub fn open(setup: &Setup) -> Result<Self> {
        let db = builder(setup).open(&setup.directory).map_err(failed("opening"))?;
        let table = db.table("rows").map_err(failed("opening the table"))?;
        Ok(Self { db, table })
    }

    /// A transaction that has put these rows, and is not committed.
    fn put(&self, rows: &[Row<'_>]) -> tantalum::Result<Transaction> {
        let mut transaction = self.db.begin()?;
        rows.iter().try_for_each(|(key, value)| transaction.put(&self.table, key, value))?;
        Ok(transaction)
    }
}

impl Engine for Tantalum {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Client(self)))
    }

    fn pipeline(&self) -> Option<Box<dyn Pipeline + '_>> {
        Some(Box::new(InFlight { engine: self, tickets: VecDeque::new() }))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        self.db.bulk_load(self.table.name(), rows).map(drop).map_err(failed("loading in bulk"))
    }

    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        let put = || {
            let mut transaction = self.db.begin()?;
            for (key, value) in rows {
                transaction.put(&self.table, key, value)?;
            }
            transaction.commit()
        };
        put().map(drop).map_err(failed("committing"))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close().map_err(failed("closing"))
    }

    /// Staged and deferred rows go to their table in the background, those of change buffers only if there is no space for them.
    fn drain(self: Box<Self>, setup: &Setup) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(1);
        self.close()?;
        let db = builder(setup).expert(|expert| expert.change_buffer_bytes(0)).open(&setup.directory);
        let db = db.map_err(failed("opening"))?;
        while db.stats().map_err(failed("waiting"))?.transactions.staging_tables > 0 {
            thread::sleep(LOOK);
        }
        db.close().map_err(failed("closing"))
    }
}

/// A client has nothing of its own.
struct Client<'a>(&'a Tantalum);

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        self.0.put(rows).and_then(Transaction::commit).map(drop).map_err(failed("committing"))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.db.get(&self.0.table, key).map_err(failed("reading"))?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = || {
            let snapshot = self.0.db.snapshot()?;
            let mut range = snapshot.range(&self.0.table, from..)?;
            for _ in 0..rows {
                let Some(row) = range.next_borrowed() else { break };
                let (key, value) = row?;
                visit(key, value);
            }
            Ok(())
        };
        scan().map_err(failed("scanning"))
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        let mut modify = || {
            let mut transaction = self.0.db.begin()?;
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                let value = transaction.get_for_update(&self.0.table, key)?;
                values.push(value.as_deref().unwrap_or_default().to_vec());
            }
            change(&mut values);
            for (key, value) in keys.iter().zip(&values) {
                transaction.put(&self.0.table, key, value)?;
            }
            transaction.commit()
        };
        modify().map(drop).map_err(failed("reading and writing"))
    }
}

/// Commits under way, the oldest first.
struct InFlight<'a> {
    engine: &'a Tantalum,
    tickets: VecDeque<Ticket>,
}

impl Pipeline for InFlight<'_> {
    fn start(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let ticket = self.engine.put(rows).and_then(Transaction::commit_async);
        self.tickets.push_back(ticket.map_err(failed("committing"))?);
        Ok(())
    }

    fn finish_oldest(&mut self) -> Result<()> {
        match self.tickets.pop_front() {
            Some(ticket) => ticket.wait().map(drop).map_err(failed("waiting for a commit")),
            None => Ok(()),
        }
    }
}
