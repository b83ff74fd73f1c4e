//! Work that several tasks ask for at the same time, and that one of them does for all: a checkpoint, a flush.

use std::{collections::BTreeSet, time::Duration};

use super::{
    condvar::Condvar,
    mutex::{Mutex, MutexGuard},
};
use crate::now;

/// Runs of one kind of work, one at a time, each for all tasks that asked before it began.
///
/// A task that will ask soon can [announce](Self::announce) it: a run waits for all that was announced before a task that asked for
/// it could begin it. So tasks that prepare at the same time share one run. Without announcements, the first task to be ready would
/// begin a run for itself and let all others wait for two. A run waits no longer than the last run took, which is what it costs
/// the announced tasks not to be waited for; so it waits for nothing where runs take no time.
///
/// ```
/// use tantalum_rt::SharedRun;
///
/// let flushes = SharedRun::default();
/// assert_eq!(flushes.run(|| "done"), "done"); // by the caller, as no other task asks
/// assert_eq!(flushes.last(), Some("done"));
///
/// let announced = flushes.announce();
/// // ... what the run is to count for ...
/// assert_eq!(announced.run(|| "done for all"), "done for all");
/// ```
#[derive(Debug)]
pub struct SharedRun<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
    gathered: Condvar,
}

#[derive(Debug)]
struct State<T> {
    started: u64,
    ended: u64,
    last: Option<T>,
    last_took: Duration,
    /// A task waits for what was announced, and will begin the next run.
    is_gathering: bool,
    announcements: u64,
    /// The announcements of tasks that have not asked yet.
    announced: BTreeSet<u64>,
}

/// The announcement that a task will ask for a run of a [`SharedRun`] soon. Dropping it withdraws the announcement.
///
/// Between the announcement and its end, nothing may wait for another run.
#[derive(Debug)]
#[must_use = "it holds up the next run until it asks for one or is dropped"]
pub struct Announced<'r, T> {
    runs: &'r SharedRun<T>,
    number: u64,
}

impl<T> Default for SharedRun<T> {
    fn default() -> Self {
        let state = State {
            started: 0,
            ended: 0,
            last: None,
            last_took: Duration::ZERO,
            is_gathering: false,
            announcements: 0,
            announced: BTreeSet::new(),
        };
        Self { state: Mutex::new(state), ended: Condvar::new(), gathered: Condvar::new() }
    }
}

impl<T> SharedRun<T> {
    /// Says that the caller will ask for a run soon.
    pub fn announce(&self) -> Announced<'_, T> {
        let mut state = self.state.lock();
        let number = state.announcements;
        state.announcements += 1;
        state.announced.insert(number);
        Announced { runs: self, number }
    }

    fn end_announcement(&self, state: &mut State<T>, number: u64) {
        if state.announced.remove(&number) && state.is_gathering {
            self.gathered.notify_all();
        }
    }
}

impl<T: Clone> SharedRun<T> {
    /// The result of a run that begins after the call: the caller's own, or that of another task that asked meanwhile. A run whose
    /// `work` panics does not count: one of the tasks that wait for it begins it anew.
    pub fn run(&self, work: impl Fn() -> T) -> T {
        self.next(self.state.lock(), work)
    }

    /// As [`run`](Self::run), but a run that is under way will do.
    pub fn join_or_run(&self, work: impl Fn() -> T) -> T {
        let state = self.state.lock();
        let is_running = state.started > state.ended;
        let wanted = if is_running { state.started } else { state.started + 1 };
        self.wait_for(state, wanted, work)
    }

    /// The result of the last run that has ended.
    pub fn last(&self) -> Option<T> {
        self.state.lock().last.clone()
    }

    fn next<'s>(&'s self, state: MutexGuard<'s, State<T>>, work: impl Fn() -> T) -> T {
        let wanted = state.started + 1;
        self.wait_for(state, wanted, work)
    }

    /// Returns when the run with this number has ended; runs it if no other task does.
    fn wait_for<'s>(&'s self, mut state: MutexGuard<'s, State<T>>, wanted: u64, work: impl Fn() -> T) -> T {
        while state.ended < wanted {
            if state.started > state.ended || state.is_gathering {
                self.ended.wait(&mut state);
                continue;
            }
            state.is_gathering = true;
            let (latest, until) = (state.announcements, now() + state.last_took);
            while state.announced.first().is_some_and(|announced| *announced < latest) {
                let left = until.duration_since(now());
                if left.is_zero() {
                    break;
                }
                self.gathered.wait_for(&mut state, left);
            }
            state.is_gathering = false;
            state.started += 1;
            drop(state);
            let begun = now();
            let abandoned = Abandoned(self);
            let result = work();
            std::mem::forget(abandoned);
            state = self.state.lock();
            state.last_took = begun.elapsed();
            state.ended = state.started;
            state.last = Some(result);
            self.ended.notify_all();
        }
        state.last.clone().expect("a run that has ended left its result")
    }
}

/// Takes a run back that has begun, and not ended.
struct Abandoned<'r, T>(&'r SharedRun<T>);

impl<T> Drop for Abandoned<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.started = state.ended;
        self.0.ended.notify_all();
    }
}

impl<T: Clone> Announced<'_, T> {
    /// Asks, as [`SharedRun::run`] does.
    pub fn run(self, work: impl Fn() -> T) -> T {
        let mut state = self.runs.state.lock();
        self.runs.end_announcement(&mut state, self.number);
        self.runs.next(state, work)
    }
}

impl<T> Drop for Announced<'_, T> {
    fn drop(&mut self) {
        self.runs.end_announcement(&mut self.runs.state.lock(), self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use super::*;
    use crate::{Simulation, sleep, spawn};

    /// Each run takes 10 ms and results in its number.
    fn runs() -> (Arc<SharedRun<u64>>, impl Fn() -> u64 + Clone + Send + 'static) {
        let count = Arc::new(AtomicU64::new(0));
        let work = move || {
            let number = count.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(Duration::from_millis(10));
            number
        };
        (Arc::default(), work)
    }

    #[test]
    fn who_asks_during_a_run_shares_the_next() {
        Simulation::new(1)
            .run(|| {
                let (shared, work) = runs();
                let asked = |at_ms: u64| {
                    let (shared, work) = (Arc::clone(&shared), work.clone());
                    spawn("asks", move || {
                        sleep(Duration::from_millis(at_ms));
                        (shared.run(work), crate::now().as_nanos() / 1_000_000)
                    })
                };
                let results: Vec<_> = [0, 2, 5, 9, 15].map(asked).map(|task| task.join().unwrap()).into();
                assert_eq!(results, [(1, 10), (2, 20), (2, 20), (2, 20), (3, 30)]);
                assert_eq!(shared.last(), Some(3));
            })
            .expect_finished();
    }

    /// Tasks that announce a run, so many ms after the begin and for so many ms, and when each of them has its result.
    fn announced(coming: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
        Simulation::new(1)
            .run(move || {
                let (shared, work) = runs();
                // What the last run took is known.
                assert_eq!(shared.run(&work), 1);
                let task = |(at_ms, for_ms): (u64, u64)| {
                    let (shared, work) = (Arc::clone(&shared), work.clone());
                    spawn("asks", move || {
                        sleep(Duration::from_millis(at_ms));
                        let announced = shared.announce();
                        sleep(Duration::from_millis(for_ms));
                        (announced.run(work), crate::now().as_nanos() / 1_000_000 - 10)
                    })
                };
                let tasks: Vec<_> = coming.into_iter().map(task).collect();
                tasks.into_iter().map(|task| task.join().unwrap()).collect()
            })
            .expect_finished()
    }

    #[test]
    fn a_run_waits_for_those_who_have_announced_to_ask() {
        // The third announces after the first has asked; the fourth during the run, and asks after it.
        let results = announced(vec![(0, 1), (0, 4), (2, 1), (5, 12), (14, 1)]);
        assert_eq!(results, [(2, 14), (2, 14), (2, 14), (3, 27), (3, 27)]);
    }

    #[test]
    fn a_run_waits_no_longer_than_the_last_one_took() {
        assert_eq!(announced(vec![(0, 1), (0, 30), (15, 3)]), [(2, 21), (3, 40), (3, 40)]);
    }

    #[test]
    fn a_dropped_announcement_holds_up_no_task() {
        Simulation::new(1)
            .run(|| {
                let (shared, work) = runs();
                shared.run(&work);
                let announced = shared.announce();
                let asks = spawn("asks", {
                    let shared = Arc::clone(&shared);
                    move || (shared.run(work), crate::now().as_nanos() / 1_000_000)
                });
                sleep(Duration::from_millis(3));
                drop(announced);
                assert_eq!(asks.join().unwrap(), (2, 23));
            })
            .expect_finished();
    }

    #[test]
    fn a_run_that_panics_is_begun_anew_by_one_who_waits_for_it() {
        Simulation::new(1)
            .run(|| {
                let (shared, work) = runs();
                let first = spawn("first", {
                    let shared = Arc::clone(&shared);
                    move || {
                        let panics = || -> u64 {
                            sleep(Duration::from_millis(10));
                            crate::interleave();
                            unreachable!("it has panicked")
                        };
                        crate::simulation::panic_at(&mut 1, || shared.run(panics))
                    }
                });
                sleep(Duration::from_millis(5));
                assert_eq!(shared.join_or_run(&work), 1);
                assert_eq!((first.join().unwrap(), shared.run(&work)), (None, 2));
            })
            .expect_finished();
    }

    #[test]
    fn who_joins_takes_what_is_under_way() {
        Simulation::new(1)
            .run(|| {
                let (shared, work) = runs();
                let first = spawn("first", {
                    let (shared, work) = (Arc::clone(&shared), work.clone());
                    move || shared.run(work)
                });
                sleep(Duration::from_millis(5));
                assert_eq!((shared.last(), shared.join_or_run(&work), shared.join_or_run(&work)), (None, 1, 2));
                assert_eq!(first.join().unwrap(), 1);
            })
            .expect_finished();
    }
}
