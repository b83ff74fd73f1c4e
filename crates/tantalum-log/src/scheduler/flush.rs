//! Group commit: the caller writes everything that gathered, or waits while others do.

use std::sync::atomic::Ordering;

use tantalum_rt::{MutexGuard, Parker};

use super::job::{Job, Outcome, UnderWay, Written};
use super::turn::{Call, Waiter};
use super::{Scheduler, State};
use crate::stream::Stream;
use crate::{Error, Lsn, Result};

impl Scheduler {
    /// Blocks until everything before `lsn` is durable; see [`Log::flush`](crate::Log::flush).
    ///
    /// Writes while a device is free and there is work, sleeps otherwise. Who is woken because its records are durable
    /// returns without the lock: many are woken at once.
    pub(crate) fn flush(&self, lsn: Lsn) -> Result<()> {
        tantalum_rt::may_wait("the log to be durable");
        if self.durable() >= lsn {
            return Ok(());
        }
        self.check_appended(lsn)?;
        let guard = self.poison_unless_ended("the log was being flushed");
        let flushed = self.flush_appended(lsn);
        guard.end();
        flushed
    }

    fn flush_appended(&self, lsn: Lsn) -> Result<()> {
        let gathers = self.gathers();
        if gathers {
            self.gather.returned();
        }
        let mut sleeper = None;
        let mut is_summoned = false;
        loop {
            if !is_summoned && self.durable() >= lsn {
                return Ok(());
            }
            let mut state = self.lock();
            if std::mem::take(&mut is_summoned) {
                state.summoned -= 1;
            }
            if gathers && self.is_time_to_gather(&state, lsn) && self.gather.begin() {
                let came = MutexGuard::unlocked(&mut state, || self.gather.wait());
                self.gather.end(came);
            }
            if self.durable() >= lsn {
                self.summon(&mut state);
                return Ok(());
            }
            state.check_failure()?;
            self.seal_for(&mut state, lsn);
            if let Some(job) = self.next_job(&mut state, lsn) {
                if let Some(late) = self.carry_out(state, job) {
                    self.leave_behind(late);
                }
                if gathers {
                    // It may be back soon itself.
                    self.gather.woke(1);
                }
                continue;
            }
            let (parker, waiter) = sleeper.get_or_insert_with(|| {
                let parker = Parker::new();
                let waiter = Waiter::new(&parker);
                (parker, waiter)
            });
            self.register(&mut state, lsn, waiter);
            state.flush_waits += 1;
            drop(state);
            is_summoned = waiter.sleep(parker) == Call::Summoned;
        }
    }

    /// Whether those who could write wait for others at all.
    fn gathers(&self) -> bool {
        self.options.gather && !self.options.request_per_flush
    }

    /// Whether somebody else may come, and records that are in no request yet could be written now.
    fn is_time_to_gather(&self, state: &State, lsn: Lsn) -> bool {
        self.gather.is_anybody_expected()
            && state.failure.is_none()
            && state.may_begin()
            && state.queue.is_empty()
            && lsn > state.sealed_end
            && state.streams.iter().any(Stream::is_idle)
            && self.is_worth_a_request(state)
    }

    /// Makes a request of what a flush asks for, where each flush has one of its own.
    pub(super) fn seal_for(&self, state: &mut State, lsn: Lsn) {
        if self.options.request_per_flush && lsn > state.sealed_end {
            self.seal(state);
        }
    }

    /// Writes a request, with the lock released, and tells those who wait for it. Returns a write that is late; the
    /// caller sees to it that somebody goes on waiting for it.
    pub(super) fn carry_out(&self, mut state: MutexGuard<'_, State>, job: Job) -> Option<UnderWay> {
        self.summon(&mut state);
        drop(state);
        match self.write(job) {
            Written::Ended(outcome) => {
                self.finish(outcome);
                None
            }
            Written::Late(late) => Some(late),
        }
    }

    /// Takes note of a write's end, and tells those who wait for it.
    pub(super) fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        let woken = self.complete(&mut state, outcome);
        // First the device gets its next writer, then the others are woken, without the lock that they may ask for.
        if self.gathers() {
            self.gather.woke(woken.len());
        }
        self.summon(&mut state);
        drop(state);
        woken.iter().for_each(|waiter| waiter.wake_done());
    }

    /// Refuses an LSN that no append returned: nobody would ever write it. Asked without the state's lock, which everybody
    /// wants.
    pub(super) fn check_appended(&self, lsn: Lsn) -> Result<()> {
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
        self.leaving.notify_all();
        drop(state);
        self.flush(end)?;
        Ok(true)
    }
}
