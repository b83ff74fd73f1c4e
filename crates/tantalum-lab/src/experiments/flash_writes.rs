//! How much a drive's flash is written, and what clients make of it, when the drive is nearly full: pages in place, with double writes and
//! without, and log-structured.

use std::sync::Arc;

use tantalum::{Barriers, PageCompression, PageStreams, TornPageProtection};
use tantalum_flash::{Kind, Profile};
use tantalum_workloads::{
    tpcc::{self, Scale},
    ycsb::{self, Chooser},
};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{self, Contents, Data, Drive, Filled, Length, Log, Outcome, Pages, Scenario, Segments},
};

pub(super) const EXPERIMENTS: &[Experiment] =
    &[Experiment { id: WRITES, profiles: &[PLAIN, PLACING], run: flash_writes }];

const WRITES: &str = "now.flash_writes";

const PLAIN: &str = "nvme-plp";
/// The same with placement handles.
const PLACING: &str = "nvme-fdp";
/// Of the drive, live at the end if pages are not compressed.
const USES: [u32; 3] = [70, 80, 90];

/// What the drive erases at a time, and the store's segments unless said: the drive has a thousand and more. It is one block of one plane, since
/// larger drives write the blocks of all their planes in turn.
const UNIT_BYTES: u32 = 256 << 10;
/// Of the drive's memory for writes: small beside the drive, as in larger ones.
const DRIVE_BUFFER_BYTES: u64 = 1 << 20;

const PAGE_BYTES: u32 = 4 << 10;
const BUFFER_BYTES: u64 = 12 << 20;
const USERS: usize = 32;
/// Of a device with room for the database many times over.
const LARGE_BYTES: u64 = 1 << 30;

/// Before what is counted, the drive is written so many times its size.
const DRIVES_BEFORE: u64 = 4;

const RECORDS: u64 = 200_000;
const WAREHOUSES: u32 = 20;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 10_000, districts: 10, customers: 300, new_orders: 90 };

/// What clients do.
#[derive(Debug, Clone, Copy)]
struct Load {
    name: &'static str,
    contents: Contents,
    /// Transactions before those that are counted, where the database grows by them. Where it does not, the drive is written
    /// [`DRIVES_BEFORE`] times.
    warm_up: Option<u64>,
    counted: u64,
}

fn loads(seed: u64) -> [Load; 4] {
    let ycsb = |name, chooser, random_percent| {
        let records = ycsb::Parameters { seed, random_percent, ..ycsb::Parameters::new(RECORDS) };
        Load { name, contents: Contents::Ycsb { records, chooser }, warm_up: None, counted: 200_000 }
    };
    let warehouses = tpcc::Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed };
    [
        ycsb("YCSB-A", Chooser::Zipfian, 100),
        ycsb("YCSB-A, half repeats", Chooser::Zipfian, 50),
        ycsb("uniform", Chooser::Uniform, 100),
        Load { name: "TPC-C", contents: Contents::Tpcc(warehouses), warm_up: Some(45_000), counted: 10_000 },
    ]
}

/// How pages are stored, and on which drive.
#[derive(Debug, Clone, Copy)]
struct Store {
    name: &'static str,
    pages: Pages,
    drive: &'static str,
}

const STORES: [Store; 12] = [
    Store { name: "in place, double writes", pages: in_place(TornPageProtection::DoubleWrite), drive: PLAIN },
    Store { name: "in place", pages: in_place(TornPageProtection::TrustDevice), drive: PLAIN },
    Store { name: "two streams", pages: Pages::LogStructured(TWO_STREAMS), drive: PLAIN },
    Store { name: "two, discards", pages: Pages::LogStructured(DISCARDS), drive: PLAIN },
    Store { name: "two, discards, lz4", pages: Pages::LogStructured(compressed(DISCARDS)), drive: PLAIN },
    Store { name: "one, discards", pages: Pages::LogStructured(ONE_STREAM), drive: PLAIN },
    Store { name: "one, discards, of two", pages: Pages::LogStructured(OF_TWO_UNITS), drive: PLAIN },
    Store { name: "one, discards, of two, lz4", pages: Pages::LogStructured(compressed(OF_TWO_UNITS)), drive: PLAIN },
    Store { name: "one, discards, of four", pages: Pages::LogStructured(OF_FOUR_UNITS), drive: PLAIN },
    Store { name: "one, discards, of four, lz4", pages: Pages::LogStructured(compressed(OF_FOUR_UNITS)), drive: PLAIN },
    Store { name: "six, discards, placement", pages: Pages::LogStructured(SIX_STREAMS), drive: PLACING },
    Store { name: BEST, pages: Pages::LogStructured(compressed(SIX_STREAMS)), drive: PLACING },
];
/// Where it is the best, the goals count.
const BEST: &str = "six, discards, placement, lz4";

/// New pages in one stream and moved ones in another, and the drive knows of no free segments.
const TWO_STREAMS: Segments = Segments::new(UNIT_BYTES, 95);
const DISCARDS: Segments = Segments { discards: true, ..TWO_STREAMS };
/// All pages in one.
const ONE_STREAM: Segments = Segments { streams: PageStreams::One, ..DISCARDS };
/// The same in longer segments, of which fewer units have a part of another.
const OF_TWO_UNITS: Segments = Segments { bytes: 2 * UNIT_BYTES, ..ONE_STREAM };
const OF_FOUR_UNITS: Segments = Segments { bytes: 4 * UNIT_BYTES, ..ONE_STREAM };
/// Pages apart by how long they are expected to live.
const SIX_STREAMS: Segments = Segments { streams: PageStreams::ByLifetime, ..DISCARDS };

const fn compressed(segments: Segments) -> Segments {
    Segments { compression: PageCompression::Lz4, ..segments }
}

/// Those that fit on the drive: of a fuller one, what the store keeps free would be too much with the longest segments.
fn stores(used: u32) -> Vec<Store> {
    let fits = |store: &Store| match store.pages {
        Pages::LogStructured(segments) => used < 90 || segments.bytes <= 2 * UNIT_BYTES,
        _ => true,
    };
    STORES.into_iter().filter(fits).collect()
}

const fn in_place(protection: TornPageProtection) -> Pages {
    Pages::InPlace { protection, durable_writes: false }
}

/// The drive with small erase units, so that it has many.
fn drive(name: &str, capacity_bytes: u64) -> Result<Drive> {
    let mut profile = Profile::named(name)?.with_capacity(capacity_bytes);
    let Kind::SolidState(drive) = &mut profile.device else { unreachable!("{name} is a solid-state drive") };
    drive.geometry.channels = 1;
    drive.geometry.packages_per_channel = 1;
    drive.geometry.dies_per_package = 1;
    drive.geometry.planes_per_die = 1;
    drive.geometry.pages_per_block = UNIT_BYTES / drive.geometry.page_bytes;
    drive.cache.pool_bytes = DRIVE_BUFFER_BYTES;
    Ok(Drive { filled: Filled::Database, ..Drive::new(profile) })
}

fn scenario(load: Load, store: Store, drive_bytes: u64, settings: Settings) -> Result<Scenario> {
    let counted = load.counted;
    Ok(Scenario {
        page_bytes: PAGE_BYTES,
        buffer_pool_bytes: BUFFER_BYTES,
        pages: store.pages,
        barriers: Barriers::TrustDevice,
        data: Data::Drive(drive(store.drive, drive_bytes)?),
        log: Log::Instant(256 << 20),
        clients: USERS,
        length: match load.warm_up {
            Some(warm_up) => Length::Transactions { warm_up, counted, with_checkpoints: false },
            None => Length::AfterWrites { bytes: DRIVES_BEFORE * drive_bytes, counted },
        },
        ..Scenario::new(load.contents, settings.seed)
    })
}

/// What is live at the end, if the drive is large and pages are not compressed.
fn live_bytes(load: Load, settings: Settings, progress: &dyn Fn(&str)) -> Result<u64> {
    // Transactions of YCSB leave as much live as there was.
    let of_transactions = Load { warm_up: Some(load.warm_up.unwrap_or(0)), ..load };
    let large = scenario(of_transactions, STORES[2], LARGE_BYTES, settings)?;
    let runs = scenario::run(&[Scenario { data: Data::Instant(LARGE_BYTES), ..large }], progress)?;
    Ok(runs[0].after.store.log_structured.expect("the store is log-structured").live_bytes)
}

/// Bytes that the flash was written, for each byte of pages that were stored.
fn flash_writes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(vec![format!(
        "YCSB-A (Zipf, the same with values of which half repeats, and uniform) with {RECORDS} records, TPC-C with {WAREHOUSES} \
             warehouses of a tenth of the rows; {USERS} users, pages of 4 KiB in a pool of {} MiB; {PLAIN} and {PLACING} with erase units of {} KiB, and segments as large, or two or four times (\"of two\", \"of four\"); the log \
             on a device that takes no time, and so does compression",
        BUFFER_BYTES >> 20,
        UNIT_BYTES >> 10
    )]);
    for load in loads(settings.seed) {
        let live = live_bytes(load, settings, progress)?;
        for used in USES {
            let drive_bytes = (live * 100 / u64::from(used)).next_multiple_of(1 << 20);
            let stores = stores(used);
            let scenarios = stores.iter().map(|&store| scenario(load, store, drive_bytes, settings));
            let runs = scenario::run(&scenarios.collect::<Result<Vec<_>>>()?, progress)?;
            compare(&mut findings, load, used, drive_bytes, &stores.iter().zip(&runs).collect::<Vec<_>>());
        }
    }
    Ok(findings)
}

fn compare(findings: &mut Findings, load: Load, used: u32, drive_bytes: u64, runs: &[(&Store, &Arc<Outcome>)]) {
    let programmed = |run: &Outcome| run.per_transaction(run.data.media_written_bytes);
    for (Store { name: store, pages, .. }, run) in runs {
        let mut row = |what: &str, value, unit| {
            findings.measured(format!("{}, {used} %, {what}: {store}", load.name), value, unit);
        };
        let (stored, host) = (run.done.store.pages_stored, run.data.host_written_bytes as f64);
        row("transactions a second", run.per_second(), "tx/s");
        row("flash written a transaction", programmed(run), "bytes");
        row("written before, times the drive", run.written_before as f64 / drive_bytes as f64, "times");
        row("pages stored a transaction", run.per_transaction(stored), "pages");
        row("written by the store for each byte of pages", host / (stored * u64::from(PAGE_BYTES)) as f64, "ratio");
        row("written by the drive for each byte that it got", run.data.media_written_bytes as f64 / host, "ratio");
        if let (Some(store), Pages::LogStructured(segments)) = (run.done.store.log_structured, pages) {
            let share = store.live_bytes as f64 / (store.segments * u64::from(segments.bytes)) as f64;
            row("live in segments at the end", 100.0 * share, "%");
            let stored = store.stored_share(PAGE_BYTES).unwrap_or(1.0);
            row("bytes stored of each of a page", stored, "share");
        }
    }
    let goals = published::of(WRITES).table();
    let (_, double_writes) = runs[0];
    for (Store { name: store, .. }, run) in &runs[1..] {
        let is_goal = used == USES[USES.len() - 1] && *store == BEST;
        let goal = goals.iter().find(|(names, _)| is_goal && names[..] == [load.name]);
        let bounds = goal.map_or([Bound::Unpublished; 2], |(_, numbers)| [numbers[0], numbers[1]].map(Bound::Min));
        let saved = programmed(double_writes) / programmed(run);
        let gained = run.per_second() / double_writes.per_second();
        for ((what, value), bound) in [("fewer flash writes", saved), ("throughput", gained)].into_iter().zip(bounds) {
            let what = format!("{}, {used} %, {what} than with double writes: {store}", load.name);
            findings.compared(what, bound, value, "times");
        }
    }
}
