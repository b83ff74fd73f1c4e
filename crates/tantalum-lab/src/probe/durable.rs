//! Durable writes as a log makes them: by size, in each way, and in two streams.

use super::{
    budget::{Phase, PhaseBudget},
    found::{Durable, TwoStreams, Ways},
    measure::{requests, with_flushes},
    prober::Prober,
};
use crate::{
    error::Result,
    micro::{Flushing, Job, Latency, Measured, Outliers, Pattern},
};

/// Writes of one size, so that outliers are seen that are rare.
const WRITES_MAX: u64 = 5000;
/// Larger ones than this are no log's.
const LARGEST: u32 = 256 << 10;
/// The ways to make a write durable, and the streams, come after the sizes.
const OTHERS: usize = 5;

impl Prober<'_> {
    /// What others have left in a cache would be waited for by the first durable write.
    pub(super) fn begin_durable(&mut self) -> Result<PhaseBudget> {
        let budget = self.begin(Phase::Durable);
        self.flush_if_writing()?;
        Ok(budget)
    }

    pub(super) fn durable(&self, budget: &PhaseBudget) -> Result<Vec<Durable>> {
        let mut sizes = self.plan.sizes(self.device.capabilities().logical_block);
        sizes.retain(|&size| size <= LARGEST);
        let mut rows = Vec::new();
        for (done, &bytes) in sizes.iter().enumerate() {
            let job = Job { flushing: Flushing::EachWrite, ..self.job(bytes) };
            if let Some(measured) = self.short(job, budget, sizes.len() - done + OTHERS)? {
                let outliers = Outliers::of(&measured.writes_ns());
                rows.push(Durable { bytes, latency: requests(&measured), outliers });
            }
        }
        Ok(rows)
    }

    pub(super) fn ways(&self, budget: &PhaseBudget) -> Result<Option<Ways>> {
        let bytes = self.small_bytes();
        let way = |flushing, count, latency: fn(&Measured) -> Latency| -> Result<Option<Latency>> {
            let job = Job { flushing, ..self.job(bytes) };
            Ok(self.short(job, budget, count)?.as_ref().map(latency))
        };
        // The order keeps what is cached from being flushed by those that are measured.
        let durable = way(Flushing::EachWrite, 5, requests)?;
        let write_and_flush = way(Flushing::After(1), 4, with_flushes)?;
        let cached = way(Flushing::Never, 3, requests)?;
        self.flush_if_writing()?;
        Ok(match (cached, write_and_flush, durable) {
            (Some(cached), Some(write_and_flush), Some(durable)) => {
                Some(Ways { bytes, cached, write_and_flush, durable })
            }
            _ => None,
        })
    }

    pub(super) fn two_streams(&self, budget: &PhaseBudget) -> Result<Option<TwoStreams>> {
        let bytes = self.small_bytes();
        let job = Job { flushing: Flushing::EachWrite, ..self.job(bytes) };
        let Some(one) = self.short(job.clone(), budget, 2)? else { return Ok(None) };
        let two = Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..job };
        let Some(both) = self.short(two, budget, 1)? else { return Ok(None) };
        let second = both.latency_of(|sample| sample.stream == 1);
        Ok(Some(TwoStreams { bytes, one: requests(&one), both: requests(&both), second }))
    }

    fn flush_if_writing(&self) -> Result<()> {
        if self.plan.writes() { Ok(self.device.flush()?) } else { Ok(()) }
    }

    fn short(&self, job: Job, budget: &PhaseBudget, count: usize) -> Result<Option<Measured>> {
        let mut allowance = self.next(budget, count);
        allowance.bytes = allowance.bytes.min(WRITES_MAX * u64::from(job.request_bytes));
        self.run(job, allowance)
    }
}
