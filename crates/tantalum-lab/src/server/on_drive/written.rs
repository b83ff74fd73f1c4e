//! TPC-C with its pages on one drive, written in place or log-structured ("Early Experience and Evaluation of File Systems on
//! SSD with Database Applications", section IV).
//!
//! The database is loaded once for each size of its pages and page store, and lies in each run on a new drive that was written
//! once before. The log lies on a device that takes no time, so that all differences are those of the pages.

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, Db, DeviceUse, Devices, LogStructuredStats, MetadataWrites, StoreKind, TornPageProtection};
use tantalum_device::Device;
use tantalum_flash::{Contents, Counters, EmulatedDevice, Kind, Profile};
use tantalum_rt::{Mutex, Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Options, RunReport},
    tpcc::{Mix, Parameters, Reads, Tpcc},
};

use super::{
    super::{
        image::{self, Image, Loaded, Plan, STACK_BYTES},
        plain::Plain,
        sweep::side_by_side,
    },
    Timed,
};
use crate::{
    error::Result,
    micro::{self, Data},
    trace::{Header, Reader, Recorder, Totals, Writer, requests::Analysis},
};

/// How pages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// In place, each durably by itself.
    InPlace,
    /// The same, with a double-write area.
    InPlaceTwice,
    /// Log-structured.
    LogStructured(MetadataWrites),
}

/// A run: a server and its drive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Written {
    /// The profile of the drive.
    pub drive: &'static str,
    /// Its size.
    pub drive_bytes: u64,
    /// By what its buffer of segments is divided, if it has one: as its size is, the drive's units have then as much of it.
    pub drive_scale: u32,
    /// How pages are written.
    pub way: Way,
    /// Bytes of a segment.
    pub segment_bytes: u32,
    /// How much of all segments live pages may take, in percent.
    pub fill_percent: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The buffer pool.
    pub buffer_pool_bytes: u64,
    /// Of transactions.
    pub mix: Mix,
    /// What the database holds.
    pub contents: Parameters,
    /// Users without think time.
    pub users: usize,
    /// Transactions of all users before anything is counted, and those that are.
    pub warm_up: u64,
    /// See [`Written::warm_up`].
    pub counted: u64,
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct WrittenRun {
    /// What the users did.
    pub report: RunReport,
    /// Bytes of the pages that the engine stored.
    pub issued_bytes: u64,
    /// Those pages.
    pub pages_stored: u64,
    /// Pages that the engine read.
    pub pages_loaded: u64,
    /// What the drive was asked for.
    pub drive: Requests,
    /// What the log-structured store did, if it is that.
    pub log_structured: Option<LogStructuredStats>,
    /// The requests to the drive, analysed; of double writes, those to their area are apart.
    pub trace: Analysis,
}

/// While loading, which takes no time.
const LOAD_POOL_BYTES: u64 = 64 << 20;
const LOG_BYTES: u64 = 4 << 30;
/// Hardware threads, and what an attempt at a transaction takes of one: assumed.
const CORES: usize = 4;
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);
/// Databases by what an image depends on.
type Loads = Vec<(Written, Arc<Image>)>;

/// The databases of an experiment, each loaded when it is first needed, and what was measured on them.
#[derive(Default)]
pub struct WrittenServer {
    loaded: Mutex<Loads>,
    known: Mutex<Vec<(Written, Arc<WrittenRun>)>>,
}

impl WrittenServer {
    /// Nothing loaded yet.
    pub const fn new() -> Self {
        Self { loaded: Mutex::new(Vec::new()), known: Mutex::new(Vec::new()) }
    }

    /// Bytes of the pages of a run's database, once it is loaded.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn database_bytes(&self, of: &Written, progress: &dyn Fn(&str)) -> Result<u64> {
        Ok(self.image(of, progress)?.bytes)
    }

    /// Runs all that have not run before, several at a time, and gives the results in the order asked for.
    ///
    /// # Errors
    /// The first of a run.
    pub fn run(&self, wanted: &[Written], progress: &dyn Fn(&str)) -> Result<Vec<Arc<WrittenRun>>> {
        let known = |of: &Written| {
            let known = self.known.lock();
            known.iter().find(|(other, _)| other == of).map(|(_, run)| Arc::clone(run))
        };
        let mut missing: Vec<(Written, Arc<Image>)> = Vec::new();
        for written in wanted {
            if known(written).is_none() && !missing.iter().any(|(other, _)| other == written) {
                missing.push((*written, self.image(written, progress)?));
            }
        }
        side_by_side(
            missing,
            |(written, _)| written.describe(),
            |(written, image)| written.run(image),
            |(written, _), run| self.known.lock().push((written, Arc::new(run))),
            progress,
        )?;
        Ok(wanted.iter().map(|of| known(of).expect("each has run or failed")).collect())
    }

    fn image(&self, written: &Written, progress: &dyn Fn(&str)) -> Result<Arc<Image>> {
        let mut loaded = self.loaded.lock();
        if let Some((_, image)) = loaded.iter().find(|(of, _)| of.loads_as(written)) {
            return Ok(Arc::clone(image));
        }
        let plan = Plan {
            contents: Loaded::Tpcc(written.contents),
            page_bytes: written.page_bytes,
            buffer_pool_bytes: LOAD_POOL_BYTES,
            protection: written.loading_protection(),
            data_bytes: written.drive_bytes,
            segments: written.segments(),
        };
        let image = Arc::new(Image::load(plan, progress)?);
        loaded.push((*written, Arc::clone(&image)));
        Ok(image)
    }
}

impl Written {
    /// For people.
    pub fn describe(&self) -> String {
        let Self { drive, way, page_bytes, buffer_pool_bytes, mix, .. } = self;
        let pool = tantalum_report::units::bytes(*buffer_pool_bytes);
        format!("{drive}, {way:?}, pages of {page_bytes} bytes in {pool}, {mix:?}")
    }

    fn segments(&self) -> Option<(u32, u32)> {
        matches!(self.way, Way::LogStructured(_)).then_some((self.segment_bytes, self.fill_percent))
    }

    fn loads_as(&self, other: &Self) -> bool {
        let key = |of: &Self| (of.page_bytes, of.segments(), of.drive_bytes, of.contents);
        key(self) == key(other)
    }

    /// A double-write area is given up at an open, and not gained.
    fn loading_protection(&self) -> TornPageProtection {
        match self.way {
            Way::LogStructured(_) => TornPageProtection::Auto,
            Way::InPlace | Way::InPlaceTwice => TornPageProtection::DoubleWrite,
        }
    }

    fn run(&self, image: &Arc<Image>) -> Result<WrittenRun> {
        let (written, image) = (*self, Arc::clone(image));
        let simulation = Simulation::new(self.contents.seed).scheduling(Scheduling::InOrder).cores(CORES);
        simulation.stack_size(STACK_BYTES).run(move || written.measure(&image)).expect_finished()
    }

    fn measure(&self, image: &Image) -> Result<WrittenRun> {
        let mut profile = Profile::named(self.drive)?.with_capacity(self.drive_bytes);
        if let Kind::BlockSsd(drive) = &mut profile.device {
            drive.buffer_kib /= self.drive_scale;
        }
        let drive = EmulatedDevice::new("data", profile.build()?);
        micro::fill(&(Arc::clone(&drive) as Arc<dyn Device>), 0..self.drive_bytes, Data::Zeros, &|_| ())?;
        let recorder = Recorder::new();
        let db = self.open(image, &drive, &recorder)?;
        let tpcc = Tpcc::open(&db)?.expect("the image holds a whole load");
        let tpcc = Arc::new(tpcc.with_reads(Reads::Transaction).with_mix(self.mix));
        let run = |transactions: u64, seed| {
            let each = transactions.div_ceil(self.users as u64);
            let options = Options::transactions(self.users, each).with_seed(seed);
            driver::run(&tpcc, options.with_cpu_per_attempt(CPU_PER_ATTEMPT), &mut |_| ())
        };
        run(self.warm_up, self.contents.seed)?;
        let (before, drive_before) = (db.stats()?.store, drive.counters());
        recorder.begin(Writer::new(Vec::new(), &Header::new(self.describe()))?, 0);
        let report = run(self.counted, self.contents.seed + 1)?;
        let (after, drive_after) = (db.stats()?.store, drive.counters());
        let pages_stored = after.pages_stored - before.pages_stored;
        let pages_loaded = after.pages_loaded - before.pages_loaded;
        let trace = recorder.finish(Totals {
            transactions: Some(report.ended),
            page_bytes: Some(self.page_bytes),
            pages_read: Some(pages_loaded),
            pages_stored: Some(pages_stored),
            ..Totals::default()
        })?;
        // The end is not measured: the simulation ends with what is left.
        Ok(WrittenRun {
            report,
            issued_bytes: pages_stored * u64::from(self.page_bytes),
            pages_stored,
            pages_loaded,
            drive: Requests::between(drive_before, drive_after),
            log_structured: after.log_structured.zip(before.log_structured).map(|(after, before)| after.since(&before)),
            trace: Analysis::of(Reader::new(self.describe(), &trace[..])?)?,
        })
    }

    fn open(&self, image: &Image, drive: &Arc<EmulatedDevice>, recorder: &Arc<Recorder<Vec<u8>>>) -> Result<Db> {
        let pages: Arc<dyn Device> = Timed::new(image.data(), Arc::clone(drive) as Arc<dyn Device>);
        let log: Arc<dyn Device> = Plain::new("log", Contents::in_memory(LOG_BYTES));
        image.format_log(vec![Arc::clone(&log)], tantalum_log::LogOptions::default())?;
        // The paper's file systems sent no barriers, and its drives cached writes.
        let server = image::server(self.page_bytes, self.buffer_pool_bytes)
            .expert(|expert| expert.barriers(Barriers::TrustDevice));
        let recorder = Arc::clone(recorder);
        let server = server.expert(|expert| {
            expert.wrap_devices(move |used_for, device| match used_for {
                DeviceUse::Log => device,
                _ => recorder.observe(used_for, device),
            })
        });
        Ok(match self.way {
            Way::LogStructured(metadata) => {
                let devices = Devices { data: pages, double_write: None, log: vec![log] };
                server
                    .page_store(StoreKind::LogStructured)
                    .expert(|expert| expert.metadata_writes(metadata))
                    .open_on(devices)?
            }
            Way::InPlace | Way::InPlaceTwice => {
                let protection = match self.way {
                    Way::InPlaceTwice => TornPageProtection::DoubleWrite,
                    _ => TornPageProtection::TrustDevice,
                };
                let devices = Devices::on_data_device(pages, self.page_bytes, vec![log])?;
                server
                    .expert(|expert| expert.torn_page_protection(protection).durable_page_writes(true))
                    .open_on(devices)?
            }
        })
    }
}

/// What a drive was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Requests {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes of the writes.
    pub written_bytes: u64,
}

impl Requests {
    fn between(before: Counters, after: Counters) -> Self {
        Self {
            reads: after.host_reads - before.host_reads,
            writes: after.host_writes - before.host_writes,
            written_bytes: after.host_written_bytes - before.host_written_bytes,
        }
    }
}
