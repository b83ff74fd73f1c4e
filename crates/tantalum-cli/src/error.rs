//! Why a command failed, and standard output that may be closed at any time.

use std::{
    fmt::Display,
    io::{self, Read, StdoutLock, Write},
};

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command failed. Its text says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device, the log, the engine or a workload says so.
    #[error(transparent)]
    Engine(#[from] tantalum::Error),
    /// The lab says so.
    #[error(transparent)]
    Lab(#[from] tantalum_lab::Error),
    /// JSON could not be written.
    #[error(transparent)]
    Json(#[from] tantalum_report::Error),
    /// Standard output could not be written to.
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    /// The command line has something that cannot be understood.
    #[error("{0}")]
    Usage(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// A failed operation on a file.
    pub fn file(doing: &str, path: impl AsRef<std::path::Path>, error: impl Display) -> Self {
        Self::Other(format!("cannot {doing} {}: {error}", path.as_ref().display()))
    }

    /// Whether the reader of standard output has gone away, which is no failure.
    pub fn is_closed_pipe(&self) -> bool {
        match self {
            Self::Output(error) => error.kind() == io::ErrorKind::BrokenPipe,
            Self::Json(tantalum_report::Error::Stdout { source }) => source.kind() == io::ErrorKind::BrokenPipe,
            _ => false,
        }
    }

    /// The exit code of the program.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage(_)) { 2 } else { 1 }
    }

    /// The text without line breaks.
    pub fn one_line(&self) -> String {
        self.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

impl From<String> for Error {
    fn from(what: String) -> Self {
        Self::Other(what)
    }
}

/// Standard output, whose errors are this program's.
pub struct Out(StdoutLock<'static>);

impl Out {
    /// Holds standard output until dropped.
    pub fn new() -> Self {
        Self(io::stdout().lock())
    }

    /// Writes a line.
    pub fn line(&mut self, text: impl Display) -> Result<()> {
        writeln!(self.0, "{text}").map_err(Error::Output)
    }

    /// Writes bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes).and_then(|()| self.0.flush()).map_err(Error::Output)
    }

    /// Writes bytes as they are, as they are read.
    pub fn copy(&mut self, bytes: &mut dyn Read) -> Result<()> {
        let mut piece = vec![0; 64 << 10];
        loop {
            match bytes.read(&mut piece) {
                Ok(0) => return self.flush(),
                Ok(read) => self.0.write_all(&piece[..read]).map_err(Error::Output)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::Other(format!("the value cannot be read: {error}"))),
            }
        }
    }

    /// Has everything written.
    pub fn flush(&mut self) -> Result<()> {
        self.0.flush().map_err(Error::Output)
    }

    /// Writes as it is.
    pub fn print(&mut self, text: impl Display) -> Result<()> {
        write!(self.0, "{text}").map_err(Error::Output)
    }
}
