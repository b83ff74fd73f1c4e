//! Calls that share rounds: one round at a time, and those that come while it runs are answered by the next.
//!
//! Invariant: a call is answered by a round that started after it came. So what the round finds out was true while the call waited.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Rounds that each have one outcome for all calls that it answers.
pub(crate) struct Rounds<T> {
    calls: Arc<Mutex<Calls<T>>>,
}

struct Calls<T> {
    /// What the next round answers.
    waiting: Vec<oneshot::Sender<T>>,
    /// A task runs rounds until none is waited for.
    is_running: bool,
}

impl<T> Default for Rounds<T> {
    fn default() -> Rounds<T> {
        Rounds { calls: Arc::new(Mutex::new(Calls { waiting: Vec::new(), is_running: false })) }
    }
}

fn locked<T>(calls: &Mutex<Calls<T>>) -> MutexGuard<'_, Calls<T>> {
    // No panic leaves it half changed.
    calls.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs rounds. If it ends before its time, by a panic or with the runtime, no call waits for ever.
struct Running<T> {
    calls: Arc<Mutex<Calls<T>>>,
    /// Nothing was waited for: another may run already.
    has_ended: bool,
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        if !self.has_ended {
            let mut calls = locked(&self.calls);
            calls.is_running = false;
            calls.waiting.clear();
        }
    }
}

impl<T: Clone + Send + 'static> Rounds<T> {
    /// The outcome of a round that starts after this call; `run` is a round. `None` if rounds have ended by a panic, or with the runtime.
    ///
    /// A call that is given up ends no round.
    pub async fn join<R>(&self, run: impl Fn() -> R + Send + 'static) -> Option<T>
    where
        R: Future<Output = T> + Send,
    {
        let (sender, outcome) = oneshot::channel();
        let is_first = {
            let mut calls = locked(&self.calls);
            calls.waiting.push(sender);
            !mem::replace(&mut calls.is_running, true)
        };
        if is_first {
            let mut running = Running { calls: Arc::clone(&self.calls), has_ended: false };
            tokio::spawn(async move {
                while let Some(answered) = running.next() {
                    let outcome = run().await;
                    for call in answered {
                        // It may have been given up.
                        let _ = call.send(outcome.clone());
                    }
                }
            });
        }
        outcome.await.ok()
    }
}

impl<T> Running<T> {
    /// What the round that starts now answers; `None` if there is nothing, and then another call runs the next one.
    fn next(&mut self) -> Option<Vec<oneshot::Sender<T>>> {
        let mut calls = locked(&self.calls);
        calls.waiting.retain(|call| !call.is_closed());
        calls.is_running = !calls.waiting.is_empty();
        self.has_ended = !calls.is_running;
        calls.is_running.then(|| mem::take(&mut calls.waiting))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::FutureExt;
    use tokio::sync::Semaphore;

    use super::*;

    /// Rounds that are numbered when they start, and end when they may.
    #[derive(Clone)]
    struct Numbered {
        started: Arc<AtomicU64>,
        may_end: Arc<Semaphore>,
    }

    impl Numbered {
        fn new() -> Numbered {
            Numbered { started: Arc::default(), may_end: Arc::new(Semaphore::new(0)) }
        }

        fn run(&self) -> impl Fn() -> futures_util::future::BoxFuture<'static, u64> + Send + 'static {
            let of = self.clone();
            move || {
                let of = of.clone();
                async move {
                    let number = of.started.fetch_add(1, Ordering::SeqCst) + 1;
                    of.may_end.acquire().await.expect("it is open").forget();
                    number
                }
                .boxed()
            }
        }

        async fn until_started(&self, number: u64) {
            while self.started.load(Ordering::SeqCst) < number {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn a_call_is_answered_by_a_round_that_started_after_it() {
        let (rounds, numbered) = (Rounds::default(), Numbered::new());
        let mut first = std::pin::pin!(rounds.join(numbered.run()));
        assert!(first.as_mut().now_or_never().is_none());
        numbered.until_started(1).await;
        // The first round runs: these must not take its outcome.
        let mut later: Vec<_> = (0..10).map(|_| Box::pin(rounds.join(numbered.run()))).collect();
        for call in &mut later {
            assert!(call.now_or_never().is_none());
        }
        numbered.may_end.add_permits(1);
        assert_eq!(first.await, Some(1));
        numbered.until_started(2).await;
        let mut last = std::pin::pin!(rounds.join(numbered.run()));
        assert!(last.as_mut().now_or_never().is_none());
        numbered.may_end.add_permits(1);
        for call in later {
            assert_eq!(call.await, Some(2));
        }
        numbered.may_end.add_permits(1);
        assert_eq!(last.await, Some(3));
        assert_eq!(numbered.started.load(Ordering::SeqCst), 3);
    }

    #[tokio::test]
    async fn calls_that_are_given_up_need_no_round_and_end_none() {
        let (rounds, numbered) = (Rounds::default(), Numbered::new());
        // Given up before its round starts, and while it runs.
        assert!(rounds.join(numbered.run()).now_or_never().is_none());
        tokio::task::yield_now().await;
        {
            let mut first = std::pin::pin!(rounds.join(numbered.run()));
            assert!(first.as_mut().now_or_never().is_none());
            numbered.until_started(1).await;
        }
        let mut kept = std::pin::pin!(rounds.join(numbered.run()));
        assert!(kept.as_mut().now_or_never().is_none());
        numbered.may_end.add_permits(2);
        assert_eq!(kept.await, Some(2));
        assert_eq!(numbered.started.load(Ordering::SeqCst), 2);
    }

    #[tokio::test]
    async fn a_round_that_panics_leaves_later_calls_a_round() {
        let rounds = Rounds::<u64>::default();
        let panics = || async { panic!("a round of a test") };
        assert_eq!(rounds.join(panics).await, None);
        assert_eq!(rounds.join(|| async { 7 }).await, Some(7));
    }
}
