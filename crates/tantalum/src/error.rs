//! Errors that the engine makes in more than one place, and what a change group lacks.

use std::{fmt::Display, io, path::Path};

pub use tantalum_device::{Error, ErrorKind, Result};
use tantalum_log::Lsn;
use tantalum_store::PageId;
pub use tantalum_store::error::{closed, corrupt, corrupt_page, has_zones, option, superblock};

/// Why a change group could not be appended.
#[derive(Debug)]
pub(crate) enum GroupError {
    /// It lacks what must not be waited for under its latches: its owner gets that and starts over.
    Lacks(Lack),
    /// It failed.
    Failed(Error),
}

/// The result of an attempt at a change group.
pub(crate) type GroupResult<T> = std::result::Result<T, GroupError>;

/// What a change group lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A page's latch, which is busy.
    Latch(PageId),
    /// So many bytes of the log, before the next checkpoint.
    LogSpace(usize),
    /// A log whose devices take a record of so many bytes: it must grow.
    LogSize(usize),
    /// A page in memory.
    Page(PageId),
    /// A space map with a free page in memory: this one, or one behind it.
    Map(PageId),
    /// The numbers of the pages of a large value of `length` bytes, the first of them `first`.
    Chain { length: u32, first: PageId },
    /// Frames for so many fresh pages.
    Frames(usize),
    /// A free page: all maps are full. The store had room for so many pages.
    FreePage { capacity: u64 },
}

impl From<Error> for GroupError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Lack> for GroupError {
    fn from(lack: Lack) -> Self {
        Self::Lacks(lack)
    }
}

impl GroupError {
    /// What the log refused: space, or for good.
    pub fn of_log(error: Error) -> Self {
        match error.needed_log_space() {
            Some(needed) => Self::Lacks(Lack::LogSpace(needed as usize)),
            None => Self::Failed(error),
        }
    }
}

/// Whether it says that what is stored is damaged or cannot be read, as against what else may fail on the way to it.
pub(crate) fn is_damage(error: &Error) -> bool {
    use ErrorKind::{Corrupt, OutOfRange, Truncated, Unreadable};
    matches!(error.kind(), Corrupt | Unreadable | Truncated | OutOfRange)
}

/// What a commit returns when it was appended to the log and could not be made durable. A later commit may store its changes if
/// only the store failed; else they are gone when the database is opened again.
pub(crate) fn outcome_unknown(cause: Error) -> Error {
    let what = format!("the outcome of the commit is unknown: {cause}; open the database again and look");
    Error::new(ErrorKind::OutcomeUnknown, what).with_source(cause)
}

/// The operating system refused.
pub(crate) fn io(path: &Path, action: &str, source: io::Error) -> Error {
    let path = path.display();
    Error::new(ErrorKind::Io, format!("{path}: cannot {action}: {source}")).with_source(source)
}

/// A log record does not hold what it must.
pub(crate) fn corrupt_record(lsn: Lsn, what: impl Display) -> Error {
    let what = format!("the log record at LSN {lsn} is damaged: {what}; restore the database from a backup");
    Error::new(ErrorKind::Corrupt, what)
}

/// A file or device of the database is a copy from an earlier session than `other` tells.
pub(crate) fn stale(file: &str, session: u64, other: impl Display, expected: u64) -> Error {
    Error::new(
        ErrorKind::Stale,
        format!(
            "{file}: is a copy from session {session} of the database, but {other} is of session {expected}; put the present one in \
             its place, or restore the database from a backup"
        ),
    )
    .with_subject(file)
}

/// A file that must not be there is.
pub(crate) fn exists(path: impl Display) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("{path} exists already; choose another place, or remove it"))
}

/// A file of the database is gone.
pub(crate) fn missing(file: impl Display) -> Error {
    Error::new(
        ErrorKind::Missing,
        format!(
            "{file} is missing, but other files of the database are there; restore it, or the whole database from a backup"
        ),
    )
}

/// There is no database, and none is to be created.
pub(crate) fn not_found(path: impl Display) -> Error {
    Error::new(ErrorKind::NotFound, format!("{path}: there is no database here, and create_if_missing is off"))
}

/// The log's devices cannot be changed this way.
pub(crate) fn log_device(what: impl Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("log device {what}"))
}

/// The log went on without these devices, and those that have what followed are missing.
pub(crate) fn log_left_behind(devices: impl Display, missing: impl Display) -> Error {
    Error::new(
        ErrorKind::Missing,
        format!(
            "the log went on without {devices}, and what followed is on {missing}, which cannot be used; bring that back. If it is \
             lost for good, restore a backup; or take `left_behind` out of log-devices.toml, and lose what followed"
        ),
    )
}

/// A file of settings is not understood.
pub(crate) fn config(file: impl Display, line: usize, what: impl Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{file}, line {line}: {what}"))
}

/// A database cannot be restored from a base backup and an archive as asked, or a base backup cannot be made.
pub(crate) fn restore(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, what.into())
}

/// There is no table of that name.
pub(crate) fn no_such_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no table {name:?}; list the tables to see which there are"))
}

/// The database was opened for reading only, and this would change it.
pub(crate) fn read_only() -> Error {
    Error::new(ErrorKind::ReadOnly, "the database is open for reading only; open it without read_only to change it")
}
