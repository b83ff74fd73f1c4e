//! Medians over the rounds, and all of it as JSON.

use std::{fs, path::Path};

use serde::Serialize;
use tantalum_workloads::driver::median;

use crate::{
    arguments::Arguments,
    compare::{Case, Outcomes},
    engine::Kind,
    job::Outcome,
    workload::Workload,
};

/// Of the JSON; raised when a field changes its meaning.
const FORMAT: u32 = 1;

/// The result of a comparison.
#[derive(Serialize)]
pub struct Results {
    benchmark: &'static str,
    format: u32,
    /// Where it ran.
    pub machine: Machine,
    /// The options, with defaults.
    pub arguments: Arguments,
    /// How each engine is set up.
    pub engines: Vec<Configured>,
    /// Medians of each case.
    pub results: Vec<Measured>,
}

/// The machine.
#[derive(Debug, Serialize)]
pub struct Machine {
    /// Of the system.
    pub kernel: String,
    /// As the system counts them.
    pub processors: usize,
    /// Of the first.
    pub processor: String,
    /// Bytes are from the block device's counter, and not from the process's.
    pub has_device_counter: bool,
}

/// An engine and its configuration.
#[derive(Debug, Serialize)]
pub struct Configured {
    /// Its name.
    pub name: &'static str,
    /// In a sentence.
    pub configuration: &'static str,
}

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(values: Vec<f64>) -> Option<Self> {
        let (min, max) = (values.iter().copied().reduce(f64::min)?, values.iter().copied().reduce(f64::max)?);
        Some(Self { median: median(values)?, min, max })
    }
}

/// One case over the rounds. Figures are absent if no round ended well, or if nothing was counted.
#[derive(Serialize)]
pub struct Measured {
    /// What was done.
    pub workload: &'static str,
    /// The engine that did it.
    pub engine: &'static str,
    /// By how many; of the pipelined variant, commits under way.
    pub clients: usize,
    /// Operations in a second: transactions, reads, scans, or rows of a load.
    pub per_second: Option<Spread>,
    /// Median latency in microseconds; of what is done once, the time of it all.
    pub p50_us: Option<Spread>,
    /// 99th percentile.
    pub p99_us: Option<Spread>,
    /// 99.9th percentile.
    pub p999_us: Option<Spread>,
    /// CPU seconds for 1000 operations.
    pub cpu_seconds_per_1000: Option<Spread>,
    /// Bytes written to the device for each operation, by the device's counter, or the process's where there is none.
    pub written_bytes_per_operation: Option<Spread>,
    /// Bytes written by the process for each operation, by the process's counter.
    pub process_written_bytes_per_operation: Option<Spread>,
    /// Bytes fetched from the device for each operation.
    pub read_bytes_per_operation: Option<Spread>,
    /// Attempts that lost a conflict, for each operation.
    pub conflicts_per_operation: Option<Spread>,
    /// What the files take, after closing.
    pub space_bytes: Option<Spread>,
    /// The most memory that the process has had.
    pub peak_memory_bytes: Option<Spread>,
    /// Of the machine, before each run.
    pub load_average: Option<Spread>,
    /// Why rounds did not end well.
    pub errors: Vec<String>,
    /// The rounds that did.
    pub rounds: Vec<Outcome>,
    /// What the figures are of.
    #[serde(skip)]
    pub case: Case,
}

impl Measured {
    fn of(case: Case, outcomes: Vec<Result<Outcome, String>>) -> Self {
        let (mut rounds, mut errors) = (Vec::new(), Vec::new());
        for outcome in outcomes {
            match outcome {
                Ok(outcome) => rounds.push(outcome),
                Err(error) => errors.push(error),
            }
        }
        let spread = |figure: &dyn Fn(&Outcome) -> Option<f64>| Spread::of(rounds.iter().filter_map(figure).collect());
        let each = |figure: &dyn Fn(&Outcome) -> f64| {
            spread(&|round| (round.counted.operations > 0).then(|| figure(round) / round.counted.operations as f64))
        };
        let latency =
            |figure: &dyn Fn(&Outcome) -> f64| spread(&|round| (round.counted.operations > 0).then(|| figure(round)));
        Self {
            workload: case.workload.name(),
            engine: case.engine.name(),
            clients: case.clients,
            per_second: spread(&|round| Some(round.counted.operations as f64 / round.counted.seconds.max(1e-9))),
            p50_us: latency(&|round| round.counted.latency.p50_us),
            p99_us: latency(&|round| round.counted.latency.p99_us),
            p999_us: latency(&|round| round.counted.latency.p999_us),
            cpu_seconds_per_1000: each(&|round| round.counted.used.cpu_seconds * 1000.0),
            written_bytes_per_operation: each(&|round| {
                let used = &round.counted.used;
                used.device_written_bytes.unwrap_or(used.process_written_bytes) as f64
            }),
            process_written_bytes_per_operation: each(&|round| round.counted.used.process_written_bytes as f64),
            read_bytes_per_operation: each(&|round| round.counted.used.process_read_bytes as f64),
            conflicts_per_operation: each(&|round| round.counted.conflicts as f64),
            space_bytes: spread(&|round| Some(round.space_bytes as f64)),
            peak_memory_bytes: spread(&|round| Some(round.peak_memory_bytes as f64)),
            load_average: spread(&|round| Some(round.load_average)),
            errors,
            rounds,
            case,
        }
    }
}

impl Results {
    /// Medians of all outcomes.
    pub fn new(arguments: &Arguments, outcomes: Outcomes) -> Self {
        let results: Vec<Measured> =
            outcomes.into_iter().map(|(case, outcomes)| Measured::of(case, outcomes)).collect();
        let rounds = || results.iter().flat_map(|result| &result.rounds);
        let has_device_counter = rounds().all(|round| round.counted.used.device_written_bytes.is_some());
        let configured = |kind: Kind| Configured { name: kind.name(), configuration: kind.configuration() };
        Self {
            benchmark: "peers",
            format: FORMAT,
            machine: Machine::here(has_device_counter),
            arguments: arguments.clone(),
            engines: arguments.engines().into_iter().map(configured).collect(),
            results,
        }
    }

    /// The workloads, each with its results.
    pub fn by_workload(&self) -> impl Iterator<Item = (Workload, &[Measured])> {
        let parts = self.results.chunk_by(|a, b| a.case.workload == b.case.workload);
        parts.map(|part| (part[0].case.workload, part))
    }

    /// Tantalum's rate over that of the fastest peer, for each number of clients of a workload.
    pub fn leads(part: &[Measured]) -> Vec<(usize, &'static str, f64)> {
        let rate = |measured: &Measured| measured.per_second.map_or(0.0, |rate| rate.median);
        let same = part.chunk_by(|a, b| a.clients == b.clients);
        same.filter_map(|same| {
            let own = same.iter().find(|measured| measured.case.engine == Kind::Tantalum)?;
            let peers = same.iter().filter(|measured| {
                let kind = measured.case.engine;
                kind.is_database() && !kind.is_tantalum() && measured.per_second.is_some()
            });
            let best = peers.max_by(|a, b| rate(a).total_cmp(&rate(b)))?;
            (rate(own) > 0.0 && rate(best) > 0.0).then(|| (own.clients, best.engine, rate(own) / rate(best)))
        })
        .collect()
    }
}

impl Machine {
    fn here(has_device_counter: bool) -> Self {
        let read = |path: &str| fs::read_to_string(Path::new(path)).unwrap_or_default();
        let cpus = read("/proc/cpuinfo");
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.map(|(_, name)| name.trim().to_owned()).unwrap_or_default(),
            has_device_counter,
        }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_workloads::driver::Latency;

    use super::*;
    use crate::{clients::Counted, meter::Used};

    fn outcome(operations: u64) -> Outcome {
        let latency = Latency { p50_us: 5.0, p99_us: 6.0, p999_us: 7.0, max_us: 8.0, ..Latency::default() };
        let used = Used {
            cpu_seconds: 0.5,
            device_written_bytes: Some(4096),
            process_written_bytes: 1,
            process_read_bytes: 2,
        };
        let counted = Counted { seconds: 2.0, operations, conflicts: 1, latency, used };
        Outcome { load_average: 0.1, counted, space_bytes: 10, peak_memory_bytes: 20 }
    }

    fn measured(engine: Kind, operations: u64) -> Measured {
        Measured::of(Case { workload: Workload::Update, clients: 4, engine }, vec![Ok(outcome(operations))])
    }

    #[test]
    fn medians_lie_between_the_extremes() {
        let spread = |values: &[f64]| Spread::of(values.to_vec()).map(|spread| (spread.median, spread.min, spread.max));
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Some((2.0, 1.0, 3.0)));
        assert_eq!(spread(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.0, 4.0)));
    }

    #[test]
    fn figures_are_for_each_operation_and_failures_are_kept() {
        let case = Case { workload: Workload::Update, clients: 4, engine: Kind::Lmdb };
        let measured = Measured::of(case, vec![Ok(outcome(1000)), Err("full".to_owned()), Ok(outcome(0))]);
        assert_eq!(measured.errors, ["full"]);
        let median = |spread: Option<Spread>| spread.map(|spread| spread.median);
        assert_eq!(median(measured.cpu_seconds_per_1000), Some(0.5));
        assert_eq!(median(measured.written_bytes_per_operation), Some(4.096));
        assert_eq!(measured.per_second, Some(Spread { median: 250.0, min: 0.0, max: 500.0 }));
        assert_eq!(median(measured.p99_us), Some(6.0));
    }

    #[test]
    fn the_lead_is_over_the_fastest_peer_only() {
        let part = [
            measured(Kind::Raw, 9000),
            measured(Kind::Tantalum, 3000),
            measured(Kind::RocksDb, 1000),
            measured(Kind::Redb, 1500),
        ];
        assert_eq!(Results::leads(&part), [(4, "redb", 2.0)]);
        assert!(Results::leads(&part[..2]).is_empty());
    }
}
