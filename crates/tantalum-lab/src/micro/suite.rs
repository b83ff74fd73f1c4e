//! What a device is usually put through: the micro benchmarks of FlashLogging (sections 2.1, 3.4 and 4), DuraSSD
//! (section 2.3) and of "File systems on SSD" (section III), each a list of jobs.

use std::{ops::Range, sync::Arc, time::Duration};

use serde::Serialize;
use tantalum_device::Device;

use super::{
    job::{Data, Flushing, Job, Pattern},
    raw::{FlashJob, FlashPlan, flash_benchmarks},
    run::fill,
};
use crate::error::Result;

/// How long and where.
///
/// ```
/// use tantalum_lab::micro::suite::{self, Plan};
///
/// let plan = Plan::new(512, 0..1 << 30);
/// for benchmark in suite::benchmarks(&plan) {
///     println!("{}: {} jobs; {}", benchmark.name, benchmark.jobs.len(), benchmark.what);
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// The bytes of the device to use.
    pub range: Range<u64>,
    /// The device's logical block; smaller requests are left out.
    pub block_bytes: u32,
    /// Requests of a job of up to 32 KiB per request; of larger ones there are a tenth.
    pub operations: u64,
    /// For each job.
    pub time_limit: Option<Duration>,
    /// What writes hold.
    pub data: Data,
    /// For addresses, mixes and data.
    pub seed: u64,
}

/// One micro benchmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Benchmark {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// What is different from job to job.
    pub varies: &'static str,
    /// Its jobs, each with its value of what varies.
    pub jobs: Vec<(String, Load)>,
}

/// What a benchmark does at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Load {
    /// To a device of blocks.
    Blocks(Job),
    /// To raw flash.
    Flash(FlashJob),
}

impl Load {
    /// Requests in all.
    pub fn operations(&self) -> u64 {
        match self {
            Self::Blocks(job) => job.operations,
            Self::Flash(job) => job.operations,
        }
    }

    /// Bytes of each.
    pub fn request_bytes(&self) -> u32 {
        match self {
            Self::Blocks(job) => job.request_bytes,
            Self::Flash(job) => job.request_bytes,
        }
    }

    /// Tasks that do one at a time each.
    pub fn tasks(&self) -> u32 {
        match self {
            Self::Blocks(job) => job.threads,
            Self::Flash(job) => job.planes,
        }
    }
}

/// The benchmarks for a device of its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Suite {
    /// Of blocks, as all devices are but raw flash.
    Blocks(Plan),
    /// Raw flash.
    Flash(FlashPlan),
}

impl Suite {
    /// All benchmarks.
    pub fn benchmarks(&self) -> Vec<Benchmark> {
        match self {
            Self::Blocks(plan) => benchmarks(plan),
            Self::Flash(plan) => flash_benchmarks(plan),
        }
    }

    /// Bytes that [`Suite::prepare`] writes.
    pub fn fill_bytes(&self) -> u64 {
        match self {
            Self::Blocks(plan) => plan.range.end - plan.range.start,
            Self::Flash(_) => 0,
        }
    }

    /// Makes a device ready, which is then written once; raw flash is, job by job.
    ///
    /// # Errors
    /// As [`fill`].
    pub fn prepare(&self, device: &Arc<dyn Device>, progress: &dyn Fn(u64)) -> Result<()> {
        match self {
            Self::Blocks(plan) => fill(device, plan.range.clone(), plan.data, progress),
            Self::Flash(_) => Ok(()),
        }
    }
}

impl From<Job> for Load {
    fn from(job: Job) -> Self {
        Self::Blocks(job)
    }
}

impl From<FlashJob> for Load {
    fn from(job: FlashJob) -> Self {
        Self::Flash(job)
    }
}

impl Plan {
    /// 10,000 requests a job, as FlashLogging had it, and no time limit.
    pub const fn new(block_bytes: u32, range: Range<u64>) -> Self {
        Self { range, block_bytes, operations: 10_000, time_limit: None, data: Data::Random, seed: 42 }
    }

    fn job(&self, request_bytes: u32) -> Job {
        let operations = if request_bytes > 32 << 10 { self.operations.div_ceil(10) } else { self.operations };
        let job = Job::writes(request_bytes, operations, self.range.clone());
        Job { time_limit: self.time_limit, data: self.data, seed: self.seed, ..job }
    }

    /// Request sizes: 512 B to 2 MiB by powers of two, as far as the device and the range take them.
    fn sizes(&self) -> impl Iterator<Item = u32> {
        let (block, room) = (self.block_bytes, self.range.end - self.range.start);
        (9..=21).map(|shift| 1 << shift).filter(move |&size| size >= block && 2 * u64::from(size) <= room)
    }

    /// A size of the papers, or the block if that is larger.
    fn at_least_a_block(&self, bytes: u32) -> u32 {
        bytes.max(self.block_bytes)
    }
}

/// All of them. Those that read do not write first: [`fill`] the range before.
pub fn benchmarks(plan: &Plan) -> Vec<Benchmark> {
    let reads = |job| Job { reads_percent: 100, ..job };
    let random = |job| Job { pattern: Pattern::Random, ..job };
    let durable = |job| Job { flushing: Flushing::EachWrite, ..job };
    let half = |job| Job { reads_percent: 50, ..job };
    let small = plan.at_least_a_block(4096);
    let two_streams = Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..durable(plan.job(small)) };
    vec![
        by_size(plan, "sequential-read", "reads one after the other", &reads),
        by_size(plan, "random-read", "reads anywhere", &|job| random(reads(job))),
        by_size(plan, "sequential-write", "durable writes one after the other", &durable),
        by_size(plan, "random-write", "durable writes anywhere", &|job| random(durable(job))),
        by_size(plan, "mixed", "half reads and half durable writes, anywhere", &|job| random(durable(half(job)))),
        Benchmark {
            name: "response-times",
            what: "distribution of response times of small random requests, writes cached",
            varies: "requests",
            jobs: vec![
                ("reads".into(), random(reads(plan.job(small))).into()),
                ("writes".into(), random(plan.job(small)).into()),
                ("half of each".into(), random(half(plan.job(small))).into()),
            ],
        },
        back_to_back(plan),
        Benchmark {
            name: "two-streams",
            what: "durable writes, 99 % of them in one sequential stream and 1 % in another",
            varies: "streams",
            jobs: vec![("one".into(), durable(plan.job(small)).into()), ("99/1".into(), two_streams.into())],
        },
        writes_per_flush(plan),
        threads(plan, "threads-read", "small reads anywhere, by many at once", &|job| random(reads(job))),
        threads(plan, "threads-write", "small cached writes anywhere, by many at once", &random),
        page_sizes(plan),
        overlapping(plan),
    ]
}

fn by_size(plan: &Plan, name: &'static str, what: &'static str, shape: &dyn Fn(Job) -> Job) -> Benchmark {
    let jobs = plan.sizes().map(|size| (bytes(size), shape(plan.job(size)).into())).collect();
    Benchmark { name, what, varies: "request", jobs }
}

fn threads(plan: &Plan, name: &'static str, what: &'static str, shape: &dyn Fn(Job) -> Job) -> Benchmark {
    let job = |threads| Job { threads, ..shape(plan.job(plan.at_least_a_block(4096))) };
    let jobs = [1, 2, 4, 8, 16, 32, 64, 128].map(|threads| (threads.to_string(), job(threads).into())).into();
    Benchmark { name, what, varies: "threads", jobs }
}

/// FlashLogging, Figure 6: 5000 writes of 512 B and of 4 KiB, however long they take.
fn back_to_back(plan: &Plan) -> Benchmark {
    let mut sizes = [512, 4096].map(|size| plan.at_least_a_block(size)).to_vec();
    sizes.dedup();
    let job = |size| Job { operations: plan.operations.min(5000), flushing: Flushing::EachWrite, ..plan.job(size) };
    Benchmark {
        name: "back-to-back",
        what: "each response time of durable sequential writes; how many stand out, and could one have known",
        varies: "request",
        jobs: sizes.into_iter().map(|size| (bytes(size), job(size).into())).collect(),
    }
}

/// DuraSSD, Table 1.
fn writes_per_flush(plan: &Plan) -> Benchmark {
    let job = |flushing| Job { pattern: Pattern::Random, flushing, ..plan.job(plan.at_least_a_block(4096)) };
    let counts = [1, 4, 8, 16, 32, 64, 128, 256].map(|count| (count.to_string(), job(Flushing::After(count)).into()));
    Benchmark {
        name: "writes-per-flush",
        what: "small random cached writes, with a flush after so many",
        varies: "writes per flush",
        jobs: counts.into_iter().chain([("no flush".to_owned(), job(Flushing::Never).into())]).collect(),
    }
}

/// DuraSSD, Table 2.
fn page_sizes(plan: &Plan) -> Benchmark {
    let loads: [(&str, Job); 4] = [
        ("reads, 128 threads", Job { reads_percent: 100, threads: 128, ..plan.job(plan.block_bytes) }),
        ("writes, flush after each", Job { flushing: Flushing::After(1), ..plan.job(plan.block_bytes) }),
        ("writes, flush after 256", Job { flushing: Flushing::After(256), ..plan.job(plan.block_bytes) }),
        ("writes, 128 threads", Job { threads: 128, ..plan.job(plan.block_bytes) }),
    ];
    let pages = [16 << 10, 8 << 10, 4 << 10].into_iter().filter(|&page| page >= plan.block_bytes);
    let jobs = pages.flat_map(|page| {
        let job = move |job: &Job| Job { request_bytes: page, pattern: Pattern::Random, ..job.clone() };
        loads.iter().map(move |(load, shape)| (format!("{}, {load}", bytes(page)), job(shape).into()))
    });
    Benchmark {
        name: "page-sizes",
        what: "random pages as databases read and write them",
        varies: "page",
        jobs: jobs.collect(),
    }
}

/// FlashLogging, section 4: the same writes apart, and overlapping by one block.
fn overlapping(plan: &Plan) -> Benchmark {
    let size = plan.at_least_a_block(4096).max(2 * plan.block_bytes);
    let job = |pattern| Job { pattern, flushing: Flushing::EachWrite, ..plan.job(size) };
    let overlap = format!("by {}", bytes(plan.block_bytes));
    Benchmark {
        name: "overlapping",
        what: "durable sequential writes, apart and beginning before the last one's end",
        varies: "overlap",
        jobs: vec![
            ("none".into(), job(Pattern::Sequential).into()),
            (overlap, job(Pattern::Overlapping(plan.block_bytes)).into()),
        ],
    }
}

pub(super) fn bytes(number: u32) -> String {
    tantalum_report::units::bytes(number.into())
}

#[cfg(test)]
mod tests {
    use tantalum_device::{MemoryDevice, MemoryProfile};
    use tantalum_rt::Simulation;

    use super::super::run;
    use super::*;

    #[test]
    fn every_job_of_every_benchmark_runs_on_either_block_size() {
        for block in [512, 4096] {
            let counts = Simulation::new(1).run(move || {
                let profile = MemoryProfile { logical_block: block, ..MemoryProfile::default() };
                let device: Arc<dyn Device> = MemoryDevice::with_profile("memory", 8 << 20, profile);
                let plan = Plan { operations: 20, ..Plan::new(block, 4096..8 << 20) };
                let jobs = benchmarks(&plan).into_iter().flat_map(|benchmark| benchmark.jobs);
                jobs.map(|(_, job)| match job {
                    Load::Blocks(job) => run(&device, &job, &|_| ()).unwrap().summary().operations,
                    Load::Flash(job) => panic!("{job:?} is for raw flash"),
                })
                .collect::<Vec<_>>()
            });
            let counts = counts.expect_finished();
            assert!(counts.len() > 60 && counts.iter().all(|&count| count == 20 || count == 2), "{counts:?}");
        }
    }

    #[test]
    fn names_and_labels_are_distinct() {
        let benchmarks = benchmarks(&Plan::new(512, 0..1 << 30));
        let mut names: Vec<_> = benchmarks.iter().map(|benchmark| benchmark.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), benchmarks.len());
        for benchmark in benchmarks {
            let mut labels: Vec<_> = benchmark.jobs.iter().map(|(label, _)| label).collect();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), benchmark.jobs.len(), "{}", benchmark.name);
        }
    }
}
