//! A fuse that cuts the power of the whole simulation at a device operation.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};

/// So many bytes are the head of the data device: superblocks, and the slots of a page map's root.
const HEAD_BYTES: u64 = 64 << 10;

/// Does nothing until it is lit.
#[derive(Debug)]
pub(crate) struct Fuse {
    /// Operations that still succeed.
    left: AtomicU64,
    /// Whether the last write is still submitted.
    submits_last: bool,
    /// Writes to the head of the data device until one of them is cut off.
    head_writes_left: AtomicU64,
}

impl Fuse {
    pub fn new(submits_last: bool) -> Arc<Self> {
        let left = || AtomicU64::new(u64::MAX);
        Arc::new(Self { left: left(), submits_last, head_writes_left: left() })
    }

    /// From now on it burns, for so many operations.
    pub fn light(&self, operations: u64) {
        self.left.store(operations, Ordering::Relaxed);
    }

    /// From now on the power goes in the middle of this write to the head of the data device, counted from 1.
    pub fn light_at_head(&self, write: u64) {
        self.head_writes_left.store(write, Ordering::Relaxed);
    }

    /// A write to the head of the data device begins.
    fn burn_at_head(&self) {
        if self.head_writes_left.fetch_sub(1, Ordering::Relaxed) == 1 {
            tantalum_rt::spawn("power", || {
                tantalum_rt::sleep(Duration::from_nanos(1));
                tantalum_rt::power_cut()
            });
        }
    }

    /// An operation begins. Returns whether the power goes right after it.
    fn burn(&self) -> bool {
        match self.left.fetch_sub(1, Ordering::Relaxed) {
            1 if self.submits_last => true,
            1 => tantalum_rt::power_cut(),
            _ => false,
        }
    }
}

/// A device on a fuse, which burns with every operation.
#[derive(Debug)]
pub(crate) struct Wired {
    pub device: Arc<dyn Device>,
    pub fuse: Arc<Fuse>,
    /// Whether it is the data device, whose head has a fuse of its own.
    pub has_head: bool,
}

impl Wired {
    fn operate<T>(&self, operation: impl FnOnce() -> T) -> T {
        let is_last = self.fuse.burn();
        let result = operation();
        if is_last {
            tantalum_rt::power_cut();
        }
        result
    }
}

impl Device for Wired {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.operate(|| self.device.read(offset, buffer))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_placed(offset, buffers, durability, 0)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        if self.has_head && offset < HEAD_BYTES {
            self.fuse.burn_at_head();
        }
        self.operate(|| self.device.write_placed(offset, buffers, durability, handle))
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.operate(|| self.device.submit(offset, buffer, range, durability))
    }

    fn flush(&self) -> Result<()> {
        self.operate(|| self.device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.operate(|| self.device.discard(offset, len))
    }

    fn reset_zone(&self, offset: u64) -> Result<()> {
        self.operate(|| self.device.reset_zone(offset))
    }

    fn finish_zone(&self, offset: u64) -> Result<()> {
        self.operate(|| self.device.finish_zone(offset))
    }

    fn active_zones(&self) -> Result<Vec<u64>> {
        self.operate(|| self.device.active_zones())
    }

    fn release(&self, offset: u64, len: u64) -> Result<()> {
        self.operate(|| self.device.release(offset, len))
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.operate(|| self.device.grow(new_capacity_bytes))
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        self.operate(|| self.device.shrink(new_capacity_bytes))
    }
}
