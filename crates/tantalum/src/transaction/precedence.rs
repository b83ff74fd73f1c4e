//! Lets a commit succeed that others keep from it: a commit of many leaves may find each time that one of them has been split while it
//! found the others.
//!
//! After some tries in vain it takes precedence: commits that are under way end or fail, none begins another try, and so nothing
//! changes the leaves any more but itself.

use std::sync::atomic::{AtomicUsize, Ordering};

use tantalum_rt::{Mutex, MutexGuard, may_wait};

/// Tries before a commit takes precedence.
const TRIES: usize = 8;

/// Which commit goes first.
#[derive(Debug, Default)]
pub(super) struct Precedence {
    /// Commits that have precedence or wait for it.
    wanted: AtomicUsize,
    turn: Mutex<()>,
}

/// The tries of one commit. Dropping it ends its precedence.
pub(super) struct Tries<'p> {
    precedence: &'p Precedence,
    failed: usize,
    turn: Option<MutexGuard<'p, ()>>,
}

impl<'p> Tries<'p> {
    pub fn new(precedence: &'p Precedence) -> Self {
        Self { precedence, failed: 0, turn: None }
    }

    /// The last try was in vain.
    pub fn failed(&mut self) {
        self.failed += 1;
    }

    /// Whether a try was in vain.
    pub fn have_failed(&self) -> bool {
        self.failed > 0
    }

    /// Whether to [`wait`](Self::wait) before the next try, with nothing in hand that others may need.
    pub fn must_wait(&self) -> bool {
        self.turn.is_none() && (self.failed >= TRIES || self.precedence.wanted.load(Ordering::Relaxed) > 0)
    }

    /// Waits until the commits that have precedence are done; after [`TRIES`] failed tries, takes precedence.
    pub fn wait(&mut self) {
        may_wait("the precedence of a commit");
        if self.failed < TRIES {
            drop(self.precedence.turn.lock());
            return;
        }
        self.precedence.wanted.fetch_add(1, Ordering::Relaxed);
        self.turn = Some(self.precedence.turn.lock());
    }
}

impl Drop for Tries<'_> {
    fn drop(&mut self) {
        if self.turn.take().is_some() {
            self.precedence.wanted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tantalum_rt::{Simulation, sleep, spawn};

    use super::*;

    #[test]
    fn after_some_tries_in_vain_all_others_wait() {
        Simulation::new(1)
            .run(|| {
                let precedence = Arc::new(Precedence::default());
                let mut starving = Tries::new(&precedence);
                for _ in 0..TRIES {
                    assert!(!starving.must_wait());
                    starving.failed();
                }
                assert!(starving.must_wait());
                starving.wait();
                assert!(!starving.must_wait(), "it goes on alone");
                let others: Vec<_> = [0, TRIES]
                    .map(|failed| {
                        let precedence = Arc::clone(&precedence);
                        spawn("other", move || {
                            let mut tries = Tries::new(&precedence);
                            (0..failed).for_each(|_| tries.failed());
                            assert!(tries.must_wait());
                            tries.wait();
                            sleep(Duration::from_millis(1));
                        })
                    })
                    .into();
                sleep(Duration::from_millis(5));
                assert!(others.iter().all(|other| !other.is_finished()));
                drop(starving);
                others.into_iter().for_each(|other| other.join().unwrap());
                assert!(!Tries::new(&precedence).must_wait());
            })
            .expect_finished();
    }
}
