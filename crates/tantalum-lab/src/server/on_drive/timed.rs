//! Contents in memory that take a drive's time: runs begin with a database on the drive that was loaded once.

use std::{ops::Range, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};
use tantalum_flash::Contents;

use super::super::plain::Plain;

/// Contents, above an emulated drive that holds zeros: it never looks at bytes, and zeros take no memory.
#[derive(Debug)]
pub(in crate::server) struct Timed {
    contents: Arc<Plain>,
    drive: Arc<dyn Device>,
    zeros: Arc<AlignedBuffer>,
}

/// More than the engine writes at once: an append of 124 pages of 16 KiB, with as many blocks of metadata and more.
const LARGEST_WRITE_BYTES: usize = 4 << 20;

impl Timed {
    /// `drive` has the size of `contents`.
    pub(in crate::server) fn new(contents: Contents, drive: Arc<dyn Device>) -> Arc<Self> {
        assert_eq!(contents.len(), drive.capacity_bytes(), "the drive has the size of what lies on it");
        let zeros = Arc::new(AlignedBuffer::zeroed(LARGEST_WRITE_BYTES));
        Arc::new(Self { contents: Plain::new(drive.name(), contents), drive, zeros })
    }
}

impl Device for Timed {
    tantalum_device::forward!(drive: name, capacity_bytes, capabilities, hardware, flush, discard, grow);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.drive.read(offset, buffer)?;
        self.contents.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.contents.write(offset, buffers, durability)?;
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        self.drive.write(offset, &[&self.zeros[..bytes]], durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.contents.write(offset, &[&buffer[range.clone()]], durability)?;
        self.drive.submit(offset, Arc::clone(&self.zeros), 0..range.len(), durability)
    }
}
