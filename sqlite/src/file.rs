//! What SQLite calls of an open file (`sqlite3_io_methods`). Each function hands on to [`DatabaseFile`], [`Journal`] or [`SuperJournal`].

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
    sync::Arc,
};

use libsqlite3_sys as ffi;

use crate::{
    api::{allocated, log},
    database_file::DatabaseFile,
    failure::{Failure, Result, last_os_error},
    journal::Journal,
    pragma::{Answer, JournalModes, answer},
    process,
    protocol::Step,
    super_journal::SuperJournal,
};

/// A file as SQLite allocates it.
#[repr(C)]
pub(crate) struct VfsFile {
    base: ffi::sqlite3_file,
    open: *mut OpenFile,
}

/// An open file.
struct OpenFile {
    kind: Kind,
    /// The process that opened it: a child that was forked has its memory, but not the engine's threads.
    process: u32,
    /// A call panicked and left it in an unknown state.
    is_poisoned: bool,
}

/// What an open file is.
pub(crate) enum Kind {
    Main(Box<DatabaseFile>, JournalModes),
    Journal(Journal),
    SuperJournal(Arc<SuperJournal>),
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    // Without shared memory, so without WAL; and without memory maps.
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Makes an open file of memory that SQLite provides.
///
/// # Safety
/// `file` has room for a [`VfsFile`], and no file is open in it.
pub(crate) unsafe fn init(file: *mut ffi::sqlite3_file, kind: Kind) {
    let open = Box::into_raw(Box::new(OpenFile { kind, process: process::current(), is_poisoned: false }));
    // SAFETY: as the caller promises; what was there needs no drop.
    unsafe { file.cast::<VfsFile>().write(VfsFile { base: ffi::sqlite3_file { pMethods: &METHODS }, open }) };
}

/// Runs a call of SQLite, which may not see a panic, and tells it the result code.
pub(crate) fn report(call: impl FnOnce() -> Result<c_int>) -> std::result::Result<c_int, c_int> {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(code)) => return Ok(code),
        Ok(Err(failure)) => failure,
        Err(_) => {
            log(&Failure::io("a bug of the VFS: a call panicked; close the connection"));
            return Err(ffi::SQLITE_IOERR);
        }
    };
    if !failure.reason.is_empty() {
        log(&failure);
    }
    Ok(failure.code)
}

/// Runs a call on an open file.
///
/// # Safety
/// `file` is open in this VFS, and SQLite makes one call of it at a time.
unsafe fn with(file: *mut ffi::sqlite3_file, call: impl FnOnce(&mut Kind) -> Result<c_int>) -> c_int {
    // SAFETY: `init` made it, and `close` has not been called; there is no other reference meanwhile.
    let open = unsafe { &mut *(*file.cast::<VfsFile>()).open };
    let outcome = report(|| {
        if open.process != process::current() {
            return Err(Failure::io(
                "the process was forked since the connection was opened; open another one in the child",
            ));
        }
        if open.is_poisoned {
            return Err(Failure::io("an earlier call of this connection panicked; close it and open another one"));
        }
        call(&mut open.kind)
    });
    outcome.unwrap_or_else(|code| {
        open.is_poisoned = true;
        code
    })
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let file = file.cast::<VfsFile>();
    // SAFETY: the file is open, and SQLite calls this last; so the box that `init` made is taken back once.
    let open = unsafe {
        (*file).base.pMethods = ptr::null();
        Box::from_raw((*file).open)
    };
    if open.process != process::current() {
        // What it has belongs to the parent: transactions of an engine whose threads are not here.
        std::mem::forget(open);
        return ffi::SQLITE_OK;
    }
    report(|| {
        drop(open);
        Ok(ffi::SQLITE_OK)
    })
    .unwrap_or_else(|code| code)
}

unsafe extern "C" fn read(file: *mut ffi::sqlite3_file, bytes: *mut c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite provides `len` bytes, which nothing else refers to. Zeroed, so that all of them are initialized.
    let bytes = unsafe {
        bytes.cast::<u8>().write_bytes(0, len as usize);
        slice::from_raw_parts_mut(bytes.cast::<u8>(), len as usize)
    };
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            let offset = offset as u64;
            let read = match kind {
                Kind::Main(main, _) => main.read(offset, bytes)?,
                Kind::Journal(journal) => journal.read(offset, bytes)?,
                Kind::SuperJournal(super_journal) => super_journal.read(offset, bytes),
            };
            Ok(if read < bytes.len() { ffi::SQLITE_IOERR_SHORT_READ } else { ffi::SQLITE_OK })
        })
    }
}

unsafe extern "C" fn write(file: *mut ffi::sqlite3_file, bytes: *const c_void, len: c_int, offset: i64) -> c_int {
    // SAFETY: SQLite provides `len` bytes, which do not change meanwhile.
    let bytes = unsafe { slice::from_raw_parts(bytes.cast::<u8>(), len as usize) };
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            let offset = offset as u64;
            match kind {
                Kind::Main(main, _) => main.run(Step::Write { offset, bytes })?,
                Kind::Journal(journal) => journal.write(offset, bytes)?,
                Kind::SuperJournal(super_journal) => super_journal.write(offset, bytes),
            }
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: i64) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            match kind {
                Kind::Main(main, _) => main.run(Step::SetSize(size as u64))?,
                Kind::Journal(journal) => journal.set_size(size as u64)?,
                Kind::SuperJournal(_) => return Err(Failure::io("SQLite never truncates a super-journal")),
            }
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _flags: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            match kind {
                Kind::Main(main, _) => main.run(Step::Sync)?,
                // It is not needed after a crash.
                Kind::Journal(_) => {}
                Kind::SuperJournal(super_journal) => super_journal.check_names()?,
            }
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn file_size(file: *mut ffi::sqlite3_file, size: *mut i64) -> c_int {
    // SAFETY: the file is open, and SQLite provides a place for the answer.
    unsafe {
        with(file, |kind| {
            *size = match kind {
                Kind::Main(main, _) => main.size()?,
                Kind::Journal(journal) => journal.size()?,
                Kind::SuperJournal(super_journal) => super_journal.size(),
            } as i64;
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, lock: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            if let Kind::Main(main, _) = kind {
                main.run(Step::Lock(lock))?;
            }
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, lock: c_int) -> c_int {
    // SAFETY: the file is open.
    unsafe {
        with(file, |kind| {
            if let Kind::Main(main, _) = kind {
                main.run(Step::Unlock(lock))?;
            }
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, is_reserved: *mut c_int) -> c_int {
    // SAFETY: the file is open, and SQLite provides a place for the answer.
    unsafe {
        with(file, |kind| {
            *is_reserved = match kind {
                Kind::Main(main, _) => main.is_reserved()?.into(),
                Kind::Journal(_) | Kind::SuperJournal(_) => 0,
            };
            Ok(ffi::SQLITE_OK)
        })
    }
}

unsafe extern "C" fn file_control(file: *mut ffi::sqlite3_file, operation: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the file is open, and `argument` is what SQLite documents for the operation.
    unsafe {
        with(file, |kind| match kind {
            Kind::Main(main, modes) => control(main, modes, operation, argument),
            Kind::Journal(_) | Kind::SuperJournal(_) => Ok(ffi::SQLITE_NOTFOUND),
        })
    }
}

/// Does a file control of a database.
///
/// # Safety
/// `argument` is what SQLite documents for the operation.
unsafe fn control(
    main: &mut DatabaseFile,
    modes: &mut JournalModes,
    operation: c_int,
    argument: *mut c_void,
) -> Result<c_int> {
    match operation {
        ffi::SQLITE_FCNTL_SYNC => {
            // SAFETY: the name of the super-journal, or null.
            let name = unsafe { argument.cast::<c_char>().as_ref().map(|name| CStr::from_ptr(name)) };
            main.end_of_writes(name.map(CStr::to_bytes))?;
        }
        ffi::SQLITE_FCNTL_COMMIT_PHASETWO => main.run(Step::Commit)?,
        ffi::SQLITE_FCNTL_BEGIN_ATOMIC_WRITE => main.run(Step::BeginBatch)?,
        // The commit follows with SQLITE_FCNTL_COMMIT_PHASETWO.
        ffi::SQLITE_FCNTL_COMMIT_ATOMIC_WRITE => {}
        ffi::SQLITE_FCNTL_ROLLBACK_ATOMIC_WRITE => main.run(Step::RollBackBatch)?,
        // SAFETY: a place for a number.
        ffi::SQLITE_FCNTL_HAS_MOVED => unsafe { *argument.cast::<c_int>() = main.has_moved().into() },
        // SAFETY: a place for a number.
        ffi::SQLITE_FCNTL_LOCKSTATE => unsafe { *argument.cast::<c_int>() = main.lock_state() },
        // SAFETY: a place for a number.
        ffi::SQLITE_FCNTL_LAST_ERRNO => unsafe { *argument.cast::<c_int>() = last_os_error() },
        // SAFETY: a place for a string that SQLite frees.
        ffi::SQLITE_FCNTL_VFSNAME => unsafe { *argument.cast::<*mut c_char>() = allocated(crate::VFS_NAME) },
        ffi::SQLITE_FCNTL_PRAGMA => {
            // SAFETY: the place of an answer, the name of the pragma, and its argument or null.
            let (name, value) = unsafe {
                let strings = argument.cast::<*const c_char>();
                let value = (*strings.add(2)).as_ref().map(|value| CStr::from_ptr(value).to_string_lossy());
                (CStr::from_ptr(*strings.add(1)).to_string_lossy(), value)
            };
            match answer(modes, &name, value.as_deref()) {
                Answer::Text(text) => {
                    // SAFETY: SQLite frees it.
                    unsafe { *argument.cast::<*mut c_char>() = allocated(text) };
                }
                Answer::Exclusive(is_exclusive) => {
                    main.run(Step::SetExclusive(is_exclusive))?;
                    return Ok(ffi::SQLITE_NOTFOUND);
                }
                Answer::OfSqlite => return Ok(ffi::SQLITE_NOTFOUND),
            }
        }
        _ => return Ok(ffi::SQLITE_NOTFOUND),
    }
    Ok(ffi::SQLITE_OK)
}

unsafe extern "C" fn sector_size(_file: *mut ffi::sqlite3_file) -> c_int {
    512
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is open.
    match unsafe { &(*(*file.cast::<VfsFile>()).open).kind } {
        // Nothing of a transaction counts before its commit, so no write must be durable before another; and a batch of writes is atomic.
        Kind::Main(..) => {
            ffi::SQLITE_IOCAP_BATCH_ATOMIC
                | ffi::SQLITE_IOCAP_SEQUENTIAL
                | ffi::SQLITE_IOCAP_SAFE_APPEND
                | ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
        }
        Kind::Journal(_) => ffi::SQLITE_IOCAP_SEQUENTIAL | ffi::SQLITE_IOCAP_SAFE_APPEND,
        // So that SQLite synchronizes it, when the names of all databases are known.
        Kind::SuperJournal(_) => 0,
    }
}
