//! How a log is laid out and how patient it is.

use std::time::Duration;

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
    /// record. Default 1 MiB.
    pub buffer_bytes: usize,
    /// A device whose write takes longer is set aside and the write goes to another device. Default 10 s.
    pub hang_timeout: Duration,
    /// Record bytes that recovery keeps in memory between scanning and [`Recovery::next_record`](crate::Recovery::next_record);
    /// what exceeds it is read twice. Default 32 MiB.
    pub recovery_memory_bytes: usize,
}

impl Default for LogOptions {
    fn default() -> Self {
        LogOptions {
            section_bytes: None,
            buffer_bytes: 1 << 20,
            hang_timeout: Duration::from_secs(10),
            recovery_memory_bytes: 32 << 20,
        }
    }
}
