//! The paper's database server, scaled down.

use std::{sync::Arc, time::Duration};

use tantalum::{LogLayout, PageCleaning, TornPageProtection};
use tantalum_flash::{Kind, Profile};
use tantalum_workloads::linkbench::Parameters;

use crate::{
    error::Result,
    experiments::Settings,
    micro::Fsync,
    scenario::{self, Contents, Cpu, Data, Drive, FileUse, Filled, Length, Log, Outcome, Pages, Scenario},
};

/// The profile of the drives.
pub(super) const DRIVE: &str = "durassd";

/// Pages of the paper, in bytes.
pub(super) const PAGES: [u32; 3] = [16 << 10, 8 << 10, 4 << 10];

const GB: u64 = 1_000_000_000;

/// A database of the paper, scaled down.
pub(super) struct Sizes {
    /// What it holds.
    pub(super) contents: Contents,
    /// In words.
    pub(super) what: String,
    /// By what all sizes are divided.
    pub(super) scale: u64,
    /// The paper's buffer, where it has one size only, in GB.
    pub(super) buffer_gb: u64,
    /// Without think time.
    pub(super) clients: usize,
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
            contents: Contents::LinkBench(Parameters { nodes: NODES, seed: settings.seed }),
            what: format!("a graph of {NODES} nodes"),
            scale: 400,
            buffer_gb: 10,
            clients: 128,
            // The workload's default in virtual time (`docs/measure/benchmarks.md`), here and with TPC-C.
            cpu_per_attempt: Duration::from_micros(30),
            transactions: 60_000,
        }
    }

    /// A drive of so many bytes, its buffer for writes scaled down as it is: the paper's has 480 GB, and 512 MB of memory.
    pub(super) fn drive(bytes: u64, scale: u64) -> Result<Drive> {
        let mut profile = Profile::named(DRIVE)?.with_capacity(bytes.next_multiple_of(1 << 20));
        let Kind::SolidState(drive) = &mut profile.device else { unreachable!("{DRIVE} is a solid-state drive") };
        drive.cache.pool_bytes = cache_bytes(scale);
        Ok(Drive { file: FileUse::Overwritten, ..Drive::new(profile) })
    }
}

fn cache_bytes(scale: u64) -> u64 {
    (512 * GB / 1000 / scale).next_multiple_of(4096)
}

/// Of the server.
const CORES: usize = 32;
/// "To minimize the interference from logging" (section 4.2): no checkpoint is due.
const LOG_BYTES: u64 = 512 << 20;

/// A database of the paper on its server.
pub(super) struct ScaledServer<'a> {
    sizes: Sizes,
    seed: u64,
    progress: &'a dyn Fn(&str),
}

impl<'a> ScaledServer<'a> {
    pub(super) fn new(sizes: Sizes, settings: Settings, progress: &'a dyn Fn(&str)) -> Self {
        Self { sizes, seed: settings.seed, progress }
    }

    /// So many GB of the paper.
    pub(super) fn buffer(&self, gb: u64) -> u64 {
        gb * GB / self.sizes.scale
    }

    /// A setting of the paper: write barriers, double writes, the page.
    pub(super) fn paper(&self, has_barriers: bool, double_writes: bool, page_bytes: u32) -> Result<Scenario> {
        let protection = if double_writes { TornPageProtection::DoubleWrite } else { TornPageProtection::TrustDevice };
        let Sizes { contents, scale, buffer_gb, clients, cpu_per_attempt, transactions, .. } = self.sizes;
        let drive = |bytes| Sizes::drive(bytes, scale).map(|drive| Drive { has_barriers, ..drive });
        Ok(on_two_drives(
            Scenario {
                page_bytes,
                buffer_pool_bytes: self.buffer(buffer_gb),
                pages: Pages::InPlace { protection, durable_writes: false },
                cleaning: PageCleaning::OnDemand,
                clients,
                cores: CORES,
                cpu: Cpu::PerAttempt(cpu_per_attempt),
                length: Length::TimeOf { warm_up: transactions, counted: transactions },
                ..Scenario::new(contents, self.seed)
            },
            drive(480 * GB / scale)?,
            drive(LOG_BYTES + Fsync::JOURNAL_BYTES)?,
        ))
    }

    pub(super) fn run(&self, scenarios: &[Scenario]) -> Result<Vec<Arc<Outcome>>> {
        scenario::run(scenarios, self.progress)
    }

    /// How it is set up, a line each.
    pub(super) fn configuration(&self) -> Result<Vec<String>> {
        let mib = |bytes: u64| tantalum_report::units::bytes(bytes.next_multiple_of(1 << 20));
        let bytes = |page| -> Result<String> {
            Ok(mib(scenario::database_bytes(&self.paper(true, true, page)?, self.progress)?))
        };
        let [sixteen, eight, four] = PAGES.map(bytes);
        let Sizes { what, scale, clients, cpu_per_attempt, transactions, .. } = &self.sizes;
        Ok(vec![
            format!(
                "all sizes of the paper divided by {scale}: {what}, {} in pages of 16 KiB, {} of 8 KiB, {} of 4 KiB; a buffer pool \
                 of {}, unless said; of the drive's {}, {} are for writes that wait",
                sixteen?,
                eight?,
                four?,
                mib(self.buffer(self.sizes.buffer_gb)),
                mib(480 * GB / scale),
                mib(cache_bytes(*scale)),
            ),
            format!(
                "{clients} clients; {} us of one of {CORES} hardware threads for each transaction (assumed); {transactions} before those \
                 that are counted, and about {transactions} that are",
                cpu_per_attempt.as_micros(),
            ),
            "two drives, one of them for the log; files of a file system, whose fsync is that of Table 1; without barriers it \
             does not flush the drive"
                .into(),
        ])
    }
}

/// The server on a drive for its pages, of which as much is written before as the database takes, and one for its log.
pub(in crate::experiments) fn on_two_drives(scenario: Scenario, data: Drive, log: Drive) -> Scenario {
    let (layout, partitions) = (LogLayout::FlashLogging, 1);
    let data = Data::Drive(Drive { filled: Filled::Database, ..data });
    Scenario { data, log: Log::Drive { drive: Box::new(log), layout, partitions }, ..scenario }
}

/// The same, as Tantalum makes room unless told otherwise.
pub(super) fn cleaned_ahead(scenario: Scenario) -> Scenario {
    Scenario { cleaning: PageCleaning::Ahead, ..scenario }
}

/// As the paper writes it.
pub(super) fn notation(scenario: &Scenario) -> &'static str {
    let has_double_writes =
        matches!(scenario.pages, Pages::InPlace { protection: TornPageProtection::DoubleWrite, .. });
    match (has_barriers(scenario), has_double_writes) {
        (true, true) => "ON/ON",
        (true, false) => "ON/OFF",
        (false, true) => "OFF/ON",
        (false, false) => "OFF/OFF",
    }
}

/// Whether the file systems flush the drives.
pub(super) fn has_barriers(scenario: &Scenario) -> bool {
    matches!(&scenario.data, Data::Drive(drive) if drive.has_barriers)
}

/// Bytes of a page as the paper writes them.
pub(super) fn kilobytes(page_bytes: u32) -> String {
    format!("{}KB", page_bytes >> 10)
}
