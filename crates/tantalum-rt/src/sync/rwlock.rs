//! Many readers or one writer.

#![allow(unsafe_code)]

use std::{panic::Location, sync::Arc, time::Duration};

use lock_api::{RawRwLock as _, RawRwLockTimed as _};

use crate::simulation::{self, Wait};

/// A lock that many readers or one writer hold. A waiting writer keeps new readers out, so it does not starve;
/// reading again while holding a read guard may therefore deadlock.
///
/// ```
/// let limit = tantalum_rt::RwLock::new(10);
/// assert_eq!(*limit.read(), 10);
/// *limit.write() = 20;
/// assert_eq!(*limit.read(), 20);
/// ```
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;

/// Holds an [`RwLock`] for reading until dropped.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// Holds an [`RwLock`] for writing until dropped or downgraded.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// A read guard without a lifetime, from `RwLock::read_arc`.
pub type ArcRwLockReadGuard<T> = lock_api::ArcRwLockReadGuard<RawRwLock, T>;

/// A write guard without a lifetime, from `RwLock::write_arc`.
pub type ArcRwLockWriteGuard<T> = lock_api::ArcRwLockWriteGuard<RawRwLock, T>;

/// Takes the lock for writing, or gives up after `timeout`.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use tantalum_rt::{RwLock, write_arc_within};
///
/// let limit = Arc::new(RwLock::new(10));
/// let reader = limit.read();
/// assert!(write_arc_within(&limit, Duration::from_millis(1)).is_none());
/// drop(reader);
/// *write_arc_within(&limit, Duration::from_millis(1)).expect("it is free") = 20;
/// ```
#[track_caller]
pub fn write_arc_within<T>(lock: &Arc<RwLock<T>>, timeout: Duration) -> Option<ArcRwLockWriteGuard<T>> {
    // SAFETY: what is locked through the raw lock is handed to the guard, which unlocks it.
    unsafe {
        let raw = lock.raw();
        let is_locked = raw.try_lock_exclusive() || raw.lock_exclusive_within(timeout);
        is_locked.then(|| RwLock::make_arc_write_guard_unchecked(lock))
    }
}

/// The lock inside an [`RwLock`].
pub struct RawRwLock {
    inner: parking_lot::RawRwLock,
}

impl RawRwLock {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn try_acquire(&self, wait: Wait) -> bool {
        match wait {
            Wait::Read => self.inner.try_lock_shared(),
            _ => self.inner.try_lock_exclusive(),
        }
    }

    /// `parking_lot` does not know of writers that wait in a simulation, so readers look for them here.
    #[cold]
    fn writer_waits(&self) -> bool {
        simulation::current().is_some_and(|world| world.writer_waits(self.address()))
    }

    #[cold]
    #[track_caller]
    fn locked_at_once(&self, wait: Wait) {
        if let Some(world) = simulation::current() {
            world.charge_lock(self.address(), wait, 0, Location::caller());
        }
    }

    #[cold]
    #[track_caller]
    fn lock_slow(&self, wait: Wait) {
        let place = Location::caller();
        match (simulation::current(), wait) {
            (Some(world), _) => {
                world.acquire(self.address(), wait, place, None, || self.try_acquire(wait));
            }
            (None, Wait::Read) => self.inner.lock_shared(),
            (None, _) => self.inner.lock_exclusive(),
        }
    }

    #[cold]
    #[track_caller]
    fn lock_exclusive_within(&self, timeout: Duration) -> bool {
        let Some(world) = simulation::current() else { return self.inner.try_lock_exclusive_for(timeout) };
        let timeout_ns = Some(crate::clock::nanos(timeout));
        let is_locked = world
            .acquire(self.address(), Wait::Write, Location::caller(), timeout_ns, || self.try_acquire(Wait::Write));
        if !is_locked {
            // Readers may have waited only because a writer did.
            self.unlocked_in_simulation();
        }
        is_locked
    }

    #[cold]
    fn unlocked_in_simulation(&self) {
        if let Some(world) = simulation::current() {
            world.released(self.address(), |wait| self.try_acquire(wait));
            world.interleave();
        }
    }
}

// SAFETY: `inner` alone decides which tasks hold the lock, and is a correct lock; the simulation only decides when to
// try it again, and a lock that `released` takes for a waiter is used by that waiter only.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = Self { inner: parking_lot::RawRwLock::INIT };

    type GuardMarker = lock_api::GuardSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        if (simulation::any_running() && self.writer_waits()) || !self.try_lock_shared() {
            self.lock_slow(Wait::Read);
        }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        let is_locked = self.inner.try_lock_shared();
        if is_locked && simulation::any_running() {
            self.locked_at_once(Wait::Read);
        }
        is_locked
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds the lock for reading.
        unsafe { self.inner.unlock_shared() };
        if simulation::any_running() {
            self.unlocked_in_simulation();
        }
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        if !self.try_lock_exclusive() {
            self.lock_slow(Wait::Write);
        }
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        let is_locked = self.inner.try_lock_exclusive();
        if is_locked && simulation::any_running() {
            self.locked_at_once(Wait::Write);
        }
        is_locked
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.inner.unlock_exclusive() };
        if simulation::any_running() {
            self.unlocked_in_simulation();
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.inner.is_locked()
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.inner.is_locked_exclusive()
    }
}

// SAFETY: `inner` downgrades atomically; waking the readers afterwards does not change which tasks hold the lock.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: the caller holds the lock for writing.
        unsafe { self.inner.downgrade() };
        if simulation::any_running() {
            self.unlocked_in_simulation();
        }
    }
}
