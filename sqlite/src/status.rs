//! The table `tantalum_status`: the statistics of the Tantalum databases that the process has open, one row each. It is in every
//! connection that is opened after the registration, without being created (an eponymous virtual table), and can only be read. What there
//! is, its names and what they mean follow from [`tantalum::Stats`].

#![allow(unsafe_code)]

use std::{
    ffi::{c_char, c_int, c_void},
    ptr,
};

use libsqlite3_sys as ffi;
use serde_json::Value;

use crate::{
    api::{Api, TableApi},
    failure::{Failure, Result},
    file::report,
    store::Store,
};

/// One statistic.
#[derive(Debug, PartialEq)]
struct Row {
    /// The directory of the Tantalum database.
    database: String,
    /// The device that it is of, unless it is of the database.
    device: Option<String>,
    /// The fields that lead to it, separated by dots.
    name: String,
    value: Value,
}

/// The statistics of everything that is open.
fn rows() -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for store in Store::all() {
        let stats = serde_json::to_value(store.db().stats()?).map_err(|error| Failure::io(error.to_string()))?;
        add(&store.directory().to_string_lossy(), None, String::new(), stats, &mut rows);
    }
    Ok(rows)
}

/// Adds a field, or those within it. What is in a list belongs to the device that it names.
fn add(database: &str, device: Option<&str>, name: String, value: Value, rows: &mut Vec<Row>) {
    let within = |field: &str| if name.is_empty() { field.to_owned() } else { format!("{name}.{field}") };
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                add(database, device, within(&field), value, rows);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.into_iter().enumerate() {
                match item.get("name").and_then(Value::as_str).map(str::to_owned) {
                    Some(device) => add(database, Some(&device), name.clone(), item, rows),
                    None => add(database, device, within(&index.to_string()), item, rows),
                }
            }
        }
        value => rows.push(Row { database: database.to_owned(), device: device.map(str::to_owned), name, value }),
    }
}

/// Has every connection that is opened from now on have the table.
pub(crate) fn register(api: &Api) -> c_int {
    match &api.tables {
        // SAFETY: the function stays, as the program or library does that it is in.
        Some(tables) => unsafe { (tables.auto_extension)(Some(connected)) },
        None => ffi::SQLITE_OK,
    }
}

/// Gives a connection the table.
///
/// # Safety
/// `connection` is open. SQLite calls it, for one that it opens.
pub(crate) unsafe extern "C" fn connected(
    connection: *mut ffi::sqlite3,
    _message: *mut *mut c_char,
    _functions: *const ffi::sqlite3_api_routines,
) -> c_int {
    let Some(tables) = &Api::get().tables else { return ffi::SQLITE_OK };
    // SAFETY: the module is static.
    unsafe { (tables.create_module_v2)(connection, c"tantalum_status".as_ptr(), &MODULE, ptr::null_mut(), None) }
}

static MODULE: ffi::sqlite3_module = ffi::sqlite3_module {
    iVersion: 0,
    // Without it, no other table can be made of the module.
    xCreate: None,
    xConnect: Some(connect),
    xBestIndex: Some(best_index),
    xDisconnect: Some(disconnect),
    xDestroy: None,
    xOpen: Some(open),
    xClose: Some(close),
    xFilter: Some(filter),
    xNext: Some(next),
    xEof: Some(eof),
    xColumn: Some(column),
    xRowid: Some(rowid),
    xUpdate: None,
    xBegin: None,
    xSync: None,
    xCommit: None,
    xRollback: None,
    xFindFunction: None,
    xRename: None,
    xSavepoint: None,
    xRelease: None,
    xRollbackTo: None,
    xShadowName: None,
    xIntegrity: None,
};

/// A pass over the rows, as SQLite knows it.
#[repr(C)]
struct Cursor {
    base: ffi::sqlite3_vtab_cursor,
    rows: Vec<Row>,
    at: usize,
}

fn tables() -> &'static TableApi {
    Api::get().tables.as_ref().expect("the table is registered only where SQLite has such")
}

/// The cursor that SQLite means.
///
/// # Safety
/// `open` made it, `close` was not called, and there is no other reference meanwhile.
unsafe fn cursor<'a>(cursor: *mut ffi::sqlite3_vtab_cursor) -> &'a mut Cursor {
    // SAFETY: as the caller promises.
    unsafe { &mut *cursor.cast::<Cursor>() }
}

unsafe extern "C" fn connect(
    connection: *mut ffi::sqlite3,
    _client: *mut c_void,
    _argument_count: c_int,
    _arguments: *const *const c_char,
    table: *mut *mut ffi::sqlite3_vtab,
    _message: *mut *mut c_char,
) -> c_int {
    let columns = c"CREATE TABLE tantalum_status (database TEXT, device TEXT, name TEXT, value)";
    // SAFETY: the text ends with a zero, and SQLite provides a place for the table.
    unsafe {
        let code = (tables().declare_vtab)(connection, columns.as_ptr());
        if code == ffi::SQLITE_OK {
            *table =
                Box::into_raw(Box::new(ffi::sqlite3_vtab { pModule: ptr::null(), nRef: 0, zErrMsg: ptr::null_mut() }));
        }
        code
    }
}

unsafe extern "C" fn best_index(_table: *mut ffi::sqlite3_vtab, _plan: *mut ffi::sqlite3_index_info) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn disconnect(table: *mut ffi::sqlite3_vtab) -> c_int {
    // SAFETY: `connect` made it, and SQLite calls this last.
    drop(unsafe { Box::from_raw(table) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn open(_table: *mut ffi::sqlite3_vtab, cursor: *mut *mut ffi::sqlite3_vtab_cursor) -> c_int {
    let base = ffi::sqlite3_vtab_cursor { pVtab: ptr::null_mut() };
    // SAFETY: SQLite provides a place for it.
    unsafe { *cursor = Box::into_raw(Box::new(Cursor { base, rows: Vec::new(), at: 0 })).cast() };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(cursor: *mut ffi::sqlite3_vtab_cursor) -> c_int {
    // SAFETY: `open` made it, and SQLite calls this last.
    drop(unsafe { Box::from_raw(cursor.cast::<Cursor>()) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn filter(
    at: *mut ffi::sqlite3_vtab_cursor,
    _plan: c_int,
    _plan_text: *const c_char,
    _argument_count: c_int,
    _arguments: *mut *mut ffi::sqlite3_value,
) -> c_int {
    let gathered = report(|| {
        let rows = rows()?;
        // SAFETY: SQLite's cursor.
        let cursor = unsafe { cursor(at) };
        (cursor.rows, cursor.at) = (rows, 0);
        Ok(ffi::SQLITE_OK)
    });
    gathered.unwrap_or_else(|code| code)
}

unsafe extern "C" fn next(at: *mut ffi::sqlite3_vtab_cursor) -> c_int {
    // SAFETY: SQLite's cursor.
    unsafe { cursor(at).at += 1 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn eof(at: *mut ffi::sqlite3_vtab_cursor) -> c_int {
    // SAFETY: SQLite's cursor.
    let cursor = unsafe { cursor(at) };
    (cursor.at >= cursor.rows.len()).into()
}

unsafe extern "C" fn column(
    at: *mut ffi::sqlite3_vtab_cursor,
    context: *mut ffi::sqlite3_context,
    number: c_int,
) -> c_int {
    // SAFETY: SQLite's cursor.
    let cursor = unsafe { cursor(at) };
    let Some(row) = cursor.rows.get(cursor.at) else { return ffi::SQLITE_ERROR };
    let text = |text: &str| {
        // SAFETY: so many bytes, which SQLite copies before this returns.
        unsafe {
            let (begin, len) = (text.as_ptr().cast::<c_char>(), text.len() as c_int);
            (tables().result_text)(context, begin, len, ffi::SQLITE_TRANSIENT());
        }
    };
    match (number, &row.device, &row.value) {
        (0, ..) => text(&row.database),
        (1, Some(device), _) => text(device),
        (2, ..) => text(&row.name),
        (3, _, Value::String(value)) => text(value),
        // SAFETY: the context is SQLite's.
        (3, _, Value::Bool(value)) => unsafe { (tables().result_int64)(context, (*value).into()) },
        (3, _, Value::Number(value)) => match (value.as_i64(), value.as_f64()) {
            // SAFETY: as above.
            (Some(value), _) => unsafe { (tables().result_int64)(context, value) },
            // SAFETY: as above.
            (None, Some(value)) => unsafe { (tables().result_double)(context, value) },
            (None, None) => {}
        },
        // NULL, which is what a column is that gets no value.
        _ => {}
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn rowid(at: *mut ffi::sqlite3_vtab_cursor, rowid: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: SQLite's cursor, and a place for a number.
    unsafe { *rowid = cursor(at).at as i64 };
    ffi::SQLITE_OK
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_are_named_by_the_way_to_them_and_devices_by_their_names() {
        let stats = json!({
            "page_bytes": 4096,
            "log": {"records": 7, "devices": [{"name": "log-0", "late": 1}, {"name": "log-1", "late": 2}]},
            "remedies": ["replace it"],
        });
        let mut rows = Vec::new();
        add("db", None, String::new(), stats, &mut rows);
        let mut found: Vec<_> =
            rows.iter().map(|row| (row.device.as_deref().unwrap_or("-"), &*row.name, row.value.to_string())).collect();
        found.sort();
        let expected = [
            ("-", "log.records", "7"),
            ("-", "page_bytes", "4096"),
            ("-", "remedies.0", "\"replace it\""),
            ("log-0", "log.devices.late", "1"),
            ("log-0", "log.devices.name", "\"log-0\""),
            ("log-1", "log.devices.late", "2"),
            ("log-1", "log.devices.name", "\"log-1\""),
        ];
        assert_eq!(found, expected.map(|(device, name, value)| (device, name, value.to_owned())));
    }
}
