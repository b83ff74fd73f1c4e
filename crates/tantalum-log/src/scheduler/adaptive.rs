//! Whether hiding outliers pays, found out by doing it ("FlashLogging", section 3.5).
//!
//! A re-issued write costs another device its time, and gains the time by which it was first. Where outliers are only
//! a little late, as on a device that jitters, it costs more than it gains; then hiding takes a break, and after it
//! tries again, because devices change. During a break a write is still re-issued once it is hopelessly late: a device
//! that is stuck must not hold up commits until it is given up.

use std::time::Duration;

use tantalum_rt::Instant;

use crate::latency::OUTLIER_FACTOR;

/// Re-issued requests after which gain and cost are compared.
const TRIAL: u32 = 16;
/// During a break, a write is re-issued if it takes longer than this many times the average.
const HOPELESS_FACTOR: u32 = 32;
/// The first break. Each one that follows another without a trial that paid is twice as long, up to the longest.
const BREAK_MIN: Duration = Duration::from_secs(1);
const BREAK_MAX: Duration = Duration::from_secs(64);

/// The adaptive algorithm's state.
#[derive(Clone, Debug)]
pub(super) struct Adaptive {
    /// The end of the present break.
    break_until: Option<Instant>,
    next_break: Duration,
    pub(super) breaks: u64,
    reissued: u32,
    gained: Duration,
    spent: Duration,
}

impl Adaptive {
    pub(super) fn new() -> Adaptive {
        Adaptive {
            break_until: None,
            next_break: BREAK_MIN,
            breaks: 0,
            reissued: 0,
            gained: Duration::ZERO,
            spent: Duration::ZERO,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.break_until.is_none()
    }

    /// How many times the average a write may take that begins now.
    pub(super) fn factor(&mut self, now: Instant) -> u32 {
        if self.break_until.is_some_and(|until| until <= now) {
            self.break_until = None;
            self.start_trial();
        }
        if self.is_on() { OUTLIER_FACTOR } else { HOPELESS_FACTOR }
    }

    /// A re-issued write took so long.
    pub(super) fn spend(&mut self, took: Duration) {
        self.spent += took;
    }

    /// The last that is left of a re-issued request has ended, so long after the first.
    pub(super) fn settle(&mut self, gained: Duration, now: Instant) {
        self.gained += gained;
        self.reissued += 1;
        if !self.is_on() || self.reissued < TRIAL {
            return;
        }
        if self.gained < self.spent {
            self.break_until = Some(now + self.next_break);
            self.next_break = (self.next_break * 2).min(BREAK_MAX);
            self.breaks += 1;
        } else {
            self.next_break = BREAK_MIN;
        }
        self.start_trial();
    }

    fn start_trial(&mut self) {
        (self.reissued, self.gained, self.spent) = (0, Duration::ZERO, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn trial(adaptive: &mut Adaptive, gained: Duration, now: Instant) {
        for _ in 0..TRIAL {
            adaptive.spend(MS);
            adaptive.settle(gained, now);
        }
    }

    #[test]
    fn hiding_takes_longer_and_longer_breaks_until_it_pays() {
        let mut adaptive = Adaptive::new();
        let mut now = tantalum_rt::now();
        trial(&mut adaptive, 2 * MS, now);
        assert_eq!(adaptive.factor(now), 2, "it pays");
        for seconds in [1, 2, 4, 8, 16, 32, 64, 64] {
            trial(&mut adaptive, MS / 2, now);
            assert_eq!(adaptive.factor(now), 32);
            now = now + Duration::from_secs(seconds) - MS;
            assert_eq!(adaptive.factor(now), 32);
            now += MS;
            assert_eq!(adaptive.factor(now), 2, "it tries again");
        }
        trial(&mut adaptive, 2 * MS, now);
        trial(&mut adaptive, MS / 2, now);
        now += Duration::from_secs(1);
        assert_eq!((adaptive.factor(now), adaptive.breaks), (2, 9), "the breaks are short again");
    }
}
