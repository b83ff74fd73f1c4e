//! The error of every crate of the workspace.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::Zones;

/// What functions that can fail return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed: a kind to act on, a message to show, and the cause if there is one.
///
/// The message says what is wrong, where, and what to do about it, and contains those of its causes. An error is small and can
/// be cloned, because a poisoned device or log answers every later caller with the first cause.
///
/// ```
/// # use tantalum_device::{Device, ErrorKind, MemoryDevice};
/// let device = MemoryDevice::new("log", 1 << 20);
/// let error = device.read(1 << 20, &mut [0; 4096]).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::OutOfRange);
/// assert!(error.to_string().contains("log"));
/// ```
#[derive(Clone)]
pub struct Error(Repr);

/// Without space in the log an append fails, waits and tries again; so often that it does not allocate.
#[derive(Clone)]
enum Repr {
    LogFull { needed: u64 },
    Other(Arc<Inner>),
}

/// Results are returned on every path, so an error must not make them large.
const _: () = assert!(size_of::<Result<()>>() <= 16);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    about: Option<Box<str>>,
}

/// What a program can do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Transactions waited for each other in a circle, and this one was aborted. Run it again.
    Deadlock,
    /// A lock was not granted in time, and the transaction was aborted. Run it again, or raise `lock_timeout`.
    LockTimeout,
    /// Another transaction wrote the same key first, and this one was aborted. Run it again.
    WriteConflict,
    /// The row versions that a snapshot sees could not be kept. Read again from a new snapshot.
    SnapshotTooOld,
    /// The transaction was aborted by an earlier failure. Drop it and run it again.
    Aborted,
    /// The program's own code gave up. The source is its error.
    Application,
    /// The log has no space until the next checkpoint. Wait for space and append again; the engine does so by itself.
    LogFull,
    /// Something else of the same sort is under way. Try again later.
    Busy,
    /// All frames of the buffer pool are in use. Make the pool larger or the transactions smaller.
    PoolExhausted,
    /// No page of the database is free, and its file or device cannot grow. Delete rows, or free some space for it to grow.
    StoreFull,
    /// The file system, the device or a number space is full. Free some space, or use a larger device.
    NoSpace,
    /// A row takes more than one change group can have. Cut it into several, or raise the setting that the message names.
    TransactionTooLarge,
    /// A record, key or value exceeds a limit. Split it.
    TooLarge,
    /// A database, table, log or device of this name is not there. Check the name, or create it.
    NotFound,
    /// What is to be created is there. Choose another name, or use what is there.
    AlreadyExists,
    /// It is in use, here or by another process, or still needed. Let go of it first.
    InUse,
    /// An argument, option or file of settings is wrong. Correct it as the message says.
    InvalidInput,
    /// A byte range ends past the device. Grow it first.
    OutOfRange,
    /// It is open for reading only, or write-protected.
    ReadOnly,
    /// This version, device or configuration cannot do that. Use another.
    Unsupported,
    /// The database, log or device was closed. Open it again.
    Closed,
    /// A device or file is missing that the database needs. Bring it back, or restore a backup.
    Missing,
    /// A device, file or archive belongs to another database or log, or is not what the settings say. Pass the right one.
    Mismatch,
    /// A device or file is a copy from an earlier session. Put the present one in its place; [`Error::about`] names it.
    Stale,
    /// The device is not formatted for the log, or the log does not list it (any more). Leave it out; [`Error::about`] names it.
    NotAMember,
    /// The archive of the log is missing, or lacks records that are needed. Name the right one, or restore a backup.
    NotArchived,
    /// What a reader of the log wants was overwritten, and is not archived. Begin anew: the source says where the log begins.
    FellBehind,
    /// Stored bytes are damaged. Restore a backup.
    Corrupt,
    /// A file has become shorter. Restore it from a backup.
    Truncated,
    /// The device cannot read the bytes. Check it, and restore a backup if they are gone.
    Unreadable,
    /// The operating system or a device refused the operation. Check it; the source is its answer.
    Io,
    /// A device did not answer in time, and was set aside. Check it.
    TimedOut,
    /// A simulated or emulated device lost its power. Reopen and recover it.
    PowerLost,
    /// The device has lost an earlier write, and takes no more. Reopen and recover it; the source is the first failure.
    WritesLost,
    /// The log or the database stopped after a failure. Reopen it; the source is the first failure.
    Poisoned,
    /// The outcome of the commit is unknown. Open the database again and look.
    OutcomeUnknown,
}

impl Error {
    /// An error whose `message` says what is wrong, where, and what to do about it.
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Repr::Other(Arc::new(Inner { kind, message: message.into(), source: None, about: None })))
    }

    /// The error of a program that uses the engine, which gets it back from what it is passed through: as its own
    /// [`cause`](Self::cause).
    ///
    /// ```
    /// # use tantalum_device::{Error, ErrorKind};
    /// let error = Error::application("12".parse::<bool>().unwrap_err());
    /// assert_eq!(error.kind(), ErrorKind::Application);
    /// assert!(error.cause::<std::str::ParseBoolError>().is_some());
    /// ```
    pub fn application(source: impl StdError + Send + Sync + 'static) -> Self {
        Self::new(ErrorKind::Application, source.to_string()).with_source(source)
    }

    /// The log has no space for so many bytes until the next checkpoint.
    pub fn log_full(needed: u64) -> Self {
        Self(Repr::LogFull { needed })
    }

    /// The same, caused by `source`, whose text the message contains.
    #[must_use]
    pub fn with_source(self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.change(|inner| inner.source = Some(Arc::new(source)))
    }

    /// As [`with_source`](Self::with_source), for a source of a type that is not known, in a `Box` or an `Arc`.
    #[must_use]
    pub fn with_boxed_source(self, source: impl Into<Arc<dyn StdError + Send + Sync>>) -> Self {
        self.change(|inner| inner.source = Some(source.into()))
    }

    /// The same, about this file or device, which a program may want to know.
    #[must_use]
    pub fn with_subject(self, name: impl Into<Box<str>>) -> Self {
        self.change(|inner| inner.about = Some(name.into()))
    }

    /// The same, saying first where it happened, or to what.
    #[must_use]
    pub fn context(self, place: impl fmt::Display) -> Self {
        let message = format!("{place}: {self}").into();
        self.change(|inner| inner.message = message)
    }

    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = match self.0 {
            Repr::LogFull { .. } => {
                Inner { kind: ErrorKind::LogFull, message: self.to_string().into(), source: None, about: None }
            }
            Repr::Other(inner) => Arc::unwrap_or_clone(inner),
        };
        change(&mut inner);
        Self(Repr::Other(Arc::new(inner)))
    }

    /// What can be done about it.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Repr::LogFull { .. } => ErrorKind::LogFull,
            Repr::Other(inner) => inner.kind,
        }
    }

    /// The bytes of log space to wait for, if the log was full.
    pub fn needed_log_space(&self) -> Option<u64> {
        match &self.0 {
            Repr::LogFull { needed } => Some(*needed),
            Repr::Other(_) => None,
        }
    }

    /// The file or device that it is about, where a program may act on that.
    pub fn about(&self) -> Option<&str> {
        match &self.0 {
            Repr::LogFull { .. } => None,
            Repr::Other(inner) => inner.about.as_deref(),
        }
    }

    /// What caused it, if that is a `T`.
    pub fn cause<T: StdError + 'static>(&self) -> Option<&T> {
        self.source().and_then(|source| source.downcast_ref())
    }

    fn shared_source(&self) -> Option<&Arc<dyn StdError + Send + Sync>> {
        match &self.0 {
            Repr::LogFull { .. } => None,
            Repr::Other(inner) => inner.source.as_ref(),
        }
    }

    /// The innermost error of this type: the failure that led to the others.
    pub fn first_cause(&self) -> &Error {
        let (mut first, mut next) = (self, self.source());
        while let Some(cause) = next {
            first = cause.downcast_ref().unwrap_or(first);
            next = cause.source();
        }
        first
    }

    /// Whether the same transaction may succeed when it is run again: it was the victim of a deadlock, a lock time-out, a write
    /// conflict, or its snapshot was given up.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::{Deadlock, LockTimeout, SnapshotTooOld, WriteConflict};
        matches!(self.kind(), Deadlock | LockTimeout | WriteConflict | SnapshotTooOld)
    }

    /// Whether the operating system, the medium or its file system refused to read or write.
    pub fn is_io(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io | ErrorKind::Unreadable)
    }
}

/// What devices fail with.
impl Error {
    /// The operating system or the medium refused the operation; `len` is 0 where it concerns the whole device.
    pub fn io(
        device: &str,
        operation: &str,
        offset: u64,
        len: u64,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        let kind = (&source as &dyn StdError).downcast_ref::<io::Error>().map(io::Error::kind);
        if matches!(kind, Some(io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)) {
            return Self::no_space(device, offset, len);
        }
        let place = if len == 0 { String::new() } else { format!(" at byte {offset} for {len} bytes") };
        let kind = if operation == "read" { ErrorKind::Unreadable } else { ErrorKind::Io };
        Self::new(kind, format!("cannot {operation} {device}{place}: {source}")).with_source(source)
    }

    /// The file system has no space.
    pub fn no_space(device: &str, offset: u64, len: u64) -> Self {
        let what =
            format!("{device}: no space for {len} bytes at byte {offset}; free some space or use a smaller size");
        Self::new(ErrorKind::NoSpace, what)
    }

    /// Offset or length is not a multiple of the logical block.
    pub fn misaligned(device: &str, offset: u64, len: u64, block: u32) -> Self {
        Self::new(
            ErrorKind::InvalidInput,
            format!(
                "{device}: byte {offset}, length {len} is not a whole number of blocks; align both to {block} bytes"
            ),
        )
    }

    /// The range does not lie within the device.
    pub fn out_of_range(device: &str, offset: u64, len: u64, capacity: u64) -> Self {
        Self::new(
            ErrorKind::OutOfRange,
            format!(
                "{device}: byte {offset}, length {len} ends past the device, which has {capacity} bytes; grow it first"
            ),
        )
    }

    /// The file is shorter than it was when it was opened.
    pub fn truncated(device: &str, offset: u64, len: u64, found: u64) -> Self {
        Self::new(
            ErrorKind::Truncated,
            format!(
                "{device}: expected {len} bytes at byte {offset}, but the file ends after {found} of them; it was truncated, \
                 restore it from a backup"
            ),
        )
    }

    /// This kind of device cannot do that.
    pub fn unsupported(device: &str, operation: &str) -> Self {
        Self::new(ErrorKind::Unsupported, format!("{device} cannot {operation}"))
    }

    /// The device has zones, which are written in order, and so cannot be used like this. `remedy` says what to do instead.
    pub fn has_zones(device: &str, remedy: &str) -> Self {
        let what = format!("{device} has zones, which are written in order and only after a reset again; {remedy}");
        Self::new(ErrorKind::Unsupported, what)
    }

    /// No zone begins at that byte.
    pub fn no_zone(device: &str, offset: u64, zones: &Zones) -> Self {
        let (start, bytes) = (zones.start, zones.bytes);
        let what = format!(
            "{device}: no zone begins at byte {offset}; they begin at byte {start} and every {bytes} bytes from there on"
        );
        Self::new(ErrorKind::InvalidInput, what)
    }

    /// An earlier flush or durable write failed, so it is unknown which earlier writes the medium holds.
    pub fn writes_lost(device: &str, cause: &Error) -> Self {
        Self::new(
            ErrorKind::WritesLost,
            format!(
                "{device} no longer accepts writes, since an earlier one was lost; reopen and recover it. First cause: {cause}"
            ),
        )
        .with_source(cause.clone())
    }

    /// The device lost power while the operation was under way, so it may have taken effect in part.
    pub fn power_lost(device: &str, offset: u64, len: u64) -> Self {
        Self::new(
            ErrorKind::PowerLost,
            format!("{device} lost power while {len} bytes at byte {offset} were under way; reopen and recover it"),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Repr::LogFull { needed } => write!(
                f,
                "the log has no room for {needed} more bytes; release what a checkpoint needs, wait for space, and append again"
            ),
            Repr::Other(inner) => f.write_str(&inner.message),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.shared_source().map(|source| &**source as _)
    }
}
