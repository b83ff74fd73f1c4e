//! Errors that workloads make in more than one place.

use std::fmt::Display;

pub use tantalum::{Error, ErrorKind, Result};

/// A row does not decode at byte `at`: something else wrote to the table.
pub(crate) fn row(table: &str, length: usize, at: usize, expected: &str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "table {table}: a row of {length} bytes is damaged at byte {at}: {expected} expected; load the database anew"
        ),
    )
}

/// A row that the workload itself loads or writes is not there.
pub fn missing(table: &str, key: &[u8]) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("table {table}: the row with key {key:02x?} is missing; load the database anew"),
    )
}

/// The database in the directory was loaded with other parameters.
pub(crate) fn parameters(found: impl Display, wanted: impl Display) -> Error {
    Error::new(
        ErrorKind::Mismatch,
        format!("the database was loaded with {found}, but {wanted} is asked for; give the same, or another directory"),
    )
}

/// A parameter is out of its range.
pub fn out_of_range(name: &str, value: impl Display, expected: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{name} = {value} is not possible: {expected}"))
}
