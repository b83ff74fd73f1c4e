//! Table 3, and what section 4.3.1 says of reads that wait for writes.

use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::driver::Latency;

use super::scaled_server::{ScaledServer, Sizes, cleaned_ahead, kilobytes, notation};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
};

pub(super) const LATENCIES: &str = "ds.table3.linkbench_latency";

pub(super) const BLOCKED: &str = "ds.table3.blocked_reads";

/// The columns of a setting, in milliseconds.
fn columns(latency: &Latency) -> [(&'static str, f64); 6] {
    let Latency { mean_us, p25_us, p50_us, p75_us, p99_us, max_us, .. } = *latency;
    [("mean", mean_us), ("p25", p25_us), ("p50", p50_us), ("p75", p75_us), ("p99", p99_us), ("max", max_us)]
        .map(|(name, us)| (name, us / 1e3))
}

/// Of the columns.
const P99: usize = 4;

/// By how much the 99th percentile is to fall in each operation: "roughly by two orders of magnitude".
const TWO_ORDERS: f64 = 50.0;

pub(super) fn latencies(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = ScaledServer::new(Sizes::linkbench(settings), settings, progress);
    let mut findings = Findings::new(server.configuration()?);
    let setups = [server.paper(true, true, 16 << 10)?, server.paper(false, false, 4 << 10)?];
    let names = ["ON/ON, 16KB", "OFF/OFF, 4KB"];
    let runs = server.run(&setups)?;
    let table = published::of(LATENCIES).table();
    let kinds = || runs[0].report.kinds.iter().zip(&runs[1].report.kinds).zip(&table);
    for ((slow, fast), (row, published)) in kinds() {
        assert_eq!((row[0], row[0]), (slow.name, fast.name), "the workload's operations are in the order of the table");
        let settings = [slow, fast].into_iter().zip(names).zip(published.chunks(published.len() / 2));
        for ((kind, name), published) in settings {
            for ((column, ms), &published) in columns(&kind.latency).into_iter().zip(published) {
                let what = format!("{}, {name}: {column}", row[0]);
                findings.compared(what, Bound::Value(published), ms, "ms");
            }
        }
    }
    let falls: Vec<f64> = kinds().map(|((slow, fast), _)| slow.latency.p99_us / fast.latency.p99_us).collect();
    for ((row, published), fall) in table.iter().zip(&falls) {
        let (what, published) = (format!("{}: p99, first over second", row[0]), published[P99] / published[P99 + 6]);
        findings.compared(what, Bound::Value(published), *fall, "ratio");
    }
    let (least, most) =
        falls.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &fall| (least.min(fall), most.max(fall)));
    findings.states(
        "the 99th percentile falls roughly by two orders of magnitude across the board (here: at least 50 times)",
        least >= TWO_ORDERS,
        format!("{least:.0} to {most:.0} times"),
    );
    let better = kinds().all(|((slow, fast), _)| {
        let pairs = columns(&slow.latency).into_iter().zip(columns(&fast.latency));
        [0, P99, P99 + 1].iter().all(|&at| pairs.clone().nth(at).is_some_and(|(slow, fast)| fast.1 < slow.1))
    });
    let found = if better { "all are" } else { "not all are" };
    findings.states("mean, 99th percentile and maximum of every operation are lower", better, found);
    let rows = || table.iter().map(|row| row.0[0]);
    let bars = |at: usize, name| {
        let measured = runs[at].report.kinds.iter().map(|kind| kind.latency.p99_us * 1e3);
        let published = table.iter().map(move |row| row.1[P99 + 6 * at] * 1e6);
        [Series::bars(name, measured), Series::bars(name, published).published()]
    };
    findings.plots.push(Plot::new(
        "99th percentile of LinkBench's operations",
        Axis::names("", rows()),
        Axis::log("latency", Unit::Nanoseconds),
        [bars(0, names[0]), bars(1, names[1])].concat(),
    ));
    Ok(findings)
}

pub(super) fn blocked_reads(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = ScaledServer::new(Sizes::linkbench(settings), settings, progress);
    let mut findings = Findings::new(server.configuration()?);
    let paper = [(true, true, 16 << 10), (true, false, 4 << 10), (false, false, 4 << 10)]
        .map(|(barriers, double_writes, page)| server.paper(barriers, double_writes, page));
    let paper = paper.into_iter().collect::<Result<Vec<_>>>()?;
    let ahead = paper.iter().cloned().map(cleaned_ahead).collect();
    let setups: Vec<_> = [paper, ahead].concat();
    let runs = server.run(&setups)?;
    let shares: Vec<f64> =
        runs.iter().map(|run| run.done.pool.blocked_reads as f64 / run.done.pool.fault_reads.max(1) as f64).collect();
    for (at, (setup, share)) in setups.iter().zip(&shares).enumerate() {
        // "Every other read request" is of the server as it is by default.
        let published = if at == 0 { published::of(BLOCKED).bound() } else { Bound::Unpublished };
        let how = if at < setups.len() / 2 { "the server cleans on demand" } else { "cleaned ahead" };
        let what = format!("{}, {}, {how}", notation(setup), kilobytes(setup.page_bytes));
        findings.compared(what, published, *share, "share");
    }
    let last = shares[shares.len() - 1];
    findings.states(
        "not in the paper: cleaned ahead, less than 1 % of the reads wait where the drive keeps up (OFF/OFF, 4KB)",
        last < 0.01,
        format!("{:.2} %", last * 100.0),
    );
    Ok(findings)
}
