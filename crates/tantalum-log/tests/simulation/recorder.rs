//! A device that notes every write: where, which bytes, and from when to when.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, MemoryDevice, PendingWrite, Result};
use tantalum_rt::{Instant, now};

use crate::plan::lock;

/// A write as the device saw it.
#[derive(Clone, Debug)]
pub struct Write {
    pub offset: u64,
    pub bytes: Vec<u8>,
    pub submitted: Instant,
    /// `None` while a task still waits for it.
    pub done: Option<Instant>,
}

impl Write {
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes.len() as u64
    }
}

/// A memory device whose writes are noted.
#[derive(Debug)]
pub struct Recorder {
    device: Arc<MemoryDevice>,
    writes: Arc<Mutex<Vec<Write>>>,
}

impl Recorder {
    pub fn new(device: Arc<MemoryDevice>) -> Arc<Recorder> {
        Arc::new(Recorder { device, writes: Arc::default() })
    }

    /// The writes to sections, in the order of their submission.
    pub fn section_writes(&self) -> Vec<Write> {
        lock(&self.writes).iter().filter(|write| write.offset >= 4 * 4096).cloned().collect()
    }

    /// Forgets the writes so far.
    pub fn clear(&self) {
        lock(&self.writes).clear();
    }

    fn note(&self, offset: u64, bytes: Vec<u8>) -> usize {
        let mut writes = lock(&self.writes);
        writes.push(Write { offset, bytes, submitted: now(), done: None });
        writes.len() - 1
    }
}

impl Device for Recorder {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, flush, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        let index = self.note(offset, buffers.concat());
        let result = self.device.write(offset, buffers, durability);
        lock(&self.writes)[index].done = Some(now());
        result
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let index = self.note(offset, buffer[range.clone()].to_vec());
        let pending = self.device.submit(offset, buffer, range, durability)?;
        Ok(Box::new(Pending { pending, writes: Arc::clone(&self.writes), index }))
    }
}

struct Pending {
    pending: Box<dyn PendingWrite>,
    writes: Arc<Mutex<Vec<Write>>>,
    index: usize,
}

impl PendingWrite for Pending {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let result = self.pending.wait(timeout)?;
        lock(&self.writes)[self.index].done = Some(now());
        Some(result)
    }

    fn is_done(&mut self) -> bool {
        self.pending.is_done()
    }
}
