//! Time: monotonic instants, the wall clock, and sleeping. Real or virtual, the unit is the nanosecond.

use std::{
    ops::{Add, AddAssign, Sub},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use crate::simulation;

/// Seconds after the Unix epoch at which every simulation's wall clock starts.
const SIMULATED_EPOCH_S: u64 = 1_700_000_000;

/// A point in time: nanoseconds since an arbitrary origin, never going back.
///
/// Instants compare only with others of the same world: those of a simulation start at its beginning.
/// Arithmetic saturates.
///
/// ```
/// use std::time::Duration;
///
/// let start = tantalum_rt::now();
/// let deadline = start + Duration::from_millis(5);
/// assert_eq!(deadline - start, Duration::from_millis(5));
/// assert_eq!(start.duration_since(deadline), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The instant `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time passed since this instant.
    pub fn elapsed(self) -> Duration {
        now().duration_since(self)
    }

    /// Time from `earlier` to this instant; zero when `earlier` is later.
    pub const fn duration_since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_sub(nanos(duration)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

/// Nanoseconds of a duration; 584 years for anything longer.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The present: the operating system's monotonic clock, or in a simulation its virtual clock, which moves only while
/// every task waits.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    match simulation::current() {
        Some(world) => Instant(world.now_ns()),
        None => Instant(nanos(ORIGIN.get_or_init(std::time::Instant::now).elapsed())),
    }
}

/// The date and time, for time stamps that people read. In a simulation it starts at 2023-11-14 22:13:20 UTC.
pub fn wall_clock() -> SystemTime {
    match simulation::current() {
        Some(world) => {
            SystemTime::UNIX_EPOCH + Duration::from_secs(SIMULATED_EPOCH_S) + Duration::from_nanos(world.now_ns())
        }
        None => SystemTime::now(),
    }
}

/// The time in UTC, with microseconds: `2026-11-22T01:02:03.000004Z`.
pub fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (days, in_day) = ((since.as_secs() / 86_400) as i64, since.as_secs() % 86_400);
    let (year, month, day) = date_of(days);
    let (hour, minute, second) = (in_day / 3600, in_day / 60 % 60, in_day % 60);
    let micros = since.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Year, month and day, so many days after the beginning of 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days - era * 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

/// Waits for `duration`: the task in a simulation, else the thread.
pub fn sleep(duration: Duration) {
    match simulation::current() {
        Some(world) => world.sleep(nanos(duration)),
        None => std::thread::sleep(duration),
    }
}
