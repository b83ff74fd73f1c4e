//! `tantalum bench kv`: how near durable commits come to the device's own speed.
//!
//! Everything is measured in short slices, round after round: for each number of clients the raw device at queue
//! depth 1, the raw device at as many writes as the log has devices, and the engine. Ratios are made within one
//! round, and the medians over the rounds are reported, so that a device that changes its speed does not change the
//! result.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::Db;
use tantalum_report::Table;
use tantalum_workloads::{
    LoadProgress,
    driver::{self, KindReport, Latency, RunReport, median},
    kv::{KEY_BYTES, KeyValue, Parameters, TABLE_NAME, VALUE_BYTES},
};

use super::{
    benchmark::{self, Benchmark, Common, PERCENTILES, UntilInterrupted, percentiles},
    counted,
    database::Database,
    rate,
    raw::Raw,
};
use crate::{
    error::{Error, Out, Result},
    interrupt,
    progress::{Stage, Watch},
};

#[derive(Args, Clone)]
pub struct Arguments {
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64,128")]
    clients: Vec<usize>,
    /// Commits that each client keeps under way, separated by commas; 1: it waits for each.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    async_depth: Vec<usize>,
    /// Further clients, which read one random key after the other meanwhile; their latencies are reported by themselves.
    #[arg(long, default_value_t = 0)]
    readers: usize,
    /// Keys in the table.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Keys that each transaction updates.
    #[arg(long, default_value_t = 1)]
    updates: u32,
    /// Insert new keys at random places of the table instead, as many in each transaction.
    #[arg(long)]
    inserts: bool,
    /// Rounds; medians are over these.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each slice of a round.
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Where the raw device is measured, if not in the database's directory: a directory on the log's device. Beside
    /// emulated log devices, new ones of the same profiles are measured instead.
    #[arg(long, conflicts_with = "simulate")]
    raw_dir: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

#[derive(Serialize)]
pub struct Configuration {
    keys: u64,
    key_bytes: usize,
    value_bytes: usize,
    updates: u32,
    inserts: bool,
    readers: usize,
    rounds: usize,
    slice_seconds: f64,
    raw_write_bytes: usize,
    log_devices: usize,
}

/// What was measured.
#[derive(Serialize)]
pub struct Results {
    /// For each number of clients and depth.
    results: Vec<Setup>,
    /// How it was measured, a line each.
    #[serde(skip)]
    method: [String; 2],
    #[serde(skip)]
    log_devices: usize,
}

/// Medians over the rounds, for one number of clients and one depth.
#[derive(Serialize)]
struct Setup {
    /// Clients.
    clients: usize,
    /// Commits that each keeps under way.
    async_depth: usize,
    /// Commits.
    commits_per_second: f64,
    /// Updated rows.
    updates_per_second: f64,
    /// Writes of the raw device, one at a time.
    raw_depth_1_per_second: f64,
    /// Writes of the raw devices, as many at a time as the log has devices.
    raw_depth_log_devices_per_second: f64,
    /// Commits for each write of the raw device, one at a time.
    ratio_to_raw_depth_1: f64,
    /// Commits for each write of the raw devices, as many at a time as the log has devices.
    ratio_to_raw_depth_log_devices: f64,
    /// Transactions that the engine aborted, in all rounds.
    aborted: u64,
    /// From the begin to the acknowledgement.
    latency: Latency,
    /// Reads of the readers.
    reads_per_second: f64,
    /// Of a read.
    read_latency: Latency,
    /// What the medians are over.
    rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Serialize)]
struct Round {
    /// Commits.
    commits_per_second: f64,
    /// Writes of the raw device, one at a time.
    raw_depth_1_per_second: f64,
    /// Writes of the raw devices, as many at a time as the log has devices.
    raw_depth_log_devices_per_second: f64,
    /// Transactions that the engine aborted.
    aborted: u64,
    /// From the begin to the acknowledgement.
    latency: Latency,
    /// Reads of the readers.
    reads_per_second: f64,
    /// Of a read.
    read_latency: Latency,
    #[serde(skip)]
    ended: u64,
    #[serde(skip)]
    counted: u64,
}

impl Benchmark for Arguments {
    const NAME: &'static str = "kv";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(10);
    /// The table, and what the engine is measured against.
    type Loaded = (KeyValue, Raw);
    type Configuration = Configuration;
    type Measured = Results;

    fn common(&self) -> &Common {
        &self.common
    }

    fn title(&self) -> String {
        let Self { keys, updates, inserts, .. } = self;
        let writes = if *inserts { "inserts" } else { "updates" };
        format!("transactions of {updates} durable {writes} of {VALUE_BYTES} B under {KEY_BYTES} B, {keys} keys")
    }

    fn check_arguments(&self) -> Result<()> {
        let must = |ok: bool, what: &str| if ok { Ok(()) } else { Err(Error::Other(what.to_owned())) };
        let has_log = !self.common.simulate.is_on() || !self.common.database.log().is_empty();
        must(has_log, "bench kv compares with the raw log device; with --simulate, give it: --log emulated:PROFILE")?;
        must(self.rounds > 0, "--rounds must be at least 1")?;
        must(self.clients.iter().all(|&clients| clients > 0), "--clients must be at least 1 each")?;
        must(self.async_depth.iter().all(|&depth| depth > 0), "--async-depth must be at least 1 each")?;
        must((1e-3..1e6).contains(&self.seconds), "--seconds must be at least 0.001")
    }

    fn configuration(&self, database: &Database) -> Result<Configuration> {
        Ok(Configuration {
            keys: self.keys,
            key_bytes: KEY_BYTES,
            value_bytes: VALUE_BYTES,
            updates: self.updates,
            inserts: self.inserts,
            readers: self.readers,
            rounds: self.rounds,
            slice_seconds: self.seconds,
            raw_write_bytes: raw_write_bytes(self.updates),
            log_devices: database.log_device_count()?,
        })
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(db.tables()?.iter().any(|name| name == TABLE_NAME))
    }

    fn load(&self, database: &Database, progress: &mut dyn FnMut(&LoadProgress)) -> Result<(KeyValue, Raw)> {
        let Self { keys, updates, inserts, readers, .. } = *self;
        let parameters = Parameters { keys, updates, inserts, async_depth: 1, readers };
        let workload = KeyValue::load_or_reuse(&database.db, parameters, progress)?;
        database.db.checkpoint()?;
        let options = &self.common.database;
        let raw = match Raw::twins(&options.log(), options.log_partitions())? {
            Some(twins) if self.raw_dir.is_none() => twins,
            _ => {
                let directory = self.raw_dir.as_deref().unwrap_or(database.path());
                Raw::in_directory(directory, database.log_device_count()?)?
            }
        };
        Ok((workload, raw))
    }

    fn measure(&self, (workload, raw): (KeyValue, Raw), watch: &Watch) -> Result<Results> {
        let pairs = |&depth: &usize| self.clients.iter().map(move |&clients| (clients, depth));
        let setups: Vec<(usize, usize)> = self.async_depth.iter().flat_map(pairs).collect();
        let (mut done, total) = (0, Some((setups.len() * self.rounds) as u64));
        let mut rounds = vec![Vec::new(); setups.len()];
        'rounds: for round in 0..self.rounds {
            for (&(clients, depth), rounds) in setups.iter().zip(&mut rounds) {
                let remark = format!("round {}, {}", round + 1, counted(clients, "client"));
                watch.show(Stage { label: "measuring", done, total, remark });
                let measured =
                    self.measure_round(round, clients, &Arc::new(workload.with_async_depth(depth)?), &raw)?;
                if interrupt::is_requested() {
                    break 'rounds;
                }
                rounds.push(measured);
                done += 1;
            }
        }
        let results = setups.into_iter().zip(rounds).filter(|(_, rounds)| !rounds.is_empty());
        let results = results.map(|((clients, depth), rounds)| Setup::of(self.updates, clients, depth, rounds));
        let (write_bytes, log_devices) = (raw_write_bytes(self.updates), raw.writers());
        let method = [
            format!("{}; raw: durable overwrites of {write_bytes} B", counted(log_devices, "log device")),
            format!("medians of {} rounds with slices of {} s", self.rounds, self.seconds),
        ];
        Ok(Results { results: results.collect(), method, log_devices })
    }
}

/// What one transaction puts into the log, in whole blocks: per update key, value and a few bytes around them.
fn raw_write_bytes(updates: u32) -> usize {
    const BLOCK: usize = 4096;
    const AROUND_EACH: usize = 16;
    const AROUND_ALL: usize = 128;
    let bytes = AROUND_ALL + updates as usize * (KEY_BYTES + VALUE_BYTES + AROUND_EACH);
    bytes.next_multiple_of(BLOCK)
}

impl Arguments {
    fn measure_round(&self, round: usize, clients: usize, workload: &Arc<KeyValue>, raw: &Raw) -> Result<Round> {
        let (slice, write_bytes) = (Duration::from_secs_f64(self.seconds), raw_write_bytes(self.updates));
        // A tenth of the slice passes until all clients are at work.
        let options = driver::Options::timed(self.readers + clients, slice / 10, slice)
            .with_seed(self.common.seed + round as u64)
            .with_cpu_per_attempt(self.common.simulate.cpu_per_attempt(Self::CPU_PER_ATTEMPT));
        let run = || driver::run_monitored(workload, options, &mut UntilInterrupted(None));
        // The order alternates, so that neither side always comes first.
        let ((raw_1, raw_all), report) = if round.is_multiple_of(2) {
            let raw = raw.measure(write_bytes, slice)?;
            (raw, run()?)
        } else {
            let report = run()?;
            (raw.measure(write_bytes, slice)?, report)
        };
        let RunReport { kinds, total, ended, .. } = &report;
        let [update, read]: &[KindReport; 2] = kinds[..].try_into().expect("the workload has two kinds");
        Ok(Round {
            commits_per_second: update.per_second,
            raw_depth_1_per_second: raw_1,
            raw_depth_log_devices_per_second: raw_all,
            aborted: update.aborted,
            latency: update.latency,
            reads_per_second: read.per_second,
            read_latency: read.latency,
            ended: *ended,
            counted: total.committed,
        })
    }
}

impl Setup {
    fn of(updates: u32, clients: usize, async_depth: usize, rounds: Vec<Round>) -> Self {
        let of = |figure: &dyn Fn(&Round) -> f64| median(rounds.iter().map(figure).collect()).unwrap_or_default();
        let latency =
            |latency: &dyn Fn(&Round) -> Latency| Latency::median(&rounds.iter().map(latency).collect::<Vec<_>>());
        let commits_per_second = of(&|round| round.commits_per_second);
        Self {
            clients,
            async_depth,
            commits_per_second,
            updates_per_second: commits_per_second * f64::from(updates),
            raw_depth_1_per_second: of(&|round| round.raw_depth_1_per_second),
            raw_depth_log_devices_per_second: of(&|round| round.raw_depth_log_devices_per_second),
            ratio_to_raw_depth_1: of(&|round| round.commits_per_second / round.raw_depth_1_per_second),
            ratio_to_raw_depth_log_devices: of(&|round| {
                round.commits_per_second / round.raw_depth_log_devices_per_second
            }),
            aborted: rounds.iter().map(|round| round.aborted).sum(),
            latency: latency(&|round| round.latency),
            reads_per_second: of(&|round| round.reads_per_second),
            read_latency: latency(&|round| round.read_latency),
            rounds,
        }
    }
}

impl benchmark::Measured for Results {
    fn ended(&self) -> u64 {
        self.results.iter().flat_map(|setup| &setup.rounds).map(|round| round.ended).sum()
    }

    fn transactions(&self) -> u64 {
        self.results.iter().flat_map(|setup| &setup.rounds).map(|round| round.counted).sum()
    }

    fn print(&self, out: &mut Out) -> Result<()> {
        self.method.iter().try_for_each(|line| out.line(line))?;
        let raw_all = format!("raw x {}/s", self.log_devices);
        let mut table = Table::new(["clients", "depth", "commits/s", "raw/s", "ratio", &raw_all, "ratio", "aborted"]);
        for setup in &self.results {
            table.row([
                setup.clients.to_string(),
                setup.async_depth.to_string(),
                rate(setup.commits_per_second),
                rate(setup.raw_depth_1_per_second),
                format!("{:.2}", setup.ratio_to_raw_depth_1),
                rate(setup.raw_depth_log_devices_per_second),
                format!("{:.2}", setup.ratio_to_raw_depth_log_devices),
                setup.aborted.to_string(),
            ]);
        }
        out.line(table)?;
        let times = |per_second: &str, of: &dyn Fn(&Setup) -> (f64, Latency)| {
            let mut table = Table::new(["clients", "depth", per_second].into_iter().chain(PERCENTILES));
            for setup in &self.results {
                let (per_second, latency) = of(setup);
                let head = [setup.clients.to_string(), setup.async_depth.to_string(), rate(per_second)];
                table.row(head.into_iter().chain(percentiles(&latency)));
            }
            table
        };
        out.line(times("commits/s", &|setup| (setup.commits_per_second, setup.latency)))?;
        if self.results.iter().all(|setup| setup.reads_per_second == 0.0) {
            return Ok(());
        }
        out.line(times("reads/s", &|setup| (setup.reads_per_second, setup.read_latency)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_writes_are_whole_blocks_of_what_a_commit_logs() {
        assert_eq!(raw_write_bytes(1), 4096);
        assert_eq!(raw_write_bytes(30), 4096);
        assert_eq!(raw_write_bytes(31), 8192);
    }
}
