//! The VFS `tantalum` as an extension: `libtantalum_sqlite.so`, which the `sqlite3` shell, Python's `sqlite3` and any other program with
//! the system's SQLite can load.

#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int},
    mem::transmute,
    panic::catch_unwind,
};

use libsqlite3_sys as ffi;
use tantalum_vfs::{Api, AutoExtension, Options, TableApi, register_with};

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
    match catch_unwind(|| unsafe { register_with(api, Options::new()) }) {
        Ok(Ok(())) => ffi::SQLITE_OK_LOAD_PERMANENTLY,
        _ => ffi::SQLITE_ERROR,
    }
}
