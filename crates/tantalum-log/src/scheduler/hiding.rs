//! Outlier hiding: what a device is late with is given to another as well ("FlashLogging", sections 3.4 and 3.5).
//!
//! Whoever writes a request waits for it until it is an outlier. A task that waits for its own records then leaves the
//! write behind to a worker, and is woken by whichever device has them first; the workers re-issue what is overdue into
//! the hiding area of a device that is free. A re-issued write can be an outlier again, and goes to a third device.
//!
//! A task leaves a late write behind for the archive's sake as well, which may complete the request before its device
//! does ("FlashLogging", section 3.7): also where there is no other device to give the write to.
//!
//! Invariants:
//! - every write has one task that sees it through: its writer, or the worker that it was left to. There are as many
//!   workers as devices, so one is free whenever a device is;
//! - the first write of a request that ends well completes it, of a mirrored one the second ([`mirror`](super::mirror)); what
//!   ends later only frees its device;
//! - a request is given to no two devices on the same hardware at a time;
//! - memory goes back to the pool only when no write holds it ([`Pool::give_back`](crate::group::Pool::give_back)).

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::AlignedBuffer;
use tantalum_rt::Instant;

use super::job::{Area, Job, Outcome, UnderWay};
use super::{Scheduler, State};
use crate::format::request::HEADER_BYTES;
use crate::group::Source;
use crate::latency::{OUTLIER_FACTOR, outlier_after_unknown};
use crate::stream::{InFlight, Stream};
use crate::{Hiding, Lsn};

/// A request that is under way on a device that is late with it, and not complete.
pub(super) struct Overdue {
    pub(super) start: Lsn,
    end: Lsn,
    /// The records, which the late write may still read.
    buffer: Arc<AlignedBuffer>,
    /// Whether all devices that have it are late.
    is_waiting: bool,
}

impl Overdue {
    /// Bytes of header and payload, without padding.
    fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.end.bytes_since(self.start)
    }
}

/// What can be done about overdue requests now.
enum Rescue {
    /// Give this one to that device's area: indices of both.
    Give(usize, usize, Area),
    /// A device would take one if its hiding area had room.
    Full,
    None,
}

impl Scheduler {
    /// After how long a write of `bytes` bytes on this device is an outlier; `None` if that is of no interest: neither
    /// another device nor the archive could have the request first.
    pub(super) fn patience(&self, state: &mut State, stream: usize, bytes: u64, now: Instant) -> Option<Duration> {
        let hides = self.hides();
        if !hides && !state.has_archive() {
            return None;
        }
        let factor = if hides { state.adaptive.factor(now) } else { OUTLIER_FACTOR };
        let outlier_after = |stream: &Stream| stream.latencies.outlier_after(bytes, factor);
        // A device of which nothing is known yet may be as slow as the slowest other.
        let of_others = || state.streams.iter().filter_map(outlier_after).max();
        let known = outlier_after(&state.streams[stream]).or_else(of_others);
        Some(known.unwrap_or_else(|| outlier_after_unknown(bytes, factor)))
    }

    /// Whether a late write may be given to another device.
    fn hides(&self) -> bool {
        self.can_give_up() && self.options.hiding != Hiding::Off
    }

    /// Leaves a late write to a worker.
    pub(super) fn leave_behind(&self, late: UnderWay) {
        let mut state = self.lock();
        self.note_late(&mut state, &late);
        // Without workers nobody else would see it through.
        if state.stopping {
            self.summon(&mut state);
            drop(state);
            return self.see_through(late);
        }
        state.left_behind.push(late);
        if let Some(worker) = state.idle_workers.pop() {
            worker.wake_done();
        }
        self.summon(&mut state);
    }

    /// Waits for a late write as long as its device may take at most.
    pub(super) fn see_through(&self, late: UnderWay) {
        self.finish(late.wait_to_end(self.write_timeout()));
    }

    /// Takes note that a write is an outlier.
    pub(super) fn note_late(&self, state: &mut State, late: &UnderWay) {
        state.streams[late.stream].hidden.outliers += 1;
        if !self.hides() || self.is_complete(state, late.start) {
            return;
        }
        let at = state.overdue.partition_point(|overdue| overdue.start < late.start);
        match state.overdue.get_mut(at).filter(|overdue| overdue.start == late.start) {
            Some(again) => again.is_waiting = true,
            None => {
                let buffer = Arc::clone(&late.buffer);
                state.overdue.insert(at, Overdue { start: late.start, end: late.end, buffer, is_waiting: true });
            }
        }
    }

    /// Wakes a worker if an overdue request can be re-issued, and asks for a checkpoint if that is what is missing.
    pub(super) fn summon_for_overdue(&self, state: &mut State) {
        // After a failure nothing is re-issued, and a worker that is woken for it would wake the next one.
        if state.overdue.is_empty() || state.failure.is_some() {
            return;
        }
        match self.rescue(state) {
            // If none is idle, one that is up looks here before it sleeps.
            Rescue::Give(..) => {
                if let Some(worker) = state.idle_workers.pop() {
                    worker.wake_done();
                }
            }
            Rescue::Full if !state.hiding_is_full => {
                state.hiding_is_full = true;
                self.pressure.notify_all();
            }
            _ => {}
        }
    }

    /// The oldest overdue request that an idle device on other hardware can take, and a place for it.
    pub(super) fn next_hidden(&self, state: &mut State) -> Option<Job> {
        if state.overdue.is_empty() || state.failure.is_some() {
            return None;
        }
        let Rescue::Give(at, stream, area) = self.rescue(state) else { return None };
        let overdue = &mut state.overdue[at];
        let (start, end) = (overdue.start, overdue.end);
        let room = state.streams[stream].layout.request_bytes(overdue.bytes());
        // The main area's room is promised to what was appended; a copy pays for what it takes.
        if area == Area::Main && !self.space.take(room) {
            return None;
        }
        overdue.is_waiting = false;
        let source = Source::Borrowed(Arc::clone(&overdue.buffer));
        state.streams[stream].hidden.reissued += 1;
        let job = self.start_job(state, stream, area, (start, end, source), true);
        if area == Area::Main {
            self.rebalance(state, room);
        }
        Some(job)
    }

    fn rescue(&self, state: &State) -> Rescue {
        let mut is_full = false;
        for (at, overdue) in state.overdue.iter().enumerate().filter(|(_, overdue)| overdue.is_waiting) {
            let bytes = overdue.bytes();
            let has_it = |stream: &Stream| {
                let mut writing = state.streams.iter().filter(|other| other.is_writing(overdue.start));
                let is_written = writing.any(|other| other.hardware == stream.hardware);
                is_written || state.has_copy(overdue.start, stream.hardware)
            };
            let mut best: Option<(Duration, usize, Area)> = None;
            for (index, stream) in state.streams.iter().enumerate() {
                if !stream.is_idle() || has_it(stream) {
                    continue;
                }
                let (area, positions) = match &stream.hiding {
                    Some(hiding) if self.options.hiding == Hiding::On => (Area::Hiding, &**hiding),
                    _ => (Area::Main, stream),
                };
                let is_free = area == Area::Hiding || self.space.has(stream.layout.request_bytes(bytes));
                if !positions.keeps_order(overdue.start) || !is_free {
                    continue;
                }
                if !positions.has_room(bytes) {
                    is_full = true;
                } else if best.is_none_or(|(fastest, ..)| stream.latency < fastest) {
                    best = Some((stream.latency, index, area));
                }
            }
            if let Some((_, index, area)) = best {
                return Rescue::Give(at, index, area);
            }
        }
        if is_full { Rescue::Full } else { Rescue::None }
    }

    /// Counts what came of a write, which ended now; `was_complete` if another device had the request before.
    pub(super) fn settle(
        &self,
        state: &mut State,
        outcome: &Outcome,
        in_flight: &InFlight,
        was_complete: bool,
        now: Instant,
    ) {
        let counts = &mut state.streams[outcome.stream].hidden;
        if in_flight.is_reissued {
            let is_first = !was_complete && outcome.result.is_ok();
            counts.won += u64::from(is_first);
            counts.lost += u64::from(!is_first);
            state.adaptive.spend(now - in_flight.since);
            if was_complete {
                state.adaptive.settle(Duration::ZERO, now);
            }
        } else if let Some(overtaken) = in_flight.overtaken {
            let saved = now - overtaken;
            counts.saved += saved;
            state.adaptive.settle(saved, now);
        }
    }
}
