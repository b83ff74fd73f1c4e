//! XFS below the server's files, which are there in full and written past the page cache.
//!
//! A write changes its file's time of modification, if the clock has ticked since the last, and that change goes through the file
//! system's log (`xfs_vn_update_time`). So `fsync` forces the log as far as its file needs it: to one write with a flush before
//! and after, for all that wait meanwhile; and where nothing is to be logged it flushes the drive (`xfs_file_fsync` of Linux 3.6, whose
//! timestamps have been logged since 3.4).

use std::{sync::Arc, time::Duration};

use tantalum_device::{Device, Durability, SharedFlushes};
use tantalum_rt::{Condvar, Mutex, now, sleep};

use crate::{error::Result, micro::Fsync};

/// A file system on a drive.
pub struct Xfs {
    drive: Arc<dyn Device>,
    /// Where its log begins: behind the files.
    log_at: u64,
    log: Mutex<Log>,
    forced: Condvar,
}

#[derive(Debug)]
struct Log {
    /// Changes that were logged, and how many of them are on the drive.
    changes: u64,
    forced: u64,
    is_forcing: bool,
    writes: u64,
    /// The tick after that of each file's last change; 0 before the first.
    ticks: Vec<u64>,
}

impl Xfs {
    /// With so many files, on a drive whose end it takes for its log.
    pub fn new(drive: Arc<dyn Device>, files: usize) -> Self {
        let log_at = drive.capacity_bytes() - Fsync::JOURNAL_BYTES;
        let log = Log { changes: 0, forced: 0, is_forcing: false, writes: 0, ticks: vec![0; files] };
        // The kernel's block layer lets callers that ask at the same time share a flush.
        Self { drive: Arc::new(SharedFlushes::new(drive)), log_at, log: Mutex::new(log), forced: Condvar::default() }
    }

    /// Bytes for files.
    pub fn file_bytes(&self) -> u64 {
        self.log_at
    }

    /// The drive, for requests of files.
    pub fn drive(&self) -> &dyn Device {
        &*self.drive
    }

    /// Makes what a file was written durable.
    pub fn fsync(&self, file: usize) -> Result<()> {
        sleep(Duration::from_nanos(Fsync::CALL_NS));
        let tick = now().as_nanos() / Fsync::TICK_NS + 1;
        let mut log = self.log.lock();
        if std::mem::replace(&mut log.ticks[file], tick) == tick {
            drop(log);
            return Ok(self.drive.flush()?);
        }
        log.changes += 1;
        let mine = log.changes;
        loop {
            if log.forced >= mine {
                return Ok(());
            }
            if !log.is_forcing {
                break;
            }
            self.forced.wait(&mut log);
        }
        log.is_forcing = true;
        let (changes, number) = (log.changes, log.writes);
        log.writes += 1;
        drop(log);
        let result = self.force(number);
        let mut log = self.log.lock();
        (log.is_forcing, log.forced) = (false, changes);
        self.forced.notify_all();
        result
    }

    fn force(&self, number: u64) -> Result<()> {
        let blocks = Fsync::JOURNAL_BYTES / Fsync::BLOCK_BYTES;
        let at = self.log_at + number % blocks * Fsync::BLOCK_BYTES;
        self.drive.flush()?;
        self.drive.write(at, &[&[0; Fsync::BLOCK_BYTES as usize]], Durability::Cached)?;
        Ok(self.drive.flush()?)
    }
}
