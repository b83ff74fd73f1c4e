//! The engine's errors: what is wrong, where, and what to do about it.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use tantalum_log::Lsn;
use tantalum_store::{ChangeError, PageId};

/// The result of an engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an engine call failed. Can be cloned, since callers that wait for one checkpoint share its failure.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A device refused a read, a write or a flush.
    #[error(transparent)]
    Device(#[from] tantalum_device::Error),

    /// The log refused.
    #[error(transparent)]
    Log(#[from] tantalum_log::Error),

    /// The page store refused, for a reason that has no variant of its own here.
    #[error(transparent)]
    Store(Box<tantalum_store::Error>),

    /// A page does not hold what it must.
    #[error("{file}: page {page} (at byte {offset}) is damaged: {what}; restore the database from a backup")]
    Corrupt {
        /// The data file or device.
        file: String,
        /// The page.
        page: PageId,
        /// Where the page starts in the file, in bytes.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },

    /// A log record does not hold what it must.
    #[error("the log record at LSN {lsn} is damaged: {what}; restore the database from a backup")]
    CorruptRecord {
        /// Where the record starts.
        lsn: Lsn,
        /// What was found, and what was expected.
        what: String,
    },

    /// All of the log's devices are lost, and the archive lacks what pages were changed by: it had been set aside before.
    #[error(
        "{file}: page {page} was changed at LSN {lsn}, but {archive} ends at LSN {end}: the archive had been set aside before \
         the log's devices were lost; restore a base backup with the archive, which leads to its end, or another backup"
    )]
    BeyondArchive {
        /// The data file or device.
        file: String,
        /// A page that is further than the archive; there may be more.
        page: PageId,
        /// Where the last change of the page ends.
        lsn: Lsn,
        /// The archive's name.
        archive: String,
        /// Where the archive ends.
        end: Lsn,
    },

    /// The superblock is damaged, or is not one of ours.
    #[error("{file}: {what}")]
    Superblock {
        /// The data file or device.
        file: String,
        /// What was found, what was expected, and what to do.
        what: String,
    },

    /// A file or device of the database is a copy from an earlier session than the others.
    #[error(
        "{file}: is a copy from session {session} of the database, but {other} is of session {expected}; put the present one in its \
         place, or restore the database from a backup"
    )]
    Stale {
        /// The old one; of several, all of them.
        file: String,
        /// The last session that it bears.
        session: u64,
        /// What tells so.
        other: String,
        /// The session that it bears at least if it is the present one.
        expected: u64,
    },

    /// The torn-page protection asked for is not possible here.
    #[error("{file}: torn-page protection is not possible this way: {what}")]
    Protection {
        /// The device.
        file: String,
        /// What is missing, and what to do.
        what: String,
    },

    /// A device would lose what it was never told to flush.
    #[error(
        "{device}: barriers cannot be off, since it says that its write cache is {says}; leave the setting barriers out, or set it \
         to trust-device if you know that what this device has completed survives a power cut"
    )]
    Barriers {
        /// The device.
        device: String,
        /// What it says of its write cache.
        says: String,
    },

    /// A planned change does not fit the page it is meant for.
    #[error("page {page} cannot take a change: {source}")]
    Change {
        /// The page.
        page: PageId,
        /// Why not.
        source: ChangeError,
    },

    /// The log has no room until the next checkpoint. The engine waits and tries again by itself.
    #[error("the log has no room for {needed} bytes before the next checkpoint")]
    LogFull {
        /// The bytes that found no room.
        needed: usize,
    },

    /// The data file cannot grow.
    #[error("{file}: no space left for more pages ({source}); free some space or delete rows and try again")]
    DiskFull {
        /// The data file or device.
        file: String,
        /// What the device said.
        source: tantalum_device::Error,
    },

    /// Every frame of the buffer pool stayed in use for too long.
    #[error("all {frames} frames of the buffer pool are in use; make the pool larger or the transactions smaller")]
    PoolExhausted {
        /// The frames in the pool.
        frames: usize,
    },

    /// A latch that must not be waited for is busy. The engine tries again by itself.
    #[error("page {page} is busy; try again")]
    Busy {
        /// The page.
        page: PageId,
    },

    /// A change group needs something that must not be waited for under its latches. The engine gets it and tries again by itself.
    #[error("a change group lacks {lack}; try again")]
    Lacking {
        /// What it lacks.
        lack: Lack,
    },

    /// The transaction waited in a circle with others and was chosen to be aborted. Run it again.
    #[error("transaction {transaction} was aborted to end a deadlock over a key of table {table:?}; run it again")]
    Deadlock {
        /// The aborted transaction.
        transaction: u64,
        /// The table of the lock that it waited for.
        table: String,
    },

    /// A lock was not granted in time; the transaction was aborted. Run it again.
    #[error(
        "transaction {transaction} was aborted after waiting {waited:?} for a lock in table {table:?} held by \
         transactions {holders:?}; run it again, or raise lock_timeout"
    )]
    LockTimeout {
        /// The aborted transaction.
        transaction: u64,
        /// The table.
        table: String,
        /// How long it waited.
        waited: Duration,
        /// The transactions that it waited for.
        holders: Vec<u64>,
    },

    /// Another transaction committed a write of the same key since this one's snapshot; this one was aborted. Run it
    /// again.
    #[error(
        "transaction {transaction} was aborted: a key that it writes in table {table:?} was changed since it began; run it again"
    )]
    WriteConflict {
        /// The aborted transaction.
        transaction: u64,
        /// The table.
        table: String,
    },

    /// The transaction was aborted by an earlier failure and can only be rolled back.
    #[error("transaction {transaction} was aborted by an earlier failure; drop it and run it again")]
    Aborted {
        /// The transaction.
        transaction: u64,
    },

    /// The key to be inserted is there.
    #[error("table {table:?} already holds the key \"{}\"; use put to replace its value", key.escape_ascii())]
    KeyExists {
        /// The table.
        table: String,
        /// The key.
        key: Vec<u8>,
    },

    /// A key is too long.
    #[error("a key of {bytes} bytes is too long, at most {limit} are possible with this page size")]
    KeyTooLong {
        /// The key's length.
        bytes: usize,
        /// The longest possible.
        limit: usize,
    },

    /// A value is too long.
    #[error("a value of {bytes} bytes is too long, at most {limit} are possible; cut it into several rows")]
    ValueTooLong {
        /// The value's length.
        bytes: usize,
        /// The longest possible.
        limit: usize,
    },

    /// A transaction's writes do not fit in one log record, whose length is bounded by buffers of 2 MiB and by `log_bytes`, or in what a page store that keeps changes has in reserve. It can
    /// still be committed without the write refused.
    #[error(
        "a transaction of {bytes} bytes is too large, it can have at most {limit}; cut it into several{}",
        remedy.map_or_else(String::new, |remedy| format!(", or {remedy}"))
    )]
    TransactionTooLarge {
        /// What it would need, about.
        bytes: usize,
        /// What it can have.
        limit: usize,
        /// What raises the limit, if anything does.
        remedy: Option<&'static str>,
    },

    /// A savepoint of another transaction, or one that was taken back.
    #[error("the savepoint does not belong to this transaction, or was undone by rolling back to an earlier one")]
    Savepoint,

    /// A table handle of another database.
    #[error("table {name:?} belongs to another database; open it on the database of the transaction")]
    ForeignTable {
        /// The table.
        name: String,
    },

    /// The table was dropped.
    #[error("table {name:?} was dropped; open it again to create it anew")]
    TableDropped {
        /// The table.
        name: String,
    },

    /// The table is used by transactions or snapshots, so it cannot be dropped.
    #[error("table {name:?} is in use by transactions or snapshots; end them and try again")]
    TableInUse {
        /// The table.
        name: String,
    },

    /// There is no such table.
    #[error("there is no table {name:?}")]
    NoSuchTable {
        /// The name asked for.
        name: String,
    },

    /// All table numbers were used.
    #[error("no more tables can be created in this database; copy it into a fresh one")]
    TooManyTables,

    /// No table can have this name.
    #[error("\"{name}\" cannot be a table's name: {what}")]
    TableName {
        /// The name, or its beginning.
        name: String,
        /// Why not.
        what: &'static str,
    },

    /// The outcome of the commit is unknown: the log failed while it was being written. Open the database again and look.
    #[error(
        "the outcome of the commit is unknown, the log failed while it was written: {cause}; open the database again and look"
    )]
    OutcomeUnknown {
        /// The log's failure.
        #[source]
        cause: tantalum_log::Error,
    },

    /// The outcome of the commit is unknown: its changes could not be stored. A later commit may store them; else they are
    /// gone when the database is opened again.
    #[error(
        "the outcome of the commit is unknown, its changes could not be stored: {cause}; open the database again and look"
    )]
    NotStored {
        /// The store's failure.
        #[source]
        cause: Arc<Error>,
    },

    /// A snapshot, or a transaction with snapshot isolation, was given up: there is no room left for the old versions of rows
    /// that it sees.
    #[error(
        "the snapshot is too old: the row versions that it sees exceed version_bytes, and could not be kept on the data device: {cause}; \
         read again from a new snapshot, and make room on the device or raise version_bytes"
    )]
    SnapshotTooOld {
        /// Why they could not be kept.
        #[source]
        cause: Arc<Error>,
    },

    /// The database was closed.
    #[error("the database is closed; open it again")]
    Closed,

    /// Closing could neither store all pages nor end the log. What was acknowledged is in the log.
    #[error(
        "the database could not be closed cleanly: not all pages could be stored: {stored}; and the log could not be ended: {log}; \
         the next open recovers it"
    )]
    NotClosedCleanly {
        /// Why pages could not be stored.
        #[source]
        stored: Arc<Error>,
        /// Why the log could not be ended.
        log: Arc<tantalum_log::Error>,
    },

    /// Another process, or this one, has the database open.
    #[error("{path}: {}", in_use_by(*pid))]
    InUse {
        /// The directory.
        path: String,
        /// The process; 0 when it did not say.
        pid: u32,
    },

    /// A device that is no file cannot be opened.
    #[error("cannot open the device {name}: {source}")]
    Opener {
        /// What the settings call it.
        name: String,
        /// What the [`DeviceOpener`](crate::DeviceOpener) said.
        source: Arc<dyn std::error::Error + Send + Sync>,
    },

    /// A file of the database is gone.
    #[error(
        "{file} is missing, but other files of the database are there; restore it, or the whole database from a backup"
    )]
    Missing {
        /// The file.
        file: String,
    },

    /// There is no database, and none is to be created.
    #[error("{path}: there is no database here, and create_if_missing is off")]
    NotFound {
        /// The directory.
        path: String,
    },

    /// A file that must not be there is.
    #[error("{path} exists already; choose another place, or remove it")]
    Exists {
        /// The path.
        path: String,
    },

    /// A device that is to become part of a new database holds something.
    #[error("{path} is not blank; if nothing on it is needed, write zeros to its first 128 KiB, or give another")]
    NotBlank {
        /// The device.
        path: String,
    },

    /// The log's devices cannot be changed this way.
    #[error("log device {what}")]
    LogDevice {
        /// The device, what is wrong, and what to do.
        what: String,
    },

    /// A device was taken out of the log to be formatted anew, and could not be taken in again.
    #[error(
        "log device {path} was taken out of the log and could not be taken in again: {cause}; add it when that is put right"
    )]
    NotTakenInAgain {
        /// The device.
        path: String,
        /// Why not.
        #[source]
        cause: Box<Error>,
    },

    /// The log went on without these devices, and those that have what followed are missing.
    #[error(
        "the log went on without {devices}, and what followed is on {missing}, which cannot be used; bring that back. If it is \
         lost for good, restore a backup; or take `left_behind` out of log-devices.toml, and lose what followed"
    )]
    LogLeftBehind {
        /// The devices that are there.
        devices: String,
        /// The devices that have what they lack.
        missing: String,
    },

    /// A device of the log is needed, and cannot be opened.
    #[error("{cause}; therefore {missing}")]
    LogDeviceMissing {
        /// Why it cannot be opened.
        #[source]
        cause: Box<Error>,
        /// Which records are lost without it: [`MissingDevice`](tantalum_log::Error::MissingDevice).
        missing: Box<tantalum_log::Error>,
    },

    /// A database that is open cannot be reached through its control socket.
    #[error("{socket}: {what}: {source}")]
    ControlSocket {
        /// The socket.
        socket: String,
        /// What is wrong.
        what: &'static str,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },

    /// A database that is open and was reached through its control socket did not do what it was asked for.
    #[error("{socket}: {what}")]
    Control {
        /// The socket.
        socket: String,
        /// What is wrong, or the database's answer.
        what: String,
    },

    /// The log's devices belong to another database.
    #[error("the log on {log} belongs to another database than {data}; give the log devices of this one")]
    ForeignLog {
        /// The data file or device.
        data: String,
        /// The first of the log's devices.
        log: String,
    },

    /// `tantalum.toml` is not understood.
    #[error("{file}, line {line}: {what}")]
    Config {
        /// The file.
        file: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },

    /// An option has a value that cannot be, or not for this database.
    #[error("option {what}")]
    Option {
        /// The option, and what is wrong.
        what: String,
    },

    /// A file with what was measured of a device of the log is not understood.
    #[error("option log_characteristics: {source}")]
    Characteristics {
        /// What is wrong with it.
        source: Arc<tantalum_device::CharacteristicsError>,
    },

    /// A base backup is to be made, and the archive that would follow it was set aside.
    #[error("{archive}: the archive was set aside: {cause}; open the database again, then make a backup")]
    ArchiveSetAside {
        /// The archive's name.
        archive: String,
        /// Why.
        #[source]
        cause: Box<tantalum_log::Error>,
    },

    /// A database cannot be restored from a base backup and an archive as asked, or a base backup cannot be made.
    #[error("{what}")]
    Restore {
        /// What is missing or wrong, and what to do.
        what: String,
    },

    /// The operating system refused.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file or directory.
        path: String,
        /// What was to be done.
        action: &'static str,
        /// The system's answer.
        source: Arc<std::io::Error>,
    },
}

/// What to do about a database that `pid` has open.
fn in_use_by(pid: u32) -> String {
    match pid {
        0 => "the database is in use by another process; close it there first".into(),
        own if own == std::process::id() => {
            "this process has the database open already; close it first: use a clone of its handle, or call close, or drop all \
             handles and end all transactions"
                .into()
        }
        other => format!("the database is in use by process {other}; close it there first"),
    }
}

/// What a change group lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// A page in memory.
    Page(PageId),
    /// A space map with a free page in memory: this one, or one behind it.
    Map(PageId),
    /// The numbers of the pages of a large value of `length` bytes, the first of them `first`.
    Chain {
        /// The value's bytes.
        length: u32,
        /// Its first page.
        first: PageId,
    },
    /// Frames for so many fresh pages.
    Frames(usize),
    /// A free page: all maps are full.
    FreePage {
        /// The pages that the store had room for.
        capacity: u64,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(id) => write!(f, "page {id} in memory"),
            Self::Map(id) => write!(f, "space map {id} in memory"),
            Self::Chain { first, .. } => write!(f, "the pages of the large value at page {first}"),
            Self::Frames(frames) => write!(f, "{frames} frames"),
            Self::FreePage { capacity } => write!(f, "a free page (of {capacity} pages)"),
        }
    }
}

impl Error {
    /// Whether it says that what is stored is damaged or cannot be read, as against what else may fail on the way to it.
    pub(crate) fn is_damage(&self) -> bool {
        use tantalum_device::Error as Device;
        let is_unreadable = |error: &Device| {
            matches!(error, Device::Io { operation: "read", .. } | Device::Truncated { .. } | Device::OutOfRange { .. })
        };
        matches!(self, Self::Corrupt { .. }) || matches!(self, Self::Device(error) if is_unreadable(error))
    }

    /// Whether the same transaction may succeed when it is run again: true for a deadlock's victim, a lock timeout, a
    /// write conflict, and a snapshot that was given up.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::Deadlock { .. } | Self::LockTimeout { .. } | Self::WriteConflict { .. } | Self::SnapshotTooOld { .. }
        )
    }

    /// What a commit returns when it was appended to the log and could not be made durable.
    pub(crate) fn outcome_unknown(error: Self) -> Self {
        match error {
            Self::Log(cause) => Self::OutcomeUnknown { cause },
            cause => Self::NotStored { cause: Arc::new(cause) },
        }
    }

    pub(crate) fn io(path: &Path, action: &'static str, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), action, source: Arc::new(source) }
    }

    /// Says that `page`, read correctly from its device, holds what no page of ours holds.
    pub(crate) fn corrupt_page(page: &[u8], what: impl Into<String>) -> Self {
        tantalum_store::Error::corrupt_page(page, what).into()
    }
}

impl From<tantalum_store::Error> for Error {
    fn from(error: tantalum_store::Error) -> Self {
        use tantalum_store::Error as Store;
        match error {
            Store::Device(error) => Self::Device(error),
            Store::Corrupt { file, page, offset, what } => Self::Corrupt { file, page, offset, what },
            Store::Superblock { file, what } => Self::Superblock { file, what },
            Store::Protection { file, what } => Self::Protection { file, what },
            Store::DiskFull { file, source } => Self::DiskFull { file, source },
            Store::Option { what } => Self::Option { what },
            Store::Closed => Self::Closed,
            other => Self::Store(Box::new(other)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_store_keeps_its_text() {
        use tantalum_store::Error as Store;
        let (file, what) = (|| "data".to_owned(), || "what is wrong".to_owned());
        let source = tantalum_device::Error::Unsupported { device: "data".into(), operation: "grow" };
        for error in [
            Store::Device(source.clone()),
            Store::Corrupt { file: file(), page: PageId(3), offset: 12288, what: what() },
            Store::Superblock { file: file(), what: what() },
            Store::Protection { file: file(), what: what() },
            Store::DiskFull { file: file(), source },
            Store::Option { what: what() },
            Store::Closed,
        ] {
            assert_eq!(Error::from(error.clone()).to_string(), error.to_string());
        }
    }
}
