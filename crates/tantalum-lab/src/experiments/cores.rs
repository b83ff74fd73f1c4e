//! Whether a lock of the engine's keeps more cores from doing more: throughput against virtual cores, where locks take time.

use std::{sync::Arc, time::Duration};

use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_rt::simulation::{LockCharges, LockUse};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Findings, Statement},
    scenario::{self, Cpu, Length, Log, Operation, Outcome, Scenario, Through, VOLUME},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: CORES, profiles: &[VOLUME], run: cores }];

const CORES: &str = "now.cores";

const COUNTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const ROWS: u64 = 100_000;

/// Each acquisition of a lock takes 100 ns, half of it on the lock's own word. Assumed; docs/measure/lab.md says what for.
const LOCKS: LockCharges = LockCharges {
    exclusive: Duration::from_nanos(50),
    shared: Duration::from_nanos(50),
    word: Duration::from_nanos(50),
};
/// What a read and a commit take beside their locks, such that they take as long as measured on one core.
const CPU_PER_READ: Duration = Duration::from_nanos(400);
const CPU_PER_COMMIT: Duration = Duration::from_micros(4);

const COMMITS_UNDER_WAY: usize = 64;
const LOG_ANSWERS_AFTER: Duration = Duration::from_micros(20);
const WARM_UP: Duration = Duration::from_millis(2);
const MEASURED: Duration = Duration::from_millis(10);

/// Locks at which fewer clients wait on average are not listed.
const TOLD: f64 = 0.01;

/// Less than this share of what so many cores could do is a cap.
const SCALES: f64 = 0.8;

const LOADS: [(&str, Operation, Duration); 4] = [
    ("reads, each in a transaction", Operation::Read(Through::Transaction), CPU_PER_READ),
    ("reads of kept snapshots", Operation::Read(Through::KeptSnapshot), CPU_PER_READ),
    ("reads, each of a snapshot of its own", Operation::Read(Through::Snapshot), CPU_PER_READ),
    ("updates", Operation::Update { depth: COMMITS_UNDER_WAY }, CPU_PER_COMMIT),
];

fn rows(operation: Operation, cpu_per_attempt: Duration, cores: usize, seed: u64) -> Scenario {
    Scenario {
        log: Log::Volume(LOG_ANSWERS_AFTER),
        clients: cores,
        cores,
        cpu: Cpu::PerAttempt(cpu_per_attempt),
        locks: Some(LOCKS),
        length: Length::Time { warm_up: WARM_UP, counted: MEASURED },
        ..Scenario::of_rows(ROWS, operation, seed)
    }
}

fn cores(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let of_load = |(_, operation, cpu)| COUNTS.map(|count| rows(operation, cpu, count, settings.seed));
    let all: Vec<Scenario> = LOADS.into_iter().flat_map(of_load).collect();
    let runs = scenario::run(&all, progress)?;
    let mut findings = Findings::new(configuration());
    let (mut curves, mut shares) = (Vec::new(), Vec::new());
    for ((load, ..), runs) in LOADS.iter().zip(runs.chunks_exact(COUNTS.len())) {
        let rates: Vec<f64> = runs.iter().map(|run| run.report.total.per_second).collect();
        let share = |at: usize| rates[at] / (rates[0] * COUNTS[at] as f64);
        let mut row = |what: String, value: f64, unit: &str| {
            findings.measured(what, value, unit);
        };
        let taken: u64 = runs[0].locks.iter().map(|used| used.acquisitions).sum();
        row(format!("{load}: locks taken for each"), taken as f64 / runs[0].report.ended as f64, "locks");
        for (at, (count, run)) in COUNTS.iter().zip(runs).enumerate() {
            let what = format!("{load}, cores: {count}");
            row(what.clone(), rates[at], "operations/s");
            row(format!("{what}, of what each did alone"), 100.0 * share(at), "%");
            if let Some(worst) = run.locks.first().filter(|worst| waiting(worst, run) >= TOLD) {
                row(format!("{what}, clients waiting for a lock at {}", place(worst)), waiting(worst, run), "clients");
            }
        }
        findings.statements.push(verdict(load, &rates, runs));
        let points =
            |of: &dyn Fn(usize) -> f64| COUNTS.iter().enumerate().map(|(at, count)| (*count as f64, of(at))).collect();
        curves.push(Series::line(*load, points(&|at| rates[at])));
        shares.push(Series::line(*load, points(&|at| 100.0 * share(at))));
    }
    findings.plots.push(Plot::new(
        "Operations a second against virtual cores",
        Axis::log("cores", Unit::Number),
        Axis::log("operations a second", Unit::Number),
        curves,
    ));
    findings.plots.push(Plot::new(
        "What a core does, of what one does alone",
        Axis::log("cores", Unit::Number),
        Axis::linear("%", Unit::Number),
        shares,
    ));
    Ok(findings)
}

fn configuration() -> Vec<String> {
    vec![
        format!(
            "{ROWS} rows of 116 bytes in memory; a client for each core, without think time; {} virtual ms after {} of warm-up",
            MEASURED.as_millis(),
            WARM_UP.as_millis()
        ),
        format!(
            "each lock takes a core {} ns, in {} of which no other task can take it, not even to read; beside locks a read takes {} ns \
             and a commit {} us",
            (LOCKS.word + LOCKS.exclusive).as_nanos(),
            LOCKS.word.as_nanos(),
            CPU_PER_READ.as_nanos(),
            CPU_PER_COMMIT.as_micros()
        ),
        format!(
            "updates of one row, {COMMITS_UNDER_WAY} under way for each client, the log on one volume that answers each request after \
             {} us ({VOLUME} without randomness or caps)",
            LOG_ANSWERS_AFTER.as_micros()
        ),
        "not in the model: words of memory that are shared without a lock, sleeping and waking, memory bandwidth"
            .into(),
    ]
}

/// Whether locks cap a load, and which.
fn verdict(load: &str, rates: &[f64], runs: &[Arc<Outcome>]) -> Statement {
    let says = format!("{load}: no lock caps them, up to {} cores", COUNTS[COUNTS.len() - 1]);
    let capped = (0..COUNTS.len()).find(|&at| rates[at] < SCALES * rates[0] * COUNTS[at] as f64);
    let found = match capped {
        None => format!("at least {:.0} % of what each did alone", 100.0 * SCALES),
        Some(at) => {
            let most = rates.iter().copied().fold(0.0, f64::max);
            let worst = runs[at].locks.first().map_or("none".to_owned(), place);
            format!("{most:.0} a second at most; from {} cores on, waiting at {worst}", COUNTS[at])
        }
    };
    Statement::new(says, capped.is_none(), found)
}

/// How many clients waited there on average.
fn waiting(used: &LockUse, run: &Outcome) -> f64 {
    used.waited.as_secs_f64() / run.seconds
}

/// The file, from its crate on, and the line.
fn place(used: &LockUse) -> String {
    let file = used.place.file();
    let file = file.rsplit_once("crates/").map_or(file, |(_, within)| within);
    format!("{file}:{}", used.place.line())
}
