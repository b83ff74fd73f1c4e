//! Adaptive group-commit delay: before a write, the log leader waits briefly for the tasks that the last write woke.
//!
//! A task whose commit is durable often commits again at once. The first of them that comes back finds the device idle; if it
//! wrote its record alone, the others would wait for that write and then for their own: every commit would take two writes.
//! So the leader waits for the others: as long as they keep coming, until all have come, and never for much of the time that
//! a write takes. Where they do not come back, the leader tries it ever more rarely.
//!
//! Of several devices one then takes the write of all: the others are free to hide it if it is late.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tantalum_rt::{Mutex, Parker, Unparker, now, yield_now};

/// The longest wait for the next task is this part of a write, ...
const GAP_PART: u32 = 8;
const LONGEST_GAP: Duration = Duration::from_micros(50);
/// ... and for all of them this part.
const WAIT_PART: u32 = 2;
const LONGEST_WAIT: Duration = Duration::from_micros(500);
/// The leader yields for so long, which covers the waits for fast devices, and then sleeps. Waking it takes some 50 us: with a
/// sleep in the wait for a write of 200 us, 16 clients made a tenth fewer commits.
const YIELD: Duration = Duration::from_micros(150);
/// Writes without a wait after one that was in vain; twice as many after each further one, up to 2 to this power.
const MOST_DOUBLINGS: u64 = 7;
/// A write's time counts for one in so many.
const WEIGHT: u64 = 8;

/// How many tasks were woken and have not come back, and whether waiting for them was worth it.
#[derive(Debug, Default)]
pub(super) struct GroupDelay {
    expected: AtomicI64,
    /// A leader waits and is going to write: no other task begins a write meanwhile.
    has_leader: AtomicBool,
    /// The leader, if it sleeps. Announced by the flag, so that a task that comes back rarely needs the lock.
    sleeper: Mutex<Option<Unparker>>,
    has_sleeper: AtomicBool,
    /// What a write takes on average. Like what follows, written only under the state's lock.
    write_nanos: AtomicU64,
    vain: AtomicU64,
    skips: AtomicU64,
}

impl GroupDelay {
    /// Takes note of a write's time.
    pub(super) fn learn(&self, took: Duration) {
        let (took, before) = (took.as_nanos() as u64, self.write_nanos.load(Ordering::Relaxed));
        let average = if before == 0 { took } else { before - before / WEIGHT + took.min(2 * before) / WEIGHT };
        self.write_nanos.store(average, Ordering::Relaxed);
    }

    /// `count` tasks were woken, as their records are durable.
    pub(super) fn woke(&self, count: usize) {
        self.expected.fetch_add(count as i64, Ordering::Relaxed);
    }

    /// A task has appended and wants it durable.
    pub(super) fn came_back(&self) {
        if self.is_any_expected() {
            let before = self.expected.fetch_sub(1, Ordering::SeqCst);
            if before <= 1 && self.has_sleeper.load(Ordering::SeqCst) {
                self.sleeper.lock().iter().for_each(Unparker::unpark);
            }
        }
    }

    /// Whether a woken task has not come back.
    pub(super) fn is_any_expected(&self) -> bool {
        self.expected.load(Ordering::Relaxed) > 0
    }

    /// Whether a leader waits for others and is going to write.
    pub(super) fn has_leader(&self) -> bool {
        self.has_leader.load(Ordering::Relaxed)
    }

    /// Whether to wait now. If so, the caller releases the state's lock, which it holds, and then calls [`wait`](Self::wait).
    pub(super) fn begin(&self) -> bool {
        if self.has_leader() || !self.is_any_expected() {
            return false;
        }
        let skips = self.skips.load(Ordering::Relaxed);
        if skips > 0 {
            self.skips.store(skips - 1, Ordering::Relaxed);
            self.expected.store(0, Ordering::Relaxed);
            return false;
        }
        self.has_leader.store(true, Ordering::Relaxed);
        true
    }

    /// Waits for the expected tasks. Returns how many came, and how many did not.
    pub(super) fn wait(&self) -> (i64, i64) {
        let write = Duration::from_nanos(self.write_nanos.load(Ordering::Relaxed));
        let gap = (write / GAP_PART).min(LONGEST_GAP);
        let limit = (write / WAIT_PART).min(LONGEST_WAIT);
        let first = self.expected.load(Ordering::Relaxed).max(0);
        let start = now();
        let (mut missing, mut last_came) = (first, start);
        while missing > 0 {
            match now() - start < YIELD {
                true => yield_now(),
                false => self.sleep((last_came + gap).min(start + limit) - now()),
            }
            let (before, time) = (missing, now());
            missing = self.expected.load(Ordering::Relaxed).max(0);
            if missing != before {
                last_came = time;
            } else if time - last_came >= gap {
                break;
            }
            if time - start >= limit {
                break;
            }
        }
        ((first - missing).max(0), missing)
    }

    /// Sleeps until all have come, for at most so long.
    fn sleep(&self, longest: Duration) {
        let parker = Parker::new();
        *self.sleeper.lock() = Some(parker.unparker());
        self.has_sleeper.store(true, Ordering::SeqCst);
        // Asked after the announcement, which the last task that comes from now on sees.
        if self.expected.load(Ordering::SeqCst) > 0 {
            parker.park_timeout(longest);
        }
        self.has_sleeper.store(false, Ordering::SeqCst);
        *self.sleeper.lock() = None;
    }

    /// Ends a wait, under the state's lock: the caller goes on to write.
    pub(super) fn end(&self, (came, missing): (i64, i64)) {
        self.has_leader.store(false, Ordering::Relaxed);
        self.expected.store(0, Ordering::Relaxed);
        let vain = if came >= missing { 0 } else { (self.vain.load(Ordering::Relaxed) + 1).min(MOST_DOUBLINGS) };
        self.vain.store(vain, Ordering::Relaxed);
        self.skips.store((1 << vain) - 1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_rt::{Simulation, list_tasks, sleep, spawn};

    use super::*;

    #[test]
    fn a_leader_that_waits_for_long_sleeps_until_the_last_task_comes() {
        Simulation::new(1)
            .run(|| {
                let delay = Arc::new(GroupDelay::default());
                delay.learn(Duration::from_millis(10));
                delay.woke(5);
                assert!(delay.begin());
                let leader = spawn("leader", {
                    let delay = Arc::clone(&delay);
                    move || (delay.wait(), now().as_nanos() / 1000)
                });
                for at_us in [40, 80, 120, 160, 200] {
                    let left = Duration::from_micros(at_us) - Duration::from_nanos(now().as_nanos());
                    sleep(left);
                    // It yields at first.
                    let leader = list_tasks().lines().find(|task| task.contains("leader")).unwrap().to_owned();
                    assert_eq!(leader.contains("parked"), at_us > 150, "{leader}");
                    delay.came_back();
                }
                assert_eq!(leader.join().unwrap(), ((5, 0), 200));
            })
            .expect_finished();
    }
}
