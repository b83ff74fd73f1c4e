//! Whether it pays to defer writes to a table.
//!
//! A row that is deferred is written twice, and what reads or writes its table looks for it. What that saves is to read and store its
//! leaf, as far as it shares that with other rows. So it is counted how many rows come to a leaf when buffers are moved; the first full
//! buffer of a table is moved by itself, to find out soon. Where few do, writes go to their leaves for a while.
//!
//! A write to a leaf that is in memory need not be deferred, since nothing is read for it. If all changes of the leaf are stored, it is
//! stored again for the write: where many rows come to a leaf, such writes are deferred too. The same goes for rows that the transaction has
//! read before it writes them, wherever their leaves are. Of several writes that follow each other to the same leaf, as in a table that
//! is written in key order, only the first is deferred: the next finds that the leaf was [passed over](PassedOver).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tantalum_rt::Mutex;
use tantalum_store::PageId;

/// With fewer rows for a leaf, nothing is deferred.
const FEW_ROWS: f64 = 1.5;
/// With so many, also writes to leaves that are in memory, but stored, and of rows that were read before.
const MANY_ROWS: f64 = 4.0;
/// As many rows as the extrapolation goes beyond them, times this, are needed to learn: of fewer, it is chance whether some share a leaf.
const ROWS_TO_LEARN: f64 = 8.0;
/// Where deferring does not pay, it is tried again when writes had so many times the bytes that change buffers may have.
const REST_LIMITS: u64 = 16;
/// If fewer writes to a table are deferred than one of so many, its buffers are moved: each of the others looks into them.
const FEW_OF_WRITES: u64 = 8;
/// One leaf that a write was deferred from lately is kept in mind for so many frames of the buffer pool. A table that is larger than the
/// pool has more leaves than that has frames, so few of uniform writes come to one of these.
const FRAMES_PER_PASSED_OVER: usize = 32;
/// So many are kept in mind at least, and at most.
const PASSED_OVER: (usize, usize) = (1, 4096);

/// Rows that were moved to their table, and the leaves that they came to.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::transaction) struct Moved {
    pub rows: u64,
    pub leaves: u64,
}

impl Moved {
    /// How many rows come to a leaf if `times` as many are moved together, and spread like these: how many others of them share a row's
    /// leaf grows with how many they are.
    fn rows_to_a_leaf(self, times: f64) -> f64 {
        1.0 + (self.rows as f64 / self.leaves as f64 - 1.0) * times
    }
}

/// What is known of a table.
#[derive(Debug, Default)]
pub(in crate::transaction) struct Gain {
    /// What was moved since it was last learnt how many rows come to a leaf.
    moved: Mutex<Moved>,
    /// Whether that is known, and deferring pays.
    is_known: AtomicBool,
    /// Whether many rows come to a leaf.
    are_many: AtomicBool,
    /// Bytes of writes that go to leaves which are not in memory, before deferring is tried again.
    left_bytes: AtomicU64,
    /// Writes to the table while it had staging tables, since the last look.
    writes: AtomicU64,
    /// How many of them were deferred.
    deferred: AtomicU64,
}

impl Gain {
    /// Whether it is known that deferring pays.
    pub fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Whether a write of so many bytes, whose leaf is not at hand, is to be deferred.
    pub fn defers(&self, bytes: usize) -> bool {
        // Two tasks may count one write, which does not matter.
        let left = self.left_bytes.load(Ordering::Relaxed);
        if left > 0 {
            self.left_bytes.store(left.saturating_sub(bytes as u64), Ordering::Relaxed);
        }
        left == 0
    }

    /// Whether it is known that many rows come to a leaf.
    pub fn are_many(&self) -> bool {
        self.are_many.load(Ordering::Relaxed)
    }

    /// Notes writes to the table while it has staging tables, and how many of them were deferred.
    pub fn note_writes(&self, writes: u64, deferred: u64) {
        self.writes.fetch_add(writes, Ordering::Relaxed);
        self.deferred.fetch_add(deferred, Ordering::Relaxed);
    }

    /// Whether few writes were deferred since this was last asked, of those to the table.
    pub fn few_were_deferred(&self) -> bool {
        let (writes, deferred) = (self.writes.swap(0, Ordering::Relaxed), self.deferred.swap(0, Ordering::Relaxed));
        deferred == 0 || deferred * FEW_OF_WRITES < writes
    }

    /// Learns from rows that were moved together, if there were enough, when `times` as many are moved together as a rule, and buffers have
    /// `limit_bytes` at most. False if it does not pay.
    pub fn learn(&self, moved: Moved, times: f64, limit_bytes: u64) -> bool {
        let moved = {
            let mut known = self.moved.lock();
            *known = Moved { rows: known.rows + moved.rows, leaves: known.leaves + moved.leaves };
            if (known.rows as f64) < ROWS_TO_LEARN * times {
                return true;
            }
            std::mem::take(&mut *known)
        };
        let rows = moved.rows_to_a_leaf(times);
        let are_few = rows < FEW_ROWS;
        self.is_known.store(!are_few, Ordering::Relaxed);
        self.are_many.store(rows >= MANY_ROWS, Ordering::Relaxed);
        if are_few {
            self.left_bytes.store(REST_LIMITS * limit_bytes, Ordering::Relaxed);
        }
        !are_few
    }
}

/// Leaves that writes were deferred from lately, of all tables. A write to one of them goes there: more are likely to follow,
/// as in a table that is written in key order.
#[derive(Debug)]
pub(super) struct PassedOver {
    /// Each leaf has one place; the latest has it.
    leaves: Box<[AtomicU64]>,
}

impl PassedOver {
    pub fn new(frames: usize) -> Self {
        let leaves = (frames / FRAMES_PER_PASSED_OVER).clamp(PASSED_OVER.0, PASSED_OVER.1);
        Self { leaves: (0..leaves).map(|_| AtomicU64::new(0)).collect() }
    }

    pub fn add(&self, leaf: PageId) {
        self.place(leaf).store(leaf.0, Ordering::Relaxed);
    }

    pub fn has(&self, leaf: PageId) -> bool {
        self.place(leaf).load(Ordering::Relaxed) == leaf.0
    }

    fn place(&self, leaf: PageId) -> &AtomicU64 {
        &self.leaves[(leaf.0 % self.leaves.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 1000;

    fn moved(rows: u64, leaves: u64) -> Moved {
        Moved { rows, leaves }
    }

    #[test]
    fn more_rows_share_a_leaf_the_more_are_moved_together() {
        assert_eq!(moved(100, 100).rows_to_a_leaf(10.0), 1.0);
        assert_eq!(moved(110, 100).rows_to_a_leaf(1.0), 1.1);
        assert_eq!(moved(150, 100).rows_to_a_leaf(4.0), 3.0);
    }

    #[test]
    fn where_few_rows_come_to_a_leaf_writes_go_there_for_a_while() {
        let gain = Gain::default();
        assert!(gain.defers(10) && !gain.is_known() && !gain.are_many());
        assert!(!gain.learn(moved(140, 100), 1.0, LIMIT));
        assert!(!gain.is_known());
        let not_deferred = (0..).take_while(|_| !gain.defers(10)).count() as u64;
        assert_eq!(not_deferred, REST_LIMITS * LIMIT / 10);
        assert!(gain.learn(moved(140, 100), 2.0, LIMIT));
        assert!(gain.defers(10) && gain.is_known() && !gain.are_many());
        assert!(gain.learn(moved(400, 100), 1.0, LIMIT) && gain.are_many());
    }

    #[test]
    fn a_small_part_and_rows_that_were_overwritten_say_nothing() {
        let gain = Gain::default();
        assert!(gain.learn(moved(0, 0), 1.0, LIMIT) && gain.learn(moved(100, 100), 20.0, LIMIT));
        assert!(!gain.is_known() && gain.defers(10));
        assert!(!gain.learn(moved(60, 60), 20.0, LIMIT), "with those before they are enough");
    }

    #[test]
    fn a_leaf_is_kept_in_mind_until_another_takes_its_place() {
        let passed_over = PassedOver::new(64 * FRAMES_PER_PASSED_OVER);
        let pages = (7..7 + 64).map(PageId);
        assert!(!pages.clone().any(|page| passed_over.has(page)));
        pages.clone().for_each(|page| passed_over.add(page));
        assert!(pages.clone().all(|page| passed_over.has(page)));
        passed_over.add(PageId(7 + 64));
        assert_eq!(pages.filter(|page| !passed_over.has(*page)).collect::<Vec<_>>(), [PageId(7)]);
        assert_eq!([0, usize::MAX].map(|frames| PassedOver::new(frames).leaves.len()), [PASSED_OVER.0, PASSED_OVER.1]);
    }

    #[test]
    fn few_are_less_than_an_eighth() {
        let gain = Gain::default();
        gain.note_writes(80, 10);
        assert!(!gain.few_were_deferred());
        gain.note_writes(81, 10);
        assert!(gain.few_were_deferred());
        assert!(gain.few_were_deferred(), "none was since then");
    }
}
