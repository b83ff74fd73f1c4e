//! Waiting for a wake-up that may come first.

use std::{sync::Arc, time::Duration};

use super::{condvar::Condvar, mutex::Mutex};
use crate::simulation::Wait;

/// Waits until a task calls [`Unparker::unpark`]. A call that comes before the wait is kept as a token and ends the
/// next wait at once; several such calls leave one token.
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

#[derive(Debug, Default)]
struct Shared {
    token: Mutex<bool>,
    changed: Condvar,
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
        let mut token = self.shared.token.lock();
        while !*token {
            self.shared.changed.wait_with(&mut token, None, Wait::Parker);
        }
        *token = false;
    }

    /// Waits for a token for at most `timeout`. True when it took one.
    pub fn park_timeout(&self, timeout: Duration) -> bool {
        let mut token = self.shared.token.lock();
        let deadline = crate::now() + timeout;
        while !*token {
            let left = deadline - crate::now();
            if left.is_zero() {
                return false;
            }
            self.shared.changed.wait_with(&mut token, Some(left), Wait::Parker);
        }
        *token = false;
        true
    }
}

impl Unparker {
    /// Leaves a token, and wakes the task that waits for it.
    pub fn unpark(&self) {
        *self.shared.token.lock() = true;
        self.shared.changed.notify_one();
    }
}
