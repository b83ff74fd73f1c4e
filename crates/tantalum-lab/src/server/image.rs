//! A database, loaded once and copied for each run.

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, Builder, Db, Devices, StoreKind, TornPageProtection};
use tantalum_device::Device;
use tantalum_flash::Contents;
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{
    LoadProgress,
    linkbench::{self, LinkBench},
    tpcc::{self, Tpcc},
};

use super::plain::Plain;
use crate::error::Result;

/// Bytes of the data disk that are used, the double-write area among them: the database and what a run adds.
pub(super) const DATA_BYTES: u64 = 8 << 30;

/// Of the log while loading.
const LOAD_LOG_BYTES: u64 = 512 << 20;

/// Stacks of tasks; only what a task touches takes memory.
pub(super) const STACK_BYTES: usize = 1 << 20;

/// A loaded and closed database.
pub(super) struct Image {
    data: Contents,
    log_id: u128,
    /// Where its log ended.
    end: Lsn,
    /// The session of the log that loaded it, which the data bears.
    session: u64,
    /// Bytes of its pages.
    pub(super) bytes: u64,
}

/// The settings of the server, but for what a run decides. The papers' servers flush whatever their devices are, and wait for
/// nobody before they do.
pub(super) fn server(page_bytes: u32, buffer_pool_bytes: u64) -> Builder {
    let server = Db::builder().page_size(page_bytes).buffer_pool_bytes(buffer_pool_bytes);
    server.expert(|expert| expert.barriers(Barriers::On).log_gather(false))
}

impl Image {
    /// Loads a database, in a simulation on devices that take no time: the same for the same plan.
    pub(super) fn load(plan: Plan, progress: &dyn Fn(&str)) -> Result<Self> {
        // The closure outlives this call for the compiler; the run ends within it.
        let (sender, stages) = std::sync::mpsc::channel();
        let work = tantalum_rt::spawn("load", move || {
            let run = move || {
                plan.run(&mut |at: &LoadProgress| {
                    // That nobody looks is no reason to stop.
                    let _ = sender.send((at.rows, at.total_rows));
                })
            };
            let simulation =
                Simulation::new(plan.contents.seed()).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
            simulation.run(run).expect_finished()
        });
        let started = tantalum_rt::now();
        while !work.is_finished() {
            tantalum_rt::sleep(Duration::from_millis(200));
            if let Some((rows, total)) = stages.try_iter().last() {
                let rate = rows as f64 / started.elapsed().as_secs_f64();
                let left = (total.saturating_sub(rows)) as f64 / rate.max(1.0);
                let what = plan.contents.describe();
                progress(&format!("loading {what}: {rows} of {total} rows, {rate:.0} a second, {left:.0} s left"));
            }
        }
        work.join_or_panic()
    }

    /// The contents of the data disk, for one run.
    pub(super) fn data(&self) -> Contents {
        self.data.fork().expect("an image lies in memory")
    }

    /// Formats devices as the log with which the database goes on.
    pub(super) fn format_log(&self, devices: Vec<Arc<dyn Device>>, options: LogOptions) -> Result<()> {
        Ok(Log::create_at(self.log_id, self.end, self.session, devices, options)?)
    }
}

/// What is loaded, and how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) contents: Loaded,
    pub(super) page_bytes: u32,
    /// While loading.
    pub(super) buffer_pool_bytes: u64,
    pub(super) protection: TornPageProtection,
    /// Of the data disk.
    pub(super) data_bytes: u64,
    /// Bytes of a segment, and how much of all segments may be live, if the database is log-structured.
    pub(super) segments: Option<(u32, u32)>,
}

/// A database's contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loaded {
    /// TPC-C.
    Tpcc(tpcc::Parameters),
    /// LinkBench.
    LinkBench(linkbench::Parameters),
}

impl Loaded {
    fn seed(&self) -> u64 {
        match self {
            Self::Tpcc(parameters) => parameters.seed,
            Self::LinkBench(parameters) => parameters.seed,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Tpcc(parameters) => format!("{} warehouses", parameters.warehouses),
            Self::LinkBench(parameters) => format!("a graph of {} nodes", parameters.nodes),
        }
    }
}

impl Plan {
    /// TPC-C for the servers of the papers, in 8 GiB.
    pub(super) fn tpcc(parameters: tpcc::Parameters, page_bytes: u32, buffer_pool_bytes: u64) -> Self {
        let (contents, protection) = (Loaded::Tpcc(parameters), TornPageProtection::Auto);
        Self { contents, page_bytes, buffer_pool_bytes, protection, data_bytes: DATA_BYTES, segments: None }
    }

    fn run(&self, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Image> {
        let data = Plain::new("data", Contents::in_memory(self.data_bytes));
        let log: Arc<dyn Device> = Plain::new("log", Contents::in_memory(LOAD_LOG_BYTES));
        let pages: Arc<dyn Device> = Arc::clone(&data) as _;
        let server = server(self.page_bytes, self.buffer_pool_bytes);
        let logs = vec![Arc::clone(&log)];
        let db = match self.segments {
            None => {
                let devices = Devices::on_data_device(pages, self.page_bytes, logs)?;
                server.expert(|expert| expert.torn_page_protection(self.protection)).open_on(devices)?
            }
            Some((bytes, fill_percent)) => {
                let server = server.page_store(StoreKind::LogStructured).expert(|expert| expert.segment_bytes(bytes));
                let devices = Devices { data: pages, double_write: None, log: logs };
                server.expert(|expert| expert.segment_fill_percent(fill_percent)).open_on(devices)?
            }
        };
        match self.contents {
            Loaded::Tpcc(parameters) => drop(Tpcc::load_or_reuse(&db, parameters, LOADERS, progress)?),
            Loaded::LinkBench(parameters) => drop(LinkBench::load_or_reuse(&db, parameters, LOADERS, progress)?),
        }
        let bytes = db.check()?.pages_used * u64::from(self.page_bytes);
        let session = db.stats()?.log.epoch;
        db.close()?;
        let log = Log::open(vec![log], LogOptions::default(), &mut |_| ())?;
        assert!(log.was_clean(), "the database was closed");
        Ok(Image { data: data.contents(), log_id: log.log_id(), end: log.end_lsn(), session, bytes })
    }
}

/// Tasks that load at the same time.
const LOADERS: usize = 4;
