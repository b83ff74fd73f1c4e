//! What processes say to each other that use the SQLite databases of one Tantalum database: one has it open, the others are its clients,
//! by a socket in its directory. Each connection of SQLite in a client has a connection of its own to the socket.
//!
//! A message is its length in four bytes, little-endian, and a body. First come a greeting and what is to be opened; then requests, each
//! of steps in their order and one question at the end. The answer is that of the question, or the failure of the first step that failed,
//! behind which nothing was done. When SQLite has closed its connection, that to the socket may be kept, and what is to be opened next
//! follows.

use std::{
    fs::File,
    io::{self, BufReader, ErrorKind, Read, Write},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{failure::Failure, pointer::Id};

/// The version of all that is in this file. Processes with different ones refuse each other.
pub(crate) const VERSION: u32 = 2;

/// The name of the socket in the directory of the Tantalum database.
pub(crate) const SOCKET: &str = "sqlite.sock";

/// A body has so many bytes at most.
const BODY_BYTES_MAX: usize = 2 << 20;
/// SQLite reads a page at a time, and pages have at most 64 KiB.
pub(crate) const READ_BYTES_MAX: u32 = 1 << 20;
/// So many pages are sent with the state of a database, beside its first.
pub(crate) const AGAIN_MAX: usize = 16;
/// Steps that may wait are sent when they have so many bytes.
pub(crate) const STEPS_BYTES: usize = 256 << 10;

/// Where the length of a body is, before it.
const LENGTH_BYTES: usize = 4;

/// The first message of a client.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub version: u32,
}

/// The second.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Open<'a> {
    pub id: Id,
    /// Of the pointer file.
    pub inode: u64,
    pub how: HowToOpen,
    /// The path of the pointer file.
    #[serde(with = "serde_bytes")]
    pub path: &'a [u8],
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum HowToOpen {
    Create,
    Existing {
        /// The pointer file takes the place of the one that the catalog knows.
        adopts: bool,
    },
}

/// A part of a request: any number of steps, and a question.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Item<'a> {
    #[serde(borrow)]
    Step(Step<'a>),
    Question(Question),
}

/// A call of SQLite on an open database that has no result but success.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Step<'a> {
    /// Waits until the turn to write has come of this connection, which was refused it, for so many microseconds at most.
    AwaitTurn(u64),
    /// To one of `SQLITE_LOCK_*`.
    Lock(i32),
    Unlock(i32),
    Write {
        offset: u64,
        #[serde(with = "serde_bytes")]
        bytes: &'a [u8],
    },
    SetSize(u64),
    /// `SQLITE_FCNTL_SYNC` of a transaction over one database.
    EndOfWrites,
    /// `SQLITE_FCNTL_SYNC` of one over several, by the number of its super-journal.
    HandOver(u128),
    Sync,
    Commit,
    BeginBatch,
    RollBackBatch,
    SetExclusive(bool),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Question {
    /// Nothing but whether all steps were done.
    Done,
    Size,
    Read {
        offset: u64,
        len: u32,
    },
    /// What SQLite asks first of a database that it has locked. If the version is another than that of its page cache, it will read the
    /// first page, and one that may write will perhaps read again what its last transaction has read: at most [`AGAIN_MAX`] pages, by their
    /// offsets.
    State {
        cached: Option<Version>,
        again: Vec<u64>,
    },
    /// Whether a connection has the write lock.
    IsReserved,
    /// Commits what was handed over to a super-journal.
    CommitTogether(u128),
    /// SQLite closes the database.
    Close,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Reply<'a> {
    #[serde(borrow)]
    pub answer: Answer<'a>,
    pub condition: Condition,
}

/// What is true of a connection behind a request.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Condition {
    /// SQLite may have in its page cache what is not durable yet.
    pub may_be_lost: bool,
    /// It has the write lock.
    pub has_write_lock: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer<'a> {
    Done,
    /// To the greeting: how often the Tantalum database has been opened.
    Opening(u64),
    /// To [`Open`].
    Opened {
        /// The change counter that the database had when the Tantalum database was opened.
        change_counter: u32,
        /// The first [`HEADER_BYTES`] of the database, or fewer if it is shorter.
        #[serde(with = "serde_bytes")]
        header: &'a [u8],
    },
    Size(u64),
    /// Fewer than asked for where the database ends.
    Bytes(#[serde(with = "serde_bytes")] &'a [u8]),
    State {
        state: State,
        #[serde(borrow)]
        pages: Vec<Page<'a>>,
    },
    IsReserved(bool),
    Failed(FailureMessage),
}

/// A database as it is when it has just been locked.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub size: u64,
    /// By which SQLite knows whether its page cache is out of date; `None` in a database that is empty.
    pub version: Option<Version>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Page<'a> {
    pub offset: u64,
    #[serde(with = "serde_bytes")]
    pub bytes: &'a [u8],
}

/// The bytes of a database at [`VERSION_OFFSET`]: the change counter, and others that change with it.
pub(crate) type Version = [u8; 16];
pub(crate) const VERSION_OFFSET: usize = 24;

/// What SQLite reads of a database first, before it has locked it.
pub(crate) const HEADER_BYTES: usize = 100;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FailureMessage {
    code: i32,
    reason: String,
    os_error: i32,
}

impl From<Failure> for FailureMessage {
    fn from(Failure { code, reason, os_error }: Failure) -> Self {
        Self { code, reason, os_error }
    }
}

impl From<FailureMessage> for Failure {
    fn from(FailureMessage { code, reason, os_error }: FailureMessage) -> Self {
        Self { code, reason, os_error }
    }
}

/// A message that is being put together.
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub fn new() -> Self {
        Self(vec![0; LENGTH_BYTES])
    }

    /// With this alone.
    pub fn of(part: &impl Serialize) -> Self {
        let mut message = Self::new();
        message.add(part);
        message
    }

    pub fn add(&mut self, part: &impl Serialize) {
        self.0 = postcard::to_extend(part, std::mem::take(&mut self.0)).expect("memory takes every message");
    }

    pub fn clear(&mut self) {
        self.0.truncate(LENGTH_BYTES);
    }

    pub fn body_bytes(&self) -> usize {
        self.0.len() - LENGTH_BYTES
    }
}

/// One end of a connection between two processes.
pub(crate) struct Channel {
    stream: BufReader<UnixStream>,
    body: Vec<u8>,
    /// Answers that were not waited for.
    unread: usize,
}

impl Channel {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::with_capacity(16 << 10, stream), body: Vec::new(), unread: 0 }
    }

    pub fn stream(&self) -> &UnixStream {
        self.stream.get_ref()
    }

    pub fn send(&mut self, message: &mut Message) -> io::Result<()> {
        let len = u32::try_from(message.body_bytes()).map_err(io::Error::other)?;
        message.0[..LENGTH_BYTES].copy_from_slice(&len.to_le_bytes());
        self.stream.get_mut().write_all(&message.0)
    }

    /// Sends a request whose answer does not matter.
    pub fn post(&mut self, request: &mut Message) -> io::Result<()> {
        self.send(request)?;
        self.unread += 1;
        Ok(())
    }

    /// The answer to the request that was sent last.
    pub fn answer(&mut self) -> io::Result<&[u8]> {
        for _ in 0..std::mem::take(&mut self.unread) {
            self.receive()?.ok_or(ErrorKind::UnexpectedEof)?;
        }
        Ok(self.receive()?.ok_or(ErrorKind::UnexpectedEof)?)
    }

    /// The body of the next message; `None` at the end.
    pub fn receive(&mut self) -> io::Result<Option<&[u8]>> {
        let mut len = [0; LENGTH_BYTES];
        match self.stream.read_exact(&mut len) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        let len = u32::from_le_bytes(len) as usize;
        if len > BODY_BYTES_MAX {
            return Err(invalid(format!("a message of {len} bytes; at most {BODY_BYTES_MAX} are allowed")));
        }
        self.body.resize(len, 0);
        self.stream.read_exact(&mut self.body)?;
        Ok(Some(&self.body))
    }
}

/// The first part of a body, and what follows it.
pub(crate) fn take_part<'a, T: Deserialize<'a>>(body: &'a [u8]) -> io::Result<(T, &'a [u8])> {
    postcard::take_from_bytes(body).map_err(|error| invalid(format!("a message that is damaged: {error}")))
}

pub(crate) fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what.into())
}

/// A path of the socket in a directory that fits in a socket's address, for as long as this lives.
pub(crate) struct Address {
    path: PathBuf,
    _directory: Option<File>,
}

impl Address {
    /// A path in a socket's address has so many bytes, and a zero.
    const PATH_BYTES_MAX: usize = 107;

    pub fn of(directory: &Path) -> io::Result<Self> {
        let path = directory.join(SOCKET);
        if path.as_os_str().len() <= Self::PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        // By way of the open directory.
        let directory = File::open(directory)?;
        let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(SOCKET);
        Ok(Self { path: short, _directory: Some(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
