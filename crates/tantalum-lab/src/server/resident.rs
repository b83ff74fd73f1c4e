//! The disk below a database that is in memory: pages are there without being read, and written in the disk's time.
//!
//! FlashLogging's runs begin with a scan of every table (section 5.2). Here a page comes from the image when it is first
//! touched, in no time: the pool holds all pages, so that none is read twice.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};
use tantalum_flash::{Contents, EmulatedDevice};

use super::plain::{Ended, Plain};

/// Contents in memory above an emulated disk.
#[derive(Debug)]
pub(super) struct Resident {
    contents: Arc<Plain>,
    disk: Arc<EmulatedDevice>,
    /// Nothing more is measured, and nothing kept.
    is_over: AtomicBool,
}

impl Resident {
    /// `disk` has the size of `contents`; what it holds does not matter.
    pub(super) fn new(contents: Contents, disk: Arc<EmulatedDevice>) -> Arc<Self> {
        assert_eq!(contents.len(), disk.capacity_bytes(), "the disk has the size of what lies on it");
        Arc::new(Self { contents: Plain::new(disk.name(), contents), disk, is_over: AtomicBool::new(false) })
    }

    /// From now on writes take no time and go nowhere: the database is to be closed quickly.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Device for Resident {
    tantalum_device::forward!(disk: name, capacity_bytes, capabilities, hardware, grow);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.contents.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.contents.write(offset, buffers, durability)?;
        self.disk.write(offset, buffers, durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        if self.is_over() {
            return Ok(Box::new(Ended));
        }
        self.contents.write(offset, &[&buffer[range.clone()]], durability)?;
        self.disk.submit(offset, buffer, range, durability)
    }

    fn flush(&self) -> Result<()> {
        if self.is_over() { Ok(()) } else { self.disk.flush() }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if self.is_over() { Ok(()) } else { self.disk.discard(offset, len) }
    }
}
