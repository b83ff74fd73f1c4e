//! A database, loaded once and copied for each run.

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, Builder, Db, Devices, StoreKind};
use tantalum_device::Device;
use tantalum_flash::Contents as Bytes;
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{LoadProgress, linkbench::LinkBench, tpcc::Tpcc, ycsb::Ycsb};

use super::{Contents, Pages, STACK_BYTES, Segments, devices::Instant};
use crate::error::Result;

/// Of the log while loading.
const LOAD_LOG_BYTES: u64 = 512 << 20;
/// Tasks that load at the same time.
pub(super) const LOADERS: usize = 4;

/// A loaded and closed database.
pub(super) struct Image {
    data: Bytes,
    log_id: u128,
    /// Where its log ended.
    end: Lsn,
    /// The session of the log that loaded it, which the data bears.
    session: u64,
    /// Bytes of its pages.
    pub bytes: u64,
}

/// What is loaded, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Load {
    pub contents: Contents,
    pub page_bytes: u32,
    pub pool_bytes: u64,
    pub pages: Pages,
    /// Of the data device.
    pub data_bytes: u64,
}

/// The settings of all servers. The papers' servers flush whatever their devices are, and do not delay commits to gather them.
pub(super) fn server(page_bytes: u32, buffer_pool_bytes: u64) -> Builder {
    let server = Db::builder().page_size(page_bytes).buffer_pool_bytes(buffer_pool_bytes);
    server.expert(|expert| expert.barriers(Barriers::On).log_gather(false))
}

impl Pages {
    /// Opens a database on its devices, or creates it there.
    pub(super) fn open(
        self,
        server: Builder,
        page_bytes: u32,
        data: Arc<dyn Device>,
        log: Vec<Arc<dyn Device>>,
    ) -> Result<Db> {
        let (server, devices) = match self {
            Self::InPlace { protection, durable_writes } => {
                let server =
                    server.expert(|expert| expert.torn_page_protection(protection).durable_page_writes(durable_writes));
                (server, Devices::on_data_device(data, page_bytes, log)?)
            }
            Self::LogStructured(Segments { compression, streams, discards, .. }) => {
                let server = server.page_store(StoreKind::LogStructured).expert(|expert| {
                    expert.page_compression(compression).page_streams(streams).discard_segments(discards)
                });
                (server, Devices { data, double_write: None, log })
            }
            Self::InPageLogging => {
                (server.page_store(StoreKind::InPageLogging), Devices { data, double_write: None, log })
            }
        };
        Ok(server.open_on(devices)?)
    }
}

impl Image {
    /// Loads a database, in a simulation on devices that take no time: the same each time.
    pub fn load(load: Load, progress: &dyn Fn(&str)) -> Result<Self> {
        // The closure outlives this call for the compiler; the run ends within it.
        let (sender, stages) = std::sync::mpsc::channel();
        let work = tantalum_rt::spawn("load", move || {
            let run = move || {
                load.run(&mut |at: &LoadProgress| {
                    // Without a receiver the load goes on.
                    let _ = sender.send((at.rows, at.total_rows));
                })
            };
            let seed = match load.contents {
                Contents::Tpcc(parameters) => parameters.seed,
                Contents::LinkBench(parameters) => parameters.seed,
                Contents::Ycsb { records, .. } => records.seed,
                Contents::Rows { .. } => unreachable!("each run loads its rows"),
            };
            let simulation = Simulation::new(seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
            simulation.run(run).expect_finished()
        });
        let started = tantalum_rt::now();
        while !work.is_finished() {
            tantalum_rt::sleep(Duration::from_millis(200));
            if let Some((rows, total)) = stages.try_iter().last() {
                let rate = rows as f64 / started.elapsed().as_secs_f64();
                let left = (total.saturating_sub(rows)) as f64 / rate.max(1.0);
                progress(&format!("loading: {rows} of {total} rows, {rate:.0} a second, {left:.0} s left"));
            }
        }
        work.join_or_panic()
    }

    /// The contents of the data device, for one run.
    pub fn data(&self) -> Bytes {
        self.data.fork().expect("an image lies in memory")
    }

    /// Formats devices as the log with which the database goes on.
    pub fn format_log(&self, devices: Vec<Arc<dyn Device>>, options: LogOptions) -> Result<()> {
        Ok(Log::create_at(self.log_id, self.end, self.session, devices, options)?)
    }
}

impl Load {
    fn run(&self, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Image> {
        let data = Instant::new("data", Bytes::in_memory(self.data_bytes));
        let log: Arc<dyn Device> = Instant::new("log", Bytes::in_memory(LOAD_LOG_BYTES));
        let mut server = server(self.page_bytes, self.pool_bytes);
        if let Pages::LogStructured(Segments { bytes, fill_percent, .. }) = self.pages {
            server = server.expert(|expert| expert.segment_bytes(bytes).segment_fill_percent(fill_percent));
        }
        let db = self.pages.open(server, self.page_bytes, data.clone(), vec![Arc::clone(&log)])?;
        match self.contents {
            Contents::Tpcc(parameters) => drop(Tpcc::load_or_reuse(&db, parameters, LOADERS, progress)?),
            Contents::LinkBench(parameters) => drop(LinkBench::load_or_reuse(&db, parameters, LOADERS, progress)?),
            Contents::Ycsb { records, .. } => drop(Ycsb::load_or_reuse(&db, records, LOADERS, progress)?),
            Contents::Rows { .. } => unreachable!("each run loads its rows"),
        }
        let bytes = db.check()?.pages_used * u64::from(self.page_bytes);
        let session = db.stats()?.log.epoch;
        db.close()?;
        let log = Log::open(vec![log], LogOptions::default(), &mut |_| ())?;
        assert!(log.was_clean(), "the database was closed");
        Ok(Image { data: data.contents(), log_id: log.log_id(), end: log.end_lsn(), session, bytes })
    }
}
