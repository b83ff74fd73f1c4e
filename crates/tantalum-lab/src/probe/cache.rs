//! Flushes, and the write cache in front of the medium.

use std::time::Duration;

use tantalum_device::Durability;
use tantalum_rt::{Random, now, sleep};

use super::{
    budget::{Allowance, Phase},
    found::{Cache, Flushed},
    prober::Prober,
};
use crate::{error::Result, micro::Latency};

/// Flushes of nothing.
const EMPTY_FLUSHES: usize = 50;
/// Before a burst a device gets the time to empty its cache.
const REST: Duration = Duration::from_millis(200);
/// Steps of a burst, and how much slower than at first they are behind the knee.
const STEPS: u64 = 64;
const SLOW: f64 = 2.5;
/// The first bytes of a burst tell how fast the cache is.
const FIRST_STEPS: usize = 2;
/// What is written before a flush in order, in requests of so many bytes; and how much anywhere.
const FLUSHED_REQUEST: u64 = 64 << 10;
const SCATTERED_BYTES: u64 = 2 << 20;

impl Prober<'_> {
    pub(super) fn cache(&mut self) -> Result<Option<Cache>> {
        let budget = self.begin(Phase::Cache);
        if !self.plan.writes() {
            return Ok(None);
        }
        let mut empty = Vec::new();
        for _ in 0..EMPTY_FLUSHES {
            let started = now();
            self.device.flush()?;
            empty.push((now() - started).as_nanos() as u64);
            if self.next(&budget, 8).time.is_zero() {
                break;
            }
        }
        empty.sort_unstable();
        let mut flushed = Vec::new();
        let sizes: Vec<u64> = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20].into();
        for (done, &dirty_bytes) in sizes.iter().enumerate() {
            let allowance = self.next(&budget, sizes.len() - done + 1);
            let fits = dirty_bytes <= allowance.bytes.min(self.plan.range_bytes());
            // Twice: what was written is flushed too, and a rest comes before.
            if fits && !allowance.time.is_zero() && self.has_time_for(2 * dirty_bytes, allowance) {
                flushed.push(self.flush_after(dirty_bytes)?);
            }
        }
        let allowance = self.next(&budget, 2);
        let dirty_bytes = SCATTERED_BYTES.min(self.plan.range_bytes() / 8);
        let scattered = match dirty_bytes <= allowance.bytes && !allowance.time.is_zero() {
            true => Some(self.flush_after_scattered(dirty_bytes)?),
            false => None,
        };
        sleep(REST);
        let allowance = self.next(&budget, 1);
        let burst = self.burst(allowance)?;
        let knee_bytes = knee(&burst);
        self.device.flush()?;
        Ok(Some(Cache { empty_flush: Latency::of_sorted(&empty), flushed, scattered, burst, knee_bytes }))
    }

    fn flush_after(&self, dirty_bytes: u64) -> Result<Flushed> {
        let request_bytes = dirty_bytes.min(FLUSHED_REQUEST).max(u64::from(self.device.capabilities().logical_block));
        self.flush_written(dirty_bytes, request_bytes, |number| number)
    }

    fn flush_after_scattered(&self, dirty_bytes: u64) -> Result<Flushed> {
        let request_bytes = u64::from(self.small_bytes());
        let (slots, mut random) = (self.plan.range_bytes() / request_bytes, Random::with_seed(self.plan.seed));
        self.flush_written(dirty_bytes, request_bytes, |_| random.u64(..slots))
    }

    /// Writes so many bytes after a rest, where `slot` says for each request, and flushes.
    fn flush_written(&self, dirty_bytes: u64, request_bytes: u64, mut slot: impl FnMut(u64) -> u64) -> Result<Flushed> {
        self.show();
        sleep(REST);
        let buffer = self.buffer(request_bytes);
        let started = now();
        for number in 0..dirty_bytes / request_bytes {
            let offset = self.plan.range.start + slot(number) * request_bytes;
            self.device.write(offset, &[&buffer], Durability::Cached)?;
        }
        let written = now();
        self.device.flush()?;
        Ok(Flushed {
            dirty_bytes,
            write_ns: (written - started).as_nanos() as u64,
            flush_ns: (now() - written).as_nanos() as u64,
        })
    }

    /// Small writes anywhere: bytes so far, and the mean response time of each step.
    fn burst(&self, allowance: Allowance) -> Result<Vec<(u64, f64)>> {
        let request_bytes = u64::from(self.small_bytes());
        let slots = self.plan.range_bytes() / request_bytes;
        let step_requests = (allowance.bytes / STEPS / request_bytes).clamp(1, self.plan.operations / STEPS + 1);
        let (mut random, buffer) = (Random::with_seed(self.plan.seed), self.buffer(request_bytes));
        let started = now();
        let mut burst = Vec::new();
        for step in 0..STEPS.min(allowance.bytes / request_bytes / step_requests) {
            let begun = now();
            if begun - started >= allowance.time {
                break;
            }
            for _ in 0..step_requests {
                let offset = self.plan.range.start + random.u64(..slots) * request_bytes;
                self.device.write(offset, &[&buffer], Durability::Cached)?;
            }
            let mean_ns = (now() - begun).as_nanos() as f64 / step_requests as f64;
            burst.push(((step + 1) * step_requests * request_bytes, mean_ns));
            self.show();
        }
        Ok(burst)
    }
}

/// The bytes after which steps are slow to the end, on average and most of them.
fn knee(burst: &[(u64, f64)]) -> Option<u64> {
    let (first, rest) = burst.split_at_checked(FIRST_STEPS)?;
    let slow_ns = SLOW * first.iter().map(|step| step.1).sum::<f64>() / FIRST_STEPS as f64;
    let begin = rest.iter().position(|step| step.1 > slow_ns)?;
    let behind = &rest[begin..];
    let slow = behind.iter().filter(|step| step.1 > slow_ns).count();
    let mean = behind.iter().map(|step| step.1).sum::<f64>() / behind.len() as f64;
    let lasts = behind.len() >= FIRST_STEPS && mean > slow_ns && 3 * slow >= behind.len();
    lasts.then(|| burst[FIRST_STEPS + begin - 1].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knee_is_where_it_stays_slow() {
        let burst = |times: &[f64]| (1..).map(|step| step * 1000).zip(times.iter().copied()).collect::<Vec<_>>();
        assert_eq!(knee(&burst(&[1.0, 1.0, 1.2, 9.0, 8.0, 9.0])), Some(3000));
        assert_eq!(knee(&burst(&[1.0, 1.0, 1.2, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0])), None, "one stall is no knee");
        assert_eq!(knee(&burst(&[1.0, 1.0, 1.0])), None);
        assert_eq!(knee(&[]), None);
    }
}
