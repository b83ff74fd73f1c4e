//! InnoDB's log: one task writes and flushes it for all that commit meanwhile (`log_write_up_to`).

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability, Result};
use tantalum_rt::{Mutex, SharedRun};

use super::xfs::Xfs;

/// Bytes that a change of a row adds: its redo and undo records (assumed; only how much a flush writes depends on it).
pub const CHANGE_BYTES: u64 = 300;
/// The device's blocks.
const BLOCK_BYTES: u64 = 4096;
/// Bytes that are written at once at most.
const MOST_BYTES: u64 = 1 << 20;

pub struct Log {
    file_system: Xfs,
    zeros: AlignedBuffer,
    state: Mutex<State>,
    flushes: SharedRun<Result<()>>,
}

#[derive(Debug, Default)]
struct State {
    end: u64,
    flushed: u64,
}

impl Log {
    pub fn new(drive: Arc<dyn Device>) -> Self {
        let zeros = AlignedBuffer::zeroed(MOST_BYTES as usize);
        Self { file_system: Xfs::new(drive, 1), zeros, state: Mutex::default(), flushes: SharedRun::default() }
    }

    /// Adds changes, and waits until they are durable.
    pub fn commit(&self, bytes: u64) -> Result<()> {
        self.state.lock().end += bytes;
        let flush = || {
            let State { end, flushed } = *self.state.lock();
            self.write(flushed, end)?;
            self.state.lock().flushed = end;
            Ok(())
        };
        self.flushes.run(flush)
    }

    /// Writes the blocks of a range of the log, and flushes them.
    fn write(&self, from: u64, to: u64) -> Result<()> {
        let capacity = self.file_system.file_bytes() / MOST_BYTES * MOST_BYTES;
        let mut at = from / BLOCK_BYTES * BLOCK_BYTES;
        let end = to.next_multiple_of(BLOCK_BYTES);
        while at < end {
            let bytes = (end - at).min(MOST_BYTES - at % MOST_BYTES);
            self.file_system.drive().write(at % capacity, &[&self.zeros[..bytes as usize]], Durability::Cached)?;
            at += bytes;
        }
        self.file_system.fsync(0)
    }
}
