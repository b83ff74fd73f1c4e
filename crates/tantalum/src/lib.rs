//! Tantalum: an embeddable transactional storage engine for flash.
//!
//! A database is a directory with tables, ordered maps from keys to values. Transactions are serializable, and a commit
//! is durable when it returns. The log lies on several devices, or partitions of one, at once ("FlashLogging", SIGMOD
//! 2009), and costs one write on the fastest that is free.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("accounts.db");
//! let db = tantalum::Db::open(path)?; // a directory; created if missing
//! let accounts = db.table("accounts")?; // cheap to clone
//!
//! db.put(&accounts, "alice", "100")?; // durable when it returns
//! let balance = db.get(&accounts, "alice")?; // Option<Value>, derefs to [u8]
//! assert_eq!(balance.as_deref(), Some(&b"100"[..]));
//!
//! db.transact(|tx| { // serializable; run again if it loses a conflict
//!     tx.insert(&accounts, "bob", "20")?;
//!     tx.put(&accounts, "alice", "80")
//! })?;
//! for row in db.range(&accounts, "a"..)? { // of one moment, without locks
//!     let (key, value) = row?;
//!     println!("{key:?} {value:?}");
//! }
//! # db.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to know
//! - Transactions wait for each other's locks. One that loses a deadlock gets an error for which
//!   [`Error::is_retryable`] is true; [`Db::transact`] runs it again.
//! - Limits are in [`limits`]; what exceeds them is refused with an error.
//! - Linux only.
//! - Durable means: the operating system was told to make it so and said that it has. A device that lies about that cannot be
//!   found out by a program.
//!
//! # Features
//! On by default: `control`, commands from other processes; `io-uring`, several reads and writes of a file under way at once;
//! `tracing`, events; `serde`, statistics that can be serialized. Off: `metrics`, `postcard`, `spans`. Without any, this crate is the
//! core: log, pages, tables, transactions, backups.

/// What the rest of a block does is a span of this name, with the feature `spans`. Without it this is nothing.
macro_rules! span {
    ($name:literal) => {
        #[cfg(feature = "spans")]
        let _entered = tantalum_rt::tracing::debug_span!(target: "tantalum", $name).entered();
    };
}

mod backup;
mod buffer;
mod change_feed;
mod check;
#[cfg(feature = "control")]
pub mod control;
mod db;
mod error;
#[doc(hidden)]
pub mod internals;
pub mod limits;
mod options;
mod recovery;
mod restore;
mod salvage;
mod space;
mod stats;
mod table;
#[cfg(test)]
mod testing;
mod transaction;
mod tree;
mod typed;

pub use buffer::{PageCleaning, PoolStats};
pub use change_feed::{
    Change, ChangeFeed, ChangedValue, Changes, CommittedChanges, FeedPosition, FellBehind, LargeValue,
};
pub use check::{CheckReport, TableReport};
pub use db::{
    BarrierSummary, CompactProgress, CompactReport, CompactStep, Db, DeviceOpener, DeviceRequest, DeviceUse, Devices,
    KeptPages, LogChange, LogChangePhase, LogChangeProgress, LogLocation, NewLogDevice, TransactOptions, locate_log,
};
pub use error::{Error, ErrorKind, Result};
pub use options::{
    Barriers, Builder, Expert, Isolation, LogHiding, OpenPhase, OpenProgress, SETTINGS, Setting, SettingKind,
    TornPageProtection,
};
pub use recovery::RecoveryStats;
pub use restore::{BaseBackup, Restore, RestorePhase, RestoreProgress, RestoreTarget, Restored};
pub use salvage::{Skipped, ValueSink};
pub use stats::Stats;
pub use table::Table;
pub use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, Ending, Fault, Hardware, MemoryDevice, MemoryProfile,
    ObservedDevice, PendingWrite, Request, RequestKind, RequestObserver, SharedFlushes, StallingDevice, TearUnit,
    WriteCache,
};
pub use tantalum_log::{ArchiveStats, Damage, HidingStats, LogDeviceStats, LogLayout, LogStats, Lsn, MissingDevice};
pub use tantalum_store::{
    InPageStats, LogStructuredStats, MetadataWrites, PageChange, PageCompression, PageId, PageObserver, PageOperation,
    PageStreams, Protection, StoreKind, StoreStats, TableId,
};
pub use transaction::{
    BulkLoad, BulkLoadReport, Commit, KeyRange, Prefix, RangeIter, Savepoint, Snapshot, Ticket, Transaction,
    TransactionStats, Value, ValueReader,
};
#[cfg(feature = "postcard")]
pub use typed::Postcard;
pub use typed::{AsKey, ExpiringTable, Key, KeyEnd, KeyRangeOf, PrefixOf, Reader, RowValue, TypedRange, TypedTable};

/// The Rust code in the documents compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/use/tutorial.md")]
#[doc = include_str!("../../../docs/use/transactions.md")]
#[doc = include_str!("../../../docs/use/typed-tables.md")]
#[doc = include_str!("../../../docs/use/snapshots.md")]
#[doc = include_str!("../../../docs/use/change-feed.md")]
#[doc = include_str!("../../../docs/use/tuning.md")]
mod documents {}
