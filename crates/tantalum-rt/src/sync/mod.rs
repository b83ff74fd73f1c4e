//! Locks and waiting. `parking_lot` decides which task holds a lock in both worlds; the worlds differ only in how to wait.

mod condvar;
mod mutex;
mod parker;
mod rwlock;
mod shared_run;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard, RawMutex, lock_unswitched};
pub use parker::{Parker, Unparker};
pub use rwlock::{
    ArcRwLockReadGuard, ArcRwLockWriteGuard, RawRwLock, RwLock, RwLockReadGuard, RwLockWriteGuard, write_arc_within,
};
pub use shared_run::{Announced, SharedRun};
