//! Rates by request size, and response times: Figures 3 to 6 of "Early Experience and Evaluation of File Systems on SSD".

use super::{
    budget::Phase,
    found::{Pattern, Responses, SizeRow, Throughput},
    measure::settled,
    prober::Prober,
};
use crate::{
    error::Result,
    micro::{self, Job, Measured, fill},
};

/// Single response times that are kept for a plot.
const EACH_MAX: usize = 2000;

impl Prober<'_> {
    /// Writes all of the range once. Returns the rate.
    pub(super) fn fill(&mut self) -> Result<Option<f64>> {
        let range = self.plan.range.clone();
        let budget = self.begin(Phase::Fill);
        if !self.plan.writes() {
            return Ok(None);
        }
        let allowance = self.next(&budget, 1);
        let bytes = self.plan.range_bytes();
        // All or nothing would be too little on a slow device: what is not written is zeros, or what was there.
        let filled = bytes.min(allowance.bytes);
        let job = Job { range: range.start..range.start + filled, ..self.job(1 << 20) };
        let job = Job { operations: filled >> 20, time_limit: Some(allowance.time), ..job };
        if job.operations == 0 {
            fill(&self.device, range.start..range.start + filled, self.plan.data, &|_| ())?;
            return Ok(None);
        }
        let measured = micro::run(&self.device, &job, &|_| self.show())?;
        self.device.flush()?;
        let written = measured.samples.len() as u64 * u64::from(job.request_bytes);
        if written < bytes - bytes % (1 << 20) {
            let percent = written * 100 / bytes;
            self.leave_out(format!("writing all once before: the time was enough for {percent} %"));
        }
        self.speed = Some(settled(&measured).summary().bytes_per_second);
        Ok(self.speed)
    }

    pub(super) fn sizes(&mut self) -> Result<Vec<SizeRow>> {
        let sizes = self.plan.sizes(self.device.capabilities().logical_block);
        let budget = self.begin(Phase::Sizes);
        let mut left = sizes.len() * Pattern::ALL.len();
        let mut rows = Vec::new();
        for bytes in sizes {
            let mut rates = Vec::new();
            for pattern in Pattern::ALL {
                let allowance = self.next(&budget, left);
                left -= 1;
                if let Some(measured) = self.run(self.shape(bytes, pattern), allowance)? {
                    rates.push(Throughput::of(pattern, &measured));
                } else if self.plan.writes() {
                    self.leave_out("some request sizes: neither time nor bytes were left");
                }
            }
            rows.push(SizeRow { bytes, rates });
        }
        Ok(rows)
    }

    pub(super) fn responses(&mut self) -> Result<Vec<Responses>> {
        let bytes = self.small_bytes();
        let patterns = [Pattern::RandomRead, Pattern::RandomWrite, Pattern::RandomMixed];
        let budget = self.begin(Phase::Responses);
        let mut responses = Vec::new();
        for (done, pattern) in patterns.into_iter().enumerate() {
            let allowance = self.next(&budget, patterns.len() - done);
            if let Some(measured) = self.run(self.shape(bytes, pattern), allowance)? {
                let each_ns = measured.samples.iter().map(|sample| sample.nanoseconds).take(EACH_MAX).collect();
                let percentiles_ns = measured.percentiles_ns();
                let latency = measured.summary().latency;
                responses.push(Responses { pattern, bytes, latency, percentiles_ns, each_ns });
            }
        }
        Ok(responses)
    }

    /// A job of this pattern.
    fn shape(&self, bytes: u32, pattern: Pattern) -> Job {
        use micro::Pattern::{Random, Sequential};
        let (pattern, reads_percent) = match pattern {
            Pattern::SequentialRead => (Sequential, 100),
            Pattern::RandomRead => (Random, 100),
            Pattern::SequentialWrite => (Sequential, 0),
            Pattern::RandomWrite => (Random, 0),
            Pattern::RandomMixed => (Random, 50),
        };
        Job { pattern, reads_percent, ..self.job(bytes) }
    }
}

impl Throughput {
    fn of(pattern: Pattern, measured: &Measured) -> Self {
        let summary = settled(measured).summary();
        Self {
            pattern,
            bytes_per_second: summary.bytes_per_second,
            operations: summary.operations,
            mean_ns: summary.latency.mean_ns,
            p99_ns: summary.latency.p99_ns,
        }
    }
}
