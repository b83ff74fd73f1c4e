//! Telling those that await commits without a thread of their own that the outcome is known: one task for all, which is started with the
//! first and waits in the log as a committing thread does.
//!
//! Invariants: no lock is held while a notice is given; a notice is given once, or taken back; when the database closes, all are given
//! whose commits were appended before.

use std::{
    collections::BTreeMap,
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
};

use tantalum_log::{Log, Lsn, Ticket};
use tantalum_rt::{Condvar, JoinHandle, Mutex, spawn, task_name};

use crate::db::Core;

/// What is done when the outcome is known.
pub(super) enum Notice {
    Wake(Waker),
    Call(Box<dyn FnOnce() + Send>),
}

#[derive(Default)]
pub(super) struct Notifier {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// By the end of the commit's record, and in the order in which they came.
    waiting: BTreeMap<Place, (Ticket, Notice)>,
    added: u64,
    task: Task,
}

type Place = (Lsn, u64);

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Task {
    #[default]
    NotStarted,
    Running,
    /// The database closes: the task gives what notices there are.
    Ending,
}

/// A notice that is to be given.
pub(super) struct Awaited {
    shared: Arc<Shared>,
    place: Place,
}

impl Notifier {
    /// Has a notice given when the outcome of `ticket` is known. Returns it where that is now, or the database closes, so that it will be
    /// soon.
    pub fn add(&self, core: &Core, ticket: &Ticket, notice: Notice) -> Result<Awaited, Notice> {
        let mut state = self.shared.state.lock();
        match state.task {
            Task::Running => {}
            Task::Ending => return Err(notice),
            Task::NotStarted => {
                // Closing waits for the operation, and ends the task behind it.
                let Ok(_operation) = core.operations.begin() else { return Err(notice) };
                core.keep(Running::start(&self.shared, core.log().clone()));
                state.task = Task::Running;
            }
        }
        let place = (ticket.lsn(), state.added);
        state.added += 1;
        state.waiting.insert(place, (ticket.clone(), notice));
        self.shared.changed.notify_all();
        drop(state);
        let awaited = Awaited { shared: Arc::clone(&self.shared), place };
        // The task may not look again before more is durable.
        match ticket.is_done().and_then(|_| awaited.take()) {
            Some(notice) => Err(notice),
            None => Ok(awaited),
        }
    }
}

impl Awaited {
    /// Has this waker woken instead of an earlier one. False if that was woken, or is about to be.
    pub fn set_waker(&self, waker: &Waker) -> bool {
        let mut state = self.shared.state.lock();
        let Some((_, notice)) = state.waiting.get_mut(&self.place) else { return false };
        let before = match notice {
            Notice::Wake(before) if before.will_wake(waker) => None,
            notice => Some(std::mem::replace(notice, Notice::Wake(waker.clone()))),
        };
        drop(state);
        // Dropping a waker may run code of the program.
        drop(before);
        true
    }

    /// Takes the notice back, unless it was given, or is about to be.
    pub fn take(&self) -> Option<Notice> {
        let taken = self.shared.state.lock().waiting.remove(&self.place);
        taken.map(|(_, notice)| notice)
    }
}

impl Notice {
    pub fn give(self) {
        match self {
            Self::Wake(waker) => waker.wake(),
            Self::Call(call) => call(),
        }
    }
}

/// The task, which the database ends when it closes.
struct Running {
    shared: Arc<Shared>,
    name: String,
    task: Option<JoinHandle<()>>,
}

/// Tells the tasks of databases apart.
static STARTED: AtomicU64 = AtomicU64::new(0);

impl Running {
    fn start(shared: &Arc<Shared>, log: Log) -> Self {
        let name = format!("notifier-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let task = spawn(name.clone(), {
            let shared = Arc::clone(shared);
            move || shared.run(&log)
        });
        Self { shared: Arc::clone(shared), name, task: Some(task) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.state.lock().task = Task::Ending;
        self.shared.changed.notify_all();
        // A notice may close the database, or let go of its last handle: then the task ends behind it.
        if task_name() != self.name
            && let Some(task) = self.task.take()
        {
            // Panics of notices were caught.
            drop(task.join());
        }
    }
}

impl Shared {
    fn run(&self, log: &Log) {
        while let Some((due, durable)) = self.next_due(log) {
            if due.is_empty() {
                // Until more is durable. If the log fails, all are due.
                drop(log.flush(Lsn::new(durable.get() + 1)));
            }
            for notice in due {
                // Others wait for theirs. The hook for panics has reported it.
                drop(catch_unwind(AssertUnwindSafe(|| notice.give())));
            }
        }
    }

    /// Takes out the notices of commits whose outcome is known: all up to the position returned, and perhaps more; what is added behind
    /// the look is due when the log is durable further than that. `None` when the task is to end.
    fn next_due(&self, log: &Log) -> Option<(Vec<Notice>, Lsn)> {
        let mut state = self.state.lock();
        while state.waiting.is_empty() {
            if state.task == Task::Ending {
                return None;
            }
            self.changed.wait(&mut state);
        }
        let (durable, mut due) = (log.durable_lsn(), Vec::new());
        while let Some(first) = state.waiting.first_entry().filter(|first| first.get().0.is_done().is_some()) {
            due.push(first.remove().1);
        }
        Some((due, durable))
    }
}

impl fmt::Debug for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Awaited").field("place", &self.place).finish_non_exhaustive()
    }
}
