//! A byte range of a device that is a device itself.
//!
//! K partitions of one SSD serve as K log devices ("FlashLogging: Exploiting Flash Devices for Synchronous Logging
//! Performance", section 5.4, Figure 17).

use std::ops::Range;
use std::sync::Arc;

use crate::device::{check_range, total_len};
use crate::{
    ALIGNMENT, AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result, SharedFlushes,
};

/// A byte range of a device, with offsets of its own from 0. Its size is fixed.
///
/// A flush flushes the whole device, and a device poisoned by a failed flush is so for all its partitions. Errors of
/// the device below name the device's own offsets. Nothing keeps partitions made one by one from overlapping.
///
/// ```
/// # use tantalum_device::{Device, Durability, MemoryDevice, Partition};
/// # fn main() -> tantalum_device::Result<()> {
/// let device = MemoryDevice::new("ssd", 64 << 10);
/// let parts = Partition::split(device.clone(), 4)?;
/// parts[1].write(0, &[&[7; 4096]], Durability::Durable)?;
/// assert_eq!(device.image()[16 << 10], 7);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Partition {
    device: Arc<dyn Device>,
    name: Arc<str>,
    range: Range<u64>,
}

impl Partition {
    /// The bytes `range` of `device`.
    ///
    /// # Errors
    /// [`Error::Misaligned`] if its ends are not multiples of the logical block, [`Error::OutOfRange`] if it is not
    /// within the device or ends before it begins.
    pub fn new(device: Arc<dyn Device>, range: Range<u64>) -> Result<Self> {
        let name: Arc<str> = format!("{}[{}..{}]", device.name(), range.start, range.end).into();
        let capacity = device.capacity_bytes();
        let Some(len) = range.end.checked_sub(range.start) else {
            return Err(Error::OutOfRange { device: name, offset: range.start, len: 0, capacity });
        };
        check_range(&name, device.capabilities().logical_block, capacity, range.start, len)?;
        Ok(Self { device, name, range })
    }

    /// `count` equal partitions, aligned to [`ALIGNMENT`]; up to `count` such blocks at the end may stay unused.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the device is too small to give each partition a block, or `count` is 0.
    pub fn split(device: Arc<dyn Device>, count: usize) -> Result<Vec<Self>> {
        let align = u64::from(device.capabilities().logical_block).max(ALIGNMENT as u64);
        let capacity = device.capacity_bytes();
        let len = capacity.checked_div(count as u64).unwrap_or(0) / align * align;
        if len == 0 {
            let (device, len) = (device.name().into(), align.saturating_mul(count as u64));
            return Err(Error::OutOfRange { device, offset: 0, len, capacity });
        }
        (0..count as u64).map(|index| Self::new(Arc::clone(&device), index * len..(index + 1) * len)).collect()
    }

    /// The bytes of the device below that this is.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The device's offset of `offset`, once the range is found to lie within.
    fn translate(&self, offset: u64, len: usize) -> Result<u64> {
        let block = self.device.capabilities().logical_block;
        check_range(&self.name, block, self.capacity_bytes(), offset, len as u64)?;
        Ok(self.range.start + offset)
    }
}

impl Device for Partition {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn capabilities(&self) -> Capabilities {
        let capabilities = self.device.capabilities();
        // An atomic write lies at a multiple of its size, on the device.
        let aligned = match self.range.start {
            0 => u32::MAX,
            start => u32::try_from(1_u64 << start.trailing_zeros()).unwrap_or(u32::MAX),
        };
        Capabilities { atomic_write_bytes: capabilities.atomic_write_bytes.min(aligned), ..capabilities }
    }

    fn hardware(&self) -> Hardware {
        self.device.hardware()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.device.read(self.translate(offset, buffer.len())?, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.device.write(self.translate(offset, total_len(buffers))?, buffers, durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.device.submit(self.translate(offset, range.len())?, buffer, range, durability)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn shared_flushes(&self) -> Option<&SharedFlushes> {
        self.device.shared_flushes()
    }

    fn flush_unshared(&self) -> Result<()> {
        self.device.flush_unshared()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let block = self.device.capabilities().logical_block;
        check_range(&self.name, block, self.capacity_bytes(), offset, len)?;
        self.device.discard(self.range.start + offset, len)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        if new_capacity_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        Err(Error::Unsupported { device: Arc::clone(&self.name), operation: "grow: a partition has a fixed size" })
    }
}
