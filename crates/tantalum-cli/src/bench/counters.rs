//! What the database and the emulated devices below it did in a benchmark's run.

use serde::Serialize;
use tantalum::{BarrierSummary, Db, Stats, StoreKind};
use tantalum_device::Device;
use tantalum_flash::Counters;
use tantalum_lab::trace::{Medium, Totals};
use tantalum_report::{Table, units};

use crate::{
    emulator::Emulator,
    error::{Out, Result},
};

/// The counters when the run begins.
pub struct Mark {
    database: Stats,
    devices: Vec<Counters>,
}

impl Mark {
    /// The counters now.
    pub fn of(db: &Db, emulator: &Emulator) -> Result<Self> {
        let devices = emulator.opened().iter().map(|device| device.counters()).collect();
        Ok(Self { database: db.stats()?, devices })
    }
}

/// What was done from the end of loading to the end of the run, in the JSON output of every benchmark.
#[derive(Serialize)]
pub struct Activity {
    /// The database: counts of the run, and what is no count as it was at the end.
    database: Stats,
    /// What follows from the counts.
    derived: Derived,
    /// Each emulated device, in the run.
    emulated_devices: Vec<DeviceActivity>,
}

/// What follows from counts. Null where there is nothing to divide by, or where the page store has no such counts.
#[derive(Default, Serialize)]
struct Derived {
    /// The share of the pages read on faults that waited until another page was written.
    blocked_share: Option<f64>,
    /// Bytes of all changes in the log's records; null where the page store keeps them.
    changed_bytes: Option<u64>,
    /// Bytes that the page store wrote for each transaction; of in-page logging and the log-structured store, as below.
    written_bytes_per_transaction: Option<f64>,
    /// Bytes written over those of the pages stored; of the log-structured store.
    write_amplification: Option<f64>,
    /// How much of the segments that were cleaned was live, from 0 to 1; of the log-structured store.
    cleaned_fill: Option<f64>,
    /// Erases for each transaction; of in-page logging.
    erases_per_transaction: Option<f64>,
    /// Bytes read for pages, those of log sectors included, over those of the pages; of in-page logging.
    read_amplification: Option<f64>,
    /// The most memory that in-memory log sectors took since the database was opened, as a share of the buffer pool's; of in-page
    /// logging.
    change_memory_peak_share: Option<f64>,
}

/// What an emulated device did.
#[derive(Serialize)]
struct DeviceActivity {
    /// The device.
    name: String,
    /// Its counters, such as `host_writes`, `media_written_bytes` and `erases`.
    #[serde(flatten)]
    counters: Counters,
    /// Bytes written to the medium for each of the host's; null where one of the two is zero.
    write_amplification: Option<f64>,
}

/// `part` over `whole`; `None` where there is no whole.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

impl Derived {
    fn of(before: &Mark, database: &Stats, transactions: u64) -> Self {
        let (pool, transactions) = (&database.pool, transactions.max(1));
        let has_redo = database.page_store != StoreKind::InPageLogging;
        let derived = Self {
            blocked_share: ratio(pool.blocked_reads, pool.fault_reads),
            changed_bytes: has_redo.then(|| database.log.end_lsn.bytes_since(before.database.log.end_lsn)),
            ..Self::default()
        };
        match (&database.store.in_page, &database.store.log_structured) {
            (Some(store), _) => Self {
                written_bytes_per_transaction: ratio(store.bytes_written, transactions),
                erases_per_transaction: ratio(store.erases, transactions),
                read_amplification: ratio(store.bytes_loaded, store.pages_loaded * u64::from(database.page_bytes)),
                change_memory_peak_share: ratio(pool.change_bytes_peak, pool.memory_bytes),
                ..derived
            },
            (_, Some(store)) => Self {
                written_bytes_per_transaction: ratio(store.bytes_written, transactions),
                write_amplification: store.write_amplification(database.page_bytes),
                cleaned_fill: store.cleaned_fill(),
                ..derived
            },
            (None, None) => derived,
        }
    }
}

impl Activity {
    /// What was done since `before`, in a run of so many transactions.
    pub fn since(before: &Mark, db: &Db, emulator: &Emulator, transactions: u64) -> Result<Self> {
        let database = db.stats()?.since(&before.database);
        let devices = emulator.opened();
        let emulated_devices = before.devices.iter().zip(&devices).map(|(before, device)| {
            let counters = device.counters().since(before);
            let (media, host) = (counters.media_written_bytes, counters.host_written_bytes);
            let write_amplification = ratio(media, host).filter(|_| media > 0);
            DeviceActivity { name: device.name().to_owned(), counters, write_amplification }
        });
        Ok(Self {
            derived: Derived::of(before, &database, transactions),
            emulated_devices: emulated_devices.collect(),
            database,
        })
    }

    /// The same, for a trace of requests.
    pub fn totals(&self) -> Totals {
        let medium = |device: &DeviceActivity| Medium {
            name: device.name.clone(),
            reads: device.counters.host_reads,
            writes: device.counters.host_writes,
            host_bytes: device.counters.host_written_bytes,
            medium_bytes: device.counters.media_written_bytes,
        };
        Totals {
            page_bytes: Some(self.database.page_bytes),
            pages_read: Some(self.database.pool.fault_reads),
            pages_stored: Some(self.database.store.pages_stored),
            changed_bytes: self.derived.changed_bytes,
            media: self.emulated_devices.iter().map(medium).collect(),
            ..Totals::default()
        }
    }

    /// How the database keeps its pages, a line each; what is unsafe is shouted.
    pub fn print_settings(&self, out: &mut Out) -> Result<()> {
        let Stats { page_bytes, torn_page_protection, page_cleaning, .. } = &self.database;
        let BarrierSummary { setting, sent_to, spared, trusted, .. } = &self.database.barriers;
        let devices = [("sent to", sent_to), ("not needed by", spared), ("NOT SENT TO", trusted)];
        let devices = devices.into_iter().filter(|(_, names)| !names.is_empty());
        let devices: Vec<_> = devices.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
        let durable = if self.database.durable_page_writes { ", each durable by a write of its own" } else { "" };
        out.line(format_args!(
            "pages of {}{durable}, torn pages prevented by: {torn_page_protection}, cleaned {page_cleaning}; barriers \
             {setting}: {}",
            units::bytes(u64::from(*page_bytes)),
            devices.join("; ")
        ))?;
        self.database.trusted_by_setting.iter().try_for_each(|trusted| out.line(format_args!("UNSAFE: {trusted}")))
    }

    /// The counts as tables, zeros left out: of pages, late log writes, the archive and emulated devices.
    pub fn print(&self, out: &mut Out) -> Result<()> {
        let Stats { pool, store, log, .. } = &self.database;
        let pages = serde_json::json!({ "pool": pool, "store": store, "derived": self.derived });
        out.line(Table::of_fields(["pages", ""], [pages])?.without_zeros())?;
        if log.hiding.outliers > 0 {
            let names = log.devices.iter().map(|device| &*device.name);
            let header = ["late log writes"].into_iter().chain(names).chain(["all"]);
            let counts = log.devices.iter().map(|device| &device.hiding).chain([&log.hiding]);
            out.line(Table::of_fields(header, counts)?)?;
        }
        if let Some(archive) = &log.archive {
            out.line(Table::of_fields(["archive", ""], [archive])?)?;
        }
        if !self.emulated_devices.is_empty() {
            let header = ["emulated device".to_owned()].into_iter().chain((1..).map(|number| number.to_string()));
            let header = header.take(1 + self.emulated_devices.len());
            out.line(Table::of_fields(header, &self.emulated_devices)?.without_zeros())?;
        }
        Ok(())
    }
}
