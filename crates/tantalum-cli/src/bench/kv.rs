//! `tantalum bench kv`: how near durable commits come to the device's own speed.
//!
//! Everything is measured in short slices, round after round: for each number of clients the raw device at queue
//! depth 1, the raw device at as many writes as the log has devices, and the engine. Ratios are made within one
//! round, and the medians over the rounds are reported, so that a device that changes its speed does not change the
//! result.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::LogSummary;
use tantalum_report::Table;
use tantalum_workloads::{
    driver::{self, Latency},
    kv::{KEY_BYTES, KeyValue, Parameters, VALUE_BYTES},
};

use super::{
    JSON_FORMAT, counted,
    counters::{self, DeviceReport},
    database, latency, rate,
    raw::Raw,
    simulate::{self, World, clock_line},
    storage::{self, StorageReport},
    watch::{Stage, Watch},
    write_json,
};
use crate::error::{Error, Out, Result};

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
    /// Seeds the clients' choices.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write the result as JSON; docs/use/json.md explains its fields.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    simulate: simulate::Simulate,
    #[command(flatten)]
    database: database::Options,
}

/// What an attempt is charged of a virtual core: about what the engine takes of a real one, with all its threads.
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(10);

/// The JSON output.
#[derive(Serialize)]
struct Outcome {
    benchmark: &'static str,
    format: u32,
    configuration: Configuration,
    device: String,
    /// What the log did, loading included.
    log: LogSummary,
    emulated_devices: Vec<DeviceReport>,
    storage: StorageReport,
    results: Vec<Measured>,
}

#[derive(Serialize)]
struct Configuration {
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
    seed: u64,
    world: World,
    database: database::Options,
}

/// Medians over the rounds, for one number of clients and one depth.
#[derive(Serialize)]
struct Measured {
    clients: usize,
    async_depth: usize,
    commits_per_second: f64,
    updates_per_second: f64,
    raw_depth_1_per_second: f64,
    raw_depth_log_devices_per_second: f64,
    ratio_to_raw_depth_1: f64,
    ratio_to_raw_depth_log_devices: f64,
    aborted: u64,
    latency: Latency,
    reads_per_second: f64,
    read_latency: Latency,
    rounds: Vec<Round>,
}

/// One round.
#[derive(Clone, Serialize)]
struct Round {
    commits_per_second: f64,
    raw_depth_1_per_second: f64,
    raw_depth_log_devices_per_second: f64,
    aborted: u64,
    latency: Latency,
    reads_per_second: f64,
    read_latency: Latency,
    /// Transactions that ended, those included that are not counted.
    #[serde(skip)]
    ended: u64,
}

/// Loads the keys if need be, and measures.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    check(&arguments)?;
    let json = arguments.json.clone();
    let simulate = arguments.simulate.clone();
    let (outcome, speed) = simulate.run(arguments.seed, move |watch| execute(&arguments, watch))?;
    print(&outcome)?;
    if let Some(speed) = speed {
        Out::new().line(speed)?;
    }
    write_json(json.as_ref(), &outcome)?;
    Ok(ExitCode::SUCCESS)
}

/// All of it, in either world.
fn execute(arguments: &Arguments, watch: &Watch) -> Result<Outcome> {
    let is_simulated = arguments.simulate.is_on();
    let database =
        if is_simulated { arguments.database.open_simulated(None)? } else { arguments.database.open(None)? };
    let workload = load(arguments, &database, watch)?;
    let log_devices = database.log_device_count()?;
    let (results, emulated_devices, storage) = {
        let raw = raw(arguments, &database, log_devices)?;
        let (before, stored_before) = (database.mark(), storage::Mark::of(&database.db)?);
        database.begin_io_trace(&format!("key-value, {} keys", arguments.keys))?;
        let results = measure(arguments, &workload, &raw, watch)?;
        let (emulated, storage) = (database.since(&before), StorageReport::since(&stored_before, &database.db)?);
        let rounds = results.iter().flat_map(|result| &result.rounds);
        database.end_io_trace(rounds.map(|round| round.ended).sum(), &storage, &emulated)?;
        (results, emulated, storage)
    };
    let log = database.log()?;
    let outcome = Outcome {
        benchmark: "kv",
        format: JSON_FORMAT,
        configuration: Configuration {
            keys: arguments.keys,
            key_bytes: KEY_BYTES,
            value_bytes: VALUE_BYTES,
            updates: arguments.updates,
            inserts: arguments.inserts,
            readers: arguments.readers,
            rounds: arguments.rounds,
            slice_seconds: arguments.seconds,
            raw_write_bytes: raw_write_bytes(arguments.updates),
            log_devices,
            seed: arguments.seed,
            world: arguments.simulate.world(CPU_PER_ATTEMPT),
            database: arguments.database.clone(),
        },
        device: database.device.clone(),
        log,
        emulated_devices,
        storage,
        results,
    };
    drop(workload);
    database.close()?;
    Ok(outcome)
}

/// What the engine is measured against.
fn raw(arguments: &Arguments, database: &database::Database, log_devices: usize) -> Result<Raw> {
    if arguments.raw_dir.is_none()
        && let Some(twins) = Raw::twins(&arguments.database.log(), arguments.database.log_partitions())?
    {
        return Ok(twins);
    }
    Raw::in_directory(arguments.raw_dir.as_deref().unwrap_or(database.path()), log_devices)
}

fn check(arguments: &Arguments) -> Result<()> {
    let must = |ok: bool, what: &str| if ok { Ok(()) } else { Err(Error::Other(what.to_owned())) };
    let has_log = !arguments.simulate.is_on() || !arguments.database.log().is_empty();
    must(has_log, "bench kv compares with the raw log device; with --simulate, give it: --log emulated:PROFILE")?;
    must(arguments.rounds > 0, "--rounds must be at least 1")?;
    must(arguments.clients.iter().all(|&clients| clients > 0), "--clients must be at least 1 each")?;
    must(arguments.async_depth.iter().all(|&depth| depth > 0), "--async-depth must be at least 1 each")?;
    must((1e-3..1e6).contains(&arguments.seconds), "--seconds must be at least 0.001")
}

fn load(arguments: &Arguments, database: &database::Database, watch: &Watch) -> Result<KeyValue> {
    let parameters = Parameters {
        keys: arguments.keys,
        updates: arguments.updates,
        inserts: arguments.inserts,
        async_depth: 1,
        readers: arguments.readers,
    };
    if !database.db.tables()?.iter().any(|name| name == tantalum_workloads::kv::TABLE_NAME) {
        arguments.database.may_load()?;
    }
    let mut show = |done| {
        watch.show(Stage { label: "loading keys", done, total: Some(arguments.keys), remark: String::new() });
    };
    let workload = KeyValue::load_or_reuse(&database.db, parameters, &mut show)?;
    database.db.checkpoint()?;
    Ok(workload)
}

/// What one transaction puts into the log, in whole blocks: per update key, value and a few bytes around them.
fn raw_write_bytes(updates: u32) -> usize {
    const BLOCK: usize = 4096;
    const AROUND_EACH: usize = 16;
    const AROUND_ALL: usize = 128;
    let bytes = AROUND_ALL + updates as usize * (KEY_BYTES + VALUE_BYTES + AROUND_EACH);
    bytes.next_multiple_of(BLOCK)
}

fn measure(arguments: &Arguments, workload: &KeyValue, raw: &Raw, watch: &Watch) -> Result<Vec<Measured>> {
    let pairs = |&depth: &usize| arguments.clients.iter().map(move |&clients| (clients, depth));
    let setups: Vec<(usize, usize)> = arguments.async_depth.iter().flat_map(pairs).collect();
    let (mut done, total) = (0, Some((setups.len() * arguments.rounds) as u64));
    let mut rounds = vec![Vec::new(); setups.len()];
    for round in 0..arguments.rounds {
        for (&(clients, depth), rounds) in setups.iter().zip(&mut rounds) {
            let remark = format!("round {}, {}", round + 1, counted(clients, "client"));
            watch.show(Stage { label: "measuring", done, total, remark });
            let workload = Arc::new(workload.with_async_depth(depth)?);
            rounds.push(measure_round(arguments, round, clients, &workload, raw)?);
            done += 1;
        }
    }
    let results = setups.into_iter().zip(rounds);
    Ok(results.map(|((clients, depth), rounds)| Measured::of(arguments.updates, clients, depth, rounds)).collect())
}

fn measure_round(
    arguments: &Arguments,
    round: usize,
    clients: usize,
    workload: &Arc<KeyValue>,
    raw: &Raw,
) -> Result<Round> {
    let slice = Duration::from_secs_f64(arguments.seconds);
    let write_bytes = raw_write_bytes(arguments.updates);
    // A tenth of the slice passes until all clients are at work.
    let options = driver::Options::timed(arguments.readers + clients, slice / 10, slice)
        .with_seed(arguments.seed + round as u64)
        .with_cpu_per_attempt(arguments.simulate.cpu_per_attempt(CPU_PER_ATTEMPT));
    let run = || driver::run(workload, options, &mut |_| ());
    // The order alternates, so that neither side always comes first.
    let ((raw_1, raw_all), report) = if round.is_multiple_of(2) {
        let raw = raw.measure(write_bytes, slice)?;
        (raw, run()?)
    } else {
        let report = run()?;
        (raw.measure(write_bytes, slice)?, report)
    };
    let kind = |name| report.kinds.iter().find(|kind| kind.name == name).expect("the workload has this kind");
    let (update, read) = (kind(KeyValue::UPDATE), kind(KeyValue::READ));
    Ok(Round {
        commits_per_second: update.per_second,
        raw_depth_1_per_second: raw_1,
        raw_depth_log_devices_per_second: raw_all,
        aborted: update.aborted,
        latency: update.latency,
        reads_per_second: read.per_second,
        read_latency: read.latency,
        ended: report.ended,
    })
}

impl Measured {
    fn of(updates: u32, clients: usize, async_depth: usize, rounds: Vec<Round>) -> Self {
        let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
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
            latency: median_latency(&rounds, |round| round.latency),
            reads_per_second: of(&|round| round.reads_per_second),
            read_latency: median_latency(&rounds, |round| round.read_latency),
            rounds,
        }
    }
}

/// The median of each percentile over the rounds, and the slowest of all.
fn median_latency(rounds: &[Round], latency: impl Fn(&Round) -> Latency) -> Latency {
    let of = |value: &dyn Fn(Latency) -> f64| median(rounds.iter().map(|round| value(latency(round))).collect());
    Latency {
        mean_us: of(&|latency| latency.mean_us),
        p25_us: of(&|latency| latency.p25_us),
        p50_us: of(&|latency| latency.p50_us),
        p75_us: of(&|latency| latency.p75_us),
        p95_us: of(&|latency| latency.p95_us),
        p99_us: of(&|latency| latency.p99_us),
        p999_us: of(&|latency| latency.p999_us),
        max_us: rounds.iter().map(|round| latency(round).max_us).fold(0.0, f64::max),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

fn print(outcome: &Outcome) -> Result<()> {
    let Configuration { keys, updates, inserts, rounds, slice_seconds, raw_write_bytes, log_devices, .. } =
        outcome.configuration;
    let mut out = Out::new();
    let writes = if inserts { "inserts" } else { "updates" };
    out.line(format_args!(
        "transactions of {updates} durable {writes} of {VALUE_BYTES} B under {KEY_BYTES} B, {keys} keys"
    ))?;
    out.line(clock_line(&outcome.configuration.world))?;
    out.line(format_args!("device: {}", outcome.device))?;
    outcome.storage.print_settings(&mut out)?;
    let log_count = counted(log_devices, "log device");
    out.line(format_args!("{log_count}; raw: durable overwrites of {raw_write_bytes} B"))?;
    out.line(format_args!("medians of {rounds} rounds with slices of {slice_seconds} s"))?;
    let raw_all = format!("raw depth {log_devices}/s");
    let mut table = Table::new([
        "clients",
        "depth",
        "commits/s",
        "raw depth 1/s",
        "ratio",
        &raw_all,
        "ratio",
        "aborted",
        "p50",
        "p99",
        "p99.9",
        "max",
    ]);
    for result in &outcome.results {
        table.row([
            result.clients.to_string(),
            result.async_depth.to_string(),
            rate(result.commits_per_second),
            rate(result.raw_depth_1_per_second),
            format!("{:.2}", result.ratio_to_raw_depth_1),
            rate(result.raw_depth_log_devices_per_second),
            format!("{:.2}", result.ratio_to_raw_depth_log_devices),
            result.aborted.to_string(),
            latency(result.latency.p50_us),
            latency(result.latency.p99_us),
            latency(result.latency.p999_us),
            latency(result.latency.max_us),
        ]);
    }
    out.line(table)?;
    if outcome.configuration.readers > 0 {
        let mut table = Table::new(["clients", "depth", "readers", "reads/s", "p50", "p99", "p99.9", "max"]);
        for result in &outcome.results {
            table.row([
                result.clients.to_string(),
                result.async_depth.to_string(),
                outcome.configuration.readers.to_string(),
                rate(result.reads_per_second),
                latency(result.read_latency.p50_us),
                latency(result.read_latency.p99_us),
                latency(result.read_latency.p999_us),
                latency(result.read_latency.max_us),
            ]);
        }
        out.line(table)?;
    }
    outcome.storage.print_faults(&mut out)?;
    counters::print(&mut out, &outcome.log, &outcome.emulated_devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn raw_writes_are_whole_blocks_of_what_a_commit_logs() {
        assert_eq!(raw_write_bytes(1), 4096);
        assert_eq!(raw_write_bytes(30), 4096);
        assert_eq!(raw_write_bytes(31), 8192);
    }
}
