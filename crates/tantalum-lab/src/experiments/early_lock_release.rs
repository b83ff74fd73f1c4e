//! What letting a transaction's locks go before its log record is durable is worth, where clients fight over a few rows.

use std::time::Duration;

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{self, Cpu, Length, Log, Operation, Outcome, Scenario, VOLUME},
};

pub(super) const EXPERIMENTS: &[Experiment] =
    &[Experiment { id: EARLY_LOCK_RELEASE, profiles: &[VOLUME], run: early_lock_release }];

const EARLY_LOCK_RELEASE: &str = "now.early_lock_release";

const LOG_ANSWERS_AFTER: Duration = Duration::from_millis(1);
/// Transfers among so many accounts, locked in their order or in that in which they were chosen.
const LOADS: [(&str, u64, bool); 3] =
    [("10 accounts", 10, false), ("10 accounts in their order", 10, true), ("100,000 accounts", 100_000, false)];
const CONTENDED: u64 = 10;
/// When locks are released: before the commit is durable, or after.
const WAYS: [(&str, bool); 2] = [("early", true), ("late", false)];
const CLIENTS: [usize; 4] = [1, 4, 16, 64];
/// The goal is that of so many and more.
const MANY: usize = 16;
const CORES: usize = 4;
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(20);
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(4);

fn rows((_, count, in_order): (&str, u64, bool), clients: usize, early_lock_release: bool, seed: u64) -> Scenario {
    Scenario {
        early_lock_release,
        log: Log::Volume(LOG_ANSWERS_AFTER),
        clients,
        cores: CORES,
        cpu: Cpu::PerAttempt(CPU_PER_ATTEMPT),
        length: Length::Time { warm_up: WARM_UP, counted: MEASURED },
        ..Scenario::of_rows(count, Operation::Transfer { in_order }, seed)
    }
}

fn early_lock_release(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(vec![
        format!(
            "serializable transfers between two random accounts, each of which is locked for writing as it is read: in the order \
                 chosen, so that two transfers can deadlock, or in their order; {} us of one of {CORES} cores for each attempt, half \
                 after each lock; pages in memory; {} virtual seconds after {} of warm-up",
            CPU_PER_ATTEMPT.as_micros(),
            MEASURED.as_secs(),
            WARM_UP.as_secs()
        ),
        format!(
            "the log on one volume that answers each request after {} ms, and any number at once ({VOLUME} without \
                 randomness or caps)",
            LOG_ANSWERS_AFTER.as_millis()
        ),
    ]);
    let of_load = |load| CLIENTS.map(|clients| WAYS.map(|(_, early)| rows(load, clients, early, settings.seed)));
    let all: Vec<Scenario> = LOADS.into_iter().flat_map(of_load).flatten().collect();
    let mut runs = scenario::run(&all, progress)?.into_iter();
    let (mut curves, mut is_whole, mut speedups) = (Vec::new(), true, Vec::new());
    for (load, count, _) in LOADS {
        let (mut rates, mut ratios) = (WAYS.map(|_| Vec::new()), Vec::new());
        for clients in CLIENTS {
            let of_ways = WAYS.map(|(name, _)| {
                let run = runs.next().expect("a run for each");
                is_whole &= run.sum == 0;
                tell(&mut findings, &format!("{load}, clients: {clients}, locks released {name}"), &run);
                run.report.total.per_second
            });
            rates.iter_mut().zip(of_ways).for_each(|(rates, rate)| rates.push((clients as f64, rate)));
            let [early, late] = of_ways;
            ratios.push(early / late);
            let has_goal = count == CONTENDED && clients >= MANY;
            let bound = if has_goal { published::of(EARLY_LOCK_RELEASE).bound() } else { Bound::Unpublished };
            let what = format!("{load}, clients: {clients}, early over late");
            findings.compared(what, bound, early / late, "ratio");
        }
        speedups.push(ratios);
        for ((name, _), rates) in WAYS.into_iter().zip(rates) {
            curves.push(Series::line(format!("{load}, {name}"), rates));
        }
    }
    findings.states("no transfer is lost or half done", is_whole, "by the sum of all accounts");
    findings.states(
        "where transactions hardly ever wait for locks, it does not matter when they are released",
        speedups[2].iter().all(|ratio| (0.98..=1.02).contains(ratio)),
        format!("{:.3} times as many at most", speedups[2].iter().copied().fold(0.0, f64::max)),
    );
    findings.plots.push(Plot::new(
        "Transfers a second, log writes of 1 ms",
        Axis::log("clients", Unit::Number),
        Axis::log("transfers a second", Unit::Number),
        curves,
    ));
    Ok(findings)
}

fn tell(findings: &mut Findings, what: &str, run: &Outcome) {
    let total = &run.report.total;
    let mut row = |of: &str, value: f64, unit: &str| {
        let of = format!("{what}, {of}");
        findings.measured(of, value, unit);
    };
    row("committed", total.per_second, "transactions/s");
    row("p50", total.latency.p50_us / 1e3, "ms");
    row("p99", total.latency.p99_us / 1e3, "ms");
    row("aborted by deadlocks, for each committed", total.aborted as f64 / total.committed.max(1) as f64, "attempts");
}
