//! A log device that counts the sizes of the durable writes that it gets: the log's flushes.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, Result};
use tantalum_rt::Mutex;

use super::log_mutex::LogMutex;

/// How many writes there were of each size in bytes.
pub type Sizes = BTreeMap<u64, u64>;

/// A device and what was written to it.
#[derive(Debug)]
pub(super) struct Tap {
    device: Arc<dyn Device>,
    /// What durable writes hold, on the original server.
    mutex: Option<Arc<LogMutex>>,
    sizes: Mutex<Sizes>,
}

impl Tap {
    pub(super) fn new(device: Arc<dyn Device>, mutex: Option<Arc<LogMutex>>) -> Arc<Self> {
        Arc::new(Self { device, mutex, sizes: Mutex::default() })
    }

    /// The writes since the last call.
    pub(super) fn take(&self) -> Sizes {
        std::mem::take(&mut *self.sizes.lock())
    }

    fn count(&self, bytes: usize, durability: Durability) {
        if durability == Durability::Durable {
            *self.sizes.lock().entry(bytes as u64).or_default() += 1;
        }
    }
}

impl Device for Tap {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, flush, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.count(buffers.iter().map(|buffer| buffer.len()).sum(), durability);
        match &self.mutex {
            Some(mutex) if durability == Durability::Durable => {
                mutex.hold(|| self.device.write(offset, buffers, durability))
            }
            _ => self.device.write(offset, buffers, durability),
        }
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        // A log on one piece of hardware, as the original server's, writes requests in the blocking call and submits its
        // checkpoints, for which the original server does not hold the mutex either.
        self.count(range.len(), durability);
        self.device.submit(offset, buffer, range, durability)
    }
}
