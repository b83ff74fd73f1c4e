//! What all transactions of a database share, and their statistics.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum_rt::Mutex;

use super::{
    commit_times::CommitTimes,
    large_values::Reaper,
    locks::LockManager,
    notifier::Notifier,
    precedence::Precedence,
    staging::{Applier, ChangeBuffers},
    versions::Versions,
};
use crate::{db::Core, limits::GroupLimit};

/// What a commit's log record needs beyond the writes: its head, and some change heads.
const RECORD_RESERVE_BYTES: usize = 4096;

/// What large transactions take of the log before they let it be emptied: this part.
const LOG_PART: u64 = 2;

/// What all transactions of a database share.
pub(crate) struct Manager {
    pub(super) core: Arc<Core>,
    pub(super) locks: LockManager,
    pub(super) versions: Arc<Versions>,
    pub(super) precedence: Precedence,
    pub(super) next_id: AtomicU64,
    /// Numbers commit records; goes on from the last that recovery has read.
    pub(super) commit_count: AtomicU64,
    pub(super) counters: Counters,
    /// Memory for the writes of one transaction.
    pub(super) memory_bytes: usize,
    /// Large transactions commit one after the other.
    pub(super) staged_commits: Mutex<()>,
    pub(super) applier: Arc<Applier>,
    pub(super) buffers: Arc<ChangeBuffers>,
    pub(super) reaper: Arc<Reaper>,
    pub(super) notifier: Notifier,
    pub(super) commit_times: CommitTimes,
    /// For the applier's task.
    pub(super) me: Weak<Manager>,
}

tantalum_rt::statistics! {
    /// Counters of transactions since the database was opened.
    #[non_exhaustive]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct TransactionStats {
        counted by Counters {
            /// Transactions committed, those that wrote nothing included.
            commits,
            /// Transactions rolled back, by their owner or by the engine.
            rollbacks,
            /// Those committed that were too large for memory or for one record of the log, and were staged.
            staged_commits,
            /// Writes that were put into a change buffer, because their leaf would have been read, or stored, for them.
            deferred_writes,
            /// Rows of large transactions and of change buffers that were moved to their tables.
            rows_moved,
            /// Bulk loads that built their pages.
            bulk_loads,
            /// Large values that no row had any more and whose pages were freed.
            values_freed,
            /// Rows that transactions have written to tables with a change feed.
            changes_fed,
            /// Bytes of the log for readers of the change feed.
            change_feed_bytes,
        }
        total {
            /// Transactions begun.
            begun: u64,
            /// Times that a lock was waited for.
            lock_waits: u64,
            /// Deadlocks, each ended by aborting a transaction.
            deadlocks: u64,
            /// Locks that were not granted in time.
            lock_timeouts: u64,
            /// Snapshots that were given up because there was no room for the row versions that they see.
            snapshots_given_up: u64,
        }
        now {
            /// How long half of the calls of commit took at most, in microseconds: of those that wrote something and ended in the last
            /// ten to twenty seconds, as in the next three. 0 if there were none.
            commit_p50_us: u64,
            /// One call of a hundred took longer.
            commit_p99_us: u64,
            /// One of a thousand took longer.
            commit_p999_us: u64,
            /// The longest.
            commit_max_us: u64,
            /// Snapshots that are alive, those of transactions included.
            snapshots: u64,
            /// Old row versions in memory for them.
            versions: u64,
            /// Memory for these, about.
            version_bytes: u64,
            /// Old row versions on scratch pages of the data device.
            spilled_versions: u64,
            /// Pages of the data device that are in use as scratch pages.
            scratch_pages: u64,
            /// Staging tables, with the rows of large transactions, and change buffers: those whose rows are not all in their tables, or
            /// whose pages are being freed.
            staging_tables: u64,
            /// Bytes of rows that were put into change buffers, as far as these have not been freed.
            change_buffer_bytes: u64,
            /// Large values that no row has any more and whose pages are to be freed, as far as they are known, and tables in which
            /// such are to be looked for.
            dead_values: u64,
        }
    }
}

impl Manager {
    pub fn new(core: Arc<Core>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            reaper: Arc::default(),
            notifier: Notifier::default(),
            commit_times: CommitTimes::default(),
            memory_bytes: usize::try_from(core.settings.transaction_memory_bytes()).unwrap_or(usize::MAX),
            staged_commits: Mutex::default(),
            applier: Arc::default(),
            buffers: Arc::new(ChangeBuffers::new(&core)),
            locks: LockManager::new(core.settings.lock_timeout()),
            versions: Versions::new(&core.space, core.settings.version_bytes()),
            precedence: Precedence::default(),
            commit_count: AtomicU64::new(core.redo.last_commit),
            core,
            next_id: AtomicU64::new(1),
            counters: Counters::default(),
        })
    }

    pub fn core(&self) -> &Core {
        &self.core
    }

    /// While it is locked, no transaction commits what it has staged.
    pub fn staged_commits(&self) -> &Mutex<()> {
        &self.staged_commits
    }

    pub fn stats(&self) -> TransactionStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let versions = self.versions.counts();
        let commits = self.commit_times.quantiles();
        TransactionStats {
            begun: count(&self.next_id) - 1,
            lock_waits: count(&self.locks.lock_waits),
            deadlocks: count(&self.locks.deadlocks),
            lock_timeouts: count(&self.locks.timeouts),
            commit_p50_us: commits.median,
            commit_p99_us: commits.p99,
            commit_p999_us: commits.p999,
            commit_max_us: commits.longest,
            snapshots: versions.snapshots,
            snapshots_given_up: versions.given_up,
            versions: versions.versions,
            version_bytes: versions.bytes,
            spilled_versions: versions.spilled_versions,
            scratch_pages: versions.scratch_pages,
            staging_tables: self.applier.tables() + self.buffers.count(),
            change_buffer_bytes: self.buffers.bytes(),
            dead_values: self.reaper.waiting(),
            ..self.counters.read()
        }
    }

    /// Has what was staged when the database was opened, or for a table that was dropped, moved or freed.
    pub fn take_over_staged(self: &Arc<Self>) {
        let staged = self.core.catalog.take_recovered();
        if !self.core.is_read_only {
            self.apply_staged(staged.committed, staged.dropped);
        }
    }

    /// Has large values deleted that no row has, and that the database had when it was opened.
    pub fn take_over_dead_values(&self) {
        if !self.core.is_read_only {
            self.core.catalog.tables().iter().for_each(|table| self.look_for_dead_values(table));
        }
    }

    /// Bytes of the log that large transactions take before they let it be emptied. It may have grown.
    pub(super) fn log_share_bytes(&self) -> u64 {
        let copies = u64::from(self.core.settings.log_copies());
        self.core.log().stats().capacity_bytes / copies / LOG_PART
    }

    /// How much can be written in one record.
    pub(super) fn write_limit(&self) -> GroupLimit {
        let limit = self.core.pool.group_limit();
        GroupLimit { bytes: limit.bytes.saturating_sub(RECORD_RESERVE_BYTES), ..limit }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").finish_non_exhaustive()
    }
}
