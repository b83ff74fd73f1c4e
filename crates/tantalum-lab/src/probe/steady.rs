//! Random writes until the device is no longer better than it will be in use.

use super::{budget::Phase, found::Steady, prober::Prober};
use crate::{
    error::Result,
    micro::{Job, Pattern},
};

/// Rounds that must agree, and by how much, as a share of their mean.
const WINDOW: usize = 5;
const AGREE: f64 = 0.1;
/// A round is this part of the range.
const ROUNDS_PER_RANGE: u64 = 8;

impl Prober<'_> {
    pub(super) fn settle(&mut self) -> Result<Option<Steady>> {
        let budget = self.begin(Phase::Settle);
        if !self.plan.writes() {
            return Ok(None);
        }
        let request_bytes = self.small_bytes();
        let operations =
            (self.plan.range_bytes() / ROUNDS_PER_RANGE / u64::from(request_bytes)).clamp(1, self.plan.operations);
        let round_bytes = operations * u64::from(request_bytes);
        let mut rounds = Vec::new();
        while !is_reached(&rounds) {
            let allowance = self.next(&budget, 1);
            if allowance.bytes < round_bytes || allowance.time.is_zero() {
                break;
            }
            let job =
                Job { pattern: Pattern::Random, seed: self.plan.seed + rounds.len() as u64, ..self.job(request_bytes) };
            let job = Job { operations, time_limit: Some(allowance.time), ..job };
            let measured = crate::micro::run(&self.device, &job, &|_| self.show())?;
            // One that time cut short says nothing that the others could be compared with.
            if (measured.samples.len() as u64) < operations && !rounds.is_empty() {
                break;
            }
            rounds.push(measured.summary().bytes_per_second);
        }
        let is_reached = is_reached(&rounds);
        Ok(Some(Steady { rounds, round_bytes, is_reached }))
    }
}

fn is_reached(rounds: &[f64]) -> bool {
    let Some(last) = rounds.len().checked_sub(WINDOW).and_then(|first| rounds.get(first..)) else { return false };
    let mean = last.iter().sum::<f64>() / WINDOW as f64;
    last.iter().all(|rate| (rate / mean - 1.0).abs() <= AGREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_still_falls_is_not_steady() {
        assert!(!is_reached(&[100.0; 4]));
        assert!(is_reached(&[900.0, 100.0, 105.0, 95.0, 100.0, 102.0]));
        assert!(!is_reached(&[100.0, 90.0, 80.0, 70.0, 60.0]));
    }
}
