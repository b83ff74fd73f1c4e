//! Opening, creating and growing files.
//!
//! A new range is allocated *and* written with zeros, so that no later write has to change the file's metadata.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use tantalum_rt::Mutex;

use super::raw::RawFile;
use super::{Access, FileDevice, ReadRings, RingPool, Shared, sysfs};
use crate::device::check_blocks;
use crate::{ALIGNMENT, AlignedBuffer, Durability, Error, ErrorKind, Hardware, Result};

/// Bytes of zeros written at once.
const CHUNK_BYTES: u64 = 1 << 20;

type Progress<'a> = Option<&'a mut dyn FnMut(u64, u64)>;

impl FileDevice {
    /// Creates a regular file of `size_bytes` zeros, allocated, written and durable, its name too. `progress` gets
    /// the bytes done and the total after each step of about 1 MiB. On failure the file is removed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] unless the size is a multiple of 4096, [`ErrorKind::NoSpace`], [`ErrorKind::Io`] (also
    /// if the file exists).
    pub fn create(
        path: impl AsRef<Path>,
        size_bytes: u64,
        progress: Option<&mut dyn FnMut(u64, u64)>,
    ) -> Result<FileDevice> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let failed = |source: io::Error| Error::io(&name, "create", 0, size_bytes, source);
        check_blocks(&name, ALIGNMENT as u32, u64::MAX, 0, size_bytes)?;
        // Without O_DIRECT: a file system that refuses it would create the file and then fail.
        OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        let created = FileDevice::open(path, Access::ReadWrite).and_then(|device| {
            extend(&device.shared.raw, 0, size_bytes, progress)?;
            sync_parent(path).map_err(failed)?;
            // Anew: what can be done with the file shows only when it has its bytes.
            drop(device);
            FileDevice::open(path, Access::ReadWrite)
        });
        if created.is_err() {
            // The first error matters more than a file left behind.
            let _removed = fs::remove_file(path);
        }
        created
    }

    /// As [`create`](Self::create), but the zeros take no space: it is allocated when something is written there. The disk must
    /// have the space at this moment.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_sparse(path: impl AsRef<Path>, size_bytes: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let failed = |source: io::Error| Error::io(&name, "create", 0, size_bytes, source);
        check_blocks(&name, ALIGNMENT as u32, u64::MAX, 0, size_bytes)?;
        let file = OpenOptions::new().write(true).create_new(true).open(path).map_err(failed)?;
        let created = check_space(&file, &name, 0, size_bytes)
            .and_then(|()| file.set_len(size_bytes).and_then(|()| file.sync_all()).map_err(failed))
            .and_then(|()| sync_parent(path).map_err(failed))
            .and_then(|()| FileDevice::open(path, Access::ReadWrite));
        if created.is_err() {
            // The first error matters more than a file left behind.
            let _removed = fs::remove_file(path);
        }
        created
    }

    /// Opens an existing regular file or block device. A file's size is rounded down to whole logical blocks.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`], [`ErrorKind::InUse`], [`ErrorKind::ReadOnly`], [`ErrorKind::Io`];
    /// [`ErrorKind::Unsupported`] for a block device that must be written in order (host-managed zones).
    pub fn open(path: impl AsRef<Path>, access: Access) -> Result<FileDevice> {
        let path = path.as_ref();
        let name: Arc<str> = path.to_string_lossy().into();
        let failed = |source: io::Error| Error::io(&name, "open", 0, 0, source);
        // Looked at before it is opened, since opening a pipe would block and opening a tape would wind it.
        let is_block_device = self::is_block_device(&name, &fs::metadata(path).map_err(failed)?)?;
        let (mut file, direct) = open_direct(path, access, is_block_device).map_err(|source| match source.kind() {
            io::ErrorKind::ResourceBusy => Error::new(
                ErrorKind::InUse,
                format!("{name} is in use (mounted, or part of another device); unmount it first"),
            ),
            _ => failed(source),
        })?;
        let metadata = file.metadata().map_err(failed)?;
        if self::is_block_device(&name, &metadata)? != is_block_device {
            return Err(failed(io::Error::other("the file was replaced while it was opened; try again")));
        }
        if is_block_device && access == Access::ReadWrite && sysfs::is_write_protected(&metadata) {
            // The kernel opens it all the same, and refuses each write.
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!(
                    "{name} is write-protected; let it be written to first (losetup without --read-only, blockdev --setrw)"
                ),
            ));
        }
        sysfs::refuse_zones(&name, &metadata)?;
        let size = if is_block_device { file.seek(SeekFrom::End(0)).map_err(failed)? } else { metadata.len() };
        let (mut capabilities, limits) = sysfs::inspect(&file, &metadata, direct);
        let capacity_bytes = size - size % u64::from(capabilities.logical_block);
        let writable = access == Access::ReadWrite;
        let mut raw = RawFile { name, file, limits, writable, poison: OnceLock::new() };
        if !raw.confirm_atomic_writes(capacity_bytes)? {
            raw.limits.atomic_max = 0;
            capabilities.atomic_write_bytes = 0;
        }
        let raw = Arc::new(raw);
        Ok(FileDevice {
            shared: Arc::new(Shared {
                raw,
                rings: RingPool::new(),
                read_rings: ReadRings::new(),
                tasks: Mutex::default(),
            }),
            capabilities,
            hardware: Hardware::Disk(sysfs::disk(&metadata)),
            is_block_device,
            capacity_bytes: AtomicU64::new(capacity_bytes),
            growing: Mutex::new(()),
        })
    }
}

/// Opens with `O_DIRECT`, or without where the file system refuses it. The second value says which.
fn open_direct(path: &Path, access: Access, is_block_device: bool) -> io::Result<(File, bool)> {
    let writable = access == Access::ReadWrite;
    // On a block device, O_EXCL without O_CREAT asks for exclusive use: the kernel refuses a device that is in use.
    let exclusive = if writable && is_block_device { OFlags::EXCL } else { OFlags::empty() };
    let open =
        |flags: OFlags| OpenOptions::new().read(true).write(writable).custom_flags(flags.bits() as i32).open(path);
    match open(exclusive | OFlags::DIRECT) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((open(exclusive)?, false)),
        opened => Ok((opened?, true)),
    }
}

fn is_block_device(name: &Arc<str>, metadata: &fs::Metadata) -> Result<bool> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok(kind.is_block_device());
    }
    let found = if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    };
    let what = format!("{name} is {found}; expected a regular file or a block device");
    Err(Error::new(ErrorKind::InvalidInput, what))
}

/// Makes the file's name durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// Adds zeros from byte `from` to byte `to`, durably. On failure the file has its old size again.
pub(super) fn extend(raw: &RawFile, from: u64, to: u64, progress: Progress<'_>) -> Result<()> {
    let extended = write_zeros(raw, from, to, progress)
        .and_then(|()| raw.file.sync_all().map_err(|source| raw.io_error("flush", from, to - from, source)));
    if extended.is_err() {
        // Space that stays allocated past the end does no harm; the next growth uses it.
        let _shortened = raw.file.set_len(from);
    }
    extended
}

/// As [`extend`], but writes no zeros where the file system keeps account of what was not written. Such bytes cost the first flush
/// after they are written a little more.
pub(super) fn reserve(raw: &RawFile, from: u64, to: u64) -> Result<()> {
    check_space(&raw.file, &raw.name, from, to)?;
    match rustix::fs::fallocate(&raw.file, FallocateFlags::empty(), from, to - from) {
        Ok(()) => {}
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => return extend(raw, from, to, None),
        Err(errno) => return Err(raw.io_error("allocate", from, to - from, errno)),
    }
    raw.file.sync_all().map_err(|source| {
        let _shortened = raw.file.set_len(from);
        raw.io_error("flush", from, to - from, source)
    })
}

/// Refuses a range that the disk has no space for.
fn check_space(file: &File, name: &Arc<str>, from: u64, to: u64) -> Result<()> {
    match rustix::fs::fstatvfs(file) {
        Ok(space) if space.f_blocks > 0 && space.f_bavail.saturating_mul(space.f_frsize) < to - from => {
            Err(Error::no_space(name, from, to - from))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn write_zeros(raw: &RawFile, from: u64, to: u64, mut progress: Progress<'_>) -> Result<()> {
    if from == to {
        return Ok(());
    }
    // Asked first, because allocating would fill the disk for everyone before it fails.
    check_space(&raw.file, &raw.name, from, to)?;
    // Gets the space in few pieces, or finds out before anything is written that there is too little.
    match rustix::fs::fallocate(&raw.file, FallocateFlags::empty(), from, to - from) {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
        Err(errno) => return Err(raw.io_error("allocate", from, to - from, errno)),
    }
    let zeros = AlignedBuffer::zeroed(CHUNK_BYTES.min(to - from) as usize);
    let mut at = from;
    while at < to {
        let len = CHUNK_BYTES.min(to - at);
        raw.write(at, &[&zeros[..len as usize]], Durability::Cached)?;
        at += len;
        if let Some(progress) = &mut progress {
            progress(at - from, to - from);
        }
    }
    Ok(())
}
