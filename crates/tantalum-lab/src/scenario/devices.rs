//! Devices below a scenario's database: contents that take no time, and contents that take a drive's time.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, EndedWrite, Error, Hardware, PendingWrite, Result, WriteCache,
};
use tantalum_flash::Contents;
use tantalum_rt::Mutex;

/// A device that takes no time and loses nothing.
#[derive(Debug)]
pub(super) struct Instant {
    name: Arc<str>,
    capacity_bytes: u64,
    contents: Mutex<Contents>,
}

const BLOCK: u32 = 512;

impl Instant {
    pub fn new(name: &str, contents: Contents) -> Arc<Self> {
        let capacity_bytes = contents.len();
        Arc::new(Self { name: name.into(), capacity_bytes, contents: Mutex::new(contents) })
    }

    /// What it holds now; a later write changes only one of the two.
    pub fn contents(&self) -> Contents {
        self.contents.lock().fork().expect("its contents lie in memory")
    }
}

impl Device for Instant {
    fn name(&self) -> &str {
        &self.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { write_cache: WriteCache::None, fua: Some(true), ..Capabilities::unknown(BLOCK) }
    }

    fn hardware(&self) -> Hardware {
        Hardware::Memory(std::ptr::from_ref(self).addr())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        self.contents.lock().read(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], _durability: Durability) -> Result<()> {
        self.check_range(offset, buffers.iter().map(|buffer| buffer.len() as u64).sum())?;
        let (mut contents, mut at) = (self.contents.lock(), offset);
        for buffer in buffers {
            contents.write(at, buffer);
            at += buffer.len() as u64;
        }
        Ok(())
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.write(offset, &[&buffer[range]], durability)?;
        Ok(Box::new(EndedWrite))
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn discard(&self, _offset: u64, _len: u64) -> Result<()> {
        Ok(())
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        match new_capacity_bytes <= self.capacity_bytes {
            true => Ok(()),
            false => Err(Error::unsupported(&self.name, "grow: its size is fixed")),
        }
    }
}

/// Contents in memory that take a drive's time: runs begin with a database on the drive that was loaded once. The drive never looks
/// at bytes; it holds zeros, which take no memory.
#[derive(Debug)]
pub(super) struct Timed {
    contents: Arc<Instant>,
    drive: Arc<dyn Device>,
    zeros: Arc<AlignedBuffer>,
    /// Whether reads take no time.
    is_resident: bool,
    /// Whether writes take no time any more and go nowhere.
    is_over: AtomicBool,
}

/// More than the engine writes at once: an append of 124 pages of 16 KiB, with as many blocks of metadata and more.
const LARGEST_WRITE_BYTES: usize = 4 << 20;

impl Timed {
    /// `drive` has the size of `contents`.
    pub fn new(contents: Contents, drive: Arc<dyn Device>, is_resident: bool) -> Arc<Self> {
        assert_eq!(contents.len(), drive.capacity_bytes(), "the drive has the size of what lies on it");
        let (contents, is_over) = (Instant::new(drive.name(), contents), AtomicBool::new(false));
        Arc::new(Self {
            contents,
            drive,
            zeros: Arc::new(AlignedBuffer::zeroed(LARGEST_WRITE_BYTES)),
            is_resident,
            is_over,
        })
    }

    /// Lets the database close quickly, when nothing more is measured or kept.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

impl Device for Timed {
    tantalum_device::forward!(drive: name, capacity_bytes, capabilities, hardware, grow);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if !self.is_resident {
            self.drive.read(offset, buffer)?;
        }
        self.contents.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_placed(offset, buffers, durability, 0)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        if self.is_over() {
            return Ok(());
        }
        self.contents.write(offset, buffers, durability)?;
        let bytes = buffers.iter().map(|buffer| buffer.len()).sum();
        self.drive.write_placed(offset, &[&self.zeros[..bytes]], durability, handle)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        if self.is_over() {
            return Ok(Box::new(EndedWrite));
        }
        self.contents.write(offset, &[&buffer[range.clone()]], durability)?;
        self.drive.submit(offset, Arc::clone(&self.zeros), 0..range.len(), durability)
    }

    fn flush(&self) -> Result<()> {
        if self.is_over() { Ok(()) } else { self.drive.flush() }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        if self.is_over() { Ok(()) } else { self.drive.discard(offset, len) }
    }
}
