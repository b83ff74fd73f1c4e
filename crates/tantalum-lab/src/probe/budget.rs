//! How time and wear are shared among what is measured.
//!
//! Invariant: what one phase leaves is there for those behind it, and no phase takes theirs.

use std::time::Duration;

use tantalum_rt::{Instant, now};

/// What is measured, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Fill,
    Cache,
    Settle,
    Stores,
    Sizes,
    Responses,
    Durable,
    Units,
    Tasks,
}

impl Phase {
    pub(super) const ALL: [Self; 9] = [
        Self::Fill,
        Self::Cache,
        Self::Settle,
        Self::Stores,
        Self::Sizes,
        Self::Responses,
        Self::Durable,
        Self::Units,
        Self::Tasks,
    ];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fill => "writing all once",
            Self::Cache => "flushes and cache",
            Self::Settle => "towards a steady state",
            Self::Sizes => "request sizes",
            Self::Responses => "response times",
            Self::Durable => "durable writes",
            Self::Units => "erase units",
            Self::Tasks => "many at once",
            Self::Stores => "as page stores write",
        }
    }

    /// Parts of the time, and of the bytes that may be written.
    const fn shares(self) -> (u32, u32) {
        match self {
            Self::Fill => (18, 16),
            Self::Cache => (8, 10),
            Self::Settle => (8, 14),
            Self::Stores => (18, 10),
            Self::Sizes => (18, 24),
            Self::Responses => (4, 2),
            Self::Durable => (8, 6),
            Self::Units => (20, 40),
            Self::Tasks => (8, 6),
        }
    }
}

/// What is left in all.
#[derive(Debug)]
pub(super) struct Budget {
    end: Instant,
    ahead: Vec<Phase>,
}

/// What one phase may use.
#[derive(Debug)]
pub(super) struct PhaseBudget {
    end: Instant,
    /// Bytes that are left for the phases behind it.
    kept_bytes: u64,
}

/// What one measurement may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowance {
    pub(super) time: Duration,
    pub(super) bytes: u64,
}

impl Budget {
    pub(super) fn new(time: Duration) -> Self {
        Self { end: now() + time, ahead: Phase::ALL.to_vec() }
    }

    pub(super) fn left(&self) -> Duration {
        self.end.duration_since(now())
    }

    /// Begins a phase when so many bytes may still be written; those before it are over.
    pub(super) fn begin(&mut self, phase: Phase, left_bytes: u64) -> PhaseBudget {
        while self.ahead.first().is_some_and(|&ahead| ahead != phase) {
            self.ahead.remove(0);
        }
        let sum = |shares: &dyn Fn(Phase) -> u32| self.ahead.iter().map(|&phase| shares(phase)).sum::<u32>().max(1);
        let (time, bytes) = phase.shares();
        let (all_time, all_bytes) = (sum(&|phase| phase.shares().0), sum(&|phase| phase.shares().1));
        let time = self.left() * time / all_time;
        let bytes = (u128::from(left_bytes) * u128::from(bytes) / u128::from(all_bytes)) as u64;
        PhaseBudget { end: now() + time, kept_bytes: left_bytes - bytes }
    }
}

impl PhaseBudget {
    /// For the next of `count` measurements that are still to come, when so many bytes may still be written in all.
    pub(super) fn next(&self, count: usize, left_bytes: u64) -> Allowance {
        let count = count.max(1) as u32;
        let time = self.end.duration_since(now()) / count;
        Allowance { time, bytes: left_bytes.saturating_sub(self.kept_bytes) / u64::from(count) }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::{Simulation, sleep};

    use super::*;

    #[test]
    fn what_is_left_over_goes_to_those_behind() {
        let run = || {
            let mut budget = Budget::new(Duration::from_secs(110));
            let mut times = Vec::new();
            let mut left = 1280;
            for phase in Phase::ALL {
                let phase_budget = budget.begin(phase, left);
                let allowance = phase_budget.next(1, left);
                times.push((allowance.time, allowance.bytes));
                if phase != Phase::Stores {
                    sleep(allowance.time);
                    left -= allowance.bytes;
                }
            }
            (times, left, budget.left())
        };
        let (times, left, time) = Simulation::new(1).run(run).expect_finished();
        assert_eq!(times[0], (Duration::from_secs(18), 160));
        assert_eq!(times[3], (Duration::from_secs(18), 100));
        assert!(times[4].0 > Duration::from_secs(18) && times[4].1 > 240, "{times:?}");
        assert_eq!((left, time.as_millis()), (0, 0), "{times:?}");
    }
}
