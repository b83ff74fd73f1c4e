//! Wall-clock times as requests and segments carry them.

use std::time::SystemTime;

use crate::format::NUMBER_LIMIT;

/// Microseconds since the Unix epoch; 0 if the clock stands before it.
pub(crate) fn wall_clock_us() -> u64 {
    let since = tantalum_rt::wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(NUMBER_LIMIT - 1)
}
