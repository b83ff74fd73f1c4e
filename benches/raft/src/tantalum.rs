//! `tantalum-raft`: its defaults, on files of their full size that were written before, with `O_DIRECT`.
//!
//! The newest entries are cached (64 MiB by default), which shows in the peak of memory.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use tantalum_device::{Access, Device, FileDevice};
use tantalum_raft::{Entry, Lsn, RaftLog, RaftLogOptions};

use crate::error::{Error, Result};
use crate::store::{Call, Payload, Ready, Session, Setup, Store};

/// In options and results.
pub const NAME: &str = "tantalum-raft";

/// An open log.
pub struct Tantalum {
    log: RaftLog,
    payload: Arc<Payload>,
}

impl Tantalum {
    /// Opens the log, or makes it.
    ///
    /// # Errors
    /// Of the log or the system.
    pub fn open(setup: &Setup) -> Result<Tantalum> {
        let failed = Error::log(NAME, "open");
        let paths: Vec<_> = (0..setup.partitions).map(|n| setup.directory.join(format!("raft-log-{n}"))).collect();
        let options = RaftLogOptions::default();
        let devices = if paths.iter().all(|path| path.exists()) {
            paths.iter().map(open).collect::<Result<Vec<_>>>()?
        } else {
            for path in paths.iter().filter(|path| path.exists()) {
                fs::remove_file(path).map_err(Error::file("remove", path))?;
            }
            let bytes = setup.log_bytes / setup.partitions / 4096 * 4096;
            let devices = paths.iter().map(|path| create(path, bytes)).collect::<Result<Vec<_>>>()?;
            RaftLog::create(devices.clone(), &options).map_err(Error::log(NAME, "create"))?;
            devices
        };
        let log = RaftLog::open(devices, &options).map_err(failed)?;
        Ok(Tantalum { log, payload: Arc::new(Payload::new(setup.entry_bytes)) })
    }
}

fn create(path: &PathBuf, bytes: u64) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(FileDevice::create(path, bytes, None).map_err(Error::log(NAME, "create"))?))
}

fn open(path: &PathBuf) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(FileDevice::open(path, Access::ReadWrite).map_err(Error::log(NAME, "open"))?))
}

impl Store for Tantalum {
    fn session(&self) -> Box<dyn Session + '_> {
        Box::new(TantalumSession { log: self.log.clone(), groups: Vec::new(), payload: Arc::clone(&self.payload) })
    }

    fn bounds(&self, group: u64) -> Option<(u64, u64)> {
        let indexes = self.log.group(group).bounds().indexes;
        (!indexes.is_empty()).then(|| (indexes.start, indexes.end - 1))
    }

    fn close(&self) -> Result<()> {
        self.log.close().map_err(Error::log(NAME, "close"))
    }
}

struct TantalumSession {
    log: RaftLog,
    /// Handles, as a raft node keeps them.
    groups: Vec<tantalum_raft::Group>,
    payload: Arc<Payload>,
}

impl TantalumSession {
    fn group(&mut self, id: u64) -> &tantalum_raft::Group {
        let at = self.groups.iter().position(|group| group.id() == id).unwrap_or_else(|| {
            self.groups.push(self.log.group(id));
            self.groups.len() - 1
        });
        &self.groups[at]
    }

    fn append_one(&mut self, ready: &Ready) -> Result<Lsn> {
        let Ready { group, first, entries } = *ready;
        let entry = |index| Entry::new(index, 1, self.payload.of(group, index));
        let entries: Vec<_> = (first..first + entries).map(entry).collect();
        self.group(group).append(&entries).map_err(Error::log(NAME, "append"))
    }
}

impl Session for TantalumSession {
    fn append(&mut self, readies: &[Ready]) -> Result<()> {
        let mut end = Lsn::ZERO;
        for ready in readies {
            end = self.append_one(ready)?;
        }
        self.log.flush(end).map_err(Error::log(NAME, "flush"))
    }

    fn append_async(&mut self, ready: Ready, call: Call) -> Result<()> {
        let end = self.append_one(&ready)?;
        self.log.on_durable(end, |outcome| call(outcome.map_err(Error::log(NAME, "flush"))));
        Ok(())
    }

    fn compact(&mut self, group: u64, index: u64) -> Result<()> {
        self.group(group).purge(index - 1, 1, b"").map(drop).map_err(Error::log(NAME, "purge"))
    }

    fn read(&mut self, group: u64, first: u64, entries: u64) -> Result<()> {
        let found = self.group(group).entries(first..first + entries, usize::MAX);
        let found = found.map_err(Error::log(NAME, "read"))?;
        for (at, index) in (first..first + entries).enumerate() {
            let found = found.get(at).map(|entry| (entry.index, &entry.bytes[..]));
            self.payload.check(NAME, group, index, found)?;
        }
        Ok(())
    }
}
