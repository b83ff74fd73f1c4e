//! What can go wrong with a device, and where.
//!
//! Errors can be cloned, because a device whose flush failed answers every later write with the first cause.

use std::io;
use std::sync::Arc;

/// What the crate's functions return.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation on a device failed.
///
/// ```
/// # use tantalum_device::{Device, Error, MemoryDevice};
/// let device = MemoryDevice::new("log", 1 << 20);
/// let error = device.read(1 << 20, &mut [0; 4096]).unwrap_err();
/// assert!(matches!(error, Error::OutOfRange { .. }));
/// assert!(error.to_string().contains("log"));
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system or the medium refused the operation.
    #[error("cannot {operation} {device}{}: {cause}", place(*offset, *len))]
    Io {
        /// Name of the device.
        device: Arc<str>,
        /// What was tried: `read`, `write`, `flush`, `open`, ...
        operation: &'static str,
        /// First byte concerned.
        offset: u64,
        /// Bytes concerned; 0 where the operation concerns the whole device.
        len: u64,
        /// What the operating system said.
        #[source]
        cause: Cause,
    },
    /// Offset or length is not a multiple of the logical block.
    #[error("{device}: byte {offset}, length {len} is not a whole number of blocks; align both to {block} bytes")]
    Misaligned {
        /// Name of the device.
        device: Arc<str>,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Alignment expected, in bytes.
        block: u32,
    },
    /// The range does not lie within the device.
    #[error("{device}: byte {offset}, length {len} ends past the device, which has {capacity} bytes; grow it first")]
    OutOfRange {
        /// Name of the device.
        device: Arc<str>,
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the device in bytes.
        capacity: u64,
    },
    /// The file is shorter than it was when it was opened.
    #[error(
        "{device}: expected {len} bytes at byte {offset}, but the file ends after {found} of them; it was truncated, \
         restore it from a backup"
    )]
    Truncated {
        /// Name of the device.
        device: Arc<str>,
        /// First byte asked for.
        offset: u64,
        /// Bytes expected.
        len: u64,
        /// Bytes found.
        found: u64,
    },
    /// The file system has no room.
    #[error("{device}: no space for {len} bytes at byte {offset}; free some space or use a smaller size")]
    NoSpace {
        /// Name of the device.
        device: Arc<str>,
        /// First byte for which space was wanted.
        offset: u64,
        /// Bytes for which space was wanted.
        len: u64,
    },
    /// A write, flush, discard or growth on a device that was opened for reading only.
    #[error("{device} is open for reading only; open it with Access::ReadWrite")]
    ReadOnly {
        /// Name of the device.
        device: Arc<str>,
    },
    /// The path names neither a regular file nor a block device.
    #[error("{device} is {found}; expected a regular file or a block device")]
    NotADevice {
        /// Name of the device.
        device: Arc<str>,
        /// What is there.
        found: &'static str,
    },
    /// The block device is mounted or otherwise in use.
    #[error("{device} is in use (mounted, or part of another device); unmount it first")]
    InUse {
        /// Name of the device.
        device: Arc<str>,
    },
    /// The block device refuses all writes.
    #[error("{device} is write-protected; let it be written to first (losetup without --read-only, blockdev --setrw)")]
    WriteProtected {
        /// Name of the device.
        device: Arc<str>,
    },
    /// This kind of device cannot do that.
    #[error("{device} cannot {operation}")]
    Unsupported {
        /// Name of the device.
        device: Arc<str>,
        /// What was asked for.
        operation: &'static str,
    },
    /// An earlier flush or durable write failed, so it is unknown which earlier writes the medium holds.
    #[error(
        "{device} no longer accepts writes, since an earlier one was lost; reopen and recover it. First cause: {cause}"
    )]
    Poisoned {
        /// Name of the device.
        device: Arc<str>,
        /// The first failure.
        #[source]
        cause: Box<Error>,
    },
    /// The device lost power while the operation was under way, so it may have taken effect in part.
    #[error("{device} lost power while {len} bytes at byte {offset} were under way; reopen and recover it")]
    PowerLost {
        /// Name of the device.
        device: Arc<str>,
        /// First byte concerned.
        offset: u64,
        /// Bytes concerned.
        len: u64,
    },
}

impl Error {
    /// Whether the operation can succeed once there is more room.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Error::NoSpace { .. })
    }

    /// Whether the device refuses writes until it is opened anew, because an earlier flush failed.
    pub fn is_poisoned(&self) -> bool {
        matches!(self, Error::Poisoned { .. })
    }

    /// Whether a file was not there.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Error::Io { cause, .. } if cause.kind == io::ErrorKind::NotFound)
    }

    /// Name of the device concerned.
    pub fn device(&self) -> &str {
        match self {
            Error::Io { device, .. }
            | Error::Misaligned { device, .. }
            | Error::OutOfRange { device, .. }
            | Error::Truncated { device, .. }
            | Error::NoSpace { device, .. }
            | Error::ReadOnly { device }
            | Error::NotADevice { device, .. }
            | Error::InUse { device }
            | Error::WriteProtected { device }
            | Error::Unsupported { device, .. }
            | Error::Poisoned { device, .. }
            | Error::PowerLost { device, .. } => device,
        }
    }

    /// The error for a system call that failed; running out of room is told apart.
    pub(crate) fn io(device: &Arc<str>, operation: &'static str, offset: u64, len: u64, source: &io::Error) -> Self {
        let device = Arc::clone(device);
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::NoSpace { device, offset, len },
            _ => Error::Io { device, operation, offset, len, cause: Cause::from(source) },
        }
    }
}

/// Where an operation failed, unless it concerns the whole device.
fn place(offset: u64, len: u64) -> String {
    if len == 0 { String::new() } else { format!(" at byte {offset} for {len} bytes") }
}

/// What the operating system said, in a form that can be repeated.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct Cause {
    /// Portable kind of the error.
    pub kind: io::ErrorKind,
    /// The system's own error number, if there is one.
    pub raw_os_error: Option<i32>,
    /// The system's own words.
    pub message: String,
}

impl From<&io::Error> for Cause {
    fn from(source: &io::Error) -> Self {
        Self { kind: source.kind(), raw_os_error: source.raw_os_error(), message: source.to_string() }
    }
}
