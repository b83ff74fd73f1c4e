//! TPC-C through the engine on one emulated data device: what a page store costs there.
//!
//! The log lies on a device that takes no time, so that all differences are the data device's.

use std::{sync::Arc, time::Duration};

use tantalum::{Db, Devices, InPageStats, PoolStats, StoreKind, TornPageProtection};
use tantalum_device::Device;
use tantalum_flash::{Contents, Counters, EmulatedDevice, Profile};
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Options},
    tpcc::{Parameters, Reads, Tpcc},
};

use super::{HARDWARE_THREADS, Size, image, image::STACK_BYTES, plain::Plain};
use crate::{
    error::Result,
    micro::{self, Data},
};

/// The paper's page (section 3.2).
const PAGE_BYTES: u32 = 8 << 10;
const LOG_BYTES: u64 = 8 << 30;
const LOADERS: usize = 4;

/// What an attempt takes of a core.
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);

/// A run.
#[derive(Clone)]
pub struct Stored {
    /// How pages are stored.
    pub store: StoreKind,
    /// What keeps them whole, where the store does not.
    pub protection: TornPageProtection,
    /// The device below them.
    pub device: Profile,
    /// Whether all of the device was written once before.
    pub is_filled: bool,
    /// The database and its buffer pool.
    pub size: Size,
    /// Users without think time.
    pub users: usize,
    /// Transactions of all users before anything is counted, and those that are.
    pub warm_up: u64,
    /// Transactions of all users that are counted.
    pub counted: u64,
    /// For the load and the users' choices.
    pub seed: u64,
}

/// What a run cost.
#[derive(Debug, Clone)]
pub struct StoreCost {
    /// Transactions that committed.
    pub committed: u64,
    /// Virtual seconds, with a checkpoint at the end.
    pub seconds: f64,
    /// What the device did for them.
    pub device: DeviceWork,
    /// What in-page logging did since the database was opened, the load included.
    pub in_page: Option<InPageStats>,
    /// The pool, twice a virtual second.
    pub pool: Vec<PoolStats>,
}

/// What a device did.
#[derive(Debug, Clone, Copy)]
pub struct DeviceWork {
    /// Bytes that the engine read.
    pub read_bytes: u64,
    /// Bytes that the engine wrote.
    pub written_bytes: u64,
    /// Bytes that the medium was written with, whatever for.
    pub media_written_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl DeviceWork {
    pub(super) fn between(before: Counters, after: Counters) -> Self {
        Self {
            read_bytes: after.host_read_bytes - before.host_read_bytes,
            written_bytes: after.host_written_bytes - before.host_written_bytes,
            media_written_bytes: after.media_written_bytes - before.media_written_bytes,
            erases: after.erases - before.erases,
        }
    }
}

impl Stored {
    /// Loads a database on a new device and runs, in a simulation.
    ///
    /// # Errors
    /// As the engine and the device fail: a defect.
    pub fn run(self) -> Result<StoreCost> {
        let simulation = Simulation::new(self.seed).scheduling(Scheduling::InOrder).cores(HARDWARE_THREADS);
        simulation.stack_size(STACK_BYTES).run(move || self.measure()).expect_finished()
    }

    fn measure(self) -> Result<StoreCost> {
        let device = EmulatedDevice::new("data", self.device.build()?);
        if self.is_filled {
            let data: Arc<dyn Device> = Arc::clone(&device) as _;
            let bytes = data.capacity_bytes();
            micro::fill(&data, 0..bytes, Data::Zeros, &|_| ())?;
        }
        let db = self.open(&device)?;
        let parameters = Parameters { warehouses: self.size.warehouses, scale: self.size.scale, seed: self.seed };
        let tpcc = Arc::new(Tpcc::load_or_reuse(&db, parameters, LOADERS, &mut |_| ())?.with_reads(Reads::Transaction));
        let mut pool = Vec::new();
        let run = |transactions: u64, seed, pool: &mut Vec<PoolStats>| {
            let options = Options::transactions(self.users, transactions.div_ceil(self.users as u64)).with_seed(seed);
            driver::run(&tpcc, options.with_cpu_per_attempt(CPU_PER_ATTEMPT), &mut |_| {
                pool.extend(db.stats().map(|stats| stats.pool));
            })
        };
        run(self.warm_up, self.seed, &mut Vec::new())?;
        db.checkpoint()?;
        let (started, before) = (tantalum_rt::now(), device.counters());
        let report = run(self.counted, self.seed + 1, &mut pool)?;
        db.checkpoint()?;
        let cost = StoreCost {
            committed: report.total.committed,
            seconds: started.elapsed().as_secs_f64(),
            device: DeviceWork::between(before, device.counters()),
            in_page: db.stats()?.store.in_page,
            pool,
        };
        drop(tpcc);
        db.close()?;
        Ok(cost)
    }

    fn open(&self, device: &Arc<EmulatedDevice>) -> Result<Db> {
        let (data, log) = (Arc::clone(device) as Arc<dyn Device>, Plain::new("log", Contents::in_memory(LOG_BYTES)));
        let server = image::server(PAGE_BYTES, self.size.buffer_pool_bytes);
        let (server, devices) = match self.store {
            StoreKind::InPageLogging => {
                (server.page_store(self.store), Devices { data, double_write: None, log: vec![log] })
            }
            _ => {
                let server = server.expert(|expert| expert.torn_page_protection(self.protection));
                (server, Devices::on_data_device(data, PAGE_BYTES, vec![log])?)
            }
        };
        Ok(server.open_on(devices)?)
    }
}
