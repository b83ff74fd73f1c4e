//! How single measurements are made: jobs of the micro benchmarks, and writes at places that a measurement chooses itself.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Random, now};

use super::{budget::Allowance, prober::Prober};
use crate::{
    error::Result,
    micro::{Data, Job, Kind, Latency, Measured, Sample, run},
};

impl Prober<'_> {
    /// A job of the plan, without writes and of no length.
    pub(super) fn job(&self, request_bytes: u32) -> Job {
        let job = Job::writes(request_bytes, 0, self.plan.range.clone());
        Job { data: self.plan.data, seed: self.plan.seed, ..job }
    }

    /// Runs a job as long as it may; `None` if it may not at all.
    pub(super) fn run(&self, job: Job, Allowance { time, bytes }: Allowance) -> Result<Option<Measured>> {
        let writable = bytes / u64::from(job.request_bytes);
        let operations = if job.reads_percent >= 100 { u64::MAX } else { writable }.min(self.plan.operations);
        if operations == 0 || time.is_zero() {
            return Ok(None);
        }
        self.show();
        let job = Job { operations, time_limit: Some(time), ..job };
        Ok(Some(run(&self.device, &job, &|_| self.show())?).filter(|measured| !measured.samples.is_empty()))
    }

    /// What writes hold.
    pub(super) fn buffer(&self, bytes: u64) -> Arc<AlignedBuffer> {
        let mut buffer = AlignedBuffer::zeroed(bytes as usize);
        if self.plan.data == Data::Random {
            Random::with_seed(self.plan.seed).fill(&mut buffer);
        }
        Arc::new(buffer)
    }

    /// Cached writes of `chunk_bytes` in requests of at most `request_bytes`, where `place` says, as long as they may go on.
    /// Returns the rate of the second half in bytes a second, `None` if there is none.
    pub(super) fn write_chunks(
        &self,
        chunk_bytes: u64,
        request_bytes: u64,
        mut place: impl FnMut(u64) -> u64,
        Allowance { time, bytes }: Allowance,
    ) -> Result<Option<f64>> {
        let request_bytes = request_bytes.min(chunk_bytes);
        let buffer = self.buffer(request_bytes);
        let end = now() + time;
        let mut times = Vec::new();
        for number in 0..bytes / chunk_bytes {
            let (started, at) = (now(), place(number));
            if started >= end {
                break;
            }
            for step in 0..chunk_bytes / request_bytes {
                self.device.write(at + step * request_bytes, &[&buffer], Durability::Cached)?;
            }
            times.push((now() - started).as_nanos() as u64);
            if number.is_multiple_of(16) {
                self.show();
            }
        }
        let settled = &times[times.len() / 2..];
        let sum: u64 = settled.iter().sum();
        Ok((times.len() >= 2).then(|| settled.len() as f64 * chunk_bytes as f64 * 1e9 / sum.max(1) as f64))
    }

    /// How often `act` can be done as long as it may, and how long each took on average, in nanoseconds.
    pub(super) fn repeat(
        &self,
        bytes_each: u64,
        Allowance { time, bytes }: Allowance,
        mut act: impl FnMut(&dyn Device) -> tantalum_device::Result<()>,
    ) -> Result<Option<f64>> {
        let started = now();
        let mut count = 0u64;
        while count < self.plan.operations && started.elapsed() < time && (count + 1) * bytes_each <= bytes {
            act(&*self.device)?;
            count += 1;
            self.show();
        }
        Ok((count > 0).then(|| started.elapsed().as_nanos() as f64 / count as f64))
    }
}

/// The second half of what one thread measured: what was there before it began no longer counts.
pub(super) fn settled(measured: &Measured) -> Measured {
    let samples = measured.samples[measured.samples.len() / 2..].to_vec();
    let elapsed_ns = samples.iter().map(|sample| sample.nanoseconds).sum();
    Measured { samples, elapsed_ns, ..*measured }
}

/// Response times of what is no flush.
pub(super) fn requests(measured: &Measured) -> Latency {
    measured.latency_of(|sample| sample.kind != Kind::Flush)
}

/// Response times of writes, each with the flush behind it.
pub(super) fn with_flushes(measured: &Measured) -> Latency {
    let times = measured.samples.chunk_by(|_, next| next.kind == Kind::Flush);
    let mut times: Vec<u64> = times.map(|both: &[Sample]| both.iter().map(|sample| sample.nanoseconds).sum()).collect();
    times.sort_unstable();
    Latency::of_sorted(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_and_its_flush_count_as_one() {
        let sample = |kind, nanoseconds| Sample { kind, stream: 0, nanoseconds };
        let samples =
            vec![sample(Kind::Write, 10), sample(Kind::Flush, 100), sample(Kind::Write, 20), sample(Kind::Flush, 200)];
        let measured = Measured { samples, elapsed_ns: 330, request_bytes: 512 };
        let latency = with_flushes(&measured);
        assert_eq!((latency.count, latency.mean_ns, latency.max_ns), (2, 165.0, 220));
        assert_eq!(requests(&measured).count, 2);
        assert_eq!(settled(&measured).elapsed_ns, 220);
    }
}
