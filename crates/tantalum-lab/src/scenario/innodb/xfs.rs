//! XFS below the server's files, which are there in full and written past the page cache.
//!
//! A write changes its file's time of modification, if the clock has ticked since the last, and that change goes through the file
//! system's log (`xfs_vn_update_time`). So `fsync` forces the log as far as its file needs it: to one write with a flush before
//! and after, for all that wait meanwhile; and where nothing is to be logged it flushes the drive (`xfs_file_fsync` of Linux 3.6, whose
//! timestamps have been logged since 3.4).

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, Durability, Result, SharedFlushes};
use tantalum_rt::{Mutex, SharedRun, now, sleep};

use crate::micro::Fsync;

/// A file system on a drive.
pub struct Xfs {
    drive: Arc<dyn Device>,
    /// Where its log begins: behind the files.
    log_at: u64,
    /// Of each file, the tick after that of its last change; 0 before the first.
    ticks: Mutex<Vec<u64>>,
    forces: SharedRun<Result<()>>,
    forced: AtomicU64,
}

impl Xfs {
    /// With so many files, on a drive whose end it takes for its log.
    pub fn new(drive: Arc<dyn Device>, files: usize) -> Self {
        let log_at = drive.capacity_bytes() - Fsync::JOURNAL_BYTES;
        // The kernel's block layer lets callers that ask at the same time share a flush.
        let drive = Arc::new(SharedFlushes::new(drive));
        let (ticks, forces, forced) = (Mutex::new(vec![0; files]), SharedRun::default(), AtomicU64::new(0));
        Self { drive, log_at, ticks, forces, forced }
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
        let is_logged = std::mem::replace(&mut self.ticks.lock()[file], tick) != tick;
        if is_logged { self.forces.run(|| self.force()) } else { self.drive.flush() }
    }

    /// Writes the log to the next of its blocks.
    fn force(&self) -> Result<()> {
        let blocks = Fsync::JOURNAL_BYTES / Fsync::BLOCK_BYTES;
        let at = self.log_at + self.forced.fetch_add(1, Ordering::Relaxed) % blocks * Fsync::BLOCK_BYTES;
        self.drive.flush()?;
        self.drive.write(at, &[&[0; Fsync::BLOCK_BYTES as usize]], Durability::Cached)?;
        self.drive.flush()
    }
}
