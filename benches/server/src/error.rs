//! What can go wrong in a comparison, and how its causes are named: the server, the file, or the option.
//!
//! A run fails at its first error. The comparison reports it and goes on with the other runs.

use std::io;
use std::path::Path;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run, or all of them, stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A server refused or failed.
    #[error("{server}, {doing}: {cause}")]
    Server {
        /// Its name, with the node's.
        server: String,
        /// What it was asked for.
        doing: &'static str,
        /// What it says.
        cause: String,
    },
    /// A file could not be used.
    #[error("cannot {doing} {path}: {cause}")]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file or directory.
        path: String,
        /// What the system says.
        cause: io::Error,
    },
    /// The options do not fit together, or a program that is needed failed.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// Makes an error of what the system says of a file.
    pub fn file(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |cause| Self::File { doing, path: path.clone(), cause }
    }
}
