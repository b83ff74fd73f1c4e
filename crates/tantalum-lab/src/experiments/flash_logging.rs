//! FlashLogging (SIGMOD 2009), sections 2 to 4: what USB drives, an SSD and a disk do with the writes of a log.
//!
//! As in the paper, every write is synchronous, and requests are aligned to their size. Three USB drives of its vendors
//! are the profiles usb-a, usb-b and usb-c; its disk is hdd-10k, its SSD ssd-2008.

use std::collections::BTreeSet;

use tantalum_flash::{Kind, Profile};
use tantalum_report::units;

use super::bed::Bed;
use super::{Expected, Experiment, Settings};
use crate::{
    error::Result,
    finding::{Bound, Comparison, Findings, Statement},
    micro::{Flushing, Job, Outliers, Pattern, Summary, Together},
};

/// What runs of this paper.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: DISK_WRITE, profiles: &[DISK], expected: Expected::Value(6.0, "ms"), run: disk_small_write },
    Experiment {
        id: FLASH_OVER_DISK,
        profiles: &["usb-a", "usb-b", "usb-c", "ssd-2008", DISK],
        expected: Expected::Range(1.2, 9.4, "ratio"),
        run: flash_over_disk,
    },
    Experiment {
        id: DISK_OVER_FLASH,
        profiles: &["usb-a", "usb-b", "usb-c", DISK],
        expected: Expected::Range(2.6, 11.4, "ratio"),
        run: disk_over_flash,
    },
    Experiment {
        id: COMPETITIVE,
        profiles: &["usb-a", "usb-b", "usb-c", DISK],
        expected: Expected::Value(32.0, "KiB"),
        run: disk_competitive_from,
    },
    Experiment {
        id: SSD_PEAK,
        profiles: &["ssd-2008"],
        expected: Expected::Table(SSD_COLUMNS, SSD_ROWS),
        run: ssd_peak,
    },
    Experiment { id: USB_PEAK, profiles: &USB, expected: Expected::Range(10.0, 20.0, "MB/s"), run: usb_peak },
    Experiment {
        id: SPLITTING,
        profiles: &USB,
        expected: Expected::Table(SPLITTING_COLUMNS, SPLITTING_ROWS),
        run: no_splitting,
    },
    Experiment { id: OUTLIERS, profiles: &USB, expected: Expected::Shape, run: outliers },
    Experiment { id: TWO_STREAMS, profiles: &USB, expected: Expected::Shape, run: two_streams },
    Experiment { id: OVERLAPPING, profiles: &USB, expected: Expected::Max(60.8, "ratio"), run: overlapping_writes },
];

const DISK_WRITE: &str = "fl.fig3.disk_small_write";
const FLASH_OVER_DISK: &str = "fl.fig3.flash_over_disk_small_writes";
const DISK_OVER_FLASH: &str = "fl.fig3.disk_over_flash_sequential_read";
const COMPETITIVE: &str = "fl.fig3.disk_competitive_from";
const SSD_PEAK: &str = "fl.ssd.peak_bandwidth";
const SSD_COLUMNS: &[&str] = &["read_MB_per_s", "write_MB_per_s", "parallel_channels"];
const SSD_ROWS: &[(&[&str], &[f64])] = &[(&[], &[250.0, 70.0, 10.0])];
const USB_PEAK: &str = "fl.usb.write_bandwidth";
const SPLITTING: &str = "fl.fig5.no_splitting";
const SPLITTING_COLUMNS: &[&str] = &["device", "from", "to"];
const SPLITTING_ROWS: &[(&[&str], &[f64])] =
    &[(&["flash-a"], &[1.41, 1.51]), (&["flash-b"], &[1.79, 1.83]), (&["flash-c"], &[1.13, 1.85])];
const OUTLIERS: &str = "fl.fig6.outliers";
const TWO_STREAMS: &str = "fl.fig7.two_streams";
const OVERLAPPING: &str = "fl.sec4.overlapping_writes";

const USB: [&str; 3] = ["usb-a", "usb-b", "usb-c"];
const DISK: &str = "hdd-10k";

/// Bytes of the disk and the SSD that are used, and of USB drives in all; they are written once before.
const USED_BYTES: u64 = 256 << 20;

fn bed(profile: &'static str, settings: Settings) -> Bed {
    let capacity_bytes = USB.contains(&profile).then_some(USED_BYTES);
    Bed { used_bytes: USED_BYTES, capacity_bytes, ..Bed::new(profile, settings.seed) }
}

/// Requests of this size, as many as in the paper's Figure 3: synchronous writes, or reads.
fn sequential(profile: &'static str, settings: Settings, request_bytes: u32, is_read: bool) -> Result<Summary> {
    let operations = if request_bytes > 32 << 10 { 1000 } else { 10_000 };
    let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, operations, 0..0) };
    let job = if is_read { Job { reads_percent: 100, ..job } } else { job };
    Ok(bed(profile, settings).measure(job)?.summary())
}

fn configuration(what: &str) -> Vec<String> {
    vec![format!("{what}, in {} (all of a USB drive), written before", units::bytes(USED_BYTES))]
}

fn size(bytes: u32) -> String {
    units::bytes(bytes.into())
}

fn disk_small_write(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: configuration("sequential synchronous writes, write cache off"),
        ..Findings::default()
    };
    for request_bytes in [512, 4096, 16384] {
        progress(&size(request_bytes));
        let mean_ms = sequential(DISK, settings, request_bytes, false)?.latency.mean_ns / 1e6;
        let basis = bed(DISK, settings).basis(DISK_WRITE)?;
        let what = format!("{DISK}, {}", size(request_bytes));
        findings.comparisons.push(Comparison::new(what, Bound::Value(6.0), mean_ms, "ms", basis));
    }
    Ok(findings)
}

fn flash_over_disk(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings =
        Findings { configuration: configuration("sequential synchronous writes"), ..Findings::default() };
    for request_bytes in [512, 1024, 2048, 4096, 8192, 16384] {
        progress(&size(request_bytes));
        let disk = sequential(DISK, settings, request_bytes, false)?.per_second;
        for profile in USB.into_iter().chain(["ssd-2008"]) {
            let ratio = sequential(profile, settings, request_bytes, false)?.per_second / disk;
            let basis = bed(profile, settings).basis(FLASH_OVER_DISK)?;
            let what = format!("{profile} over {DISK}, {}", size(request_bytes));
            findings.comparisons.push(Comparison::new(what, Bound::Range(1.2, 9.4), ratio, "ratio", basis));
        }
    }
    Ok(findings)
}

fn disk_over_flash(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings { configuration: configuration("sequential reads"), ..Findings::default() };
    for request_bytes in [4096, 64 << 10, 1 << 20] {
        progress(&size(request_bytes));
        let disk = sequential(DISK, settings, request_bytes, true)?.per_second;
        for profile in USB {
            let ratio = disk / sequential(profile, settings, request_bytes, true)?.per_second;
            let basis = bed(profile, settings).basis(DISK_OVER_FLASH)?;
            let what = format!("{DISK} over {profile}, {}", size(request_bytes));
            findings.comparisons.push(Comparison::new(what, Bound::Range(2.6, 11.4), ratio, "ratio", basis));
        }
    }
    Ok(findings)
}

/// The least size from which on the disk writes no slower.
fn disk_competitive_from(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let sizes: Vec<u32> = (9..=21).map(|shift| 1 << shift).collect();
    let rates = |profile| -> Result<Vec<f64>> {
        progress(profile);
        sizes.iter().map(|&size| Ok(sequential(profile, settings, size, false)?.per_second)).collect()
    };
    let mut findings =
        Findings { configuration: configuration("sequential synchronous writes"), ..Findings::default() };
    let disk = rates(DISK)?;
    for profile in USB {
        let flash = rates(profile)?;
        let slower = disk.iter().zip(&flash).rposition(|(disk, flash)| disk < flash);
        let from = sizes.get(slower.map_or(0, |place| place + 1));
        let kib = from.map_or(f64::INFINITY, |&size| f64::from(size) / 1024.0);
        let basis = bed(profile, settings).basis(COMPETITIVE)?;
        findings.comparisons.push(Comparison::new(
            format!("{DISK} as fast as {profile}"),
            Bound::Value(32.0),
            kib,
            "KiB",
            basis,
        ));
    }
    Ok(findings)
}

fn ssd_peak(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: configuration("sequential requests of 1 MiB, four at a time, writes cached"),
        ..Findings::default()
    };
    for (what, published, reads_percent) in [("read", 250.0, 100), ("write", 70.0, 0)] {
        progress(what);
        let bed = bed("ssd-2008", settings);
        let job = Job { reads_percent, threads: 4, ..Job::writes(1 << 20, 1000, 0..0) };
        let rate = bed.measure(job)?.summary().bytes_per_second / 1e6;
        let basis = bed.basis(SSD_PEAK)?;
        findings.comparisons.push(Comparison::new(
            format!("ssd-2008, {what}"),
            Bound::Value(published),
            rate,
            "MB/s",
            basis,
        ));
    }
    if let Kind::SolidState(drive) = Profile::named("ssd-2008")?.device {
        let basis = bed("ssd-2008", settings).basis(SSD_PEAK)?;
        let (what, channels) = ("ssd-2008, parallel channels", f64::from(drive.geometry.channels));
        findings.comparisons.push(Comparison::new(what, Bound::Value(10.0), channels, "channels", basis));
    }
    Ok(findings)
}

fn usb_peak(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: configuration("the fastest sequential synchronous writes of 256 KiB to 2 MiB"),
        ..Findings::default()
    };
    for profile in USB {
        progress(profile);
        let mut rate: f64 = 0.0;
        for request_bytes in [256 << 10, 512 << 10, 1 << 20, 2 << 20] {
            rate = rate.max(sequential(profile, settings, request_bytes, false)?.bytes_per_second / 1e6);
        }
        let basis = bed(profile, settings).basis(USB_PEAK)?;
        findings.comparisons.push(Comparison::new(profile, Bound::Range(10.0, 20.0), rate, "MB/s", basis));
    }
    Ok(findings)
}

fn no_splitting(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let what = "two drives, synchronous requests of 4 KiB whole over the same as two of 2 KiB";
    let mut findings = Findings { configuration: configuration(what), ..Findings::default() };
    for (profile, &(_, published)) in USB.into_iter().zip(SPLITTING_ROWS) {
        for requesters in [2, 8, 32] {
            let what = format!("two {profile}, {requesters} requesters");
            progress(&what);
            let bed = bed(profile, settings);
            let bandwidth =
                |is_split| bed.measure_two(Together { request_bytes: 4096, operations: 5000, requesters, is_split });
            let ratio = bandwidth(false)? / bandwidth(true)?;
            let basis = bed.basis(SPLITTING)?;
            let range = Bound::Range(published[0], published[1]);
            findings.comparisons.push(Comparison::new(what, range, ratio, "ratio", basis));
        }
    }
    Ok(findings)
}

/// Writes of one size to one drive.
struct Series {
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

fn outliers(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let what = "back-to-back sequential synchronous writes, of 300,000 the first 5000; the distance of outliers and their prediction \
                from all";
    let mut findings = Findings { configuration: configuration(what), ..Findings::default() };
    let mut found = Vec::new();
    for profile in USB {
        for request_bytes in [512, 4096] {
            let what = format!("{profile}, {}", size(request_bytes));
            progress(&what);
            let bed = bed(profile, settings);
            let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, WRITTEN, 0..0) };
            let times = bed.measure(job)?.writes_ns();
            let (shown, all) = (Outliers::of(&times[..SHOWN]), Outliers::of(&times));
            let series = Series { profile, request_bytes, shown, gap_mean: all.gap_mean, lift: lift(&times) };
            let basis = bed.basis(OUTLIERS)?;
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

fn judge(found: &[Series]) -> Vec<Statement> {
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

fn two_streams(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: configuration("synchronous writes of 4 KiB, 99 % in one stream and 1 % in another"),
        ..Findings::default()
    };
    for profile in USB {
        progress(profile);
        let bed = bed(profile, settings);
        let job = Job { flushing: Flushing::EachWrite, ..Job::writes(4096, 10_000, 0..0) };
        let normal = bed.measure(job.clone())?.summary().latency.mean_ns;
        let measured = bed.measure(Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..job })?;
        let basis = bed.basis(TWO_STREAMS)?;
        let [first, second] = [0, 1].map(|stream| measured.latency_of(|sample| sample.stream == stream).mean_ns);
        for (what, value) in [("one stream alone", normal), ("first of two", first), ("second of two", second)] {
            findings.comparisons.push(Comparison::new(
                format!("{profile}, {what}"),
                Bound::Unpublished,
                value / 1e6,
                "ms",
                basis,
            ));
        }
        let ratio = second / first;
        let says = format!("{profile}: the second stream is as fast as the first, or moderately slower");
        findings.statements.push(Statement::new(says, ratio < 3.0, format!("{ratio:.2} times")));
    }
    Ok(findings)
}

fn overlapping_writes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: configuration("sequential synchronous writes, each 512 B before the last one's end"),
        ..Findings::default()
    };
    let mut worst: f64 = 0.0;
    for profile in USB {
        for request_bytes in [1024, 4096, 16384] {
            let what = format!("{profile}, {}", size(request_bytes));
            progress(&what);
            let bed = bed(profile, settings);
            let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, 2000, 0..0) };
            let apart = bed.measure(job.clone())?.summary().latency.mean_ns;
            let overlapping = bed.measure(Job { pattern: Pattern::Overlapping(512), ..job })?.summary().latency.mean_ns;
            let basis = bed.basis(OVERLAPPING)?;
            worst = worst.max(overlapping / apart);
            findings.comparisons.push(Comparison::new(what, Bound::Max(60.8), overlapping / apart, "ratio", basis));
        }
    }
    let says = "up to 60.8 times slower on the worst drive (within a quarter)";
    findings.statements.push(Statement::new(says, (worst / 60.8 - 1.0).abs() <= 0.25, format!("{worst:.1} times")));
    Ok(findings)
}
