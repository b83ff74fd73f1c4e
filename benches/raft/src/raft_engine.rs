//! `raft-engine`, as TiKV uses it: log files that are recycled, a write batch for each append, purged by a background thread.
//!
//! - Files are prepared for recycling when it is opened (`prefill-for-recycle`), so that appends overwrite written blocks and no write
//!   has to allocate. All files together take what tantalum-raft's do: the purge threshold is two thirds of that.
//! - No compression, since entries are random bytes and tantalum-raft has none either.
//! - The purge runs every second, instead of TiKV's ten: runs are short.
//! - It has no cache of entries; in TiKV, that is elsewhere.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use raft_engine::{Config, Engine, LogBatch, MessageExt, ReadableSize};
use raft_proto::eraftpb::Entry;

use crate::error::{Error, Result};
use crate::store::{Payload, Ready, Session, Setup, Store};

/// In options and results.
pub const NAME: &str = "raft-engine";

const PURGE_INTERVAL: Duration = Duration::from_secs(1);

/// The entries of raft-rs.
struct Entries;

impl MessageExt for Entries {
    type Entry = Entry;

    fn index(entry: &Entry) -> u64 {
        entry.index
    }
}

/// An open log.
pub struct RaftEngine {
    engine: Arc<Engine>,
    payload: Payload,
    /// Dropped, it ends the thread.
    end: Option<Sender<()>>,
    purger: Option<JoinHandle<()>>,
}

impl RaftEngine {
    /// Opens the log, or makes it.
    ///
    /// # Errors
    /// Of the log.
    pub fn open(setup: &Setup) -> Result<RaftEngine> {
        let threshold = setup.log_bytes * 2 / 3;
        let defaults = Config::default();
        let config = Config {
            dir: setup.directory.to_string_lossy().into_owned(),
            batch_compression_threshold: ReadableSize(0),
            purge_threshold: ReadableSize(threshold),
            // It purges whole files, so a small log needs smaller ones.
            target_file_size: ReadableSize(defaults.target_file_size.0.min(threshold / 4)),
            prefill_for_recycle: true,
            ..defaults
        };
        let engine = Arc::new(Engine::open(config).map_err(Error::log(NAME, "open"))?);
        let (end, ended) = mpsc::channel::<()>();
        let purged = Arc::clone(&engine);
        let purger = thread::spawn(move || {
            while ended.recv_timeout(PURGE_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = purged.purge_expired_files() {
                    eprintln!("{NAME}, purge: {error}");
                }
            }
        });
        let payload = Payload::new(setup.entry_bytes);
        Ok(RaftEngine { engine, payload, end: Some(end), purger: Some(purger) })
    }
}

impl Drop for RaftEngine {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(purger) = self.purger.take()
            && purger.join().is_err()
        {
            eprintln!("{NAME}: the purge panicked");
        }
    }
}

impl Store for RaftEngine {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(RaftEngineSession { store: self, batch: LogBatch::default(), entries: Vec::new() })
    }

    fn bounds(&self, group: u64) -> Option<(u64, u64)> {
        self.engine.first_index(group).zip(self.engine.last_index(group))
    }

    fn close(&self) -> Result<()> {
        self.engine.sync().map_err(Error::log(NAME, "sync"))
    }
}

struct RaftEngineSession<'s> {
    store: &'s RaftEngine,
    /// Both are used again, so that their memory is.
    batch: LogBatch,
    entries: Vec<Entry>,
}

impl Session for RaftEngineSession<'_> {
    fn append(&mut self, readies: &[Ready]) -> Result<()> {
        let failed = Error::log(NAME, "append");
        for &Ready { group, first, entries } in readies {
            self.entries.clear();
            self.entries.extend((first..first + entries).map(|index| Entry {
                index,
                term: 1,
                data: Bytes::copy_from_slice(self.store.payload.of(group, index)),
                ..Entry::default()
            }));
            self.batch.add_entries::<Entries>(group, &self.entries).map_err(&failed)?;
        }
        self.store.engine.write(&mut self.batch, true).map(drop).map_err(failed)
    }

    fn compact(&mut self, group: u64, index: u64) -> Result<()> {
        // It reports a failure in its own log; the next append then fails.
        self.store.engine.compact_to(group, index);
        Ok(())
    }

    fn read(&mut self, group: u64, first: u64, entries: u64) -> Result<()> {
        self.entries.clear();
        let fetched =
            self.store.engine.fetch_entries_to::<Entries>(group, first, first + entries, None, &mut self.entries);
        fetched.map_err(Error::log(NAME, "read"))?;
        for (at, index) in (first..first + entries).enumerate() {
            let found = self.entries.get(at).map(|entry| (entry.index, &entry.data[..]));
            self.store.payload.check(NAME, group, index, found)?;
        }
        Ok(())
    }
}
