//! How much a log-structured store writes, and how long a write waits for it, as the device gets fuller.

use tantalum::{Barriers, PageCompression};
use tantalum_flash::Profile;
use tantalum_report::plot::{Axis, Plot, Series, Unit};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Bound, Findings},
    published,
    scenario::{self, Contents, Data, Drive, Filled, Length, Log, Pages, Scenario, Segments},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: SPACE, profiles: DRIVES, run: space_use }];

const SPACE: &str = "now.log_structured_space";

const DRIVES: &[&str] = &["intel-x25e", "ssd-a", "nvme-plp"];
/// Of the device, live at the end if pages are not compressed.
const USES: [u32; 3] = [70, 80, 90];

const PAGE_BYTES: u32 = 4 << 10;
const SEGMENT_BYTES: u32 = 256 << 10;
const BUFFER_BYTES: u64 = 4 << 20;
const WAREHOUSES: u32 = 10;
const ROWS_OF_A_WAREHOUSE: Scale = Scale { items: 10_000, districts: 10, customers: 300, new_orders: 90 };
const USERS: usize = 16;
const WARM_UP: u64 = 12_000;
const COUNTED: u64 = 8_000;
/// Of a device with room for the database many times over.
const LARGE_BYTES: u64 = 1 << 30;

fn scenario(drive: &str, drive_bytes: u64, compression: PageCompression, settings: Settings) -> Result<Scenario> {
    let contents = Parameters { warehouses: WAREHOUSES, scale: ROWS_OF_A_WAREHOUSE, seed: settings.seed };
    let drive = Drive::new(Profile::named(drive)?.with_capacity(drive_bytes));
    Ok(Scenario {
        page_bytes: PAGE_BYTES,
        buffer_pool_bytes: BUFFER_BYTES,
        pages: Pages::LogStructured(Segments { compression, ..Segments::new(SEGMENT_BYTES, 95) }),
        barriers: Barriers::TrustDevice,
        data: Data::Drive(Drive { filled: Filled::All, ..drive }),
        log: Log::Instant(4 << 30),
        clients: USERS,
        length: Length::Transactions { warm_up: WARM_UP, counted: COUNTED, with_checkpoints: false },
        ..Scenario::new(Contents::Tpcc(contents), settings.seed)
    })
}

/// What is live at the end on each drive, if it is large and pages are not compressed: the tables, and rows that wait in the change buffer,
/// of which there are more on a slow drive.
fn live_bytes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Vec<u64>> {
    let large = |drive: &&str| {
        let scenario = scenario(drive, LARGE_BYTES, PageCompression::None, settings)?;
        let data = Drive::new(Profile::named(drive)?.with_capacity(LARGE_BYTES));
        Ok(Scenario { data: Data::Drive(data), ..scenario })
    };
    let runs = scenario::run(&DRIVES.iter().map(large).collect::<Result<Vec<_>>>()?, progress)?;
    Ok(runs.iter().map(|run| run.done.store.log_structured.expect("the store is log-structured").live_bytes).collect())
}

/// Pages written for each that is stored, if stores hit all pages alike and segments are cleaned in the order in which they
/// were written: with a live share `used` of the device, that of a segment at its turn is the `u` of `used = (u - 1) / ln u`,
/// and each page stored takes `1 / (1 - u)`.
fn at_random(used: f64) -> f64 {
    let (mut low, mut high) = (1e-9, 1.0 - 1e-9);
    for _ in 0..100 {
        let middle: f64 = (low + high) / 2.0;
        if (middle - 1.0) / middle.ln() < used { low = middle } else { high = middle }
    }
    1.0 / (1.0 - low)
}

fn space_use(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let live = live_bytes(settings, progress)?;
    let mut findings = Findings::new(vec![format!(
        "TPC-C, {WAREHOUSES} warehouses of a tenth of the rows, {USERS} users, pages of 4 KiB in a pool of {} MiB, {COUNTED} \
             transactions after {WARM_UP} of warm-up; segments of {} KiB; drives written once before; the log on a device that takes \
             no time, and so does compression",
        BUFFER_BYTES >> 20,
        SEGMENT_BYTES >> 10
    )]);
    let variants = PageCompression::ALL.map(|compression| USES.map(|used| (compression, used))).concat();
    let of_drive = |(drive, live): (&&str, u64)| {
        let bytes = |used: u32| (live * 100 / u64::from(used)).next_multiple_of(1 << 20);
        let scenario = |&(compression, used): &_| scenario(drive, bytes(used), compression, settings);
        variants.iter().map(scenario).collect::<Vec<_>>()
    };
    let all = DRIVES.iter().zip(live).flat_map(of_drive);
    let runs = scenario::run(&all.collect::<Result<Vec<_>>>()?, progress)?;
    let mut row = |what: String, published, value, unit: &str| {
        findings.compared(what, published, value, unit);
    };
    let (mut curves, mut is_no_worse) = (Vec::new(), true);
    for (&drive, runs) in DRIVES.iter().zip(runs.chunks_exact(variants.len())) {
        let mut curve = Vec::new();
        for (&(compression, used), run) in variants.iter().zip(runs) {
            let store = run.done.store.log_structured.expect("the store is log-structured");
            let is_plain = compression == PageCompression::None;
            let what =
                if is_plain { format!("{drive}, {used} %") } else { format!("{drive}, {used} %, {compression}") };
            let share = store.live_bytes as f64 / (store.segments * u64::from(SEGMENT_BYTES)) as f64;
            let moved = 1.0 + store.pages_moved as f64 / store.pages_stored.max(1) as f64;
            let bound = at_random(share);
            if is_plain {
                is_no_worse &= moved <= bound;
                curve.push((100.0 * share, moved));
            }
            let stored = store.stored_share(PAGE_BYTES).unwrap_or(1.0) * f64::from(PAGE_BYTES);
            row(format!("{what}: bytes of a page as it is stored"), Bound::Unpublished, stored, "bytes");
            row(format!("{what}: live at the end"), Bound::Unpublished, 100.0 * share, "%");
            row(format!("{what}: pages written for each stored"), Bound::Unpublished, moved, "ratio");
            row(format!("{what}: the same if stores were at random"), Bound::Unpublished, bound, "ratio");
            let written = store.write_amplification(PAGE_BYTES).unwrap_or(0.0);
            row(format!("{what}: bytes written for each of pages"), Bound::Unpublished, written, "ratio");
            let fill = 100.0 * store.cleaned_fill().unwrap_or(0.0);
            row(format!("{what}: live in cleaned segments"), Bound::Unpublished, fill, "%");
            row(format!("{what}: waits for a free segment"), Bound::Unpublished, store.waits as f64, "waits");
            let longest = store.longest_wait_us as f64 / 1e3;
            row(format!("{what}: longest wait for a free segment"), published::of(SPACE).bound(), longest, "ms");
            row(format!("{what}: new orders a minute"), Bound::Unpublished, run.new_orders_per_minute(), "NOTPM");
        }
        curves.push(Series::line(drive, curve));
    }
    let bound = (60..=95).map(|used| (f64::from(used), at_random(f64::from(used) / 100.0))).collect();
    curves.push(Series::line("stores at random", bound));
    findings.states(
        "what changes often is kept apart: fewer pages are written than with stores at random",
        is_no_worse,
        if is_no_worse { "on all drives, however full" } else { "not everywhere" },
    );
    findings.plots.push(Plot::new(
        "Pages written for each that is stored",
        Axis::linear("live, % of the device", Unit::Number),
        Axis::linear("pages", Unit::Number),
        curves,
    ));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::at_random;

    #[test]
    fn the_bound_is_that_of_cleaning_in_order() {
        for (used, expected) in [(0.5, 1.255), (0.8, 2.69), (0.9, 5.18)] {
            assert!((at_random(used) - expected).abs() < 0.02, "{used}: {}", at_random(used));
        }
    }
}
