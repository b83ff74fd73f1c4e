//! The machine that loses its power: devices that outlive it, and a fuse that cuts it off at a device operation.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum::Devices;
use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, Hardware, MemoryDevice, Partition, PendingWrite, Result, TearUnit,
};
use tantalum_rt::Random;

use crate::config::{Config, LogLayout, Protection};

/// The devices of one seed. They keep their contents from round to round, as far as power cuts let them.
#[derive(Debug)]
pub(crate) struct Machine {
    data: Arc<MemoryDevice>,
    double_write: Option<Arc<MemoryDevice>>,
    log: Vec<Arc<MemoryDevice>>,
    log_partitions: Option<usize>,
}

impl Machine {
    pub fn new(config: &Config) -> Self {
        let sectors = TearUnit::Sector512;
        let tears = match config.protection {
            Protection::Device => TearUnit::Atomic(config.page_size as u32),
            Protection::DoubleWrite | Protection::FullPageImages => sectors,
        };
        let device = |name: &str, bytes, latency, tears, salt| {
            MemoryDevice::with_profile(name, bytes, config.profile(latency, tears, salt))
        };
        let (count, bytes, log_partitions) = match config.log {
            LogLayout::Devices(n) => (n, config.log_bytes, None),
            LogLayout::Partitions(n) => (1, config.log_bytes * n as u64, Some(n)),
        };
        let log = (0..count).map(|n| device(&format!("log-{n}"), bytes, &config.log_latency, sectors, 10 + n as u64));
        Self {
            data: device("data", 1 << 20, &config.data_latency, tears, 1),
            double_write: (config.protection == Protection::DoubleWrite)
                .then(|| device("doublewrite", 4 << 20, &config.data_latency, sectors, 2)),
            log: log.collect(),
            log_partitions,
        }
    }

    /// The devices as the engine is given them; `fuse` burns with every operation on any of them.
    pub fn devices(&self, fuse: &Arc<Fuse>) -> Result<Devices> {
        let wired = |device: &Arc<MemoryDevice>| -> Arc<dyn Device> {
            Arc::new(Wired { device: Arc::clone(device), fuse: Arc::clone(fuse) })
        };
        let mut log: Vec<_> = self.log.iter().map(wired).collect();
        if let Some(n) = self.log_partitions {
            let partitions = Partition::split(Arc::clone(&log[0]), n)?;
            log = partitions.into_iter().map(|partition| Arc::new(partition) as Arc<dyn Device>).collect();
        }
        Ok(Devices { data: wired(&self.data), double_write: self.double_write.as_ref().map(wired), log })
    }

    /// Cuts the power: what was not durable is lost, or torn, or there, as `random` has it.
    pub fn power_cut(&self, random: &mut Random) {
        let log = self.log.iter();
        log.chain([&self.data]).chain(&self.double_write).for_each(|device| device.power_cut(random));
    }
}

/// Cuts the power of the whole simulation at a device operation. Does nothing until it is lit.
#[derive(Debug)]
pub(crate) struct Fuse {
    /// Operations that still succeed.
    left: AtomicU64,
    /// Whether the last write is still submitted.
    submits_last: bool,
}

impl Fuse {
    pub fn new(submits_last: bool) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(u64::MAX), submits_last })
    }

    /// From now on it burns, for so many operations.
    pub fn light(&self, operations: u64) {
        self.left.store(operations, Ordering::Relaxed);
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

/// A device on a fuse.
#[derive(Debug)]
struct Wired {
    device: Arc<MemoryDevice>,
    fuse: Arc<Fuse>,
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
    fn name(&self) -> &str {
        self.device.name()
    }

    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }

    fn capabilities(&self) -> Capabilities {
        self.device.capabilities()
    }

    fn hardware(&self) -> Hardware {
        self.device.hardware()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.operate(|| self.device.read(offset, buffer))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.operate(|| self.device.write(offset, buffers, durability))
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

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.operate(|| self.device.grow(new_capacity_bytes))
    }
}
