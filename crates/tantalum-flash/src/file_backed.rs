//! A device whose medium lies in a file: the file, with a head that says which device it holds and then the areas of the medium;
//! and the model over it, which is shut down in good order when it is dropped, and whose time begins when it is ready.
//!
//! Promises: only one program at a time uses a file; one that is no device's, another device's, damaged or cut short is
//! refused and not touched. What was written before the program dies is there at the next opening: the operating
//! system keeps it, so nothing is synced. A file that fails is remembered, and reads as zeros.
//!
//! The head, 4096 bytes, integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 7 | `TANTALUM` |
//! | 8 to 11 | version of the format |
//! | 12 to 15 | CRC-32C of the head, with zeros here |
//! | 16 to 19 | 1 when the device is complete; 0 while it is made |
//! | 20 to 23 | bytes of its identity |
//! | 24 to 31 | bytes of the file |
//! | 32 on | its identity: what it is, and how its medium is divided; UTF-8 |

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tantalum_rt::Random;

use crate::{Counters, Error, ErrorKind, MediaError, Model, Nanos, Outcome, Result, Shape, Ticket};

const MAGIC: &[u8; 8] = b"TANTALUM";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 4096;
const IDENTITY_AT: usize = 32;

/// The file behind a device.
#[derive(Debug)]
pub(crate) struct MediumFile {
    file: File,
    path: PathBuf,
    identity: String,
    /// The size that the head tells; `None` for a device that is being made.
    complete_bytes: Option<u64>,
    /// Where the next area begins.
    end: AtomicU64,
    failure: OnceLock<MediaError>,
}

/// What a head says.
struct Head {
    is_complete: bool,
    file_bytes: u64,
    identity: String,
}

impl Head {
    fn encode(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[16..20].copy_from_slice(&u32::from(self.is_complete).to_le_bytes());
        bytes[20..24].copy_from_slice(&(self.identity.len() as u32).to_le_bytes());
        bytes[24..32].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes[IDENTITY_AT..][..self.identity.len()].copy_from_slice(self.identity.as_bytes());
        let checksum = crc32c::crc32c(&bytes);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a head, or says why the bytes are none.
    fn decode(bytes: &[u8]) -> std::result::Result<Self, &'static str> {
        if !bytes.starts_with(MAGIC) {
            return Err("it does not begin like the file of an emulated device; choose another name");
        }
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
            return Err("it ends within its head; restore it from a copy, or remove it");
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(8) != VERSION {
            return Err("it was written by another version of this program; use that one");
        }
        let mut plain = *head;
        plain[12..16].fill(0);
        let identity = head.get(IDENTITY_AT..).and_then(|rest| rest.get(..word(20) as usize));
        match identity.map(|bytes| String::from_utf8(bytes.to_vec())) {
            Some(Ok(identity)) if crc32c::crc32c(&plain) == word(12) => {
                let file_bytes = u64::from(word(24)) | u64::from(word(28)) << 32;
                Ok(Self { is_complete: word(16) == 1, file_bytes, identity })
            }
            _ => Err("its head is damaged (wrong checksum); restore it from a copy, or remove it"),
        }
    }
}

/// The file with a device's contents, or of a profile, cannot be used.
pub(crate) fn file_error(path: &Path, operation: &str, source: std::io::Error) -> Error {
    let path = path.display();
    let what = format!("cannot {operation} {path}, which holds an emulated device's contents: {source}");
    Error::new(ErrorKind::Io, what).with_source(source)
}

/// The file holds a device's contents, but not all of them.
fn wrong_size(path: &Path, found: u64, expected: u64) -> Error {
    let path = path.display();
    let what = format!(
        "{path} has {found} bytes, but the device in it takes {expected}; restore it from a copy, or remove it"
    );
    Error::new(ErrorKind::Corrupt, what)
}

impl MediumFile {
    /// Opens and locks the file of the device with this identity. One that is not there, is empty, or was not completed
    /// makes a new device: allocate its areas, fill them, and [`MediumFile::complete`] it.
    pub fn open(path: &Path, identity: &str) -> Result<Arc<Self>> {
        assert!(identity.len() <= HEAD_BYTES - IDENTITY_AT, "the identity fits the head");
        let failed = |operation| move |source| file_error(path, operation, source);
        let refused = |problem: String| {
            let what = format!("cannot use {} for an emulated device: {problem}", path.display());
            Error::new(ErrorKind::Mismatch, what)
        };
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(refused("it is not a regular file; choose another name".to_owned()));
        }
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed("open"))?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::new(
                ErrorKind::InUse,
                format!(
                    "{} is in use: it holds an emulated device's contents, and one program at a time can open it; stop the other \
                     one, or use another file",
                    path.display()
                ),
            ),
            TryLockError::Error(source) => failed("lock")(source),
        })?;
        let found = file.metadata().map_err(failed("inspect"))?.len();
        let mut bytes = vec![0; found.min(HEAD_BYTES as u64) as usize];
        file.read_exact_at(&mut bytes, 0).map_err(failed("read"))?;
        let head = match found {
            0 => None,
            _ => Some(Head::decode(&bytes).map_err(|problem| refused(problem.to_owned()))?),
        };
        let complete = head.filter(|head| head.is_complete);
        if let Some(head) = &complete {
            if head.identity != identity {
                let problem = format!(
                    "it holds another device: {}, not {identity}; use the profile and capacity that it was made with, or another file",
                    head.identity
                );
                return Err(refused(problem));
            }
            if head.file_bytes != found {
                return Err(wrong_size(path, found, head.file_bytes));
            }
        } else {
            file.set_len(0).map_err(failed("empty"))?;
            let head = Head { is_complete: false, file_bytes: 0, identity: identity.to_owned() };
            file.write_all_at(&head.encode(), 0).map_err(failed("write"))?;
        }
        Ok(Arc::new(Self {
            file,
            path: path.to_owned(),
            identity: identity.to_owned(),
            complete_bytes: complete.map(|head| head.file_bytes),
            end: AtomicU64::new(HEAD_BYTES as u64),
            failure: OnceLock::new(),
        }))
    }

    /// Whether the device is being made.
    pub fn is_new(&self) -> bool {
        self.complete_bytes.is_none()
    }

    /// Reserves the next area. They must be asked for in the same order at each opening.
    pub fn allocate(&self, len: u64) -> u64 {
        let whole = len.next_multiple_of(HEAD_BYTES as u64);
        let base = self.end.fetch_add(whole, Ordering::Relaxed);
        if self.is_new() {
            self.note(self.file.set_len(base + whole));
        }
        base
    }

    /// All areas are allocated and filled: the device exists from now on, or is found as it was.
    ///
    /// # Errors
    /// `Corrupt` if the areas do not fill the file that was found; `Io`.
    pub fn complete(&self) -> Result<()> {
        let file_bytes = self.end.load(Ordering::Relaxed);
        if let Some(found) = self.complete_bytes {
            let fits = found == file_bytes;
            let wrong = || wrong_size(&self.path, found, file_bytes);
            return if fits { Ok(()) } else { Err(wrong()) };
        }
        let failed = |source| file_error(&self.path, "write", source);
        if let Some(MediaError::File { message }) = self.failure() {
            return Err(failed(std::io::Error::other(message)));
        }
        let head = Head { is_complete: true, file_bytes, identity: self.identity.clone() };
        self.file.write_all_at(&head.encode(), 0).map_err(failed)
    }

    /// Fills `buffer`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        let result = self.file.read_exact_at(buffer, offset);
        if result.is_err() {
            buffer.fill(0);
        }
        self.note(result);
    }

    /// Stores `bytes`.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.note(self.file.write_all_at(bytes, offset));
    }

    /// The first failure.
    pub fn failure(&self) -> Option<MediaError> {
        self.failure.get().cloned()
    }

    fn note(&self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.failure.get_or_init(|| MediaError::File { message: error.to_string() });
        }
    }
}

/// A model over the file behind it.
#[derive(Debug)]
pub(crate) struct InFile {
    model: Box<dyn Model>,
    /// When the device was ready after it was powered on, in the model's time: the beginning of the host's.
    origin: Nanos,
    /// The latest time that the model was given.
    now: Nanos,
    has_power: bool,
}

impl InFile {
    /// `origin` is when the model is ready.
    pub fn new(model: Box<dyn Model>, origin: Nanos) -> Self {
        Self { model, origin, now: origin, has_power: true }
    }

    /// The model's time. Times near the end of all time stand for it.
    fn enter(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now.saturating_add(self.origin));
        now.saturating_add(self.origin)
    }

    fn leave(&self, done: Nanos) -> Nanos {
        if done == Nanos::MAX { done } else { done - self.origin }
    }

    fn operate(&mut self, now: Nanos, act: impl FnOnce(&mut dyn Model, Nanos) -> Outcome) -> Outcome {
        let now = self.enter(now);
        let outcome = act(&mut *self.model, now);
        Outcome { done: self.leave(outcome.done), ..outcome }
    }
}

impl Model for InFile {
    fn describe(&self) -> Shape {
        self.model.describe()
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.operate(now, |model, now| model.read(now, offset, buffer))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.operate(now, |model, now| model.write(now, offset, data, durable))
    }

    fn write_placed(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool, handle: u32) -> Outcome {
        self.operate(now, |model, now| model.write_placed(now, offset, data, durable, handle))
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.operate(now, |model, now| model.flush(now))
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        self.operate(now, |model, now| model.discard(now, offset, len))
    }

    fn reset_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        self.operate(now, |model, now| model.reset_zone(now, offset))
    }

    fn finish_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        self.operate(now, |model, now| model.finish_zone(now, offset))
    }

    fn active_zones(&self) -> Vec<u64> {
        self.model.active_zones()
    }

    fn ask_again(&mut self, now: Nanos, ticket: Ticket) -> Option<Nanos> {
        let now = self.enter(now);
        let later = self.model.ask_again(now, ticket)?;
        Some(self.leave(later))
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.model.peek(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        let now = self.enter(now);
        self.model.power_cut(now, random);
        self.has_power = false;
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        let now = self.enter(now);
        let ready = self.model.power_on(now);
        self.has_power = true;
        self.now = self.now.max(ready);
        self.leave(ready)
    }

    fn catch_up(&mut self, now: Nanos) {
        let now = self.enter(now);
        self.model.catch_up(now);
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        let now = self.enter(now);
        let done = self.model.shut_down(now);
        self.has_power = false;
        self.leave(done)
    }

    fn counters(&self) -> Counters {
        self.model.counters()
    }
}

impl Drop for InFile {
    fn drop(&mut self) {
        if self.has_power {
            self.model.shut_down(self.now);
        }
    }
}
