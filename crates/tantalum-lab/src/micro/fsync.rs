//! The journal that `fsync` commits to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum_device::{Device, Durability};
use tantalum_rt::{now, sleep};

use super::job::{Flushing, Fsync, Job};

/// The journal of the file system that a job, or a database, pretends to run on.
#[derive(Debug)]
pub(crate) struct Journal {
    begin: u64,
    blocks: u64,
    writes: u32,
    next: AtomicU64,
    /// The tick after that of the last commit; 0 before the first.
    next_tick: AtomicU64,
}

impl Journal {
    /// `None` if the job calls no `fsync`.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let Flushing::Fsync(fsync) = job.flushing else { return None };
        let len = job.range.end - job.range.start;
        let bytes = Fsync::JOURNAL_BYTES.min(len / 2);
        let middle = job.range.start + len / 2;
        let begin = middle - middle % Fsync::BLOCK_BYTES;
        (bytes >= Fsync::BLOCK_BYTES).then(|| Self::at(begin, bytes, fsync.journal_writes))
    }

    /// One of so many bytes, to which a commit makes so many writes. All users of a device's journal share this.
    pub(crate) fn at(begin: u64, bytes: u64, writes: u32) -> Self {
        let blocks = bytes / Fsync::BLOCK_BYTES;
        assert!(blocks > 0, "a journal has a block");
        Self { begin, blocks, writes, next: AtomicU64::new(0), next_tick: AtomicU64::new(0) }
    }

    /// Commits, if the tick is a new one, and makes all that was written before durable.
    pub(crate) fn fsync(&self, device: &dyn Device) -> tantalum_device::Result<()> {
        sleep(Duration::from_nanos(Fsync::CALL_NS));
        let tick = now().as_nanos() / Fsync::TICK_NS + 1;
        let is_new = self.next_tick.swap(tick, Ordering::Relaxed) != tick;
        if is_new { self.commit(device) } else { device.flush() }
    }

    /// As [`fsync`](Self::fsync) on a file that has grown: its size is always to be committed.
    pub(crate) fn fsync_grown(&self, device: &dyn Device) -> tantalum_device::Result<()> {
        sleep(Duration::from_nanos(Fsync::CALL_NS));
        self.commit(device)
    }

    fn commit(&self, device: &dyn Device) -> tantalum_device::Result<()> {
        let Some(before) = self.writes.checked_sub(1) else { return device.flush() };
        for _ in 0..before {
            self.write(device, Durability::Cached)?;
        }
        device.flush()?;
        if device.capabilities().fua == Some(false) {
            // What a host does that cannot force single writes, whatever the device makes of it.
            self.write(device, Durability::Cached)?;
            return device.flush();
        }
        self.write(device, Durability::Durable)
    }

    fn write(&self, device: &dyn Device, durability: Durability) -> tantalum_device::Result<()> {
        let number = self.next.fetch_add(1, Ordering::Relaxed) % self.blocks;
        let block = [0; Fsync::BLOCK_BYTES as usize];
        device.write(self.begin + number * Fsync::BLOCK_BYTES, &[&block], durability)
    }
}
