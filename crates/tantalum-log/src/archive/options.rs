//! Where the archive is and how it behaves.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Access, Device};

use crate::format::BLOCK;
use crate::format::superblock::{MAX_SECTION_BYTES, MIN_SECTION_BYTES};
use crate::{Result, error};

/// Where an archive lies.
#[derive(Clone, Debug)]
pub enum ArchiveTarget {
    /// A directory with a file for each segment, named by the LSN at which it starts. Made if it does not exist.
    Directory(PathBuf),
    /// A device of its own, a disk for example. Its segments are a circle: the newest overwrites the oldest that no
    /// checkpoint needs.
    Device(Arc<dyn Device>),
}

impl ArchiveTarget {
    /// The directory's path or the device's name.
    pub fn name(&self) -> String {
        match self {
            ArchiveTarget::Directory(path) => path.display().to_string(),
            ArchiveTarget::Device(device) => device.name().to_string(),
        }
    }
}

/// The archive of a log, in [`LogOptions::archive`](crate::LogOptions::archive).
///
/// ```
/// use std::time::Duration;
/// use tantalum_log::ArchiveOptions;
/// let archive = ArchiveOptions { keep_bytes: Some(100 << 30), ..ArchiveOptions::in_directory("/archive/accounts") };
/// assert_eq!(archive.delay, Duration::from_millis(200));
/// ```
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// Where it lies.
    pub target: ArchiveTarget,
    /// Bytes of a segment, fixed when the archive is created: a multiple of 4096 between 64 KiB and 1 GiB. By default 16
    /// MiB in a directory, and a sixteenth of a device, between 64 KiB and 64 MiB.
    pub segment_bytes: Option<u32>,
    /// Records are archived after this time at the latest, however few they are. Also the granularity of times.
    /// Default 200 ms.
    pub delay: Duration,
    /// Record bytes that may wait in memory to be archived; with more, appends find the log full until the archive
    /// catches up or is set aside. Default 64 MiB.
    pub lag_bytes: u64,
    /// Segments in a directory are removed, the oldest first, while they take more bytes than this. Default: never.
    pub keep_bytes: Option<u64>,
    /// Segments in a directory are removed when all that they hold is older than this. Default: never.
    pub keep_time: Option<Duration>,
    /// The archive is read, as far as the log's devices lack records, and not written to: the log goes on without it. For devices
    /// whose writes do not last ([`Overlay`](tantalum_device::Overlay)). Default: no.
    pub read_only: bool,
}

impl ArchiveOptions {
    /// An archive in the directory `path`.
    pub fn in_directory(path: impl Into<PathBuf>) -> ArchiveOptions {
        Self::at(ArchiveTarget::Directory(path.into()))
    }

    /// An archive on a device of its own.
    pub fn on_device(device: Arc<dyn Device>) -> ArchiveOptions {
        Self::at(ArchiveTarget::Device(device))
    }

    /// An archive with the defaults.
    pub fn at(target: ArchiveTarget) -> ArchiveOptions {
        ArchiveOptions {
            target,
            segment_bytes: None,
            delay: Duration::from_millis(200),
            lag_bytes: 64 << 20,
            keep_bytes: None,
            keep_time: None,
            read_only: false,
        }
    }

    pub(crate) fn access(&self) -> Access {
        if self.read_only { Access::ReadOnly } else { Access::ReadWrite }
    }

    /// Refuses values with which no archive can work.
    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |option, value, expected| Err(error::invalid_option(option, value, expected));
        if let Some(bytes) = self.segment_bytes
            && (!(MIN_SECTION_BYTES..=MAX_SECTION_BYTES).contains(&bytes) || !bytes.is_multiple_of(BLOCK as u32))
        {
            let expected = "it must be a multiple of 4096 between 64 KiB and 1 GiB";
            return refuse("archive.segment_bytes", bytes.into(), expected);
        }
        if self.delay.is_zero() {
            return refuse("archive.delay", 0, "it must be longer than zero");
        }
        if self.lag_bytes < 1 << 20 {
            return refuse("archive.lag_bytes", self.lag_bytes, "it must be at least 1 MiB");
        }
        Ok(())
    }
}
