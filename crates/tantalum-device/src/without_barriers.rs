//! A device that is never asked to flush its cache, for one whose cache outlives a power cut.

use std::ops::Range;
use std::sync::Arc;

use crate::{AlignedBuffer, Device, Durability, PendingWrite, Result};

/// A device without barriers ("Durable Write Cache in Flash Memory SSD for Relational and NoSQL Databases", section 2.2):
/// every write is [`Durability::Delivered`], and a flush does nothing, since whatever has completed is kept already.
///
/// Order is kept by waiting: a caller that needs one write before another waits for the first before it begins the second. That
/// is what a flush between them would add to, on other devices. On a device that loses what it has completed, whatever was
/// acknowledged may be lost: the caller that makes one of these has asked the device, or its owner.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, Durability, MemoryDevice, MemoryProfile, WithoutBarriers};
///
/// let profile = MemoryProfile { volatile_cache: false, ..MemoryProfile::default() };
/// let durable = MemoryDevice::with_profile("durable", 1 << 20, profile);
/// let device = WithoutBarriers::new(durable.clone());
/// device.write(0, &[&[1; 4096]], Durability::Cached)?;
/// device.flush()?; // asks nothing of the device
/// durable.power_cut(&mut tantalum_rt::Random::with_seed(1));
/// let mut block = [0; 4096];
/// device.read(0, &mut block)?;
/// assert_eq!(block, [1; 4096]);
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug)]
pub struct WithoutBarriers(Arc<dyn Device>);

impl WithoutBarriers {
    /// `device` without its barriers.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self(device)
    }
}

impl Device for WithoutBarriers {
    crate::forward!(0: name, capacity_bytes, capabilities, hardware, read, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], _: Durability) -> Result<()> {
        self.0.write(offset, buffers, Durability::Delivered)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        _: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.0.submit(offset, buffer, range, Durability::Delivered)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
