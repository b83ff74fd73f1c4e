//! What a run costs beside time: processor time, bytes to and from the device, memory.
//!
//! - Processor time: the clock of the process, user and system time of all threads.
//! - Bytes to the device: the block device's own counter of sectors, which has the file system's journal and metadata, and what other
//!   processes write meanwhile; and the process's own (`/proc/self/io`), which has neither.
//! - Memory: the most that the process has had (`VmHWM`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The counters of this process and of the device below a directory.
pub struct Meter {
    /// Absent where the file system is on no block device.
    device_stat: Option<PathBuf>,
}

/// All counters at one time, or the difference of two times.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
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
    pub fn of(directory: &Path) -> Result<Meter> {
        let device = fs::metadata(directory).map_err(Error::file("look at", directory))?.dev();
        let stat = PathBuf::from(format!("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
        Ok(Meter { device_stat: stat.exists().then_some(stat) })
    }

    /// Reads all counters.
    ///
    /// # Errors
    /// If the system does not give them.
    pub fn read(&self) -> Result<Used> {
        /// Of the statistics, whatever the device's own are.
        const SECTOR_BYTES: u64 = 512;
        let cpu = clock_gettime(ClockId::ProcessCPUTime);
        let io = text(Path::new("/proc/self/io"))?;
        let stat = self.device_stat.as_deref().map(text).transpose()?;
        let sectors = stat.and_then(|line| line.split_whitespace().nth(6)?.parse::<u64>().ok());
        Ok(Used {
            cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
            device_written_bytes: sectors.map(|sectors| sectors * SECTOR_BYTES),
            process_written_bytes: field(&io, "write_bytes:").unwrap_or_default(),
            process_read_bytes: field(&io, "read_bytes:").unwrap_or_default(),
        })
    }
}

impl Used {
    /// What was used since an earlier reading.
    pub fn since(&self, before: &Used) -> Used {
        let device = self.device_written_bytes.zip(before.device_written_bytes);
        Used {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            device_written_bytes: device.map(|(after, before)| after.saturating_sub(before)),
            process_written_bytes: self.process_written_bytes.saturating_sub(before.process_written_bytes),
            process_read_bytes: self.process_read_bytes.saturating_sub(before.process_read_bytes),
        }
    }
}

/// The most memory that this process has had, in bytes.
///
/// # Errors
/// If the system does not say.
pub fn peak_memory_bytes() -> Result<u64> {
    Ok(field(&text(Path::new("/proc/self/status"))?, "VmHWM:").unwrap_or_default() << 10)
}

fn text(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", path))
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
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
}
