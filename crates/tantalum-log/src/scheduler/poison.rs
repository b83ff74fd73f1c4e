//! Stopping for good, after a failure that leaves it open what the log or its owner hold.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Scheduler, State};
use crate::Error;

/// Work that a panic must not leave half done: then the log is poisoned.
///
/// There are such guards around an append, whose reserved range and charge belong together; around the slow path of a flush, which
/// seals requests, gives them to devices and takes note of their ends; and around all that workers and the archiver do.
#[must_use = "dropping it poisons the log"]
pub(crate) struct PoisonGuard<'s> {
    scheduler: &'s Scheduler,
    what: &'static str,
}

impl PoisonGuard<'_> {
    /// The work has come to its end.
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for PoisonGuard<'_> {
    fn drop(&mut self) {
        self.scheduler.stop(format!("a panic while {}", self.what));
    }
}

impl Scheduler {
    /// Guards work; `what` completes "a panic while ...".
    pub(crate) fn poison_unless_ended(&self, what: &'static str) -> PoisonGuard<'_> {
        PoisonGuard { scheduler: self, what }
    }

    /// Stops the log; see [`Log::poison`](crate::Log::poison).
    pub(crate) fn stop(&self, what: String) {
        self.poison(&mut self.lock(), Error::Interrupted { what });
    }

    /// Stops the log for good: every waiter and every later call gets the first cause.
    pub(super) fn poison(&self, state: &mut State, cause: Error) {
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(Error::Poisoned { cause: Arc::new(cause) });
        self.stopped.store(true, Ordering::Release);
        state.wake_everybody();
        self.pressure.notify_all();
        self.wake_archive();
        self.leaving.notify_all();
    }
}
