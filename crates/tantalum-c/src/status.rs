//! What functions return: a code, and a message that the thread keeps.

use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int},
    panic::{AssertUnwindSafe, catch_unwind},
};

use tantalum::{Error, ErrorKind};

/// Declares the codes: those of errors once, with the kind of error that each stands for.
macro_rules! codes {
    ($($code:ident = $number:literal, $kind:ident;)+) => {
        fn code_of(kind: ErrorKind) -> tantalum_code {
            match kind {
                $(ErrorKind::$kind => tantalum_code::$code,)+
                _ => tantalum_code::TANTALUM_OTHER,
            }
        }

        #[cfg(test)]
        const CODES: &[(tantalum_code, i32, ErrorKind)] = &[$((tantalum_code::$code, $number, ErrorKind::$kind)),+];
    };
}

codes! {
    TANTALUM_DEADLOCK = 10, Deadlock;
    TANTALUM_LOCK_TIMEOUT = 11, LockTimeout;
    TANTALUM_WRITE_CONFLICT = 12, WriteConflict;
    TANTALUM_SNAPSHOT_TOO_OLD = 13, SnapshotTooOld;
    TANTALUM_ABORTED = 14, Aborted;
    TANTALUM_APPLICATION = 15, Application;
    TANTALUM_BUSY = 16, Busy;
    TANTALUM_POOL_EXHAUSTED = 17, PoolExhausted;
    TANTALUM_STORE_FULL = 18, StoreFull;
    TANTALUM_NO_SPACE = 19, NoSpace;
    TANTALUM_TRANSACTION_TOO_LARGE = 20, TransactionTooLarge;
    TANTALUM_TOO_LARGE = 21, TooLarge;
    TANTALUM_NOT_FOUND = 22, NotFound;
    TANTALUM_ALREADY_EXISTS = 23, AlreadyExists;
    TANTALUM_IN_USE = 24, InUse;
    TANTALUM_INVALID_INPUT = 25, InvalidInput;
    TANTALUM_READ_ONLY = 26, ReadOnly;
    TANTALUM_UNSUPPORTED = 27, Unsupported;
    TANTALUM_CLOSED = 28, Closed;
    TANTALUM_MISSING = 29, Missing;
    TANTALUM_MISMATCH = 30, Mismatch;
    TANTALUM_STALE = 31, Stale;
    TANTALUM_NOT_ARCHIVED = 32, NotArchived;
    TANTALUM_CORRUPT = 33, Corrupt;
    TANTALUM_IO = 34, Io;
    TANTALUM_TIMED_OUT = 35, TimedOut;
    TANTALUM_WRITES_LOST = 36, WritesLost;
    TANTALUM_POISONED = 37, Poisoned;
    TANTALUM_OUTCOME_UNKNOWN = 38, OutcomeUnknown;
}

/// What a function returns. Numbers keep their meaning from version to version; new ones may come.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tantalum_code {
    /// It is done.
    TANTALUM_OK = 0,
    /// No failure: the key has no row, or the cursor has no more. There is no message.
    TANTALUM_NO_ROW = 1,
    /// No failure: the commit is still on its way. There is no message.
    TANTALUM_PENDING = 2,
    /// A null pointer where none is allowed, or a function that cannot be called now. Correct the program.
    TANTALUM_MISUSE = 3,
    /// A defect of the library. If it was in the middle of a change, the database has stopped: close it and open it again.
    TANTALUM_PANIC = 4,
    /// A failure for which there is no code here. The message says which.
    TANTALUM_OTHER = 5,
    /// Transactions waited for each other in a circle, and this one was aborted. Roll it back and run it again.
    TANTALUM_DEADLOCK = 10,
    /// A lock was not granted in time, and the transaction was aborted. Roll it back and run it again.
    TANTALUM_LOCK_TIMEOUT = 11,
    /// Another transaction wrote the same key first, and this one was aborted. Roll it back and run it again.
    TANTALUM_WRITE_CONFLICT = 12,
    /// The row versions that a snapshot sees could not be kept. Read again from a new snapshot.
    TANTALUM_SNAPSHOT_TOO_OLD = 13,
    /// The transaction was aborted by an earlier failure. Roll it back and run it again.
    TANTALUM_ABORTED = 14,
    /// The program's own callback gave up.
    TANTALUM_APPLICATION = 15,
    /// Something else of the same sort is under way. Try again later.
    TANTALUM_BUSY = 16,
    /// All frames of the buffer pool are in use. Make the pool larger or the transactions smaller.
    TANTALUM_POOL_EXHAUSTED = 17,
    /// No page of the database is free, and its file or device cannot grow.
    TANTALUM_STORE_FULL = 18,
    /// The file system, the device or a number space is full.
    TANTALUM_NO_SPACE = 19,
    /// A row takes more than one change group can have.
    TANTALUM_TRANSACTION_TOO_LARGE = 20,
    /// A key or value exceeds a limit.
    TANTALUM_TOO_LARGE = 21,
    /// A database or table of this name is not there.
    TANTALUM_NOT_FOUND = 22,
    /// What is to be created is there.
    TANTALUM_ALREADY_EXISTS = 23,
    /// It is in use, here or by another process.
    TANTALUM_IN_USE = 24,
    /// An argument, a setting or a file of settings is wrong. The message says which.
    TANTALUM_INVALID_INPUT = 25,
    /// It is open for reading only, or write-protected.
    TANTALUM_READ_ONLY = 26,
    /// This version, device or configuration cannot do that.
    TANTALUM_UNSUPPORTED = 27,
    /// The database was closed.
    TANTALUM_CLOSED = 28,
    /// A device or file is missing that the database needs.
    TANTALUM_MISSING = 29,
    /// A device, file or table belongs to another database.
    TANTALUM_MISMATCH = 30,
    /// A device or file is a copy from an earlier session.
    TANTALUM_STALE = 31,
    /// The archive of the log is missing, or lacks records that are needed.
    TANTALUM_NOT_ARCHIVED = 32,
    /// Stored bytes are damaged. Restore a backup.
    TANTALUM_CORRUPT = 33,
    /// The operating system or a device refused the operation.
    TANTALUM_IO = 34,
    /// A device did not answer in time, and was set aside.
    TANTALUM_TIMED_OUT = 35,
    /// A device has lost an earlier write, and takes no more. Close the database and open it again.
    TANTALUM_WRITES_LOST = 36,
    /// The log or the database stopped after a failure. Close it and open it again.
    TANTALUM_POISONED = 37,
    /// The outcome of the commit is unknown. Open the database again and look.
    TANTALUM_OUTCOME_UNKNOWN = 38,
}

/// Why a function does not return `TANTALUM_OK`.
pub(crate) enum Stop {
    /// This code, without a message.
    With(tantalum_code),
    /// A pointer is null, or the call is not allowed now.
    Misuse(&'static str),
    /// The engine's error.
    Error(Error),
    /// A callback gave up: the message is that of the last failure in it.
    Callback,
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The reference behind a pointer, which must not be null.
pub(crate) fn needed<T>(pointer: Option<T>, name: &'static str) -> Result<T, Stop> {
    pointer.ok_or(Stop::Misuse(name))
}

thread_local! {
    /// The message of the last failure.
    static MESSAGE: RefCell<CString> = RefCell::default();
}

fn keep_message(message: &str) {
    let message = CString::new(message.replace('\0', "\u{fffd}")).unwrap_or_default();
    MESSAGE.with(|kept| kept.replace(message));
}

/// Runs a function of the border: a panic becomes a code, and an error's message is kept for the thread.
pub(crate) fn guarded(run: impl FnOnce() -> Result<(), Stop>) -> tantalum_code {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => tantalum_code::TANTALUM_OK,
        Ok(Err(Stop::With(code))) => code,
        Ok(Err(Stop::Misuse(what))) => {
            keep_message(&format!("misuse: {what}"));
            tantalum_code::TANTALUM_MISUSE
        }
        Ok(Err(Stop::Error(error))) => {
            keep_message(&error.to_string());
            code_of(error.kind())
        }
        Ok(Err(Stop::Callback)) => tantalum_code::TANTALUM_APPLICATION,
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|what| (*what).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            keep_message(&format!("a defect of the library, please report it: {what}"));
            tantalum_code::TANTALUM_PANIC
        }
    }
}

/// Ends a handle that the caller gives up. A panic meanwhile stays here.
pub(crate) fn end<T>(handle: Option<Box<T>>) {
    let _ended = guarded(|| {
        drop(handle);
        Ok(())
    });
}

/// What the last failure of this thread was: one line of UTF-8 that says what is wrong, where, and what to do about it. Empty
/// if there was none. It belongs to the library, and is valid until the next call of any of its functions in this thread.
/// Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_error_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// Whether the work that failed with this code may succeed when it is run again from its beginning: a transaction that lost
/// against another, or a snapshot that grew too old. A transaction has been aborted then, and is still to be rolled back.
/// Any number is allowed. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_is_retryable(code: c_int) -> bool {
    use tantalum_code::{TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT, TANTALUM_SNAPSHOT_TOO_OLD, TANTALUM_WRITE_CONFLICT};
    [TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT, TANTALUM_WRITE_CONFLICT, TANTALUM_SNAPSHOT_TOO_OLD]
        .iter()
        .any(|&retryable| retryable as c_int == code)
}

/// The library's version, as "0.1.0". It belongs to the library, and is valid forever. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("a version has no zero byte"),
    };
    VERSION.as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_error_has_its_code_and_the_retryable_ones_are_those_of_the_engine() {
        for &(code, number, kind) in CODES {
            assert_eq!(code as i32, number, "{code:?}");
            let returned = guarded(|| Err(Error::new(kind, "why").into()));
            assert_eq!(returned, code);
            assert_eq!(tantalum_is_retryable(number), Error::new(kind, "why").is_retryable(), "{code:?}");
        }
    }

    #[test]
    fn a_panic_becomes_a_code_and_a_message() {
        assert_eq!(guarded(|| panic!("page {} is gone", 7)), tantalum_code::TANTALUM_PANIC);
        MESSAGE.with_borrow(|message| assert!(message.to_str().unwrap_or_default().contains("page 7 is gone")));
        assert_eq!(guarded(|| Err(Stop::Misuse("db is null"))), tantalum_code::TANTALUM_MISUSE);
        MESSAGE.with_borrow(|message| assert!(message.to_str().unwrap_or_default().contains("db is null")));
    }
}
