//! One run of TPC-C on the server: which log, how many clients, how long; and what came out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use serde::Serialize;
use tantalum::{Devices, LogSummary};
use tantalum_device::{Device, ObservedDevice};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Latency, Options},
    tpcc::{BeforeCall, Call, Kind as Transaction, Reads, Tpcc},
};

use super::{
    LogSetup, Writer,
    image::{self, Image, STACK_BYTES},
    log_mutex::LogMutex,
    resident::Resident,
    setup::Built,
    tap::{Sizes, Tap},
};
use crate::error::Result;

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell {
    /// The server's log.
    pub log: LogSetup,
    /// Clients without think time.
    pub clients: usize,
    /// Whether a transaction's locks are released before its log record is durable.
    pub early_lock_release: bool,
    /// What each call to the engine takes of a hardware thread.
    pub cpu_per_call: Duration,
    /// Virtual time before anything is counted.
    pub warm_up: Duration,
    /// Virtual time that is counted.
    pub measured: Duration,
    /// For the clients' choices.
    pub seed: u64,
}

/// What a run measured.
#[derive(Debug, Clone, Serialize)]
pub struct Run {
    /// Committed new-order transactions in a minute: NOTPM.
    pub new_orders_per_minute: f64,
    /// Committed transactions in a second.
    pub per_second: f64,
    /// Of all transactions.
    pub latency: Latency,
    /// Attempts that ended by a deadlock or a lock time-out, for each committed transaction.
    pub aborted: f64,
    /// The log's flushes: how many of each size in bytes.
    pub flushes: Sizes,
    /// Share of all hardware threads' time that was charged.
    pub cpu_share: f64,
    /// Calls to the engine for each committed transaction.
    pub calls: f64,
    /// The log's own counters, warm-up included.
    pub log: LogSummary,
}

/// Hardware threads of the paper's server: two cores of two threads each, as the paper has it.
pub const HARDWARE_THREADS: usize = 4;

/// Clients, from 1 to 128 in powers of two, as in the paper.
pub const CLIENTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// What a call to the engine takes of a hardware thread. The one free parameter: fitted on `fl.fig11.disk_over_ideal`, and
/// on nothing else, by the example `fit_cpu`.
pub const CPU_PER_CALL: Duration = Duration::from_micros(50);

/// Virtual time before counting: enough for group commit to settle.
const WARM_UP: Duration = Duration::from_secs(2);

/// Virtual time that is counted.
const MEASURED: Duration = Duration::from_secs(6);

/// InnoDB's.
pub(super) const PAGE_BYTES: u32 = 16 << 10;

/// The server's data disk.
const DATA_DISK: &str = "hdd-10k";

impl Cell {
    /// A run of the paper's kind.
    pub const fn of_paper(log: LogSetup, clients: usize, seed: u64) -> Self {
        Self {
            log,
            clients,
            early_lock_release: false,
            cpu_per_call: CPU_PER_CALL,
            warm_up: WARM_UP,
            measured: MEASURED,
            seed,
        }
    }

    /// Runs it on a copy of `image`, in a simulation.
    ///
    /// # Errors
    /// As the engine and the devices fail: a defect.
    pub(super) fn run(self, image: &Arc<Image>, buffer_pool_bytes: u64) -> Result<Run> {
        let image = Arc::clone(image);
        let simulation =
            Simulation::new(self.seed).scheduling(Scheduling::InOrder).cores(HARDWARE_THREADS).stack_size(STACK_BYTES);
        simulation.run(move || self.measure(&image, buffer_pool_bytes)).expect_finished()
    }

    fn measure(&self, image: &Image, buffer_pool_bytes: u64) -> Result<Run> {
        let disk = Profile::named(DATA_DISK)?.with_capacity(image::DATA_BYTES).build()?;
        let data = Resident::new(image.data(), EmulatedDevice::new(DATA_DISK, disk));
        let mutex = (self.log.writer == Writer::Original).then(Arc::<LogMutex>::default);
        let Built { devices, archive } = self.log.build()?;
        let taps: Vec<Arc<Tap>> = devices.iter().map(|_| Arc::new(Tap::new(mutex.clone()))).collect();
        let tapped = |(device, tap): (_, &Arc<Tap>)| Arc::new(ObservedDevice::new(device, tap.clone())) as _;
        let log: Vec<Arc<dyn Device>> = devices.into_iter().zip(&taps).map(tapped).collect();
        image.format_log(log.clone(), self.log.options(None))?;
        let devices = Devices::on_data_device(Arc::clone(&data) as Arc<dyn Device>, PAGE_BYTES, log)?;
        let server = image::server(PAGE_BYTES, buffer_pool_bytes)
            .expert(|expert| expert.early_lock_release(self.early_lock_release));
        let db = self.log.on_server(server, archive.as_ref()).open_on(devices)?;
        let tpcc = Tpcc::open(&db)?.expect("the image holds a whole load");
        let calls = Arc::new(AtomicU64::new(0));
        let before_call = self.before_call(&calls, mutex);
        let tpcc = Arc::new(tpcc.with_reads(Reads::Transaction).with_before_call(before_call));
        let options = Options::timed(self.clients, self.warm_up, self.measured).with_seed(self.seed);
        let mut at_begin = None;
        let report = driver::run(&tpcc, options, &mut |progress| {
            if !progress.elapsed.is_zero() && at_begin.is_none() {
                taps.iter().for_each(|tap| drop(tap.take()));
                at_begin = Some((tantalum_rt::now(), calls.load(Ordering::Relaxed)));
            }
        })?;
        let (begin, calls_before) = at_begin.expect("the driver tells of its progress while it counts");
        let calls = calls.load(Ordering::Relaxed) - calls_before;
        let mut flushes = Sizes::new();
        for (bytes, count) in taps.iter().flat_map(|tap| tap.take()) {
            *flushes.entry(bytes).or_default() += count;
        }
        let committed = report.total.committed.max(1) as f64;
        let charged = self.cpu_per_call.as_secs_f64() * calls as f64;
        let run = Run {
            new_orders_per_minute: report.kinds[Transaction::NewOrder as usize].per_second * 60.0,
            per_second: report.total.per_second,
            latency: report.total.latency,
            aborted: report.total.aborted as f64 / committed,
            flushes,
            cpu_share: charged / (begin.elapsed().as_secs_f64() * HARDWARE_THREADS as f64),
            calls: calls as f64 / committed,
            log: db.stats()?.log,
        };
        data.end();
        drop(tpcc);
        db.close()?;
        Ok(run)
    }
}

impl Cell {
    /// What each call costs: its time of a core, and what it waits for.
    fn before_call(&self, calls: &Arc<AtomicU64>, mutex: Option<Arc<LogMutex>>) -> BeforeCall {
        let (calls, cpu_per_call) = (Arc::clone(calls), self.cpu_per_call);
        Box::new(move |call| {
            calls.fetch_add(1, Ordering::Relaxed);
            tantalum_rt::work(cpu_per_call);
            if let Some(mutex) = &mutex
                && call != Call::Read
            {
                mutex.pass();
            }
        })
    }
}
