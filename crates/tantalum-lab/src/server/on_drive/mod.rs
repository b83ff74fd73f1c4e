//! A database server on one drive for its pages and one for its log, with many clients: DuraSSD's section 4.
//!
//! The database is loaded once for each size of its pages ([`Databases`]) and lies, in each run, on a new drive that was
//! written once before. Files, `fsync` and barriers are those of [`mounted`].

mod documents;
mod mounted;
mod timed;
mod written;

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, Db, Devices, PageCleaning, PoolStats, TornPageProtection};
use tantalum_device::Device;
use tantalum_flash::{Counters, EmulatedDevice, Kind, Profile};
use tantalum_rt::{Mutex, Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Options, RunReport, Workload},
    linkbench::LinkBench,
    tpcc::{Reads, Tpcc},
};

pub use documents::{LoadedStore, Store, StoreRun, Updates};
pub use written::{Way, Written, WrittenRun, WrittenServer};

use self::mounted::Mounted;
pub(super) use self::timed::Timed;
use super::{
    DeviceWork,
    image::{self, Image, Loaded, Plan, STACK_BYTES},
    sweep::side_by_side,
};
use crate::{
    error::Result,
    micro::{self, Data},
};

/// The paper's server, scaled down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scaled {
    /// What the database holds.
    pub contents: Loaded,
    /// The drive's size, all of it, for the pages.
    pub drive_bytes: u64,
    /// What writes wait in, within the drive; `None` as its profile has it.
    pub drive_cache_bytes: Option<u64>,
    /// Of the log's files.
    pub log_bytes: u64,
    /// Clients without think time.
    pub clients: usize,
    /// Hardware threads, and what each attempt at a transaction takes of one.
    pub cores: usize,
    /// See [`Scaled::cores`].
    pub cpu_per_attempt: Duration,
    /// Transactions of all clients before anything is counted, and about as many as are counted.
    pub warm_up: u64,
    /// See [`Scaled::warm_up`].
    pub counted: u64,
    /// For the clients' choices.
    pub seed: u64,
}

/// A run: how the server is set up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setup {
    /// The profile of both drives.
    pub drive: &'static str,
    /// Whether the file systems tell the drives to flush.
    pub has_barriers: bool,
    /// Whether the engine asks for that: the paper's servers always do.
    pub barriers: Barriers,
    /// What keeps pages whole.
    pub protection: TornPageProtection,
    /// Who writes dirty pages to make room.
    pub cleaning: PageCleaning,
    /// Whether each page is made durable by a write of its own.
    pub durable_page_writes: bool,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The buffer pool.
    pub buffer_pool_bytes: u64,
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct DriveRun {
    /// What the clients did.
    pub report: RunReport,
    /// What the pool did meanwhile.
    pub pool: PoolStats,
    /// What the drive of the pages did.
    pub data: DeviceWork,
    /// What the drive of the log did.
    pub log: DeviceWork,
    /// Virtual seconds.
    pub seconds: f64,
}

/// A database by the size of its pages, and by whether its log has page images.
type LoadedImage = ((u32, bool), Arc<Image>);

/// The databases of an experiment, each loaded when it is first needed.
pub struct Databases {
    scaled: Scaled,
    loaded: Mutex<Vec<LoadedImage>>,
    known: Mutex<Vec<(Setup, Arc<DriveRun>)>>,
}

impl Databases {
    /// Of this server.
    pub fn new(scaled: Scaled) -> Self {
        Self { scaled, loaded: Mutex::default(), known: Mutex::default() }
    }

    /// The server.
    pub fn scaled(&self) -> &Scaled {
        &self.scaled
    }

    /// Bytes of the database with pages of this size.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn bytes(&self, page_bytes: u32, progress: &dyn Fn(&str)) -> Result<u64> {
        Ok(self.image(page_bytes, false, progress)?.bytes)
    }

    /// Full page images are in a log from its begin or never; other protections can be changed.
    fn image(&self, page_bytes: u32, has_images: bool, progress: &dyn Fn(&str)) -> Result<Arc<Image>> {
        let mut loaded = self.loaded.lock();
        if let Some((_, image)) = loaded.iter().find(|(of, _)| *of == (page_bytes, has_images)) {
            return Ok(Arc::clone(image));
        }
        let protection = if has_images { TornPageProtection::FullPageImages } else { TornPageProtection::DoubleWrite };
        let plan = Plan {
            contents: self.scaled.contents,
            page_bytes,
            buffer_pool_bytes: LOAD_POOL_BYTES,
            protection,
            data_bytes: self.scaled.drive_bytes - Mounted::OVERHEAD_BYTES,
            segments: None,
        };
        let image = Arc::new(Image::load(plan, progress)?);
        loaded.push(((page_bytes, has_images), Arc::clone(&image)));
        Ok(image)
    }

    /// Runs all that have not run before, several at a time, and gives the results in the order asked for.
    ///
    /// # Errors
    /// The first of a run.
    pub fn run(&self, setups: &[Setup], progress: &dyn Fn(&str)) -> Result<Vec<Arc<DriveRun>>> {
        let known = |setup: &Setup| {
            let known = self.known.lock();
            known.iter().find(|(of, _)| of == setup).map(|(_, run)| Arc::clone(run))
        };
        let mut missing = Vec::new();
        for setup in setups {
            if known(setup).is_none() && !missing.iter().any(|(of, _)| of == setup) {
                let has_images = setup.protection == TornPageProtection::FullPageImages;
                missing.push((*setup, self.image(setup.page_bytes, has_images, progress)?));
            }
        }
        let scaled = self.scaled;
        side_by_side(
            missing,
            |(setup, _)| setup.describe(),
            move |(setup, image)| setup.run(scaled, image),
            |(setup, _), run| self.known.lock().push((setup, Arc::new(run))),
            progress,
        )?;
        Ok(setups.iter().map(|setup| known(setup).expect("each has run or failed")).collect())
    }
}

/// While loading, which takes no time.
const LOAD_POOL_BYTES: u64 = 64 << 20;

/// What a commit of the file system's journal writes, as in Table 1.
const JOURNAL_WRITES: u32 = 1;

impl Setup {
    /// For people.
    pub fn describe(&self) -> String {
        let barriers = if self.has_barriers { "barriers" } else { "no barriers" };
        let (page, pool) =
            [u64::from(self.page_bytes), self.buffer_pool_bytes].map(tantalum_report::units::bytes).into();
        let Self { drive, protection, cleaning, .. } = self;
        format!("{drive}, pages of {page} in {pool}, {barriers}, {protection:?}, cleaned {cleaning:?}")
    }

    fn run(self, scaled: Scaled, image: &Arc<Image>) -> Result<DriveRun> {
        let image = Arc::clone(image);
        let simulation = Simulation::new(scaled.seed).scheduling(Scheduling::InOrder).cores(scaled.cores);
        simulation.stack_size(STACK_BYTES).run(move || self.measure(&scaled, &image)).expect_finished()
    }

    fn measure(&self, scaled: &Scaled, image: &Image) -> Result<DriveRun> {
        let data = self.drive("data", scaled, scaled.drive_bytes)?;
        let used = image.bytes.next_multiple_of(1 << 20).min(scaled.drive_bytes);
        micro::fill(&(Arc::clone(&data) as Arc<dyn Device>), 0..used, Data::Zeros, &|_| ())?;
        let log = self.drive("log", scaled, scaled.log_bytes + Mounted::OVERHEAD_BYTES)?;
        let file = |drive: &Arc<EmulatedDevice>| -> Arc<dyn Device> {
            Arc::new(Mounted::on(Arc::clone(drive) as Arc<dyn Device>, JOURNAL_WRITES))
        };
        let (pages, log_file) = (Timed::new(image.data(), file(&data)), file(&log));
        image.format_log(vec![Arc::clone(&log_file)], tantalum_log::LogOptions::default())?;
        let devices = Devices::on_data_device(pages, self.page_bytes, vec![log_file])?;
        let server = image::server(self.page_bytes, self.buffer_pool_bytes)
            .expert(|expert| expert.torn_page_protection(self.protection));
        let server = server.expert(|expert| expert.barriers(self.barriers).page_cleaning(self.cleaning));
        let db = server.expert(|expert| expert.durable_page_writes(self.durable_page_writes)).open_on(devices)?;
        let drives = [data, log];
        match scaled.contents {
            Loaded::LinkBench(_) => {
                let workload = LinkBench::open(&db)?.expect("the image holds a whole load");
                self.clients(scaled, &db, &drives, workload)
            }
            Loaded::Tpcc(_) => {
                let workload = Tpcc::open(&db)?.expect("the image holds a whole load");
                self.clients(scaled, &db, &drives, workload.with_reads(Reads::Transaction))
            }
        }
    }

    fn drive(&self, name: &str, scaled: &Scaled, bytes: u64) -> Result<Arc<EmulatedDevice>> {
        new_drive(self.drive, name, bytes, scaled.drive_cache_bytes, self.has_barriers)
    }

    /// Runs the clients: until the pool is as full as it will be, then as long as so many transactions took then.
    fn clients<W: Workload>(
        &self,
        scaled: &Scaled,
        db: &Db,
        drives: &[Arc<EmulatedDevice>; 2],
        workload: W,
    ) -> Result<DriveRun> {
        let workload = Arc::new(workload);
        let run = |options: Options| {
            let options = options.with_cpu_per_attempt(scaled.cpu_per_attempt);
            driver::run(&workload, options, &mut |_| ())
        };
        let each = scaled.warm_up.div_ceil(scaled.clients as u64);
        let warm_up = run(Options::transactions(scaled.clients, each).with_seed(scaled.seed))?;
        let seconds = scaled.counted as f64 / warm_up.total.per_second;
        let counters = || drives.each_ref().map(|drive| drive.counters());
        let (started, before, pool_before) = (tantalum_rt::now(), counters(), db.stats()?.pool);
        let timed = Options::timed(scaled.clients, Duration::ZERO, Duration::from_secs_f64(seconds));
        let report = run(timed.with_seed(scaled.seed + 1))?;
        let ([data, log], seconds) = (between(&before, &counters()), started.elapsed().as_secs_f64());
        let pool = db.stats()?.pool;
        let pool = PoolStats {
            hits: pool.hits - pool_before.hits,
            misses: pool.misses - pool_before.misses,
            fault_reads: pool.fault_reads - pool_before.fault_reads,
            blocked_reads: pool.blocked_reads - pool_before.blocked_reads,
            ..pool
        };
        // The end is not measured: the simulation ends with what is left.
        Ok(DriveRun { report, pool, data, log, seconds })
    }
}

/// A drive of so many bytes, fresh from the factory.
fn new_drive(
    profile: &str,
    name: &str,
    bytes: u64,
    cache_bytes: Option<u64>,
    has_barriers: bool,
) -> Result<Arc<EmulatedDevice>> {
    let mut profile = Profile::named(profile)?.with_capacity(bytes);
    if let (Kind::SolidState(drive), Some(cache_bytes)) = (&mut profile.device, cache_bytes) {
        drive.cache.pool_bytes = cache_bytes;
    }
    let model = profile.build()?;
    Ok(match has_barriers {
        true => EmulatedDevice::new(name, model),
        false => EmulatedDevice::without_barriers(name, model),
    })
}

fn between(before: &[Counters; 2], after: &[Counters; 2]) -> [DeviceWork; 2] {
    [0, 1].map(|drive| DeviceWork::between(before[drive], after[drive]))
}
