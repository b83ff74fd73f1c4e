//! Group commit: the caller writes everything that gathered, or waits while others do.

use std::sync::atomic::Ordering;

use tantalum_rt::{MutexGuard, Parker};

use super::turn::{Call, Waiter};
use super::{Scheduler, State};
use crate::{Error, Lsn, Result};

impl Scheduler {
    /// Blocks until everything before `lsn` is durable; see [`Log::flush`](crate::Log::flush).
    pub(crate) fn flush(&self, lsn: Lsn) -> Result<()> {
        if self.durable() >= lsn {
            return Ok(());
        }
        let mut state = self.lock();
        let result = self.check_appended(&state, lsn).and_then(|()| self.drive_or_wait(&mut state, lsn));
        self.summon(&mut state);
        result
    }

    /// Writes while a device is free and there is work, sleeps otherwise, until the outcome for `lsn` is known.
    fn drive_or_wait(&self, state: &mut MutexGuard<'_, State>, lsn: Lsn) -> Result<()> {
        let mut sleeper = None;
        loop {
            if self.durable() >= lsn {
                return Ok(());
            }
            state.check_failure()?;
            if self.write_next(state, lsn) {
                continue;
            }
            let (parker, waiter) = sleeper.get_or_insert_with(|| {
                let parker = Parker::new();
                let waiter = Waiter::new(&parker);
                (parker, waiter)
            });
            self.register(state, lsn, waiter);
            state.flush_waits += 1;
            if MutexGuard::unlocked(state, || waiter.sleep(parker)) == Call::Summoned {
                state.summoned -= 1;
            }
        }
    }

    /// Writes the oldest request without a device, with the lock released meanwhile. False if there is nothing to
    /// write, or no device for it.
    pub(super) fn write_next(&self, state: &mut MutexGuard<'_, State>, wanted: Lsn) -> bool {
        let Some(job) = self.next_job(state, wanted) else { return false };
        self.summon(state);
        let outcome = MutexGuard::unlocked(state, || self.write(job));
        self.complete(state, outcome);
        true
    }

    /// Refuses an LSN that no append returned: nobody would ever write it.
    pub(super) fn check_appended(&self, state: &State, lsn: Lsn) -> Result<()> {
        if lsn <= state.sealed_end {
            return Ok(());
        }
        let end = self.end();
        if lsn <= end { Ok(()) } else { Err(Error::BeyondEnd { lsn, end }) }
    }

    /// Refuses appends from now on and makes durable what was appended. False if the log was closed before.
    pub(crate) fn close(&self) -> Result<bool> {
        let mut state = self.lock();
        state.check_failure()?;
        if state.closed {
            return Ok(false);
        }
        state.closed = true;
        self.stopped.store(true, Ordering::Release);
        // With `closed` set no new group follows: an append finds the old one sealed, and the log closed.
        self.seal(&mut state);
        let end = state.sealed_end;
        assert_eq!(end, self.active.read().end(), "a closed log has one end");
        self.summon(&mut state);
        drop(state);
        self.flush(end)?;
        Ok(true)
    }
}
