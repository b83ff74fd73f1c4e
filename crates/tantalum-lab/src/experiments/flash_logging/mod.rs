//! FlashLogging (SIGMOD 2009), sections 2 to 4: what USB drives, an SSD and a disk do with the writes of a log.
//!
//! As in the paper, every write is synchronous, and requests are aligned to their size. Three USB drives of its vendors
//! are the profiles usb-a, usb-b and usb-c; its disk is hdd-10k, its SSD ssd-2008.

mod outliers;

use tantalum_flash::{Kind, Profile};
use tantalum_report::{
    plot::{Axis, Plot, Series, Unit},
    units,
};

use super::{Experiment, Settings, device_under_test::DeviceUnderTest};
use crate::{
    error::Result,
    finding::{Bound, Comparison, Findings},
    micro::{Flushing, Job, Pattern, Summary, Together},
    published,
};

/// What runs of this paper.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: DISK_WRITE, profiles: &[DISK], run: disk_small_write },
    Experiment { id: FLASH_OVER_DISK, profiles: &["usb-a", "usb-b", "usb-c", "ssd-2008", DISK], run: flash_over_disk },
    Experiment { id: DISK_OVER_FLASH, profiles: &["usb-a", "usb-b", "usb-c", DISK], run: disk_over_flash },
    Experiment { id: COMPETITIVE, profiles: &["usb-a", "usb-b", "usb-c", DISK], run: disk_competitive_from },
    Experiment { id: SSD_PEAK, profiles: &["ssd-2008"], run: ssd_peak },
    Experiment { id: USB_PEAK, profiles: &USB, run: usb_peak },
    Experiment { id: SPLITTING, profiles: &USB, run: no_splitting },
    Experiment { id: outliers::ID, profiles: &USB, run: outliers::outliers },
    Experiment { id: TWO_STREAMS, profiles: &USB, run: two_streams },
    Experiment { id: OVERLAPPING, profiles: &USB, run: overlapping_writes },
];

const DISK_WRITE: &str = "fl.fig3.disk_small_write";
const FLASH_OVER_DISK: &str = "fl.fig3.flash_over_disk_small_writes";
const DISK_OVER_FLASH: &str = "fl.fig3.disk_over_flash_sequential_read";
const COMPETITIVE: &str = "fl.fig3.disk_competitive_from";
const SSD_PEAK: &str = "fl.ssd.peak_bandwidth";
const USB_PEAK: &str = "fl.usb.write_bandwidth";
const SPLITTING: &str = "fl.fig5.no_splitting";
const TWO_STREAMS: &str = "fl.fig7.two_streams";
const OVERLAPPING: &str = "fl.sec4.overlapping_writes";

const USB: [&str; 3] = ["usb-a", "usb-b", "usb-c"];
const DISK: &str = "hdd-10k";

/// Bytes of the disk and the SSD that are used, and of USB drives in all; they are written once before.
const USED_BYTES: u64 = 256 << 20;

fn tested_device(profile: &'static str, settings: Settings) -> DeviceUnderTest {
    let capacity_bytes = USB.contains(&profile).then_some(USED_BYTES);
    DeviceUnderTest { used_bytes: USED_BYTES, capacity_bytes, ..DeviceUnderTest::new(profile, settings.seed) }
}

/// Requests of this size, as many as in the paper's Figure 3: synchronous writes, or reads.
fn sequential(profile: &'static str, settings: Settings, request_bytes: u32, is_read: bool) -> Result<Summary> {
    let operations = if request_bytes > 32 << 10 { 1000 } else { 10_000 };
    let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, operations, 0..0) };
    let job = if is_read { Job { reads_percent: 100, ..job } } else { job };
    Ok(tested_device(profile, settings).measure(job)?.summary())
}

fn configuration(what: &str) -> Vec<String> {
    vec![format!("{what}, in {} (all of a USB drive), written before", units::bytes(USED_BYTES))]
}

fn size(bytes: u32) -> String {
    units::bytes(bytes.into())
}

fn disk_small_write(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("sequential synchronous writes, write cache off"));
    for request_bytes in [512, 4096, 16384] {
        progress(&size(request_bytes));
        let mean_ms = sequential(DISK, settings, request_bytes, false)?.latency.mean_ns / 1e6;
        let basis = tested_device(DISK, settings).basis(DISK_WRITE)?;
        let what = format!("{DISK}, {}", size(request_bytes));
        findings.comparisons.push(Comparison::new(what, published::of(DISK_WRITE).bound(), mean_ms, "ms", basis));
    }
    Ok(findings)
}

fn flash_over_disk(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("sequential synchronous writes"));
    let published = published::of(FLASH_OVER_DISK).bound();
    let Bound::Range(least, most) = published else { unreachable!("a range is published") };
    const SIZES: [u32; 6] = [512, 1024, 2048, 4096, 8192, 16384];
    let mut lines = [USB[0], USB[1], USB[2], "ssd-2008"].map(|profile| Series::line(profile, Vec::new()));
    for request_bytes in SIZES {
        progress(&size(request_bytes));
        let disk = sequential(DISK, settings, request_bytes, false)?.per_second;
        for (profile, line) in USB.into_iter().chain(["ssd-2008"]).zip(&mut lines) {
            let ratio = sequential(profile, settings, request_bytes, false)?.per_second / disk;
            let basis = tested_device(profile, settings).basis(FLASH_OVER_DISK)?;
            let what = format!("{profile} over {DISK}, {}", size(request_bytes));
            findings.comparisons.push(Comparison::new(what, published, ratio, "ratio", basis));
            line.points.push((request_bytes.into(), ratio));
        }
    }
    let range = |edge| Series::line("range", SIZES.map(|size| (size.into(), edge)).into()).published();
    findings.plots.push(Plot::new(
        "Speed of sequential writes over that of the disk",
        Axis::log("request", Unit::Bytes),
        Axis::linear("times the disk's", Unit::Number),
        lines.into_iter().chain([range(least), range(most)]).collect(),
    ));
    Ok(findings)
}

fn disk_over_flash(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("sequential reads"));
    for request_bytes in [4096, 64 << 10, 1 << 20] {
        progress(&size(request_bytes));
        let disk = sequential(DISK, settings, request_bytes, true)?.per_second;
        for profile in USB {
            let ratio = disk / sequential(profile, settings, request_bytes, true)?.per_second;
            let basis = tested_device(profile, settings).basis(DISK_OVER_FLASH)?;
            let what = format!("{DISK} over {profile}, {}", size(request_bytes));
            findings.comparisons.push(Comparison::new(
                what,
                published::of(DISK_OVER_FLASH).bound(),
                ratio,
                "ratio",
                basis,
            ));
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
    let mut findings = Findings::new(configuration("sequential synchronous writes"));
    let line = |profile: &str, rates: &[f64]| {
        let megabytes = |(&size, &rate): (&u32, &f64)| (size.into(), rate * f64::from(size) / 1e6);
        Series::line(profile, sizes.iter().zip(rates).map(megabytes).collect())
    };
    let disk = rates(DISK)?;
    let mut lines = vec![line(DISK, &disk)];
    for profile in USB {
        let flash = rates(profile)?;
        lines.push(line(profile, &flash));
        let slower = disk.iter().zip(&flash).rposition(|(disk, flash)| disk < flash);
        let from = sizes.get(slower.map_or(0, |place| place + 1));
        let kib = from.map_or(f64::INFINITY, |&size| f64::from(size) / 1024.0);
        let basis = tested_device(profile, settings).basis(COMPETITIVE)?;
        findings.comparisons.push(Comparison::new(
            format!("{DISK} as fast as {profile}"),
            published::of(COMPETITIVE).bound(),
            kib,
            "KiB",
            basis,
        ));
    }
    findings.plots.push(Plot::new(
        "Bandwidth of sequential synchronous writes",
        Axis::log("request", Unit::Bytes),
        Axis::log("MB/s", Unit::Number),
        lines,
    ));
    Ok(findings)
}

fn ssd_peak(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("sequential requests of 1 MiB, four at a time, writes cached"));
    let peak = |column| Bound::Value(published::of(SSD_PEAK).column(column)[0]);
    for (what, column, reads_percent) in [("read", "read_MB_per_s", 100), ("write", "write_MB_per_s", 0)] {
        progress(what);
        let tested = tested_device("ssd-2008", settings);
        let job = Job { reads_percent, threads: 4, ..Job::writes(1 << 20, 1000, 0..0) };
        let rate = tested.measure(job)?.summary().bytes_per_second / 1e6;
        let basis = tested.basis(SSD_PEAK)?;
        findings.comparisons.push(Comparison::new(format!("ssd-2008, {what}"), peak(column), rate, "MB/s", basis));
    }
    if let Kind::SolidState(drive) = Profile::named("ssd-2008")?.device {
        let basis = tested_device("ssd-2008", settings).basis(SSD_PEAK)?;
        let (what, channels) = ("ssd-2008, parallel channels", f64::from(drive.geometry.channels));
        findings.comparisons.push(Comparison::new(what, peak("parallel_channels"), channels, "channels", basis));
    }
    Ok(findings)
}

fn usb_peak(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(configuration("the fastest sequential synchronous writes of 256 KiB to 2 MiB"));
    for profile in USB {
        progress(profile);
        let mut rate: f64 = 0.0;
        for request_bytes in [256 << 10, 512 << 10, 1 << 20, 2 << 20] {
            rate = rate.max(sequential(profile, settings, request_bytes, false)?.bytes_per_second / 1e6);
        }
        let basis = tested_device(profile, settings).basis(USB_PEAK)?;
        findings.comparisons.push(Comparison::new(profile, published::of(USB_PEAK).bound(), rate, "MB/s", basis));
    }
    Ok(findings)
}

fn no_splitting(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let what = "two drives, synchronous requests of 4 KiB whole over the same as two of 2 KiB";
    let mut findings = Findings::new(configuration(what));
    let mut bars = [2, 8, 32].map(|requesters| (requesters, Series::bars(format!("{requesters} requesters"), [])));
    let table = published::of(SPLITTING).table();
    for ((profile, (_, published)), device) in USB.into_iter().zip(&table).zip([0.0, 1.0, 2.0]) {
        for (requesters, bars) in &mut bars {
            let requesters = *requesters;
            let what = format!("two {profile}, {requesters} requesters");
            progress(&what);
            let tested = tested_device(profile, settings);
            let bandwidth =
                |is_split| tested.measure_two(Together { request_bytes: 4096, operations: 5000, requesters, is_split });
            let ratio = bandwidth(false)? / bandwidth(true)?;
            let basis = tested.basis(SPLITTING)?;
            let range = Bound::Range(published[0], published[1]);
            findings.comparisons.push(Comparison::new(what, range, ratio, "ratio", basis));
            bars.points.push((device, ratio));
        }
    }
    let published = ["least", "most"].into_iter().enumerate();
    let published = published.map(|(n, name)| Series::bars(name, table.iter().map(|row| row.1[n])).published());
    findings.plots.push(Plot::new(
        "Bandwidth with whole requests of 4 KiB over split ones, two drives",
        Axis::names("", USB),
        Axis::linear("ratio", Unit::Number),
        bars.into_iter().map(|(_, bars)| bars).chain(published).collect(),
    ));
    Ok(findings)
}

fn two_streams(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings =
        Findings::new(configuration("synchronous writes of 4 KiB, 99 % in one stream and 1 % in another"));
    let mut bars = ["one stream alone", "first of two", "second of two"].map(|stream| Series::bars(stream, []));
    for (profile, device) in USB.into_iter().zip([0.0, 1.0, 2.0]) {
        progress(profile);
        let tested = tested_device(profile, settings);
        let job = Job { flushing: Flushing::EachWrite, ..Job::writes(4096, 10_000, 0..0) };
        let normal = tested.measure(job.clone())?.summary().latency.mean_ns;
        let measured = tested.measure(Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..job })?;
        let basis = tested.basis(TWO_STREAMS)?;
        let [first, second] = [0, 1].map(|stream| measured.latency_of(|sample| sample.stream == stream).mean_ns);
        for (bars, value) in bars.iter_mut().zip([normal, first, second]) {
            bars.points.push((device, value));
            findings.comparisons.push(Comparison::new(
                format!("{profile}, {}", bars.name),
                Bound::Unpublished,
                value / 1e6,
                "ms",
                basis,
            ));
        }
        let ratio = second / first;
        let says = format!("{profile}: the second stream is as fast as the first, or moderately slower");
        findings.states(says, ratio < 3.0, format!("{ratio:.2} times"));
    }
    findings.plots.push(Plot::new(
        "Mean time of a write of 4 KiB",
        Axis::names("", USB),
        Axis::linear("time of one write", Unit::Nanoseconds),
        bars.into(),
    ));
    Ok(findings)
}

fn overlapping_writes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings =
        Findings::new(configuration("sequential synchronous writes, each 512 B before the last one's end"));
    let mut worst: f64 = 0.0;
    let mut bars = [1024, 4096, 16384].map(|bytes| (bytes, Series::bars(format!("writes of {}", size(bytes)), [])));
    for (profile, device) in USB.into_iter().zip([0.0, 1.0, 2.0]) {
        for (request_bytes, bars) in &mut bars {
            let request_bytes = *request_bytes;
            let what = format!("{profile}, {}", size(request_bytes));
            progress(&what);
            let tested = tested_device(profile, settings);
            let job = Job { flushing: Flushing::EachWrite, ..Job::writes(request_bytes, 2000, 0..0) };
            let apart = tested.measure(job.clone())?.summary().latency.mean_ns;
            let overlapping =
                tested.measure(Job { pattern: Pattern::Overlapping(512), ..job })?.summary().latency.mean_ns;
            let basis = tested.basis(OVERLAPPING)?;
            worst = worst.max(overlapping / apart);
            bars.points.push((device, overlapping / apart));
            findings.comparisons.push(Comparison::new(
                what,
                published::of(OVERLAPPING).bound(),
                overlapping / apart,
                "ratio",
                basis,
            ));
        }
    }
    findings.plots.push(Plot::new(
        "Time of writes that overlap the last one over that of writes that do not",
        Axis::names("", USB),
        Axis::linear("ratio", Unit::Number),
        bars.into_iter().map(|(_, bars)| bars).collect(),
    ));
    let says = "up to 60.8 times slower on the worst drive (within a quarter)";
    findings.states(
        says,
        (worst / published::of(OVERLAPPING).number() - 1.0).abs() <= 0.25,
        format!("{worst:.1} times"),
    );
    Ok(findings)
}
