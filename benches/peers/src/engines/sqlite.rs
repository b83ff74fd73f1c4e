//! SQLite, bundled with rusqlite: write-ahead log, `synchronous=FULL`, which synchronizes the log at each commit.
//!
//! - One connection writes, behind a lock of this adapter, as its documentation advises for programs with many writers: its own
//!   waiting for the lock of the file is polling, which would cost it far more. Each client reads with a connection of its own.
//! - The writer's page cache is as large as every engine's; readers share that much of the file through `mmap_size`, and have
//!   SQLite's default cache each. Where the database is larger than the cache on purpose, nothing is mapped: readers have a part of
//!   the cache each, and the operating system's cache below is kept empty ([`page_cache`](crate::page_cache)).
//! - `wal_autocheckpoint` stays at its default of 1000 pages: a longer log makes each read look in more of its index.
//! - A table `WITHOUT ROWID`, one B-tree with the key as it is, where rows are small; with larger ones, of which such a tree keeps a
//!   part on overflow pages, an ordinary table with an index, as its documentation advises from a twentieth of a page on.
//! - Statements are prepared once for each connection.
//! - Rows are loaded in one transaction with a rollback journal, which has nothing to keep of an empty table: the log would have
//!   every page written twice.

use std::{
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use crate::{
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "sqlite";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str = "journal_mode=WAL, synchronous=FULL, WITHOUT ROWID for small rows, one writing connection behind a lock, a reading one for each client";

/// A twentieth of a page.
const LARGEST_SMALL_VALUE: usize = 200;

const PUT: &str =
    "INSERT INTO rows (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = excluded.value";
const GET: &str = "SELECT value FROM rows WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM rows WHERE key >= ?1 ORDER BY key LIMIT ?2";

/// The open database.
pub struct Sqlite {
    writer: Mutex<Connection>,
    file: PathBuf,
    /// `mmap_size` of readers, in bytes.
    mapped_bytes: i64,
    /// `cache_size` of readers where nothing is mapped.
    reader_cache: Option<i64>,
}

/// As SQLite wants it: a negative number of KiB, as a positive one would be of pages.
fn cache_size(bytes: u64) -> i64 {
    -i64::try_from(bytes >> 10).unwrap_or(i64::MAX)
}

fn failed(doing: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    Error::engine(NAME, doing)
}

impl Sqlite {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Of the engine.
    pub fn open(setup: &Setup) -> Result<Self> {
        let file = setup.directory.join("rows.sqlite");
        let open = || {
            let writer = Connection::open(&file)?;
            writer.pragma_update(None, "journal_mode", "WAL")?;
            writer.pragma_update(None, "synchronous", "FULL")?;
            writer.pragma_update(None, "cache_size", cache_size(setup.cache_bytes))?;
            let rowid = if setup.value_bytes <= LARGEST_SMALL_VALUE { " WITHOUT ROWID" } else { "" };
            writer
                .execute(&format!("CREATE TABLE IF NOT EXISTS rows (key BLOB PRIMARY KEY, value BLOB){rowid}"), [])?;
            Ok(writer)
        };
        let writer = Mutex::new(open().map_err(failed("opening"))?);
        let cache_bytes = i64::try_from(setup.cache_bytes).unwrap_or(i64::MAX);
        let mapped_bytes = if setup.is_cold { 0 } else { cache_bytes };
        let reader_cache = setup.is_cold.then(|| cache_size(setup.cache_bytes / setup.sessions.max(1) as u64));
        Ok(Self { writer, file, mapped_bytes, reader_cache })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left is rolled back when it is dropped.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_journal(&self, mode: &str) -> Result<()> {
        self.writer().pragma_update(None, "journal_mode", mode).map_err(failed("changing the journal's mode"))
    }

    /// One durable transaction.
    fn write(&self, work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>) -> Result<()> {
        let mut writer = self.writer();
        let write = || {
            let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
            work(&transaction)?;
            transaction.commit()
        };
        write().map_err(failed("committing"))
    }
}

impl Engine for Sqlite {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        let open = || {
            let reader = Connection::open(&self.file)?;
            reader.pragma_update(None, "mmap_size", self.mapped_bytes)?;
            if let Some(size) = self.reader_cache {
                reader.pragma_update(None, "cache_size", size)?;
            }
            reader.pragma_update(None, "query_only", true)?;
            Ok(reader)
        };
        Ok(Box::new(Client { engine: self, reader: open().map_err(failed("opening a connection"))? }))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        self.set_journal("DELETE")?;
        self.put_at_once(rows)?;
        self.set_journal("WAL")
    }

    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        self.write(|transaction| {
            let mut put = transaction.prepare_cached(PUT)?;
            for (key, value) in rows {
                put.execute(params![key, value])?;
            }
            Ok(())
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        let writer = self.writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        writer.close().map_err(|(_, error)| failed("closing")(error))
    }
}

struct Client<'a> {
    engine: &'a Sqlite,
    reader: Connection,
}

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        self.engine.write(|transaction| {
            let mut put = transaction.prepare_cached(PUT)?;
            rows.iter().try_for_each(|(key, value)| put.execute(params![key, value]).map(drop))
        })
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let mut read = || {
            let mut get = self.reader.prepare_cached(GET)?;
            let copy = |row: &rusqlite::Row<'_>| {
                value.extend_from_slice(row.get_ref(0)?.as_blob()?);
                Ok(())
            };
            get.query_row(params![key], copy).optional()
        };
        Ok(read().map_err(failed("reading"))?.is_some())
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = || {
            let mut scan = self.reader.prepare_cached(SCAN)?;
            let mut found = scan.query(params![from, i64::try_from(rows).unwrap_or(i64::MAX)])?;
            while let Some(row) = found.next()? {
                visit(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
            }
            Ok(())
        };
        scan().map_err(failed("scanning"))
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        self.engine.write(|transaction| {
            let (mut get, mut put) = (transaction.prepare_cached(GET)?, transaction.prepare_cached(PUT)?);
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(get.query_row(params![key], |row| row.get::<_, Vec<u8>>(0))?);
            }
            change(&mut values);
            keys.iter().zip(&values).try_for_each(|(key, value)| put.execute(params![key, value]).map(drop))
        })
    }
}
