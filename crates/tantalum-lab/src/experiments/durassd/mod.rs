//! DuraSSD (SIGMOD 2014), section 2: what `fsync` costs, what small pages gain, and what a [`cache`] is for; and section 4, databases on it:
//! [`linkbench`], [`latency`], [`tpcc`], [`couchbase`].
//!
//! The paper runs fio on a file. What its file system does at an `fsync` is a journal commit; see
//! [`Fsync`](crate::micro::Fsync). How many writes to the journal that takes is not published.

mod bed;
mod cache;
mod couchbase;
mod latency;
mod linkbench;
mod tpcc;

use super::bed::{Bed, Cache};
use super::{Expected, Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    micro::{Flushing, Fsync, Job, Measured, Pattern},
};
use tantalum_report::plot::{Axis, Plot, Series, Unit};

/// What runs of this paper.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        id: FSYNC,
        profiles: &["hdd-15k", "ssd-a", "ssd-b", "durassd"],
        expected: Expected::Table(FSYNC_COLUMNS, FSYNC_ROWS),
        run: fsync_frequency,
    },
    Experiment {
        id: cache::SIZES,
        profiles: &["hdd-15k", "ssd-a", "ssd-b", "durassd"],
        expected: Expected::Table(cache::COLUMNS, cache::ROWS),
        run: cache::sizes,
    },
    Experiment {
        id: PAGES,
        profiles: &["durassd", "hdd-15k"],
        expected: Expected::Table(PAGES_COLUMNS, PAGES_ROWS),
        run: page_size,
    },
    Experiment {
        id: linkbench::THROUGHPUT,
        profiles: &[bed::DRIVE],
        expected: Expected::Table(linkbench::THROUGHPUT_COLUMNS, linkbench::THROUGHPUT_ROWS),
        run: linkbench::throughput,
    },
    Experiment { id: linkbench::ANOMALY, profiles: &[bed::DRIVE], expected: Expected::Shape, run: linkbench::anomaly },
    Experiment { id: linkbench::MISSES, profiles: &[bed::DRIVE], expected: Expected::Shape, run: linkbench::misses },
    Experiment {
        id: latency::LATENCIES,
        profiles: &[bed::DRIVE],
        expected: Expected::Table(latency::COLUMNS, latency::ROWS),
        run: latency::latencies,
    },
    Experiment {
        id: latency::BLOCKED,
        profiles: &[bed::DRIVE],
        expected: Expected::Value(0.5, "share"),
        run: latency::blocked_reads,
    },
    Experiment {
        id: tpcc::TPCC,
        profiles: &[bed::DRIVE],
        expected: Expected::Table(tpcc::COLUMNS, tpcc::ROWS),
        run: tpcc::tpcc,
    },
    Experiment {
        id: couchbase::COUCHBASE,
        profiles: &[bed::DRIVE],
        expected: Expected::Table(couchbase::COLUMNS, couchbase::ROWS),
        run: couchbase::couchbase,
    },
    Experiment {
        id: linkbench::WRITTEN,
        profiles: &[bed::DRIVE],
        expected: Expected::Min(0.5, "share"),
        run: linkbench::written,
    },
];

const FSYNC: &str = "ds.table1.fsync_frequency";
const FSYNC_COLUMNS: &[&str] = &["device", "cache", "1", "4", "8", "16", "32", "64", "128", "256", "0"];
const FSYNC_ROWS: &[(&[&str], &[f64])] = &[
    (&["hdd-15k", "off"], &[58.0, 111.0, 130.0, 143.0, 151.0, 155.0, 156.0, 157.0, 158.0]),
    (&["hdd-15k", "on"], &[59.0, 135.0, 184.0, 234.0, 251.0, 335.0, 375.0, 381.0, 387.0]),
    (&["ssd-a", "off"], &[168.0, 332.0, 397.0, 441.0, 463.0, 479.0, 480.0, 490.0, 494.0]),
    (&["ssd-a", "on"], &[256.0, 759.0, 1297.0, 2219.0, 3595.0, 5094.0, 6794.0, 8782.0, 11681.0]),
    (&["ssd-b", "off"], &[603.0, 732.0, 889.0, 995.0, 1042.0, 1082.0, 1114.0, 1124.0, 1157.0]),
    (&["ssd-b", "on"], &[655.0, 1762.0, 2319.0, 3152.0, 4046.0, 5177.0, 6318.0, 8575.0, 8456.0]),
    (&["durassd", "off"], &[249.0, 330.0, 438.0, 467.0, 482.0, 490.0, 495.0, 497.0, 498.0]),
    (&["durassd", "on"], &[225.0, 836.0, 1556.0, 2556.0, 5020.0, 6969.0, 10582.0, 12647.0, 15319.0]),
    (
        &["durassd", "on, no barrier"],
        &[14484.0, 14800.0, 14813.0, 14824.0, 14840.0, 14863.0, 15063.0, 15181.0, 15458.0],
    ),
];

const PAGES: &str = "ds.table2.page_size";
const PAGES_COLUMNS: &[&str] = &["device", "workload", "16KB", "8KB", "4KB"];
const PAGES_ROWS: &[(&[&str], &[f64])] = &[
    (&["durassd", "read only, 128 threads"], &[29870.0, 57847.0, 89083.0]),
    (&["durassd", "write only, fsync every write"], &[196.0, 206.0, 225.0]),
    (&["durassd", "write only, fsync every 256 writes"], &[4563.0, 7978.0, 12647.0]),
    (&["durassd", "write only, 128 threads, no barrier"], &[13446.0, 25546.0, 49009.0]),
    (&["hdd-15k", "read only, 128 threads"], &[516.0, 528.0, 538.0]),
    (&["hdd-15k", "write only, 128 threads"], &[428.0, 439.0, 444.0]),
];

/// Writes of a cell of Table 1 that are measured.
const OPERATIONS: u64 = 60_000;

/// Bytes of the file that is written, but no more than the device has; disks are used in full.
const FILE_BYTES: u64 = 1 << 30;

/// The column by which the number of writes to the journal was chosen, with the write cache off: on the disk there is
/// nothing else to flush, and on an SSD that writes through, nothing at all.
const CHOSEN_BY: (&str, &str) = ("off", "1");

/// The cell by which [`Fsync::CALL_NS`] was chosen.
const CALL_CHOSEN_BY: (&str, &str) = ("on, no barrier", "1");

/// Writes to the journal at an `fsync`, one after the other: a transaction and its commit. DuraSSD's row has room for
/// one only.
fn journal_writes(device: &str) -> u32 {
    if device == "durassd" { 1 } else { 2 }
}

fn fsync(device: &str, after: u32) -> Flushing {
    match after {
        0 => Flushing::Never,
        _ => Flushing::Fsync(Fsync { after, journal_writes: journal_writes(device) }),
    }
}

fn bed(device: &'static str, cache: &str, seed: u64) -> Bed {
    let cache = match cache {
        "off" => Cache::Off,
        "on, no barrier" => Cache::NoBarrier,
        _ => Cache::On,
    };
    let used_bytes = if device == "hdd-15k" { u64::MAX } else { FILE_BYTES };
    // Larger than any of the devices' caches. A disk has no history but its cache.
    let warm_up = if device == "hdd-15k" { 6000 } else { 150_000 };
    Bed { cache, used_bytes, is_filled: device != "hdd-15k", warm_up, ..Bed::new(device, seed) }
}

fn fsync_frequency(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: vec![
            format!(
                "4 KiB random writes, one job, in {} (the disk: all of it)",
                tantalum_report::units::bytes(FILE_BYTES)
            ),
            "fsync: two writes to a journal, on durassd one, at most once in 4 ms, and flushes (not published: chosen by the cells \"off, 1\")".into(),
        ],
        ..Findings::default()
    };
    let after = || {
        let columns = FSYNC_COLUMNS[2..].iter();
        Axis::names("writes per fsync", columns.map(|&column| if column == "0" { "never" } else { column }))
    };
    let [mut on, mut off] = ["on", "off"].map(|cache| {
        let title = format!("Random writes of 4 KiB, write cache {cache}");
        Plot::new(title, after(), Axis::log("writes per second", Unit::Number), Vec::new())
    });
    for &(row, published) in FSYNC_ROWS {
        let &[device, cache] = row else { continue };
        let cells = FSYNC_COLUMNS[row.len()..].iter().zip(published);
        let rates = measure_row(&mut findings, &format!("{device}, cache {cache}"), cells, progress, |column| {
            let flushing = fsync(device, column.parse().unwrap_or(0));
            let job = Job { pattern: Pattern::Random, flushing, ..Job::writes(4096, OPERATIONS, 0..0) };
            let bed = bed(device, cache, settings.seed);
            let basis = match (cache, column) {
                CHOSEN_BY | CALL_CHOSEN_BY => Basis::Fitted,
                _ => bed.basis_of_cell(FSYNC, &format!("{device} {cache}"), column)?,
            };
            Ok((bed.measure(job)?, basis))
        })?;
        let (plot, name) = match cache {
            "off" => (&mut off, device.to_owned()),
            _ => (&mut on, device.to_owned() + cache.trim_start_matches("on")),
        };
        plot.series.extend(beside(&name, &rates, published, |place| place as f64));
    }
    findings.plots = vec![on, off];
    Ok(findings)
}

/// What was measured, and what was published of it, over the places of the columns.
fn beside(name: &str, measured: &[f64], published: &[f64], x: impl Fn(usize) -> f64) -> [Series; 2] {
    let line =
        |rates: &[f64]| Series::line(name, rates.iter().enumerate().map(|(place, &rate)| (x(place), rate)).collect());
    [line(measured), line(published).published()]
}

fn page_size(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings {
        configuration: vec![format!(
            "random pages in {} (the disk: all of it, its write cache on)",
            tantalum_report::units::bytes(FILE_BYTES)
        )],
        ..Findings::default()
    };
    let bytes = |column: &str| -> u32 {
        let kibibytes: u32 = column.trim_end_matches("KB").parse().expect("the columns are sizes of pages");
        kibibytes << 10
    };
    let plot = |device| {
        let (x, y) = (Axis::log("page", Unit::Bytes), Axis::log("requests per second", Unit::Number));
        (device, Plot::new(format!("Random pages on {device}"), x, y, Vec::new()))
    };
    let mut plots = ["durassd", "hdd-15k"].map(plot);
    for &(row, published) in PAGES_ROWS {
        let &[device, workload] = row else { continue };
        let cells = PAGES_COLUMNS[row.len()..].iter().zip(published);
        let rates = measure_row(&mut findings, &format!("{device}, {workload}"), cells, progress, |column| {
            let (cache, job) = page_job(device, workload, bytes(column));
            let bed = bed(device, cache, settings.seed);
            let basis = bed.basis_of_cell(PAGES, &format!("{device} {column}"), load(workload))?;
            Ok((bed.measure(job)?, basis))
        })?;
        for (_, plot) in plots.iter_mut().filter(|(of, _)| *of == device) {
            let x = |place: usize| bytes(PAGES_COLUMNS[row.len() + place]).into();
            plot.series.extend(beside(workload, &rates, published, x));
        }
    }
    findings.plots = plots.map(|(_, plot)| plot).into();
    Ok(findings)
}

/// Measures the cells of a row, each a column and what is published, says whether they rise and fall as
/// published, and returns the rates.
fn measure_row(
    findings: &mut Findings,
    row: &str,
    cells: impl Iterator<Item = (&'static &'static str, &'static f64)>,
    progress: &dyn Fn(&str),
    measure: impl Fn(&str) -> Result<(Measured, Basis)>,
) -> Result<Vec<f64>> {
    let (mut expected, mut rates) = (Vec::new(), Vec::new());
    for (column, &published) in cells {
        let cell = format!("{row}, {column}");
        progress(&cell);
        let (measured, basis) = measure(column)?;
        let rate = measured.summary().per_second;
        findings.comparisons.push(Comparison::new(cell, Bound::Value(published), rate, "IOPS", basis));
        expected.push(published);
        rates.push(rate);
    }
    findings.statements.push(order(row, &expected, &rates));
    Ok(rates)
}

/// What a profile's list of fitted cells calls a workload.
fn load(workload: &str) -> &str {
    match workload {
        "write only, 128 threads, no barrier" => "write only without barrier",
        _ => workload.split(", 128").next().unwrap_or(workload),
    }
}

fn page_job(device: &str, workload: &str, request_bytes: u32) -> (&'static str, Job) {
    let job = Job { pattern: Pattern::Random, ..Job::writes(request_bytes, 2000, 0..0) };
    let many = Job { threads: 128, operations: 20_000, ..job.clone() };
    match workload {
        "read only, 128 threads" => ("on", Job { reads_percent: 100, ..many }),
        "write only, fsync every write" => ("on", Job { flushing: fsync(device, 1), ..job }),
        "write only, fsync every 256 writes" => ("on", Job { flushing: fsync(device, 256), operations: 8192, ..job }),
        "write only, 128 threads, no barrier" => ("on, no barrier", many),
        _ => ("on", many),
    }
}

/// Whether cells rise and fall from one to the next as published; published steps of less than 2 % say nothing.
fn order(row: &str, published: &[f64], measured: &[f64]) -> Statement {
    let steps = published.windows(2).zip(measured.windows(2));
    let wrong = steps.filter(|(published, measured)| {
        let step = published[1] / published[0];
        (step - 1.0).abs() >= 0.02 && ((step > 1.0) != (measured[1] > measured[0]))
    });
    let count = wrong.count();
    let found =
        if count == 0 { "they do".to_owned() } else { format!("{count} of {} steps do not", published.len() - 1) };
    Statement::new(format!("{row}: cells rise and fall as published"), count == 0, found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_cells_is_judged_where_the_paper_has_one() {
        assert!(order("", &[1.0, 2.0, 2.01], &[10.0, 20.0, 19.0]).holds);
        assert!(!order("", &[1.0, 2.0, 3.0], &[10.0, 20.0, 19.0]).holds);
    }
}
