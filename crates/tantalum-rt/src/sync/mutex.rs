//! Mutual exclusion.

#![allow(unsafe_code)]

use std::panic::Location;

use lock_api::RawMutex as _;

use crate::simulation::{self, Wait};

/// A lock that one task holds at a time. Not poisoned by panics, not reentrant, waiters are served without starving.
///
/// ```
/// let counter = tantalum_rt::Mutex::new(1);
/// *counter.lock() += 1;
/// assert_eq!(counter.into_inner(), 2);
/// ```
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;

/// Holds a [`Mutex`] until dropped. May be sent to another thread and dropped there.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

/// Locks a mutex of something that outlives simulations, such as a device. A task that is switched while it holds one may
/// never run again, as the power may be cut meanwhile; then it would stay locked for ever. So while it is held, nothing may
/// wait, unlock anything else, or call [`interleave`](crate::interleave). A wait for a [`Condvar`](crate::Condvar) is
/// fine, which unlocks it.
///
/// ```
/// let device = tantalum_rt::Mutex::new(1);
/// *tantalum_rt::lock_unswitched(&device) += 1;
/// ```
///
/// # Panics
/// In a simulation, when another task was switched while it held the mutex.
pub fn lock_unswitched<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if simulation::current().is_none() {
        return mutex.lock();
    }
    // Not as others lock, since that may take time, in which tasks are switched.
    // SAFETY: the lock is not released through the reference.
    let was_free = unsafe { mutex.raw() }.inner.try_lock();
    assert!(was_free, "a task was switched while it held a mutex of something that outlives the simulation");
    // SAFETY: the lock is held, and there is no other guard.
    unsafe { mutex.make_guard_unchecked() }
}

/// The lock inside a [`Mutex`].
pub struct RawMutex {
    inner: parking_lot::RawMutex,
}

impl RawMutex {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    #[track_caller]
    fn lock_beside_simulations(&self) {
        let place = Location::caller();
        match simulation::current() {
            Some(world) if self.inner.try_lock() => world.charge_lock(self.address(), Wait::Mutex, 0, place),
            Some(world) => {
                world.acquire(self.address(), Wait::Mutex, place, None, || self.inner.try_lock());
            }
            None => self.inner.lock(),
        }
    }

    #[cold]
    #[track_caller]
    fn locked_at_once(&self) {
        if let Some(world) = simulation::current() {
            world.charge_lock(self.address(), Wait::Mutex, 0, Location::caller());
        }
    }

    /// Unlocks and wakes a waiter, without offering the scheduler to switch.
    ///
    /// # Safety
    /// The caller holds the lock.
    pub(super) unsafe fn unlock_quietly(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock() };
        if let Some(world) = simulation::current() {
            world.released(self.address(), |_| self.inner.try_lock());
        }
    }

    #[cold]
    fn unlocked_in_simulation(&self) {
        if let Some(world) = simulation::current() {
            world.released(self.address(), |_| self.inner.try_lock());
            world.interleave();
        }
    }
}

// SAFETY: `inner` alone decides which task holds the lock, and is a correct mutex; the simulation only decides when to
// try it again, and a lock that `released` takes for a waiter is used by that waiter only.
unsafe impl lock_api::RawMutex for RawMutex {
    const INIT: Self = Self { inner: parking_lot::RawMutex::INIT };

    // `parking_lot` allows unlocking on another thread; only its deadlock detector, which is off, does not.
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        // Asked first, though only waiters need to know: `inner.lock` begins with one compare-and-swap, `try_lock` with
        // a load of the same word before it, which takes longer than this load.
        if simulation::any_running() {
            self.lock_beside_simulations();
        } else {
            self.inner.lock();
        }
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        let is_locked = self.inner.try_lock();
        if is_locked && simulation::any_running() {
            self.locked_at_once();
        }
        is_locked
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller holds the lock.
        unsafe { self.inner.unlock() };
        if simulation::any_running() {
            self.unlocked_in_simulation();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }
}
