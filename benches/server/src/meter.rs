//! What servers cost beside time, as the system counts it for their processes (`/proc`): processor time, bytes written, memory.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Counters of processes at one time, or the difference of two times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// User and system time of all threads.
    pub cpu_seconds: f64,
    /// Bytes that they had written to devices (`write_bytes`).
    pub written_bytes: u64,
}

impl Used {
    /// Of processes, until now.
    ///
    /// # Errors
    /// If one of them is gone.
    pub fn of(processes: impl Iterator<Item = u32>) -> Result<Used> {
        let mut used = Used::default();
        for id in processes {
            let stat = text(&format!("/proc/{id}/stat"))?;
            let io = text(&format!("/proc/{id}/io"))?;
            used.cpu_seconds +=
                ticks(&stat).unwrap_or_default() as f64 / rustix::param::clock_ticks_per_second() as f64;
            used.written_bytes += field(&io, "write_bytes:").unwrap_or_default();
        }
        Ok(used)
    }

    /// What was used since an earlier reading.
    pub fn since(&self, before: &Used) -> Used {
        Used {
            cpu_seconds: self.cpu_seconds - before.cpu_seconds,
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// What a process has in memory now, in bytes.
///
/// # Errors
/// If it is gone.
pub fn resident_bytes(process: u32) -> Result<u64> {
    Ok(field(&text(&format!("/proc/{process}/status"))?, "VmRSS:").unwrap_or_default() << 10)
}

fn text(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(Error::file("read", Path::new(path)))
}

/// User and system time of a process, in clock ticks. Its name may have spaces and parentheses.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut times = fields.split_whitespace().skip(11).map(str::parse::<u64>);
    Some(times.next()?.ok()? + times.next()?.ok()?)
}

/// The number behind a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_where_the_system_has_them() {
        let status = "VmPeak:\t  900 kB\nVmRSS:\t   12 kB\nwrite_bytes: 7\ncancelled_write_bytes: 9\n";
        assert_eq!(field(status, "VmRSS:"), Some(12));
        assert_eq!(field(status, "write_bytes:"), Some(7));
        assert_eq!(field(status, "read_bytes:"), None);
        let stat = "42 (a) b) S 1 42 42 0 -1 4194304 100 0 0 0 150 25 0 0 20 0 9 0 12345";
        assert_eq!(ticks(stat), Some(175));
    }

    #[test]
    fn this_process_has_used_something() {
        let before = Used::of([std::process::id()].into_iter()).expect("it runs");
        assert!(resident_bytes(std::process::id()).expect("it runs") > 0);
        assert!(Used::of([std::process::id()].into_iter()).expect("it runs").since(&before).cpu_seconds >= 0.0);
    }
}
