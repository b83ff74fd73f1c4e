//! `libtantalum_sqlite_preload.so`, which `LD_PRELOAD` puts before a program's SQLite: the first database that the program opens has the
//! extension, which lies beside this library, register its VFS as the default. A library of its own, because SQLite loads the extension
//! so that its symbols count for the whole process.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    mem::transmute,
    path::{Path, PathBuf},
    ptr,
    sync::OnceLock,
};

const SQLITE_CANTOPEN: c_int = 14;
const EXTENSION: &str = "libtantalum_sqlite.so";

type Open = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
type OpenV2 = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int;
/// Finds a function of the program's SQLite; null if there is none.
type Find = unsafe extern "C" fn(*const c_char) -> *mut c_void;
/// What the extension exports: whether the VFS becomes the default, and whether failures are said on standard error. Zero if it has registered
/// the VFS.
type Register = unsafe extern "C" fn(Find, c_int, c_int) -> c_int;

/// SQLite's function that this one comes before.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open(name: *const c_char, connection: *mut *mut c_void) -> c_int {
    // SAFETY: as SQLite's.
    unsafe { open(c"sqlite3_open", name.cast(), connection) }
}

/// SQLite's function that this one comes before.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open16(name: *const c_void, connection: *mut *mut c_void) -> c_int {
    // SAFETY: as SQLite's.
    unsafe { open(c"sqlite3_open16", name, connection) }
}

/// SQLite's function that this one comes before.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open_v2(
    name: *const c_char,
    connection: *mut *mut c_void,
    flags: c_int,
    vfs: *const c_char,
) -> c_int {
    // SAFETY: the function has this type in every SQLite, and the arguments are the program's.
    unsafe {
        match ready_function(c"sqlite3_open_v2") {
            Some(function) => transmute::<*mut c_void, OpenV2>(function)(name, connection, flags, vfs),
            None => refuse(connection),
        }
    }
}

/// # Safety
/// `function` names one of this type, and the arguments are the program's.
unsafe fn open(function: &CStr, name: *const c_void, connection: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        match ready_function(function) {
            Some(function) => transmute::<*mut c_void, Open>(function)(name, connection),
            None => refuse(connection),
        }
    }
}

/// Fails, as to go on without the VFS would have the program use an ordinary file.
///
/// # Safety
/// A place for a connection.
unsafe fn refuse(connection: *mut *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { *connection = ptr::null_mut() };
    SQLITE_CANTOPEN
}

/// A function of the program's SQLite, in which the VFS is registered. `None` if it cannot be, which is said once.
fn ready_function(name: &CStr) -> Option<*mut c_void> {
    static READY: OnceLock<bool> = OnceLock::new();
    let is_ready = *READY.get_or_init(|| match register() {
        Ok(()) => true,
        Err(what) => {
            eprintln!("tantalum: this program cannot use the VFS for SQLite: {what}");
            false
        }
    });
    // SAFETY: the name ends with a zero.
    let function = unsafe { find(name.as_ptr()) };
    (is_ready && !function.is_null()).then_some(function)
}

/// Finds a function of the program's SQLite: behind this library, or where a part of the program has loaded it for itself, as Python's
/// module does.
unsafe extern "C" fn find(name: *const c_char) -> *mut c_void {
    // SAFETY: the names end with a zero, and a library that is found stays loaded.
    unsafe {
        let function = libc::dlsym(libc::RTLD_NEXT, name);
        if !function.is_null() {
            return function;
        }
        let library = libc::dlopen(c"libsqlite3.so.0".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if library.is_null() { ptr::null_mut() } else { libc::dlsym(library, name) }
    }
}

fn register() -> Result<(), String> {
    let path = directory().ok_or("its library is not found")?.join(EXTENSION);
    let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|error| error.to_string())?;
    // SAFETY: the names end with a zero; the function has this type in the extension, and `find` is what it asks for.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        let function =
            if library.is_null() { library } else { libc::dlsym(library, c"tantalum_sqlite_register".as_ptr()) };
        if function.is_null() {
            return Err(CStr::from_ptr(libc::dlerror()).to_string_lossy().into_owned());
        }
        match transmute::<*mut c_void, Register>(function)(find, 1, 1) {
            0 => Ok(()),
            code => Err(format!("{} answers {code}", path.display())),
        }
    }
}

/// Where this library is.
fn directory() -> Option<PathBuf> {
    // SAFETY: the address is one of this library, and the path that is found stays as long as it.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(directory as *const c_void, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let path = CStr::from_ptr(info.dli_fname).to_string_lossy().into_owned();
        Path::new(&path).parent().map(Path::to_owned)
    }
}
