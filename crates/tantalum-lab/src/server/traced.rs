//! TPC-C whose page changes and page writes are recorded ("In-Page Logging", section 4.2.1).
//!
//! Which pages are written depends on the buffer pool and on what the transactions do, not on how fast a device is: the
//! devices here take no time.

use std::{sync::Arc, time::Duration};

use tantalum::Devices;
use tantalum_device::Device;
use tantalum_flash::Contents;
use tantalum_log::LogOptions;
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{
    driver::{self, Options},
    tpcc::{Parameters, Reads, Tpcc},
};

use super::{
    Size,
    image::{self, Image, Plan, STACK_BYTES},
    plain::Plain,
};
use crate::{
    error::Result,
    trace::{Database, Header, Recorder, Totals, Writer},
};

/// The paper's page (section 3.2).
const PAGE_BYTES: u32 = 8 << 10;

/// No checkpoint is due in a run, which would write all pages that are dirty.
const LOG_BYTES: u64 = 8 << 30;

/// Transactions of all users before the trace begins: what fills the pool.
const WARM_UP: u64 = 2000;

/// Transactions of each user at a time, until the trace has its changes.
const STEPS: u64 = 20;

/// What an attempt takes of a core: only that time passes.
const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);

/// A run.
#[derive(Debug, Clone, Copy)]
pub struct Traced {
    /// Its name.
    pub label: &'static str,
    /// The buffer pool.
    pub buffer_pool_bytes: u64,
    /// Users without think time.
    pub users: usize,
    /// After so many changes of pages it ends.
    pub changes: u64,
    /// For the users' choices.
    pub seed: u64,
}

/// A loaded database, for runs that are traced.
pub struct TracedServer {
    image: Arc<Image>,
}

impl TracedServer {
    /// Loads the database, with a pool of this size.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn load(size: Size, seed: u64, progress: &dyn Fn(&str)) -> Result<Self> {
        let parameters = Parameters { warehouses: size.warehouses, scale: size.scale, seed };
        Ok(Self { image: Arc::new(Image::load(Plan::tpcc(parameters, PAGE_BYTES, size.buffer_pool_bytes), progress)?) })
    }

    /// Bytes of the loaded database's pages.
    pub fn database_bytes(&self) -> u64 {
        self.image.bytes
    }

    /// Runs on a copy of the database, in a simulation, and gives the trace.
    ///
    /// # Errors
    /// As the engine fails: a defect.
    pub fn trace(&self, run: Traced) -> Result<Vec<u8>> {
        let image = Arc::clone(&self.image);
        let simulation = Simulation::new(run.seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
        simulation.run(move || run.record(&image)).expect_finished()
    }
}

impl Traced {
    fn record(self, image: &Image) -> Result<Vec<u8>> {
        let log: Arc<dyn Device> = Plain::new("log", Contents::in_memory(LOG_BYTES));
        image.format_log(vec![Arc::clone(&log)], LogOptions::default())?;
        let devices = Devices::on_data_device(Plain::new("data", image.data()), PAGE_BYTES, vec![log])?;
        let recorder: Arc<Recorder<Vec<u8>>> = Recorder::new();
        let observer = recorder.clone();
        let db = image::server(PAGE_BYTES, self.buffer_pool_bytes)
            .expert(|expert| expert.observe_pages(observer))
            .open_on(devices)?;
        let tpcc = Arc::new(Tpcc::open(&db)?.expect("the image holds a whole load").with_reads(Reads::Transaction));
        let run = |steps, seed| {
            let options = Options::transactions(self.users, steps).with_seed(seed);
            driver::run(&tpcc, options.with_cpu_per_attempt(CPU_PER_ATTEMPT), &mut |_| ())
        };
        run(WARM_UP.div_ceil(self.users as u64), self.seed)?;
        let database = Some(Database { page_bytes: PAGE_BYTES, buffer_pool_bytes: self.buffer_pool_bytes });
        let header = Header { label: self.label.to_owned(), database };
        recorder.begin(Writer::new(Vec::new(), &header).expect("memory takes it"), self.changes);
        for seed in self.seed + 1.. {
            run(STEPS, seed)?;
            if recorder.is_full() {
                break;
            }
        }
        let trace = recorder.finish(Totals::default()).expect("memory takes it");
        drop(tpcc);
        db.close()?;
        Ok(trace)
    }
}
