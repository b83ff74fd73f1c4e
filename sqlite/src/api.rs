//! The functions of SQLite that the VFS calls: of the library that is linked, or of one that has loaded the VFS as an extension and hands
//! them over.

#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    sync::OnceLock,
};

use libsqlite3_sys as ffi;

use crate::failure::{Failure, note};

/// What the VFS needs of SQLite. For the loadable extension, which is a crate of its own.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Api {
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut ffi::sqlite3_vfs,
    pub vfs_register: unsafe extern "C" fn(*mut ffi::sqlite3_vfs, c_int) -> c_int,
    pub uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    pub malloc64: unsafe extern "C" fn(u64) -> *mut c_void,
    pub log: unsafe extern "C" fn(c_int, *const c_char, ...),
    /// `None` in a SQLite without virtual tables.
    pub tables: Option<TableApi>,
}

/// What a virtual table needs of SQLite.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct TableApi {
    pub auto_extension: AutoExtension,
    pub create_module_v2: unsafe extern "C" fn(
        *mut ffi::sqlite3,
        *const c_char,
        *const ffi::sqlite3_module,
        *mut c_void,
        Option<Destructor>,
    ) -> c_int,
    pub declare_vtab: unsafe extern "C" fn(*mut ffi::sqlite3, *const c_char) -> c_int,
    pub result_text: unsafe extern "C" fn(*mut ffi::sqlite3_context, *const c_char, c_int, Option<Destructor>),
    pub result_int64: unsafe extern "C" fn(*mut ffi::sqlite3_context, i64),
    pub result_double: unsafe extern "C" fn(*mut ffi::sqlite3_context, f64),
}

/// Has SQLite call a function for each connection that it opens.
#[doc(hidden)]
pub type AutoExtension = unsafe extern "C" fn(
    Option<unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const ffi::sqlite3_api_routines) -> c_int>,
) -> c_int;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// Set by the first registration.
static API: OnceLock<Api> = OnceLock::new();

impl Api {
    /// The functions of the SQLite that is linked to the program.
    #[cfg(feature = "linked")]
    pub(crate) fn linked() -> Self {
        Self {
            vfs_find: ffi::sqlite3_vfs_find,
            vfs_register: ffi::sqlite3_vfs_register,
            uri_parameter: ffi::sqlite3_uri_parameter,
            malloc64: ffi::sqlite3_malloc64,
            log: ffi::sqlite3_log,
            tables: Some(TableApi {
                auto_extension: ffi::sqlite3_auto_extension,
                create_module_v2: ffi::sqlite3_create_module_v2,
                declare_vtab: ffi::sqlite3_declare_vtab,
                result_text: ffi::sqlite3_result_text,
                result_int64: ffi::sqlite3_result_int64,
                result_double: ffi::sqlite3_result_double,
            }),
        }
    }

    /// The one that counts: the first that is set.
    pub(crate) fn set(self) -> &'static Self {
        API.get_or_init(|| self)
    }

    /// The one that was set.
    pub(crate) fn get() -> &'static Self {
        API.get().expect("the VFS is called only after it was registered")
    }
}

/// Tells SQLite's log, and this thread, why a call fails.
pub(crate) fn log(failure: &Failure) {
    note(failure);
    let reason = c_string(&failure.reason);
    // SAFETY: both strings end with a zero, and the format has one argument, a string.
    unsafe { (Api::get().log)(failure.code, c"%s".as_ptr(), reason.as_ptr().cast::<c_char>()) };
}

/// The text with a zero at its end, and none before.
fn c_string(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| *byte != 0).chain([0]).collect()
}

/// A copy that SQLite frees; null if there is no memory.
pub(crate) fn allocated(text: &str) -> *mut c_char {
    let text = c_string(text);
    // SAFETY: so many bytes are allocated, or none.
    unsafe {
        let copy = (Api::get().malloc64)(text.len() as u64).cast::<u8>();
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(text.as_ptr(), text.len());
        }
        copy.cast()
    }
}
