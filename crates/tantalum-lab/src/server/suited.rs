//! TPC-C on two drives of a kind, one for the pages and one for the log, set up in one way or another; and what the probe
//! recommends for such a drive.
//!
//! The part of the drive that is used is probed, and holds the database: both see a drive that was written once, of which the
//! same bytes are in use. Its memory is divided as its size is, or small databases would lie in it.

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, Db, Devices, LogLayout, MetadataWrites, StoreKind, TornPageProtection};
use tantalum_device::{Device, Partition};
use tantalum_flash::{EmulatedDevice, Kind, Profile};
use tantalum_log::LogOptions;
use tantalum_rt::{Mutex, Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Options},
    tpcc::{Parameters, Reads, Tpcc},
};

use super::{
    image::{self, Image, Loaded, Plan, STACK_BYTES},
    on_drive::Timed,
    sweep::side_by_side,
};
use crate::{
    error::Result,
    micro::{self, Data},
    probe::{self, Advice, Effort},
    steady,
};

/// How a database is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suited {
    /// The profile of both drives.
    pub drive: &'static str,
    /// How pages are stored.
    pub store: StoreKind,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// How the log lies on its drive.
    pub layout: LogLayout,
    /// Partitions of the log's drive.
    pub partitions: u32,
}

/// The databases: all that is the same in each.
pub struct SuitedServer {
    contents: Parameters,
    users: usize,
    /// Transactions before anything is counted, and those that are.
    warm_up: u64,
    counted: u64,
    images: Mutex<Vec<LoadedImage>>,
}

/// A database by its store and the size of its pages.
type LoadedImage = ((StoreKind, u32), Arc<Image>);

/// Of both drives, if they are flash.
const DRIVE_BYTES: u64 = 128 << 20;
/// By what the memory of a drive is divided that is measured in megabytes.
const MEMORY_SCALE: u32 = 8;
/// What is probed, and what the pages have: with log sectors beside them, up to twice as much.
const USED_BYTES: u64 = 48 << 20;
const WITH_LOG_SECTORS_BYTES: u64 = 112 << 20;
const LOG_BYTES: u64 = 64 << 20;
const LOAD_POOL_BYTES: u64 = 64 << 20;
const SEGMENT_BYTES: u32 = 256 << 10;
const FILL_PERCENT: u32 = 95;
const BUFFER_BYTES: u64 = 2 << 20;
/// Hardware threads, and what an attempt at a transaction takes of one: assumed.
const CORES: usize = 4;
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);
const LOADERS: usize = 4;
/// Requests of a measurement of the probe.
const PROBE_OPERATIONS: u64 = 3000;

impl SuitedServer {
    /// Nothing loaded yet.
    pub fn new(contents: Parameters, users: usize, warm_up: u64, counted: u64) -> Self {
        Self { contents, users, warm_up, counted, images: Mutex::default() }
    }

    /// For people.
    pub fn describe(&self) -> String {
        format!(
            "{} users, {} transactions after {} of warm-up, a buffer pool of {} MiB; pages and log on a drive each of the kind, {} MiB \
             if it is flash, written once before, its memory an eighth; pages in {} MiB of it, with log sectors in {}; the log in {}",
            self.users,
            self.counted,
            self.warm_up,
            BUFFER_BYTES >> 20,
            DRIVE_BYTES >> 20,
            USED_BYTES >> 20,
            WITH_LOG_SECTORS_BYTES >> 20,
            LOG_BYTES >> 20,
        )
    }

    /// Bytes of the pages of a database.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn database_bytes(&self, store: StoreKind, page_bytes: u32, progress: &dyn Fn(&str)) -> Result<u64> {
        Ok(self.image(store, page_bytes, progress)?.bytes)
    }

    /// What the probe recommends for each of these drives.
    ///
    /// # Errors
    /// As the drive fails: a defect.
    pub fn advice(&self, drives: &[&'static str], progress: &dyn Fn(&str)) -> Result<Vec<Advice>> {
        let seed = self.contents.seed;
        let places = drives.iter().copied().enumerate().collect();
        let mut all = vec![None; drives.len()];
        side_by_side(
            places,
            |(_, drive): &(usize, &str)| format!("probe of {drive}"),
            move |&(_, drive)| {
                let simulation = Simulation::new(seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
                simulation.run(move || probed(drive, seed)).expect_finished()
            },
            |(place, _), advice| all[place] = Some(advice),
            progress,
        )?;
        Ok(all.into_iter().map(|advice| advice.expect("each was probed or failed")).collect())
    }

    /// Committed transactions in a second with each, in their order.
    ///
    /// # Errors
    /// The first of a run.
    pub fn run(&self, all: &[Suited], progress: &dyn Fn(&str)) -> Result<Vec<f64>> {
        let mut runs = Vec::new();
        for (place, suited) in all.iter().enumerate() {
            let image = match suited.store {
                // What it knows of changes is in its log, so that it cannot go on with another.
                StoreKind::InPageLogging => None,
                store => Some(self.image(store, suited.page_bytes, progress)?),
            };
            let Self { contents, users, warm_up, counted, .. } = *self;
            runs.push(Run { place, suited: *suited, image, contents, users, warm_up, counted });
        }
        let mut rates = vec![0.0; all.len()];
        side_by_side(runs, |run| run.suited.describe(), Run::simulated, |run, rate| rates[run.place] = rate, progress)?;
        Ok(rates)
    }

    fn image(&self, store: StoreKind, page_bytes: u32, progress: &dyn Fn(&str)) -> Result<Arc<Image>> {
        let mut images = self.images.lock();
        if let Some((_, image)) = images.iter().find(|(of, _)| *of == (store, page_bytes)) {
            return Ok(Arc::clone(image));
        }
        let is_log_structured = store == StoreKind::LogStructured;
        let plan = Plan {
            contents: Loaded::Tpcc(self.contents),
            page_bytes,
            buffer_pool_bytes: LOAD_POOL_BYTES,
            protection: if is_log_structured { TornPageProtection::Auto } else { TornPageProtection::DoubleWrite },
            data_bytes: USED_BYTES,
            segments: is_log_structured.then_some((SEGMENT_BYTES, FILL_PERCENT)),
        };
        let image = Arc::new(Image::load(plan, progress)?);
        images.push(((store, page_bytes), Arc::clone(&image)));
        Ok(image)
    }
}

impl Suited {
    /// For people.
    pub fn describe(&self) -> String {
        format!("{}, {}, {}", self.drive, self.store, self.describe_log())
    }

    /// Its log, for people.
    pub fn describe_log(&self) -> String {
        match (self.layout, self.partitions) {
            (LogLayout::FlashLogging, 1) => "log in 1 partition".to_owned(),
            (LogLayout::FlashLogging, partitions) => format!("log in {partitions} partitions"),
            (layout, _) => format!("log {layout}"),
        }
    }
}

/// One run.
#[derive(Clone)]
struct Run {
    place: usize,
    suited: Suited,
    image: Option<Arc<Image>>,
    contents: Parameters,
    users: usize,
    warm_up: u64,
    counted: u64,
}

impl Run {
    fn simulated(&self) -> Result<f64> {
        let run = self.clone();
        let simulation = Simulation::new(self.contents.seed).scheduling(Scheduling::InOrder).cores(CORES);
        simulation.stack_size(STACK_BYTES).run(move || run.measure()).expect_finished()
    }

    fn measure(&self) -> Result<f64> {
        let db = self.open()?;
        let tpcc = Tpcc::load_or_reuse(&db, self.contents, LOADERS, &mut |_| ())?.with_reads(Reads::Transaction);
        let tpcc = Arc::new(tpcc);
        let run = |transactions: u64, seed| {
            let options = Options::transactions(self.users, transactions.div_ceil(self.users as u64)).with_seed(seed);
            driver::run(&tpcc, options.with_cpu_per_attempt(CPU_PER_ATTEMPT), &mut |_| ())
        };
        run(self.warm_up, self.contents.seed)?;
        // The end is not measured: the simulation ends with what is left.
        Ok(run(self.counted, self.contents.seed + 1)?.total.per_second)
    }

    fn open(&self) -> Result<Db> {
        let Suited { drive, store, page_bytes, layout, partitions } = self.suited;
        let log = Arc::new(Partition::new(used_drive(drive, "log")?, 0..LOG_BYTES)?);
        let log: Vec<Arc<dyn Device>> = match partitions {
            1 => vec![log],
            count => Partition::split(log, count as usize)?.into_iter().map(|part| Arc::new(part) as _).collect(),
        };
        let used_bytes = if self.image.is_some() { USED_BYTES } else { WITH_LOG_SECTORS_BYTES };
        let part: Arc<dyn Device> = Arc::new(Partition::new(used_drive(drive, "data")?, 0..used_bytes)?);
        let server = image::server(page_bytes, BUFFER_BYTES)
            .expert(|expert| expert.barriers(Barriers::Auto))
            .log_partitions(partitions);
        let server = server.expert(|expert| expert.log_layout(layout));
        let Some(image) = &self.image else {
            let devices = Devices { data: part, double_write: None, log };
            return Ok(server.page_store(store).open_on(devices)?);
        };
        image.format_log(log.clone(), LogOptions { layout, ..LogOptions::default() })?;
        let pages: Arc<dyn Device> = Timed::new(image.data(), part);
        Ok(match store {
            StoreKind::LogStructured => {
                let devices = Devices { data: pages, double_write: None, log };
                server
                    .page_store(store)
                    .expert(|expert| expert.metadata_writes(MetadataWrites::Own))
                    .open_on(devices)?
            }
            StoreKind::InPlace | StoreKind::InPageLogging => {
                server.open_on(Devices::on_data_device(pages, page_bytes, log)?)?
            }
        })
    }
}

/// A drive that was written once.
fn used_drive(profile: &str, name: &str) -> Result<Arc<dyn Device>> {
    let mut profile = steady::in_use(Profile::named(profile)?);
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
    let drive: Arc<dyn Device> = EmulatedDevice::new(name, profile.build()?);
    if is_flash {
        micro::fill(&drive, 0..DRIVE_BYTES, Data::Zeros, &|_| ())?;
    }
    Ok(drive)
}

fn probed(drive: &str, seed: u64) -> Result<Advice> {
    let plan = probe::Plan {
        // In virtual time nobody waits.
        time: Duration::from_secs(3000),
        write_bytes: 64 * USED_BYTES,
        operations: PROBE_OPERATIONS,
        data: Data::Zeros,
        seed,
        ..probe::Plan::new(Effort::Quick, 0..USED_BYTES)
    };
    Ok(Advice::of(&probe::probe(&used_drive(drive, "probed")?, &plan, &|_| ())?))
}
