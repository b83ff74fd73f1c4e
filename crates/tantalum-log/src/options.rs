//! How a log is laid out and how patient it is.

use std::time::Duration;

use crate::format::BLOCK;
use crate::{ArchiveOptions, Error, Result};

/// Options of [`Log::create`](crate::Log::create) and [`Log::open`](crate::Log::open).
///
/// ```
/// use std::time::Duration;
/// use tantalum_log::LogOptions;
/// let options = LogOptions { hang_timeout: Duration::from_secs(2), ..LogOptions::default() };
/// assert_eq!(options.buffer_bytes, 1 << 20);
/// ```
#[derive(Clone, Debug)]
pub struct LogOptions {
    /// Bytes of a section, fixed when the log is created: a multiple of 4096 between 64 KiB and 1 GiB. By default an
    /// eighth of the smallest device, between 64 KiB and 16 MiB. A request is at most a quarter of a section.
    pub section_bytes: Option<u32>,
    /// Record bytes that may gather in memory before they become a request without a flush. Also bounds the largest
    /// record. At least 4096; default 1 MiB.
    pub buffer_bytes: usize,
    /// A device whose write takes longer, not zero, is set aside and the write goes to another device. Default 10 s.
    /// Without other hardware to go to (one device, or partitions of one) it is waited for as long as it takes.
    pub hang_timeout: Duration,
    /// Record bytes that recovery keeps in memory between scanning and [`Recovery::next_record`](crate::Recovery::next_record);
    /// what exceeds it is read twice. Default 32 MiB.
    pub recovery_memory_bytes: usize,
    /// Where the whole log is archived. Default: nowhere. An archive that does not exist is created when the log is
    /// opened with it.
    pub archive: Option<ArchiveOptions>,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            section_bytes: None,
            buffer_bytes: 1 << 20,
            hang_timeout: Duration::from_secs(10),
            recovery_memory_bytes: 32 << 20,
            archive: None,
        }
    }
}

impl LogOptions {
    /// Refuses values with which no log can work. The section size is checked where it is used.
    pub(crate) fn check(&self) -> Result<()> {
        if self.buffer_bytes < BLOCK {
            let (value, expected) = (self.buffer_bytes as u64, "it must be at least 4096");
            return Err(Error::InvalidOption { option: "buffer_bytes", value, expected });
        }
        if self.hang_timeout.is_zero() {
            let expected = "no write completes in no time";
            return Err(Error::InvalidOption { option: "hang_timeout", value: 0, expected });
        }
        self.archive.as_ref().map_or(Ok(()), ArchiveOptions::check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_options_are_refused() {
        assert!(LogOptions::default().check().is_ok());
        let small = LogOptions { buffer_bytes: 4095, ..LogOptions::default() };
        assert!(matches!(small.check(), Err(Error::InvalidOption { option: "buffer_bytes", value: 4095, .. })));
        let hasty = LogOptions { hang_timeout: Duration::ZERO, ..LogOptions::default() };
        assert!(matches!(hasty.check(), Err(Error::InvalidOption { option: "hang_timeout", .. })));
    }
}
