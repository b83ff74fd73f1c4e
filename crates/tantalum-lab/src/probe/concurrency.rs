//! Many small requests at once: how deep a queue pays, and how many partitions of a log.

use tantalum_rt::{now, spawn};

use super::{
    budget::{Allowance, Phase},
    found::{Streams, Tasks},
    measure::requests,
    prober::Prober,
};
use crate::{
    error::Result,
    micro::{Flushing, Job, Pattern, run},
};

/// Partitions of a log at most.
const STREAMS_MAX: u32 = 16;

impl Prober<'_> {
    pub(super) fn tasks(&mut self) -> Result<Vec<Tasks>> {
        let bytes = self.small_bytes();
        let counts = [1, 2, 4, 8, 16, 32];
        let budget = self.begin(Phase::Tasks);
        let mut rows = Vec::new();
        for (done, &tasks) in counts.iter().enumerate() {
            let left = 2 * (counts.len() - done);
            let job = Job { reads_percent: 100, pattern: Pattern::Random, threads: tasks, ..self.job(bytes) };
            let Some(reads) = self.run(job, self.next(&budget, left))? else { break };
            let allowance = self.next(&budget, left - 1);
            let streams = if tasks <= STREAMS_MAX { self.streams(tasks, bytes, allowance)? } else { None };
            rows.push(Tasks { tasks, reads_per_second: reads.summary().per_second, streams });
        }
        Ok(rows)
    }

    /// As many streams of durable writes, each in order in its part of the range.
    fn streams(&self, count: u32, bytes: u32, Allowance { time, bytes: most }: Allowance) -> Result<Option<Streams>> {
        let part = self.plan.range_bytes() / u64::from(count) / u64::from(bytes) * u64::from(bytes);
        let operations = (most / u64::from(count) / u64::from(bytes)).min(self.plan.operations / u64::from(count));
        if operations == 0 || time.is_zero() || part < u64::from(bytes) {
            return Ok(None);
        }
        self.show();
        let started = now();
        let tasks: Vec<_> = (0..count)
            .map(|number| {
                let begin = self.plan.range.start + u64::from(number) * part;
                let job = Job {
                    operations,
                    time_limit: Some(time),
                    flushing: Flushing::EachWrite,
                    range: begin..begin + part,
                    ..self.job(bytes)
                };
                let device = std::sync::Arc::clone(&self.device);
                spawn(format!("stream-{number}"), move || run(&device, &job, &|_| ()))
            })
            .collect();
        let mut results = Vec::new();
        for task in tasks {
            results.push(task.join().expect("a stream does not panic"));
        }
        let seconds = started.elapsed().as_secs_f64();
        let (mut writes, mut sum_ns) = (0, 0.0);
        for result in results {
            let latency = requests(&result?);
            writes += latency.count;
            sum_ns += latency.mean_ns * latency.count as f64;
        }
        Ok((writes > 0)
            .then(|| Streams { per_second: writes as f64 / seconds.max(1e-9), mean_ns: sum_ns / writes as f64 }))
    }
}
