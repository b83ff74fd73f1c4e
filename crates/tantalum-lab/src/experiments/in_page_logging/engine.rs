//! Beyond the simulator: the same TPC-C through the engine, in-page logging on the chip against a conventional store on drives
//! and a disk; and the memory that in-page logging takes (section 3.2).

use std::sync::Arc;

use tantalum::TornPageProtection;
use tantalum_flash::{Kind, Profile};
use tantalum_workloads::tpcc::{Parameters, Scale};

use super::super::{Experiment, Settings};
use crate::{
    error::Result,
    finding::{Basis, Bound, Comparison, Findings},
    published,
    scenario::{self, Contents, Data, Drive, Filled, Length, Outcome, Pages, Scenario},
};

pub(super) const EXPERIMENTS: &[Experiment] = &[Experiment { id: MEMORY, profiles: &[CHIP, DISK], run: memory }];

const MEMORY: &str = "ipl.sec32.memory";

pub(super) const CHIP: &str = "nand-k9wag08u1a";
pub(super) const MAPPED: &str = "ssd-2008";
pub(super) const UNITS: &str = "mtron-p35";
pub(super) const DISK: &str = "hdd-7200";

/// A tenth of 1G.20M.100u in everything: one warehouse, 2 MB, 10 users.
const WAREHOUSES: u32 = 1;
const POOL_BYTES: u64 = 2 << 20;
const USERS: usize = 10;
const WARM_UP: u64 = 1000;
const COUNTED: u64 = 2000;

/// Of the chip and of the drive that maps its pages: half more than the database.
const CHIP_BYTES: u64 = 128 << 20;
const DISK_BYTES: u64 = 4 << 30;

/// A store on a device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// In-page logging on the paper's chip.
    SectorsOnChip,
    /// In-page logging on a disk.
    SectorsOnDisk,
    /// In place on a drive that maps pages, of the same flash.
    PagesOnMapped,
    /// The same with a double-write area.
    PagesTwiceOnMapped,
    /// In place on the paper's drive, which rewrites erase units.
    PagesOnUnits,
    /// In place on a disk.
    PagesOnDisk,
}

const PLACES: [Place; 6] = [
    Place::SectorsOnChip,
    Place::PagesOnUnits,
    Place::PagesOnMapped,
    Place::PagesTwiceOnMapped,
    Place::SectorsOnDisk,
    Place::PagesOnDisk,
];

impl Place {
    fn name(self) -> &'static str {
        match self {
            Self::SectorsOnChip => "in-page logging on the chip",
            Self::SectorsOnDisk => "in-page logging on a disk",
            Self::PagesOnMapped => "in place on a page-mapped drive",
            Self::PagesTwiceOnMapped => "in place on a page-mapped drive, with double writes",
            Self::PagesOnUnits => "in place on the block-mapped drive",
            Self::PagesOnDisk => "in place on a disk",
        }
    }

    fn device(self) -> Result<Profile> {
        Ok(match self {
            Self::SectorsOnChip => Profile::named(CHIP)?.with_capacity(CHIP_BYTES),
            Self::PagesOnMapped | Self::PagesTwiceOnMapped => mapped()?,
            Self::PagesOnUnits => Profile::named(UNITS)?,
            Self::SectorsOnDisk | Self::PagesOnDisk => Profile::named(DISK)?.with_capacity(DISK_BYTES),
        })
    }

    fn scenario(self, settings: Settings) -> Result<Scenario> {
        let in_place = |protection| Pages::InPlace { protection, durable_writes: false };
        let pages = match self {
            Self::SectorsOnChip | Self::SectorsOnDisk => Pages::InPageLogging,
            Self::PagesTwiceOnMapped => in_place(TornPageProtection::DoubleWrite),
            Self::PagesOnMapped | Self::PagesOnUnits | Self::PagesOnDisk => in_place(TornPageProtection::TrustDevice),
        };
        let is_filled = matches!(self, Self::PagesOnMapped | Self::PagesTwiceOnMapped);
        let filled = if is_filled { Filled::All } else { Filled::Nothing };
        let contents = Parameters { warehouses: WAREHOUSES, scale: Scale::full(), seed: settings.seed };
        Ok(Scenario {
            page_bytes: 8 << 10,
            buffer_pool_bytes: POOL_BYTES,
            loads_itself: true,
            pages,
            data: Data::Drive(Drive { filled, ..Drive::new(self.device()?) }),
            clients: USERS,
            length: Length::Transactions { warm_up: WARM_UP, counted: COUNTED, with_checkpoints: true },
            ..Scenario::new(Contents::Tpcc(contents), settings.seed)
        })
    }
}

/// A drive whose page mapping stands on the two dies of the same chip, side by side: it maps no pages of 2 KiB.
fn mapped() -> Result<Profile> {
    let mut profile = Profile::named(MAPPED)?.with_capacity(CHIP_BYTES);
    let chip = Profile::named(CHIP)?.device;
    let (Kind::SolidState(drive), Kind::RawFlash(chip)) = (&mut profile.device, chip) else {
        unreachable!("one has a translation layer, the other has none")
    };
    drive.geometry = chip.geometry;
    drive.geometry.page_bytes *= drive.geometry.dies_per_package;
    drive.geometry.spare_bytes *= drive.geometry.dies_per_package;
    drive.geometry.dies_per_package = 1;
    drive.timing = chip.timing;
    drive.wear = chip.wear;
    Ok(profile)
}

/// Runs the engine there.
fn cost(place: Place, settings: Settings, progress: &dyn Fn(&str)) -> Result<Arc<Outcome>> {
    Ok(scenario::run(&[place.scenario(settings)?], progress)?.remove(0))
}

/// How the engine's runs are set up.
fn configuration() -> String {
    format!(
        "through the engine: TPC-C at a tenth of 1G.20M.100u (1 warehouse, a pool of 2 MB, {USERS} users), {COUNTED} transactions \
         after {WARM_UP} of warm-up; the log on a device that takes no time; the chip and the page-mapped drive of its flash with \
         {} MiB each, the drive written once before",
        CHIP_BYTES >> 20
    )
}

/// Figure 7 through the engine, which forces sectors at commits, and reads.
pub(super) fn compare(findings: &mut Findings, settings: Settings, progress: &dyn Fn(&str)) -> Result<()> {
    findings.configuration.push(configuration());
    let costs = PLACES.map(|place| cost(place, settings, progress).map(|cost| (place, cost)));
    let costs: Vec<(Place, Arc<Outcome>)> = costs.into_iter().collect::<Result<_>>()?;
    for (place, cost) in &costs {
        let per_transaction = |count: u64| count as f64 / cost.report.total.committed as f64;
        let name = place.name();
        let work = cost.data;
        for (what, value, unit) in [
            ("time of a transaction", cost.seconds * 1e3 / cost.report.total.committed as f64, "ms"),
            ("read for a transaction", per_transaction(work.host_read_bytes) / 1024.0, "KiB"),
            ("written to the medium for a transaction", per_transaction(work.media_written_bytes) / 1024.0, "KiB"),
            ("erases for a transaction", per_transaction(work.erases), "erases"),
        ] {
            let what = format!("engine, {name}: {what}");
            let row = Comparison::new(what, Bound::Unpublished, value, unit, Basis::Predicted);
            findings.comparisons.push(row);
        }
    }
    let of = |wanted: Place| costs.iter().find(|(place, _)| *place == wanted).map(|(_, cost)| cost);
    let (Some(chip), Some(units)) = (of(Place::SectorsOnChip), of(Place::PagesOnUnits)) else { return Ok(()) };
    let over = |value: fn(&Outcome) -> f64| {
        let per_transaction = |cost: &Outcome| value(cost) / cost.report.total.committed as f64;
        per_transaction(units) / per_transaction(chip)
    };
    let written = over(|cost| cost.data.media_written_bytes as f64);
    let erases = over(|cost| cost.data.erases as f64);
    findings.states("through the engine: an order of magnitude fewer bytes written to flash, and erases, than where erase units are rewritten", written >= 10.0 && erases >= 10.0, format!("1/{written:.1} of the bytes, 1/{erases:.1} of the erases, 1/{:.1} of the time", over(|cost| cost.seconds)));
    Ok(())
}

fn memory(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    /// The shares of dirty pages that the paper speaks of.
    const DIRTY: std::ops::RangeInclusive<f64> = 0.05..=0.2;
    let mut findings = Findings::new(vec![configuration()]);
    let mut row = |what: String, published, value, unit: &str| {
        findings.compared(what, published, value, unit);
    };
    let mut seen = 0;
    for place in [Place::SectorsOnChip, Place::SectorsOnDisk] {
        let cost = cost(place, settings, progress)?;
        let page_bytes = POOL_BYTES as f64 / cost.pool.first().map_or(1.0, |pool| pool.frames as f64);
        // Dirty pages and memory for changes, as shares of the pool.
        let samples = cost.pool.iter().map(|pool| {
            let frames = pool.frames as f64;
            (pool.dirty_pages as f64 / frames, pool.change_bytes as f64 / (frames * page_bytes))
        });
        let samples: Vec<(f64, f64)> = samples.collect();
        let within: Vec<f64> =
            samples.iter().filter(|(dirty, _)| DIRTY.contains(dirty)).map(|sample| sample.1).collect();
        seen += within.len();
        let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
        let name = place.name();
        row(
            format!("{name}: at 5 to 20 % dirty pages, at most"),
            published::of(MEMORY).bound(),
            most(&mut within.iter().copied()),
            "share",
        );
        row(format!("{name}: ever"), Bound::Unpublished, most(&mut samples.iter().map(|sample| sample.1)), "share");
        row(
            format!("{name}: dirty pages, at most"),
            Bound::Unpublished,
            most(&mut samples.iter().map(|sample| sample.0)),
            "share",
        );
    }
    let says = "the pool has between 5 and 20 % dirty pages at times";
    findings.states(says, seen > 0, format!("{seen} of the times that it was looked at"));
    Ok(findings)
}
