//! The logs that are compared, behind one trait: logs of many raft groups, numbered from 1, whose entries have indexes from 1 on.

use std::path::PathBuf;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::{raft_engine, tantalum};

/// A log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `tantalum-raft`.
    TantalumRaft,
    /// `raft-engine`.
    RaftEngine,
}

impl Kind {
    /// In options, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::TantalumRaft => tantalum::NAME,
            Kind::RaftEngine => raft_engine::NAME,
        }
    }

    /// Opens the log, or makes it where there is none.
    ///
    /// # Errors
    /// Of the log or the system.
    pub fn open(self, setup: &Setup) -> Result<Box<dyn Store>> {
        Ok(match self {
            Kind::TantalumRaft => Box::new(tantalum::Tantalum::open(setup)?),
            Kind::RaftEngine => Box::new(raft_engine::RaftEngine::open(setup)?),
        })
    }
}

/// How logs are opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// Of the log alone.
    pub directory: PathBuf,
    /// What its files may take.
    pub log_bytes: u64,
    /// Files of tantalum-raft's log.
    pub partitions: u64,
    /// Of an entry.
    pub entry_bytes: usize,
}

/// What a group is given to append at once.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The group.
    pub group: u64,
    /// The index of the first entry.
    pub first: u64,
    /// How many entries there are.
    pub entries: u64,
}

/// What is called when a ready is durable, or cannot become it.
pub type Call = Box<dyn FnOnce(Result<()>) + Send>;

/// An open log. Tasks share it.
pub trait Store: Send + Sync {
    /// What a worker uses.
    fn session(&self) -> Box<dyn Session + '_>;

    /// First and last index of a group's entries; `None` if it has none.
    fn bounds(&self, group: u64) -> Option<(u64, u64)>;

    /// Makes everything durable, and closes the log.
    ///
    /// # Errors
    /// Of the log.
    fn close(&self) -> Result<()>;
}

/// A worker's use of a log.
pub trait Session {
    /// Appends these readies, each of another group, and returns when all of them are durable.
    ///
    /// # Errors
    /// Of the log.
    fn append(&mut self, readies: &[Ready]) -> Result<()>;

    /// Appends a ready, and has `call` called when it is durable.
    ///
    /// # Errors
    /// Of the log, or that it has no such way.
    fn append_async(&mut self, ready: Ready, call: Call) -> Result<()> {
        drop(call);
        Err(Error::Other(format!("group {} of a log without asynchronous appends", ready.group)))
    }

    /// Lets entries before `index` go. It need not be durable.
    ///
    /// # Errors
    /// Of the log.
    fn compact(&mut self, group: u64, index: u64) -> Result<()>;

    /// Reads so many entries from `first` on, and checks them.
    ///
    /// # Errors
    /// Of the log, or that they are not the ones that were appended.
    fn read(&mut self, group: u64, first: u64, entries: u64) -> Result<()>;
}

/// What entries say: bytes that do not compress, of which each entry has another part.
pub struct Payload {
    random: Vec<u8>,
    entry_bytes: usize,
}

impl Payload {
    /// For entries of so many bytes.
    pub fn new(entry_bytes: usize) -> Payload {
        const SPREAD_BYTES: usize = 1 << 16;
        let mut random = vec![0; SPREAD_BYTES + entry_bytes];
        fastrand::Rng::with_seed(7).fill(&mut random);
        Payload { random, entry_bytes }
    }

    /// Those of an entry.
    pub fn of(&self, group: u64, index: u64) -> &[u8] {
        let at = (group.wrapping_mul(31).wrapping_add(index).wrapping_mul(67) & 0xffff) as usize;
        &self.random[at..at + self.entry_bytes]
    }

    /// Refuses entries that are not those that were appended.
    ///
    /// # Errors
    /// With the log and the entry.
    pub fn check(&self, log: &'static str, group: u64, index: u64, found: Option<(u64, &[u8])>) -> Result<()> {
        match found {
            Some((at, bytes)) if at == index && bytes == self.of(group, index) => Ok(()),
            _ => Err(Error::Other(format!("{log} gave something else as entry {index} of group {group}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(directory: &std::path::Path) -> Setup {
        Setup { directory: directory.to_owned(), log_bytes: 64 << 20, partitions: 2, entry_bytes: 100 }
    }

    #[test]
    fn both_logs_keep_what_is_appended_and_let_go_of_what_is_compacted() {
        for kind in [Kind::TantalumRaft, Kind::RaftEngine] {
            let directory = tempfile::tempdir().expect("a directory");
            let setup = setup(directory.path());
            let store = kind.open(&setup).expect("open");
            assert_eq!(store.bounds(1), None);
            let mut session = store.session();
            for first in [1, 11, 21] {
                let ready = |group| Ready { group, first, entries: 10 };
                session.append(&[ready(1), ready(2)]).expect("append");
            }
            session.compact(2, 15).expect("compact");
            drop(session);
            store.close().expect("close");
            drop(store);
            let store = kind.open(&setup).expect("open again");
            assert_eq!((store.bounds(1), store.bounds(2)), (Some((1, 30)), Some((15, 30))), "{}", kind.name());
            let mut session = store.session();
            session.read(1, 5, 20).expect("read");
            session.read(2, 15, 16).expect("read");
            assert!(session.read(2, 14, 2).is_err(), "{}: entry 14 is gone", kind.name());
        }
    }

    #[test]
    fn entries_differ_and_are_checked() {
        let payload = Payload::new(64);
        assert_ne!(payload.of(1, 1), payload.of(1, 2));
        assert_ne!(payload.of(1, 1), payload.of(2, 1));
        assert!(payload.check("a log", 1, 1, Some((1, payload.of(1, 1)))).is_ok());
        assert!(payload.check("a log", 1, 1, Some((1, payload.of(1, 2)))).is_err());
        assert!(payload.check("a log", 1, 1, None).is_err());
    }
}
