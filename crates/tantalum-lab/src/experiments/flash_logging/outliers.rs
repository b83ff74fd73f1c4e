//! Figure 6: what stands out among identical writes, and whether it could have been predicted.

use std::collections::BTreeSet;

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{USB, configuration, size, tested_device};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Comparison, Findings, Statement},
    micro::{Flushing, Job, Outliers},
};

pub(super) const ID: &str = "fl.fig6.outliers";

/// Writes of one size to one drive.
struct Written {
    profile: &'static str,
    request_bytes: u32,
    /// What the paper shows: the first writes.
    shown: Outliers,
    /// All of them, to tell how far apart outliers are.
    gap_mean: f64,
    lift: f64,
}

/// Writes that the paper shows, and those that are made here: enough outliers for a predictor to learn from.
const SHOWN: usize = 5000;
const WRITTEN: u64 = 300_000;

/// Of the writes.
const SIZES: [u32; 2] = [512, 4096];

pub(super) fn outliers(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let what = "back-to-back sequential synchronous writes, of 300,000 the first 5000; the distance of outliers and their prediction \
                from all";
    let mut findings = Findings::new(configuration(what));
    let mut found = Vec::new();
    // The paper gives each drive a scale of its own; on one logarithmic scale all can be compared.
    let mut plots = SIZES.map(|size_bytes| {
        let title = format!("{SHOWN} back-to-back writes of {}", size(size_bytes));
        let (x, y) = (Axis::linear("write", Unit::Number), Axis::log("time of one write", Unit::Nanoseconds));
        Plot::new(title, x, y, Vec::new())
    });
    for profile in USB {
        for (request_bytes, plot) in SIZES.into_iter().zip(&mut plots) {
            let what = format!("{profile}, {}", size(request_bytes));
            progress(&what);
            let tested = tested_device(profile, settings);
            let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, WRITTEN, 0..0) };
            let times = tested.measure(job)?.writes_ns();
            let dots = (0u32..).map(f64::from).zip(times[..SHOWN].iter().map(|&time| time as f64));
            plot.series.push(Series::dots(profile, dots.collect()));
            let (shown, all) = (Outliers::of(&times[..SHOWN]), Outliers::of(&times));
            let series = Written { profile, request_bytes, shown, gap_mean: all.gap_mean, lift: lift(&times) };
            let basis = tested.basis(ID)?;
            let mut row = |name: &str, value, unit| {
                let what = format!("{what}: {name}");
                findings.comparisons.push(Comparison::new(what, Bound::Unpublished, value, unit, basis));
            };
            row("outliers", shown.share * 100.0, "%");
            row("outlier over normal", shown.times_normal, "ratio");
            row("writes near one of the two", shown.bimodal * 100.0, "%");
            row("writes per outlier", series.gap_mean, "writes");
            row("variation of that", all.gap_variation * 100.0, "%");
            row("prediction by the count since the last, over chance", series.lift, "ratio");
            found.push(series);
        }
    }
    findings.statements = judge(&found);
    findings.plots = plots.into();
    Ok(findings)
}

/// How much better than chance a predictor is that knows size and count: it has learned from the first half of the writes
/// after how many since the last one outliers came, and names in the second half every write at such a count. This is the
/// share of outliers among those that it names over their share among all.
fn lift(times: &[u64]) -> f64 {
    let limit = 2 * times.iter().sum::<u64>() / times.len().max(1) as u64;
    let is_outlier = |number: &usize| times[*number] > limit;
    let (learnt, tested): (Vec<usize>, Vec<usize>) =
        (0..times.len()).filter(is_outlier).partition(|number| *number < times.len() / 2);
    let gaps = |numbers: &[usize]| -> Vec<usize> { numbers.windows(2).map(|pair| pair[1] - pair[0]).collect() };
    let known: BTreeSet<usize> = gaps(&learnt).into_iter().collect();
    let gaps = gaps(&tested);
    let named: usize = gaps.iter().map(|&gap| known.range(..=gap).count()).sum();
    let hits = gaps.iter().filter(|gap| known.contains(gap)).count();
    let share = gaps.len() as f64 / gaps.iter().sum::<usize>().max(1) as f64;
    if named == 0 { 0.0 } else { hits as f64 / named as f64 / share }
}

fn judge(found: &[Written]) -> Vec<Statement> {
    let worst = |profile: &str| {
        let of = found.iter().filter(|series| series.profile == profile);
        of.map(|series| series.shown.longest_times_normal).fold(0.0, f64::max)
    };
    let few = found.iter().map(|series| series.shown.share).fold(0.0, f64::max);
    let least = found.iter().map(|series| series.shown.share).fold(1.0, f64::min);
    let bimodal = found.iter().map(|series| series.shown.bimodal).fold(1.0, f64::min);
    let lift = found.iter().map(|series| series.lift).fold(0.0, f64::max);
    let [a, b, c] = USB.map(worst);
    let gaps: Vec<[f64; 2]> = found.chunks(2).map(|sizes| [sizes[0].gap_mean, sizes[1].gap_mean]).collect();
    let far = |[one, other]: [f64; 2]| one.max(other) > 1.15 * one.min(other);
    let differ = gaps.iter().any(|&sizes| far(sizes)) && gaps.windows(2).all(|pair| far([pair[0][1], pair[1][1]]));
    let listed =
        found.iter().map(|series| format!("{} {} {:.0}", series.profile, size(series.request_bytes), series.gap_mean));
    vec![
        Statement::new(
            "most writes are fast, a few are not",
            least > 0.0 && few < 0.25,
            format!("{:.2} to {:.2}% are outliers", least * 100.0, few * 100.0),
        ),
        Statement::new(
            "the distribution is bimodal",
            bimodal > 0.9,
            format!("at least {:.1}% near one of two modes", bimodal * 100.0),
        ),
        Statement::new(
            "up to two orders of magnitude longer",
            a.max(b).max(c) >= 80.0,
            format!("up to {:.0} times", a.max(b).max(c)),
        ),
        Statement::new(
            "usb-c has the largest gap",
            c > a && c > b,
            format!("usb-a {a:.0}, usb-b {b:.0}, usb-c {c:.0} times"),
        ),
        Statement::new(
            "their spacing differs by device, and by request size",
            differ,
            format!("writes per outlier: {}", listed.collect::<Vec<_>>().join(", ")),
        ),
        Statement::new(
            "hard to predict from size and count since the last one: little better than chance",
            lift < 1.5,
            format!("at best {lift:.2} times chance"),
        ),
    ]
}
