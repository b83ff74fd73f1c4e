//! What can go wrong in a comparison.

use std::{fmt::Display, io, path::Path};

use tantalum_workloads::ErrorKind;

/// The result of everything here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run, or all of them, stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An engine gave the transaction up because of others: it is to be tried again.
    #[error("the transaction lost a conflict, and is to be tried again")]
    Conflict,
    /// An engine refused or failed.
    #[error("{engine}, {doing}: {cause}")]
    Engine {
        /// Its name.
        engine: &'static str,
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
        /// What the system says, or what is in it.
        cause: String,
    },
    /// The options do not fit together, or a run in a process of its own failed.
    #[error("{0}")]
    Other(String),
}

impl From<Error> for tantalum_workloads::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Conflict => ErrorKind::WriteConflict,
            _ => ErrorKind::Io,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}

impl From<tantalum_workloads::Error> for Error {
    fn from(error: tantalum_workloads::Error) -> Self {
        Self::Other(error.to_string())
    }
}

impl Error {
    /// Makes an error of what an engine says.
    pub fn engine<E: Display>(engine: &'static str, doing: &'static str) -> impl Fn(E) -> Self {
        move |cause| Self::Engine { engine, doing, cause: cause.to_string() }
    }

    /// Makes an error of what the system says of a file.
    pub fn file(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.display().to_string();
        move |cause| Self::File { doing, path: path.clone(), cause: cause.to_string() }
    }
}
