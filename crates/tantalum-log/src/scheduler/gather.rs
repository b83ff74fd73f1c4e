//! A moment's wait before a write, for those whom the last one woke.
//!
//! Who is told that its commit is durable often commits again at once. The first of them that comes back finds the device idle; if it
//! wrote its record alone, the others would wait for that write and then for their own, and everybody would always wait for two
//! writes. So it waits for the others: as long as they keep coming, until all have come, and never for much of the time that a
//! write takes. Where they do not come back, it is tried ever more rarely.
//!
//! Of several devices one then takes the write of all: the others are free to hide it if it is late.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tantalum_rt::{now, yield_now};

/// Nobody waits longer for the next one than this part of a write, ...
const GAP_PART: u32 = 8;
const LONGEST_GAP: Duration = Duration::from_micros(50);
/// ... and for all of them than this part.
const WAIT_PART: u32 = 2;
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// Writes without a wait after one that was in vain; twice as many after each further one, up to 2 to this power.
const MOST_DOUBLINGS: u64 = 7;
/// A write's time counts for one in so many.
const WEIGHT: u64 = 8;

/// Who was woken and has not come back, and what waiting for them was worth.
#[derive(Debug, Default)]
pub(super) struct Gather {
    expected: AtomicI64,
    /// Somebody waits, and will write: nobody else begins a write meanwhile.
    is_led: AtomicBool,
    /// What a write takes on average. Like what follows, written only under the state's lock.
    write_nanos: AtomicU64,
    vain: AtomicU64,
    skips: AtomicU64,
}

impl Gather {
    /// Takes note of a write's time.
    pub(super) fn learn(&self, took: Duration) {
        let (took, before) = (took.as_nanos() as u64, self.write_nanos.load(Ordering::Relaxed));
        let average = if before == 0 { took } else { before - before / WEIGHT + took.min(2 * before) / WEIGHT };
        self.write_nanos.store(average, Ordering::Relaxed);
    }

    /// So many were told that their records are durable.
    pub(super) fn woke(&self, count: usize) {
        self.expected.fetch_add(count as i64, Ordering::Relaxed);
    }

    /// Somebody has appended and wants it durable.
    pub(super) fn returned(&self) {
        if self.is_anybody_expected() {
            self.expected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether somebody was woken who has not come back.
    pub(super) fn is_anybody_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > 0
    }

    /// Whether somebody waits for others, and is going to write.
    pub(super) fn is_led(&self) -> bool {
        self.is_led.load(Ordering::Relaxed)
    }

    /// Whether to wait now. If so, the caller releases the state's lock, which it holds, and then calls [`wait`](Self::wait).
    pub(super) fn begin(&self) -> bool {
        if self.is_led() || !self.is_anybody_expected() {
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
            self.expected.store(0, Ordering::Relaxed);
            return false;
        }
        self.is_led.store(true, Ordering::Relaxed);
        true
    }

    /// Waits for those who are expected. Returns how many came, and how many did not.
    pub(super) fn wait(&self) -> (i64, i64) {
        let write = Duration::from_nanos(self.write_nanos.load(Ordering::Relaxed));
        let gap = (write / GAP_PART).min(LONGEST_GAP);
        let limit = (write / WAIT_PART).min(LONGEST_WAIT);
        let first = self.expected.load(Ordering::Relaxed).max(0);
        let start = now();
        let (mut missing, mut last_came) = (first, start);
        while missing > 0 {
            yield_now();
            let (before, time) = (missing, now());
            missing = self.expected.load(Ordering::Relaxed).max(0);
            if missing != before {
                last_came = time;
            } else if time - last_came > gap {
                break;
            }
            if time - start > limit {
                break;
            }
        }
        ((first - missing).max(0), missing)
    }

    /// Ends a wait, under the state's lock: the caller goes on to write.
    pub(super) fn end(&self, (came, missing): (i64, i64)) {
        self.is_led.store(false, Ordering::Relaxed);
        self.expected.store(0, Ordering::Relaxed);
        let vain = if came >= missing { 0 } else { (self.vain.load(Ordering::Relaxed) + 1).min(MOST_DOUBLINGS) };
        self.vain.store(vain, Ordering::Relaxed);
        self.skips.store((1 << vain) - 1, Ordering::Relaxed);
    }
}
