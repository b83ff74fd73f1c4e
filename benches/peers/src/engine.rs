//! The narrow trait behind which every engine stands, and the list of them.
//!
//! What it promises for each: when [`Session::put`], [`Session::modify`] or [`Engine::load`] returns, the rows are on the
//! device, and a power cut leaves them there; a transaction is there whole or not at all; `modify` is serializable.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{
    data::Key,
    engines::{fjall, group_log, lmdb, raw, redb, rocksdb, sqlite, tantalum},
    error::Result,
};

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Tantalum, each client waiting for its commit.
    Tantalum,
    /// Tantalum, one client that keeps as many commits under way as there would be clients.
    TantalumPipelined,
    /// RocksDB, its log synchronized at each commit.
    #[value(name = "rocksdb")]
    #[serde(rename = "rocksdb")]
    RocksDb,
    /// LMDB.
    Lmdb,
    /// SQLite with a write-ahead log, synchronous=FULL.
    Sqlite,
    /// redb, durability immediate.
    Redb,
    /// fjall, its journal synchronized at each commit.
    Fjall,
    /// The raw device: durable overwrites of 4 KiB, and reads of 4 KiB, one file for each client.
    Raw,
    /// The raw device, with as many writes under way as Tantalum's log has partitions, whatever the clients.
    RawLogDepth,
    /// A log with group commit into one file, and nothing else.
    GroupLog,
}

impl Kind {
    /// All, in the order of the tables.
    pub const ALL: [Self; 10] = [
        Self::Raw,
        Self::RawLogDepth,
        Self::GroupLog,
        Self::Tantalum,
        Self::TantalumPipelined,
        Self::RocksDb,
        Self::Lmdb,
        Self::Sqlite,
        Self::Redb,
        Self::Fjall,
    ];

    /// As in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tantalum => tantalum::NAME,
            Self::TantalumPipelined => "tantalum-pipelined",
            Self::RocksDb => rocksdb::NAME,
            Self::Lmdb => lmdb::NAME,
            Self::Sqlite => sqlite::NAME,
            Self::Redb => redb::NAME,
            Self::Fjall => fjall::NAME,
            Self::Raw => raw::NAME,
            Self::RawLogDepth => "raw-log-depth",
            Self::GroupLog => group_log::NAME,
        }
    }

    /// How it is set up, in a sentence for the results; the adapter's documentation has the reasons.
    pub fn configuration(self) -> &'static str {
        match self {
            Self::Tantalum => tantalum::CONFIGURATION,
            Self::TantalumPipelined => "as tantalum; one thread, commit_async, the oldest ticket waited for",
            Self::RocksDb => rocksdb::CONFIGURATION,
            Self::Lmdb => lmdb::CONFIGURATION,
            Self::Sqlite => sqlite::CONFIGURATION,
            Self::Redb => redb::CONFIGURATION,
            Self::Fjall => fjall::CONFIGURATION,
            Self::Raw => raw::CONFIGURATION,
            Self::RawLogDepth => "as raw, one file for each partition of Tantalum's log",
            Self::GroupLog => group_log::CONFIGURATION,
        }
    }

    /// The name of its files' directory: variants of an engine share one.
    pub fn directory(self) -> &'static str {
        match self {
            Self::TantalumPipelined => tantalum::NAME,
            Self::RawLogDepth => raw::NAME,
            other => other.name(),
        }
    }

    /// Whether it is a database, which is loaded and keeps rows, and not the device for comparison.
    pub fn is_database(self) -> bool {
        !matches!(self, Self::Raw | Self::RawLogDepth | Self::GroupLog)
    }

    /// Whether it is Tantalum.
    pub fn is_tantalum(self) -> bool {
        matches!(self, Self::Tantalum | Self::TantalumPipelined)
    }

    /// Opens it, or creates it where there is nothing.
    pub fn open(self, setup: &Setup) -> Result<Box<dyn Engine>> {
        Ok(match self {
            Self::Tantalum | Self::TantalumPipelined => Box::new(tantalum::Tantalum::open(setup)?),
            Self::RocksDb => rocksdb::open(setup)?,
            Self::Lmdb => Box::new(lmdb::Lmdb::open(setup)?),
            Self::Sqlite => Box::new(sqlite::Sqlite::open(setup)?),
            Self::Redb => Box::new(redb::Redb::open(setup)?),
            Self::Fjall => Box::new(fjall::Fjall::open(setup)?),
            Self::Raw | Self::RawLogDepth => Box::new(raw::Raw::open(setup)?),
            Self::GroupLog => Box::new(group_log::GroupLog::open(setup)?),
        })
    }
}

/// What an engine is opened with; the same for all.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// For its files only; exists.
    pub directory: PathBuf,
    /// Memory for what is read, in bytes.
    pub cache_bytes: u64,
    /// How large a log may become before pages or tables must be written, in bytes.
    pub log_bytes: u64,
    /// Of Tantalum's log.
    pub log_partitions: u32,
    /// Bytes of the values that it will hold.
    pub value_bytes: usize,
    /// Sessions that will be open at the same time.
    pub sessions: usize,
    /// Whether [`Session::modify`] will be called: some engines are opened in another way for it.
    pub has_transactions: bool,
    /// Whether the operating system's cache must not be larger than the engine's own; of the raw device, whether it is read.
    pub is_cold: bool,
}

/// A row to write: key and value.
pub type Row<'a> = (&'a [u8], &'a [u8]);

/// Rows to load, in the order of their keys.
pub type Rows<'a> = &'a mut dyn Iterator<Item = (Key, Vec<u8>)>;

/// An open database. Used by all clients at once.
pub trait Engine: Send + Sync {
    /// What one client works with.
    ///
    /// # Errors
    /// Of the engine, as everywhere here.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// One client with several commits under way; `None` where the engine has no way to do that.
    fn pipeline(&self) -> Option<Box<dyn Pipeline + '_>> {
        None
    }

    /// Puts rows into the empty database by the fastest way that ends with all of them durable.
    fn load(&self, rows: Rows<'_>) -> Result<()>;

    /// Puts rows in one durable transaction; their order is not known to the engine. Here for engines whose [`Engine::load`] does that.
    fn put_at_once(&self, rows: Rows<'_>) -> Result<()> {
        self.load(rows)
    }

    /// Brings what an engine writes over again and again, such as old log files, into the state that it has after hours, so that runs
    /// of seconds see it. Called before clients that write begin; rows stay as they are.
    fn warm_log(&self) -> Result<()> {
        Ok(())
    }

    /// Ends in order. What can be put off to the next opening need not be done.
    fn close(self: Box<Self>) -> Result<()>;

    /// Ends when all is done that it has put off; `setup` is what it was opened with.
    fn drain(self: Box<Self>, _setup: &Setup) -> Result<()> {
        self.close()
    }
}

/// What one client does, one after the other.
pub trait Session {
    /// Sets the values of keys in one durable transaction, whatever they were.
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()>;

    /// Replaces `value` by that of a key; false if the key is not there.
    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool>;

    /// Visits at most so many rows in the order of keys, beginning at `from`.
    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()>;

    /// Reads the values of keys that are there, lets them be changed, and writes them back, in one serializable and durable
    /// transaction.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::error::Error::Conflict): nothing has happened; to be tried again.
    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()>;
}

/// What one client does that does not wait for each commit.
pub trait Pipeline {
    /// As [`Session::put`], without waiting until it is durable.
    fn start(&mut self, rows: &[Row<'_>]) -> Result<()>;

    /// Waits until the oldest that was started and not waited for is durable.
    fn finish_oldest(&mut self) -> Result<()>;
}
