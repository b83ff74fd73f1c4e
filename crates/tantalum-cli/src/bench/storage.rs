//! How the database below a benchmark writes its pages, and how often a read waited for that.

use serde::Serialize;
use tantalum::{BarrierSummary, Db, PageCleaning, PoolStats, Protection, Stats, StoreKind, StoreStats};
use tantalum_lab::trace::Totals;
use tantalum_report::units;

use crate::error::{Out, Result};

/// What the database was told or chose, and the page faults and pages written from the end of loading to the end of the run.
#[derive(Debug, Serialize)]
pub struct StorageReport {
    page_bytes: u32,
    torn_page_protection: Protection,
    barriers: BarrierSummary,
    page_cleaning: PageCleaning,
    durable_page_writes: bool,
    /// Batches of pages that may be on their way to the data device at a time.
    write_back_batches: u64,
    /// The most that were, since the database was opened.
    write_back_batches_peak: u64,
    /// What is trusted against what the devices say.
    on_users_word: Vec<String>,
    /// Pages read because they were not in memory.
    fault_reads: u64,
    /// Those of them that waited until another page was written.
    blocked_reads: u64,
    /// The one over the other; null where no page was read.
    blocked_share: Option<f64>,
    /// Free frames that the cleaner aimed at in the end.
    reserve_frames: u64,
    pages_stored: u64,
    pages_double_written: u64,
    /// Bytes of all changes, in the log's records; null where the page store keeps them.
    changed_bytes: Option<u64>,
}

/// The counters at some time.
pub struct Mark {
    pool: PoolStats,
    pub store: StoreStats,
    log_end_lsn: u64,
}

impl Mark {
    /// The counters now.
    pub fn of(db: &Db) -> Result<Self> {
        let stats = db.stats()?;
        Ok(Self { pool: stats.pool, store: stats.store, log_end_lsn: stats.log.end_lsn })
    }
}

impl StorageReport {
    /// What the database is, and what it has done since then.
    pub fn since(Mark { pool, store, log_end_lsn }: &Mark, db: &Db) -> Result<Self> {
        let Stats { page_bytes, torn_page_protection, barriers, page_cleaning, durable_page_writes, .. } =
            db.stats()?;
        let Stats { pool: pool_now, store: store_now, on_users_word, page_store, log, .. } = db.stats()?;
        let fault_reads = pool_now.fault_reads - pool.fault_reads;
        let blocked_reads = pool_now.blocked_reads - pool.blocked_reads;
        Ok(Self {
            page_bytes,
            torn_page_protection,
            barriers,
            page_cleaning,
            durable_page_writes,
            write_back_batches: pool_now.batches,
            write_back_batches_peak: pool_now.batches_peak,
            on_users_word,
            fault_reads,
            blocked_reads,
            blocked_share: (fault_reads > 0).then(|| blocked_reads as f64 / fault_reads as f64),
            reserve_frames: pool_now.reserve_frames,
            pages_stored: store_now.pages_stored - store.pages_stored,
            pages_double_written: store_now.pages_double_written - store.pages_double_written,
            changed_bytes: (page_store != StoreKind::InPageLogging).then(|| log.end_lsn - log_end_lsn),
        })
    }

    /// The same, for a trace.
    pub fn totals(&self) -> Totals {
        Totals {
            page_bytes: Some(self.page_bytes),
            pages_read: Some(self.fault_reads),
            pages_stored: Some(self.pages_stored),
            changed_bytes: self.changed_bytes,
            ..Totals::default()
        }
    }

    /// What it is, a line each; what is unsafe is shouted.
    pub fn print_settings(&self, out: &mut Out) -> Result<()> {
        let BarrierSummary { setting, sent_to, spared, trusted, .. } = &self.barriers;
        let devices = [("sent to", sent_to), ("not needed by", spared), ("NOT SENT TO", trusted)];
        let devices = devices.into_iter().filter(|(_, names)| !names.is_empty());
        let devices: Vec<_> = devices.map(|(what, names)| format!("{what} {}", names.join(", "))).collect();
        let durable = if self.durable_page_writes { ", each durable by a write of its own" } else { "" };
        out.line(format_args!(
            "pages of {}{durable}, torn pages prevented by: {}, cleaned {}; barriers {setting}: {}",
            units::bytes(self.page_bytes.into()),
            self.torn_page_protection,
            self.page_cleaning,
            devices.join("; ")
        ))?;
        self.on_users_word.iter().try_for_each(|trusted| out.line(format_args!("UNSAFE: {trusted}")))
    }

    /// How often reads waited for writes.
    pub fn print_faults(&self, out: &mut Out) -> Result<()> {
        let share = match self.blocked_share {
            Some(share) => {
                format!(", {} of them ({:.2} %) after waiting for a write", self.blocked_reads, 100.0 * share)
            }
            None => String::new(),
        };
        out.line(format_args!(
            "{} pages read on faults{share}; {} pages written, {} twice",
            units::count(self.fault_reads),
            units::count(self.pages_stored),
            units::count(self.pages_double_written)
        ))
    }
}
