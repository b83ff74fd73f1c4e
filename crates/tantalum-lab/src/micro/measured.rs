//! What a micro benchmark found: every response time, and what people want to know of them.

use serde::Serialize;

/// What one response time belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush.
    Flush,
    /// An erase of a block of raw flash.
    Erase,
}

/// One response time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Of what.
    pub kind: Kind,
    /// 0, or 1 for the second of two streams.
    pub stream: u8,
    /// From the call to its return.
    pub nanoseconds: u64,
}

/// All response times of a job, in the order in which each thread saw them, one thread after the other.
///
/// ```
/// use tantalum_lab::micro::{Kind, Measured, Sample};
///
/// let sample = |nanoseconds| Sample { kind: Kind::Write, stream: 0, nanoseconds };
/// let measured = Measured { samples: vec![sample(100), sample(300)], elapsed_ns: 400, request_bytes: 4096 };
/// let summary = measured.summary();
/// assert_eq!((summary.per_second, summary.latency.mean_ns, summary.latency.max_ns), (5e6, 200.0, 300));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Reads, writes and flushes.
    pub samples: Vec<Sample>,
    /// From the first request's begin to the last one's end.
    pub elapsed_ns: u64,
    /// Bytes of each read and write.
    pub request_bytes: u32,
}

/// A job's result in a few numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Reads and writes, or erases.
    pub operations: u64,
    /// Flushes beside them.
    pub flushes: u64,
    /// How long all took.
    pub seconds: f64,
    /// Reads and writes in a second.
    pub per_second: f64,
    /// Bytes read and written in a second.
    pub bytes_per_second: f64,
    /// Of reads and writes.
    pub latency: Latency,
}

/// Response times, exact: percentiles are the smallest that so many percent do not exceed. Zero where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean_ns: f64,
    /// Half of them take at most this.
    pub p50_ns: u64,
    /// 90 in 100.
    pub p90_ns: u64,
    /// 99 in 100.
    pub p99_ns: u64,
    /// 999 in 1000.
    pub p999_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

impl Measured {
    /// The whole job in a few numbers.
    pub fn summary(&self) -> Summary {
        let flushes = self.samples.iter().filter(|sample| sample.kind == Kind::Flush).count() as u64;
        let operations = self.samples.len() as u64 - flushes;
        let seconds = self.elapsed_ns.max(1) as f64 / 1e9;
        let per_second = operations as f64 / seconds;
        Summary {
            operations,
            flushes,
            seconds,
            per_second,
            bytes_per_second: per_second * f64::from(self.request_bytes),
            latency: self.latency_of(|sample| sample.kind != Kind::Flush),
        }
    }

    /// Response times of those samples that `belongs` picks.
    pub fn latency_of(&self, belongs: impl Fn(&Sample) -> bool) -> Latency {
        let mut times: Vec<u64> =
            self.samples.iter().filter(|sample| belongs(sample)).map(|sample| sample.nanoseconds).collect();
        times.sort_unstable();
        Latency::of_sorted(&times)
    }

    /// The response times of reads and writes that 0, 1, ... 100 percent of them do not exceed; empty if there are none.
    pub fn percentiles_ns(&self) -> Vec<u64> {
        let operations = self.samples.iter().filter(|sample| sample.kind != Kind::Flush);
        let mut times: Vec<u64> = operations.map(|sample| sample.nanoseconds).collect();
        times.sort_unstable();
        let Some(last) = times.len().checked_sub(1) else { return Vec::new() };
        (0..=100).map(|percent| times[(times.len() * percent).div_ceil(100).saturating_sub(1).min(last)]).collect()
    }

    /// Response times of the writes, in order.
    pub fn writes_ns(&self) -> Vec<u64> {
        let writes = self.samples.iter().filter(|sample| sample.kind == Kind::Write);
        writes.map(|sample| sample.nanoseconds).collect()
    }
}

impl Latency {
    pub(crate) fn of_sorted(times: &[u64]) -> Self {
        let Some(&max_ns) = times.last() else { return Self::default() };
        let at = |per_mille: usize| times[(times.len() * per_mille).div_ceil(1000) - 1];
        let sum: u128 = times.iter().map(|&time| u128::from(time)).sum();
        Self {
            count: times.len() as u64,
            mean_ns: sum as f64 / times.len() as f64,
            p50_ns: at(500),
            p90_ns: at(900),
            p99_ns: at(990),
            p999_ns: at(999),
            max_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact() {
        let times: Vec<u64> = (1..=1000).collect();
        let latency = Latency::of_sorted(&times);
        assert_eq!((latency.p50_ns, latency.p90_ns, latency.p99_ns, latency.p999_ns), (500, 900, 990, 999));
        assert_eq!((latency.count, latency.mean_ns, latency.max_ns), (1000, 500.5, 1000));
        let samples = times.iter().map(|&nanoseconds| Sample { kind: Kind::Read, stream: 0, nanoseconds }).collect();
        let percentiles = Measured { samples, elapsed_ns: 1, request_bytes: 1 }.percentiles_ns();
        assert_eq!((percentiles[0], percentiles[1], percentiles[99], percentiles[100]), (1, 10, 990, 1000));
        assert_eq!(Latency::of_sorted(&[7]).p50_ns, 7);
        assert_eq!(Latency::of_sorted(&[]), Latency::default());
    }
}
