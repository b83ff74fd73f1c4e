//! What all benchmarks have in common: their arguments, how one runs in either world, and its result.
//!
//! A benchmark declares what it loads, measures and checks ([`Benchmark`]); [`run`] does the rest.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::Db;
use tantalum_report::{Table, units};
use tantalum_workloads::{
    Condition, LoadProgress,
    driver::{self, Monitor, Progress, RunReport, Workload},
};

use super::{
    counted,
    counters::Activity,
    database::{self, Database},
    latency, rate,
    simulate::{Simulate, World, clock_line},
};
use crate::{
    error::{Error, Out, Result},
    interrupt::{self, Measuring},
    progress::{Stage, Watch},
};

/// Version of the JSON outputs; raised when a field changes its meaning or goes away, not when one is added.
pub const JSON_FORMAT: u32 = 2;

/// The arguments of every benchmark.
#[derive(Args, Clone)]
pub struct Common {
    /// Seeds the load and the clients' choices.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write the result as JSON; docs/use/json.md explains its fields.
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    pub simulate: Simulate,
    #[command(flatten)]
    pub database: database::Options,
}

impl Common {
    /// Runs `execute` in the world that is asked for, prints what came of it, and writes it as JSON. The exit code is 1 when
    /// `is_consistent` says no.
    pub fn run<O: Serialize + 'static>(
        &self,
        execute: impl FnOnce(&Watch) -> Result<O> + 'static,
        print: impl FnOnce(&mut Out, &O) -> Result<()>,
        is_consistent: impl FnOnce(&O) -> bool,
    ) -> Result<ExitCode> {
        let (outcome, speed) = self.simulate.run(self.seed, execute)?;
        let mut out = Out::new();
        print(&mut out, &outcome)?;
        speed.map_or(Ok(()), |speed| out.line(speed))?;
        if let Some(path) = &self.json {
            tantalum_report::to_json_file(path, &outcome)?;
        }
        Ok(match (is_consistent(&outcome), interrupt::is_requested()) {
            (false, _) => ExitCode::FAILURE,
            (true, true) => ExitCode::from(interrupt::EXIT_CODE),
            (true, false) => ExitCode::SUCCESS,
        })
    }
}

/// The arguments of benchmarks whose clients work for one stretch of time.
#[derive(Args, Clone)]
pub struct Running {
    /// Clients at the same time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    clients: u32,
    /// Measured time in seconds; 0 only loads and checks.
    #[arg(long, default_value_t = 30.0)]
    seconds: f64,
    /// Seconds before that are not measured.
    #[arg(long, default_value_t = 0.0)]
    warm_up: f64,
    /// Tasks that load.
    #[arg(long, default_value_t = 8)]
    pub loaders: usize,
    #[command(flatten)]
    pub common: Common,
}

/// [`Running`] in JSON, beside what else a benchmark was asked for.
#[derive(Serialize)]
pub struct RunningConfiguration<P> {
    #[serde(flatten)]
    own: P,
    clients: u32,
    seconds: f64,
    warm_up_seconds: f64,
}

impl Running {
    /// The clients, for people.
    pub fn clients(&self) -> String {
        counted(self.clients as usize, "client")
    }

    pub fn configuration<P>(&self, own: P) -> RunningConfiguration<P> {
        let Self { clients, seconds, warm_up: warm_up_seconds, .. } = *self;
        RunningConfiguration { own, clients, seconds, warm_up_seconds }
    }

    /// Refuses times that cannot be.
    pub fn check(&self) -> Result<()> {
        self.options(Duration::ZERO).map(drop)
    }

    fn options(&self, cpu_per_attempt: Duration) -> Result<driver::Options> {
        let seconds = |name: &str, seconds: f64| {
            let impossible = |error| Error::Other(format!("{name} {seconds} is not possible: {error}"));
            Duration::try_from_secs_f64(seconds).map_err(impossible)
        };
        let (warm_up, measured) = (seconds("--warm-up", self.warm_up)?, seconds("--seconds", self.seconds)?);
        Ok(driver::Options::timed(self.clients as usize, warm_up, measured)
            .with_seed(self.common.seed)
            .with_cpu_per_attempt(self.common.simulate.cpu_per_attempt(cpu_per_attempt)))
    }

    /// Runs the clients, and shows how far they are.
    pub fn drive<W: Workload>(&self, workload: &Arc<W>, cpu_per_attempt: Duration, watch: &Watch) -> Result<RunReport> {
        Ok(driver::run_monitored(workload, self.options(cpu_per_attempt)?, &mut UntilInterrupted(Some(watch)))?)
    }
}

/// Ends a run when the program is interrupted, and shows how far it is, if it is to be shown.
pub struct UntilInterrupted<'w>(pub Option<&'w Watch>);

impl Monitor for UntilInterrupted<'_> {
    fn is_over(&mut self) -> bool {
        interrupt::is_requested()
    }

    fn progress(&mut self, progress: &Progress) {
        let Some(watch) = self.0 else { return };
        let (seconds, done) = (progress.elapsed.as_secs_f64(), progress.committed.iter().sum());
        let total = progress.total.unwrap_or_default().as_secs_f64();
        let per_second = done as f64 / seconds.max(1e-3);
        watch.show(Stage {
            label: "running, operations",
            done,
            total: None,
            remark: format!("{seconds:.0} of {total:.0} s, {}/s, {} aborted", rate(per_second), progress.aborted),
        });
    }
}

/// Commits of a client under way.
#[derive(Args, Clone, Copy, Serialize)]
pub struct Pipelining {
    /// Commits that each client keeps under way; 1: it waits for each.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub async_depth: u32,
}

impl std::fmt::Display for Pipelining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.async_depth {
            1 => write!(f, "each waits for its commits"),
            depth => write!(f, "each keeps {depth} commits under way"),
        }
    }
}

/// A benchmark of a database.
pub trait Benchmark: 'static {
    /// In JSON.
    const NAME: &'static str;
    /// What an attempt is charged of a virtual core: about what the engine takes of a real one, with all its threads.
    const CPU_PER_ATTEMPT: Duration;
    /// What clients work on.
    type Loaded;
    /// What it was asked for beside the common arguments.
    type Configuration: Serialize;
    /// What it measures.
    type Measured: Measured;

    fn common(&self) -> &Common;

    /// What it does, for people.
    fn title(&self) -> String;

    /// Refuses arguments before anything takes time.
    fn check_arguments(&self) -> Result<()>;

    fn configuration(&self, database: &Database) -> Result<Self::Configuration>;

    fn is_loaded(&self, db: &Db) -> Result<bool>;

    /// Loads if need be.
    fn load(&self, database: &Database, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Self::Loaded>;

    fn measure(&self, loaded: Self::Loaded, watch: &Watch) -> Result<Self::Measured>;

    /// What must hold of its database.
    fn check(&self, _db: &Db) -> Result<Vec<Condition>> {
        Ok(Vec::new())
    }
}

/// What a benchmark measured, with its place in JSON.
pub trait Measured: Serialize + 'static {
    /// Transactions that ended, those included that are not counted.
    fn ended(&self) -> u64;

    /// Transactions that were counted.
    fn transactions(&self) -> u64;

    fn print(&self, out: &mut Out) -> Result<()>;
}

/// What clients did in one stretch of time.
#[derive(Serialize)]
pub struct Run {
    /// Of TPC-C: committed new-orders in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpmc: Option<f64>,
    /// What the clients did.
    pub run: RunReport,
}

impl Measured for Run {
    fn ended(&self) -> u64 {
        self.run.ended
    }

    fn transactions(&self) -> u64 {
        self.run.total.committed + self.run.total.rolled_back
    }

    fn print(&self, out: &mut Out) -> Result<()> {
        let seconds = self.run.seconds;
        match self.tpmc {
            Some(tpmc) => out.line(format_args!("tpmC {} in {seconds:.1} s", rate(tpmc)))?,
            None => {
                out.line(format_args!("{} operations a second in {seconds:.1} s", rate(self.run.total.per_second)))?;
            }
        }
        print_kinds(out, &self.run)
    }
}

/// What each kind of operation did, and how long it took: two tables, since one would be wider than 80 columns.
pub fn print_kinds(out: &mut Out, run: &RunReport) -> Result<()> {
    let ended = |kind: &driver::KindReport| kind.committed + kind.rolled_back;
    let undone = (run.total.rolled_back > 0).then_some("undone");
    let mut counts = Table::new(["operation", "done", "share"].into_iter().chain(undone).chain(["aborted", "per s"]));
    let mut times = Table::new(["latency of"].into_iter().chain(PERCENTILES));
    let shown = run.kinds.iter().filter(|kind| ended(kind) + kind.aborted > 0);
    for kind in shown.chain([&run.total]) {
        let share = 100.0 * ended(kind) as f64 / ended(&run.total).max(1) as f64;
        counts.row(
            [kind.name.to_owned(), units::count(kind.committed), format!("{share:.2}%")]
                .into_iter()
                .chain(undone.map(|_| units::count(kind.rolled_back)))
                .chain([units::count(kind.aborted), rate(kind.per_second)]),
        );
        times.row([kind.name.to_owned()].into_iter().chain(percentiles(&kind.latency)));
    }
    out.line(counts)?;
    out.line(times)
}

/// The columns of [`percentiles`].
pub const PERCENTILES: [&str; 4] = ["p50", "p99", "p99.9", "max"];

pub fn percentiles(times: &driver::Latency) -> [String; 4] {
    [times.p50_us, times.p99_us, times.p999_us, times.max_us].map(latency)
}

/// The JSON output.
#[derive(Serialize)]
struct Outcome<C, M> {
    /// `tpcc`, `linkbench`, `ycsb` or `kv`.
    benchmark: &'static str,
    /// Raised when a field changes its meaning or goes away.
    format: u32,
    /// What was asked for; settings are null where the default holds.
    configuration: Configuration<C>,
    /// What the device below the data says of itself.
    device: String,
    /// How long loading took; null if the database was loaded before.
    load_seconds: Option<f64>,
    /// What it measured, in fields that depend on the benchmark.
    #[serde(flatten)]
    measured: M,
    #[serde(flatten)]
    activity: Activity,
    /// Whether every condition holds.
    is_consistent: bool,
    /// What must hold of the database, and whether it does.
    consistency: Vec<Condition>,
}

/// What was asked for.
#[derive(Serialize)]
struct Configuration<C> {
    /// The benchmark's own arguments.
    #[serde(flatten)]
    own: C,
    /// Seeds the load and the choices of clients.
    seed: u64,
    /// Real or virtual time.
    world: World,
    /// Directory and settings.
    database: database::Options,
}

/// Loads if need be, measures, checks. The exit code is 1 when a condition does not hold.
pub fn run<B: Benchmark>(benchmark: B) -> Result<ExitCode> {
    benchmark.check_arguments()?;
    let (common, title) = (benchmark.common().clone(), benchmark.title());
    common.run(
        move |watch| execute(&benchmark, watch),
        |out, outcome| print(out, &title, outcome),
        |outcome| outcome.is_consistent,
    )
}

/// All of it, in either world.
fn execute<B: Benchmark>(benchmark: &B, watch: &Watch) -> Result<Outcome<B::Configuration, B::Measured>> {
    let Common { seed, simulate, database: options, .. } = benchmark.common();
    let database = options.open(simulate.is_on())?;
    let is_loaded = benchmark.is_loaded(&database.db)?;
    if !is_loaded {
        options.may_load()?;
    }
    let started = tantalum_rt::now();
    let mut show = |progress: &LoadProgress| {
        let total = Some(progress.total_rows);
        watch.show(Stage { label: "loading rows", done: progress.rows, total, remark: String::new() });
    };
    let loaded = benchmark.load(&database, &mut show)?;
    let load_seconds = (!is_loaded).then(|| started.elapsed().as_secs_f64());
    let before = database.mark()?;
    database.begin_traces(&benchmark.title())?;
    let measuring = Measuring::begin();
    let measured = benchmark.measure(loaded, watch)?;
    drop(measuring);
    let activity = database.since(&before, measured.transactions())?;
    database.end_traces(measured.ended(), &activity)?;
    let consistency = match interrupt::is_requested() {
        true => Vec::new(),
        false => {
            watch.label("checking the database");
            benchmark.check(&database.db)?
        }
    };
    let outcome = Outcome {
        benchmark: B::NAME,
        format: JSON_FORMAT,
        configuration: Configuration {
            own: benchmark.configuration(&database)?,
            seed: *seed,
            world: simulate.world(B::CPU_PER_ATTEMPT),
            database: options.clone(),
        },
        device: database.device.clone(),
        load_seconds,
        measured,
        activity,
        is_consistent: consistency.iter().all(Condition::is_ok),
        consistency,
    };
    database.close()?;
    Ok(outcome)
}

fn print<C, M: Measured>(out: &mut Out, title: &str, outcome: &Outcome<C, M>) -> Result<()> {
    out.line(title)?;
    out.line(clock_line(&outcome.configuration.world))?;
    out.line(format_args!("device: {}", outcome.device))?;
    outcome.activity.print_settings(out)?;
    match outcome.load_seconds {
        Some(seconds) => out.line(format_args!("loaded in {seconds:.1} s"))?,
        None => out.line("the database was loaded before")?,
    }
    outcome.measured.print(out)?;
    outcome.activity.print(out)?;
    outcome.consistency.iter().try_for_each(|condition| out.line(condition))?;
    match outcome.consistency.is_empty() {
        true => Ok(()),
        false => out.line(format_args!("consistency: {}", if outcome.is_consistent { "ok" } else { "BROKEN" })),
    }
}
