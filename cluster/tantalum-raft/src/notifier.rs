//! Calling those that wait for the log without a thread of their own: one task for all of them.
//!
//! Invariants: no lock is held during a call; each is made once, with the outcome; when the task ends, the calls that remain are made
//! at once, with whatever the outcome is then.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use tantalum_log::{Error, ErrorKind, Log, Lsn, Result, Ticket};
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
    waiting: BTreeMap<(Lsn, u64), (Ticket, Call)>,
    added: u64,
    is_ending: bool,
}

impl Notifier {
    /// Has `call` called when everything before `lsn` is durable, or cannot become it: from the task, or now.
    pub(crate) fn add(&self, log: &Log, lsn: Lsn, call: Call) {
        let ticket = match log.ticket(lsn) {
            Ok(ticket) => ticket,
            Err(error) => return call(Err(error)),
        };
        let mut state = self.state.lock();
        if state.is_ending {
            drop(state);
            return call(outcome(&ticket));
        }
        let place = (lsn, state.added);
        state.added += 1;
        state.waiting.insert(place, (ticket.clone(), call));
        self.changed.notify_all();
        drop(state);
        // The task may not look again before more is durable.
        if ticket.is_done().is_some()
            && let Some((ticket, call)) = { self.state.lock().waiting.remove(&place) }
        {
            call(outcome(&ticket));
        }
    }

    /// What the task does, until [`end`](Self::end).
    pub(crate) fn run(&self, log: &Log) {
        while let Some((due, durable)) = self.next_due(log) {
            if due.is_empty() {
                // Until more is durable. If the log fails, all are due.
                drop(log.flush(Lsn::new(durable.get() + 1)));
            }
            make(due);
        }
        let rest = std::mem::take(&mut self.state.lock().waiting);
        make(rest.into_values().collect());
    }

    /// Lets the task end. If the log is not closed before, what is not durable then fails.
    pub(crate) fn end(&self) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
    }

    /// Takes out the calls whose outcome is known, up to the position returned and perhaps more; `None` when the task is to end.
    fn next_due(&self, log: &Log) -> Option<(Vec<(Ticket, Call)>, Lsn)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() && !state.is_ending {
            self.changed.wait(&mut state);
        }
        if state.is_ending {
            return None;
        }
        let (durable, mut due) = (log.durable_lsn(), Vec::new());
        while let Some(first) = state.waiting.first_entry().filter(|first| first.get().0.is_done().is_some()) {
            due.push(first.remove());
        }
        Some((due, durable))
    }
}

fn make(calls: Vec<(Ticket, Call)>) {
    for (ticket, call) in calls {
        // The others wait for theirs. The hook for panics has reported it.
        drop(catch_unwind(AssertUnwindSafe(|| call(outcome(&ticket)))));
    }
}

fn outcome(ticket: &Ticket) -> Result<()> {
    ticket.is_done().unwrap_or_else(|| {
        let what = "the raft log was let go of before the entries were durable; open it again to see what it has";
        Err(Error::new(ErrorKind::Closed, what))
    })
}
