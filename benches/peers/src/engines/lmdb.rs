//! LMDB, by heed: no flag that gives up durability, so each commit ends with `fdatasync` and a write of the root page that is
//! synchronous.
//!
//! - `NO_SYNC`, `NO_META_SYNC` and `MAP_ASYNC` would lose commits; none is set. `WRITE_MAP` is not set either: it is as durable,
//!   but a stray pointer of the program then damages the database, and LMDB's own documentation has it as an option for
//!   applications that accept that.
//! - Its cache is the operating system's. Where the database is larger than the cache on purpose, pages beyond the cache's size
//!   are thrown out of it ([`page_cache`](crate::page_cache)), and `NO_READ_AHEAD` is set, as its documentation advises for
//!   random reads of a database larger than memory.
//! - One writer at a time: a transaction that writes waits for the one before to be durable. That is its design.
//! - Rows are loaded in one transaction with `APPEND`.

use std::{convert::Infallible, ops::Bound};

use heed::{CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, PutFlags, RwTxn, types::Bytes};

use crate::{
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "lmdb";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str =
    "all synchronous, no WRITE_MAP; the operating system's cache; NO_READ_AHEAD for cold reads";

/// Of address space, not of the file.
const MAP_BYTES: usize = 64 << 30;

/// The open environment.
pub struct Lmdb {
    env: &'static Env,
    rows: Database<'static, Bytes, Bytes>,
}

fn failed(doing: &'static str) -> impl Fn(heed::Error) -> Error {
    Error::engine(NAME, doing)
}

impl Lmdb {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Of the engine.
    pub fn open(setup: &Setup) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        // Two for other processes that look at the database.
        options.map_size(MAP_BYTES).max_readers(u32::try_from(setup.sessions).unwrap_or(u32::MAX).saturating_add(2));
        let mut open = || {
            // The handle of a table borrows from it, and a process opens one.
            let env: &'static Env = Box::leak(Box::new(open_env(&mut options, setup)?));
            let created = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
                opener.create_database(transaction, None).map(CommitOrAbort::<_, Infallible>::Commit)
            })?;
            match created {
                CommitOrAbort::Commit(rows) => Ok(Self { env, rows }),
                CommitOrAbort::Abort(never) => match never {},
            }
        };
        open().map_err(failed("opening"))
    }

    /// One durable transaction.
    fn write(&self, work: impl FnOnce(&mut RwTxn<'_>) -> Result<(), heed::Error>) -> Result<()> {
        let write = || {
            let mut transaction = self.env.write_txn()?;
            work(&mut transaction)?;
            transaction.commit()
        };
        write().map_err(failed("committing"))
    }
}

#[allow(unsafe_code)] // The map of the file is memory that others could change.
fn open_env(options: &mut EnvOpenOptions, setup: &Setup) -> Result<Env, heed::Error> {
    let flags = if setup.is_cold { EnvFlags::NO_READ_AHEAD } else { EnvFlags::empty() };
    // SAFETY: the flag gives up neither locks nor durability, and the files in this directory are changed by LMDB only: it is
    // made by and for this program, which opens it once in a process.
    unsafe { options.flags(flags).open(&setup.directory) }
}

impl Engine for Lmdb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Client(self)))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        self.write(|transaction| {
            for (key, value) in rows {
                self.rows.put_with_flags(transaction, PutFlags::APPEND, &key, &value)?;
            }
            Ok(())
        })
    }

    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        self.write(|transaction| {
            for (key, value) in rows {
                self.rows.put(transaction, &key, &value)?;
            }
            Ok(())
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        // All is durable, and the end of the process gives the map back.
        Ok(())
    }
}

/// A client has nothing of its own.
struct Client<'a>(&'a Lmdb);

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        self.0.write(|transaction| rows.iter().try_for_each(|(key, value)| self.0.rows.put(transaction, key, value)))
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let mut read = || {
            let transaction = self.0.env.read_txn()?;
            let found = self.0.rows.get(&transaction, key)?;
            value.clear();
            value.extend_from_slice(found.unwrap_or_default());
            Ok(found.is_some())
        };
        read().map_err(failed("reading"))
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = || {
            let transaction = self.0.env.read_txn()?;
            for row in self.0.rows.range(&transaction, &(Bound::Included(from), Bound::Unbounded))?.take(rows) {
                let (key, value) = row?;
                visit(key, value);
            }
            Ok(())
        };
        scan().map_err(failed("scanning"))
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        let table = self.0.rows;
        self.0.write(|transaction| {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(table.get(transaction, key)?.unwrap_or_default().to_vec());
            }
            change(&mut values);
            keys.iter().zip(&values).try_for_each(|(key, value)| table.put(transaction, key, value))
        })
    }
}
