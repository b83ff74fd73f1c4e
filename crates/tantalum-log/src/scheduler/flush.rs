//! Writing what a task wants durable: the committing thread writes the group itself, or waits while other tasks do.
//!
//! There is no timer and no dedicated writer. A task that needs its records durable takes an idle device, makes one request
//! of all that was appended since the last, and writes it. If no device is idle it sleeps until its records are durable or it
//! is woken to write. Workers write what no task waits for, and see late writes through ([`hiding`](super::hiding)).
//!
//! Invariant: the task that releases the state's lock leaves no device idle that has work, unless a task is on its way to do
//! it. Therefore it calls [`Scheduler::wake_writers`] first.

use std::sync::atomic::Ordering;

use tantalum_rt::MutexGuard;

use super::group_commit::{Sleeper, Wake};
use super::write::{Job, Outcome, UnderWay, Written};
use super::{Scheduler, State};
use crate::group::Request;
use crate::log_device::LogDevice;
use crate::{Error, ErrorKind, Lsn, Result};

impl Scheduler {
    /// Blocks until everything before `lsn` is durable; see [`Log::flush`](crate::Log::flush).
    pub(crate) fn flush(&self, lsn: Lsn) -> Result<()> {
        tantalum_rt::may_wait("the log to be durable");
        if self.durable() >= lsn {
            return Ok(());
        }
        self.check_appended(lsn)?;
        let guard = self.poison_unless_ended("the log was being flushed");
        let mut sleeper = None;
        let flushed = self.flush_appended(lsn, &mut sleeper);
        if let Some(sleeper) = sleeper {
            sleeper.keep();
        }
        guard.end();
        flushed
    }

    /// Writes while a device is idle and there is work, and sleeps otherwise. A task whose records became durable while it slept
    /// returns without the lock: many are woken at once.
    fn flush_appended(&self, lsn: Lsn, sleeper: &mut Option<Sleeper>) -> Result<()> {
        let delays = self.delays();
        if delays {
            self.delay.came_back();
        }
        let mut is_woken_to_write = false;
        loop {
            if !is_woken_to_write && self.durable() >= lsn {
                return Ok(());
            }
            let mut state = self.lock();
            if std::mem::take(&mut is_woken_to_write) {
                state.commits.writer_came();
            }
            if delays && self.delay.is_any_expected() && self.may_delay(&state, lsn) && self.delay.begin() {
                let came = MutexGuard::unlocked(&mut state, || self.delay.wait());
                self.delay.end(came);
            }
            if self.durable() >= lsn {
                self.wake_writers(&mut state);
                return Ok(());
            }
            state.check_failure()?;
            if self.options.request_per_flush && lsn > state.commits.sealed_end {
                self.seal(&mut state);
            }
            if let Some(job) = self.next_job(&mut state, lsn) {
                if let Some(late) = self.carry_out(state, job) {
                    self.leave_behind(late);
                }
                if delays {
                    // This task may commit again soon.
                    self.delay.woke(1);
                }
                continue;
            }
            let sleeper = sleeper.get_or_insert_with(Sleeper::take);
            assert!(lsn > self.durable(), "no task waits for what is durable");
            state.commits.register(lsn, sleeper.waiter());
            self.wake_writers(&mut state);
            drop(state);
            is_woken_to_write = sleeper.sleep() == Wake::ToWrite;
        }
    }

    /// Whether the log leader waits for the tasks that the last write woke.
    fn delays(&self) -> bool {
        self.options.group_commit_delay && !self.options.request_per_flush
    }

    /// Whether records up to `lsn` that are in no request yet could be written now.
    fn may_delay(&self, state: &State, lsn: Lsn) -> bool {
        state.failure.is_none()
            && state.placement.may_begin()
            && state.commits.queue.is_empty()
            && lsn > state.commits.sealed_end
            && state.placement.devices.iter().any(LogDevice::is_idle)
            && self.is_worth_a_request(state)
    }

    /// Writes a request, with the lock released, and wakes the tasks that wait for it. Returns a write that is late, which the
    /// caller has to leave to a worker or see through.
    fn carry_out(&self, mut state: MutexGuard<'_, State>, job: Job) -> Option<UnderWay> {
        self.wake_writers(&mut state);
        drop(state);
        match self.write(job) {
            Written::Ended(outcome) => {
                self.finish(outcome);
                None
            }
            Written::Late(late) => Some(late),
        }
    }

    /// Takes note of a write's end, and wakes the tasks that wait for it.
    pub(super) fn finish(&self, outcome: Outcome) {
        let mut state = self.lock();
        let woken = self.complete(&mut state, outcome);
        // First the device gets its next writer, then the others are woken, without the lock that they may ask for.
        if self.delays() {
            self.delay.woke(woken.len());
        }
        self.wake_writers(&mut state);
        drop(state);
        woken.iter().for_each(|waiter| waiter.wake_done());
    }

    /// Refuses an LSN that no append returned: no task would ever write it. Asked without the state's lock, which every
    /// committing thread wants.
    fn check_appended(&self, lsn: Lsn) -> Result<()> {
        let end = self.end();
        if lsn <= end {
            return Ok(());
        }
        let what =
            format!("LSN {lsn} lies beyond the end of the log at {end}; wait only for LSNs that an append returned");
        Err(Error::new(ErrorKind::InvalidInput, what))
    }

    /// Wakes a task for each idle device that has work.
    pub(super) fn wake_writers(&self, state: &mut State) {
        if !state.outliers.overdue.is_empty() {
            self.wake_for_overdue(state);
        }
        while state.failure.is_none() && state.commits.writers_woken() < self.ready(state) {
            let start = state.placement.next_copy_start().unwrap_or_else(|| state.commits.unplaced_start());
            if !state.commits.wake_writer(start) {
                return;
            }
        }
    }

    /// How many tasks would find something to write, as far as is known before the first of them has chosen.
    fn ready(&self, state: &State) -> usize {
        let is_mirrored = state.placement.mirror.is_some();
        let copies = usize::from(is_mirrored && state.placement.next_copy_start().is_some());
        // The work is counted only if a device is idle: most commits come while all devices write.
        let may_begin = !self.delay.has_leader() && (!is_mirrored || state.placement.may_begin());
        if !may_begin {
            return copies;
        }
        let bytes = state.commits.queue.front().map_or(0, Request::bytes);
        let has_room = |device: &&LogDevice| device.is_idle() && device.has_room(bytes);
        let idle = state.placement.devices.iter().filter(has_room).count();
        if idle == 0 {
            return copies;
        }
        // Requests that could be written now, one of them not sealed yet.
        let queued = state.commits.queue.len();
        let unsealed = state.commits.wants_unsealed() && (queued > 0 || self.is_worth_a_request(state));
        let begun = idle.min(queued + usize::from(unsealed));
        // The task that begins a mirrored request wakes the one that writes its copy.
        if is_mirrored { copies.max(begun.min(1)) } else { begun }
    }

    /// A background worker: sees late writes through, re-issues overdue requests, and writes whenever there is work and no
    /// other task to do it. It ends only when no late write is left.
    pub(crate) fn run_worker(&self) {
        let sleeper = Sleeper::default();
        let mut state = self.lock();
        while !state.stopping || !state.outliers.left_behind.is_empty() {
            if let Some(late) = state.outliers.left_behind.pop() {
                self.wake_writers(&mut state);
                MutexGuard::unlocked(&mut state, || self.see_through(late));
                continue;
            }
            let wanted = state.commits.wanted();
            let job = self.next_hidden(&mut state).or_else(|| self.next_job(&mut state, wanted));
            if let Some(job) = job {
                if let Some(late) = self.carry_out(state, job) {
                    let mut state = self.lock();
                    self.note_late(&mut state, &late);
                    self.wake_writers(&mut state);
                    drop(state);
                    self.see_through(late);
                }
                state = self.lock();
                continue;
            }
            state.commits.register_worker(sleeper.waiter());
            self.wake_writers(&mut state);
            if MutexGuard::unlocked(&mut state, || sleeper.sleep()) == Wake::ToWrite {
                state.commits.writer_came();
            }
        }
        self.wake_writers(&mut state);
    }

    /// Wants everything up to `lsn` durable, without waiting for it.
    pub(crate) fn want(&self, lsn: Lsn) -> Result<()> {
        if self.durable() >= lsn {
            return Ok(());
        }
        self.check_appended(lsn)?;
        let mut state = self.lock();
        state.check_failure()?;
        if self.options.request_per_flush && lsn > state.commits.sealed_end {
            self.seal(&mut state);
        }
        state.commits.want(lsn);
        self.wake_writers(&mut state);
        Ok(())
    }

    /// The outcome for `lsn`, if it is known.
    pub(crate) fn outcome(&self, lsn: Lsn) -> Option<Result<()>> {
        if self.durable() >= lsn {
            return Some(Ok(()));
        }
        if !self.stopped.load(Ordering::Acquire) {
            return None;
        }
        let failure = self.lock().failure.clone();
        // What became durable before the failure counts.
        if self.durable() >= lsn { Some(Ok(())) } else { failure.map(Err) }
    }
}
