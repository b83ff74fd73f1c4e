//! What an in-page logging store counts.

use std::sync::atomic::{AtomicU64, Ordering};

tantalum_rt::statistics! {
    /// What an in-page logging store has done since it was opened.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct InPageStats {
        counted by Counters {
            /// Pages read.
            pages_loaded,
            /// Pages that had changes in log sectors when they were read.
            pages_with_changes,
            /// Log sectors read for them.
            sectors_loaded,
            /// Bytes read for pages: their own, and those of the log sectors. Divided by `pages_loaded` times the page size, it is the
            /// read amplification.
            bytes_loaded,
            /// Log sectors written into regions.
            sectors_written,
            /// Log sectors written into overflow units.
            overflow_sectors_written,
            /// Change groups' records of one page each that were stored.
            records_stored,
            /// Versions of units that were written: merges, and first writes.
            merges,
            /// Merges of a unit for the first time: there was nothing to merge.
            units_begun,
            /// Merges that carried changes of active groups over.
            merges_with_carry,
            /// Records of active groups that merges carried over.
            records_carried,
            /// Records of committed groups that merges applied.
            records_applied,
            /// Records of aborted groups that merges dropped.
            records_dropped,
            /// Times that too much would have been carried over, so that sectors went to an overflow unit.
            merges_avoided,
            /// Merges to free overflow units.
            cleanings,
            /// Units moved because they had been left behind in wear.
            levelings,
            /// Units that compaction moved to the front of the device.
            units_moved,
            /// Logical units that compaction gave back.
            units_forgotten,
            /// Writes that failed, after which what was to be written was written elsewhere.
            failed_writes,
            /// Units erased; on a block device, freed.
            erases,
            /// Bytes written.
            bytes_written,
        }
        now {
            /// Overflow units in use.
            overflow_units: u64,
            /// Physical units, without those of the superblock.
            units: u64,
            /// Of them, free.
            free_units: u64,
            /// Of them, failed.
            bad_units: u64,
            /// Erases of the least worn unit; on a block device, times that it was written anew.
            erases_min: u64,
            /// Erases of the most worn unit.
            erases_max: u64,
            /// Erases of all units together.
            erases_sum: u64,
            /// Past sessions whose statuses are kept.
            sessions_kept: u64,
        }
    }
}

impl Counters {
    pub(super) fn add(counter: &AtomicU64, count: usize) {
        counter.fetch_add(count as u64, Ordering::Relaxed);
    }
}
