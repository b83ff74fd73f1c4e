//! What a run costs beside time: CPU, bytes to and from the device, memory, space; and how busy the machine was.
//!
//! - CPU: the clock of the process (`CLOCK_PROCESS_CPUTIME_ID`), which counts what `getrusage` does, user and system time of all
//!   threads, in nanoseconds instead of ticks.
//! - Bytes to the device: the block device's own counter of sectors (`/sys/dev/block/.../stat`), as only that includes what the
//!   file system writes for an engine: inodes and its journal, when a log grows. It also counts what others write meanwhile, so
//!   measure on a machine that does nothing else.
//! - Bytes of the process: `/proc/self/io`. `write_bytes` counts pages when they become dirty, without metadata; it is what remains
//!   where the device has no counter. `read_bytes` is what was fetched from the device for this process.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{major, minor},
    time::{ClockId, clock_gettime},
};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The counters of this process and of the device below a directory.
#[derive(Debug)]
pub struct Meter {
    /// Absent where the file system is on no block device.
    device_stat: Option<PathBuf>,
}

/// All counters at one time.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    cpu_seconds: f64,
    device_written_bytes: Option<u64>,
    process_written_bytes: u64,
    process_read_bytes: u64,
}

/// The difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Written to the block device by all processes; absent where it has no counter.
    pub device_written_bytes: Option<u64>,
    /// Written by this process, without metadata.
    pub process_written_bytes: u64,
    /// Fetched from the device for this process.
    pub process_read_bytes: u64,
}

impl Meter {
    /// For the device that holds this directory.
    ///
    /// # Errors
    /// If the directory is not there.
    pub fn of(directory: &Path) -> Result<Self> {
        let device = fs::metadata(directory).map_err(Error::file("look at", directory))?.dev();
        let stat = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
        Ok(Self { device_stat: stat.exists().then_some(stat) })
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// If the system does not give them.
    pub fn read(&self) -> Result<Reading> {
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let io = text(Path::new("/proc/self/io"))?;
        let (written, read) = (field(&io, "write_bytes:"), field(&io, "read_bytes:"));
        Ok(Reading {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            device_written_bytes: self.device_stat.as_deref().map(sectors_written).transpose()?,
            process_written_bytes: written.unwrap_or_default(),
            process_read_bytes: read.unwrap_or_default(),
        })
    }
}

impl Reading {
    /// What was used since an earlier reading.
    pub fn since(&self, before: &Self) -> Used {
        let device = self.device_written_bytes.zip(before.device_written_bytes);
        Used {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            device_written_bytes: device.map(|(after, before)| after.saturating_sub(before)),
            process_written_bytes: self.process_written_bytes.saturating_sub(before.process_written_bytes),
            process_read_bytes: self.process_read_bytes.saturating_sub(before.process_read_bytes),
        }
    }
}

impl Used {
    /// This and what was used at another time.
    pub fn and(self, other: Self) -> Self {
        Self {
            cpu_seconds: self.cpu_seconds + other.cpu_seconds,
            device_written_bytes: self.device_written_bytes.zip(other.device_written_bytes).map(|(a, b)| a + b),
            process_written_bytes: self.process_written_bytes + other.process_written_bytes,
            process_read_bytes: self.process_read_bytes + other.process_read_bytes,
        }
    }
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

/// Bytes written to a block device since the system started: the seventh number of its statistics, in sectors of 512 bytes whatever the
/// device's are.
fn sectors_written(stat: &Path) -> Result<u64> {
    const SECTOR_BYTES: u64 = 512;
    let line = text(stat)?;
    let sectors = line.split_whitespace().nth(6).and_then(|number| number.parse::<u64>().ok());
    let damaged = || Error::File {
        doing: "read",
        path: stat.display().to_string(),
        cause: format!("no seventh number in {line:?}"),
    };
    Ok(sectors.ok_or_else(damaged)? * SECTOR_BYTES)
}

/// The most memory that this process has had, in bytes: `VmHWM`. Maps of files count as far as they were touched.
///
/// # Errors
/// If the system does not say.
pub fn peak_memory_bytes() -> Result<u64> {
    let status = text(Path::new("/proc/self/status"))?;
    Ok(field(&status, "VmHWM:").unwrap_or_default() << 10)
}

/// Bytes of this process fetched from the device so far.
///
/// # Errors
/// If the system does not say.
pub fn process_read_bytes() -> Result<u64> {
    Ok(field(&text(Path::new("/proc/self/io"))?, "read_bytes:").unwrap_or_default())
}

/// Processes that ran or waited for the processor or the device, on average over the last minute.
///
/// # Errors
/// If the system does not say.
pub fn load_average() -> Result<f64> {
    let line = text(Path::new("/proc/loadavg"))?;
    Ok(line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_default())
}

/// What the files of a directory take of the device, in bytes; holes take nothing.
///
/// # Errors
/// Of the system; files that go meanwhile are none.
pub fn space_bytes(directory: &Path) -> Result<u64> {
    const BLOCK_BYTES: u64 = 512;
    let mut bytes = 0;
    for path in files(directory)? {
        bytes += fs::metadata(path).map_or(0, |metadata| metadata.blocks() * BLOCK_BYTES);
    }
    Ok(bytes)
}

/// All files in a directory and below.
///
/// # Errors
/// Of the system.
pub fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = Error::file("list", directory);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(&failed)? {
        let entry = entry.map_err(&failed)?;
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => found.extend(files(&entry.path())?),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_names() {
        let status = "VmPeak:\t  900 kB\nVmHWM:\t   12 kB\nwrite_bytes: 7\ncancelled_write_bytes: 9\n";
        assert_eq!(field(status, "VmHWM:"), Some(12));
        assert_eq!(field(status, "write_bytes:"), Some(7));
        assert_eq!(field(status, "read_bytes:"), None);
    }

    #[test]
    fn what_is_written_and_computed_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let meter = Meter::of(directory.path()).unwrap();
        let before = meter.read().unwrap();
        let path = directory.path().join("below/file");
        fs::create_dir(path.parent().unwrap()).unwrap();
        fs::write(&path, vec![1; 1 << 20]).unwrap();
        fs::File::open(&path).unwrap().sync_all().unwrap();
        let used = meter.read().unwrap().since(&before);
        assert!(used.cpu_seconds > 0.0);
        // In memory nothing is written to a device.
        if used.process_written_bytes > 0 {
            assert!(used.process_written_bytes >= 1 << 20, "{used:?}");
            assert!(used.device_written_bytes.is_none_or(|bytes| bytes >= 1 << 20), "{used:?}");
        }
        assert_eq!(files(directory.path()).unwrap(), [path]);
        assert!(space_bytes(directory.path()).unwrap() >= 1 << 20);
        assert!(peak_memory_bytes().unwrap() > 1 << 20);
    }
}
