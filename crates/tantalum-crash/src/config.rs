//! What a seed decides before anything runs: the devices, the engine's options, the clients.

use std::{ops::Range, time::Duration};

use serde::{Deserialize, Serialize};
use tantalum::LogHiding;
use tantalum_device::{MemoryProfile, TearUnit, WriteCache};
use tantalum_flash::{Kind, Profile, Shape};
use tantalum_rt::Random;

use crate::{
    faults,
    load::{Load, LoadKind},
    scope::{Scope, Stock},
    segments::Segments,
    writing::Writing,
};

/// A data device of memory grows from this.
const FIRST_DATA_BYTES: u64 = 1 << 20;

/// How torn pages are prevented.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Protection {
    /// A double-write area, on a data device that tears.
    DoubleWrite,
    /// Full page images in the log, on a data device that tears.
    FullPageImages,
    /// A data device that writes pages atomically.
    Device,
    /// None, and the page store is that of in-page logging, which writes over no page.
    InPageLogging,
    /// None, and the page store is log-structured: it writes over no page either.
    LogStructured,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::DoubleWrite, Self::FullPageImages, Self::Device, Self::InPageLogging, Self::LogStructured];

    /// Its name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::DoubleWrite => "double-write",
            Self::FullPageImages => "full-page-images",
            Self::Device => "device",
            Self::InPageLogging => "in-page-logging",
            Self::LogStructured => "log-structured",
        }
    }
}

tantalum_device::named_field!(Protection);

/// Where the log lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LogLayout {
    /// Each log device is a device of its own.
    Devices(usize),
    /// The log devices are partitions of one device.
    Partitions(usize),
    /// As conventional logs lie: one device with overlapping writes, or so many striped in units of so many bytes.
    Single,
    Striped(usize, u32),
}

impl LogLayout {
    /// How many devices it lies on.
    pub fn devices(self) -> usize {
        match self {
            Self::Devices(n) | Self::Striped(n, _) => n,
            Self::Partitions(_) | Self::Single => 1,
        }
    }

    /// Into how many partitions its one device is cut.
    pub fn partitions(self) -> Option<usize> {
        match self {
            Self::Partitions(n) => Some(n),
            Self::Devices(_) | Self::Single | Self::Striped(..) => None,
        }
    }

    /// As an option of the engine.
    pub fn of_engine(self) -> tantalum::LogLayout {
        match self {
            Self::Devices(_) | Self::Partitions(_) => tantalum::LogLayout::FlashLogging,
            Self::Single => tantalum::LogLayout::Single,
            Self::Striped(_, unit_bytes) => tantalum::LogLayout::Striped { unit_bytes },
        }
    }
}

/// One device.
#[derive(Clone, Debug)]
pub(crate) struct Drive {
    /// Its name among the devices.
    pub name: String,
    /// The name of its profile.
    pub profile: String,
    pub kind: DriveKind,
    /// How long a small durable write takes, about.
    pub latency: Duration,
    /// How long it takes to answer when power returns.
    pub start_latency: Duration,
    /// Whether it loses what it says is durable.
    pub is_unsafe: bool,
}

#[derive(Clone, Debug)]
pub(crate) enum DriveKind {
    Memory(MemoryProfile),
    /// The profile holds its faults.
    Emulated {
        profile: Box<Profile>,
        sends_barriers: bool,
    },
}

/// The archive of the log.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub drive: Drive,
    /// How many times as large as the log's devices together it is.
    pub logs: u64,
    /// One in so many power cuts takes all log devices, never to be seen again; 0 for none.
    pub loses_log_one_in: u8,
}

/// The options of in-page logging.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Units {
    /// Bytes of an erase unit.
    pub unit: u32,
    /// Bytes of the log region in it.
    pub region: u32,
    /// What a merge carries over at most.
    pub carry_over_percent: u32,
}

/// Everything that stays the same through a seed's rounds.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    /// How torn pages are prevented.
    pub protection: Protection,
    /// The engine's options for writing pages.
    pub writing: Writing,
    /// How the store of in-page logging cuts the data device, if it is that.
    pub units: Option<Units>,
    /// How the log-structured store cuts and uses the data device, if it is that.
    pub segments: Option<Segments>,
    /// Bytes of a page.
    pub page_size: usize,
    /// Frames of the buffer pool.
    pub pool_pages: usize,
    /// Where the log lies.
    pub log: LogLayout,
    /// Bytes of each log device or partition.
    pub log_bytes: u64,
    /// What happens to late log writes: when the log is created, which decides whether it has hiding areas, and when it is opened.
    pub log_hiding: [LogHiding; 2],
    /// On how many log devices a commit must be. With two, a power cut may take one.
    pub log_copies: u8,
    /// Bytes of a data device that cannot grow.
    pub data_bytes: u64,
    /// Bytes of one that can, at first.
    pub first_data_bytes: u64,
    /// The data device.
    pub data: Drive,
    /// The device of the double-write area, if there is one.
    pub double_write: Option<Drive>,
    /// Its bytes.
    pub double_write_bytes: u64,
    /// The log devices; with partitions, one.
    pub logs: Vec<Drive>,
    /// Devices that may become log devices. If there are any, log devices also leave.
    pub spares: Vec<Drive>,
    /// Where the log is archived, if it is.
    pub archive: Option<Archive>,
    /// Which faults were chosen for the devices.
    pub faults: faults::Choice,
    /// Whether read-write transactions are serializable; else snapshot isolated.
    pub is_serializable: bool,
    /// Whether locks are released when the commit is in the log, and not only when it is durable.
    pub early_lock_release: bool,
    /// Whether commits panic, one in a round at most.
    pub panics: bool,
    /// Virtual processor cores.
    pub cores: usize,
    /// Power cuts, recoveries and checks.
    pub rounds: usize,
    /// Whether rounds follow in which a checker task checks the database beside clients that also create and drop tables.
    pub checks_beside_clients: bool,
    /// Whether a compactor task compacts the database beside clients that also create and drop tables.
    pub compacts_beside_clients: bool,
    /// Whether pages are written before the clients begin until segments of the log-structured store are cleaned.
    pub uses_up_segments: bool,
    /// Whether the power goes while the head of a log-structured store is written: superblocks, and the root of the page map.
    pub cuts_at_head: bool,
    /// Whether starts follow in which the database is closed beside clients.
    pub closes_beside_clients: bool,
    /// What clients do.
    pub load: Load,
}

impl Config {
    /// What `seed` decides within `scope`.
    pub fn new(seed: u64, scope: &Scope) -> Self {
        let mut random = Random::with_seed(seed);
        let page_size = [4096, 4096, 4096, 8192, 16384][random.usize(0..5)];
        let devices = random.usize(1..=4);
        let load = Load::new(&mut random, page_size);
        let faults = faults::Choice::new(&mut random, &scope.options.faults);
        let mut chooser = Chooser { seed, scope, faults: &faults, volatile_cache: random.u8(0..4) > 0, made: 0 };
        let data = scope.pick(&mut random);
        let protection = Self::protection(&mut random, scope, data, page_size);
        let mut store = Random::with_seed(seed ^ 0x1091_0600);
        let protection = if store.u8(0..4) == 0 { Protection::InPageLogging } else { protection };
        let is_in_page = protection == Protection::InPageLogging;
        let mut cutter = Random::with_seed(seed ^ 0x1f5_1992);
        let protection = if !is_in_page && cutter.u8(0..5) == 0 { Protection::LogStructured } else { protection };
        // Only memory can grow, and what is new to a file makes a difference to the double-write area only.
        let mut growing = Random::with_seed(seed ^ 0x9_600d);
        let may_grow =
            protection == Protection::DoubleWrite && scope.stock[0].profile.is_none() && load.kind == LoadKind::Mixed;
        let (data, load) = match may_grow && growing.bool() {
            true => (0, load.growing(&mut growing, page_size)),
            false => (data, load),
        };
        let holds_snapshots = load.kind == LoadKind::Mixed && Random::with_seed(seed ^ 0x01d_5ee5).u8(0..5) == 0;
        let load = if holds_snapshots { load.holding_snapshots() } else { load };
        let stages = load.kind != LoadKind::Uniform && Random::with_seed(seed ^ 0x57_a6ed).u8(0..4) == 0;
        let load = if stages { load.staging() } else { load };
        let streams = load.kind == LoadKind::Mixed && Random::with_seed(seed ^ 0xf11_b0b5).u8(0..4) == 0;
        let load = if streams { load.streaming() } else { load };
        let edits = load.kind != LoadKind::Uniform && Random::with_seed(seed ^ 0xed_17ed).u8(0..3) == 0;
        let load = if edits { load.editing_rows(page_size) } else { load };
        let bulk_loads = load.varies() && !streams && Random::with_seed(seed ^ 0xb01d_0394).u8(0..4) == 0;
        let load = if bulk_loads { load.loading_in_bulk() } else { load };
        let load = load.with_calls(seed);
        let segments = (protection == Protection::LogStructured).then(|| Segments::new(&mut cutter, page_size as u32));
        let segments = if scope.zoned.is_empty() { segments.map(Segments::without_zones) } else { segments };
        let raw = (is_in_page && !scope.raw.is_empty() && store.bool()).then(|| store.usize(0..scope.raw.len()));
        // Nor can anything else shrink.
        let may_shrink = is_in_page && raw.is_none() && scope.stock[0].profile.is_none();
        let gives_units_back = may_shrink && Random::with_seed(seed ^ 0x5412_1e6e).u8(0..4) == 0;
        let data = if gives_units_back { 0 } else { data };
        let data_shape = raw.map_or(scope.stock[data].shape, |raw| scope.raw[raw].shape);
        let units = is_in_page.then(|| Units::new(&mut store, page_size as u32, data_shape));
        let is_atomic = match data_shape {
            Some(shape) => shape.atomic_write_bytes as usize >= page_size,
            None => protection == Protection::Device,
        };
        let writing = Writing::new(seed, protection, is_atomic, scope.options.trusts_devices);
        let tears = match protection {
            Protection::Device => TearUnit::Atomic(page_size as u32),
            _ => TearUnit::Sector512,
        };
        let data_latency = latency(&mut random);
        let stock = raw.map_or(&scope.stock[data], |raw| &scope.raw[raw]);
        let data = chooser.drive("data", stock, &data_latency, tears, &mut random);
        let data = match segments.filter(|segments| segments.has_zones()) {
            Some(segments) => chooser.zoned_drive("data", segments),
            None => data,
        };
        let double_write = (protection == Protection::DoubleWrite).then(|| {
            let stock = &scope.stock[scope.pick(&mut random)];
            chooser.drive("doublewrite", stock, &data_latency, TearUnit::Sector512, &mut random)
        });
        let log = if random.u8(0..4) == 0 { LogLayout::Partitions(devices) } else { LogLayout::Devices(devices) };
        let log_latency = latency(&mut random);
        // As often devices of one kind as any mixture of them.
        let (mut is_mixed, mut first) = (random.bool(), scope.pick(&mut random));
        if load.kind == LoadKind::Uniform && scope.stock[0].profile.is_none() && random.bool() {
            // What a cut leaves out of order needs latencies as different as only memory's.
            (is_mixed, first) = (false, 0);
        }
        // By a generator of its own: what a seed decided before there were these is as it was.
        let mut comparison = Random::with_seed(seed ^ 0x5ca1_ab1e);
        let log = match comparison.u8(0..16) {
            // Its overlapping writes need sectors that are old or new after a power cut.
            0 if !chooser.faults.garble_sectors() => LogLayout::Single,
            1 => LogLayout::Striped(devices, [4096, 16384, 65536][comparison.usize(0..3)]),
            _ => log,
        };
        let logs = (0..log.devices()).map(|n| {
            let stock = if n > 0 && is_mixed { scope.pick(&mut random) } else { first };
            chooser.drive(&format!("log-{n}"), &scope.stock[stock], &log_latency, TearUnit::Sector512, &mut random)
        });
        let logs = logs.collect();
        let mut coming = Random::with_seed(seed ^ 0xc0_ffee);
        let spares = match log {
            LogLayout::Devices(_) => [0, 0, 1, 2][coming.usize(0..4)],
            LogLayout::Partitions(_) | LogLayout::Single | LogLayout::Striped(..) => 0,
        };
        let spares = (log.devices()..log.devices() + spares).map(|n| {
            let stock = if is_mixed { scope.pick(&mut coming) } else { first };
            chooser.drive(&format!("log-{n}"), &scope.stock[stock], &log_latency, TearUnit::Sector512, &mut coming)
        });
        let spares = spares.collect();
        let is_several = matches!(log, LogLayout::Devices(2..));
        let log_copies = if is_several && Random::with_seed(seed ^ 0x7_0ff).u8(0..3) == 0 { 2 } else { 1 };
        let mut archiving = Random::with_seed(seed ^ 0xa2c1_17e5);
        let archive = (archiving.bool() && !is_in_page).then(|| {
            let stock = if is_mixed { scope.pick(&mut archiving) } else { first };
            let latency = latency(&mut archiving);
            let drive = chooser.drive("archive", &scope.stock[stock], &latency, TearUnit::Sector512, &mut archiving);
            let logs = archiving.u64(1..=3);
            // An archive that failed covers nothing.
            let covers_log = !drive.may_fail();
            let loses_log_one_in = [0, 2, 4][archiving.usize(0..3)] * u8::from(covers_log);
            Archive { drive, logs, loses_log_one_in }
        });
        let mut ending = Random::with_seed(seed ^ 0xc105_e000);
        let can_shrink = matches!(data.kind, DriveKind::Memory(_));
        Self {
            protection,
            writing,
            page_size,
            pool_pages: 64 + random.usize(0..=64),
            log,
            // A section must hold a page's image several times over.
            log_bytes: (page_size as u64 / 4096) * random.u64(128..=256) * 4096,
            log_hiding: match random.usize(0..5) {
                0..3 => [LogHiding::On, LogHiding::On],
                3 => [LogHiding::Off, LogHiding::On],
                _ => [LogHiding::Off, LogHiding::Off],
            },
            log_copies,
            units,
            segments,
            data_bytes: match (units, segments) {
                (Some(units), _) => units.device_bytes(load.data_bytes(page_size)),
                (None, Some(segments)) => segments.device_bytes(load.data_bytes(page_size)),
                (None, None) => load.data_bytes(page_size),
            },
            first_data_bytes: segments.map_or(FIRST_DATA_BYTES, Segments::first_bytes),
            data,
            double_write,
            // Enough for one slot, for some, and for all that an area can have, or nearly.
            double_write_bytes: [512 << 10, 1 << 20, 4 << 20][Random::with_seed(seed ^ 0x5107).usize(0..3)]
                * (page_size as u64 / 4096),
            logs,
            spares,
            archive,
            is_serializable: random.u8(0..4) > 0,
            early_lock_release: random.u8(0..4) > 0,
            checks_beside_clients: ending.u8(0..3) == 0,
            closes_beside_clients: ending.u8(0..3) == 0,
            // Of the devices that can give space back.
            compacts_beside_clients: gives_units_back
                || can_shrink && Random::with_seed(seed ^ 0xc0_4bac).u8(0..3) == 0,
            // Most loads write too few pages for that.
            uses_up_segments: segments.is_some() && Random::with_seed(seed ^ 0xc4ec_4b01).u8(0..4) == 0,
            cuts_at_head: segments.is_some() && Random::with_seed(seed ^ 0x4ead_5107).u8(0..4) == 0,
            panics: Random::with_seed(seed ^ 0x9a_21c5).u8(0..8) == 0,
            cores: random.usize(1..=4),
            rounds: match load.kind {
                LoadKind::Mixed => random.usize(2..=4),
                LoadKind::Uniform => random.usize(8..=16),
                LoadKind::Growing => growing.usize(6..=12),
            },
            load,
            faults,
        }
    }

    /// One of those that the data device allows.
    fn protection(random: &mut Random, scope: &Scope, data: usize, page_size: usize) -> Protection {
        let shape = scope.stock[data].shape;
        let is_atomic = shape.is_none_or(|shape| shape.atomic_write_bytes as usize >= page_size);
        let is_atomic = is_atomic || scope.options.trusts_devices;
        Protection::ALL[random.usize(0..if is_atomic { 3 } else { 2 })]
    }

    /// Whether a device loses what it says is durable.
    pub fn loses_writes(&self) -> bool {
        self.drives().any(|drive| drive.is_unsafe)
    }

    /// Whether a power cut may take a log device, once two copies are kept. Faults set devices aside, and then the others
    /// are needed.
    pub fn may_lose_log_devices(&self) -> bool {
        self.log_copies > 1 && self.has_sound_devices()
    }

    /// Whether no device has faults.
    pub fn has_sound_devices(&self) -> bool {
        self.drives().all(|drive| !drive.may_fail())
    }

    /// Whether the log is archived, on a device without faults.
    pub fn archive_is_sound(&self) -> bool {
        self.archive.as_ref().is_some_and(|archive| !archive.drive.may_fail())
    }

    /// All devices.
    pub fn drives(&self) -> impl Iterator<Item = &Drive> {
        let archive = self.archive.iter().map(|archive| &archive.drive);
        self.logs.iter().chain([&self.data]).chain(&self.double_write).chain(&self.spares).chain(archive)
    }

    /// The names of the profiles in use, each once.
    pub fn profiles(&self) -> Vec<String> {
        let names: std::collections::BTreeSet<_> = self.drives().map(|drive| drive.profile.clone()).collect();
        names.into_iter().collect()
    }
}

impl Units {
    /// Few and small log regions, so that they are soon full, in units of one or more erase blocks.
    fn new(random: &mut Random, page_bytes: u32, data: Option<Shape>) -> Self {
        let sector = data.map_or(4096, |shape| shape.logical_block.max(512));
        let least = (4 * sector).next_multiple_of(page_bytes);
        let region = least * [1, 1, 2][random.usize(0..3)];
        let unit = (2 * region).next_power_of_two().max(data.map_or(0, |shape| shape.erase_block_bytes));
        Self {
            unit: unit << [0, 0, 1, 2][random.usize(0..4)],
            region,
            carry_over_percent: [0, 10, 50, 50, 100][random.usize(0..5)],
        }
    }

    /// Bytes of a device with room for so many bytes of pages, and for the units that never get any.
    fn device_bytes(self, page_bytes: u64) -> u64 {
        let unit = u64::from(self.unit);
        let units = page_bytes.div_ceil(unit - u64::from(self.region));
        ((units + units / 16 + 64) * unit).next_multiple_of(1 << 20)
    }
}

/// Makes devices as the seed has them.
struct Chooser<'a> {
    seed: u64,
    scope: &'a Scope,
    faults: &'a faults::Choice,
    /// Whether memory devices lose unflushed writes.
    volatile_cache: bool,
    /// Tells devices of one seed apart.
    made: u64,
}

impl Chooser<'_> {
    fn drive(
        &mut self,
        name: &str,
        stock: &Stock,
        latency: &Range<Duration>,
        tears: TearUnit,
        random: &mut Random,
    ) -> Drive {
        self.made += 1;
        let seed = self.seed.wrapping_mul(31).wrapping_add(self.made);
        let (name, profile) = (name.to_owned(), stock.name.clone());
        let Some(emulated) = &stock.profile else {
            let kind = DriveKind::Memory(MemoryProfile {
                logical_block: 4096,
                write_latency: latency.clone(),
                read_latency: latency.start / 2..latency.end / 2 + Duration::from_nanos(1),
                flush_latency: latency.clone(),
                volatile_cache: self.volatile_cache,
                tears,
                seed,
            });
            let latency = (latency.start + latency.end) / 2;
            return Drive { name, profile, kind, latency, start_latency: Duration::ZERO, is_unsafe: false };
        };
        // What says that it has no volatile cache needs no barriers.
        let is_durable = stock.shape.is_some_and(|shape| shape.write_cache == WriteCache::None);
        let omits_barriers = self.scope.options.without_barriers || (is_durable && random.u8(0..4) == 0);
        let mut emulated = Box::new(emulated.clone());
        emulated.faults = self.faults.plan(seed, emulated.faults.take(), matches!(emulated.device, Kind::RawFlash(_)));
        let kind = DriveKind::Emulated { profile: emulated, sends_barriers: !omits_barriers };
        let (latency, start_latency, is_unsafe) = (stock.write_latency, stock.start_latency, stock.is_unsafe);
        Drive { name, profile, kind, latency, start_latency, is_unsafe }
    }
}

impl Chooser<'_> {
    /// A drive with zones, chosen by a generator of its own.
    fn zoned_drive(&self, name: &str, segments: Segments) -> Drive {
        let mut random = Random::with_seed(self.seed ^ 0x20_4e5);
        let stock = &self.scope.zoned[random.usize(0..self.scope.zoned.len())];
        let profile = stock.profile.clone().expect("a drive with zones is emulated");
        let mut profile = Box::new(segments.zoned(profile));
        profile.faults = self.faults.plan(self.seed.wrapping_mul(37), profile.faults.take(), true);
        // It keeps what has completed.
        let sends_barriers = !self.scope.options.without_barriers && random.u8(0..4) > 0;
        Drive {
            name: name.to_owned(),
            profile: stock.name.clone(),
            kind: DriveKind::Emulated { profile, sends_barriers },
            latency: stock.write_latency,
            start_latency: stock.start_latency,
            is_unsafe: stock.is_unsafe,
        }
    }
}

impl Drive {
    /// Whether it has no translation layer.
    pub fn is_raw_flash(&self) -> bool {
        matches!(&self.kind, DriveKind::Emulated { profile, .. } if matches!(profile.device, Kind::RawFlash(_)))
    }

    /// Whether it may have faults, or be one that loses what it says is durable.
    fn may_fail(&self) -> bool {
        self.is_unsafe || matches!(&self.kind, DriveKind::Emulated { profile, .. } if profile.faults.is_some())
    }
}

/// Steady or jittery, fast or slow.
fn latency(random: &mut Random) -> Range<Duration> {
    let fastest = Duration::from_micros(random.u64(10..=200));
    fastest..fastest * [2, 2, 20][random.usize(0..3)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Options;

    #[test]
    fn seeds_reach_every_protection_and_every_profile() {
        let scope = Scope::new(Options::default()).unwrap();
        let configs: Vec<_> = (0..200).map(|seed| Config::new(seed, &scope)).collect();
        let protections: BTreeSet<_> = configs.iter().map(|config| config.protection).collect();
        assert_eq!(protections.len(), 5);
        let profiles: BTreeSet<_> = configs.iter().flat_map(Config::profiles).collect();
        assert_eq!(profiles, scope.profiles().map(str::to_owned).collect());
        let omits = |drive: &Drive| matches!(drive.kind, DriveKind::Emulated { sends_barriers: false, .. });
        assert!(configs.iter().any(|config| config.drives().any(omits)));
        let has = |log: fn(LogLayout) -> bool| configs.iter().any(|config| log(config.log));
        assert!(configs.iter().any(|config| config.spares.len() == 2));
        let archived = |loses: bool| {
            let is_one = |archive: &Archive| (archive.loses_log_one_in > 0) == loses;
            configs.iter().any(|config| config.archive.as_ref().is_some_and(is_one))
        };
        assert!(archived(true) && archived(false) && configs.iter().any(|config| config.archive.is_none()));
        assert!(configs.iter().any(|config| config.log_copies == 2 && config.spares.is_empty()));
        assert!(configs.iter().any(|config| config.load.kind == LoadKind::Growing));
        assert!(configs.iter().any(|config| config.load.holds_snapshots));
        assert!(configs.iter().any(|config| config.load.edits_rows && config.units.is_some()));
        let loses_all = |config: &&Config| config.archive.as_ref().is_some_and(|archive| archive.loses_log_one_in > 0);
        assert!(configs.iter().filter(loses_all).any(|config| config.log_copies == 2));
        assert!(configs.iter().any(|config| config.checks_beside_clients && config.closes_beside_clients));
        assert!(configs.iter().any(|config| config.uses_up_segments));
        let zoned = |config: &&Config| config.segments.is_some_and(Segments::has_zones);
        assert!(configs.iter().filter(zoned).count() > 3);
        assert!(configs.iter().filter(zoned).all(|config| config.data.profile == "nvme-zns"));
        assert!(configs.iter().any(|config| config.compacts_beside_clients));
        assert!(configs.iter().any(|config| config.compacts_beside_clients && config.segments.is_some()));
        assert!(configs.iter().any(|config| config.compacts_beside_clients && config.units.is_some()));
        assert!(configs.iter().any(|config| config.panics) && configs.iter().any(|config| !config.panics));
        assert!(has(|log| log == LogLayout::Single) && has(|log| matches!(log, LogLayout::Striped(2.., _))));
    }

    #[test]
    fn protections_have_names() {
        assert_eq!("double-write".parse(), Ok(Protection::DoubleWrite));
        assert!("none".parse::<Protection>().is_err());
    }
}
