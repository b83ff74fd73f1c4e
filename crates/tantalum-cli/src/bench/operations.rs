//! What benchmarks of many small operations have in common: load, warm up, run, check, and their result.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::{Db, LogSummary};
use tantalum_report::{Table, units};
use tantalum_workloads::{
    Condition, LoadProgress,
    driver::{self, RunReport, Workload},
};

use super::{
    JSON_FORMAT, counted,
    counters::{self, DeviceReport},
    database, latency, rate, seconds,
    simulate::{self, World, clock_line},
    storage::{self, StorageReport},
    watch::{Stage, Watch},
    write_json,
};
use crate::error::{Out, Result};

#[derive(Args, Clone)]
pub struct Running {
    /// Clients at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Commits that each client keeps under way; 1: it waits for each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    async_depth: u32,
    /// Measured time in seconds.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Seconds before that are not measured.
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// Seeds the load and the clients' choices.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Tasks that load.
    #[arg(long, default_value_t = 8)]
    loaders: usize,
    /// Write the result as JSON; docs/use/json.md explains its fields.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    simulate: simulate::Simulate,
    #[command(flatten)]
    database: database::Options,
}

impl Running {
    pub fn database(&self) -> &database::Options {
        &self.database
    }

    pub fn simulate(&self) -> &simulate::Simulate {
        &self.simulate
    }

    pub fn json(&self) -> Option<PathBuf> {
        self.json.clone()
    }

    /// What the driver is told, where an operation takes so much of a virtual core.
    pub fn driver_options(&self, cpu_per_attempt: Duration) -> Result<driver::Options> {
        let (warm_up, measured) = (seconds("--warm-up", self.warm_up)?, seconds("--seconds", self.seconds)?);
        Ok(driver::Options::timed(self.clients as usize, warm_up, measured)
            .with_seed(self.seed)
            .with_cpu_per_attempt(self.simulate.cpu_per_attempt(cpu_per_attempt)))
    }
}

/// A benchmark of this kind.
pub trait Benchmark: Clone + 'static {
    /// What its clients do.
    type Workload: Workload;
    /// What it was asked for beside the common arguments.
    type Parameters: Serialize;

    /// In JSON.
    const NAME: &'static str;

    /// What an attempt is charged of a virtual core: about what the engine takes of a real one, with all its threads.
    const CPU_PER_ATTEMPT: Duration;

    /// What it is, for people.
    fn title(&self) -> String;

    fn parameters(&self) -> Self::Parameters;

    fn is_loaded(&self, db: &Db) -> Result<bool>;

    fn load(
        &self,
        db: &Db,
        loaders: usize,
        async_depth: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Self::Workload>;

    /// What must hold of its database.
    fn check(&self, _db: &Db) -> Result<Vec<Condition>> {
        Ok(Vec::new())
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Outcome<P> {
    benchmark: &'static str,
    format: u32,
    configuration: Configuration<P>,
    device: String,
    load_seconds: Option<f64>,
    run: RunReport,
    /// What the log did, loading included.
    log: LogSummary,
    emulated_devices: Vec<DeviceReport>,
    /// How pages were written.
    storage: StorageReport,
    is_consistent: bool,
    consistency: Vec<Condition>,
}

#[derive(Serialize)]
struct Configuration<P> {
    parameters: P,
    clients: u32,
    async_depth: u32,
    seconds: f64,
    warm_up_seconds: f64,
    seed: u64,
    world: World,
    database: database::Options,
}

/// Loads if need be, runs, checks. The exit code is 1 when a condition does not hold.
pub fn run<B: Benchmark>(benchmark: B, arguments: Running) -> Result<ExitCode> {
    let options = arguments.driver_options(B::CPU_PER_ATTEMPT)?;
    let (json, simulate, title) = (arguments.json.clone(), arguments.simulate.clone(), benchmark.title());
    let (outcome, speed) =
        simulate.run(arguments.seed, move |watch| execute(&benchmark, &arguments, options, watch))?;
    print(&title, &outcome)?;
    if let Some(speed) = speed {
        Out::new().line(speed)?;
    }
    write_json(json.as_ref(), &outcome)?;
    Ok(if outcome.is_consistent { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All of it, in either world.
fn execute<B: Benchmark>(
    benchmark: &B,
    arguments: &Running,
    options: driver::Options,
    watch: &Watch,
) -> Result<Outcome<B::Parameters>> {
    let is_simulated = arguments.simulate.is_on();
    let database =
        if is_simulated { arguments.database.open_simulated(None)? } else { arguments.database.open(None)? };
    let is_loaded = benchmark.is_loaded(&database.db)?;
    if !is_loaded {
        arguments.database.may_load()?;
    }
    let started = tantalum_rt::now();
    let mut show = |progress: &LoadProgress| {
        let total = Some(progress.total_rows);
        watch.show(Stage { label: "loading rows", done: progress.rows, total, remark: String::new() });
    };
    let workload = benchmark.load(&database.db, arguments.loaders, arguments.async_depth as usize, &mut show)?;
    let load_seconds = (!is_loaded).then(|| started.elapsed().as_secs_f64());
    let (before, stored_before) = (database.mark(), storage::Mark::of(&database.db)?);
    database.begin_io_trace(&format!("{}, {}", benchmark.title(), counted(options.clients, "client")))?;
    let report = drive(workload, options, watch)?;
    let emulated_devices = database.since(&before);
    let storage = StorageReport::since(&stored_before, &database.db)?;
    database.end_io_trace(report.ended, &storage, &emulated_devices)?;
    watch.label("checking the database");
    let consistency = benchmark.check(&database.db)?;
    let outcome = Outcome {
        benchmark: B::NAME,
        format: JSON_FORMAT,
        configuration: Configuration {
            parameters: benchmark.parameters(),
            clients: arguments.clients,
            async_depth: arguments.async_depth,
            seconds: arguments.seconds,
            warm_up_seconds: arguments.warm_up,
            seed: arguments.seed,
            world: arguments.simulate.world(B::CPU_PER_ATTEMPT),
            database: arguments.database.clone(),
        },
        device: database.device.clone(),
        load_seconds,
        log: database.log()?,
        emulated_devices,
        storage,
        is_consistent: consistency.iter().all(Condition::is_ok),
        consistency,
        run: report,
    };
    database.close()?;
    Ok(outcome)
}

/// Runs the clients, and shows how far they are.
pub fn drive<W: Workload>(workload: W, options: driver::Options, watch: &Watch) -> Result<RunReport> {
    let report = driver::run(&Arc::new(workload), options, &mut |progress| {
        let (seconds, done) = (progress.elapsed.as_secs_f64(), progress.committed.iter().sum());
        let total = progress.total.unwrap_or_default().as_secs_f64();
        let per_second = done as f64 / seconds.max(1e-3);
        watch.show(Stage {
            label: "running, operations",
            done,
            total: None,
            remark: format!("{seconds:.0} of {total:.0} s, {}/s, {} aborted", rate(per_second), progress.aborted),
        });
    })?;
    Ok(report)
}

fn print<P>(title: &str, outcome: &Outcome<P>) -> Result<()> {
    let (configuration, run) = (&outcome.configuration, &outcome.run);
    let mut out = Out::new();
    let clients = counted(run.clients, "client");
    let depth = match configuration.async_depth {
        1 => "each waits for its commits".to_owned(),
        depth => format!("each keeps {depth} commits under way"),
    };
    out.line(format_args!("{title}, {clients}, {depth}"))?;
    out.line(clock_line(&configuration.world))?;
    out.line(format_args!("device: {}", outcome.device))?;
    outcome.storage.print_settings(&mut out)?;
    match outcome.load_seconds {
        Some(seconds) => out.line(format_args!("loaded in {seconds:.1} s"))?,
        None => out.line("the database was loaded before")?,
    }
    out.line(format_args!("{} operations a second in {:.1} s", rate(run.total.per_second), run.seconds))?;
    out.line(table(run))?;
    outcome.storage.print_faults(&mut out)?;
    counters::print(&mut out, &outcome.log, &outcome.emulated_devices)?;
    outcome.consistency.iter().try_for_each(|condition| out.line(condition))?;
    if outcome.consistency.is_empty() {
        return Ok(());
    }
    out.line(format_args!("consistency: {}", if outcome.is_consistent { "ok" } else { "BROKEN" }))
}

/// What each kind of operation did.
pub fn table(run: &RunReport) -> Table {
    let mut table = Table::new([
        "operation",
        "done",
        "share",
        "aborted",
        "per second",
        "mean",
        "p25",
        "p50",
        "p75",
        "p99",
        "p99.9",
        "max",
    ]);
    let shown = run.kinds.iter().filter(|kind| kind.committed + kind.aborted > 0);
    for kind in shown.chain([&run.total]) {
        table.row([
            kind.name.to_owned(),
            units::count(kind.committed),
            format!("{:.2}%", 100.0 * kind.committed as f64 / run.total.committed.max(1) as f64),
            units::count(kind.aborted),
            rate(kind.per_second),
            latency(kind.latency.mean_us),
            latency(kind.latency.p25_us),
            latency(kind.latency.p50_us),
            latency(kind.latency.p75_us),
            latency(kind.latency.p99_us),
            latency(kind.latency.p999_us),
            latency(kind.latency.max_us),
        ]);
    }
    table
}
