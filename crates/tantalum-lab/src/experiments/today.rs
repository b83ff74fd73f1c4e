//! Volumes and drives of today: what several of them, and hiding late writes, are worth for a log.

use std::time::Duration;

use tantalum::LogHiding;
use tantalum_log::LogOptions;
use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    Experiment, Settings,
    transactions::{FOUR_CORES_WITHOUT_NETWORK, MANY, TpccServer},
};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{
        Cpu, Length, LogSetup, Scenario,
        paced::{Paced, PacedRun, Stuck},
    },
};

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: HEDGED, profiles: &[CLOUD, DRIVE], run: hedged_volumes },
    Experiment { id: STUCK, profiles: &[CLOUD], run: stuck_volume },
    Experiment { id: TPCC, profiles: &[CLOUD, DRIVE], run: tpcc },
];

const HEDGED: &str = "now.hedged_volumes";
const STUCK: &str = "now.stuck_volume";
const TPCC: &str = "now.tpcc";

const CLOUD: &str = "cloud-volume";
const DRIVE: &str = "nvme-plp";
const COUNTS: [u32; 3] = [1, 2, 4];
const CLIENTS: usize = 32;
const RECORD_BYTES: usize = 400;

/// What a call to the engine takes of a hardware thread of today: assumed.
const CPU_PER_CALL: Duration = Duration::from_micros(5);
const WARM_UP: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(4);

/// A log on so many volumes; only with several there is something to hide late writes behind.
fn logs(profile: &'static str) -> Vec<(String, LogSetup)> {
    let mut logs = Vec::new();
    for count in COUNTS {
        let log = LogSetup::ours(profile, count);
        let name = |how: &str| format!("{count} {profile}{how}");
        if count == 1 {
            logs.push((name(""), log));
        } else {
            logs.push((name(", waiting"), log.with_hiding(LogHiding::Off)));
            logs.push((name(", hedged"), log));
        }
    }
    logs
}

/// The same with two copies of each request, which need two volumes.
fn mirrored(profile: &'static str) -> impl Iterator<Item = (String, LogSetup)> {
    let mirrored =
        move |count| (format!("{count} {profile}, mirrored, hedged"), LogSetup::ours(profile, count).mirrored());
    COUNTS.into_iter().filter(|&count| count > 1).map(mirrored)
}

fn paced(log: LogSetup, per_second: f64, seconds: u64, seed: u64) -> Paced {
    let (time, hang_timeout) = (Duration::from_secs(seconds), LogOptions::default().hang_timeout);
    let record_bytes = RECORD_BYTES;
    Paced { log, clients: CLIENTS, per_second, record_bytes, time, stuck: None, replaced: None, hang_timeout, seed }
}

fn hedged_volumes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let loads = [(CLOUD, 1000.0, 200), (DRIVE, 10_000.0, 5)];
    let mut findings = Findings::new(loads
            .iter()
            .map(|(profile, per_second, seconds)| {
                format!(
                    "{profile}: {per_second} commits of {RECORD_BYTES} bytes a second by {CLIENTS} clients, at random times, for \
                     {seconds} virtual seconds; latency from when a commit is due"
                )
            }));
    for (profile, per_second, seconds) in loads {
        let mut runs: Vec<(String, PacedRun)> = Vec::new();
        for (name, log) in logs(profile).into_iter().chain(mirrored(profile)) {
            progress(&name);
            runs.push((name, paced(log, per_second, seconds, settings.seed).run()?));
        }
        for (name, run) in &runs {
            for (what, ns) in [("p50", run.latency.p50_ns), ("p99", run.latency.p99_ns), ("p99.9", run.latency.p999_ns)]
            {
                findings.measured(format!("{name}: {what}"), ns as f64 / 1e6, "ms");
            }
            findings.measured(format!("{name}: slowest"), run.latency.max_ns as f64 / 1e6, "ms");
            findings.measured(format!("{name}: acknowledged and lost"), run.lost as f64, "commits");
        }
        let p999 = |at: usize| runs[at].1.latency.p999_ns as f64;
        let ratio = p999(2) / p999(0);
        let bound = if profile == CLOUD { published::of(HEDGED).bound() } else { Bound::Unpublished };
        let what = format!("{profile}: p99.9 with two, hedged, over one");
        findings.compared(what, bound, ratio, "ratio");
        for (mirrored, count, alike) in [(5, "two", 2), (6, "four", 4)] {
            let what = format!("{profile}: p99.9 with {count}, hedged, mirrored over not");
            findings.measured(&what, p999(mirrored) / p999(alike), "ratio");
        }
        let bars = |of: fn(&PacedRun) -> u64| runs.iter().map(move |(_, run)| of(run) as f64);
        findings.plots.push(Plot::new(
            format!("Commit latency on {profile}"),
            Axis::names("", runs.iter().map(|(name, _)| name.replace(&format!(" {profile}"), ""))),
            Axis::log("latency", Unit::Nanoseconds),
            vec![
                Series::bars("p50", bars(|run| run.latency.p50_ns)),
                Series::bars("p99", bars(|run| run.latency.p99_ns)),
                Series::bars("p99.9", bars(|run| run.latency.p999_ns)),
            ],
        ));
    }
    Ok(findings)
}

/// One volume stands still, from here and for so long.
const STANDS_STILL: Stuck = Stuck { from: Duration::from_secs(20), lasts: Duration::from_secs(10) };
/// In the runs in which another volume is replaced meanwhile: when, and when the one that stands still is set aside.
const REPLACED: (Duration, Duration) = (Duration::from_secs(23), Duration::from_secs(2));

fn stuck_volume(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let Stuck { from, lasts } = STANDS_STILL;
    let (replaced, hang_timeout) = REPLACED;
    let mut findings = Findings::new(vec![
        format!(
            "1000 commits of {RECORD_BYTES} bytes a second by {CLIENTS} clients, at random times; after {} s the first volume \
                 answers nothing for {} s; what is due in the first 50 ms of that is counted apart",
            from.as_secs(),
            lasts.as_secs()
        ),
        format!(
            "another replaced: the volume that stands still is set aside after {} s, and at {} s the last of the others is \
                 taken out of the log and a new one put in its place",
            hang_timeout.as_secs(),
            replaced.as_secs()
        ),
    ]);
    let (mut lost, mut replacements) = (0, Vec::new());
    for (name, log) in logs(CLOUD) {
        let is_hedged = log.hiding == LogHiding::On && log.drives > 1;
        let bound = if is_hedged { published::of(STUCK).bound() } else { Bound::Unpublished };
        progress(&name);
        let healthy = paced(log, 1000.0, 40, settings.seed);
        let stuck = Paced { stuck: Some(STANDS_STILL), ..healthy };
        let exchanged = Paced { replaced: Some(replaced), hang_timeout, ..stuck };
        for (what, run) in [("", Some(stuck)), (", another replaced", is_hedged.then_some(exchanged))] {
            let Some(run) = run.map(Paced::run).transpose()? else { continue };
            lost += run.lost;
            let [before, after] = run.slowest_while_stuck_ms;
            findings.measured(format!("{name}{what}: slowest of the first 50 ms"), before, "ms");
            let slowest = format!("{name}{what}: slowest after that");
            findings.compared(slowest, bound, after, "ms");
            if let Some([begin, end]) = run.replaced_ms {
                findings.measured(format!("{name}{what}: replacing took"), end - begin, "ms");
                replacements.push(end);
            }
        }
        // The other volumes have stalls of their own.
        let run = Paced { stuck: Some(Stuck { from: Duration::MAX / 4, lasts }), ..healthy }.run()?;
        let what = format!("{name}: slowest of a run in which none stands still");
        findings.measured(&what, run.latency.max_ns as f64 / 1e6, "ms");
        lost += run.lost;
    }
    findings.states("no acknowledged commit is lost", lost == 0, format!("{lost} lost"));
    let over = (from + lasts).as_secs_f64() * 1e3;
    findings.states(
        "a volume can be replaced while another stands still",
        replacements.iter().all(|&end| end < over),
        format!("done at {:.1} s at the latest", replacements.iter().copied().fold(0.0, f64::max) / 1e3),
    );
    Ok(findings)
}

fn tpcc(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let server = server.read_as(&FOUR_CORES_WITHOUT_NETWORK);
    let mut findings = Findings::new(vec![format!(
        "TPC-C as in FlashLogging's experiments, {MANY} clients, but {} us of one of four cores for each call (assumed: a \
             processor of today) and no network; {} virtual seconds after {} of warm-up",
        CPU_PER_CALL.as_micros(),
        MEASURED.as_secs(),
        WARM_UP.as_secs()
    )]);
    for profile in [CLOUD, DRIVE] {
        let logs = logs(profile);
        let cell = |(_, log): &(String, LogSetup)| -> Result<Scenario> {
            let length = Length::Time { warm_up: WARM_UP, counted: MEASURED };
            Ok(Scenario { cpu: Cpu::PerCall(CPU_PER_CALL), length, ..server.cell(*log, MANY)? })
        };
        let runs = server.run(&logs.iter().map(cell).collect::<Result<Vec<_>>>()?)?;
        let mut rates = Vec::new();
        for ((name, _), run) in logs.iter().zip(&runs) {
            findings.measured(format!("{name}: new orders a minute"), run.new_orders_per_minute(), "NOTPM");
            findings.measured(format!("{name}: transactions, p99.9"), run.report.total.latency.p999_us / 1e3, "ms");
            rates.push(run.new_orders_per_minute());
        }
        let [one, two_waiting, two, four_waiting, four] = rates[..] else { unreachable!("a rate for each log") };
        // Two runs of one configuration differ by less than this.
        let rises = |rates: &[f64]| rates.windows(2).all(|pair| pair[1] >= 0.98 * pair[0]);
        findings.states(
            format!("{profile}: more of them are never slower"),
            rises(&[one, two, four]),
            format!("{one:.0}, {two:.0}, {four:.0} new orders a minute"),
        );
        findings.states(
            format!("{profile}: hedging never costs"),
            rises(&[two_waiting, two]) && rises(&[four_waiting, four]),
            format!("{:.3} and {:.3} times as many", two / two_waiting, four / four_waiting),
        );
        findings.plots.push(Plot::new(
            format!("New orders a minute with 32 clients, log on {profile}"),
            Axis::names("", logs.iter().map(|(name, _)| name.replace(&format!(" {profile}"), ""))),
            Axis::linear("new orders a minute", Unit::Number),
            vec![Series::bars("measured", rates)],
        ));
    }
    Ok(findings)
}
