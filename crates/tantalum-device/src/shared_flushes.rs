//! A device whose flushes are shared by those who wait for one at the same time.

use std::sync::Arc;

use tantalum_rt::SharedRun;

use crate::{Device, Durability, Result};

/// A device that is flushed once for all who ask meanwhile, as a kernel's block layer does it: one flush is under way at a time, and
/// who asks during it gets the next. A flush that began after a write had completed counts for that write, whoever asked.
///
/// All who are to share flushes go through the same one of these.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, Durability, MemoryDevice, SharedFlushes};
///
/// let device = SharedFlushes::new(MemoryDevice::new("data", 1 << 20));
/// device.write(0, &[&[1; 4096]], Durability::Cached)?;
/// device.flush()?; // nobody else asks
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug)]
pub struct SharedFlushes {
    device: Arc<dyn Device>,
    flushes: SharedRun<Result<()>>,
}

impl SharedFlushes {
    /// `device`, with shared flushes.
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device, flushes: SharedRun::default() }
    }
}

impl Device for SharedFlushes {
    crate::forward!(device: name, capacity_bytes, capabilities, hardware, read, submit, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.device.write(offset, buffers, durability)
    }

    fn flush(&self) -> Result<()> {
        self.flushes.run(|| self.device.flush())
    }
}
