//! The original server's log mutex.
//!
//! InnoDB 5.0 writes its log with the log's mutex held (`log_write_up_to`), for as long as the device takes where the log
//! is opened for synchronous writes, as in the paper (sections 2.1 and 5.1). Every change of a page needs the same mutex to
//! append its record: while the log is written, threads that change pages wait. That is why so few transactions
//! share a write there (Figure 2). A thread gets the mutex in the order in which it asked.

use tantalum_rt::{Condvar, Mutex};

/// Held while the log is written.
#[derive(Debug, Default)]
pub(super) struct LogMutex {
    is_held: Mutex<bool>,
    released: Condvar,
}

impl LogMutex {
    /// Takes the mutex for a write.
    pub(super) fn acquire(&self) {
        self.pass_and(|is_held| *is_held = true);
    }

    /// Gives it back.
    pub(super) fn release(&self) {
        *self.is_held.lock() = false;
        self.released.notify_all();
    }

    /// Waits until the mutex is free: takes it for an instant.
    pub(super) fn pass(&self) {
        self.pass_and(|_| ());
    }

    fn pass_and(&self, then: impl FnOnce(&mut bool)) {
        let mut is_held = self.is_held.lock();
        while *is_held {
            self.released.wait(&mut is_held);
        }
        then(&mut is_held);
    }
}
