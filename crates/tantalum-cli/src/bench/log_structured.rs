//! What the log-structured store did below a benchmark.

use serde::Serialize;
use tantalum::{Db, LogStructuredStats};
use tantalum_report::{Table, units};

use super::storage::Mark;
use crate::error::Result;

/// What the page store did from the end of loading to the end of the run, and what that is for each transaction.
#[derive(Debug, Serialize)]
pub struct LogStructuredReport {
    #[serde(flatten)]
    counts: LogStructuredStats,
    bytes_written_per_transaction: f64,
    /// Bytes written over those of the pages stored; null where none was.
    write_amplification: Option<f64>,
    /// How much of the segments that were cleaned was live, from 0 to 1; null where none was.
    cleaned_fill: Option<f64>,
}

impl LogStructuredReport {
    /// What was done since then, in a run of so many transactions; `None` with another page store.
    pub fn since(before: &Mark, db: &Db, transactions: u64) -> Result<Option<Self>> {
        let stats = db.stats()?;
        let (Some(before), Some(now)) = (&before.store.log_structured, stats.store.log_structured) else {
            return Ok(None);
        };
        let counts = now.since(before);
        Ok(Some(Self {
            bytes_written_per_transaction: counts.bytes_written as f64 / transactions.max(1) as f64,
            write_amplification: counts.write_amplification(stats.page_bytes),
            cleaned_fill: counts.cleaned_fill(),
            counts,
        }))
    }

    /// As a table.
    pub fn table(&self) -> Table {
        let counts = &self.counts;
        let mut table = Table::new(["log-structured", ""]);
        for (name, count) in [
            ("pages stored", counts.pages_stored),
            ("pages that cleaning moved", counts.pages_moved),
            ("segments cleaned", counts.segments_cleaned),
            ("checkpoints of the map", counts.checkpoints),
            ("waits for a free segment", counts.waits),
        ] {
            table.row([name.to_owned(), units::count(count)]);
        }
        if counts.waits > 0 {
            let longest = format!("{:.1} ms", counts.longest_wait_us as f64 / 1e3);
            table.row(["longest of them since opening".to_owned(), longest]);
        }
        table.row(["written, a transaction".to_owned(), units::bytes(self.bytes_written_per_transaction as u64)]);
        if let Some(amplification) = self.write_amplification {
            table.row(["write amplification".to_owned(), format!("{amplification:.2}")]);
        }
        if let Some(fill) = self.cleaned_fill {
            table.row(["live in cleaned segments".to_owned(), format!("{:.1} %", 100.0 * fill)]);
        }
        let segments = format!("{} of {}", units::count(counts.free_segments), units::count(counts.segments));
        table.row(["free segments at the end".to_owned(), segments]);
        let written = (counts.live_bytes + counts.dead_bytes).max(1);
        let live = 100.0 * counts.live_bytes as f64 / written as f64;
        table
            .row(["live in written segments".to_owned(), format!("{} ({live:.1} %)", units::bytes(counts.live_bytes))]);
        table
    }
}
