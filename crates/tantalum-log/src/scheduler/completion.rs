//! What follows when a write ends: the prefix rule, and what becomes of a device that failed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tantalum_rt::now;

use super::job::Outcome;
use super::turn::Waiter;
use super::{Scheduler, State};
use crate::format::slot::SlotMember;
use crate::stream::Duty;
use crate::{DeviceState, Error, Lsn};

impl Scheduler {
    /// Takes note of a write's end. The caller calls `summon`, and wakes those returned: their records are durable.
    pub(super) fn complete(&self, state: &mut State, mut outcome: Outcome) -> Vec<Arc<Waiter>> {
        let now = now();
        let has_alternative = self.can_give_up() || state.has_archive();
        let stream = &mut state.streams[outcome.stream];
        let in_flight = stream.end_request(outcome.start);
        state.under_way.0 -= 1;
        state.under_way.1 -= outcome.end.bytes_since(outcome.start);
        let took = now - in_flight.since;
        stream.busy += took;
        if outcome.result.is_ok() {
            stream.writes += 1;
            stream.bytes += in_flight.bytes;
            // A second stream may have other latencies.
            if has_alternative && !in_flight.is_reissued {
                stream.latencies.learn(in_flight.bytes, took);
            }
            state.learn_latency(outcome.stream, took);
            self.gather.learn(took);
        }
        let was_complete = self.is_complete(state, outcome.start);
        self.settle(state, &outcome, &in_flight, was_complete, now);
        match outcome.result {
            Ok(()) => {
                // Another device, or the archive, may have been first.
                if !was_complete && self.note_copy(state, &outcome) {
                    self.note_complete(state, outcome.start, outcome.end);
                }
                self.pool.give_back(outcome.buffer);
                self.rebalance(state, 0);
                self.advance_durable(state, Lsn::ZERO)
            }
            Err(ref error) => {
                let error = error.clone();
                if let Some(write) = outcome.given_up.take() {
                    state.streams[outcome.stream].give_up(write);
                }
                if !was_complete && !state.streams.iter().any(|stream| stream.is_writing(outcome.start)) {
                    state.reissued += 1;
                    state.overdue.retain(|overdue| overdue.start != outcome.start);
                    // A mirror has the records of what is not complete itself.
                    if state.mirror.is_none() {
                        self.reissue(state, &outcome);
                    }
                }
                self.set_aside(state, outcome.stream, error);
                Vec::new()
            }
        }
    }

    /// Takes note that a request is complete.
    pub(super) fn note_complete(&self, state: &mut State, start: Lsn, end: Lsn) {
        let before = state.completed.insert(start, end);
        assert!(before.is_none(), "a request completes once");
        let now = now();
        state.overdue.retain(|overdue| overdue.start != start);
        state.streams.iter_mut().for_each(|stream| stream.overtake(start, now));
    }

    /// Whether a device or the archive has the request that starts at `start`.
    pub(super) fn is_complete(&self, state: &State, start: Lsn) -> bool {
        start < self.durable() || state.completed.contains_key(&start)
    }

    /// The prefix rule: durable is only what is completed together with everything before it; the archive has everything
    /// before `archived`. Returns those who waited for what it made durable.
    pub(super) fn advance_durable(&self, state: &mut State, archived: Lsn) -> Vec<Arc<Waiter>> {
        let before = self.durable();
        let mut durable = before.max(archived);
        while state.completed.first_key_value().is_some_and(|(&start, _)| start < durable) {
            state.completed.pop_first();
        }
        while let Some(end) = state.completed.remove(&durable) {
            assert!(end > durable, "no request is empty");
            durable = end;
        }
        assert!(durable <= state.sealed_end, "only sealed requests complete");
        assert!(state.completed.first_key_value().is_none_or(|(&start, _)| start > durable), "requests tile the log");
        if durable == before {
            return Vec::new();
        }
        self.durable.store(durable.get(), Ordering::Release);
        if self.archive_follows() {
            self.feed.durable_moved();
        }
        state.overdue.retain(|overdue| overdue.start >= durable);
        state.take_waiters(durable)
    }

    /// Gives a device no more requests, because it failed or hung.
    pub(super) fn set_aside(&self, state: &mut State, index: usize, error: Error) {
        if state.streams[index].state.is_healthy() {
            state.streams[index].state = DeviceState::SetAside { cause: error.clone() };
            state.set_aside += 1;
            state.aside_is_needed = true;
        }
        state.keep_enough_serving(self.options.copies.into());
        if !state.streams.iter().any(|stream| stream.state.is_healthy() && stream.duty != Duty::Left) {
            self.poison(state, error);
        }
        self.settle_pairs(state);
        self.rebalance(state, 0);
        self.pressure.notify_all();
    }
}

impl State {
    /// Keeps each device's smoothed latency. Those of the others fade a little, so that a device that was slow once
    /// is tried again some time.
    fn learn_latency(&mut self, written: usize, took: std::time::Duration) {
        for (index, stream) in self.streams.iter_mut().enumerate() {
            stream.latency = match index == written {
                true if stream.latency.is_zero() => took,
                true => (stream.latency * 7 + took) / 8,
                false => stream.latency * 255 / 256,
            };
        }
    }

    /// Bits of the devices that hold nothing needed once `checkpoint` is durable: set aside, and wholly below it or held by
    /// others.
    pub(super) fn not_needed(&self, checkpoint: Lsn) -> u64 {
        let others_have_all = self.others_have_all(checkpoint);
        let is_not_needed = |member: &&SlotMember| match self.stream(member.device_id) {
            None => true,
            Some(stream) => !stream.state.is_healthy() && (stream.max_end() <= checkpoint || others_have_all),
        };
        self.members.iter().filter(is_not_needed).fold(0, |bits, member| bits | 1 << member.ordinal)
    }
}
