//! Log sequence numbers: byte offsets in an endless log.
//!
//! An LSN counts record bytes with their framing, and nothing else: request headers and padding are not counted, so
//! the same records have the same LSNs however they were grouped into device writes.

use std::fmt;

/// A position in the log: the number of record bytes (framing included) before it.
///
/// ```
/// use tantalum_log::Lsn;
/// let first = Lsn::ZERO;
/// let later = Lsn::new(4096);
/// assert!(first < later);
/// assert_eq!(later.bytes_since(first), 4096);
/// assert_eq!(later.to_string(), "4096");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lsn(u64);

impl Lsn {
    /// The start of every log.
    pub const ZERO: Lsn = Lsn(0);

    /// The position after `bytes` bytes of records.
    pub const fn new(bytes: u64) -> Lsn {
        Lsn(bytes)
    }

    /// The position as a number of bytes since the start of the log.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes from `earlier` to `self`, 0 if `earlier` is not earlier.
    pub const fn bytes_since(self, earlier: Lsn) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where one record lies in the log. `end` is the LSN to flush for the record to be durable.
///
/// ```
/// use tantalum_log::{Lsn, LsnRange};
/// let range = LsnRange { start: Lsn::new(10), end: Lsn::new(25) };
/// assert_eq!(range.end.bytes_since(range.start), 15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LsnRange {
    /// The first byte of the record's framing.
    pub start: Lsn,
    /// One past the record's last byte; the next record starts here.
    pub end: Lsn,
}
