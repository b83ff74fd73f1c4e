//! A regular file or a raw block device.
//!
//! Promises: a durable write is one `pwritev2(RWF_DSYNC)` on a preallocated, pre-written range, so that it changes no
//! metadata; reads and writes pass by the page cache where the file system allows it; no write reaches the file after
//! the last handle is dropped.

mod open;
#[cfg(feature = "io-uring")]
mod parallel_reads;
mod pending;
mod raw;
mod sysfs;
#[cfg(feature = "io-uring")]
mod uring;
#[cfg(not(feature = "io-uring"))]
mod without_uring;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use tantalum_rt::{JoinHandle, Mutex};

use crate::device::{check_blocks, gather, total_len};
use crate::{AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result};
#[cfg(feature = "io-uring")]
use parallel_reads::ReadRings;
use pending::{HelperWrite, Write};
use raw::RawFile;
#[cfg(feature = "io-uring")]
use uring::RingPool;
#[cfg(not(feature = "io-uring"))]
use without_uring::{ReadRings, RingPool};

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading only: every write, flush, discard and growth fails with [`ReadOnly`](crate::ErrorKind::ReadOnly).
    ReadOnly,
    /// Reading and writing. A block device is opened exclusively, which fails while it is mounted.
    ReadWrite,
}

/// A regular file or a block device.
///
/// I/O is direct (`O_DIRECT`); where the file system refuses that (tmpfs), it goes through the page cache, and
/// [`Capabilities::direct`] says so. Waiting happens in the kernel, so in a simulation it takes no virtual time.
/// Pending writes that were dropped are waited for when the last handle to the file goes.
///
/// [`Device::write_placed`] names one of the streams that the system reports for a block device (Linux 6.16 and later, by io_uring);
/// to a file on a file system it is a write.
///
/// [`Device::discard`] does nothing to a regular file: giving blocks back would make later writes allocate.
/// [`Device::release`] gives them back.
///
/// ```
/// use tantalum_device::{Access, Device, Durability, FileDevice};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("log");
/// let file = FileDevice::create(&path, 1 << 20, None)?;
/// file.write(4096, &[&[1; 4096]], Durability::Durable)?;
/// drop(file);
///
/// let file = FileDevice::open(&path, Access::ReadOnly)?;
/// println!("{}: {}", file.name(), file.capabilities());
/// let mut block = [0; 4096];
/// file.read(4096, &mut block)?;
/// assert_eq!(block, [1; 4096]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FileDevice {
    shared: Arc<Shared>,
    capabilities: Capabilities,
    hardware: Hardware,
    is_block_device: bool,
    capacity_bytes: AtomicU64,
    growing: Mutex<()>,
}

/// What requests under way need of the device.
#[derive(Debug)]
struct Shared {
    raw: Arc<RawFile>,
    rings: RingPool,
    read_rings: ReadRings,
    /// Helper tasks of writes that no caller waits for.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Device for FileDevice {
    fn name(&self) -> &str {
        &self.shared.raw.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Ordering::Acquire)
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn hardware(&self) -> Hardware {
        self.hardware
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        self.shared.raw.read(offset, buffer)
    }

    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter().try_for_each(|(offset, buffer)| self.check_range(*offset, buffer.len() as u64))?;
        self.shared.read_rings.read(&self.shared.raw, reads)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.check_range(offset, total_len(buffers) as u64)?;
        self.shared.raw.write(offset, buffers, durability)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        let handles = self.capabilities.placement_handles;
        if handles < 2 || handle >= handles {
            return self.write(offset, buffers, durability);
        }
        self.check_range(offset, total_len(buffers) as u64)?;
        self.shared.raw.check_writable()?;
        let buffer = Arc::new(gather(buffers));
        let range = 0..buffer.len();
        // The kernel counts them from 1; there are no more than it can be told of.
        let stream = (handle + 1) as u8;
        match RingPool::submit(&self.shared, Write { offset, buffer, range, durability, stream }) {
            Ok(mut write) => write.wait(None).expect("without a time-out it waits for the end"),
            Err(write) => self.shared.raw.write(offset, &[&write.buffer[..]], durability),
        }
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let bytes = &buffer[range.clone()];
        self.check_range(offset, bytes.len() as u64)?;
        self.shared.raw.check_writable()?;
        let write = if self.shared.raw.limits.takes(bytes) {
            Write { offset, buffer, range, durability, stream: 0 }
        } else {
            let buffer = Arc::new(AlignedBuffer::copy_from(bytes));
            Write { offset, range: 0..bytes.len(), buffer, durability, stream: 0 }
        };
        RingPool::submit(&self.shared, write)
            .or_else(|write| Ok(Box::new(HelperWrite::start(Arc::clone(&self.shared), write))))
    }

    fn flush(&self) -> Result<()> {
        self.shared.raw.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let raw = &self.shared.raw;
        self.check_range(offset, len)?;
        raw.check_writable()?;
        if !self.is_block_device || len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&raw.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(raw.io_error("discard", offset, len, errno)),
        }
    }

    fn release(&self, offset: u64, len: u64) -> Result<()> {
        let raw = &self.shared.raw;
        self.check_range(offset, len)?;
        raw.check_writable()?;
        let unsupported = || Error::unsupported(&raw.name, "give back the space of a part of it");
        if self.is_block_device {
            return Err(unsupported());
        }
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&raw.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => Ok(()),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(unsupported()),
            Err(errno) => Err(raw.io_error("release", offset, len, errno)),
        }
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.extend_to(new_capacity_bytes, |raw, from, to| open::extend(raw, from, to, None))
    }

    fn reserve(&self, new_capacity_bytes: u64) -> Result<()> {
        self.extend_to(new_capacity_bytes, open::reserve)
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        let raw = &self.shared.raw;
        raw.check_writable()?;
        let _growing = self.growing.lock();
        let old = self.capacity_bytes();
        if new_capacity_bytes >= old {
            return Ok(());
        }
        if self.is_block_device {
            return Err(Error::unsupported(&raw.name, "shrink: a block device has a fixed size"));
        }
        check_blocks(&raw.name, self.capabilities.logical_block, u64::MAX, new_capacity_bytes, 0)?;
        // First: no request goes beyond the new end, whether the file has it already or not.
        self.capacity_bytes.store(new_capacity_bytes, Ordering::Release);
        let cut = raw.file.set_len(new_capacity_bytes).and_then(|()| raw.file.sync_all());
        cut.map_err(|source| raw.io_error("shrink", new_capacity_bytes, old - new_capacity_bytes, source))
    }
}

impl FileDevice {
    /// Makes a file larger as `extend` does it, from its present size on.
    fn extend_to(&self, new_capacity_bytes: u64, extend: impl Fn(&RawFile, u64, u64) -> Result<()>) -> Result<()> {
        let raw = &self.shared.raw;
        raw.check_writable()?;
        let _growing = self.growing.lock();
        let old = self.capacity_bytes();
        if new_capacity_bytes <= old {
            return Ok(());
        }
        if self.is_block_device {
            return Err(Error::unsupported(&raw.name, "grow: a block device has a fixed size"));
        }
        check_blocks(&raw.name, self.capabilities.logical_block, u64::MAX, old, new_capacity_bytes - old)?;
        extend(raw, old, new_capacity_bytes)?;
        self.capacity_bytes.store(new_capacity_bytes, Ordering::Release);
        Ok(())
    }
}

impl Shared {
    fn abandon_task(&self, task: JoinHandle<()>) {
        let mut tasks = self.tasks.lock();
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.rings.drain(&self.raw);
        for task in std::mem::take(&mut *self.tasks.lock()) {
            // A task's panic was reported when it happened; here only its end matters.
            let _ended = task.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Duration;

    use rustix::io::ReadWriteFlags;

    use super::raw::Limits;
    use super::*;
    use crate::{ErrorKind, WithoutBarriers};

    const FILE_BYTES: u64 = 64 << 10;

    fn create() -> (tempfile::TempDir, FileDevice) {
        let directory = tempfile::tempdir().unwrap();
        let device = FileDevice::create(directory.path().join("file"), FILE_BYTES, None).unwrap();
        (directory, device)
    }

    /// The same file as on a system without io_uring.
    fn without_io_uring(device: FileDevice) -> FileDevice {
        let raw = Arc::clone(&device.shared.raw);
        let shared = Shared {
            raw,
            rings: RingPool::unavailable(),
            read_rings: ReadRings::unavailable(),
            tasks: Mutex::default(),
        };
        FileDevice { shared: Arc::new(shared), ..device }
    }

    fn block(device: &FileDevice, offset: u64) -> Vec<u8> {
        let mut block = vec![0xee; 4096];
        device.read(offset, &mut block).unwrap();
        block
    }

    #[test]
    fn without_io_uring_a_task_writes() {
        let (_directory, device) = create();
        let device = without_io_uring(device);
        let buffer = Arc::new(AlignedBuffer::copy_from(&[7; 8192]));
        let mut writes: Vec<_> = (0..8)
            .map(|i| device.submit(i * 4096, Arc::clone(&buffer), 4096..8192, Durability::Durable).unwrap())
            .collect();
        for write in &mut writes {
            while write.wait(Some(Duration::from_micros(10))).is_none() {}
        }
        for i in 0..8 {
            assert_eq!(block(&device, i * 4096), [7; 4096]);
        }
    }

    #[test]
    fn dropping_the_device_waits_for_abandoned_tasks() {
        let (directory, device) = create();
        let device = without_io_uring(device);
        for i in 0..4 {
            let buffer = Arc::new(AlignedBuffer::copy_from(&[i as u8 + 1; 4096]));
            drop(device.submit(i * 4096, buffer, 0..4096, Durability::Cached).unwrap());
        }
        drop(device);
        let bytes = std::fs::read(directory.path().join("file")).unwrap();
        assert!((0..4).all(|i| bytes[i * 4096..(i + 1) * 4096].iter().all(|&byte| byte == i as u8 + 1)));
    }

    #[test]
    fn a_failed_durable_write_is_final_and_repeats_the_first_cause() {
        let (_directory, device) = create();
        let raw = &device.shared.raw;
        let failure = |errno: Errno| io::Error::from(errno);
        raw.write_failed(0, 4096, Durability::Cached, failure(Errno::IO));
        raw.write_failed(0, 4096, Durability::Durable, failure(Errno::NOSPC));
        device.flush().unwrap();

        raw.write_failed(8192, 4096, Durability::Durable, failure(Errno::IO));
        raw.write_failed(0, 4096, Durability::Durable, failure(Errno::BADF));
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        let errors = [
            device.flush().unwrap_err(),
            device.write(0, &[&[0; 4096]], Durability::Cached).unwrap_err(),
            device.submit(0, buffer, 0..4096, Durability::Durable).map(drop).unwrap_err(),
            device.grow(2 * FILE_BYTES).unwrap_err(),
        ];
        for error in errors {
            let cause = error.first_cause();
            assert_eq!((error.kind(), cause.kind()), (ErrorKind::WritesLost, ErrorKind::Io));
            let errno = cause.cause().and_then(io::Error::raw_os_error);
            assert!(errno == Some(5) && cause.to_string().contains("at byte 8192"), "{error}");
        }
        assert_eq!(block(&device, 0), [0; 4096]);
    }

    #[test]
    fn a_delivered_write_is_made_durable_by_the_kernel_unless_that_would_flush_the_device() {
        let (_directory, device) = create();
        let mut limits = device.shared.raw.limits;
        for delivers_plainly in [false, true] {
            limits.delivers_plainly = delivers_plainly;
            let asks = |durability| limits.flags(0, 4096, durability).contains(ReadWriteFlags::DSYNC);
            assert_eq!(asks(Durability::Delivered), !delivers_plainly);
            assert!(asks(Durability::Durable) && !asks(Durability::Cached));
        }
        let file = WithoutBarriers::new(Arc::new(device));
        let buffer = Arc::new(AlignedBuffer::copy_from(&[3; 4096]));
        file.submit(4096, buffer, 0..4096, Durability::Cached).unwrap().wait(None).unwrap().unwrap();
        file.flush().unwrap();
        let mut block = [0; 4096];
        file.read(4096, &mut block).unwrap();
        assert_eq!(block, [3; 4096]);
    }

    #[test]
    fn writes_that_fit_are_atomic_and_what_the_kernel_refuses_is_not_claimed() {
        let (_directory, device) = create();
        let reported = device.shared.raw.limits.atomic_max;
        let file = device.shared.raw.file.try_clone().unwrap();
        let limits = Limits { atomic_min: 4096, atomic_max: 16384, ..device.shared.raw.limits };
        let atomic = ReadWriteFlags::from_bits_retain(0x40);
        let is_atomic = |offset, len| limits.flags(offset, len, Durability::Cached).contains(atomic);
        assert!(is_atomic(4096, 4096) && is_atomic(16384, 16384) && is_atomic(24576, 8192));
        assert!(!is_atomic(4096, 8192), "it must lie at a multiple of its size");
        assert!(!is_atomic(0, 12288) && !is_atomic(0, 512) && !is_atomic(0, 32768));
        // As if statx reported them: only a system that does report them takes them.
        let raw = RawFile { name: "claimed".into(), file, limits, writable: true, poison: Default::default() };
        assert_eq!(raw.confirm_atomic_writes(FILE_BYTES).unwrap(), reported >= 16384);
        assert!(raw.confirm_atomic_writes(4096).unwrap(), "too short to try");
        assert_eq!(block(&device, 0), [0; 4096]);
        assert_eq!(device.capabilities().atomic_write_bytes as usize, reported);
        if reported > 0 {
            device.write(0, &[&vec![5; reported.min(4096)]], Durability::Durable).unwrap();
            assert_eq!(block(&device, 0)[..reported.min(4096)], vec![5; reported.min(4096)]);
        }
    }

    #[test]
    fn through_the_page_cache_nothing_need_be_aligned_in_memory() {
        let (directory, device) = create();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(directory.path().join("file")).unwrap();
        let (capabilities, limits) = sysfs::inspect(&file, &file.metadata().unwrap(), false);
        assert!(!capabilities.direct && !limits.direct);
        let raw = RawFile { name: "buffered".into(), file, limits, writable: true, poison: Default::default() };
        raw.write(4096, &[&[1; 100], &[2; 3996]], Durability::Durable).unwrap();
        let mut bytes = [0; 8193];
        raw.read(0, &mut bytes[1..]).unwrap();
        assert_eq!((bytes[4096], bytes[4097], bytes[4197], bytes[8192]), (0, 1, 2, 2));
        drop(device);
    }

    #[cfg(feature = "io-uring")]
    #[test]
    fn what_the_kernel_cancels_or_cuts_short_is_completed_by_the_waiter() {
        let (_directory, device) = create();
        let buffer = Arc::new(AlignedBuffer::copy_from(&[9; 8192]));
        for (offset, result) in [(0, 4096), (8192, -Errno::CANCELED.raw_os_error()), (16384, 0)] {
            let write = Write {
                offset,
                buffer: Arc::clone(&buffer),
                range: 0..8192,
                durability: Durability::Durable,
                stream: 0,
            };
            write.finish(result, &device.shared.raw).unwrap();
            assert_eq!(block(&device, offset + 4096), [9; 4096]);
        }
        let write = Write { offset: 0, buffer, range: 0..8192, durability: Durability::Cached, stream: 0 };
        let error = write.finish(-Errno::IO.raw_os_error(), &device.shared.raw).unwrap_err();
        assert!(error.to_string().contains("cannot write") && error.is_io(), "{error}");
        assert!(error.to_string().contains("at byte 0 for 8192 bytes"), "{error}");
    }

    /// A stand-in for a device with handles: the system ignores the streams of a file, and refuses those that a device has not.
    #[cfg(feature = "io-uring")]
    #[test]
    fn a_placed_write_is_made_whether_the_system_takes_its_stream_or_not() {
        let (_directory, mut device) = create();
        device.capabilities.placement_handles = 4;
        for (number, handle) in [0, 3, 4, u32::MAX].into_iter().enumerate() {
            let (first, second) = ([number as u8 + 1; 1000], [number as u8 + 101; 3096]);
            device.write_placed(number as u64 * 4096, &[&first, &second], Durability::Durable, handle).unwrap();
            let written = block(&device, number as u64 * 4096);
            assert!(written[..1000] == first && written[1000..] == second, "handle {handle}");
        }
        assert_eq!(
            device.write_placed(FILE_BYTES, &[&[0; 4096]], Durability::Cached, 1).unwrap_err().kind(),
            ErrorKind::OutOfRange
        );

        let buffer = Arc::new(AlignedBuffer::copy_from(&[9; 4096]));
        let write = |stream| Write {
            offset: 0,
            buffer: Arc::clone(&buffer),
            range: 0..4096,
            durability: Durability::Cached,
            stream,
        };
        let refused = -Errno::INVAL.raw_os_error();
        write(0).finish(refused, &device.shared.raw).unwrap_err();
        write(4).finish(refused, &device.shared.raw).unwrap();
        assert_eq!(block(&device, 0), [9; 4096]);
        device.shared.raw.write_failed(0, 4096, Durability::Durable, io::Error::from(Errno::IO));
        assert_eq!(
            device.write_placed(0, &[&[0; 4096]], Durability::Cached, 1).unwrap_err().kind(),
            ErrorKind::WritesLost
        );
    }

    #[cfg(feature = "io-uring")]
    #[test]
    fn rings_are_reused() {
        let (_directory, device) = create();
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        let submit = || device.submit(0, Arc::clone(&buffer), 0..4096, Durability::Cached).unwrap();
        for _ in 0..10 {
            let mut pair = [submit(), submit()];
            assert!(pair.iter_mut().all(|write| write.wait(None).unwrap().is_ok()));
        }
        // At most the two that were under way at the same time; none without io_uring.
        assert!(device.shared.rings.idle_rings() <= 2);
    }
}
