//! The trait that every device implements, and the checks that they share.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::{AlignedBuffer, Capabilities, Error, Result, SharedFlushes};

/// When a write has completed, does it survive a power cut?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Only once a later [`Device::flush`] has returned.
    Cached,
    /// Yes, by itself. It says nothing of earlier cached writes.
    Durable,
    /// If what the device has completed survives; no flush and no forced unit access is asked of it. Whatever stands between
    /// it and the caller, such as a file system's record of where blocks are, is made to hold.
    Delivered,
}

/// What a device stands on: devices with equal hardware are slow, hang and fail together, so that none of them can stand
/// in for another.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice, Partition};
/// let [a, b]: [Arc<dyn Device>; 2] = [MemoryDevice::new("a", 1 << 20), MemoryDevice::new("b", 1 << 20)];
/// assert_ne!(a.hardware(), b.hardware());
/// assert!(Partition::split(Arc::clone(&a), 2)?.iter().all(|half| half.hardware() == a.hardware()));
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hardware {
    /// The block device, by the system's number, that a file lies on or that was opened itself.
    Disk(u64),
    /// Memory, by its address.
    Memory(usize),
}

/// A range of bytes that outlives the process, written in blocks.
///
/// Offsets and lengths are in bytes, and multiples of the logical block of [`Device::capabilities`]. All methods may be
/// called by many tasks at once. Operations under way at the same time on overlapping ranges have no order.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{AlignedBuffer, Device, Durability, MemoryDevice};
/// # fn main() -> tantalum_device::Result<()> {
/// let device: Arc<dyn Device> = MemoryDevice::new("data", 1 << 20);
/// device.write(0, &[&[1; 4096], &[2; 4096]], Durability::Cached)?;
/// device.flush()?;
///
/// let buffer = Arc::new(AlignedBuffer::zeroed(4096));
/// let mut pending = device.submit(8192, buffer, 0..4096, Durability::Durable)?;
/// pending.wait(None).expect("without a time-out it waits for the end")?;
///
/// let mut block = [0; 4096];
/// device.read(4096, &mut block)?;
/// assert_eq!(block, [2; 4096]);
/// # Ok(())
/// # }
/// ```
pub trait Device: Send + Sync + Debug {
    /// The path, or another name for messages.
    fn name(&self) -> &str;

    /// Size in bytes; it changes by [`grow`](Self::grow) and [`shrink`](Self::shrink) only.
    fn capacity_bytes(&self) -> u64;

    /// What the device can do. Cheap; it does not change while the device is open.
    fn capabilities(&self) -> Capabilities;

    /// What the device stands on. Cheap; it does not change while the device is open.
    fn hardware(&self) -> Hardware;

    /// Fills the whole of `buffer`, or fails.
    ///
    /// # Errors
    /// Those of [`check_range`](Device::check_range), [`Truncated`](crate::ErrorKind::Truncated),
    /// [`Unreadable`](crate::ErrorKind::Unreadable).
    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()>;

    /// Fills all of these buffers, each from its offset: at the same time where the device can, else one after the other.
    ///
    /// # Errors
    /// As [`read`](Self::read), when one of them cannot be filled; the buffers then hold anything.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, buffer)| self.read(*offset, buffer))
    }

    /// Writes the concatenation of `buffers` as one write, and returns when it has completed.
    ///
    /// Only the total length need be a multiple of the logical block. Buffers that direct I/O cannot take as they are
    /// get copied first. After an error the range may hold old bytes, new bytes, or some of both.
    ///
    /// # Errors
    /// Those of [`check_range`](Device::check_range), [`ReadOnly`](crate::ErrorKind::ReadOnly),
    /// [`NoSpace`](crate::ErrorKind::NoSpace), [`Io`](crate::ErrorKind::Io), [`WritesLost`](crate::ErrorKind::WritesLost).
    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()>;

    /// As [`write`](Self::write), and says by one of the device's placement handles what data belongs together, since it will be
    /// overwritten or discarded together: NVMe's flexible data placement. A hint: where there is no such handle, it is a write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        let _has_no_handles = handle;
        self.write(offset, buffers, durability)
    }

    /// Starts to write `buffer[range]` and returns without waiting for it.
    ///
    /// The buffer is held until the device needs it no more, also when the pending write is dropped early. A write
    /// that no caller waits for still happens.
    ///
    /// # Errors
    /// As [`Device::write`]; those of the write itself come from [`PendingWrite::wait`].
    ///
    /// # Panics
    /// If `range` does not lie within `buffer`.
    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>>;

    /// Makes every write that completed before the call durable.
    ///
    /// A failed flush is final: no caller can tell which writes were lost, so every later write and flush fails with
    /// [`WritesLost`](crate::ErrorKind::WritesLost), which carries the first cause, until the device is opened anew. The
    /// same holds for a failed durable write, which may have a flush within it, unless it merely found no space.
    ///
    /// # Errors
    /// [`Io`](crate::ErrorKind::Io), [`WritesLost`](crate::ErrorKind::WritesLost), [`ReadOnly`](crate::ErrorKind::ReadOnly).
    fn flush(&self) -> Result<()>;

    /// Its flushes, where the tasks that wait for one share it; for a part of a device, the flushes of the whole. Cheap.
    fn shared_flushes(&self) -> Option<&SharedFlushes> {
        None
    }

    /// As [`flush`](Self::flush), but never one that is shared with other tasks that ask at the same time: for the task that
    /// flushes on behalf of all.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    fn flush_unshared(&self) -> Result<()> {
        self.flush()
    }

    /// Refuses a range that is not whole blocks, or reaches beyond the end. Implementations begin requests with it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), [`OutOfRange`](crate::ErrorKind::OutOfRange).
    fn check_range(&self, offset: u64, len: u64) -> Result<()> {
        check_blocks(self.name(), self.capabilities().logical_block, self.capacity_bytes(), offset, len)
    }

    /// Tells the device that the range is no longer needed. A hint: afterwards it reads as zeros or as before.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn discard(&self, offset: u64, len: u64) -> Result<()>;

    /// Makes the zone that begins at `offset` empty ([`Zones`](crate::Zones)): it reads as zeros, and is written from its beginning on.
    /// It is so, or as before, after a power cut, and durably so when this returns. No request to it may be under way.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) without zones, [`InvalidInput`](crate::ErrorKind::InvalidInput) where none begins.
    /// Otherwise as [`Device::write`].
    fn reset_zone(&self, offset: u64) -> Result<()> {
        let _has_none = offset;
        Err(Error::unsupported(self.name(), "reset a zone: it has none"))
    }

    /// Makes the zone that begins at `offset` full, without its being written to the end: it takes no writes until it is reset, and is
    /// not one of those that are partly written. What it holds stays.
    ///
    /// # Errors
    /// As [`reset_zone`](Self::reset_zone).
    fn finish_zone(&self, offset: u64) -> Result<()> {
        let _has_none = offset;
        Err(Error::unsupported(self.name(), "finish a zone: it has none"))
    }

    /// Where the zones begin that are partly written: neither empty nor full.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) without zones. Otherwise as [`Device::read`].
    fn active_zones(&self) -> Result<Vec<u64>> {
        Err(Error::unsupported(self.name(), "report its zones: it has none"))
    }

    /// Gives the space that a range takes back to what the device lies on; the device keeps its size. Afterwards the range reads as
    /// zeros or as before, and writing there needs space again. No request to it may be under way.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported): the range keeps its space. Otherwise as [`Device::write`].
    fn release(&self, offset: u64, len: u64) -> Result<()> {
        let _keeps_its_space = (offset, len);
        Err(Error::unsupported(self.name(), "give back the space of a part of it"))
    }

    /// Makes the device `new_capacity_bytes` large, the new bytes zero, allocated, written and durable. A size not
    /// above the present one changes nothing.
    ///
    /// # Errors
    /// [`NoSpace`](crate::ErrorKind::NoSpace): the old size goes on working.
    /// [`Unsupported`](crate::ErrorKind::Unsupported): the device has a fixed size.
    fn grow(&self, new_capacity_bytes: u64) -> Result<()>;

    /// As [`grow`](Self::grow), for bytes that are about to be written anyway: they need not be written before.
    ///
    /// # Errors
    /// As [`grow`](Self::grow).
    fn reserve(&self, new_capacity_bytes: u64) -> Result<()> {
        self.grow(new_capacity_bytes)
    }

    /// Makes the device `new_capacity_bytes` large, durably, and gives the rest back to what it lies on. A size not below the present
    /// one changes nothing. No request that reaches beyond the new end may be under way.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported): the device has a fixed size. When it fails otherwise, the device has its old
    /// size or its new one.
    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        if new_capacity_bytes >= self.capacity_bytes() {
            return Ok(());
        }
        Err(Error::unsupported(self.name(), "shrink: it has a fixed size"))
    }
}

/// Within the `impl Device` of a device that stands before another: passes these methods on to the one in a field. `zones` stands for
/// all that concern zones.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, Durability, MemoryDevice, Result};
///
/// /// Blocking writes are durable, whether that was asked for or not.
/// #[derive(Debug)]
/// struct WriteThrough(Arc<MemoryDevice>);
///
/// impl Device for WriteThrough {
///     tantalum_device::forward!(0: name, capacity_bytes, capabilities, hardware, read, submit, flush, discard, zones, release, grow, reserve, shrink);
///
///     fn write(&self, offset: u64, buffers: &[&[u8]], _: Durability) -> Result<()> {
///         self.0.write(offset, buffers, Durability::Durable)
///     }
/// }
/// assert_eq!(WriteThrough(MemoryDevice::new("memory", 4096)).capacity_bytes(), 4096);
/// ```
#[macro_export]
macro_rules! forward {
    ($device:tt: $($method:ident),+) => { $($crate::forward!(@$method $device);)+ };
    (@name $device:tt) => {
        fn name(&self) -> &str {
            self.$device.name()
        }
    };
    (@capacity_bytes $device:tt) => {
        fn capacity_bytes(&self) -> u64 {
            self.$device.capacity_bytes()
        }
    };
    (@capabilities $device:tt) => {
        fn capabilities(&self) -> $crate::Capabilities {
            self.$device.capabilities()
        }
    };
    (@hardware $device:tt) => {
        fn hardware(&self) -> $crate::Hardware {
            self.$device.hardware()
        }
    };
    (@read $device:tt) => {
        fn read(&self, offset: u64, buffer: &mut [u8]) -> $crate::Result<()> {
            self.$device.read(offset, buffer)
        }
    };
    (@read_many $device:tt) => {
        fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> $crate::Result<()> {
            self.$device.read_many(reads)
        }
    };
    (@write $device:tt) => {
        fn write(&self, offset: u64, buffers: &[&[u8]], durability: $crate::Durability) -> $crate::Result<()> {
            self.$device.write(offset, buffers, durability)
        }
    };
    (@write_placed $device:tt) => {
        fn write_placed(
            &self,
            offset: u64,
            buffers: &[&[u8]],
            durability: $crate::Durability,
            handle: u32,
        ) -> $crate::Result<()> {
            self.$device.write_placed(offset, buffers, durability, handle)
        }
    };
    (@submit $device:tt) => {
        fn submit(
            &self,
            offset: u64,
            buffer: ::std::sync::Arc<$crate::AlignedBuffer>,
            range: ::std::ops::Range<usize>,
            durability: $crate::Durability,
        ) -> $crate::Result<Box<dyn $crate::PendingWrite>> {
            self.$device.submit(offset, buffer, range, durability)
        }
    };
    (@flush $device:tt) => {
        fn flush(&self) -> $crate::Result<()> {
            self.$device.flush()
        }
    };
    (@shared_flushes $device:tt) => {
        fn shared_flushes(&self) -> Option<&$crate::SharedFlushes> {
            self.$device.shared_flushes()
        }
    };
    (@flush_unshared $device:tt) => {
        fn flush_unshared(&self) -> $crate::Result<()> {
            self.$device.flush_unshared()
        }
    };
    (@discard $device:tt) => {
        fn discard(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.$device.discard(offset, len)
        }
    };
    (@zones $device:tt) => {
        fn reset_zone(&self, offset: u64) -> $crate::Result<()> {
            self.$device.reset_zone(offset)
        }

        fn finish_zone(&self, offset: u64) -> $crate::Result<()> {
            self.$device.finish_zone(offset)
        }

        fn active_zones(&self) -> $crate::Result<Vec<u64>> {
            self.$device.active_zones()
        }
    };
    (@release $device:tt) => {
        fn release(&self, offset: u64, len: u64) -> $crate::Result<()> {
            self.$device.release(offset, len)
        }
    };
    (@grow $device:tt) => {
        fn grow(&self, new_capacity_bytes: u64) -> $crate::Result<()> {
            self.$device.grow(new_capacity_bytes)
        }
    };
    (@reserve $device:tt) => {
        fn reserve(&self, new_capacity_bytes: u64) -> $crate::Result<()> {
            self.$device.reserve(new_capacity_bytes)
        }
    };
    (@shrink $device:tt) => {
        fn shrink(&self, new_capacity_bytes: u64) -> $crate::Result<()> {
            self.$device.shrink(new_capacity_bytes)
        }
    };
}

/// A write that was submitted. Whichever task holds it can wait for it.
///
/// Dropping it neither waits nor cancels: the write goes on.
pub trait PendingWrite: Send {
    /// Waits until the write has completed, at most for `timeout`; without one, until the end.
    ///
    /// `None` means that it is still under way. After `Some`, it must not be called again.
    ///
    /// # Panics
    /// May panic when called again after `Some`.
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>>;

    /// Whether [`PendingWrite::wait`] would return `Some` at once.
    fn is_done(&mut self) -> bool;
}

/// Checks a range against a block and a size; `device` is named in the error.
pub(crate) fn check_blocks(device: &str, block: u32, capacity: u64, offset: u64, len: u64) -> Result<()> {
    if !offset.is_multiple_of(u64::from(block)) || !len.is_multiple_of(u64::from(block)) {
        return Err(Error::misaligned(device, offset, len, block));
    }
    match offset.checked_add(len) {
        Some(end) if end <= capacity => Ok(()),
        _ => Err(Error::out_of_range(device, offset, len, capacity)),
    }
}

/// A write that ended when it was submitted, on a device whose writes take no time.
///
/// ```
/// use tantalum_device::{EndedWrite, PendingWrite};
/// assert!(EndedWrite.is_done() && EndedWrite.wait(None).is_some_and(|result| result.is_ok()));
/// ```
#[derive(Debug)]
pub struct EndedWrite;

impl PendingWrite for EndedWrite {
    fn wait(&mut self, _: Option<Duration>) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn is_done(&mut self) -> bool {
        true
    }
}

/// The bytes in all of `buffers`.
pub(crate) fn total_len(buffers: &[&[u8]]) -> usize {
    buffers.iter().map(|buffer| buffer.len()).sum()
}

/// The concatenation of `buffers`, aligned.
pub(crate) fn gather(buffers: &[&[u8]]) -> AlignedBuffer {
    let mut gathered = AlignedBuffer::zeroed(total_len(buffers));
    let mut at = 0;
    for buffer in buffers {
        gathered[at..at + buffer.len()].copy_from_slice(buffer);
        at += buffer.len();
    }
    gathered
}
