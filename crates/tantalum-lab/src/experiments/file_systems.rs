//! File systems on SSD (NAS 2010), section III: the plain speed of three SSDs, write-back caching on.

use super::device_under_test::DeviceUnderTest;
use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    micro::{Job, Measured, Pattern},
    published,
};
use tantalum_report::plot::{Axis, Plot, Series, Unit};

/// What runs of this paper.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: SEQUENTIAL, profiles: &["mtron"], run: mtron_sequential },
    Experiment { id: GAP, profiles: &["intel-x25e"], run: intel_gap },
    Experiment { id: RESPONSE, profiles: &["mtron", "intel-x25e", "ocz-vertex-ex"], run: response_times },
];

const SEQUENTIAL: &str = "fs.mtron.sequential";
const GAP: &str = "fs.intel.gap_write";
const RESPONSE: &str = "fs.fig5.response_times";

/// All of the device, written once before, and then a while by the same load. Page-mapped drives are small ones, so that
/// a while is enough for collection to be as busy as it will ever be.
fn tested_device(profile: &'static str, settings: Settings, warm_up: u64) -> DeviceUnderTest {
    let capacity_bytes = if profile == "mtron" { None } else { Some(512 << 20) };
    DeviceUnderTest { warm_up, capacity_bytes, ..DeviceUnderTest::new(profile, settings.seed) }
}

fn configuration(what: &str) -> Vec<String> {
    vec![format!("{what}; all of the device, written once before and warmed up by the same load")]
}

fn mtron_sequential(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings =
        Findings::new(vec!["sequential requests of 1 MiB, one at a time, in 2 GiB that were written before"]);
    let tested = DeviceUnderTest { used_bytes: 2 << 30, ..tested_device("mtron", settings, 0) };
    let mut rate = |what: &str, reads_percent| -> Result<f64> {
        progress(what);
        let job = Job { reads_percent, ..Job::writes(1 << 20, 2000, 0..0) };
        let rate = tested.measure(job)?.summary().bytes_per_second / 1e6;
        let basis = tested.basis(SEQUENTIAL)?;
        findings.comparisons.push(Comparison::new(
            format!("mtron, {what}"),
            published::of(SEQUENTIAL).bound(),
            rate,
            "MB/s",
            basis,
        ));
        Ok(rate)
    };
    let ratio = rate("read", 100)? / rate("write", 0)?;
    let says = "sequential reads and writes are close to each other";
    findings.states(says, (0.8..1.25).contains(&ratio), format!("reads {ratio:.2} times writes"));
    Ok(findings)
}

fn intel_gap(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let tested = tested_device("intel-x25e", settings, 40_000);
    let gap = |request_bytes, operations| -> Result<f64> {
        let rate = |pattern| -> Result<f64> {
            let job = Job { pattern, ..Job::writes(request_bytes, operations, 0..0) };
            Ok(tested.measure(job)?.summary().bytes_per_second)
        };
        Ok(rate(Pattern::Sequential)? / rate(Pattern::Random)?)
    };
    progress("32 KiB");
    let basis = tested.basis(GAP)?;
    let published =
        Comparison::new("intel-x25e, 32 KiB", published::of(GAP).bound(), gap(32 << 10, 40_000)?, "ratio", basis);
    progress("256 KiB");
    let wide = gap(256 << 10, 8000)?;
    let statement = Statement::new(
        "the gap is widest at 32 KiB (against 256 KiB)",
        published.measured > wide,
        format!("{:.2} against {wide:.2}", published.measured),
    );
    let wide = Comparison::new("intel-x25e, 256 KiB", Bound::Unpublished, wide, "ratio", Basis::Predicted);
    let configuration = configuration("sequential over random cached writes, one at a time");
    let comparisons = vec![published, wide];
    Ok(Findings { configuration, comparisons, statements: vec![statement], ..Findings::default() })
}

fn response_times(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("random requests of 4 KiB, one at a time"));
    let mut curves = Vec::new();
    let mut measure = |profile: &'static str, reads_percent| -> Result<Measured> {
        let what = format!("{profile}, {}", if reads_percent > 0 { "reads" } else { "writes" });
        progress(&what);
        let tested = tested_device(profile, settings, if profile == "mtron" { 20_000 } else { 200_000 });
        let job = Job { pattern: Pattern::Random, reads_percent, ..Job::writes(4096, 20_000, 0..0) };
        let measured = tested.measure(job)?;
        let basis = tested.basis(RESPONSE)?;
        let mut row = |name: &str, share: f64| {
            let what = format!("{what}: {name}");
            findings.comparisons.push(Comparison::new(what, Bound::Unpublished, share * 100.0, "%", basis));
        };
        let percents = (0u32..).map(f64::from);
        let points = measured.percentiles_ns().into_iter().map(|nanoseconds| nanoseconds as f64).zip(percents);
        curves.push(Series::line(&what, points.collect()));
        row("under 100 us", share(&measured, 0, 100));
        row("10 to 30 ms", share(&measured, 10_000, 30_000));
        Ok(measured)
    };
    let [mtron_reads, mtron_writes] = [measure("mtron", 100)?, measure("mtron", 0)?];
    let [intel_reads, intel_writes] = [measure("intel-x25e", 100)?, measure("intel-x25e", 0)?];
    let [ocz_reads, ocz_writes] = [measure("ocz-vertex-ex", 100)?, measure("ocz-vertex-ex", 0)?];
    findings.plots.push(Plot::new(
        "Requests that took no longer",
        Axis::log("response time", Unit::Nanoseconds),
        Axis::linear("% of requests", Unit::Number),
        curves,
    ));
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let slow = share(&mtron_writes, 10_000, 30_000);
    let fast = share(&mtron_writes, 0, 100);
    let under = |measured| share(measured, 0, 100);
    let median_us = ocz_reads.summary().latency.p50_ns as f64 / 1e3;
    let mut says = |says: &str, holds, found: String| findings.states(says, holds, found);
    says("mtron: reads mostly under 100 us", under(&mtron_reads) > 0.5, percent(under(&mtron_reads)));
    says("mtron: a third of writes between 10 and 30 ms", (0.25..0.42).contains(&slow), percent(slow));
    says("mtron: the rest of writes under 100 us", slow + fast > 0.95, percent(fast));
    says("intel: writes mostly under 100 us", under(&intel_writes) > 0.5, percent(under(&intel_writes)));
    says("intel: reads mostly over 100 us", under(&intel_reads) < 0.5, percent(under(&intel_reads)));
    says("ocz: reads about 100 us", (70.0..140.0).contains(&median_us), format!("median {median_us:.0} us"));
    says("ocz: writes mostly over 100 us", under(&ocz_writes) < 0.5, percent(under(&ocz_writes)));
    Ok(findings)
}

/// The share of requests that took at least `from` and less than `to` microseconds.
fn share(measured: &Measured, from: u64, to: u64) -> f64 {
    let within = measured.samples.iter().filter(|sample| (from * 1000..to * 1000).contains(&sample.nanoseconds));
    within.count() as f64 / measured.samples.len().max(1) as f64
}
