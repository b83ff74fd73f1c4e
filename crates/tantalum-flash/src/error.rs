//! What can go wrong when a device is made from a profile and its contents.

use std::path::PathBuf;

/// What the crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an emulated device could not be made.
///
/// ```
/// let profile = tantalum_flash::Profile::named("ssd-a").unwrap();
/// let error = profile.open_file("/nowhere/at/all".as_ref()).unwrap_err();
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
    /// Another program, or another device of this one, uses the file.
    #[error(
        "{path} is in use: it holds an emulated device's contents, and one program at a time can open it; stop the other one, or use another file"
    )]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The file does not hold the contents of this device. It was not touched.
    #[error("cannot use {path} for an emulated device: {problem}")]
    ForeignFile {
        /// The file.
        path: PathBuf,
        /// What was found, and what to do.
        problem: String,
    },
    /// The file holds a device's contents, but not all of them.
    #[error("{path} has {found} bytes, but the device in it takes {expected}; restore it from a copy, or remove it")]
    WrongSize {
        /// The file.
        path: PathBuf,
        /// Its size.
        found: u64,
        /// The size that the device needs.
        expected: u64,
    },
    /// The name of an emulated device is not complete.
    #[error(
        "{spec:?} names no emulated device: {problem}; write emulated:PROFILE or emulated:PROFILE:FILE, with one of {known}, or the path of a TOML file"
    )]
    Spec {
        /// What was given.
        spec: String,
        /// What is wrong with it.
        problem: &'static str,
        /// The names of profiles that exist.
        known: String,
    },
    /// No profile of this name comes with the crate, and it is not a file.
    #[error("there is no profile {name:?}; known are {known}, or give the path of a TOML file")]
    UnknownProfile {
        /// What was asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A fault plan does not parse, or its device cannot have such faults.
    #[error("fault plan {file}{}: {problem}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    FaultPlan {
        /// The plan's or the profile's name or file.
        file: String,
        /// Line, from 1, where known.
        line: Option<usize>,
        /// The key that is wrong, and what is allowed.
        problem: String,
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
