//! Runs a scenario: builds its devices, opens its database, and lets its clients work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum::{Db, DeviceUse, Stats};
use tantalum_device::{Device, ObservedDevice, Partition};
use tantalum_flash::{Contents as Bytes, Counters, EmulatedDevice, Kind, Profile, ftl::hybrid::InitialState};
use tantalum_log::LogOptions;
use tantalum_rt::{
    Scheduling, Simulation,
    simulation::{charge_locks, lock_uses},
};
use tantalum_workloads::{
    driver::{self, Options, Progress, RunReport, Workload},
    linkbench::LinkBench,
    tpcc::{Call, Reads, Tpcc},
    ycsb::Ycsb,
};

use super::{
    Contents, Cpu, Data, Drive, FileUse, Filled, FlushSizes, Length, Log, Operation, Outcome, STACK_BYTES, Scenario,
    Trace, Writer,
    buffered_file::OpenFile,
    devices::{Instant, Timed},
    file::File,
    image::{self, Image, LOADERS},
    log::{Built, FlushMeter, LogMutex},
    rows::Rows,
};
use crate::{
    error::Result,
    micro::{self, Data as Filling},
    trace::{Database, Header, Reader, Recorder, Totals, Writer as TraceWriter, requests},
};

/// The device of the log that answers after a fixed time is this profile with its times made one.
pub(crate) const VOLUME: &str = "cloud-volume";
/// Enough for a run: nothing waits for room in the log.
const VOLUME_BYTES: u64 = 2 << 30;

/// Transactions of each client at a time, until a trace has its changes.
const STEPS: u64 = 20;
/// Transactions of all clients at a time, until a drive was written enough.
const STEPS_TO_WRITE: u64 = 10_000;

impl Drive {
    /// A drive of this profile as the host gets it, all of it used.
    pub fn new(profile: Profile) -> Self {
        Self { profile, filled: Filled::Nothing, has_barriers: true, file: FileUse::None, used_bytes: None }
    }

    /// What comes of a new one in a simulation.
    pub fn in_simulation<T: Send + 'static>(
        self,
        name: &'static str,
        seed: u64,
        run: impl FnOnce(Arc<dyn Device>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let simulation = Simulation::new(seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
        simulation.run(move || run(self.build(name, 0)?.1)).expect_finished()
    }

    /// Bytes that can be used of it.
    pub fn bytes(&self) -> u64 {
        let used = self.used_bytes.unwrap_or(self.profile.capacity_bytes);
        match self.file {
            FileUse::None => used,
            FileUse::Overwritten | FileUse::Growing | FileUse::WrittenDurably { .. } => used - File::OVERHEAD_BYTES,
            FileUse::Buffered(file) => file.bytes,
        }
    }

    /// A new one, and what the database sees of it.
    pub(super) fn build(&self, name: &str, database_bytes: u64) -> Result<(Arc<EmulatedDevice>, Arc<dyn Device>)> {
        let drive = self.emulate(name, database_bytes)?;
        let device = self.use_of(Arc::clone(&drive) as _)?;
        Ok((drive, device))
    }

    /// A new one.
    fn emulate(&self, name: &str, database_bytes: u64) -> Result<Arc<EmulatedDevice>> {
        let new = if self.has_barriers { EmulatedDevice::new } else { EmulatedDevice::without_barriers };
        let drive = new(name.to_owned(), self.profile.build()?);
        let filled = match self.filled {
            Filled::Nothing => 0,
            Filled::Database => database_bytes.next_multiple_of(1 << 20).min(drive.capacity_bytes()),
            Filled::All => drive.capacity_bytes(),
        };
        if filled > 0 {
            let device: Arc<dyn Device> = Arc::clone(&drive) as _;
            micro::fill(&device, 0..filled, Filling::Zeros, &|_| ())?;
        }
        Ok(drive)
    }

    /// What the database sees of a device that is the drive.
    fn use_of(&self, device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
        let device: Arc<dyn Device> = match self.file {
            FileUse::None => device,
            FileUse::Overwritten => Arc::new(File::on(device, false)),
            FileUse::Growing => Arc::new(File::on(device, true)),
            FileUse::WrittenDurably { file_bytes } => Arc::new(File::with_inodes(device, file_bytes)),
            FileUse::Buffered(file) => Arc::new(OpenFile::new(device, file)),
        };
        Ok(match self.used_bytes {
            Some(bytes) => Arc::new(Partition::new(device, 0..bytes)?),
            None => device,
        })
    }
}

/// A scenario's devices, and what is known of them beside the database.
struct Devices {
    data: Arc<dyn Device>,
    /// The data device, where its time can be ended.
    timed: Option<Arc<Timed>>,
    drives: [Option<Arc<EmulatedDevice>>; 2],
    log: Vec<Arc<dyn Device>>,
    archive: Option<Arc<dyn Device>>,
    meters: Vec<Arc<FlushMeter>>,
    mutex: Option<Arc<LogMutex>>,
}

impl Scenario {
    /// Runs it in a simulation, on a copy of `image` unless it loads the database itself.
    pub(super) fn simulate(&self, image: Option<Arc<Image>>) -> Result<Outcome> {
        // A simulation's stack takes little by value.
        let scenario = Box::new(self.clone());
        let simulation = Simulation::new(self.seed).scheduling(Scheduling::InOrder).cores(self.cores);
        let simulation = match self.two_threads_percent {
            Some(percent) => simulation.two_threads_per_core(percent),
            None => simulation,
        };
        let run = move || scenario.measure(image.as_deref()).map(Box::new);
        Ok(*simulation.stack_size(STACK_BYTES).run(run).expect_finished()?)
    }

    fn measure(&self, image: Option<&Image>) -> Result<Outcome> {
        let recorder: Arc<Recorder<Vec<u8>>> = Recorder::new();
        let devices = self.devices(image, &recorder)?;
        let db = self.open(image, &devices, &recorder)?;
        match self.contents {
            Contents::LinkBench(_) => {
                let workload = LinkBench::open(&db)?.expect("the image holds a whole load");
                self.run_clients(db, &devices, &recorder, workload, &AtomicU64::new(0), |_| Ok(0))
            }
            Contents::Tpcc(parameters) => {
                let tpcc = match image {
                    Some(_) => Tpcc::open(&db)?.expect("the image holds a whole load"),
                    None => Tpcc::load_or_reuse(&db, parameters, LOADERS, &mut |_| ())?,
                };
                let (calls, tpcc) =
                    (Arc::<AtomicU64>::default(), tpcc.with_reads(Reads::Transaction).with_mix(self.mix));
                let tpcc = self.charge_calls(tpcc, &calls, devices.mutex.clone());
                self.run_clients(db, &devices, &recorder, tpcc, &calls, |_| Ok(0))
            }
            Contents::Ycsb { chooser, .. } => {
                let workload = Ycsb::open(&db)?.expect("the image holds a whole load").with_chooser(chooser);
                self.run_clients(db, &devices, &recorder, workload, &AtomicU64::new(0), |_| Ok(0))
            }
            Contents::Rows { count, operation } => {
                let Cpu::PerAttempt(cpu) = self.cpu else { unreachable!("rows know attempts only") };
                let rows = Rows::load(&db, count, operation, cpu)?;
                self.run_clients(db, &devices, &recorder, rows, &AtomicU64::new(0), Rows::sum)
            }
        }
    }

    fn devices(&self, image: Option<&Image>, recorder: &Arc<Recorder<Vec<u8>>>) -> Result<Devices> {
        let database_bytes = image.map_or(0, |image| image.bytes);
        let (mut archive, mut meters, mut mutex, mut log_drive) = (None, Vec::new(), None, None);
        let log: Vec<Arc<dyn Device>> = match &self.log {
            Log::Instant(bytes) => vec![Instant::new("log", Bytes::in_memory(*bytes))],
            Log::Volume(answers_after) => vec![volume(*answers_after)?],
            Log::Drive { drive, partitions, .. } => {
                let (emulated, device) = drive.build("log", database_bytes)?;
                log_drive = Some(emulated);
                match partitions {
                    1 => vec![device],
                    count => {
                        let parts = Partition::split(device, *count as usize)?.into_iter();
                        parts.map(|part| Arc::new(part) as _).collect()
                    }
                }
            }
            Log::Setup(setup) => {
                mutex = (setup.writer == Writer::Original).then(Arc::<LogMutex>::default);
                let built: Built = setup.build()?;
                archive = built.archive;
                meters = built.devices.iter().map(|_| Arc::new(FlushMeter::new(mutex.clone()))).collect();
                let metered = |(device, meter): (_, &Arc<FlushMeter>)| {
                    Arc::new(ObservedDevice::new(device, meter.clone())) as Arc<dyn Device>
                };
                built.devices.into_iter().zip(&meters).map(metered).collect()
            }
        };
        let observed = |drive: Arc<dyn Device>| match self.trace {
            Trace::Requests => recorder.observe(DeviceUse::Data, drive),
            Trace::Nothing | Trace::Pages(_) => drive,
        };
        let (data, timed, drive) = self.data.build(image, observed)?;
        Ok(Devices { data, timed, drives: [drive, log_drive], log, archive, meters, mutex })
    }

    fn open(&self, image: Option<&Image>, devices: &Devices, recorder: &Arc<Recorder<Vec<u8>>>) -> Result<Db> {
        let Devices { data, log, archive, .. } = devices;
        let options = match &self.log {
            Log::Setup(setup) => setup.options_at_creation(None),
            Log::Drive { layout, .. } => LogOptions { layout: *layout, ..LogOptions::default() },
            Log::Instant(_) | Log::Volume(_) => LogOptions::default(),
        };
        if let Some(image) = image {
            image.format_log(log.clone(), options)?;
        }
        let server =
            image::server(self.page_bytes, self.buffer_pool_bytes).expert(|expert| expert.barriers(self.barriers));
        let server =
            server.expert(|expert| expert.page_cleaning(self.cleaning).early_lock_release(self.early_lock_release));
        let server = match &self.log {
            Log::Setup(setup) => setup.on_server(server, archive.as_ref()),
            Log::Drive { layout, partitions, .. } => {
                server.log_partitions(*partitions).expert(|expert| expert.log_layout(*layout))
            }
            Log::Instant(_) | Log::Volume(_) => server,
        };
        let server = match self.trace {
            Trace::Pages(_) => server.expert(|expert| expert.observe_pages(recorder.clone())),
            Trace::Nothing | Trace::Requests => server,
        };
        self.pages.open(server, self.page_bytes, Arc::clone(data), log.clone())
    }

    /// Has each call of TPC-C to the engine cost what it does: its time of a core, and what it waits for.
    fn charge_calls(&self, tpcc: Tpcc, calls: &Arc<AtomicU64>, mutex: Option<Arc<LogMutex>>) -> Tpcc {
        let Cpu::PerCall(cpu) = self.cpu else { return tpcc };
        let calls = Arc::clone(calls);
        tpcc.with_before_call(Box::new(move |call| {
            calls.fetch_add(1, Ordering::Relaxed);
            match &mutex {
                Some(mutex) => mutex.call(call != Call::Read, || tantalum_rt::work(cpu)),
                None => tantalum_rt::work(cpu),
            }
        }))
    }

    /// Runs the clients: a warm-up, then what is counted. `sum` is asked for afterwards.
    fn run_clients<W: Workload>(
        &self,
        db: Db,
        devices: &Devices,
        recorder: &Recorder<Vec<u8>>,
        workload: W,
        calls: &AtomicU64,
        sum: impl FnOnce(&W) -> tantalum_workloads::Result<u64>,
    ) -> Result<Outcome> {
        let workload = Arc::new(workload);
        let run = |options: Options, seed, progress: &mut dyn FnMut(&Progress)| {
            let options = match (self.cpu, self.contents) {
                // Transfers pass their time between their locks.
                (Cpu::PerAttempt(_), Contents::Rows { operation: Operation::Transfer { .. }, .. }) => options,
                (Cpu::PerAttempt(cpu), _) => options.with_cpu_per_attempt(cpu),
                (Cpu::PerCall(_), _) => options,
            };
            driver::run(&workload, options.with_seed(seed).with_round_trip(self.round_trip), progress)
        };
        let of_all =
            |transactions: u64| Options::transactions(self.clients, transactions.div_ceil(self.clients as u64));
        let mut seed = self.seed;
        let new = devices.counters();
        let warmed_up = match self.length {
            Length::Time { .. } => None,
            Length::AfterWrites { bytes, .. } => {
                assert!(devices.drives[0].is_some(), "pages are written to a drive");
                let written = || devices.counters()[0].since(&new[0]).host_written_bytes;
                let mut last = run(of_all(STEPS_TO_WRITE), seed, &mut |_| ())?;
                while written() < bytes {
                    seed += 1;
                    last = run(of_all(STEPS_TO_WRITE), seed, &mut |_| ())?;
                }
                Some(last)
            }
            Length::Transactions { warm_up, .. } | Length::TimeOf { warm_up, .. } | Length::Changes { warm_up, .. } => {
                Some(run(of_all(warm_up), self.seed, &mut |_| ())?)
            }
        };
        let has_checkpoints = matches!(self.length, Length::Transactions { with_checkpoints: true, .. });
        if has_checkpoints {
            db.checkpoint()?;
        }
        let options = match self.length {
            Length::Time { warm_up, counted } => Options::timed(self.clients, warm_up, counted),
            Length::Transactions { counted, .. } | Length::AfterWrites { counted, .. } => of_all(counted),
            Length::TimeOf { counted, .. } => {
                let per_second = warmed_up.as_ref().map_or(0.0, |report| report.total.per_second);
                let time = Duration::from_secs_f64(counted as f64 / per_second);
                Options::timed(self.clients, Duration::ZERO, time)
            }
            Length::Changes { .. } => Options::transactions(self.clients, STEPS),
        };
        let (before, drives_before) = (db.stats()?, devices.counters());
        self.begin_trace(recorder)?;
        let mut begun = tantalum_rt::now();
        if let Some(locks) = self.locks {
            charge_locks(locks);
        }
        let (started, mut calls_before, mut pool) = (begun, 0, Vec::new());
        let mut is_counting = false;
        let mut watch = |progress: &Progress| {
            if has_checkpoints {
                pool.extend(db.stats().map(|stats| stats.pool));
            }
            if warmed_up.is_none() && !progress.elapsed.is_zero() && !is_counting {
                devices.meters.iter().for_each(|meter| drop(meter.take()));
                (is_counting, begun, calls_before) = (true, tantalum_rt::now(), calls.load(Ordering::Relaxed));
            }
        };
        seed += u64::from(warmed_up.is_some());
        let mut report = run(options, seed, &mut watch)?;
        while matches!(self.length, Length::Changes { .. }) && !recorder.is_full() {
            seed += 1;
            report = run(options, seed, &mut watch)?;
        }
        if has_checkpoints {
            db.checkpoint()?;
        }
        let seconds = started.elapsed().as_secs_f64();
        let locks = self.locks.map_or_else(Vec::new, |_| lock_uses());
        let calls = calls.load(Ordering::Relaxed) - calls_before;
        let charged = if let Cpu::PerCall(cpu) = self.cpu { cpu.as_secs_f64() * calls as f64 } else { 0.0 };
        let mut flushes = FlushSizes::new();
        for (bytes, count) in devices.meters.iter().flat_map(|meter| meter.take()) {
            *flushes.entry(bytes).or_default() += count;
        }
        let of_all_cores = self.cores as f64 * f64::from(self.two_threads_percent.unwrap_or(100)) / 100.0;
        let cpu_share = charged / (begun.elapsed().as_secs_f64() * of_all_cores);
        let (sum, after, drives_after) = (sum(&workload)?, db.stats()?, devices.counters());
        let [data, log] = [0, 1].map(|drive: usize| drives_after[drive].since(&drives_before[drive]));
        let written_before = drives_before[0].since(&new[0]).host_written_bytes;
        let done = after.since(&before);
        let (page_trace, requests) = self.end_trace(recorder, &report, &done)?;
        if let Data::Instant(_) | Data::Resident(_) = self.data {
            devices.timed.iter().for_each(|timed| timed.end());
            drop(workload);
            db.close()?;
        }
        // With drives the end is not measured: the simulation ends with what is left.
        Ok(Outcome {
            report,
            seconds,
            done,
            after,
            pool,
            data,
            log,
            written_before,
            flushes,
            calls,
            cpu_share,
            locks,
            sum,
            page_trace,
            requests,
        })
    }

    fn begin_trace(&self, recorder: &Recorder<Vec<u8>>) -> Result<()> {
        match (self.trace, self.length) {
            (Trace::Nothing, _) => {}
            (Trace::Pages(label), Length::Changes { counted, .. }) => {
                let Self { page_bytes, buffer_pool_bytes, .. } = *self;
                let header =
                    Header { label: label.to_owned(), database: Some(Database { page_bytes, buffer_pool_bytes }) };
                recorder.begin(TraceWriter::new(Vec::new(), &header)?, counted);
            }
            (Trace::Pages(_), _) => unreachable!("a trace of pages ends with its changes"),
            (Trace::Requests, _) => recorder.begin(TraceWriter::new(Vec::new(), &Header::new(self.describe()))?, 0),
        }
        Ok(())
    }

    fn end_trace(
        &self,
        recorder: &Recorder<Vec<u8>>,
        report: &RunReport,
        done: &Stats,
    ) -> Result<(Vec<u8>, Option<requests::Analysis>)> {
        let totals = Totals {
            transactions: Some(report.ended),
            page_bytes: Some(self.page_bytes),
            pages_read: Some(done.store.pages_loaded),
            pages_stored: Some(done.store.pages_stored),
            ..Totals::default()
        };
        Ok(match self.trace {
            Trace::Nothing => (Vec::new(), None),
            Trace::Pages(_) => (recorder.finish(totals)?, None),
            Trace::Requests => {
                let trace = recorder.finish(totals)?;
                (Vec::new(), Some(requests::Analysis::of(Reader::new(self.describe(), &trace[..])?)?))
            }
        })
    }
}

impl Devices {
    /// Of the drive of the pages, and of that of the log; none where there is no drive.
    fn counters(&self) -> [Counters; 2] {
        self.drives.each_ref().map(|drive| drive.as_ref().map(|drive| drive.counters()).unwrap_or_default())
    }
}

impl Data {
    /// The device, and beside it what its time can be ended by, and its drive, whose requests go through `observed`.
    fn build(
        &self,
        image: Option<&Image>,
        observed: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> Result<BuiltData> {
        Ok(match self {
            Self::Instant(bytes) => {
                let contents = image.map_or_else(|| Bytes::in_memory(*bytes), Image::data);
                (Instant::new("data", contents), None, None)
            }
            Self::Resident(profile) => {
                let disk = EmulatedDevice::new("disk", profile.build()?);
                let image = image.expect("a database in memory was loaded before");
                let timed = Timed::new(image.data(), disk, true);
                (Arc::clone(&timed) as _, Some(timed), None)
            }
            Self::Drive(drive) => {
                let emulated = drive.emulate("data", image.map_or(0, |image| image.bytes))?;
                let device = drive.use_of(observed(Arc::clone(&emulated) as _))?;
                match image {
                    Some(image) => (Timed::new(image.data(), device, false) as _, None, Some(emulated)),
                    None => (device, None, Some(emulated)),
                }
            }
        })
    }
}

type BuiltData = (Arc<dyn Device>, Option<Arc<Timed>>, Option<Arc<EmulatedDevice>>);

/// A volume that answers each request after the same time, and any number of them at once.
fn volume(answers_after: Duration) -> Result<Arc<dyn Device>> {
    let mut profile = Profile::named(VOLUME)?.with_capacity(VOLUME_BYTES);
    let Kind::CloudVolume(volume) = &mut profile.device else { unreachable!("{VOLUME} is a volume") };
    volume.network_us = answers_after.as_secs_f64() * 1e6;
    (volume.service_us, volume.jitter_us) = (0.0, 0.0);
    (volume.iops, volume.mb_per_s) = (1e8, 1e6);
    volume.stall_every_us = 1e15;
    Ok(EmulatedDevice::new("log", profile.build()?))
}

/// The same drive, all of it written once before, where its profile leaves that open: a log-block translation layer then
/// copies in its merges what it copies in use.
pub(crate) fn in_use(mut profile: Profile) -> Profile {
    match &mut profile.device {
        Kind::UsbDrive(drive) => drive.ftl.initial_state = InitialState::Steady,
        Kind::BlockSsd(drive) => drive.ftl.initial_state = InitialState::Steady,
        _ => {}
    }
    profile
}
