//! Table 3, and what section 4.3.1 says of reads that wait for writes.

use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::driver::Latency;

use super::{
    mysql,
    scaled_server::{ScaledServer, Sizes, cleaned_ahead, kilobytes, notation},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Comparison, Findings},
    published,
    scenario::innodb::{self, Server},
};

pub(super) const LATENCIES: &str = "ds.table3.linkbench_latency";

pub(super) const BLOCKED: &str = "ds.table3.blocked_reads";

/// The columns of a setting, in milliseconds, as LinkBench reports them.
fn columns(latency: &Latency) -> [(&'static str, f64); 6] {
    let Latency { mean_us, p25_us, p50_us, p75_us, p99_us, max_us, .. } = *latency;
    let percentiles = [("p25", p25_us), ("p50", p50_us), ("p75", p75_us), ("p99", p99_us)];
    let [p25, p50, p75, p99] = percentiles.map(|(name, us)| (name, bucket_end(us / 1e3)));
    [("mean", mean_us / 1e3), p25, p50, p75, p99, ("max", max_us / 1e3)]
}

/// The end of the bucket of LinkBench's statistics that holds a latency in milliseconds (`LatencyStats.java`): its percentiles are
/// buckets, and the paper prints one end of each. It is the upper one: if it were the lower, nearly half of the latencies of `get
/// node` and of `get link list` with OFF/OFF would have to be within a few hundredths of 2 ms to have the published means.
fn bucket_end(ms: f64) -> f64 {
    let step = match ms {
        ..1.0 => 0.1,
        ..100.0 => 1.0,
        ..1000.0 => 100.0,
        _ => 1000.0,
    };
    ((ms / step).floor() + 1.0) * step
}

/// Of the columns.
const P99: usize = 4;

/// By how much the 99th percentile is to fall in each operation: "roughly by two orders of magnitude".
const TWO_ORDERS: f64 = 50.0;

pub(super) fn latencies(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let names = ["ON/ON, 16KB", "OFF/OFF, 4KB"];
    // As many as in the paper: the longest of all is the longer, the more there are.
    let whole_run = |server: Server| Server { counted: mysql::RUN, ..server };
    let servers = [mysql::server(settings, true, true, 16 << 10)?, mysql::server(settings, false, false, 4 << 10)?];
    let servers = servers.map(whole_run);
    let mut findings = Findings::new(mysql::configuration());
    let runs = innodb::run(&servers, progress)?;
    let table = published::of(LATENCIES).table();
    let kinds = || runs[0].report.kinds.iter().zip(&runs[1].report.kinds).zip(&table);
    for ((slow, fast), (row, published)) in kinds() {
        assert_eq!((row[0], row[0]), (slow.name, fast.name), "the workload's operations are in the order of the table");
        let settings = [slow, fast].into_iter().zip(names).zip(published.chunks(published.len() / 2));
        for ((kind, name), published) in settings {
            for ((column, ms), &published) in columns(&kind.latency).into_iter().zip(published) {
                let what = format!("{}, {name}: {column}", row[0]);
                let basis = mysql::basis(row[0], name, column);
                findings.comparisons.push(Comparison::new(what, Bound::Value(published), ms, "ms", basis));
            }
        }
    }
    let p99 = |latency: &Latency| columns(latency)[P99].1;
    let falls: Vec<f64> = kinds().map(|((slow, fast), _)| p99(&slow.latency) / p99(&fast.latency)).collect();
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

/// The columns of operations that show what a cause does.
const SHOWN: [(&str, &[&str]); 3] =
    [("get node", &["p75", "p99"]), ("get link list", &["mean"]), ("add node", &["mean", "p99"])];

pub(super) fn blocked_reads(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(mysql::configuration());
    let cells = [(true, true, 16 << 10), (true, false, 4 << 10), (false, false, 4 << 10)];
    let servers = cells.map(|(barriers, double_writes, page)| mysql::server(settings, barriers, double_writes, page));
    let servers = servers.into_iter().collect::<Result<Vec<_>>>()?;
    for (at, (server, run)) in servers.iter().zip(innodb::run(&servers, progress)?).enumerate() {
        // "Every other read request" is of the server as it is by default.
        let published = if at == 0 { published::of(BLOCKED).bound() } else { Bound::Unpublished };
        let what = format!("{}, {}, InnoDB", mysql::notation(server), kilobytes(server.page_bytes));
        findings.compared(what, published, run.blocked as f64 / run.misses as f64, "share");
    }
    let [slow, ..] = &servers[..] else { unreachable!("there are three") };
    let more_places = Server { single_places: Server::single_places(4 << 10), ..slow.clone() };
    let flushed_together = Server { flushes_files_together: true, ..slow.clone() };
    let both = Server { flushes_files_together: true, ..more_places.clone() };
    let unlatched = Server { latches_trees: false, ..slow.clone() };
    let just_loaded = Server { history: 0, ..slow.clone() };
    let causes = [
        ("ON/ON, 16KB", slow.clone()),
        ("with as many places for single pages as 4KB pages have", more_places),
        ("where a batch's files are flushed as one", flushed_together),
        ("with both", both),
        ("without latches of trees", unlatched),
        ("just loaded", just_loaded),
    ];
    let without = innodb::run(&causes.each_ref().map(|(_, server)| server.clone()), progress)?;
    for ((what, _), run) in causes.iter().zip(&without) {
        findings.measured(format!("{what}: all"), run.per_second(), "operations/s");
        for (kind, shown) in SHOWN {
            let latency = run.report.kinds.iter().find(|of| of.name == kind).expect("LinkBench has it").latency;
            for (column, ms) in columns(&latency).into_iter().filter(|(column, _)| shown.contains(column)) {
                findings.measured(format!("{what}: {kind}, {column}"), ms, "ms");
            }
        }
    }
    let tantalum = ScaledServer::new(Sizes::linkbench(settings), settings, progress);
    let setups = cells.map(|(barriers, double_writes, page)| tantalum.paper(barriers, double_writes, page));
    let setups = setups.into_iter().collect::<Result<Vec<_>>>()?;
    let setups = [setups.clone(), setups.into_iter().map(cleaned_ahead).collect()].concat();
    let runs = tantalum.run(&setups)?;
    let shares: Vec<f64> =
        runs.iter().map(|run| run.done.pool.blocked_reads as f64 / run.done.pool.fault_reads.max(1) as f64).collect();
    for (at, (setup, share)) in setups.iter().zip(&shares).enumerate() {
        let how = if at < cells.len() { "on demand" } else { "ahead" };
        let what = format!("{}, {}, Tantalum cleaning {how}", notation(setup), kilobytes(setup.page_bytes));
        findings.measured(what, *share, "share");
    }
    let last = shares[shares.len() - 1];
    findings.states(
        "not in the paper: where Tantalum cleans ahead, less than 1 % of the reads wait where the drive keeps up (OFF/OFF, 4KB)",
        last < 0.01,
        format!("{:.2} %", last * 100.0),
    );
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::bucket_end;

    #[test]
    fn latencies_end_in_the_buckets_of_linkbench() {
        let ends = [0.55, 0.999, 1.0, 7.3, 99.5, 100.0, 411.0, 1180.0, 2500.0].map(bucket_end);
        let expected = [0.6, 1.0, 2.0, 8.0, 100.0, 200.0, 500.0, 2000.0, 3000.0];
        assert!(ends.iter().zip(expected).all(|(end, expected)| (end - expected).abs() < 1e-9), "{ends:?}");
    }
}
