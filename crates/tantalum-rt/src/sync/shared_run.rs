//! Work that several tasks ask for at the same time, and that one of them does for all: a checkpoint, a flush.

use super::{
    condvar::Condvar,
    mutex::{Mutex, MutexGuard},
};

/// Runs of one kind of work, one at a time, each for all who asked before it began.
///
/// ```
/// use tantalum_rt::SharedRun;
///
/// let flushes = SharedRun::default();
/// assert_eq!(flushes.run(|| "done"), "done"); // by the caller, as nobody else asks
/// assert_eq!(flushes.last(), Some("done"));
/// ```
#[derive(Debug)]
pub struct SharedRun<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

#[derive(Debug)]
struct State<T> {
    started: u64,
    ended: u64,
    last: Option<T>,
}

impl<T> Default for SharedRun<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { started: 0, ended: 0, last: None }), ended: Condvar::new() }
    }
}

impl<T: Clone> SharedRun<T> {
    /// The result of a run that begins after the call: the caller's own, or that of another who asked meanwhile. If `work`
    /// panics, those who wait for it wait forever.
    pub fn run(&self, work: impl Fn() -> T) -> T {
        let state = self.state.lock();
        let wanted = state.started + 1;
        self.wait_for(state, wanted, work)
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

    /// Returns when the run with this number has ended; runs it if nobody else does.
    fn wait_for<'s>(&'s self, mut state: MutexGuard<'s, State<T>>, wanted: u64, work: impl Fn() -> T) -> T {
        while state.ended < wanted {
            if state.started > state.ended {
                self.ended.wait(&mut state);
                continue;
            }
            state.started += 1;
            drop(state);
            let result = work();
            state = self.state.lock();
            state.ended = state.started;
            state.last = Some(result);
            self.ended.notify_all();
        }
        state.last.clone().expect("a run that has ended left its result")
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
