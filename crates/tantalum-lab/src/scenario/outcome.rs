//! What came of a scenario.

use tantalum::{PoolStats, Stats};
use tantalum_flash::Counters;
use tantalum_rt::simulation::LockUse;
use tantalum_workloads::{driver::RunReport, tpcc};

use super::FlushSizes;
use crate::trace::requests;

/// What a run measured.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// What the clients did.
    pub report: RunReport,
    /// Virtual seconds that were counted, with what follows the last transaction.
    pub seconds: f64,
    /// What the database did in the counted time.
    pub done: Stats,
    /// The database at its end, with all counts since it was opened.
    pub after: Stats,
    /// The pool, from time to time.
    pub pool: Vec<PoolStats>,
    /// What the drive of the pages did.
    pub data: Counters,
    /// What the drive of the log did.
    pub log: Counters,
    /// Bytes that the drive of the pages was written before what is counted.
    pub written_before: u64,
    /// The log's flushes, where it is one of FlashLogging's experiments.
    pub flushes: FlushSizes,
    /// Calls of TPC-C to the engine, and the share of all cores' time that they were charged.
    pub calls: u64,
    pub cpu_share: f64,
    /// How locks were used, the warm-up included, while they took time.
    pub locks: Vec<LockUse>,
    /// The sum of all rows, modulo 2^64, where the database holds rows.
    pub sum: u64,
    /// The trace of pages, where they are traced.
    pub page_trace: Vec<u8>,
    /// The requests to the devices of the pages, where these are traced.
    pub requests: Option<requests::Analysis>,
}

impl Outcome {
    /// Committed transactions in a second.
    pub fn per_second(&self) -> f64 {
        self.report.total.per_second
    }

    /// Committed new-order transactions of TPC-C in a minute: NOTPM, tpmC.
    pub fn new_orders_per_minute(&self) -> f64 {
        self.report.kinds[tpcc::Kind::NewOrder as usize].per_second * 60.0
    }

    /// A count for each committed transaction.
    pub fn per_transaction(&self, count: u64) -> f64 {
        count as f64 / self.report.total.committed.max(1) as f64
    }
}
