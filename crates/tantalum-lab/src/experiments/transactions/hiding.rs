//! What hiding late writes gains: Figures 14 and 15.

use std::time::Duration;

use tantalum::{HidingStats, LogHiding};
use tantalum_report::{
    plot::{Axis, Plot, Series, Unit},
    units,
};

use super::tpcc_server::{CLIENTS, DRIVES, TpccServer};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
    scenario::{LogSetup, log_alone::Requesters},
};

pub(super) const BANDWIDTH: &str = "fl.fig14.hiding_bandwidth";
pub(super) const REISSUES: &str = "fl.fig14.two_streams_over_naive_reissues";
pub(super) const TPCC: &str = "fl.fig15.hiding_tpcc";

const SIZES: [usize; 7] = [512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10];
const REQUESTERS: usize = 4;
const TIME: Duration = Duration::from_secs(60);
/// What waking a requester might take: no measurement of it on the paper's system is known.
const WAKING_MICROS: [u64; 4] = [10, 50, 200, 1000];
const WAKING_BYTES: usize = 4 << 10;

/// The logs that are compared: without hiding, with naive hiding, with hiding areas.
fn logs(profile: &'static str) -> [LogSetup; 3] {
    let without = LogSetup::paper(profile, 2);
    let with = without.with_hiding(LogHiding::On);
    [without, with.without_hiding_areas(), with]
}

fn requesters(settings: Settings, log: LogSetup, request_bytes: usize) -> Requesters {
    Requesters { log, count: REQUESTERS, request_bytes, waking: Duration::ZERO, time: TIME, seed: settings.seed }
}

fn configuration() -> Vec<String> {
    vec![format!(
        "{REQUESTERS} tasks that append a record and wait until it is durable, again and again, on two drives; {} virtual \
         seconds; no database",
        TIME.as_secs()
    )]
}

fn size(bytes: usize) -> String {
    units::bytes(bytes as u64)
}

pub(super) fn bandwidth(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration());
    let (mut lines, mut gains) = (Vec::new(), Vec::new());
    for ((_, profile), published) in DRIVES.into_iter().zip(published::of(BANDWIDTH).column("up_to")) {
        let mut points = Vec::new();
        for bytes in SIZES {
            progress(&format!("{profile}, {}", size(bytes)));
            let [without, naive, with] =
                logs(profile).map(|log| requesters(settings, log, bytes).run().map(|reached| reached.bytes_per_second));
            let (without, naive, with) = (without?, naive?, with?);
            points.push((bytes as f64, with / without));
            for (name, rate) in [("no hiding", without), ("naive hiding", naive), ("hiding", with)] {
                let what = format!("{profile}, {}, {name}", size(bytes));
                findings.measured(what, rate / 1e6, "MB/s");
            }
        }
        let most = points.iter().map(|&(_, gain)| gain).fold(0.0, f64::max);
        let what = format!("{profile}, hiding over none at best");
        findings.compared(what, Bound::Value(published), most, "ratio");
        gains.push(most);
        lines.push(Series::line(profile, points));
    }
    findings.states(
        "hiding gains most on flash-c",
        gains[2] > gains[0].max(gains[1]),
        format!("flash-a {:.2}, flash-b {:.2}, flash-c {:.2}", gains[0], gains[1], gains[2]),
    );
    findings.plots.push(Plot::new(
        "Bandwidth with hiding over that without, two drives, four requesters",
        Axis::log("request", Unit::Bytes),
        Axis::linear("ratio", Unit::Number),
        lines,
    ));
    Ok(findings)
}

/// Of the outliers, those that another drive was given.
fn share(hiding: &HidingStats) -> f64 {
    hiding.reissued as f64 / hiding.outliers.max(1) as f64
}

pub(super) fn reissues(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let profile = DRIVES[2].1;
    let mut findings = Findings::new(configuration());
    let (mut most, mut bars) = (0.0_f64, [Vec::new(), Vec::new()]);
    for bytes in SIZES {
        progress(&size(bytes));
        let [_, naive, two_streams] = logs(profile);
        let [two_streams, naive] = [two_streams, naive].map(|log| requesters(settings, log, bytes).run());
        let (two_streams, naive) = (two_streams?.hiding, naive?.hiding);
        let shares = [share(&two_streams), share(&naive)];
        for ((name, bars), share) in ["hiding area", "naive"].into_iter().zip(&mut bars).zip(shares) {
            let what = format!("{profile}, {}, {name}: re-issued of all outliers", size(bytes));
            findings.measured(what, share, "share");
            bars.push(share);
        }
        let ratio = two_streams.reissued as f64 / naive.reissued as f64;
        most = most.max(ratio);
        let what = format!("{profile}, {}, re-issued with a hiding area over naive", size(bytes));
        findings.compared(what, published::of(REISSUES).bound(), ratio, "ratio");
    }
    for micros in WAKING_MICROS {
        progress(&format!("{micros} us to wake a requester"));
        let [_, naive, two_streams] = logs(profile);
        for (name, log) in [("hiding area", two_streams), ("naive", naive)] {
            let alone = requesters(settings, log, WAKING_BYTES);
            let hiding = Requesters { waking: Duration::from_micros(micros), ..alone }.run()?.hiding;
            let what = format!(
                "{profile}, {}, {micros} us to wake a requester, {name}: re-issued of all outliers",
                size(WAKING_BYTES)
            );
            findings.measured(what, share(&hiding), "share");
        }
    }
    let (two_streams, naive) = (bars[0].iter().sum::<f64>(), bars[1].iter().sum::<f64>());
    findings.states(
        "naive hiding is hardly able to re-issue outliers",
        naive < 0.2 * two_streams,
        format!("up to {most:.1} times as many with a hiding area"),
    );
    let [two_streams, naive] = bars;
    findings.plots.push(Plot::new(
        "Outliers that another drive was given",
        Axis::names("request", SIZES.map(size)),
        Axis::linear("share of all outliers", Unit::Number),
        vec![Series::bars("hiding area", two_streams), Series::bars("naive", naive)],
    ));
    Ok(findings)
}

pub(super) fn tpcc(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let server = TpccServer::new(settings, progress);
    let profile = DRIVES[2].1;
    let without = LogSetup::paper(profile, 2);
    let ours = LogSetup::ours(profile, 2);
    let logs = [without, without.with_hiding(LogHiding::On), ours.with_hiding(LogHiding::Off), ours];
    let runs = server.grid(&logs, &CLIENTS)?;
    let mut findings = Findings::new(server.configuration()?);
    let mut lines = Vec::new();
    for (name, bound, pair) in [("", published::of(TPCC).bound(), 0), (", Tantalum's log", Bound::Unpublished, 2)] {
        let mut points = Vec::new();
        for (at, &clients) in CLIENTS.iter().enumerate() {
            let gain = runs[pair + 1][at].new_orders_per_minute() / runs[pair][at].new_orders_per_minute();
            points.push((clients as f64, gain));
            let what = format!("{profile}, two drives, {clients} clients{name}");
            findings.compared(&what, bound, gain, "ratio");
            let hiding = &runs[pair + 1][at].after.log.hiding;
            let what = format!("{what}: re-issued of all outliers");
            findings.measured(what, share(hiding), "share");
        }
        let most = points.iter().map(|&(_, gain)| gain).fold(0.0, f64::max);
        if pair == 0 {
            let says = "hiding gains up to about two thirds";
            findings.states(says, most >= 0.8 * published::of(TPCC).number(), format!("{most:.2} times at best"));
        }
        lines.push(Series::line(format!("hiding over none{name}"), points));
    }
    findings.plots.push(Plot::new(
        "What hiding gains for transactions, two usb-c",
        Axis::log("clients", Unit::Number),
        Axis::linear("ratio", Unit::Number),
        lines,
    ));
    Ok(findings)
}
