//! The result of a run, ready for JSON. `docs/use/json.md` says what each field means; they are kept stable.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::recorder::{KindCounts, Recorder};

/// What a run did.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// Clients at the same time.
    pub clients: usize,
    /// The time that was counted.
    pub seconds: f64,
    /// Transactions that ended since the clients began, those included that are not counted: of the warm-up, and those that were
    /// under way when the time was up.
    pub ended: u64,
    /// All kinds together.
    pub total: KindReport,
    /// Each kind of transaction.
    pub kinds: Vec<KindReport>,
}

/// Counts and latencies of one kind of transaction, or of all.
#[derive(Clone, Debug, Serialize)]
pub struct KindReport {
    /// Its name; "total" for all.
    pub name: &'static str,
    /// Transactions acknowledged as durable.
    pub committed: u64,
    /// Transactions rolled back on purpose.
    pub rolled_back: u64,
    /// Attempts that the engine aborted: deadlock victims, lock time-outs, conflicts.
    pub aborted: u64,
    /// Attempts made after such an abort.
    pub retried: u64,
    /// Committed transactions in a second.
    pub per_second: f64,
    /// From the first attempt to the acknowledgement, retries and rollbacks included.
    pub latency: Latency,
}

/// Percentiles in microseconds, exact to one percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_us: f64,
    /// 25th percentile.
    pub p25_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 75th percentile.
    pub p75_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    /// Reads off a histogram of nanoseconds.
    pub fn of(histogram_ns: &Histogram<u64>) -> Self {
        let us = |ns: u64| ns as f64 / 1e3;
        Self {
            mean_us: histogram_ns.mean() / 1e3,
            p25_us: us(histogram_ns.value_at_quantile(0.25)),
            p50_us: us(histogram_ns.value_at_quantile(0.5)),
            p75_us: us(histogram_ns.value_at_quantile(0.75)),
            p95_us: us(histogram_ns.value_at_quantile(0.95)),
            p99_us: us(histogram_ns.value_at_quantile(0.99)),
            p999_us: us(histogram_ns.value_at_quantile(0.999)),
            max_us: us(histogram_ns.max()),
        }
    }

    /// Of the one thing that was done.
    pub fn of_one(duration: Duration) -> Self {
        let us = duration.as_secs_f64() * 1e6;
        Self { mean_us: us, p25_us: us, p50_us: us, p75_us: us, p95_us: us, p99_us: us, p999_us: us, max_us: us }
    }

    /// The median of each percentile over several runs, and the slowest of all.
    pub fn median(runs: &[Self]) -> Self {
        let of = |figure: &dyn Fn(&Self) -> f64| median(runs.iter().map(figure).collect()).unwrap_or_default();
        Self {
            mean_us: of(&|run| run.mean_us),
            p25_us: of(&|run| run.p25_us),
            p50_us: of(&|run| run.p50_us),
            p75_us: of(&|run| run.p75_us),
            p95_us: of(&|run| run.p95_us),
            p99_us: of(&|run| run.p99_us),
            p999_us: of(&|run| run.p999_us),
            max_us: runs.iter().map(|run| run.max_us).fold(0.0, f64::max),
        }
    }
}

/// The median of some figures, of an even number the mean of the two in the middle; `None` without any.
///
/// ```
/// use tantalum_workloads::driver::median;
///
/// assert_eq!(median(vec![]), None);
/// assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
/// assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
/// ```
pub fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    let upper = *figures.get(figures.len() / 2)?;
    Some(if figures.len() % 2 == 1 { upper } else { (figures[figures.len() / 2 - 1] + upper) / 2.0 })
}

impl RunReport {
    pub(super) fn new(names: &[&'static str], clients: usize, measured: Duration, recorders: &[Recorder]) -> Self {
        let seconds = measured.as_secs_f64();
        let mut total = KindCounts::new();
        let mut kinds = Vec::new();
        for (kind, name) in names.iter().enumerate() {
            let mut sum = KindCounts::new();
            recorders.iter().for_each(|recorder| sum.add(&recorder.kinds[kind]));
            total.add(&sum);
            kinds.push(KindReport::new(name, &sum, seconds));
        }
        let ended = recorders.iter().map(|recorder| recorder.ended).sum();
        Self { clients, seconds, ended, total: KindReport::new("total", &total, seconds), kinds }
    }
}

impl KindReport {
    fn new(name: &'static str, counts: &KindCounts, seconds: f64) -> Self {
        Self {
            name,
            committed: counts.committed,
            rolled_back: counts.rolled_back,
            aborted: counts.aborted,
            retried: counts.retried,
            per_second: if seconds > 0.0 { counts.committed as f64 / seconds } else { 0.0 },
            latency: Latency::of(&counts.latency_ns),
        }
    }
}

impl KindCounts {
    fn add(&mut self, other: &Self) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.aborted += other.aborted;
        self.retried += other.retried;
        self.latency_ns.add(&other.latency_ns).expect("a histogram that resizes itself takes every value");
    }
}
