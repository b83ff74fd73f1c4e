//! What a disk costs as log device: Figures 1, 2 and 11.

use std::sync::Arc;

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::tpcc_server::{CLIENTS, MANY, READINGS, TpccServer};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    published,
    scenario::{FlushSizes, LogSetup, Outcome},
};

pub(super) const IDEAL_OVER_DISK: &str = "fl.fig1.ideal_over_disk";
pub(super) const FLUSH_SIZES: &str = "fl.fig2.flush_sizes";
pub(super) const DISK_OVER_IDEAL: &str = "fl.fig11.disk_over_ideal";

pub(super) const DISK: &str = "hdd-10k";
pub(super) const IDEAL: &str = "hdd-10k-cached";

pub(super) fn ideal_over_disk(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let (disk, ideal) = (server.on_disk(DISK, &[MANY])?, server.on_disk(IDEAL, &[MANY])?);
    let rates = [&disk, &ideal].map(|runs| runs[0].new_orders_per_minute());
    let ratio = rates[1] / rates[0];
    let ours = server.grid(&[LogSetup::ours(DISK, 1)], &[MANY])?[0][0].new_orders_per_minute();
    let mut findings = Findings {
        configuration: server.configuration()?,
        comparisons: vec![
            Comparison::new(
                "ideal over disk",
                published::of(IDEAL_OVER_DISK).bound(),
                ratio,
                "ratio",
                Basis::Predicted,
            ),
            Comparison::new("disk", Bound::Unpublished, rates[0], "NOTPM", Basis::Predicted),
            Comparison::new("ideal", Bound::Unpublished, rates[1], "NOTPM", Basis::Predicted),
            Comparison::new("disk, Tantalum's log", Bound::Unpublished, ours, "NOTPM", Basis::Predicted),
            Comparison::new(
                "ideal, share of the processor",
                Bound::Unpublished,
                ideal[0].cpu_share,
                "share",
                Basis::Predicted,
            ),
            Comparison::new(
                "ideal, calls of a transaction",
                Bound::Unpublished,
                ideal[0].per_transaction(ideal[0].calls),
                "calls",
                Basis::Predicted,
            ),
            Comparison::new(
                "ideal, aborts of a transaction",
                Bound::Unpublished,
                ideal[0].per_transaction(ideal[0].report.total.aborted),
                "aborts",
                Basis::Predicted,
            ),
        ],
        plots: vec![Plot::new(
            "New orders a minute with 32 clients",
            Axis::names("log device", ["write cache off", "write cache on"]),
            Axis::linear("new orders a minute", Unit::Number),
            vec![Series::bars("measured", rates)],
        )],
        ..Findings::default()
    };
    for reading in &READINGS {
        let server = server.read_as(reading);
        let [disk, ideal] = [DISK, IDEAL].map(|profile| server.on_disk(profile, &[1, MANY]));
        let [disk, ideal] = [disk?, ideal?].map(|runs| [0, 1].map(|at: usize| runs[at].new_orders_per_minute()));
        findings.measured(format!("{}: ideal over disk", reading.says), ideal[1] / disk[1], "ratio");
        let what = format!("{}: ideal with {MANY} clients over one", reading.says);
        findings.measured(what, ideal[1] / ideal[0], "ratio");
    }
    Ok(findings)
}

pub(super) fn flush_sizes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let runs = server.grid(&[LogSetup::original(DISK)], &[MANY])?;
    let sizes = &runs[0][0].flushes;
    let table = published::of(FLUSH_SIZES).table();
    let mut comparisons: Vec<Comparison> = table
        .iter()
        .map(|(_, row)| {
            let what = format!("share of flushes below {} KB", row[0]);
            Comparison::new(what, Bound::Value(row[1]), share_below(sizes, row[0] * 1e3), "share", Basis::Predicted)
        })
        .collect();
    let (count, bytes) = sizes.iter().fold((0, 0), |(count, bytes), (size, n)| (count + n, bytes + size * n));
    let mean_kb = bytes as f64 / 1e3 / count.max(1) as f64;
    comparisons.push(Comparison::new("mean flush", Bound::Unpublished, mean_kb, "KB", Basis::Predicted));
    let mut below = 0;
    let measured = sizes.iter().map(|(&size, n)| {
        below += n;
        (size as f64, below as f64 / count.max(1) as f64)
    });
    let plot = Plot::new(
        "Log writes up to a size",
        Axis::linear("bytes", Unit::Bytes),
        Axis::linear("share of all log writes", Unit::Number),
        vec![
            Series::line("log writes", measured.collect()),
            Series::dots("log writes", table.iter().map(|(_, row)| (row[0] * 1e3, row[1])).collect()).published(),
        ],
    );
    Ok(Findings { configuration: server.configuration()?, comparisons, plots: vec![plot], ..Findings::default() })
}

fn share_below(sizes: &FlushSizes, bytes: f64) -> f64 {
    let all: u64 = sizes.values().sum();
    let below: u64 = sizes.iter().filter(|(size, _)| (**size as f64) < bytes).map(|(_, n)| n).sum();
    below as f64 / all.max(1) as f64
}

pub(super) fn disk_over_ideal(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let rates = |runs: &[Arc<Outcome>]| -> Vec<f64> { runs.iter().map(|run| run.new_orders_per_minute()).collect() };
    let (disk, ideal) = (rates(&server.on_disk(DISK, &CLIENTS)?), rates(&server.on_disk(IDEAL, &CLIENTS)?));
    let ours = rates(&server.grid(&[LogSetup::ours(DISK, 1)], &CLIENTS)?[0]);
    let comparisons = CLIENTS.iter().zip(disk.iter().zip(&ideal)).map(|(clients, (disk, ideal))| {
        let what = format!("disk over ideal, {clients} clients");
        Comparison::new(what, published::of(DISK_OVER_IDEAL).bound(), disk / ideal, "share", Basis::Fitted)
    });
    let peak =
        |rates: &[f64]| CLIENTS.iter().zip(rates).max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(&clients, _)| clients);
    let (disk_peak, ideal_peak) = (peak(&disk), peak(&ideal));
    let points = |rates: &[f64]| CLIENTS.iter().map(|&clients| clients as f64).zip(rates.iter().copied()).collect();
    Ok(Findings {
        configuration: server.configuration()?,
        comparisons: comparisons.collect(),
        statements: vec![Statement::new(
            "with more clients the rates first rise, then fall; most at about 32 clients",
            [disk_peak, ideal_peak].iter().all(|peak| (16..=64).contains(peak)),
            format!("most at {disk_peak} (disk) and {ideal_peak} clients (ideal)"),
        )],
        plots: vec![Plot::new(
            "What the log disk costs",
            Axis::log("clients", Unit::Number),
            Axis::linear("new orders a minute", Unit::Number),
            vec![
                Series::line("disk", points(&disk)),
                Series::line("ideal", points(&ideal)),
                Series::line("disk, Tantalum's log", points(&ours)),
            ],
        )],
    })
}
