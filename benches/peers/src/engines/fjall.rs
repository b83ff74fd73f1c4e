//! fjall: a commit goes to its journal, which is then synchronized by `persist(SyncAll)` before the client hears of it.
//!
//! - fjall synchronizes for each batch alone if the batch asks for it, while it holds the journal: commits then wait for each
//!   other's `fsync`. Its interface lets one `persist` cover all that was written before, so clients share one
//!   ([`SharedPersist`]), and journal writes stay in its buffer until then (`manual_journal_persist`). That is several times faster
//!   with many clients, and as durable. Reads may see a commit a moment before it is durable.
//! - `SyncData` would do on Linux, and brought nothing (with it too 8.2 KiB are written for a commit of one key by one client: `--workload update --clients 1`): the journal's file
//!   gets its blocks only as it is written, which is metadata in either case.
//! - Its block cache is as large as every engine's, its journals together as large as the log budget. The operating system's cache lies
//!   below; where the database is larger than the cache on purpose, that is kept empty
//!   ([`page_cache`](crate::page_cache)).
//! - No compression, as values are random bytes.
//! - Blind updates and reads go to a plain database; read-modify-write to an optimistic one, which is serializable. Its other
//!   transactional database has one writer at a time.
//! - Rows are loaded by its ingestion, which writes tables past the journal.

use std::sync::{
    Condvar, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use fjall::{
    Database, Guard, Keyspace, KeyspaceCreateOptions, OptimisticTxDatabase, OptimisticTxKeyspace, PersistMode, Readable,
};

use crate::{
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "fjall";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str = "persist(SyncAll) for each commit, shared by commits that wait together; no compression; optimistic transactions for read-modify-write";

/// What fjall takes at least.
const LEAST_JOURNAL_BYTES: u64 = 64 << 20;

enum Db {
    Plain(Database, Keyspace),
    Optimistic(OptimisticTxDatabase, OptimisticTxKeyspace),
}

/// The open database.
pub struct Fjall {
    db: Db,
    persisted: SharedPersist,
}

fn failed(doing: &'static str) -> impl Fn(fjall::Error) -> Error {
    Error::engine(NAME, doing)
}

fn table_options() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default().manual_journal_persist(true)
}

impl Fjall {
    /// Opens or creates it, in the way that the workload needs.
    ///
    /// # Errors
    /// Of the engine.
    pub fn open(setup: &Setup) -> Result<Self> {
        let journal_bytes = setup.log_bytes.max(LEAST_JOURNAL_BYTES);
        let open = || {
            if setup.has_transactions {
                let db = OptimisticTxDatabase::builder(&setup.directory)
                    .cache_size(setup.cache_bytes)
                    .max_journaling_size(journal_bytes)
                    .manual_journal_persist(true)
                    .open()?;
                let rows = db.keyspace("rows", table_options)?;
                return Ok(Db::Optimistic(db, rows));
            }
            let db = Database::builder(&setup.directory)
                .cache_size(setup.cache_bytes)
                .max_journaling_size(journal_bytes)
                .manual_journal_persist(true)
                .open()?;
            let rows = db.keyspace("rows", table_options)?;
            Ok(Db::Plain(db, rows))
        };
        Ok(Self { db: open().map_err(failed("opening"))?, persisted: SharedPersist::default() })
    }

    fn database(&self) -> &Database {
        match &self.db {
            Db::Plain(db, _) => db,
            Db::Optimistic(db, _) => db.inner(),
        }
    }

    fn rows(&self) -> &Keyspace {
        match &self.db {
            Db::Plain(_, rows) => rows,
            Db::Optimistic(_, rows) => rows.inner(),
        }
    }

    /// Waits until what was written is durable.
    fn persist(&self) -> Result<()> {
        self.persisted.wait(|| self.database().persist(PersistMode::SyncAll)).map_err(failed("persisting"))
    }
}

impl Engine for Fjall {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Client(self)))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        let load = || {
            let mut ingestion = self.rows().start_ingestion()?;
            for (key, value) in rows {
                ingestion.write(key, value)?;
            }
            ingestion.finish()?;
            self.database().persist(PersistMode::SyncAll)
        };
        load().map_err(failed("loading"))
    }

    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        let (table, mut batch) = (self.rows(), self.database().batch());
        rows.for_each(|(key, value)| batch.insert(table, key, value));
        batch.commit().map_err(failed("writing"))?;
        self.persist()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database().persist(PersistMode::SyncAll).map_err(failed("closing"))
    }
}

/// A client has nothing of its own.
struct Client<'a>(&'a Fjall);

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let table = self.0.rows();
        let written = match rows {
            [(key, value)] => table.insert(*key, *value),
            rows => {
                let mut batch = self.0.database().batch();
                rows.iter().for_each(|(key, value)| batch.insert(table, *key, *value));
                batch.commit()
            }
        };
        written.map_err(failed("writing"))?;
        self.0.persist()
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let found = self.0.rows().get(key).map_err(failed("reading"))?;
        value.clear();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        Ok(found.is_some())
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut found = self.0.rows().range(from..).take(rows).map(Guard::into_inner);
        found.try_for_each(|row| row.map(|(key, value)| visit(&key, &value))).map_err(failed("scanning"))
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        let Db::Optimistic(db, table) = &self.0.db else {
            return Err(Error::Other("fjall was opened without transactions".to_owned()));
        };
        let mut modify = || {
            let mut transaction = db.write_tx()?;
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(transaction.get(table, key)?.as_deref().unwrap_or_default().to_vec());
            }
            change(&mut values);
            for (key, value) in keys.iter().zip(&values) {
                transaction.insert(table, *key, &value[..]);
            }
            transaction.commit()
        };
        match modify().map_err(failed("committing"))? {
            Ok(()) => self.0.persist(),
            Err(_conflict) => Err(Error::Conflict),
        }
    }
}

/// One `persist` for all clients that wait: clients that come while one is under way share the next.
#[derive(Default)]
struct SharedPersist {
    /// Those that have begun.
    begun: AtomicU64,
    /// Those that have ended; the client that calls `persist` does not hold the lock meanwhile.
    ended: Mutex<Ended>,
    has_ended: Condvar,
}

#[derive(Default)]
struct Ended {
    number: u64,
    is_under_way: bool,
}

impl SharedPersist {
    /// Returns when a call of `persist` that began after this has returned. An error goes to the client that made the call, and the
    /// others make their own.
    fn wait<E>(&self, persist: impl Fn() -> Result<(), E>) -> Result<(), E> {
        // One that has begun may have passed what the caller wrote just now; the one after has not.
        let wanted = self.begun.load(Ordering::SeqCst) + 1;
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if ended.number >= wanted {
                return Ok(());
            }
            if !ended.is_under_way {
                break;
            }
            ended = self.has_ended.wait(ended).unwrap_or_else(PoisonError::into_inner);
        }
        ended.is_under_way = true;
        drop(ended);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let result = persist();
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.is_under_way = false;
        if result.is_ok() {
            ended.number = number;
        }
        self.has_ended.notify_all();
        result
    }
}
