//! The operations that change something in an open database, and how closing ends them.
//!
//! Invariant: after [`Operations::close`] none is under way, and none begins.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tantalum_rt::{Condvar, Mutex};

use crate::error::{self, Result};

/// Whether the database is open, and what is under way in it. Reads are not counted: they only look whether it is open, before
/// and after.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// Read by all, and changed once.
    is_closed: AtomicBool,
    under_way: Count,
    waiting: Mutex<()>,
    ended: Condvar,
}

/// On a cache line of its own: each commit changes it twice.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl Operations {
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed) once closing has begun.
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(error::closed()) } else { Ok(()) }
    }

    /// Begins an operation, which ends when what is returned is dropped.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed) once closing has begun.
    pub fn begin(&self) -> Result<Operation<'_>> {
        self.enter()?;
        Ok(Operation { operations: self })
    }

    /// As [`begin`](Self::begin), for an operation that ends with [`leave`](Self::leave).
    pub fn enter(&self) -> Result<()> {
        // Announced before the look: `close` says that no more may begin, and then looks for some.
        self.under_way.0.fetch_add(1, Ordering::SeqCst);
        if self.is_closed.load(Ordering::SeqCst) {
            self.leave();
            return Err(error::closed());
        }
        Ok(())
    }

    /// Ends an operation that was begun by [`enter`](Self::enter).
    pub fn leave(&self) {
        let before = self.under_way.0.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "an operation ends once");
        if before == 1 && self.is_closed.load(Ordering::SeqCst) {
            let _waiting = self.waiting.lock();
            self.ended.notify_all();
        }
    }

    /// Lets none begin from now on, without waiting for those under way.
    pub fn refuse(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Lets none begin from now on, and waits for those under way.
    pub fn close(&self) {
        self.refuse();
        let mut waiting = self.waiting.lock();
        while self.under_way.0.load(Ordering::SeqCst) > 0 {
            self.ended.wait(&mut waiting);
        }
    }
}

/// An operation under way.
#[derive(Debug)]
pub(crate) struct Operation<'o> {
    operations: &'o Operations,
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        self.operations.leave();
    }
}
