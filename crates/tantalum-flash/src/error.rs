//! What can go wrong when a device is made from a profile and its contents.

use std::path::PathBuf;

/// What the crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an emulated device could not be made.
///
/// ```
/// let error = tantalum_flash::Contents::in_file("/nowhere/at/all".as_ref(), 4096).unwrap_err();
/// assert!(error.to_string().contains("/nowhere/at/all"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file with a device's contents cannot be used.
    #[error("cannot {operation} {path}, which holds an emulated device's contents: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        operation: &'static str,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The file holds another device's contents.
    #[error(
        "{path} has {found} bytes, but this device's contents take {expected}; use the profile and size it was made with, or another file"
    )]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size that the device needs.
        expected: u64,
    },
    /// No profile of this name comes with the crate, and it is not a file.
    #[error("there is no profile {name:?}; known are {known}, or give the path of a TOML file")]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A profile does not parse: unknown or missing key, or a value of the wrong type.
    #[error("profile {file}{}: {message}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Syntax {
        /// The profile's name or file.
        file: String,
        /// Line, from 1, where known.
        line: Option<usize>,
        /// What is wrong, and with which key.
        message: String,
    },
    /// A profile parses, but describes no possible device.
    #[error("profile {file}, key {key}: {problem}")]
    Impossible {
        /// The profile's name or file.
        file: String,
        /// The key concerned.
        key: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
}
