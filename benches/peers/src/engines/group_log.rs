//! A log with group commit and nothing else: what an engine with one log file could reach if its rows cost nothing.
//!
//! - One file, written before, overwritten from end to end with `O_DIRECT | O_DSYNC`.
//! - Clients append their records to a buffer. A client that finds no write under way leads: it writes the buffer as one request.
//!   Clients that come meanwhile fill the next buffer and sleep; the leader wakes the next leader first, and then all clients whose
//!   records are durable.
//! - Each generation sleeps on a word of its own, so no client is woken for nothing.

use std::{
    fs::File,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
};

use rustix::thread::futex;
use tantalum_device::AlignedBuffer;

use super::raw::{BLOCK_BYTES, written_file};
use crate::{
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "group-log";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str =
    "records of the rows in one written file with O_DIRECT|O_DSYNC, one write under way, no index, nothing read back";

/// Of the file.
const FILE_BYTES: u64 = 64 << 20;

/// Of each of the two buffers: more than all clients together append at a time.
const BUFFER_BYTES: usize = 4 << 20;

/// Sleepers to wake: the system takes the number as a signed one.
const EVERYBODY: u32 = i32::MAX as u32;

/// Before each row: lengths of key and value.
const HEAD_BYTES: usize = 8;

/// The log.
pub struct GroupLog {
    file: File,
    path: PathBuf,
    state: Mutex<State>,
    /// The last generation that is durable; the first is 1.
    durable: AtomicU32,
    /// The generation that needs a leader to write it; 0: none.
    leaderless: AtomicU32,
    /// Raised whenever clients of the odd or of the even generations should look again.
    wake_ups: [AtomicU32; 2],
    has_failed: AtomicBool,
}

struct State {
    filling: AlignedBuffer,
    filled: usize,
    spare: Option<AlignedBuffer>,
    /// Of what is in `filling`.
    generation: u32,
    is_writing: bool,
    offset: u64,
}

impl GroupLog {
    /// Makes the file, if it is not there.
    ///
    /// # Errors
    /// Of the system.
    pub fn open(setup: &Setup) -> Result<Self> {
        let path = setup.directory.join("log");
        let buffer = || AlignedBuffer::zeroed(BUFFER_BYTES);
        let state =
            State { filling: buffer(), filled: 0, spare: Some(buffer()), generation: 1, is_writing: false, offset: 0 };
        Ok(Self {
            file: written_file(&path, FILE_BYTES)?,
            path,
            state: Mutex::new(state),
            durable: AtomicU32::new(0),
            leaderless: AtomicU32::new(0),
            wake_ups: [AtomicU32::new(0), AtomicU32::new(0)],
            has_failed: AtomicBool::new(false),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a record, and returns when it is durable.
    fn commit(&self, rows: &[Row<'_>]) -> Result<()> {
        let mut state = self.state();
        state.append(rows)?;
        let generation = state.generation;
        let leads = !state.is_writing;
        state.is_writing = true;
        drop(state);
        if leads || self.wait(generation)? { self.lead(generation) } else { Ok(()) }
    }

    fn word(&self, generation: u32) -> &AtomicU32 {
        &self.wake_ups[generation as usize % 2]
    }

    /// Sleeps until the generation is durable, or needs a leader: true.
    fn wait(&self, generation: u32) -> Result<bool> {
        loop {
            let seen = self.word(generation).load(SeqCst);
            if self.has_failed.load(SeqCst) {
                return Err(Error::Other("a write to the log has failed; another client tells why".to_owned()));
            }
            if self.durable.load(SeqCst) >= generation {
                return Ok(false);
            }
            if self.leaderless.compare_exchange(generation, 0, SeqCst, SeqCst).is_ok() {
                return Ok(true);
            }
            // Woken, interrupted, or told that the word has changed: each is a reason to look again.
            let _ = futex::wait(self.word(generation), futex::Flags::PRIVATE, seen, None);
        }
    }

    /// Writes what the generation has appended, and wakes the clients that wait for that, and the next leader.
    fn lead(&self, generation: u32) -> Result<()> {
        let mut state = self.state();
        // Only one leads at a time, and each brings its buffer back.
        let spare = state.spare.take().expect("the leader before has brought its buffer back");
        let buffer = std::mem::replace(&mut state.filling, spare);
        let length = std::mem::take(&mut state.filled).next_multiple_of(BLOCK_BYTES);
        state.generation += 1;
        if state.offset + length as u64 > FILE_BYTES {
            state.offset = 0;
        }
        let offset = state.offset;
        state.offset += length as u64;
        drop(state);
        let written = self.file.write_all_at(&buffer[..length], offset);
        let mut state = self.state();
        state.spare = Some(buffer);
        let has_next = state.filled > 0;
        state.is_writing = has_next;
        drop(state);
        match &written {
            // Where no next leader was wanted, one may have come and gone by itself since: that must not be undone.
            Ok(()) => drop(self.durable.fetch_max(generation, SeqCst)),
            Err(_) => self.has_failed.store(true, SeqCst),
        }
        if has_next {
            self.leaderless.store(generation + 1, SeqCst);
            self.wake(generation + 1, if written.is_ok() { 1 } else { EVERYBODY });
        }
        self.wake(generation, EVERYBODY);
        written.map_err(Error::file("write", &self.path))
    }

    fn wake(&self, generation: u32, most: u32) {
        let word = self.word(generation);
        word.fetch_add(1, SeqCst);
        // It fails only for a word that is not there.
        let _ = futex::wake(word, futex::Flags::PRIVATE, most);
    }
}

impl State {
    fn append(&mut self, rows: &[Row<'_>]) -> Result<()> {
        let length: usize = rows.iter().map(|(key, value)| HEAD_BYTES + key.len() + value.len()).sum();
        if self.filled + length > BUFFER_BYTES {
            return Err(Error::Other(format!(
                "transactions that wait together exceed the log's buffer of {BUFFER_BYTES} bytes"
            )));
        }
        for (key, value) in rows {
            for part in [&(key.len() as u32).to_le_bytes(), &(value.len() as u32).to_le_bytes(), *key, *value] {
                self.filling[self.filled..self.filled + part.len()].copy_from_slice(part);
                self.filled += part.len();
            }
        }
        Ok(())
    }
}

impl Engine for GroupLog {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Client(self)))
    }

    fn load(&self, _rows: Rows<'_>) -> Result<()> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct Client<'a>(&'a GroupLog);

fn only_writes<T>() -> Result<T> {
    Err(Error::Other("the bare log only takes writes".to_owned()))
}

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        self.0.commit(rows)
    }

    fn get(&mut self, _key: &[u8], _value: &mut Vec<u8>) -> Result<bool> {
        only_writes()
    }

    fn scan(&mut self, _from: &[u8], _rows: usize, _visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        only_writes()
    }

    fn modify(&mut self, _keys: &[&[u8]], _change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        only_writes()
    }
}
