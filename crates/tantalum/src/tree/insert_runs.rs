//! Where in its leaves rows were last added, so that a leaf which grows at one place inside is cut there.
//!
//! Tables often grow in the middle: a key that begins with a customer and ends with a date grows at the end of each customer's
//! rows. Cutting such leaves in half leaves every one of them half empty for good, and moves each row once.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tantalum_store::PageId;

/// So many leaves are remembered at most. A leaf that another has displaced is cut in half, no worse.
const LEAVES: usize = 4096;
/// An entry's number fits: no page has as many.
const ENTRY_BITS: u32 = 16;

/// Of some leaves, where rows were last added. It is a hint: wrong ones lead to worse cuts, not to wrong trees. A clone is
/// another handle on the same.
#[derive(Clone, Debug)]
pub(crate) struct InsertRuns(Arc<[AtomicU64]>);

impl Default for InsertRuns {
    fn default() -> Self {
        Self((0..LEAVES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl InsertRuns {
    /// Rows were added to `leaf`, the last of them before the entry that has the number `next` now.
    pub(super) fn note(&self, leaf: PageId, next: usize) {
        self.slot(leaf).store(packed(leaf, next), Ordering::Relaxed);
    }

    /// Whether the rows that were last added to `leaf` end where entry `next` begins.
    pub(super) fn continues(&self, leaf: PageId, next: usize) -> bool {
        self.slot(leaf).load(Ordering::Relaxed) == packed(leaf, next)
    }

    fn slot(&self, leaf: PageId) -> &AtomicU64 {
        &self.0[(leaf.0 % LEAVES as u64) as usize]
    }
}

/// Never 0: page 0 is no leaf. Of two leaves that look alike here, one would be cut badly once.
fn packed(leaf: PageId, next: usize) -> u64 {
    leaf.0 << ENTRY_BITS | (next as u64 & ((1 << ENTRY_BITS) - 1))
}
