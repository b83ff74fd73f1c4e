//! Waiting for a wake-up that may come first.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::thread::{
    Timespec,
    futex::{self, Flags},
};

use super::{condvar::Condvar, mutex::Mutex};
use crate::simulation::{self, Wait};

/// No token, and no thread sleeps.
const EMPTY: u32 = 0;
const TOKEN: u32 = 1;
/// No token, and a thread sleeps until there is one.
const PARKED: u32 = 2;

/// Waits until a task calls [`Unparker::unpark`]. A call that comes before the wait is kept as a token and ends the
/// next wait at once; several such calls leave one token. One task waits at a time. Those that park and unpark are all tasks of one
/// simulation, or all threads.
///
/// ```
/// use std::time::Duration;
///
/// let parker = tantalum_rt::Parker::new();
/// let unparker = parker.unparker();
/// unparker.unpark();
/// unparker.unpark();
/// parker.park();
/// assert!(!parker.park_timeout(Duration::from_millis(1)), "the two calls left one token");
/// ```
#[derive(Debug, Default)]
pub struct Parker {
    shared: Arc<Shared>,
}

/// Wakes a [`Parker`], from any task.
#[derive(Clone, Debug)]
pub struct Unparker {
    shared: Arc<Shared>,
}

/// Threads meet at the futex; the tasks of a simulation at a condition, where the scheduler sees them.
#[derive(Debug, Default)]
struct Shared {
    futex: AtomicU32,
    token: Mutex<bool>,
    changed: Condvar,
}

impl Shared {
    fn take_token(&self) -> bool {
        self.futex.compare_exchange(TOKEN, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Sleeps until there may be a token, or for `timeout`; returns at once where there is one.
    fn sleep(&self, timeout: Option<Duration>) {
        // Relaxed: the token is taken by an operation of its own.
        let parked = self.futex.compare_exchange(EMPTY, PARKED, Ordering::Relaxed, Ordering::Relaxed);
        if parked == Err(TOKEN) {
            return;
        }
        // A timeout too long to express is none.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        // Whichever way it ends, the caller looks for a token again.
        _ = futex::wait(&self.futex, Flags::PRIVATE, PARKED, timeout.as_ref());
    }
}

impl Parker {
    /// A parker without a token.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle that wakes this parker.
    pub fn unparker(&self) -> Unparker {
        Unparker { shared: Arc::clone(&self.shared) }
    }

    /// Waits for a token and takes it.
    pub fn park(&self) {
        if simulation::current().is_some() {
            let mut token = self.shared.token.lock();
            while !*token {
                self.shared.changed.wait_with(&mut token, None, Wait::Parker);
            }
            *token = false;
            return;
        }
        while !self.shared.take_token() {
            self.shared.sleep(None);
        }
    }

    /// Waits for a token for at most `timeout`. True when it took one.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        let deadline = crate::now() + timeout;
        let left = || Some(deadline - crate::now()).filter(|left| !left.is_zero());
        if simulation::current().is_some() {
            let mut token = self.shared.token.lock();
            while !*token {
                let Some(left) = left() else { return false };
                self.shared.changed.wait_with(&mut token, Some(left), Wait::Parker);
            }
            *token = false;
            return true;
        }
        while !self.shared.take_token() {
            let Some(left) = left() else {
                // A token that came last is taken.
                return self.shared.futex.swap(EMPTY, Ordering::Acquire) == TOKEN;
            };
            self.shared.sleep(Some(left));
        }
        true
    }
}

impl Unparker {
    /// Leaves a token, and wakes the task that waits for it.
    pub fn unpark(&self) {
        if simulation::current().is_some() {
            *self.shared.token.lock() = true;
            self.shared.changed.notify_one();
        } else if self.shared.futex.swap(TOKEN, Ordering::Release) == PARKED {
            // It fails only where the address is not one.
            _ = futex::wake(&self.shared.futex, Flags::PRIVATE, 1);
        }
    }
}
