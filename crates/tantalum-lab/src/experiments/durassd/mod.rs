//! DuraSSD (SIGMOD 2014), section 2: what `fsync` costs, what small pages gain, and what a [`cache`] is for; and section 4, databases on it:
//! [`linkbench`], [`latency`], [`tpcc`], [`couchbase`].
//!
//! The paper runs fio on a file. What its file system does at an `fsync` is a journal commit; see
//! [`Fsync`](crate::micro::Fsync). How many writes to the journal that takes is not published.

mod cache;
mod couchbase;
mod latency;
mod linkbench;
mod mysql;
mod scaled_server;
mod tpcc;

pub(super) use scaled_server::on_two_drives;

use super::device_under_test::{Cache, DeviceUnderTest};
use super::{Experiment, Settings};
use serde::Deserialize;
use tantalum_report::plot::{Axis, Plot, Series, Unit};

use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings, Statement},
    micro::{Flushing, Fsync, Job, Measured, Pattern},
    published,
};

/// What runs of this paper.
pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: FSYNC, profiles: PROFILES, run: fsync_frequency },
    Experiment { id: cache::SIZES, profiles: PROFILES, run: cache::sizes },
    Experiment { id: PAGES, profiles: &["durassd", "hdd-15k"], run: page_size },
    Experiment { id: linkbench::THROUGHPUT, profiles: &[scaled_server::DRIVE], run: linkbench::throughput },
    Experiment { id: linkbench::ANOMALY, profiles: &[scaled_server::DRIVE], run: linkbench::anomaly },
    Experiment { id: linkbench::MISSES, profiles: &[scaled_server::DRIVE], run: linkbench::misses },
    Experiment { id: latency::LATENCIES, profiles: &[scaled_server::DRIVE], run: latency::latencies },
    Experiment { id: latency::BLOCKED, profiles: &[scaled_server::DRIVE], run: latency::blocked_reads },
    Experiment { id: tpcc::TPCC, profiles: &[scaled_server::DRIVE], run: tpcc::tpcc },
    Experiment { id: couchbase::COUCHBASE, profiles: &[scaled_server::DRIVE], run: couchbase::couchbase },
    Experiment { id: linkbench::WRITTEN, profiles: &[scaled_server::DRIVE], run: linkbench::written },
];

/// Of Table 1, which calls the devices so.
const PROFILES: &[&str] = &["hdd-15k", "ssd-a", "ssd-b", "durassd"];

const FSYNC: &str = "ds.table1.fsync_frequency";

const PAGES: &str = "ds.table2.page_size";

/// Writes of a cell of Table 1 that are measured.
const OPERATIONS: u64 = 60_000;

/// Bytes of the file that is written, but no more than the device has; disks are used in full.
const FILE_BYTES: u64 = 1 << 30;

/// The column by which the number of writes to the journal was chosen, with the write cache off: on the disk there is
/// nothing else to flush, and on an SSD that writes through, nothing at all.
const CHOSEN_BY: (Cache, &str) = (Cache::Off, "1");

/// The cell by which [`Fsync::CALL_NS`] was chosen.
const CALL_CHOSEN_BY: (Cache, &str) = (Cache::NoBarrier, "1");

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

fn tested_device(device: &str, cache: Cache, seed: u64) -> DeviceUnderTest {
    let used_bytes = if device == "hdd-15k" { u64::MAX } else { FILE_BYTES };
    // Larger than any of the devices' caches. A disk has no history but its cache.
    let warm_up = if device == "hdd-15k" { 6000 } else { 150_000 };
    DeviceUnderTest {
        cache,
        used_bytes,
        is_filled: device != "hdd-15k",
        warm_up,
        ..DeviceUnderTest::new(profile(device), seed)
    }
}

/// The profile of a device of the tables, which has its name.
fn profile(device: &str) -> &'static str {
    let known = PROFILES.iter().find(|profile| **profile == device);
    known.unwrap_or_else(|| panic!("published.toml: {device} is no device of this experiment"))
}

fn fsync_frequency(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(vec![
            format!(
                "4 KiB random writes, one job, in {} (the disk: all of it)",
                tantalum_report::units::bytes(FILE_BYTES)
            ),
            "fsync: two writes to a journal, on durassd one, at most once in 4 ms, and flushes (not published: chosen by the cells \"off, 1\")".into(),
        ]);
    let published = published::of(FSYNC);
    let columns = &published.columns[2..];
    let after = || {
        let never = |column| if column == "0" { "never" } else { column };
        Axis::names("writes per fsync", columns.iter().map(|column| never(column)))
    };
    let [mut on, mut off] = ["on", "off"].map(|cache| {
        let title = format!("Random writes of 4 KiB, write cache {cache}");
        Plot::new(title, after(), Axis::log("writes per second", Unit::Number), Vec::new())
    });
    for (row, published) in published.table() {
        let [device, name] = row[..] else { unreachable!("a device and its cache") };
        let cache: Cache = published::typed(name);
        let cells = columns.iter().zip(&published);
        let rates = measure_row(&mut findings, &format!("{device}, cache {name}"), cells, progress, |column| {
            let flushing = fsync(device, column.parse().expect("a column for a number of writes"));
            let job = Job { pattern: Pattern::Random, flushing, ..Job::writes(4096, OPERATIONS, 0..0) };
            let tested = tested_device(device, cache, settings.seed);
            let basis = match (cache, column) {
                CHOSEN_BY | CALL_CHOSEN_BY => Basis::Fitted,
                _ => tested.basis_of_cell(FSYNC, &format!("{device} {name}"), column)?,
            };
            Ok((tested.measure(job)?, basis))
        })?;
        let (plot, name) = match cache {
            Cache::Off => (&mut off, device.to_owned()),
            _ => (&mut on, device.to_owned() + name.trim_start_matches("on")),
        };
        plot.series.extend(beside(&name, &rates, &published, |place| place as f64));
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
    let mut findings = Findings::new(vec![format!(
        "random pages in {} (the disk: all of it, its write cache on)",
        tantalum_report::units::bytes(FILE_BYTES)
    )]);
    let bytes = |column: &str| -> u32 {
        let kibibytes: u32 = column.trim_end_matches("KB").parse().expect("the columns are sizes of pages");
        kibibytes << 10
    };
    let plot = |device| {
        let (x, y) = (Axis::log("page", Unit::Bytes), Axis::log("requests per second", Unit::Number));
        (device, Plot::new(format!("Random pages on {device}"), x, y, Vec::new()))
    };
    let mut plots = ["durassd", "hdd-15k"].map(plot);
    let published = published::of(PAGES);
    let columns = &published.columns[2..];
    for (row, published) in published.table() {
        let [device, workload] = row[..] else { unreachable!("a device and its workload") };
        let load: PageLoad = published::typed(workload);
        let cells = columns.iter().zip(&published);
        let rates = measure_row(&mut findings, &format!("{device}, {workload}"), cells, progress, |column| {
            let (cache, job) = load.job(device, bytes(column));
            let tested = tested_device(device, cache, settings.seed);
            let basis = tested.basis_of_cell(PAGES, &format!("{device} {column}"), load.fitted_name())?;
            Ok((tested.measure(job)?, basis))
        })?;
        for (_, plot) in plots.iter_mut().filter(|(of, _)| *of == device) {
            let x = |place: usize| bytes(&columns[place]).into();
            plot.series.extend(beside(workload, &rates, &published, x));
        }
    }
    findings.plots = plots.map(|(_, plot)| plot).into();
    Ok(findings)
}

/// Measures the cells of a row, each a column and what is published, says whether they rise and fall as
/// published, and returns the rates.
fn measure_row<'a>(
    findings: &mut Findings,
    row: &str,
    cells: impl Iterator<Item = (&'a String, &'a f64)>,
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

/// A workload of Table 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
enum PageLoad {
    #[serde(rename = "read only, 128 threads")]
    Reads,
    #[serde(rename = "write only, 128 threads")]
    Writes,
    #[serde(rename = "write only, 128 threads, no barrier")]
    WritesWithoutBarrier,
    #[serde(rename = "write only, fsync every write")]
    FlushedWrites,
    #[serde(rename = "write only, fsync every 256 writes")]
    RarelyFlushedWrites,
}

impl PageLoad {
    /// What a profile's list of fitted cells calls it.
    fn fitted_name(self) -> &'static str {
        match self {
            Self::Reads => "read only",
            Self::Writes => "write only",
            Self::WritesWithoutBarrier => "write only without barrier",
            Self::FlushedWrites => "write only, fsync every write",
            Self::RarelyFlushedWrites => "write only, fsync every 256 writes",
        }
    }

    fn job(self, device: &str, request_bytes: u32) -> (Cache, Job) {
        let job = Job { pattern: Pattern::Random, ..Job::writes(request_bytes, 2000, 0..0) };
        let many = Job { threads: 128, operations: 20_000, ..job.clone() };
        match self {
            Self::Reads => (Cache::On, Job { reads_percent: 100, ..many }),
            Self::Writes => (Cache::On, many),
            Self::WritesWithoutBarrier => (Cache::NoBarrier, many),
            Self::FlushedWrites => (Cache::On, Job { flushing: fsync(device, 1), ..job }),
            Self::RarelyFlushedWrites => (Cache::On, Job { flushing: fsync(device, 256), operations: 8192, ..job }),
        }
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
    fn what_the_tables_speak_of_is_known() {
        let rows = |id| published::of(id).table().into_iter().map(|(texts, _)| texts);
        let caches: Vec<Cache> = rows(FSYNC).map(|texts| published::typed(texts[1])).collect();
        assert_eq!(caches.iter().filter(|cache| **cache == Cache::NoBarrier).count(), 1);
        let loads: Vec<PageLoad> = rows(PAGES).map(|texts| published::typed(texts[1])).collect();
        assert_eq!(loads.iter().filter(|load| **load == PageLoad::WritesWithoutBarrier).count(), 1);
        assert!(rows(FSYNC).chain(rows(PAGES)).all(|texts| profile(texts[0]) == texts[0]));
    }

    #[test]
    #[should_panic(expected = "unknown variant `write only, 128 threads, no barriers`")]
    fn a_workload_that_is_misspelt_is_not_measured_as_another() {
        published::typed::<PageLoad>("write only, 128 threads, no barriers");
    }

    #[test]
    fn the_order_of_cells_is_judged_where_the_paper_has_one() {
        assert!(order("", &[1.0, 2.0, 2.01], &[10.0, 20.0, 19.0]).holds);
        assert!(!order("", &[1.0, 2.0, 3.0], &[10.0, 20.0, 19.0]).holds);
    }
}
