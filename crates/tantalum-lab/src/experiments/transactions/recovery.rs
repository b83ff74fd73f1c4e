//! How long the log is scanned after a crash: Figure 16.

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    disk::DISK,
    tpcc_server::{DRIVES, MANY, TpccServer},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Findings, Statement},
    published,
    scenario::{
        LogSetup, Outcome,
        log_alone::{Killed, Scanned},
    },
};

pub(super) const PARALLEL: &str = "fl.fig16.parallel_scan";
pub(super) const AGAINST_DISK: &str = "fl.fig16.scan_against_disk";

/// Bytes of records that a recovery scans: a third of the log. The paper's are somewhere within it.
const LOG_BYTES: u64 = 300_000_000;

const NAMES: [&str; 3] = ["one drive", "two drives", "two and an archival disk"];

fn drives(profile: &'static str) -> [LogSetup; 3] {
    [LogSetup::paper(profile, 1), LogSetup::paper(profile, 2), LogSetup::paper(profile, 2).with_archive()]
}

/// Scans of logs, each written in flushes as the server makes them on it.
fn scan(server: &TpccServer<'_>, settings: Settings, logs: &[LogSetup]) -> Result<Vec<Scanned>> {
    let runs = server.grid(logs, &[MANY])?;
    let scan = |(&log, runs): (&LogSetup, &Vec<std::sync::Arc<Outcome>>)| {
        server.progress(&format!("scan of {} {}", log.drives, log.profile));
        Killed { log, flushes: runs[0].flushes.clone(), log_bytes: LOG_BYTES, seed: settings.seed }.scan()
    };
    logs.iter().zip(&runs).map(scan).collect()
}

fn configuration(server: &TpccServer<'_>) -> Result<Vec<String>> {
    let mut lines = server.configuration()?;
    lines.push(format!(
        "the log is written in flushes of the sizes that this server makes with {MANY} clients, {} MB of records, and ends \
         without being closed; scanned is all of it, in virtual time",
        LOG_BYTES / 1_000_000
    ));
    Ok(lines)
}

fn megabytes_per_second(scanned: &Scanned) -> f64 {
    scanned.log_bytes as f64 / 1e6 / scanned.seconds
}

pub(super) fn parallel_scan(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let mut findings = Findings::new(configuration(&server)?);
    for (_, profile) in DRIVES {
        let scanned = scan(&server, settings, &drives(profile)[..2])?;
        let [one, two] = [0, 1].map(|at: usize| megabytes_per_second(&scanned[at]));
        let what = format!("{profile}, two drives over one");
        findings.compared(what, published::of(PARALLEL).bound(), two / one, "ratio");
    }
    Ok(findings)
}

pub(super) fn against_disk(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let disk = scan(&server, settings, &[LogSetup::original(DISK)])?[0];
    let mut findings = Findings::new(configuration(&server)?);
    let mut add = |what: String, scanned: &Scanned| {
        let rate = megabytes_per_second(scanned);
        findings.measured(what.clone(), rate, "MB/s");
        findings.measured(what, scanned.seconds, "s");
    };
    add("disk".into(), &disk);
    let (mut bars, mut slowest, mut gains) = ([const { Vec::new() }; 3], 0.0_f64, Vec::new());
    let mut pairs = Vec::new();
    for (_, profile) in DRIVES {
        let scanned = scan(&server, settings, &drives(profile))?;
        for ((name, scanned), bars) in NAMES.iter().zip(&scanned).zip(&mut bars) {
            add(format!("{profile}, {name}"), scanned);
            bars.push(megabytes_per_second(scanned));
            slowest = slowest.max(scanned.seconds / disk.seconds);
        }
        gains.push(scanned[1].seconds / scanned[2].seconds);
        pairs.push(disk.seconds / scanned[1].seconds);
    }
    findings.statements = vec![
        Statement::new(
            "every configuration scans in comparable or less time than the disk",
            slowest <= 1.2,
            format!("the slowest takes {slowest:.2} times as long"),
        ),
        Statement::new(
            "the archival disk helps most with flash-a",
            gains[0] > gains[1].max(gains[2]),
            format!("flash-a {:.2}, flash-b {:.2}, flash-c {:.2} times as fast with it", gains[0], gains[1], gains[2]),
        ),
        Statement::new(
            "two flash-b or two flash-c read about as fast as the disk",
            pairs[1].min(pairs[2]) >= 0.8,
            format!("{:.2} and {:.2} times as fast", pairs[1], pairs[2]),
        ),
    ];
    let disk = DRIVES.map(|_| megabytes_per_second(&disk));
    let mut series = vec![Series::bars("disk", disk)];
    series.extend(NAMES.into_iter().zip(bars).map(|(name, bars)| Series::bars(name, bars)));
    findings.plots.push(Plot::new(
        "Bandwidth of the recovery scan",
        Axis::names("", DRIVES.map(|(_, profile)| profile)),
        Axis::linear("MB of records a second", Unit::Number),
        series,
    ));
    Ok(findings)
}
