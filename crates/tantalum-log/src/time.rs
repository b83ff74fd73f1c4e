//! Wall-clock times as requests and segments carry them.

use std::time::{Duration, SystemTime};

use crate::format::NUMBER_LIMIT;

/// Microseconds since the Unix epoch; 0 if the clock stands before it.
pub(crate) fn wall_clock_us() -> u64 {
    let since = tantalum_rt::wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(NUMBER_LIMIT - 1)
}

/// The time that so many microseconds since the Unix epoch are.
pub(crate) fn from_us(us: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(us)
}
