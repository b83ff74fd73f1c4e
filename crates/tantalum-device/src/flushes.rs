//! Devices that are flushed less: one whose flushes are shared by the tasks that wait for one at the same time, and one that is
//! never flushed, since its cache survives a power cut.

use std::ops::Range;
use std::sync::Arc;

use tantalum_rt::{Announced, SharedRun};

use crate::{AlignedBuffer, Device, Durability, PendingWrite, Result};

/// A device that is flushed once for all tasks that ask meanwhile, as a kernel's block layer does it: one flush is under way at a
/// time, and a task that asks during it gets the next. A flush that began after a write had completed counts for that write,
/// whichever task asked.
///
/// A task that writes now and will ask then says so before ([`announce`](Self::announce)), and a flush waits for it a little
/// ([`SharedRun`]). On a drive beside whose flush nothing else runs, all tasks that wrote during one flush share the next.
///
/// All tasks that are to share flushes go through the same one of these; [partitions](crate::Partition) of one do.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, Durability, MemoryDevice, SharedFlushes};
///
/// let device = SharedFlushes::of(MemoryDevice::new("data", 1 << 20));
/// let flush = SharedFlushes::announce(&*device);
/// device.write(0, &[&[1; 4096]], Durability::Cached)?;
/// flush.wait()?; // no other task asks
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

    /// `device`, with shared flushes; as it is if it has some.
    pub fn of(device: Arc<dyn Device>) -> Arc<dyn Device> {
        if device.shared_flushes().is_some() { device } else { Arc::new(Self::new(device)) }
    }

    /// Says that the caller will flush `device` soon, once what it writes has completed. Until then it may wait for no other flush
    /// of that device.
    pub fn announce(device: &dyn Device) -> AnnouncedFlush<'_> {
        AnnouncedFlush(match device.shared_flushes() {
            Some(shared) => Kind::Shared(device, shared.flushes.announce()),
            None => Kind::Alone(device),
        })
    }

    /// The result of a flush for all tasks that ask meanwhile, made by `flush` if it is the caller's turn.
    pub(crate) fn flush_by(&self, flush: impl Fn() -> Result<()>) -> Result<()> {
        self.flushes.run(flush)
    }
}

impl Device for SharedFlushes {
    crate::forward!(device: name, capacity_bytes, capabilities, hardware, read, read_many, write, write_placed, submit, discard, zones, release, grow, reserve, shrink);

    fn flush(&self) -> Result<()> {
        self.flushes.run(|| self.device.flush())
    }

    fn shared_flushes(&self) -> Option<&SharedFlushes> {
        Some(self)
    }

    fn flush_unshared(&self) -> Result<()> {
        self.device.flush()
    }
}

/// The announcement that a task will wait for a flush soon. Dropping it withdraws the announcement.
#[derive(Debug)]
pub struct AnnouncedFlush<'d>(Kind<'d>);

#[derive(Debug)]
enum Kind<'d> {
    Shared(&'d dyn Device, Announced<'d, Result<()>>),
    Alone(&'d dyn Device),
}

impl AnnouncedFlush<'_> {
    /// Makes every write that completed before the call durable.
    ///
    /// # Errors
    /// As [`Device::flush`].
    pub fn wait(self) -> Result<()> {
        match self.0 {
            Kind::Shared(device, announced) => announced.run(|| device.flush_unshared()),
            Kind::Alone(device) => device.flush(),
        }
    }
}

/// A device without barriers ("Durable Write Cache in Flash Memory SSD for Relational and NoSQL Databases", section 2.2):
/// every write is [`Durability::Delivered`], and a flush does nothing, since whatever has completed is kept already.
///
/// A caller that needs one write before another waits for the first before it begins the second, so no flush between them is
/// needed for order. On a device that loses what it has completed, whatever was acknowledged may be lost: make one of these only
/// if the device, or the operator, says that its cache survives.
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
    crate::forward!(0: name, capacity_bytes, capabilities, hardware, read, read_many, discard, zones, release, grow, reserve, shrink);

    fn write(&self, offset: u64, buffers: &[&[u8]], _: Durability) -> Result<()> {
        self.0.write(offset, buffers, Durability::Delivered)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], _: Durability, handle: u32) -> Result<()> {
        self.0.write_placed(offset, buffers, Durability::Delivered, handle)
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
