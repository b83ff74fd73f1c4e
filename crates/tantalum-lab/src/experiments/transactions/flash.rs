//! FlashLogging on USB drives: Figures 11 and 12.

use std::sync::Arc;

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    disk::{DISK, IDEAL},
    tpcc_server::{AS_THE_DATA_SHEET_HAS, CLIENTS, DRIVES, FOUR_CORES, MANY, TpccServer},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
    scenario::{LogSetup, Outcome},
};

pub(super) const NAIVE: &str = "fl.fig11.naive_flash";
pub(super) const BEST_OVER_DISK: &str = "fl.fig12.best_over_disk";
pub(super) const BEST_OVER_IDEAL: &str = "fl.fig12.best_over_ideal";

/// More than this over the disk is no longer a marginal gain.
const MARGINAL: f64 = 1.25;

fn rates(runs: &[Arc<Outcome>]) -> Vec<f64> {
    runs.iter().map(|run| run.new_orders_per_minute()).collect()
}

fn line(name: impl Into<String>, rates: &[f64]) -> Series {
    Series::line(name, CLIENTS.iter().map(|&clients| clients as f64).zip(rates.iter().copied()).collect())
}

fn plot(title: impl Into<String>, lines: Vec<Series>) -> Plot {
    let axes = (Axis::log("clients", Unit::Number), Axis::linear("new orders a minute", Unit::Number));
    Plot::new(title, axes.0, axes.1, lines)
}

/// The original server, its log on one drive.
pub(super) fn naive(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let disk = rates(&server.on_disk(DISK, &CLIENTS)?);
    let runs = server.grid(&DRIVES.map(|(_, profile)| LogSetup::original(profile)), &CLIENTS)?;
    let mut findings = Findings::new(server.configuration()?);
    let mut lines = vec![line("disk", &disk)];
    for ((device, profile), runs) in DRIVES.iter().zip(&runs) {
        let flash = rates(runs);
        let ratios: Vec<f64> = flash.iter().zip(&disk).map(|(flash, disk)| flash / disk).collect();
        for (clients, ratio) in CLIENTS.iter().zip(&ratios) {
            let what = format!("{profile} over the disk, original server, {clients} clients");
            findings.measured(what, *ratio, "ratio");
        }
        let best = ratios.iter().copied().fold(0.0, f64::max);
        findings.states(
            format!("{device}: the unchanged server gains marginally over the disk at best"),
            best < MARGINAL,
            format!("{best:.2} times at best"),
        );
        lines.push(line(*profile, &flash));
    }
    findings.plots.push(plot("The unchanged server with its log on one USB drive", lines));
    Ok(findings)
}

/// What the paper reports as the best: two drives and an archival disk, late writes hidden on flash-c only.
fn best(device: &str, profile: &'static str) -> LogSetup {
    let two = LogSetup::paper(profile, 2).with_archive();
    if device == "flash-c" { two.with_hiding(tantalum::LogHiding::On) } else { two }
}

/// One drive, two, two with an archival disk, and the last with the log as it is by default.
fn configurations((device, profile): (&str, &'static str)) -> [(&'static str, LogSetup); 4] {
    let two = LogSetup { has_archive: false, ..best(device, profile) };
    [
        ("one drive", LogSetup::paper(profile, 1)),
        ("two drives", two),
        ("two and an archival disk", best(device, profile)),
        ("the same, Tantalum's log", LogSetup::ours(profile, 2).with_archive()),
    ]
}

pub(super) fn best_over_disk(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let (disk, ideal) = (rates(&server.on_disk(DISK, &CLIENTS)?), rates(&server.on_disk(IDEAL, &CLIENTS)?));
    let many = CLIENTS.iter().position(|&clients| clients == MANY).expect("one of the numbers of clients");
    let mut findings = Findings::new(server.configuration()?);
    let mut bars: Vec<Vec<f64>> = vec![Vec::new(); 4];
    let published = published::of(BEST_OVER_DISK).column("ratio");
    for (drive, &published) in DRIVES.into_iter().zip(&published) {
        let (device, profile) = drive;
        let configurations = configurations(drive);
        let runs = server.grid(&configurations.map(|(_, log)| log), &CLIENTS)?;
        let mut lines = vec![line("disk", &disk), line("ideal", &ideal)];
        for (at, ((name, log), runs)) in configurations.iter().zip(&runs).enumerate() {
            let rates = rates(runs);
            lines.push(line(*name, &rates));
            let ratio = rates[many] / disk[many];
            bars[at].push(ratio);
            let bound = if *log == best(device, profile) { Bound::Value(published) } else { Bound::Unpublished };
            let what = format!("{profile}, {name}, over the disk");
            findings.compared(what, bound, ratio, "ratio");
            let share = rates[many] / ideal[many];
            let what = format!("{profile}, {name}, over the ideal");
            findings.measured(what, share, "share");
        }
        for reading in [&FOUR_CORES, &AS_THE_DATA_SHEET_HAS] {
            let server = server.read_as(reading);
            let disk = server.on_disk(DISK, &[MANY])?[0].new_orders_per_minute();
            let best = server.grid(&[best(device, profile)], &[MANY])?[0][0].new_orders_per_minute();
            let what = format!("{profile}, two and an archival disk, over the disk, on {}", reading.says);
            findings.measured(what, best / disk, "ratio");
        }
        findings.plots.push(plot(format!("FlashLogging on {profile}"), lines));
        let [one, two, archived] = [0, 1, 2].map(|at: usize| bars[at][bars[at].len() - 1]);
        findings.states(
            format!("{device}: two drives are better than one, and best with an archival disk"), // Two runs of one configuration differ by less than this.
            one <= 1.01 * two && two <= 1.01 * archived,
            format!("{one:.2}, {two:.2} and {archived:.2} times the disk"),
        );
    }
    let mut series: Vec<Series> =
        configurations(DRIVES[0]).iter().zip(bars).map(|((name, _), bars)| Series::bars(*name, bars)).collect();
    series.push(Series::bars(configurations(DRIVES[0])[2].0, published).published());
    findings.plots.push(Plot::new(
        "Transactions over those with the log on a disk, 32 clients",
        Axis::names("", DRIVES.map(|(_, profile)| profile)),
        Axis::linear("times the disk's", Unit::Number),
        series,
    ));
    Ok(findings)
}

pub(super) fn best_over_ideal(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let ideal = server.on_disk(IDEAL, &[MANY])?[0].new_orders_per_minute();
    let mut findings = Findings::new(server.configuration()?);
    let mut reached: f64 = 0.0;
    for (device, profile) in DRIVES {
        let logs = [best(device, profile), LogSetup::ours(profile, 2).with_archive()];
        let runs = server.grid(&logs, &[MANY])?;
        let [paper, ours] = [0, 1].map(|log: usize| runs[log][0].new_orders_per_minute() / ideal);
        reached = reached.max(paper);
        let what = format!("{profile}, two and an archival disk, over the ideal");
        findings.compared(what, published::of(BEST_OVER_IDEAL).bound(), paper, "share");
        let what = format!("{profile}, the same, Tantalum's log");
        findings.measured(what, ours, "share");
    }
    findings.states(
        "the best configuration reaches 95 % of the ideal",
        reached >= 0.95,
        format!("{:.1}%", reached * 100.0),
    );
    Ok(findings)
}
