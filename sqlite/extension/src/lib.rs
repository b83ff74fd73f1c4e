//! The VFS `tantalum` as an extension: `libtantalum_sqlite.so`, which the `sqlite3` shell, Python's `sqlite3` and any other program with
//! the system's SQLite can load.

#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    mem::transmute,
    panic::catch_unwind,
};

use libsqlite3_sys as ffi;
use tantalum_vfs::{Api, AutoExtension, ErrorKind, Options, TableApi, last_error, register_with};

/// `sqlite3_auto_extension` as it is declared.
type Untyped = unsafe extern "C" fn(Option<unsafe extern "C" fn()>) -> c_int;

/// What SQLite calls when it has loaded the extension. The VFS serves all connections of the process, also when the connection that loaded
/// it is closed, so SQLite is told to keep the library.
///
/// # Safety
/// Called by SQLite, which hands over its functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    _connection: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    functions: *const ffi::sqlite3_api_routines,
) -> c_int {
    // SAFETY: SQLite's table of functions, of which those that are read have been in it since version 3.8.7, in this place. It calls what
    // `auto_extension` is given as an entry point of an extension, whatever the type says.
    let api = unsafe {
        let (Some(vfs_find), Some(vfs_register), Some(uri_parameter), Some(malloc64), Some(log)) = (
            (*functions).vfs_find,
            (*functions).vfs_register,
            (*functions).uri_parameter,
            (*functions).malloc64,
            (*functions).log,
        ) else {
            return ffi::SQLITE_ERROR;
        };
        let tables = || {
            Some(TableApi {
                auto_extension: transmute::<Untyped, AutoExtension>((*functions).auto_extension?),
                create_module_v2: (*functions).create_module_v2?,
                declare_vtab: (*functions).declare_vtab?,
                result_text: (*functions).result_text?,
                result_int64: (*functions).result_int64?,
                result_double: (*functions).result_double?,
            })
        };
        Api { vfs_find, vfs_register, uri_parameter, malloc64, log, tables: tables() }
    };
    // SAFETY: the functions are those of the SQLite that has loaded the extension, for good.
    match unsafe { register(api, Options::new()) } {
        ffi::SQLITE_OK => ffi::SQLITE_OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// Registers the VFS, if no library of the process has: a program may load one of its own and be run with another.
///
/// # Safety
/// As for [`register_with`].
unsafe fn register(api: Api, options: Options) -> c_int {
    // SAFETY: as the caller promises.
    match catch_unwind(|| unsafe { register_with(api, options) }) {
        Ok(Ok(())) => ffi::SQLITE_OK,
        Ok(Err(error)) if error.kind() == ErrorKind::AlreadyExists => ffi::SQLITE_OK,
        _ => ffi::SQLITE_ERROR,
    }
}

/// Registers the VFS with the SQLite of a program that does not load extensions, which is to keep this library: as the default if that is
/// not zero, and so that failures are said on standard error, for a program that cannot ask for them. Zero if that succeeds.
///
/// # Safety
/// `find` finds a function of one SQLite, which stays as long as the process, by its name; null if there is none.
#[unsafe(no_mangle)]
#[expect(clippy::missing_transmute_annotations, reason = "the types are those of the places that the functions go to")]
pub unsafe extern "C" fn tantalum_sqlite_register(
    find: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    is_default: c_int,
    says_failures: c_int,
) -> c_int {
    /// A function of SQLite, of the type of its place in `Api` or `TableApi`.
    macro_rules! function {
        ($name:literal) => {{
            // SAFETY: the name ends with a zero.
            let function = unsafe { find($name.as_ptr()) };
            // SAFETY: SQLite's functions have these types in all its versions.
            if function.is_null() { None } else { Some(unsafe { transmute(function) }) }
        }};
    }
    let tables = || {
        Some(TableApi {
            auto_extension: function!(c"sqlite3_auto_extension")?,
            create_module_v2: function!(c"sqlite3_create_module_v2")?,
            declare_vtab: function!(c"sqlite3_declare_vtab")?,
            result_text: function!(c"sqlite3_result_text")?,
            result_int64: function!(c"sqlite3_result_int64")?,
            result_double: function!(c"sqlite3_result_double")?,
        })
    };
    let api = || {
        Some(Api {
            vfs_find: function!(c"sqlite3_vfs_find")?,
            vfs_register: function!(c"sqlite3_vfs_register")?,
            uri_parameter: function!(c"sqlite3_uri_parameter")?,
            malloc64: function!(c"sqlite3_malloc64")?,
            log: function!(c"sqlite3_log")?,
            tables: tables(),
        })
    };
    let initialize: Option<unsafe extern "C" fn() -> c_int> = function!(c"sqlite3_initialize");
    let (Some(api), Some(initialize)) = (api(), initialize) else { return ffi::SQLITE_ERROR };
    let options = Options::new().default_vfs(is_default != 0).say_failures(says_failures != 0);
    // SAFETY: the functions are those of the program's SQLite. There is no VFS to find before it is initialized.
    unsafe {
        match initialize() {
            ffi::SQLITE_OK => register(api, options),
            code => code,
        }
    }
}

/// Copies into `text`, which has room for so many bytes, why the last call on this thread that failed in the VFS has failed, in UTF-8, cut off where
/// it is longer. Returns its length; zero if none has failed.
///
/// # Safety
/// `text` may be written for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tantalum_sqlite_last_error(text: *mut c_char, bytes: usize) -> usize {
    let reason = catch_unwind(last_error).ok().flatten().unwrap_or_default();
    // SAFETY: as the caller promises.
    unsafe { reason.as_ptr().copy_to(text.cast(), reason.len().min(bytes)) };
    reason.len()
}
