//! Does the probe choose well? TPC-C with each page store and log layout on every kind of drive, the best beside what is
//! recommended.

use std::time::Duration;

use tantalum::{Barriers, LogLayout, StoreKind, TornPageProtection};
use tantalum_flash::{Kind, Profile};
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings},
    micro::Data as Filling,
    probe::{self, Advice, Effort},
    published,
    scenario::{self, Contents, Data, Drive, Filled, Length, Log, Pages, Scenario, Segments, in_use, side_by_side},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: CHOICE, profiles: DRIVES, run: choice }];

const CHOICE: &str = "now.probe_choice";

/// All but raw flash, which leaves no choice, and nvme-fdp, which is nvme-plp to all that uses no placement handles.
const DRIVES: &[&str] = &[
    "usb-a",
    "usb-b",
    "usb-c",
    "mtron",
    "mtron-p35",
    "intel-x25e",
    "ocz-vertex-ex",
    "ssd-2008",
    "ssd-a",
    "ssd-b",
    "durassd",
    "nvme-plp",
    "hdd-7200",
    "hdd-10k",
    "hdd-15k",
    "hdd-10k-cached",
    "cloud-volume",
];

const STORES: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging];
const LOGS: [(LogLayout, u32); 4] =
    [(LogLayout::FlashLogging, 1), (LogLayout::FlashLogging, 4), (LogLayout::FlashLogging, 8), (LogLayout::Single, 1)];

const WAREHOUSES: u32 = 5;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 10_000, districts: 10, customers: 300, new_orders: 90 };
const USERS: usize = 16;
const WARM_UP: u64 = 800;
const COUNTED: u64 = 800;

/// Of both drives, if they are flash.
const DRIVE_BYTES: u64 = 128 << 20;
/// By what the memory of a drive is divided that is measured in megabytes.
const MEMORY_SCALE: u32 = 8;
/// What is probed, and what the pages have: with log sectors beside them, up to twice as much.
const USED_BYTES: u64 = 48 << 20;
const WITH_LOG_SECTORS_BYTES: u64 = 112 << 20;
const LOG_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u32 = 256 << 10;
const FILL_PERCENT: u32 = 95;
const BUFFER_BYTES: u64 = 2 << 20;
/// Requests of a measurement of the probe.
const PROBE_OPERATIONS: u64 = 3000;

/// How a database is set up on two drives of a kind, one for the pages and one for the log.
///
/// The part of the drive that is used is probed, and holds the database: both see a drive that was written once, of which the
/// same bytes are in use. Its memory is divided as its size is, or small databases would lie in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Way {
    drive: &'static str,
    store: StoreKind,
    page_bytes: u32,
    layout: LogLayout,
    /// Partitions of the log's drive.
    partitions: u32,
}

impl Way {
    /// Its log, for people.
    fn describe_log(&self) -> String {
        match (self.layout, self.partitions) {
            (LogLayout::FlashLogging, 1) => "log in 1 partition".to_owned(),
            (LogLayout::FlashLogging, partitions) => format!("log in {partitions} partitions"),
            (layout, _) => format!("log {layout}"),
        }
    }

    fn scenario(&self, contents: Parameters) -> Result<Scenario> {
        let Self { store, page_bytes, layout, partitions, .. } = *self;
        let drive = |bytes| -> Result<Drive> {
            let (profile, filled) = used_drive(self.drive)?;
            Ok(Drive { filled, used_bytes: Some(bytes), ..Drive::new(profile) })
        };
        // What in-page logging knows of changes is in its log, so that it cannot go on with another.
        let loads_itself = store == StoreKind::InPageLogging;
        Ok(Scenario {
            page_bytes,
            buffer_pool_bytes: BUFFER_BYTES,
            loads_itself,
            pages: match store {
                StoreKind::InPlace => Pages::InPlace { protection: TornPageProtection::Auto, durable_writes: false },
                StoreKind::LogStructured => Pages::LogStructured(Segments::new(SEGMENT_BYTES, FILL_PERCENT)),
                StoreKind::InPageLogging => Pages::InPageLogging,
            },
            barriers: Barriers::Auto,
            data: Data::Drive(drive(if loads_itself { WITH_LOG_SECTORS_BYTES } else { USED_BYTES })?),
            log: Log::Drive { drive: Box::new(drive(LOG_BYTES)?), layout, partitions },
            clients: USERS,
            length: Length::Transactions { warm_up: WARM_UP, counted: COUNTED, with_checkpoints: false },
            ..Scenario::new(Contents::Tpcc(contents), contents.seed)
        })
    }
}

/// A drive in use, and what of it is written once before.
fn used_drive(profile: &str) -> Result<(Profile, Filled)> {
    let mut profile = in_use(Profile::named(profile)?);
    let is_flash = !matches!(profile.device, Kind::HardDisk(_) | Kind::CloudVolume(_));
    if is_flash {
        profile = profile.with_capacity(DRIVE_BYTES);
    }
    match &mut profile.device {
        Kind::SolidState(drive) => {
            // It has room for two commands.
            let least_bytes = 2 * u64::from(drive.interface.max_command_bytes);
            drive.cache.pool_bytes = (drive.cache.pool_bytes / u64::from(MEMORY_SCALE)).max(least_bytes);
        }
        Kind::BlockSsd(drive) => drive.buffer_kib /= MEMORY_SCALE,
        Kind::BlockMapped(drive) => drive.buffer_kib /= MEMORY_SCALE,
        _ => {}
    }
    Ok((profile, if is_flash { Filled::All } else { Filled::Nothing }))
}

/// For people.
fn set_up() -> String {
    format!(
        "{USERS} users, {COUNTED} transactions after {WARM_UP} of warm-up, a buffer pool of {} MiB; pages and log on a drive each of the kind, \
         {} MiB if it is flash, written once before, its memory an eighth; pages in {} MiB of it, with log sectors in {}; the log in {}",
        BUFFER_BYTES >> 20,
        DRIVE_BYTES >> 20,
        USED_BYTES >> 20,
        WITH_LOG_SECTORS_BYTES >> 20,
        LOG_BYTES >> 20,
    )
}

/// What the probe recommends for each drive.
fn advice(settings: Settings, progress: &dyn Fn(&str)) -> Result<Vec<Advice>> {
    let seed = settings.seed;
    let probed = move |drive: &str| {
        let plan = probe::Plan {
            // Virtual time costs nothing.
            time: Duration::from_secs(3000),
            write_bytes: 64 * USED_BYTES,
            operations: PROBE_OPERATIONS,
            data: Filling::Zeros,
            seed,
            ..probe::Plan::new(Effort::Quick, 0..USED_BYTES)
        };
        let (profile, filled) = used_drive(drive)?;
        Drive { filled, ..Drive::new(profile) }
            .in_simulation("probed", seed, move |device| Ok(Advice::of(&probe::probe(&device, &plan, &|_| ())?)))
    };
    side_by_side(DRIVES.to_vec(), |drive| format!("probe of {drive}"), move |drive| probed(drive), progress)
}

/// What the probe says of a drive, as a way to set up a database.
fn recommended(drive: &'static str, advice: &Advice) -> Way {
    let value = |setting: &str| advice.value(setting).map(|value| value.trim_matches('"').to_owned());
    Way {
        drive,
        // What was not measured is left as it is by default.
        store: value("page_store").and_then(|store| store.parse().ok()).unwrap_or_default(),
        page_bytes: value("page_size").and_then(|bytes| bytes.parse().ok()).unwrap_or(4096),
        layout: LogLayout::FlashLogging,
        partitions: value("log_partitions").and_then(|count| count.parse().ok()).unwrap_or(1),
    }
}

/// All that is tried on a drive: what is recommended first. In-page logging is loaded anew for each run, so it is tried with one
/// log only.
fn candidates(recommended: Way) -> Vec<Way> {
    let mut all = vec![recommended];
    let logs = LOGS.into_iter().chain([(recommended.layout, recommended.partitions)]);
    for (layout, partitions) in logs {
        for store in STORES {
            let one = Way { store, layout, partitions, ..recommended };
            let is_tried = store != StoreKind::InPageLogging
                || (layout, partitions) == (recommended.layout, recommended.partitions);
            if is_tried && !all.contains(&one) {
                all.push(one);
            }
        }
    }
    all
}

fn choice(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let contents = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    let (published, advice) = (published::of(CHOICE), advice(settings, progress)?);
    let rows: Vec<Vec<Way>> =
        DRIVES.iter().zip(&advice).map(|(&drive, advice)| candidates(recommended(drive, advice))).collect();
    let scenarios = rows.concat().iter().map(|way| way.scenario(contents)).collect::<Result<Vec<_>>>()?;
    let rates: Vec<f64> = scenario::run(&scenarios, progress)?.iter().map(|run| run.per_second()).collect();
    let smallest = Way { store: StoreKind::LogStructured, page_bytes: 4096, ..rows[0][0] };
    let loaded = scenario::database_bytes(&smallest.scenario(contents)?, progress)?;
    let mut findings = Findings::new(vec![
            format!("TPC-C, {WAREHOUSES} warehouses of a tenth of the rows, {} MiB; {}", loaded >> 20, set_up()),
            "barriers where the drive needs them, torn pages prevented by the drive where it says that it can, else by double writes; pages \
             of the size that is recommended"
                .into(),
        ]);
    let (mut left, mut reached, mut worst) = (&rates[..], 0, (f64::INFINITY, ""));
    let (mut recommended_rates, mut best_of) = (Vec::new(), STORES.map(|_| Vec::new()));
    for ((row, &drive), advice) in rows.iter().zip(DRIVES).zip(&advice) {
        let (of_row, rest) = left.split_at(row.len());
        left = rest;
        let best = of_row.iter().copied().fold(0.0, f64::max);
        let share = of_row[0] / best;
        reached += usize::from(share >= published.number());
        if share < worst.0 {
            worst = (share, drive);
        }
        let chosen = format!(
            "{drive}: recommended ({}, {}, pages of {})",
            row[0].store,
            row[0].describe_log(),
            row[0].page_bytes
        );
        let compared =
            |what, bound, measured, unit: &str| Comparison::new(what, bound, measured, unit, Basis::Predicted);
        findings.comparisons.push(compared(format!("{chosen} over the best"), published.bound(), share, "ratio"));
        if let Some(costs) = &advice.costs {
            let of_stores = [costs.in_place_ns, costs.log_structured_ns, costs.in_page_logging_ns];
            for (store, nanoseconds) in STORES.iter().zip(of_stores) {
                let what = format!("{drive}: a page written back, by the probe, {store}");
                findings.comparisons.push(compared(what, Bound::Unpublished, nanoseconds / 1e3, "us"));
            }
        }
        for (suited, &rate) in row.iter().zip(of_row) {
            let what = format!("{drive}: {}, {}", suited.store, suited.describe_log());
            findings.comparisons.push(compared(what, Bound::Unpublished, rate, "transactions/s"));
        }
        recommended_rates.push(of_row[0] / best);
        for (store, bars) in STORES.iter().zip(&mut best_of) {
            let of_store = row.iter().zip(of_row).filter(|(suited, _)| suited.store == *store);
            bars.push(of_store.map(|(_, rate)| rate / best).fold(0.0, f64::max));
        }
    }
    findings.states(
        format!("what is recommended reaches {:.0} % of the best on every drive", 100.0 * published.number()),
        reached == DRIVES.len(),
        format!("on {reached} of {}; worst on {}, {:.0} %", DRIVES.len(), worst.1, 100.0 * worst.0),
    );
    let mut series: Vec<Series> =
        STORES.iter().zip(best_of).map(|(store, bars)| Series::bars(format!("{store}, best log"), bars)).collect();
    series.push(Series::bars("recommended", recommended_rates));
    findings.plots.push(Plot::new(
        "Transactions, over those of the best way to set up the database",
        Axis::names("", DRIVES.iter().copied()),
        Axis::linear("ratio", Unit::Number),
        series,
    ));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_recommended_is_tried_once_and_first() {
        let odd = Way {
            drive: DRIVES[0],
            store: StoreKind::LogStructured,
            page_bytes: 8192,
            layout: LogLayout::FlashLogging,
            partitions: 2,
        };
        for recommended in [odd, Way { partitions: 4, store: StoreKind::InPageLogging, ..odd }] {
            let all = candidates(recommended);
            assert_eq!(all[0], recommended);
            assert!(all.iter().enumerate().all(|(place, one)| !all[..place].contains(one)), "{all:?}");
            assert!(STORES.iter().all(|store| all.iter().any(|one| one.store == *store)), "{all:?}");
            assert!(all.iter().any(|one| one.layout == LogLayout::Single), "{all:?}");
        }
    }
}
