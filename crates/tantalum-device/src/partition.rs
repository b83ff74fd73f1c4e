//! A byte range of a device that is a device itself.
//!
//! K partitions of one SSD serve as K log devices ("FlashLogging: Exploiting Flash Devices for Synchronous Logging
//! Performance", section 5.4, Figure 17).

use std::ops::Range;
use std::sync::Arc;

use crate::device::{check_blocks, total_len};
use crate::{ALIGNMENT, AlignedBuffer, Capabilities, Device, Durability, Error, PendingWrite, Result};

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
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if its ends are not multiples of the logical block,
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if it is not within the device or ends before it begins;
    /// [`Unsupported`](crate::ErrorKind::Unsupported) if it reaches into the device's zones.
    pub fn new(device: Arc<dyn Device>, range: Range<u64>) -> Result<Self> {
        let name: Arc<str> = format!("{}[{}..{}]", device.name(), range.start, range.end).into();
        let capacity = device.capacity_bytes();
        let Some(len) = range.end.checked_sub(range.start) else {
            return Err(Error::out_of_range(&name, range.start, 0, capacity));
        };
        let capabilities = device.capabilities();
        check_blocks(&name, capabilities.logical_block, capacity, range.start, len)?;
        if let Some(zones) = capabilities.zones
            && range.end > zones.start
        {
            let remedy = format!("take what lies before byte {}, or another device", zones.start);
            return Err(Error::has_zones(device.name(), &remedy));
        }
        Ok(Self { device, name, range })
    }

    /// `count` equal partitions, aligned to [`ALIGNMENT`]; up to `count` such blocks at the end may stay unused.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if the device is too small to give each partition a block, or
    /// `count` is 0.
    pub fn split(device: Arc<dyn Device>, count: usize) -> Result<Vec<Self>> {
        let align = u64::from(device.capabilities().logical_block).max(ALIGNMENT as u64);
        let capacity = device.capacity_bytes();
        let len = capacity.checked_div(count as u64).unwrap_or(0) / align * align;
        if len == 0 {
            let len = align.saturating_mul(count as u64);
            return Err(Error::out_of_range(device.name(), 0, len, capacity));
        }
        (0..count as u64).map(|index| Self::new(Arc::clone(&device), index * len..(index + 1) * len)).collect()
    }

    /// The bytes of the device below that this is.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The device's offset of `offset`, once the range is found to lie within.
    fn translate(&self, offset: u64, len: u64) -> Result<u64> {
        self.check_range(offset, len)?;
        Ok(self.range.start + offset)
    }
}

impl Device for Partition {
    crate::forward!(device: hardware, flush, shared_flushes, flush_unshared);

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
        let atomic_write_bytes = capabilities.atomic_write_bytes.min(aligned);
        Capabilities { atomic_write_bytes, zones: None, ..capabilities }
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.device.read(self.translate(offset, buffer.len() as u64)?, buffer)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buffer) in &mut *reads {
            *offset = self.translate(*offset, buffer.len() as u64)?;
        }
        self.device.read_many(reads)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_placed(offset, buffers, durability, 0)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        self.device.write_placed(self.translate(offset, total_len(buffers) as u64)?, buffers, durability, handle)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.device.submit(self.translate(offset, range.len() as u64)?, buffer, range, durability)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(self.translate(offset, len)?, len)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        if new_capacity_bytes <= self.capacity_bytes() {
            return Ok(());
        }
        Err(Error::unsupported(&self.name, "grow: a partition has a fixed size"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ErrorKind, MemoryDevice, MemoryProfile, TearUnit};

    const BLOCK: u64 = 4096;

    #[test]
    fn offsets_are_relative_and_nothing_leaks_out() {
        let device = MemoryDevice::new("ssd", 8 * BLOCK);
        let partition = Partition::new(device.clone(), 2 * BLOCK..4 * BLOCK).unwrap();
        assert_eq!((partition.name(), partition.capacity_bytes()), ("ssd[8192..16384]", 2 * BLOCK));
        partition.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        let buffer = Arc::new(AlignedBuffer::copy_from(&[2; 4096]));
        partition.submit(BLOCK, buffer.clone(), 0..4096, Durability::Durable).unwrap().wait(None).unwrap().unwrap();
        partition.flush().unwrap();

        let image = device.image();
        assert!(image[..8192].iter().chain(&image[16384..]).all(|&byte| byte == 0));
        assert_eq!((image[8192], image[12288]), (1, 2));
        let mut bytes = [0; 4096];
        partition.read(BLOCK, &mut bytes).unwrap();
        assert_eq!(bytes, [2; 4096]);
        partition.discard(BLOCK, BLOCK).unwrap();
        assert_eq!(device.image()[12288], 0);

        for result in [
            partition.read(2 * BLOCK, &mut bytes),
            partition.write(2 * BLOCK, &[&bytes], Durability::Cached),
            partition.submit(2 * BLOCK, buffer, 0..4096, Durability::Cached).map(drop),
            partition.discard(0, 3 * BLOCK),
            partition.discard(BLOCK, u64::MAX - BLOCK + 1),
        ] {
            let error = result.unwrap_err();
            assert!(error.kind() == ErrorKind::OutOfRange && error.to_string().contains("has 8192 bytes"), "{error}");
            assert!(error.to_string().contains("ssd[8192..16384]"));
        }
        assert!(matches!(partition.read(1, &mut bytes), Err(error) if error.kind() == ErrorKind::InvalidInput));
    }

    #[test]
    fn a_partition_lies_within_its_device() {
        let device = MemoryDevice::new("ssd", 8 * BLOCK);
        assert!(
            matches!(Partition::new(device.clone(), BLOCK..9 * BLOCK), Err(error) if error.kind() == ErrorKind::OutOfRange)
        );
        assert!(
            matches!(Partition::new(device.clone(), 1..BLOCK), Err(error) if error.kind() == ErrorKind::InvalidInput)
        );
        let (end, start) = (BLOCK, 2 * BLOCK);
        assert!(matches!(Partition::new(device, start..end), Err(error) if error.kind() == ErrorKind::OutOfRange));
    }

    #[test]
    fn splitting_gives_equal_aligned_parts() {
        let device = MemoryDevice::new("ssd", 11 * BLOCK);
        let parts = Partition::split(device.clone(), 3).unwrap();
        let ranges: Vec<_> = parts.iter().map(Partition::range).collect();
        assert_eq!(ranges, [0..3 * BLOCK, 3 * BLOCK..6 * BLOCK, 6 * BLOCK..9 * BLOCK]);
        assert!(matches!(Partition::split(device.clone(), 12), Err(error) if error.kind() == ErrorKind::OutOfRange));
        assert!(matches!(Partition::split(device, 0), Err(error) if error.kind() == ErrorKind::OutOfRange));
    }

    #[test]
    fn the_size_is_fixed() {
        let device = MemoryDevice::new("ssd", 8 * BLOCK);
        let partition = Partition::new(device, 0..BLOCK).unwrap();
        partition.grow(BLOCK).unwrap();
        assert!(matches!(partition.grow(2 * BLOCK), Err(error) if error.kind() == ErrorKind::Unsupported));
    }

    #[test]
    fn writes_are_atomic_as_far_as_the_partition_is_aligned() {
        let profile = MemoryProfile { tears: TearUnit::Atomic(16384), ..MemoryProfile::default() };
        let device: Arc<dyn Device> = MemoryDevice::with_profile("device", 1 << 20, profile);
        for (start, atomic) in [(0, 16384), (4096, 4096), (8192, 8192), (65536, 16384)] {
            let partition = Partition::new(Arc::clone(&device), start..1 << 20).unwrap();
            assert_eq!(partition.capabilities().atomic_write_bytes, atomic, "from {start}");
        }
    }
}
