//! A table of small rows, all of it in memory, and a log on a device that answers after a fixed time: what the engine itself
//! makes of clients and cores.
//!
//! Each run loads its rows in a simulation of its own. What is measured afterwards is the engine and its log device; the
//! device of the pages takes no time.

mod clients;

use std::{sync::Arc, time::Duration};

use tantalum::{Devices, TransactionStats};
use tantalum_device::Device;
use tantalum_flash::{Contents, EmulatedDevice, Kind, Profile};
use tantalum_rt::{
    Scheduling, Simulation,
    simulation::{LockCharges, LockUse, charge_locks, lock_uses},
};
use tantalum_workloads::driver::{self, Options, RunReport};

use self::clients::Clients;
use super::{
    image::{self, STACK_BYTES},
    plain::Plain,
    sweep::side_by_side,
};
use crate::error::Result;

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// Rows in the table.
    pub count: u64,
    /// What a client does again and again.
    pub operation: Operation,
    /// Whether a transaction's locks are released before its log record is durable.
    pub early_lock_release: bool,
    /// After how long the log's device answers a request, whatever else it is asked at the same time.
    pub log_answers_after: Duration,
    /// Clients without think time.
    pub clients: usize,
    /// Virtual cores.
    pub cores: usize,
    /// What each attempt at an operation takes of a core, beside what is charged for locks.
    pub cpu_per_attempt: Duration,
    /// What locks take once the rows are loaded; by default nothing.
    pub locks: LockCharges,
    /// Virtual time before anything is counted.
    pub warm_up: Duration,
    /// Virtual time that is counted.
    pub measured: Duration,
    /// For the clients' choices.
    pub seed: u64,
}

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Moves an amount from one row to another, both chosen at random, read and written in a serializable transaction. Each is
    /// locked for writing when it is read; half of an attempt's time of a core passes after each lock.
    Transfer {
        /// Whether rows are locked in their order, so that no two transfers deadlock; else in the order chosen.
        in_order: bool,
    },
    /// Puts a new value under a random row, blindly, with so many commits of each client under way.
    Update {
        /// Commits; 1: it waits for each.
        depth: usize,
    },
    /// Reads a random row.
    Read(Through),
}

/// What a row is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// A snapshot that the client keeps.
    KeptSnapshot,
    /// A snapshot of its own for each read.
    Snapshot,
    /// A serializable transaction of its own for each read.
    Transaction,
}

/// What a run measured.
#[derive(Debug, Clone)]
pub struct RowsRun {
    /// What the clients did.
    pub report: RunReport,
    /// What their transactions did, the load and the warm-up included.
    pub transactions: TransactionStats,
    /// How locks were used, the warm-up included.
    pub locks: Vec<LockUse>,
    /// Virtual time in which they were.
    pub elapsed: Duration,
    /// The sum of all rows afterwards, modulo 2^64: transfers leave it as it was, 0.
    pub sum: u64,
}

/// The emulated device of the log, which is this profile with its times made one.
pub const LOG_DEVICE: &str = "cloud-volume";

const PAGE_BYTES: u32 = 4 << 10;
const POOL_BYTES: u64 = 256 << 20;
const DATA_BYTES: u64 = 1 << 30;
/// Enough for a run: nothing waits for room in the log.
const LOG_BYTES: u64 = 2 << 30;

impl Rows {
    /// Loads the rows and runs, in a simulation.
    ///
    /// # Errors
    /// As the engine and the device fail: a defect.
    pub fn run(self) -> Result<RowsRun> {
        let simulation = Simulation::new(self.seed).scheduling(Scheduling::InOrder).cores(self.cores);
        simulation.stack_size(STACK_BYTES).run(move || self.measure()).expect_finished()
    }

    /// Runs all, as many at a time as the machine has cores; the results in the order asked for. `progress` is told of each that
    /// ends.
    ///
    /// # Errors
    /// The first of a run.
    pub fn run_all(all: &[Self], progress: &dyn Fn(&str)) -> Result<Vec<RowsRun>> {
        let mut runs: Vec<Option<RowsRun>> = all.iter().map(|_| None).collect();
        side_by_side(
            all.iter().copied().enumerate().collect(),
            |(_, rows): &(usize, Self)| rows.describe(),
            |(_, rows)| rows.run(),
            |(place, _), run| runs[place] = Some(run),
            progress,
        )?;
        Ok(runs.into_iter().map(|run| run.expect("each was run or failed")).collect())
    }

    fn describe(&self) -> String {
        let Self { operation, count, clients, cores, .. } = self;
        format!("{operation:?} on {count} rows, {clients} clients, {cores} cores")
    }

    fn measure(self) -> Result<RowsRun> {
        let data: Arc<dyn Device> = Plain::new("data", Contents::in_memory(DATA_BYTES));
        let devices = Devices::on_data_device(data, PAGE_BYTES, vec![log_device(self.log_answers_after)?])?;
        let server =
            image::server(PAGE_BYTES, POOL_BYTES).expert(|expert| expert.early_lock_release(self.early_lock_release));
        let db = server.open_on(devices)?;
        let clients = Arc::new(Clients::load(&db, self)?);
        let mut options = Options::timed(self.clients, self.warm_up, self.measured).with_seed(self.seed);
        if !matches!(self.operation, Operation::Transfer { .. }) {
            options = options.with_cpu_per_attempt(self.cpu_per_attempt);
        }
        let started = tantalum_rt::now();
        charge_locks(self.locks);
        let report = driver::run(&clients, options, &mut |_| ())?;
        let (elapsed, locks) = (started.elapsed(), lock_uses());
        let sum = clients.sum()?;
        let transactions = db.stats()?.transactions;
        drop(clients);
        db.close()?;
        Ok(RowsRun { report, transactions, locks, elapsed, sum })
    }
}

/// A volume that answers each request after the same time, and any number of them at once.
fn log_device(answers_after: Duration) -> Result<Arc<dyn Device>> {
    let mut profile = Profile::named(LOG_DEVICE)?.with_capacity(LOG_BYTES);
    let Kind::CloudVolume(volume) = &mut profile.device else { unreachable!("{LOG_DEVICE} is a volume") };
    volume.network_us = answers_after.as_secs_f64() * 1e6;
    (volume.service_us, volume.jitter_us) = (0.0, 0.0);
    (volume.iops, volume.mb_per_s) = (1e8, 1e6);
    volume.stall_every_us = 1e15;
    Ok(EmulatedDevice::new("log", profile.build()?))
}
