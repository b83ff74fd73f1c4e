//! What SQLite calls of a VFS (`sqlite3_vfs`), and its registration. What is no database of ours, a temporary file for example, is left to
//! the VFS that was the default before.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int, c_void},
    mem::size_of,
    os::unix::ffi::OsStrExt,
    path::Path,
    ptr,
    time::Duration,
};

use libsqlite3_sys as ffi;
use tantalum::{Error, ErrorKind};
use tantalum_rt::Mutex;

use crate::{
    VFS_NAME,
    api::Api,
    database_file::Opening,
    failure::{Failure, Result, last_error, last_os_error, say_failures},
    file::{Kind, VfsFile, init, report},
    journal::{Journal, is_journal_of_open},
    options::Options,
    pragma::JournalModes,
    status,
    super_journal::SuperJournal,
    write_lock::sleep_in_turn,
};

/// The options of the last registration, if there was one.
static OPTIONS: Mutex<Option<Options>> = Mutex::new(None);

/// Registers the VFS `tantalum` with the SQLite that is linked to this program, and the table `tantalum_status`. From then on, any connection of the process can name it,
/// from whichever language: `file:app.db?vfs=tantalum`. To be called again with other options, which count for what is opened later.
/// Safe to call from several threads.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// tantalum_sqlite::register(tantalum_sqlite::Options::new())?;
/// let path = dir.path().join("app.db");
/// let connection = rusqlite::Connection::open(format!("file:{}?vfs=tantalum", path.display()))?;
/// connection.execute_batch("CREATE TABLE users (name TEXT); INSERT INTO users VALUES ('Ada')")?; // durable when it returns
/// let name: String = connection.query_row("SELECT name FROM users", [], |row| row.get(0))?;
/// assert_eq!(name, "Ada");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Unsupported`](ErrorKind::Unsupported) if this SQLite has no other VFS, or does not take this one,
/// [`AlreadyExists`](ErrorKind::AlreadyExists) if another library of the process has registered its own, which connections then use.
#[cfg(feature = "linked")]
pub fn register(options: Options) -> tantalum::Result<()> {
    // SAFETY: the functions are SQLite's own.
    unsafe { register_with(Api::linked(), options) }
}

/// As [`register`], with a SQLite that is not linked to this program but has loaded it.
///
/// # Safety
/// The functions are those of one SQLite, and stay as long as the process.
#[doc(hidden)]
pub unsafe fn register_with(api: Api, options: Options) -> tantalum::Result<()> {
    let api = api.set();
    let mut registered = OPTIONS.lock();
    let is_default = options.is_default;
    say_failures(options.says_failures);
    let is_first = registered.replace(options).is_none();
    let refused =
        |what: &str| Error::new(ErrorKind::Unsupported, format!("the VFS {VFS_NAME} cannot be registered: {what}"));
    let name = CString::new(VFS_NAME).map_err(|_| refused("its name"))?;
    // SAFETY: the name ends with a zero. What is registered stays for ever: the VFS and its name are leaked.
    unsafe {
        let vfs = if is_first {
            if !(api.vfs_find)(name.as_ptr()).is_null() {
                *registered = None;
                let what = format!("another library of the process has registered the VFS {VFS_NAME}");
                return Err(Error::new(ErrorKind::AlreadyExists, what));
            }
            let base = (api.vfs_find)(ptr::null());
            if base.is_null() {
                *registered = None;
                return Err(refused("SQLite has no VFS for temporary files"));
            }
            Box::into_raw(Box::new(vfs_over(base, name.into_raw())))
        } else {
            (api.vfs_find)(name.as_ptr())
        };
        match (api.vfs_register)(vfs, is_default.into()) {
            // SQLite knows a function once, however often it is named.
            ffi::SQLITE_OK if status::register(api) == ffi::SQLITE_OK => Ok(()),
            code => Err(refused(&format!("SQLite says {code}"))),
        }
    }
}

/// The VFS.
///
/// # Safety
/// `base` is a VFS that is registered.
unsafe fn vfs_over(base: *mut ffi::sqlite3_vfs, name: *const c_char) -> ffi::sqlite3_vfs {
    // SAFETY: as the caller promises.
    let (base_file_bytes, path_bytes) = unsafe { ((*base).szOsFile, (*base).mxPathname) };
    ffi::sqlite3_vfs {
        iVersion: 2,
        // A file of either.
        szOsFile: base_file_bytes.max(size_of::<VfsFile>() as c_int),
        mxPathname: path_bytes,
        pNext: ptr::null_mut(),
        zName: name,
        pAppData: base.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(get_last_error),
        xCurrentTimeInt64: Some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }
}

/// The VFS that was the default before, and a function of it.
macro_rules! base {
    ($vfs:ident, $function:ident($($argument:expr),*), else $otherwise:expr) => {{
        // SAFETY: `vfs_over` put it there, and a registered VFS stays.
        let base = unsafe { (*$vfs).pAppData.cast::<ffi::sqlite3_vfs>() };
        // SAFETY: the arguments are SQLite's own, passed on.
        match unsafe { (*base).$function } {
            // SAFETY: as above.
            Some(function) => unsafe { function(base, $($argument),*) },
            None => $otherwise,
        }
    }};
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite provides room for a file. Nothing to close as long as there are no methods.
    unsafe { (*file).pMethods = ptr::null() };
    let mut is_ours = true;
    let outcome = report(|| {
        // SAFETY: the name ends with a zero, or is null; a database's is followed by its URI parameters.
        let Some((kind, flags)) = (unsafe { kind_of(name, flags)? }) else {
            is_ours = false;
            return Ok(ffi::SQLITE_OK);
        };
        // SAFETY: SQLite provides room for a file, and a place for flags or null.
        unsafe {
            init(file, kind);
            if let Some(out_flags) = out_flags.as_mut() {
                *out_flags = flags;
            }
        }
        Ok(ffi::SQLITE_OK)
    });
    if is_ours {
        return outcome.unwrap_or_else(|code| code);
    }
    base!(vfs, xOpen(name, file, flags, out_flags), else ffi::SQLITE_CANTOPEN)
}

/// Opens a file, unless it is to be left to the other VFS. The flags are those that it was opened with.
///
/// # Safety
/// As [`open`].
unsafe fn kind_of(name: *const c_char, flags: c_int) -> Result<Option<(Kind, c_int)>> {
    if name.is_null() {
        return Ok(None);
    }
    // SAFETY: it ends with a zero.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let has = |flag: c_int| flags & flag != 0;
    if has(ffi::SQLITE_OPEN_MAIN_DB) {
        let parameter = |parameter: &str| {
            let parameter = CString::new(parameter).ok()?;
            // SAFETY: the name is one of a database, as SQLite hands it to a VFS, and the answer ends with a zero or is null.
            let value = unsafe {
                (Api::get().uri_parameter)(name, parameter.as_ptr()).as_ref().map(|value| CStr::from_ptr(value))
            };
            value.map(|value| value.to_string_lossy().into_owned())
        };
        let options = OPTIONS.lock().clone().unwrap_or_default();
        let options = options.with_parameters(parameter).map_err(|error| Failure::cannot_open(error.to_string()))?;
        let opening = Opening {
            path: Path::new(OsStr::from_bytes(path)),
            options,
            may_create: has(ffi::SQLITE_OPEN_CREATE),
            must_be_new: has(ffi::SQLITE_OPEN_EXCLUSIVE),
            adopts: parameter("adopt").is_some_and(|value| value == "1"),
        };
        let open = opening.open()?;
        // As with a file that the process may not write.
        let opened_with = if open.is_writable() {
            flags
        } else {
            flags & !(ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE) | ffi::SQLITE_OPEN_READONLY
        };
        return Ok(Some((Kind::Main(Box::new(open), JournalModes::default()), opened_with)));
    }
    if has(ffi::SQLITE_OPEN_MAIN_JOURNAL) && is_journal_of_open(path) {
        return Ok(Some((Kind::Journal(Journal::default()), flags)));
    }
    if has(ffi::SQLITE_OPEN_WAL) && is_journal_of_open(path) {
        return Err(Failure::cannot_open("the VFS tantalum has no WAL mode; use another journal mode"));
    }
    if has(ffi::SQLITE_OPEN_SUPER_JOURNAL) {
        let found =
            if has(ffi::SQLITE_OPEN_CREATE) { Some(SuperJournal::create(path)?) } else { SuperJournal::named(path) };
        return Ok(found.map(|found| (Kind::SuperJournal(found), flags)));
    }
    Ok(None)
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    let mut is_ours = true;
    let outcome = report(|| {
        // SAFETY: it ends with a zero.
        let path = unsafe { CStr::from_ptr(name) }.to_bytes();
        // SQLite synchronizes the directory where the deletion is the commit, and not where it tidies up.
        match SuperJournal::delete(path, sync_directory != 0) {
            Some(deleted) => deleted?,
            None => is_ours = is_journal_of_open(path),
        }
        Ok(ffi::SQLITE_OK)
    });
    if is_ours {
        return outcome.unwrap_or_else(|code| code);
    }
    base!(vfs, xDelete(name, sync_directory), else ffi::SQLITE_IOERR_DELETE)
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, flags: c_int, is: *mut c_int) -> c_int {
    // SAFETY: it ends with a zero.
    let path = unsafe { CStr::from_ptr(name) }.to_bytes();
    let is_super_journal = SuperJournal::named(path).is_some();
    if is_super_journal || is_journal_of_open(path) {
        // SAFETY: a place for the answer. No connection sees a journal of another, so none is ever hot.
        unsafe { *is = is_super_journal.into() };
        return ffi::SQLITE_OK;
    }
    base!(vfs, xAccess(name, flags, is), else ffi::SQLITE_IOERR_ACCESS)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    len: c_int,
    full: *mut c_char,
) -> c_int {
    base!(vfs, xFullPathname(name, len, full), else ffi::SQLITE_CANTOPEN)
}

unsafe extern "C" fn dl_open(vfs: *mut ffi::sqlite3_vfs, name: *const c_char) -> *mut c_void {
    base!(vfs, xDlOpen(name), else ptr::null_mut())
}

unsafe extern "C" fn dl_error(vfs: *mut ffi::sqlite3_vfs, len: c_int, message: *mut c_char) {
    base!(vfs, xDlError(len, message), else ())
}

/// A function of a library, as SQLite declares it.
type Symbol = unsafe extern "C" fn(*mut ffi::sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn dl_sym(vfs: *mut ffi::sqlite3_vfs, library: *mut c_void, symbol: *const c_char) -> Option<Symbol> {
    base!(vfs, xDlSym(library, symbol), else None)
}

unsafe extern "C" fn dl_close(vfs: *mut ffi::sqlite3_vfs, library: *mut c_void) {
    base!(vfs, xDlClose(library), else ())
}

unsafe extern "C" fn randomness(vfs: *mut ffi::sqlite3_vfs, len: c_int, bytes: *mut c_char) -> c_int {
    base!(vfs, xRandomness(len, bytes), else 0)
}

unsafe extern "C" fn sleep(_vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    let slept = report(|| {
        sleep_in_turn(Duration::from_micros(microseconds.max(0) as u64));
        Ok(microseconds)
    });
    slept.unwrap_or(0)
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, time: *mut f64) -> c_int {
    base!(vfs, xCurrentTime(time), else ffi::SQLITE_ERROR)
}

unsafe extern "C" fn current_time_int64(vfs: *mut ffi::sqlite3_vfs, time: *mut i64) -> c_int {
    base!(vfs, xCurrentTimeInt64(time), else ffi::SQLITE_ERROR)
}

unsafe extern "C" fn get_last_error(_vfs: *mut ffi::sqlite3_vfs, len: c_int, text: *mut c_char) -> c_int {
    if let Ok(len @ 1..) = usize::try_from(len)
        && !text.is_null()
    {
        let last = last_error().unwrap_or_default();
        let bytes = &last.as_bytes()[..last.len().min(len - 1)];
        // SAFETY: SQLite provides so many bytes.
        unsafe {
            text.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            text.add(bytes.len()).write(0);
        }
    }
    last_os_error()
}
