//! What came of a scenario.

use tantalum::{PoolStats, Stats, StoreStats};
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
    /// The database before what is counted and after it.
    pub before: Stats,
    pub after: Stats,
    /// The pool, from time to time.
    pub pool: Vec<PoolStats>,
    /// What the drive of the pages did.
    pub data: DeviceWork,
    /// What the drive of the log did.
    pub log: DeviceWork,
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

    /// What a counter of the page store rose by.
    pub fn stored(&self, counter: impl Fn(&StoreStats) -> u64) -> u64 {
        counter(&self.after.store) - counter(&self.before.store)
    }

    /// What a counter of the pool rose by.
    pub fn pooled(&self, counter: impl Fn(&PoolStats) -> u64) -> u64 {
        counter(&self.after.pool) - counter(&self.before.pool)
    }
}

/// What a drive did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceWork {
    /// Requests of the engine, and their bytes.
    pub reads: u64,
    pub writes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Bytes that the medium was written with, whatever for.
    pub media_written_bytes: u64,
    /// Blocks erased.
    pub erases: u64,
}

impl DeviceWork {
    pub(super) fn between(before: &Counters, after: &Counters) -> Self {
        Self {
            reads: after.host_reads - before.host_reads,
            writes: after.host_writes - before.host_writes,
            read_bytes: after.host_read_bytes - before.host_read_bytes,
            written_bytes: after.host_written_bytes - before.host_written_bytes,
            media_written_bytes: after.media_written_bytes - before.media_written_bytes,
            erases: after.erases - before.erases,
        }
    }
}
