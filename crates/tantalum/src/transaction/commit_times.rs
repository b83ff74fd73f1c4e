//! How long commits took lately, for their quantiles.
//!
//! Times are counted in two windows of [`WINDOW`] each: the present one, and the one before it. So a quantile is of the last ten to
//! twenty seconds, whatever happened before.

use std::{
    array,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tantalum_rt::{Instant, now};

/// How long a window is the present one.
const WINDOW: Duration = Duration::from_secs(10);

/// Buckets for each doubling of the time: what is told is at most an eighth too long.
const STEPS: usize = 8;

/// The longest times that are told apart are 2 to this power microseconds, two minutes.
const DOUBLINGS: usize = 27;

/// Counts of commits by the time that they took.
#[derive(Debug)]
pub(super) struct CommitTimes {
    began: Instant,
    windows: [Window; 2],
    /// The number of the present window; it is the one of that parity.
    present: AtomicU64,
}

#[derive(Debug)]
struct Window {
    counts: [AtomicU64; STEPS * DOUBLINGS],
    /// In microseconds.
    longest: AtomicU64,
}

/// Times in microseconds; 0 if there was no commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Quantiles {
    pub median: u64,
    /// One commit of a hundred takes longer.
    pub p99: u64,
    /// One of a thousand does.
    pub p999: u64,
    pub longest: u64,
}

impl Default for CommitTimes {
    fn default() -> Self {
        Self { began: now(), windows: array::from_fn(|_| Window::default()), present: AtomicU64::new(0) }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU64::new(0)), longest: AtomicU64::new(0) }
    }
}

impl CommitTimes {
    /// Counts a commit that was begun at `from` and is durable now.
    pub fn note(&self, from: Instant) {
        let at = now();
        let micros = u64::try_from((at - from).as_micros()).unwrap_or(u64::MAX);
        let window = self.present_window(at);
        window.counts[bucket(micros)].fetch_add(1, Ordering::Relaxed);
        if window.longest.load(Ordering::Relaxed) < micros {
            window.longest.fetch_max(micros, Ordering::Relaxed);
        }
    }

    /// Of the commits of this window and the one before.
    pub fn quantiles(&self) -> Quantiles {
        self.present_window(now());
        let counts: [u64; STEPS * DOUBLINGS] = array::from_fn(|bucket| {
            self.windows.iter().map(|window| window.counts[bucket].load(Ordering::Relaxed)).sum()
        });
        let longest = self.windows.iter().map(|window| window.longest.load(Ordering::Relaxed)).max().unwrap_or(0);
        let all: u64 = counts.iter().sum();
        let quantile = |thousandths: u64| {
            // How many may take longer.
            let (mut above, at_most) = (all, all - (all * thousandths).div_ceil(1000));
            let reached = counts.iter().position(|count| {
                above -= count;
                above <= at_most
            });
            reached.filter(|_| all > 0).map_or(0, |bucket| end(bucket).min(longest))
        };
        Quantiles { median: quantile(500), p99: quantile(990), p999: quantile(999), longest }
    }

    /// The window for a commit that ends at a time. Empties it first, if it was another's until now: then a commit that ends at the same
    /// time may be missed.
    fn present_window(&self, at: Instant) -> &Window {
        let number = (at - self.began).as_secs() / WINDOW.as_secs();
        let present = self.present.load(Ordering::Relaxed);
        if present >= number {
            return self.window(present);
        }
        // Of several tasks that find a new window, one empties it.
        let before = self.present.fetch_max(number, Ordering::Relaxed);
        for passed in (before + 1..=number).rev().take(self.windows.len()) {
            self.window(passed).empty();
        }
        self.window(before.max(number))
    }

    fn window(&self, number: u64) -> &Window {
        &self.windows[number as usize % self.windows.len()]
    }
}

impl Window {
    fn empty(&self) {
        self.counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.longest.store(0, Ordering::Relaxed);
    }
}

fn bucket(micros: u64) -> usize {
    let micros = micros.max(1);
    let doublings = micros.ilog2() as usize;
    if doublings >= DOUBLINGS {
        return STEPS * DOUBLINGS - 1;
    }
    let step = (micros as usize * STEPS) >> doublings;
    doublings * STEPS + step - STEPS
}

/// The longest time of a bucket, in microseconds.
fn end(bucket: usize) -> u64 {
    let (doublings, step) = (bucket / STEPS, bucket % STEPS);
    let next = (STEPS + step + 1) << doublings;
    (next.div_ceil(STEPS) as u64 - 1).max(1)
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Simulation;

    use super::*;

    #[test]
    fn each_time_is_in_the_bucket_that_ends_behind_it() {
        let times = (0..5000).chain([1 << 20, (1 << 27) - 1]);
        for micros in times {
            let longest = end(bucket(micros));
            assert!(longest >= micros, "{micros} us would be told as {longest}");
            assert!(longest <= micros.max(1) + micros / STEPS as u64, "{micros} us would be told as {longest}");
        }
        assert_eq!(bucket(u64::MAX), STEPS * DOUBLINGS - 1);
    }

    #[test]
    fn quantiles_are_of_the_commits_of_two_windows() {
        let quantiles = || {
            let times = CommitTimes::default();
            assert_eq!(times.quantiles(), Quantiles::default());
            let commit = |micros| {
                let from = now();
                tantalum_rt::sleep(Duration::from_micros(micros));
                times.note(from);
            };
            (0..98).for_each(|_| commit(100));
            (0..2).for_each(|_| commit(3000));
            let Quantiles { median, p99, p999, longest } = times.quantiles();
            assert!((100..113).contains(&median), "the median is {median} us");
            assert!((3000..3376).contains(&p99) && p999 <= longest, "{p99} and {p999} us");
            assert!((3000..3100).contains(&longest), "the longest is {longest} us");

            tantalum_rt::sleep(WINDOW);
            commit(100);
            assert!(times.quantiles().longest >= 3000, "the window before counts");
            tantalum_rt::sleep(WINDOW);
            assert!(times.quantiles().longest < 3000, "the one before that does not");
            tantalum_rt::sleep(2 * WINDOW);
            assert_eq!(times.quantiles(), Quantiles::default());
        };
        Simulation::new(0).run(quantiles).expect_finished();
    }
}
