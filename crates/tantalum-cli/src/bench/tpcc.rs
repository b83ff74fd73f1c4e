//! `tantalum bench tpcc`.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tantalum::LogSummary;
use tantalum_lab::trace::Totals;
use tantalum_report::{Table, units};
use tantalum_workloads::{
    LoadProgress,
    driver::{self, RunReport},
    tpcc::{Kind, Mix, Parameters, Reads, Scale, Tpcc, consistency},
};

use super::{
    JSON_FORMAT, acknowledged, counted,
    counters::{self, DeviceReport},
    database,
    in_page::{self, InPageReport},
    latency,
    log_structured::{self, LogStructuredReport},
    rate, seconds,
    simulate::{self, World, clock_line},
    storage::{self, StorageReport},
    trace::Trace,
    watch::{Stage, Watch},
    write_json,
};
use crate::error::{Out, Result};

#[derive(Args, Clone)]
pub struct Arguments {
    /// Warehouses; each takes about 100 MB.
    #[arg(long, default_value_t = 1)]
    warehouses: u32,
    /// Clients at the same time; each is a terminal of one warehouse.
    #[arg(long, default_value_t = 16)]
    clients: usize,
    /// Measured time in seconds; 0 only checks.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Seconds before that are not measured.
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// Which transactions come how often.
    #[arg(long, value_enum, default_value_t = MixName::Normal)]
    mix: MixName,
    /// How order-status and stock-level read.
    #[arg(long, value_enum, default_value_t = ReadsName::Snapshot)]
    reads: ReadsName,
    /// Seeds the load and the clients' choices.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Tasks that load.
    #[arg(long, default_value_t = 8)]
    loaders: usize,
    /// Append every acknowledged order to this file. Those that stand in it already are looked for first: none may be
    /// lost, also if the last run was killed.
    #[arg(long, value_name = "FILE", requires = "dir")]
    acknowledged: Option<PathBuf>,
    /// Write what happens to the database's pages in the run to this file: every change in the log and every page that is
    /// written. For tantalum lab trace.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// A database of some hundred rows: for tests.
    #[arg(long, hide = true)]
    tiny: bool,
    /// Write the result as JSON; docs/use/json.md explains its fields.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    simulate: simulate::Simulate,
    #[command(flatten)]
    database: database::Options,
}

/// What an attempt is charged of a virtual core: about what the engine takes of a real one, with all its threads.
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixName {
    /// 43.48 % new-order and payment each, 4.35 % each of the others.
    Normal,
    /// 43.48 % order-status and stock-level each, 4.35 % each of the others.
    ReadIntensive,
    /// 96 % new-order, 1 % each of the others.
    WriteIntensive,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReadsName {
    /// On a snapshot, without locks.
    Snapshot,
    /// In a serializable transaction, with locks.
    Transaction,
}

impl From<MixName> for Mix {
    fn from(name: MixName) -> Self {
        match name {
            MixName::Normal => Self::Normal,
            MixName::ReadIntensive => Self::ReadIntensive,
            MixName::WriteIntensive => Self::WriteIntensive,
        }
    }
}

impl From<ReadsName> for Reads {
    fn from(name: ReadsName) -> Self {
        match name {
            ReadsName::Snapshot => Self::Snapshot,
            ReadsName::Transaction => Self::Transaction,
        }
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Outcome {
    benchmark: &'static str,
    format: u32,
    configuration: Configuration,
    device: String,
    load_seconds: Option<f64>,
    tpmc: f64,
    run: RunReport,
    /// What the log did, loading included.
    log: LogSummary,
    emulated_devices: Vec<DeviceReport>,
    /// How pages were written.
    storage: StorageReport,
    /// What in-page logging did, if it is the page store.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_page: Option<InPageReport>,
    /// What the log-structured store did, if it is the page store.
    #[serde(skip_serializing_if = "Option::is_none")]
    log_structured: Option<LogStructuredReport>,
    is_consistent: bool,
    consistency: Vec<consistency::Condition>,
}

#[derive(Serialize)]
struct Configuration {
    parameters: Parameters,
    clients: usize,
    seconds: f64,
    warm_up_seconds: f64,
    mix: Mix,
    reads: Reads,
    seed: u64,
    world: World,
    database: database::Options,
}

/// Loads if need be, runs, checks. The exit code is 1 when a condition does not hold.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let warm_up = seconds("--warm-up", arguments.warm_up)?;
    let measured = seconds("--seconds", arguments.seconds)?;
    let options = driver::Options::timed(arguments.clients, warm_up, measured)
        .with_seed(arguments.seed)
        .with_cpu_per_attempt(arguments.simulate.cpu_per_attempt(CPU_PER_ATTEMPT));
    let json = arguments.json.clone();
    let simulate = arguments.simulate.clone();
    let (outcome, speed) = simulate.run(arguments.seed, move |watch| execute(&arguments, options, watch))?;
    print(&outcome)?;
    if let Some(speed) = speed {
        Out::new().line(speed)?;
    }
    write_json(json.as_ref(), &outcome)?;
    Ok(if outcome.is_consistent { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All of it, in either world.
fn execute(arguments: &Arguments, options: driver::Options, watch: &Watch) -> Result<Outcome> {
    let is_simulated = arguments.simulate.is_on();
    let trace = arguments.trace.as_deref().map(Trace::create).transpose()?;
    let observer = trace.as_ref().map(Trace::observer);
    let database = match is_simulated {
        true => arguments.database.open_simulated(observer)?,
        false => arguments.database.open(observer)?,
    };
    let (tpcc, load_seconds) = load(arguments, &database, watch)?;
    let mut tpcc = tpcc.with_mix(arguments.mix.into()).with_reads(arguments.reads.into());
    if let Some(path) = &arguments.acknowledged {
        eprintln!("{} orders acknowledged before are all there", acknowledged::check(path, &tpcc)?);
        tpcc = tpcc.with_observer(acknowledged::record(path)?);
    }
    let parameters = tpcc.parameters();
    let (before, in_page_before) = (database.mark(), in_page::counts(&database.db)?);
    let log_structured_before = log_structured::counts(&database.db)?;
    let stored_before = storage::Mark::of(&database.db)?;
    let label = format!("{parameters}, {}", counted(arguments.clients, "client"));
    database.begin_io_trace(&format!("TPC-C, {label}"))?;
    if let Some(trace) = &trace {
        trace.begin_pages(&database.db, label)?;
    }
    let report = drive(tpcc, options, watch)?;
    trace.map_or(Ok(()), |trace| trace.end(Totals::default()))?;
    let emulated_devices = database.since(&before);
    let storage = StorageReport::since(&stored_before, &database.db)?;
    database.end_io_trace(report.ended, &storage, &emulated_devices)?;
    let transactions = report.total.committed + report.total.rolled_back;
    let in_page = match &in_page_before {
        Some(before) => InPageReport::since(before, &database.db, transactions)?,
        None => None,
    };
    let log_structured = match &log_structured_before {
        Some(before) => LogStructuredReport::since(before, &database.db, transactions)?,
        None => None,
    };
    watch.label("checking the twelve consistency conditions");
    let consistency = consistency::check(&database.db)?;
    let new_orders = &report.kinds[Kind::NewOrder as usize];
    let outcome = Outcome {
        benchmark: "tpcc",
        format: JSON_FORMAT,
        configuration: Configuration {
            parameters: Parameters { seed: arguments.seed, ..parameters },
            clients: arguments.clients,
            seconds: arguments.seconds,
            warm_up_seconds: arguments.warm_up,
            mix: arguments.mix.into(),
            reads: arguments.reads.into(),
            seed: arguments.seed,
            world: arguments.simulate.world(CPU_PER_ATTEMPT),
            database: arguments.database.clone(),
        },
        device: database.device.clone(),
        load_seconds,
        tpmc: new_orders.per_second * 60.0,
        log: database.log()?,
        emulated_devices,
        storage,
        in_page,
        log_structured,
        is_consistent: consistency.iter().all(consistency::Condition::is_ok),
        consistency,
        run: report,
    };
    database.close()?;
    Ok(outcome)
}

/// The loaded database, and the time that loading it took, if it was not there.
fn load(arguments: &Arguments, database: &database::Database, watch: &Watch) -> Result<(Tpcc, Option<f64>)> {
    let scale = if arguments.tiny { Scale::tiny() } else { Scale::full() };
    let parameters = Parameters { warehouses: arguments.warehouses, scale, seed: arguments.seed };
    let is_loaded = Tpcc::open(&database.db)?.is_some();
    if !is_loaded {
        arguments.database.may_load()?;
    }
    let started = tantalum_rt::now();
    let mut show = |progress: &LoadProgress| {
        let total = Some(progress.total_rows);
        watch.show(Stage { label: "loading rows", done: progress.rows, total, remark: String::new() });
    };
    let tpcc = Tpcc::load_or_reuse(&database.db, parameters, arguments.loaders, &mut show)?;
    Ok((tpcc, (!is_loaded).then(|| started.elapsed().as_secs_f64())))
}

fn drive(tpcc: Tpcc, options: driver::Options, watch: &Watch) -> Result<RunReport> {
    let report = driver::run(&Arc::new(tpcc), options, &mut |progress| {
        let seconds = progress.elapsed.as_secs_f64();
        let new_orders = progress.committed[Kind::NewOrder as usize];
        let total = progress.total.unwrap_or_default().as_secs_f64();
        let tpmc = new_orders as f64 * 60.0 / seconds.max(1e-3);
        watch.show(Stage {
            label: "running, transactions",
            done: progress.committed.iter().sum(),
            total: None,
            remark: format!("{seconds:.0} of {total:.0} s, {} tpmC, {} aborted", rate(tpmc), progress.aborted),
        });
    })?;
    Ok(report)
}

fn print(outcome: &Outcome) -> Result<()> {
    let (configuration, run) = (&outcome.configuration, &outcome.run);
    let mut out = Out::new();
    out.line(format_args!("TPC-C, {}, {}, no think time", configuration.parameters, counted(run.clients, "client")))?;
    out.line(format_args!("mix {:?}, read-only transactions by {:?}", configuration.mix, configuration.reads))?;
    out.line(clock_line(&configuration.world))?;
    out.line(format_args!("device: {}", outcome.device))?;
    outcome.storage.print_settings(&mut out)?;
    match outcome.load_seconds {
        Some(seconds) => out.line(format_args!("loaded in {seconds:.1} s"))?,
        None => out.line("the database was loaded before")?,
    }
    out.line(format_args!("tpmC {} in {:.1} s", rate(outcome.tpmc), run.seconds))?;
    let mut table = Table::new([
        "transaction",
        "committed",
        "share",
        "rolled back",
        "aborted",
        "retried",
        "per second",
        "p50",
        "p95",
        "p99",
        "max",
    ]);
    for kind in run.kinds.iter().chain([&run.total]) {
        let share = 100.0 * (kind.committed + kind.rolled_back) as f64
            / (run.total.committed + run.total.rolled_back).max(1) as f64;
        table.row([
            kind.name.to_owned(),
            units::count(kind.committed),
            format!("{share:.2}%"),
            units::count(kind.rolled_back),
            units::count(kind.aborted),
            units::count(kind.retried),
            rate(kind.per_second),
            latency(kind.latency.p50_us),
            latency(kind.latency.p95_us),
            latency(kind.latency.p99_us),
            latency(kind.latency.max_us),
        ]);
    }
    out.line(table)?;
    outcome.storage.print_faults(&mut out)?;
    counters::print(&mut out, &outcome.log, &outcome.emulated_devices)?;
    if let Some(in_page) = &outcome.in_page {
        out.line(in_page.table())?;
    }
    if let Some(log_structured) = &outcome.log_structured {
        out.line(log_structured.table())?;
    }
    outcome.consistency.iter().try_for_each(|condition| out.line(condition))?;
    out.line(format_args!("consistency: {}", if outcome.is_consistent { "ok" } else { "BROKEN" }))
}
