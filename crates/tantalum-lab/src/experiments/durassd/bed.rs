//! The paper's database server, scaled down, and what all its experiments share.

use std::{sync::Arc, time::Duration};

use tantalum::{Barriers, PageCleaning, TornPageProtection};
use tantalum_rt::Mutex;
use tantalum_workloads::linkbench::Parameters;

use crate::{
    error::Result,
    experiments::Settings,
    server::{Databases, DriveRun, Loaded, Scaled, Setup},
};

/// The profile of the drives.
pub(super) const DRIVE: &str = "durassd";

/// Pages of the paper, in bytes.
pub(super) const PAGES: [u32; 3] = [16 << 10, 8 << 10, 4 << 10];

const GB: u64 = 1_000_000_000;

/// A database of the paper, scaled down.
pub(super) struct Sizes {
    /// What it holds.
    pub(super) contents: Loaded,
    /// In words.
    pub(super) what: String,
    /// By what all sizes are divided.
    pub(super) scale: u64,
    /// The paper's buffer, where it has one size only, in GB.
    pub(super) buffer_gb: u64,
    /// What an attempt at a transaction takes of a hardware thread.
    pub(super) cpu_per_attempt: Duration,
    /// Before those that are counted, and as many that are.
    pub(super) transactions: u64,
}

impl Sizes {
    /// LinkBench on MySQL (section 4.3.1).
    pub(super) fn linkbench(settings: Settings) -> Self {
        /// As many as take a 400th of the paper's 100 GB, with pages of 4 KiB.
        const NODES: u64 = 350_000;
        Self {
            contents: Loaded::LinkBench(Parameters { nodes: NODES, seed: settings.seed }),
            what: format!("a graph of {NODES} nodes"),
            scale: 400,
            buffer_gb: 10,
            // The workload's default in virtual time (`docs/measure/benchmarks.md`), here and with TPC-C.
            cpu_per_attempt: Duration::from_micros(30),
            transactions: 60_000,
        }
    }

    fn scaled(&self, settings: Settings) -> Scaled {
        Scaled {
            contents: self.contents,
            // The drive has 480 GB, and 512 MB of memory.
            drive_bytes: (480 * GB / self.scale).next_multiple_of(1 << 20),
            drive_cache_bytes: Some((512 * GB / 1000 / self.scale).next_multiple_of(4096)),
            // "To minimize the interference from logging" (section 4.2): no checkpoint is due.
            log_bytes: 512 << 20,
            clients: 128,
            cores: 32,
            cpu_per_attempt: self.cpu_per_attempt,
            warm_up: self.transactions,
            counted: self.transactions,
            seed: settings.seed,
        }
    }
}

/// A database of the paper on its server.
pub(super) struct Bed<'a> {
    sizes: Sizes,
    databases: Arc<Databases>,
    progress: &'a dyn Fn(&str),
}

/// The one that was loaded last. One is enough for memory.
static LOADED: Mutex<Option<Arc<Databases>>> = Mutex::new(None);

impl<'a> Bed<'a> {
    /// Shares databases and runs with the experiment before, if that had the same.
    pub(super) fn new(sizes: Sizes, settings: Settings, progress: &'a dyn Fn(&str)) -> Self {
        let scaled = sizes.scaled(settings);
        let mut loaded = LOADED.lock();
        let databases = match &*loaded {
            Some(databases) if *databases.scaled() == scaled => Arc::clone(databases),
            _ => Arc::clone(loaded.insert(Arc::new(Databases::new(scaled)))),
        };
        Self { sizes, databases, progress }
    }

    /// So many GB of the paper.
    pub(super) fn buffer(&self, gb: u64) -> u64 {
        gb * GB / self.sizes.scale
    }

    /// A setting of the paper: write barriers, double writes, the page.
    pub(super) fn paper(&self, has_barriers: bool, double_writes: bool, page_bytes: u32) -> Setup {
        let protection = if double_writes { TornPageProtection::DoubleWrite } else { TornPageProtection::TrustDevice };
        let buffer_pool_bytes = self.buffer(self.sizes.buffer_gb);
        Setup {
            drive: DRIVE,
            has_barriers,
            barriers: Barriers::On,
            protection,
            cleaning: PageCleaning::OnDemand,
            durable_page_writes: false,
            page_bytes,
            buffer_pool_bytes,
        }
    }

    pub(super) fn run(&self, setups: &[Setup]) -> Result<Vec<Arc<DriveRun>>> {
        self.databases.run(setups, self.progress)
    }

    /// How it is set up, a line each.
    pub(super) fn configuration(&self) -> Result<Vec<String>> {
        let mib = |bytes: u64| tantalum_report::units::bytes(bytes.next_multiple_of(1 << 20));
        let [sixteen, eight, four] = PAGES.map(|page| self.databases.bytes(page, self.progress).map(mib));
        let (scaled, Sizes { what, scale, .. }) = (self.databases.scaled(), &self.sizes);
        Ok(vec![
            format!(
                "all sizes of the paper divided by {scale}: {what}, {} in pages of 16 KiB, {} of 8 KiB, {} of 4 KiB; a buffer pool \
                 of {}, unless said; of the drive's {}, {} are for writes that wait",
                sixteen?,
                eight?,
                four?,
                mib(self.buffer(self.sizes.buffer_gb)),
                mib(scaled.drive_bytes),
                mib(scaled.drive_cache_bytes.unwrap_or(0)),
            ),
            format!(
                "{} clients; {} us of one of {} hardware threads for each transaction (assumed); {} before those that are \
                 counted, and about {} that are",
                scaled.clients,
                scaled.cpu_per_attempt.as_micros(),
                scaled.cores,
                scaled.warm_up,
                scaled.counted
            ),
            "two drives, one of them for the log; files of a file system, whose fsync is that of Table 1; without barriers it \
             does not flush the drive"
                .into(),
        ])
    }
}

/// The same, as Tantalum makes room unless told otherwise.
pub(super) fn cleaned_ahead(setup: Setup) -> Setup {
    Setup { cleaning: PageCleaning::Ahead, ..setup }
}

/// As the paper writes it.
pub(super) fn notation(setup: &Setup) -> &'static str {
    match (setup.has_barriers, setup.protection == TornPageProtection::DoubleWrite) {
        (true, true) => "ON/ON",
        (true, false) => "ON/OFF",
        (false, true) => "OFF/ON",
        (false, false) => "OFF/OFF",
    }
}

/// Bytes of a page as the paper writes them.
pub(super) fn kilobytes(page_bytes: u32) -> String {
    format!("{}KB", page_bytes >> 10)
}
