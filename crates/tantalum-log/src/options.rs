//! The options of a log: its layout, its buffers, its time limits.

use std::collections::BTreeMap;
use std::time::Duration;

use tantalum_device::Characteristics;

use crate::format::BLOCK;
use crate::scheduler::COPIES;
use crate::{ArchiveOptions, LogLayout, Result, error};

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
    /// How requests are laid out on the devices, fixed when the log is created. By default as FlashLogging does.
    pub layout: LogLayout,
    /// Requests are written in multiples of so many bytes, fixed when the log is created: a power of two between 512,
    /// or the devices' logical block, and 4096. By default 4096, for the comparison layouts the logical block.
    ///
    /// Small blocks waste less space on small commits. Where the device's physical block is larger, it reads and
    /// rewrites the requests beside a write, and a power cut may then take those along.
    pub block_bytes: Option<u32>,
    /// Record bytes that are buffered before they become a request without a flush. Also bounds the largest record. At least 4096; default 1 MiB.
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
    /// What happens to a write that takes much longer than usual. When the log is created, [`Hiding::On`] on several
    /// pieces of hardware reserves hiding areas, a quarter of a small device and a sixteenth of a large one.
    pub hiding: Hiding,
    /// Each flush of records that are in no request yet makes a request of its own at once, although no device is free, as
    /// in the paper's algorithm (section 3.5, Figure 8, lines 6 to 10). By default records are buffered until a device is
    /// free, and share its next request: group commit. For comparisons.
    pub request_per_flush: bool,
    /// Adaptive group-commit delay: whether a flush that could write at once waits briefly for the tasks that the last write woke,
    /// which often commit again: for less than half the time of a write, and not if they do not come. Without it, commits of a
    /// few clients often wait for two writes. Default: yes.
    pub group_commit_delay: bool,
    /// On how many devices, on different hardware, a request must be durable before it counts: 1, or 2 to keep the log on two
    /// pieces of hardware, so that the loss of either loses nothing. May differ from one open to the next; with 2, a log is
    /// created only on several pieces of hardware, but goes on with one copy when all others failed
    /// ([`LogStats::keeps_copies`](crate::LogStats::keeps_copies)). Only for the layout FlashLogging. Default 1.
    pub copies: u8,
    /// Devices, by their names, in whose place the log's owner puts larger ones of up to so many bytes when the log is too small
    /// ([`Log::wait_for_growth`](crate::Log::wait_for_growth)). Records that those take are admitted from the beginning. By default
    /// the log stays as it is.
    pub grown_bytes: BTreeMap<String, u64>,
    /// What was measured of devices, by their names. The others' latencies are learnt while the log runs.
    pub characteristics: BTreeMap<String, Characteristics>,
}

/// What happens to outliers: writes that take more than twice the average of their size ("FlashLogging", section 3.4).
/// It makes a difference only where the log stands on several pieces of hardware.
///
/// ```
/// assert_eq!(tantalum_log::Hiding::default(), tantalum_log::Hiding::On);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hiding {
    /// An outlier is written to the hiding area of another device as well, and counts as soon as either has it. A device
    /// without such an area takes it into its main area, if it has taken no newer request yet, which is rare.
    #[default]
    On,
    /// Outliers are waited for.
    Off,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            section_bytes: None,
            layout: LogLayout::default(),
            block_bytes: None,
            buffer_bytes: 1 << 20,
            hang_timeout: Duration::from_secs(10),
            recovery_memory_bytes: 32 << 20,
            hiding: Hiding::On,
            request_per_flush: false,
            group_commit_delay: true,
            copies: 1,
            grown_bytes: BTreeMap::new(),
            characteristics: BTreeMap::new(),
            archive: None,
        }
    }
}

impl LogOptions {
    /// Refuses values with which no log can work. The section size is checked where it is used.
    pub(crate) fn check(&self) -> Result<()> {
        if self.buffer_bytes < BLOCK {
            let (value, expected) = (self.buffer_bytes as u64, "it must be at least 4096");
            return Err(error::invalid_option("buffer_bytes", value, expected));
        }
        if self.hang_timeout.is_zero() {
            let expected = "it must be longer than zero";
            return Err(error::invalid_option("hang_timeout", 0, expected));
        }
        if !(1..=COPIES as u8).contains(&self.copies) {
            let (value, expected) = (self.copies.into(), "it must be 1 or 2");
            return Err(error::invalid_option("copies", value, expected));
        }
        if self.copies > 1 && self.layout != LogLayout::FlashLogging {
            let (value, expected) = (self.copies.into(), "only the layout flash-logging keeps more than one copy");
            return Err(error::invalid_option("copies", value, expected));
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
        assert!(
            matches!(small.check(), Err(error) if error.to_string().contains("log option buffer_bytes is 4095, but "))
        );
        let hasty = LogOptions { hang_timeout: Duration::ZERO, ..LogOptions::default() };
        assert!(matches!(hasty.check(), Err(error) if error.to_string().contains("log option hang_timeout is ")));
        for (copies, layout) in [(0, LogLayout::FlashLogging), (3, LogLayout::FlashLogging), (2, LogLayout::Single)] {
            let refused = LogOptions { copies, layout, ..LogOptions::default() }.check();
            assert!(matches!(&refused, Err(error) if error.to_string().contains("log option copies is ")));
        }
        assert!(LogOptions { copies: 2, ..LogOptions::default() }.check().is_ok());
    }
}
