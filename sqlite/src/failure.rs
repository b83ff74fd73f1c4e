//! How a call of the VFS fails: with a result code of SQLite, and with the reason in words, which SQLite has no way to hand on. The
//! reason goes to SQLite's log, and the thread that called can ask for it.

use std::{
    cell::{Cell, RefCell},
    error::Error as _,
    ffi::c_int,
    fmt::Display,
    iter::successors,
    sync::atomic::{AtomicBool, Ordering},
};

use libsqlite3_sys as ffi;
use tantalum::{Error, ErrorKind};

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why SQLite gets a result code that is not `SQLITE_OK`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub code: c_int,
    /// Empty where nothing is wrong: a busy database, a read beyond the end.
    pub reason: String,
    /// The error number of the operating system; 0 where it is not what failed.
    pub os_error: i32,
}

impl Failure {
    /// A failure that needs no words.
    pub fn code(code: c_int) -> Self {
        Self { code, reason: String::new(), os_error: 0 }
    }

    /// `SQLITE_IOERR`: of the codes with which a commit may fail, the one that has SQLite forget its page cache, as `SQLITE_FULL` does.
    /// With any other, it would keep pages that were never committed, and take them for valid after another connection's commit.
    pub fn io(reason: impl Into<String>) -> Self {
        Self { code: ffi::SQLITE_IOERR, reason: reason.into(), os_error: 0 }
    }

    /// `SQLITE_FULL`.
    pub fn full(reason: impl Into<String>) -> Self {
        Self { code: ffi::SQLITE_FULL, ..Self::io(reason) }
    }

    /// `SQLITE_CANTOPEN`.
    pub fn cannot_open(reason: impl Into<String>) -> Self {
        Self { code: ffi::SQLITE_CANTOPEN, ..Self::io(reason) }
    }

    /// Says what was being done.
    pub fn context(mut self, place: impl Display) -> Self {
        self.reason = format!("{place}: {}", self.reason);
        self
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::StoreFull
            | ErrorKind::NoSpace
            | ErrorKind::LogFull
            | ErrorKind::TooLarge
            | ErrorKind::TransactionTooLarge => ffi::SQLITE_FULL,
            _ => ffi::SQLITE_IOERR,
        };
        let mut causes = successors(error.source(), |&cause| cause.source());
        let of_os = causes.find_map(|cause| cause.downcast_ref::<std::io::Error>()?.raw_os_error());
        Self { code, reason: error.to_string(), os_error: of_os.unwrap_or(0) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self { os_error: error.raw_os_error().unwrap_or(0), ..Self::io(error.to_string()) }
    }
}

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
    static LAST_OS_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Whether reasons are written to standard error.
static SAYS_FAILURES: AtomicBool = AtomicBool::new(false);

pub(crate) fn say_failures(says_failures: bool) {
    SAYS_FAILURES.store(says_failures, Ordering::Relaxed);
}

/// Keeps the reason for [`last_error`].
pub(crate) fn note(failure: &Failure) {
    if SAYS_FAILURES.load(Ordering::Relaxed) {
        eprintln!("tantalum: {}", failure.reason);
    }
    LAST.with(|last| *last.borrow_mut() = Some(failure.reason.clone()));
    LAST_OS_ERROR.set(failure.os_error);
}

/// The error number of the operating system that was the reason for [`last_error`], which SQLite asks for (`sqlite3_system_errno`).
pub(crate) fn last_os_error() -> i32 {
    LAST_OS_ERROR.get()
}

/// Why the last call on this thread that failed in the VFS has failed, in words: SQLite itself only says "disk I/O error" or "unable to
/// open database file". `None` if none has. The same is written to [SQLite's log](https://sqlite.org/errlog.html).
///
/// ```
/// tantalum_sqlite::register(tantalum_sqlite::Options::new())?;
/// let missing = rusqlite::Connection::open_with_flags("file:/nowhere/app.db?vfs=tantalum", rusqlite::OpenFlags::default());
/// assert!(missing.is_err());
/// assert!(tantalum_sqlite::last_error().unwrap().contains("/nowhere"));
/// # Ok::<(), tantalum::Error>(())
/// ```
pub fn last_error() -> Option<String> {
    LAST.with(|last| last.borrow().clone())
}
