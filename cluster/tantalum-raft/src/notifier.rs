//! Calling those that wait for the log without a thread of their own: one task for all of them.
//!
//! Invariants:
//! - no lock is held during a call; each is made once, with the outcome;
//! - what waits was not durable when the task last looked, so that the task sees it when more is durable than it saw then;
//! - when the task ends, the calls that remain are made at once, with whatever the outcome is then.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tantalum_log::{Error, ErrorKind, Log, Lsn, Result};
use tantalum_rt::{Condvar, Mutex};

/// What is called when the outcome is known.
pub(crate) type Call = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Default)]
pub(crate) struct Notifier {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By what they wait for, and the order in which they came.
    waiting: VecDeque<(Lsn, Call)>,
    /// The task makes calls. The tasks that those wake often append again: all of that is asked for at once, when the calls are made,
    /// so that the first of it is no write of its own.
    is_calling: bool,
    is_ending: bool,
}

impl Notifier {
    /// Has `call` called when everything before `lsn` is durable, or cannot become it: from the task, or now.
    pub(crate) fn add(&self, log: &Log, lsn: Lsn, call: Call) {
        let mut state = self.state.lock();
        // Under the lock, under which the task looks how far the log is durable, to wait for more.
        let is_known = log.durable_lsn() >= lsn || lsn > log.end_lsn();
        if is_known || state.is_ending {
            drop(state);
            return call(outcome(log, lsn));
        }
        // Most come in their order.
        let at = state.waiting.partition_point(|&(waiting, _)| waiting <= lsn);
        state.waiting.insert(at, (lsn, call));
        if state.waiting.len() == 1 {
            self.changed.notify_all();
        }
        let is_asked_for_later = state.is_calling;
        drop(state);
        if !is_asked_for_later {
            // If it fails, the task sees it.
            drop(log.ticket(lsn));
        }
    }

    /// What the task does, until [`end`](Self::end).
    pub(crate) fn run(&self, log: &Log) {
        while let Some((due, durable)) = self.next_due(log) {
            if due.is_empty() {
                // Until more is durable.
                if let Err(error) = log.flush(Lsn::new(durable.get() + 1)) {
                    self.fail(log, &error);
                }
                continue;
            }
            make(due, |_| Ok(()));
            let wanted = {
                let mut state = self.state.lock();
                state.is_calling = false;
                state.waiting.back().map(|&(lsn, _)| lsn)
            };
            if let Some(wanted) = wanted {
                // If it fails, so does waiting for it.
                drop(log.ticket(wanted));
            }
        }
        let rest = std::mem::take(&mut self.state.lock().waiting);
        make(rest, |lsn| outcome(log, lsn));
    }

    /// Lets the task end. If the log is not closed before, what is not durable then fails.
    pub(crate) fn end(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// Takes out the calls for what is durable, up to the position returned; `None` when the task is to end.
    fn next_due(&self, log: &Log) -> Option<(VecDeque<(Lsn, Call)>, Lsn)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_ending {
            self.changed.wait(&mut state);
        }
        if state.is_ending {
            return None;
        }
        let durable = log.durable_lsn();
        let due = state.waiting.partition_point(|&(lsn, _)| lsn <= durable);
        state.is_calling = due > 0;
        Some((state.waiting.drain(..due).collect(), durable))
    }

    /// Makes all calls after the log failed: some of them may be for what became durable before.
    fn fail(&self, log: &Log, error: &Error) {
        let waiting = std::mem::take(&mut self.state.lock().waiting);
        make(waiting, |lsn| if log.durable_lsn() >= lsn { Ok(()) } else { Err(error.clone()) });
    }
}

fn make(calls: VecDeque<(Lsn, Call)>, outcome: impl Fn(Lsn) -> Result<()>) {
    for (lsn, call) in calls {
        // The others wait for theirs. The hook for panics has reported it.
        drop(catch_unwind(AssertUnwindSafe(|| call(outcome(lsn)))));
    }
}

/// The outcome if it is known, and that it will not be otherwise.
fn outcome(log: &Log, lsn: Lsn) -> Result<()> {
    log.ticket(lsn)?.is_done().unwrap_or_else(|| {
        let what = "the raft log was let go of before the entries were durable; open it again to see what it has";
        Err(Error::new(ErrorKind::Closed, what))
    })
}
