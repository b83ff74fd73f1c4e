//! Table 5: YCSB on an append-only tree, by the number of updates for each fsync.

use std::time::Duration;

use serde::Deserialize;
use tantalum_flash::Kind;
use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{
    order,
    scaled_server::{DRIVE, Sizes},
};
use crate::{
    error::Result,
    experiments::Settings,
    finding::{Bound, Findings},
    published,
    scenario::{
        Drive, FileUse, Filled,
        documents::{Store, Updates},
    },
};

pub(super) const COUCHBASE: &str = "ds.table5.couchbase";

/// By what sizes are divided: so little that the tree has the paper's four levels.
const SCALE: u64 = 150;

const GB: u64 = 1_000_000_000;

/// The workload's default in virtual time (`docs/measure/benchmarks.md`).
const CPU_PER_OPERATION: Duration = Duration::from_micros(20);

fn store(settings: Settings) -> Result<Store> {
    let drive = Sizes::drive(480 * GB / SCALE, SCALE)?;
    Ok(Store {
        records: 100 * GB / 1000 / SCALE,
        drive: Drive { filled: Filled::Database, file: FileUse::Growing, ..drive },
        warm_up: 1000,
        counted: 10_000,
        cpu_per_operation: CPU_PER_OPERATION,
        seed: settings.seed,
    })
}

/// Whether the file system flushes the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Barriers {
    On,
    Off,
}

/// What a row of the table is run with; the columns give the updates for each flush.
fn cells(texts: &[&str], columns: &[String]) -> Vec<Updates> {
    let &[barrier, updates] = texts else { unreachable!("a row has two texts") };
    let has_barriers = published::typed::<Barriers>(barrier) == Barriers::On;
    let percent = updates.trim_end_matches('%').parse().expect("a percentage");
    let per_flush = columns.iter().map(|column| column.parse().expect("a number of updates"));
    per_flush.map(|per_flush| Updates { has_barriers, percent, per_flush, reads_count: false }).collect()
}

/// The drive with one processor for its two, twice as fast: of many writes it takes as many, and of one of one sector as long, but one of
/// several sectors has both to itself.
fn shares_commands(drive: &Drive) -> Drive {
    let mut drive = drive.clone();
    let Kind::SolidState(model) = &mut drive.profile.device else { unreachable!("{DRIVE} is a solid-state drive") };
    let interface = &mut model.interface;
    assert_eq!(interface.processors, 2);
    (interface.processors, interface.write_sector_ns) = (1, interface.write_sector_ns / 2);
    interface.command_ns += interface.write_sector_ns;
    drive
}

pub(super) fn couchbase(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let store = store(settings)?;
    progress("loading documents");
    let loaded = store.clone().load()?;
    let sharing = loaded.on(shares_commands(&store.drive));
    let (table, columns) = (published::of(COUCHBASE).table(), &published::of(COUCHBASE).columns[2..]);
    let updates: Vec<Updates> = table.iter().flat_map(|(texts, _)| cells(texts, columns)).collect();
    let runs = loaded.run(&updates, progress)?;
    let bytes = tantalum_report::units::bytes;
    let mut findings = Findings::new(vec![
            format!(
                "all sizes of the paper divided by {SCALE}: {} documents of 1000 bytes, {} with the nodes of {} levels; {:.1} KiB \
                 appended for an update; all nodes in memory",
                store.records,
                bytes(loaded.used_bytes.next_multiple_of(1 << 20)),
                runs[0].levels,
                runs[0].bytes_per_update / 1024.0
            ),
            format!(
                "one thread; {} us of a processor for an operation (assumed); {} operations after {}",
                store.cpu_per_operation.as_micros(),
                store.counted,
                store.warm_up
            ),
            "a file of a file system whose fsync is that of Table 1, but that each one has a new size of the file to commit"
                .into(),
        ]);
    let mut series = Vec::new();
    for ((texts, published), runs) in table.iter().zip(runs.chunks(columns.len())) {
        let name = format!("barrier {}, {} updates", texts[0], texts[1]);
        for ((column, &published), run) in columns.iter().zip(published).zip(runs) {
            let what = format!("{name}, fsync after {column}");
            let value = Bound::Value(published);
            findings.compared(what, value, run.per_second, "operations/s");
        }
        let rates: Vec<f64> = runs.iter().map(|run| run.per_second).collect();
        findings.statements.push(order(&name, published, &rates));
        let line = |rates: &[f64]| {
            let points = rates.iter().enumerate().map(|(place, &rate)| (place as f64, rate)).collect();
            Series::line(&*name, points)
        };
        series.extend([line(&rates), line(published).published()]);
    }
    for ((texts, _), runs) in table.iter().zip(runs.chunks(columns.len())) {
        let (barrier, updates) = (texts[0], texts[1]);
        if updates == "50%" {
            for (column, run) in columns.iter().zip(runs) {
                let what = format!("barrier {barrier}, 50% updates, fsync after {column}: updates alone");
                findings.measured(what, run.updates_per_second, "updates/s");
            }
        }
        let what_ifs = [
            ("reads count", &loaded, updates == "50%", true),
            ("commands shared", &sharing, true, false),
            ("reads count and commands shared", &sharing, updates == "50%", true),
        ];
        for (name, loaded, is_of_these, reads_count) in what_ifs {
            if !is_of_these {
                continue;
            }
            let cells: Vec<_> = cells(texts, columns).into_iter().map(|cell| Updates { reads_count, ..cell }).collect();
            for (column, run) in columns.iter().zip(loaded.run(&cells, progress)?) {
                let what = format!("barrier {barrier}, {updates} updates, {name}, fsync after {column}");
                findings.measured(what, run.per_second, "operations/s");
            }
        }
    }
    let gain =
        |at: usize| runs[at * columns.len() + columns.len() - 1].per_second / runs[at * columns.len()].per_second;
    let [on, half_on, off, half_off] = [0, 1, 2, 3].map(gain);
    findings.states(
        "with barriers, a fsync after 100 updates is more than 20 times as fast as after each",
        on > 20.0 && half_on > 20.0,
        format!("{on:.1} times with 100 % updates, {half_on:.1} times with 50 %"),
    );
    findings.states(
        "without barriers the gap is much narrower",
        off < on / 5.0 && half_off < half_on / 5.0,
        format!("a factor of {off:.2} and {half_off:.2}; published are 2.12 and 2.58"),
    );
    findings.plots.push(Plot::new(
        "YCSB on an append-only tree",
        Axis::names("updates per fsync", columns.iter().map(String::as_str)),
        Axis::log("operations per second", Unit::Number),
        series,
    ));
    Ok(findings)
}
