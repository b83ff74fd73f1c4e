//! Whether it pays to defer writes to a table.
//!
//! A row that is deferred is written twice, and what reads or writes its table looks for it. What that saves is to read and store its
//! leaf, as far as it shares that with other rows. So it is counted how many rows come to a leaf when buffers are moved; the first full
//! buffer of a table is moved by itself, to find out soon. Where few do, writes go to their leaves for a while.
//!
//! A write to a leaf that is in memory need not be deferred, since nothing is read for it. If all changes of the leaf are stored, it is
//! stored again for the write: where many rows come to a leaf, most such writes are deferred too.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tantalum_rt::Mutex;

/// With fewer rows for a leaf, nothing is deferred.
const FEW_ROWS: f64 = 1.5;
/// With so many, also writes to leaves that are in memory, but stored.
const MANY_ROWS: f64 = 4.0;
/// As many rows as the extrapolation goes beyond them, times this, are needed to learn: of fewer, it is chance whether some share a leaf.
const ROWS_TO_LEARN: f64 = 8.0;
/// Where deferring does not pay, it is tried again when writes had so many times the bytes that change buffers may have.
const REST_LIMITS: u64 = 16;
/// If fewer writes to a table are deferred than one of so many, its buffers are moved: each of the others looks into them.
const FEW_OF_WRITES: u64 = 8;
/// Of writes to leaves that are in memory, but stored, one of so many goes to its leaf: a leaf that is written often is soon dirty, and
/// then takes all its writes.
const SPARED: u64 = 8;

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
    /// How often it was asked whether a stored leaf is spared.
    asked: AtomicU64,
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

    /// Whether the next write to a leaf that is in memory, but stored, is to be deferred too.
    pub fn spares_stored_leaf(&self) -> bool {
        self.are_many.load(Ordering::Relaxed) && self.asked.fetch_add(1, Ordering::Relaxed) % SPARED < SPARED - 1
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
        assert!(gain.defers(10) && !gain.is_known() && !gain.spares_stored_leaf());
        assert!(!gain.learn(moved(140, 100), 1.0, LIMIT));
        assert!(!gain.is_known());
        let not_deferred = (0..).take_while(|_| !gain.defers(10)).count() as u64;
        assert_eq!(not_deferred, REST_LIMITS * LIMIT / 10);
        assert!(gain.learn(moved(140, 100), 2.0, LIMIT));
        assert!(gain.defers(10) && gain.is_known() && !gain.spares_stored_leaf());
    }

    #[test]
    fn a_small_part_and_rows_that_were_overwritten_say_nothing() {
        let gain = Gain::default();
        assert!(gain.learn(moved(0, 0), 1.0, LIMIT) && gain.learn(moved(100, 100), 20.0, LIMIT));
        assert!(!gain.is_known() && gain.defers(10));
        assert!(!gain.learn(moved(60, 60), 20.0, LIMIT), "with those before they are enough");
    }

    #[test]
    fn where_many_rows_come_to_a_leaf_one_of_eight_writes_goes_to_a_stored_one() {
        let gain = Gain::default();
        assert!(gain.learn(moved(400, 100), 1.0, LIMIT));
        let spared: Vec<_> = (0..16).filter(|_| gain.spares_stored_leaf()).collect();
        assert_eq!(spared, [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]);
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
