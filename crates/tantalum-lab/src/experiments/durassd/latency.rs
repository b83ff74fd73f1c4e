//! Table 3, and what section 4.3.1 says of reads that wait for writes.

use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::driver::Latency;

use super::bed::{Bed, Sizes, cleaned_ahead, kilobytes, notation};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Basis, Bound, Comparison, Findings, Statement},
};

pub(super) const LATENCIES: &str = "ds.table3.linkbench_latency";
pub(super) const COLUMNS: &[&str] = &[
    "operation",
    "onon_mean",
    "onon_p25",
    "onon_p50",
    "onon_p75",
    "onon_p99",
    "onon_max",
    "offoff_mean",
    "offoff_p25",
    "offoff_p50",
    "offoff_p75",
    "offoff_p99",
    "offoff_max",
];
pub(super) const ROWS: &[(&[&str], &[f64])] = &[
    (&["get node"], &[67.0, 2.0, 4.0, 8.0, 900.0, 4238.1, 1.5, 0.9, 2.0, 2.0, 7.0, 533.1]),
    (&["count link"], &[45.5, 0.6, 3.0, 4.0, 800.0, 3274.6, 1.2, 0.6, 0.9, 2.0, 5.0, 42.8]),
    (&["get link list"], &[65.3, 0.6, 1.0, 5.0, 1000.0, 14892.6, 1.4, 0.6, 2.0, 2.0, 7.0, 515.4]),
    (&["multiget link"], &[67.6, 0.6, 2.0, 5.0, 1000.0, 3047.2, 1.3, 0.6, 0.9, 2.0, 7.0, 44.1]),
    (&["add node"], &[51.6, 6.0, 8.0, 9.0, 1000.0, 4891.1, 8.9, 8.0, 9.0, 10.0, 16.0, 523.0]),
    (&["delete node"], &[82.2, 8.0, 10.0, 16.0, 1000.0, 4267.4, 9.6, 9.0, 10.0, 11.0, 17.0, 539.1]),
    (&["update node"], &[86.8, 8.0, 10.0, 17.0, 2000.0, 5779.1, 9.8, 9.0, 10.0, 11.0, 18.0, 540.2]),
    (&["add link"], &[214.9, 11.0, 22.0, 300.0, 2000.0, 7051.0, 11.2, 9.0, 11.0, 13.0, 23.0, 540.3]),
    (&["delete link"], &[115.4, 3.0, 7.0, 93.0, 2000.0, 4841.2, 5.4, 0.9, 3.0, 10.0, 20.0, 522.1]),
    (&["update link"], &[217.6, 9.0, 22.0, 300.0, 2000.0, 9026.1, 11.1, 10.0, 11.0, 11.0, 23.0, 543.1]),
];

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
    let bed = Bed::new(Sizes::linkbench(settings), settings, progress);
    let mut findings = Findings { configuration: bed.configuration()?, ..Findings::default() };
    let setups = [bed.paper(true, true, 16 << 10), bed.paper(false, false, 4 << 10)];
    let names = ["ON/ON, 16KB", "OFF/OFF, 4KB"];
    let runs = bed.run(&setups)?;
    let kinds = || runs[0].report.kinds.iter().zip(&runs[1].report.kinds).zip(ROWS);
    for ((slow, fast), (row, published)) in kinds() {
        assert_eq!((row[0], row[0]), (slow.name, fast.name), "the workload's operations are in the order of the table");
        let settings = [slow, fast].into_iter().zip(names).zip(published.chunks(published.len() / 2));
        for ((kind, name), published) in settings {
            for ((column, ms), &published) in columns(&kind.latency).into_iter().zip(published) {
                let what = format!("{}, {name}: {column}", row[0]);
                findings.comparisons.push(Comparison::new(what, Bound::Value(published), ms, "ms", Basis::Predicted));
            }
        }
    }
    let falls: Vec<f64> = kinds().map(|((slow, fast), _)| slow.latency.p99_us / fast.latency.p99_us).collect();
    for ((row, published), fall) in ROWS.iter().zip(&falls) {
        let (what, published) = (format!("{}: p99, first over second", row[0]), published[P99] / published[P99 + 6]);
        findings.comparisons.push(Comparison::new(what, Bound::Value(published), *fall, "ratio", Basis::Predicted));
    }
    let (least, most) =
        falls.iter().fold((f64::INFINITY, 0.0_f64), |(least, most), &fall| (least.min(fall), most.max(fall)));
    findings.statements.push(Statement::new(
        "the 99th percentile falls roughly by two orders of magnitude across the board (here: at least 50 times)",
        least >= TWO_ORDERS,
        format!("{least:.0} to {most:.0} times"),
    ));
    let better = kinds().all(|((slow, fast), _)| {
        let pairs = columns(&slow.latency).into_iter().zip(columns(&fast.latency));
        [0, P99, P99 + 1].iter().all(|&at| pairs.clone().nth(at).is_some_and(|(slow, fast)| fast.1 < slow.1))
    });
    let found = if better { "all are" } else { "not all are" };
    findings.statements.push(Statement::new(
        "mean, 99th percentile and maximum of every operation are lower",
        better,
        found,
    ));
    let rows = || ROWS.iter().map(|row| row.0[0]);
    let bars = |at: usize, name| {
        let measured = runs[at].report.kinds.iter().map(|kind| kind.latency.p99_us * 1e3);
        let published = ROWS.iter().map(move |row| row.1[P99 + 6 * at] * 1e6);
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
    let bed = Bed::new(Sizes::linkbench(settings), settings, progress);
    let mut findings = Findings { configuration: bed.configuration()?, ..Findings::default() };
    let paper = [(true, true, 16 << 10), (true, false, 4 << 10), (false, false, 4 << 10)]
        .map(|(barriers, double_writes, page)| bed.paper(barriers, double_writes, page));
    let setups = [paper, paper.map(cleaned_ahead)].concat();
    let runs = bed.run(&setups)?;
    let shares: Vec<f64> =
        runs.iter().map(|run| run.pool.blocked_reads as f64 / run.pool.fault_reads.max(1) as f64).collect();
    for (at, (setup, share)) in setups.iter().zip(&shares).enumerate() {
        // "Every other read request" is of the server as it is by default.
        let published = if at == 0 { Bound::Value(0.5) } else { Bound::Unpublished };
        let how = if at < paper.len() { "the server cleans on demand" } else { "cleaned ahead" };
        let what = format!("{}, {}, {how}", notation(setup), kilobytes(setup.page_bytes));
        findings.comparisons.push(Comparison::new(what, published, *share, "share", Basis::Predicted));
    }
    let last = shares[shares.len() - 1];
    findings.statements.push(Statement::new(
        "not in the paper: cleaned ahead, less than 1 % of the reads wait where the drive keeps up (OFF/OFF, 4KB)",
        last < 0.01,
        format!("{:.2} %", last * 100.0),
    ));
    Ok(findings)
}
