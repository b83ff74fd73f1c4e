//! What in-page logging did below a benchmark.

use serde::Serialize;
use tantalum::{Db, InPageStats};
use tantalum_report::{Table, units};

use super::storage::Mark;
use crate::error::Result;

/// What the page store did from the end of loading to the end of the run, and what that is for each transaction.
#[derive(Debug, Serialize)]
pub struct InPageReport {
    #[serde(flatten)]
    counts: InPageStats,
    bytes_written_per_transaction: f64,
    erases_per_transaction: f64,
    /// Bytes read for pages, those of log sectors included, over those of the pages; null where no page was read.
    read_amplification: Option<f64>,
    /// The most memory that in-memory log sectors took since the database was opened, as a part of the buffer pool's.
    change_memory_peak_share: f64,
}

impl InPageReport {
    /// What was done since then, in a run of so many transactions; `None` with another page store.
    pub fn since(before: &Mark, db: &Db, transactions: u64) -> Result<Option<Self>> {
        let stats = db.stats()?;
        let (Some(before), Some(now)) = (&before.store.in_page, stats.store.in_page) else { return Ok(None) };
        let counts = now.since(before);
        let per_transaction = |count: u64| count as f64 / transactions.max(1) as f64;
        let pages_bytes = counts.pages_loaded * u64::from(stats.page_bytes);
        Ok(Some(Self {
            bytes_written_per_transaction: per_transaction(counts.bytes_written),
            erases_per_transaction: per_transaction(counts.erases),
            read_amplification: (pages_bytes > 0).then(|| counts.bytes_loaded as f64 / pages_bytes as f64),
            change_memory_peak_share: stats.pool.change_bytes_peak as f64 / stats.pool.memory_bytes as f64,
            counts,
        }))
    }

    /// As a table.
    pub fn table(&self) -> Table {
        let counts = &self.counts;
        let mut table = Table::new(["in-page logging", ""]);
        for (name, count) in [
            ("log sectors written", counts.sectors_written),
            ("log sectors written to overflow units", counts.overflow_sectors_written),
            ("merges", counts.merges),
            ("merges that carried active records over", counts.merges_with_carry),
            ("merges avoided by overflow", counts.merges_avoided),
            ("merges to free overflow units", counts.cleanings),
            ("records applied by merges", counts.records_applied),
            ("records carried over", counts.records_carried),
            ("records of aborted groups dropped", counts.records_dropped),
            ("overflow units at the end", counts.overflow_units),
        ] {
            table.row([name.to_owned(), units::count(count)]);
        }
        table.row(["written, a transaction".to_owned(), units::bytes(self.bytes_written_per_transaction as u64)]);
        table.row(["erases, a transaction".to_owned(), format!("{:.3}", self.erases_per_transaction)]);
        let mean = counts.erases_sum as f64 / counts.units.max(1) as f64;
        let wear = format!("{}, {mean:.1}, {}", counts.erases_min, counts.erases_max);
        table.row(["erases of a unit since it was new: least, mean, most".to_owned(), wear]);
        if let Some(amplification) = self.read_amplification {
            table.row(["read amplification".to_owned(), format!("{amplification:.2}")]);
        }
        let share = format!("{:.2} % of the pool", 100.0 * self.change_memory_peak_share);
        table.row(["in-memory log sectors, at most".to_owned(), share]);
        table
    }
}
