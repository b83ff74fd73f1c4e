//! Waiting for a condition that a mutex protects.

#![allow(unsafe_code)]

use std::{
    panic::Location,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use lock_api::RawMutex as _;
use parking_lot_core::{DEFAULT_PARK_TOKEN, DEFAULT_UNPARK_TOKEN, ParkResult};

use super::mutex::{MutexGuard, RawMutex};
use crate::{
    clock::nanos,
    simulation::{self, Wait},
};

/// Lets tasks wait until another one changes what a [`Mutex`](crate::Mutex) protects.
///
/// No wake-up is spurious, but between the notification and the mutex being locked again a third task may change the
/// condition: wait in a loop.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_rt::{Condvar, Mutex, spawn};
///
/// let shared = Arc::new((Mutex::new(false), Condvar::new()));
/// let other = Arc::clone(&shared);
/// let task = spawn("setter", move || {
///     *other.0.lock() = true;
///     other.1.notify_one();
/// });
/// let mut ready = shared.0.lock();
/// while !*ready {
///     shared.1.wait(&mut ready);
/// }
/// # drop(ready);
/// # task.join().expect("the setter does not panic");
/// ```
#[derive(Debug, Default)]
pub struct Condvar {
    /// Whether threads are parked on our address. Written only under `parking_lot_core`'s queue lock.
    threads_wait: AtomicBool,
}

/// Whether a timed wait ended because its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// True when the time was over before a notification came.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// A condition that no task waits for.
    pub const fn new() -> Self {
        Self { threads_wait: AtomicBool::new(false) }
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_with(guard, None, Wait::Condvar);
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.wait_with(guard, Some(timeout), Wait::Condvar)
    }

    /// Wakes the task that has waited longest, if any waits.
    pub fn notify_one(&self) {
        if simulation::any_running()
            && let Some(world) = simulation::current()
        {
            return world.notify(self.address(), 1);
        }
        // Relaxed: a thread that holds, or has since held, the mutex of a waiter sees the flag that the waiter set before
        // it unlocked the mutex.
        if !self.threads_wait.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: the key is our own address, and the callback neither panics nor parks.
        unsafe {
            parking_lot_core::unpark_one(self.address(), |unparked| {
                if !unparked.have_more_threads {
                    self.threads_wait.store(false, Ordering::Relaxed);
                }
                DEFAULT_UNPARK_TOKEN
            });
        }
    }

    /// Wakes all tasks that wait.
    pub fn notify_all(&self) {
        if simulation::any_running()
            && let Some(world) = simulation::current()
        {
            return world.notify(self.address(), usize::MAX);
        }
        // Cleared before the queue is emptied: a thread that starts to wait in between sets it again.
        if self.threads_wait.swap(false, Ordering::Relaxed) {
            // SAFETY: the key is our own address.
            unsafe { parking_lot_core::unpark_all(self.address(), DEFAULT_UNPARK_TOKEN) };
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// `wait` says what the task is reported to wait for in a deadlock.
    #[track_caller]
    pub(super) fn wait_with<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Option<Duration>,
        wait: Wait,
    ) -> WaitTimeoutResult {
        // SAFETY: the guard holds the lock; below it is unlocked once and locked once before the guard is used again.
        let mutex = unsafe { MutexGuard::mutex(guard).raw() };
        let notified = match simulation::current() {
            Some(world) => world.wait(self.address(), wait, Location::caller(), timeout.map(nanos), || {
                // SAFETY: the guard holds the lock.
                unsafe { mutex.unlock_quietly() }
            }),
            None => self.park_thread(mutex, timeout),
        };
        mutex.lock();
        WaitTimeoutResult(!notified)
    }

    fn park_thread(&self, mutex: &RawMutex, timeout: Option<Duration>) -> bool {
        // A deadline too far away to express is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // SAFETY: the key is our own address; the callbacks do not panic, and unlocking uses another key, which
        // `parking_lot_core` allows in `before_sleep`.
        let result = unsafe {
            parking_lot_core::park(
                self.address(),
                || {
                    self.threads_wait.store(true, Ordering::Relaxed);
                    true
                },
                || mutex.unlock_quietly(),
                |_, was_last| {
                    if was_last {
                        self.threads_wait.store(false, Ordering::Relaxed);
                    }
                },
                DEFAULT_PARK_TOKEN,
                deadline,
            )
        };
        matches!(result, ParkResult::Unparked(_))
    }
}
