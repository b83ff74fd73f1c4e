//! Whose turn it is to write: waking the right tasks, and never too few.
//!
//! A device that is free while there is work gets a task: a waiter whose own records are part of that work, or else an
//! idle worker. Such a task is *summoned*, and counted until it comes to the lock, so that nobody is summoned twice for
//! the same work. Whoever releases the lock calls [`Scheduler::summon`] first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tantalum_rt::{MutexGuard, Parker, Unparker};

use super::{Scheduler, State};
use crate::format::slot::SlotMember;
use crate::stats::{DeviceState, DeviceStats};
use crate::stream::Stream;
use crate::{Error, Lsn, Result};

const WAITING: u8 = 0;
const SUMMONED: u8 = 1;
const DONE: u8 = 2;

/// A task that sleeps until there is something to do or to tell.
pub(super) struct Waiter {
    call: AtomicU8,
    unparker: Unparker,
}

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// To write.
    Summoned,
    /// What it waited for is decided.
    Done,
}

impl Waiter {
    pub(super) fn new(parker: &Parker) -> Arc<Waiter> {
        Arc::new(Waiter { call: AtomicU8::new(WAITING), unparker: parker.unparker() })
    }

    pub(super) fn wake_done(&self) {
        self.wake(DONE);
    }

    fn wake(&self, call: u8) {
        let before = self.call.swap(call, Ordering::AcqRel);
        assert_eq!(before, WAITING, "a waiter is taken out before it is woken, so it is woken once");
        self.unparker.unpark();
    }

    /// Sleeps until woken; the waiter can then be registered again.
    pub(super) fn sleep(&self, parker: &Parker) -> Call {
        loop {
            parker.park();
            match self.call.swap(WAITING, Ordering::AcqRel) {
                SUMMONED => return Call::Summoned,
                DONE => return Call::Done,
                _ => {} // a token left over from an earlier wait
            }
        }
    }
}

impl Scheduler {
    /// Sees to it that every idle device that has work gets somebody to do it.
    pub(super) fn summon(&self, state: &mut State) {
        self.summon_for_overdue(state);
        loop {
            if state.failure.is_some() || state.summoned >= self.ready(state) {
                return;
            }
            let queued = state.queue.front().map_or(state.sealed_end, |request| request.start);
            let from = state.next_copy_start().unwrap_or(queued);
            let waiter = match state.waiters.last_entry() {
                Some(last) if last.key().0 > from => Some(last.remove()),
                _ => state.idle_workers.pop(),
            };
            // If there is none, every worker is up, and looks for work before it sleeps.
            let Some(waiter) = waiter else { return };
            state.summoned += 1;
            waiter.wake(SUMMONED);
        }
    }

    /// How many tasks would find something to write, as far as is known before the first of them has chosen.
    fn ready(&self, state: &State) -> usize {
        let copies = usize::from(state.next_copy_start().is_some());
        // What there is to do is asked only if somebody can do it: most commits come while all devices write.
        let idle = if state.may_begin() && !self.gather.is_led() { state.idle_with_room() } else { 0 };
        let begun = if idle > 0 { idle.min(self.work(state)) } else { 0 };
        // Of a new request to be mirrored, whoever begins it summons the next one.
        if state.mirror.is_some() { copies.max(begun.min(1)) } else { begun }
    }

    /// Requests that could be written now, one of them not sealed yet.
    fn work(&self, state: &State) -> usize {
        let last = state.waiters.last_key_value().map_or(state.wanted, |(key, _)| key.0.max(state.wanted));
        let unsealed = last > state.sealed_end && (!state.queue.is_empty() || self.is_worth_a_request(state));
        state.queue.len() + usize::from(unsealed)
    }

    /// Puts the task to sleep until `lsn` is durable, the log fails, or it is the task's turn to write.
    pub(super) fn register(&self, state: &mut State, lsn: Lsn, waiter: &Arc<Waiter>) {
        assert!(lsn > self.durable(), "nobody waits for what is durable");
        state.waiters.insert((lsn, state.next_waiter), Arc::clone(waiter));
        state.next_waiter += 1;
        self.summon(state);
    }

    /// A background worker: sees through what was left behind, re-issues what is overdue, and writes whenever there is
    /// work and nobody else to do it. It ends only when nothing is left behind.
    pub(crate) fn run_worker(&self) {
        let parker = Parker::new();
        let waiter = Waiter::new(&parker);
        let mut state = self.lock();
        while !state.stopping || !state.left_behind.is_empty() {
            if let Some(late) = state.left_behind.pop() {
                self.summon(&mut state);
                MutexGuard::unlocked(&mut state, || self.see_through(late));
                continue;
            }
            let wanted = state.wanted;
            let job = self.next_hidden(&mut state).or_else(|| self.next_job(&mut state, wanted));
            if let Some(job) = job {
                if let Some(late) = self.carry_out(state, job) {
                    let mut state = self.lock();
                    self.note_late(&mut state, &late);
                    self.summon(&mut state);
                    drop(state);
                    self.see_through(late);
                }
                state = self.lock();
                continue;
            }
            state.idle_workers.push(Arc::clone(&waiter));
            self.summon(&mut state);
            if MutexGuard::unlocked(&mut state, || waiter.sleep(&parker)) == Call::Summoned {
                state.summoned -= 1;
            }
        }
        self.summon(&mut state);
    }

    /// Wants everything up to `lsn` durable, without waiting for it.
    pub(crate) fn want(&self, lsn: Lsn) -> Result<()> {
        if self.durable() >= lsn {
            return Ok(());
        }
        self.check_appended(lsn)?;
        let mut state = self.lock();
        state.check_failure()?;
        self.seal_for(&mut state, lsn);
        state.wanted = state.wanted.max(lsn);
        self.summon(&mut state);
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

impl State {
    /// Idle devices that can take the next request.
    fn idle_with_room(&self) -> usize {
        let bytes = self.queue.front().map_or(0, |request| request.bytes());
        self.streams.iter().filter(|stream| stream.is_idle() && stream.has_room(bytes)).count()
    }

    /// Takes out those whose records lie before `durable`, in their order.
    pub(super) fn take_waiters(&mut self, durable: Lsn) -> Vec<Arc<Waiter>> {
        let mut taken = Vec::new();
        while let Some(first) = self.waiters.first_entry().filter(|first| first.key().0 <= durable) {
            taken.push(first.remove());
        }
        taken
    }

    pub(super) fn wake_everybody(&mut self) {
        while let Some((_, waiter)) = self.waiters.pop_first() {
            waiter.wake_done();
        }
        self.space_waiters.iter().for_each(|waiting| waiting.unpark());
    }

    pub(super) fn device_stats(&mut self) -> Vec<DeviceStats> {
        let streams = &mut self.streams;
        let is_it = |stream: &Stream, id: u64| stream.is_present() && stream.device_id == id;
        let describe = |&SlotMember { ordinal, device_id, .. }: &SlotMember| match streams
            .iter_mut()
            .find(|stream| is_it(stream, device_id))
        {
            None => DeviceStats {
                ordinal,
                device_id,
                state: DeviceState::SetAside { cause: Error::Absent { ordinal } },
                ..DeviceStats::default()
            },
            Some(stream) => DeviceStats {
                name: stream.device().name().into(),
                ordinal,
                device_id,
                state: stream.reported_state(),
                writes: stream.writes,
                bytes: stream.bytes,
                busy: stream.busy,
                still_writing: stream.still_writing(),
                hiding: stream.hidden,
            },
        };
        self.members.iter().map(describe).collect()
    }
}
