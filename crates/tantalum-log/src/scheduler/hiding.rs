//! Outlier hiding: what a device is late with is given to another as well ("FlashLogging", sections 3.4 and 3.5).
//!
//! The task that writes a request waits for it until it is an outlier. A committing thread then leaves the write to a
//! worker, and is woken by the first device that has its records; the workers re-issue overdue requests into the hiding
//! area of an idle device. A re-issued write can be an outlier again, and goes to a third device.
//!
//! A task leaves a late write behind for the archive's sake as well, which may complete the request before its device
//! does ("FlashLogging", section 3.7): also where there is no other device to give the write to.
//!
//! Invariants:
//! - every write has one task that sees it through: its writer, or the worker that it was left to. There are as many
//!   workers as devices, so one is free whenever a device is;
//! - the first write of a request that ends well completes it, of a mirrored one the second ([`mirror`](super::mirror)); a
//!   write that ends later only frees its device;
//! - a request is given to no two devices on the same hardware at a time;
//! - memory goes back to the pool only when no write holds it ([`Pool::give_back`](crate::group::Pool::give_back)).

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::AlignedBuffer;
use tantalum_rt::Instant;

use super::adaptive::Adaptive;
use super::write::{Job, Outcome, UnderWay};
use super::{Scheduler, State};
use crate::format::request::HEADER_BYTES;
use crate::group::Source;
use crate::latency::{OUTLIER_FACTOR, outlier_after_unknown};
use crate::log_device::{InFlight, LogDevice, Target};
use crate::stats::micros;
use crate::{Hiding, Lsn};

/// A request that is under way on a device that is late with it, and not complete.
pub(super) struct Overdue {
    start: Lsn,
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

/// The late writes. Guarded by the state's lock.
pub(super) struct Outliers {
    /// Requests that devices are late with and that are not complete, by LSN.
    pub(super) overdue: Vec<Overdue>,
    /// Late writes that no worker has taken yet.
    pub(super) left_behind: Vec<UnderWay>,
    pub(super) adaptive: Adaptive,
    /// A hiding area had no room for an overdue request since the last checkpoint.
    pub(super) areas_are_full: bool,
}

impl Outliers {
    pub(super) fn new() -> Outliers {
        let (overdue, left_behind) = (Vec::new(), Vec::new());
        Outliers { overdue, left_behind, adaptive: Adaptive::new(), areas_are_full: false }
    }

    /// Removes the request that starts at `start`.
    pub(super) fn remove(&mut self, start: Lsn) {
        self.overdue.retain(|overdue| overdue.start != start);
    }

    /// Removes the requests that start before `durable`.
    pub(super) fn remove_before(&mut self, durable: Lsn) {
        self.overdue.retain(|overdue| overdue.start >= durable);
    }

    /// Adds a late write, whose request is not complete.
    fn add(&mut self, late: &UnderWay) {
        let at = self.overdue.partition_point(|overdue| overdue.start < late.start);
        match self.overdue.get_mut(at).filter(|overdue| overdue.start == late.start) {
            Some(again) => again.is_waiting = true,
            None => {
                let buffer = Arc::clone(&late.buffer);
                self.overdue.insert(at, Overdue { start: late.start, end: late.end, buffer, is_waiting: true });
            }
        }
    }
}

/// What can be done about overdue requests now.
enum Rescue {
    /// Give this request to that device, indexes of both, and area.
    Give(usize, usize, Target),
    /// A device would take one if its hiding area had room.
    Full,
    None,
}

impl Scheduler {
    /// After how long a write of `bytes` bytes on this device is an outlier; `None` if that is of no interest: neither
    /// another device nor the archive could have the request first.
    pub(super) fn outlier_after(&self, state: &mut State, device: usize, bytes: u64, now: Instant) -> Option<Duration> {
        let hides = self.hides();
        if !hides && !state.has_archive() {
            return None;
        }
        let factor = if hides { state.outliers.adaptive.factor(now) } else { OUTLIER_FACTOR };
        let threshold = |device: &LogDevice| device.latencies.outlier_after(bytes, factor);
        // A device of which nothing is known yet may be as slow as the slowest other.
        let of_others = || state.placement.devices.iter().filter_map(threshold).max();
        let known = threshold(&state.placement.devices[device]).or_else(of_others);
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
        // Without workers this task sees it through.
        if state.stopping {
            self.wake_writers(&mut state);
            drop(state);
            return self.see_through(late);
        }
        state.outliers.left_behind.push(late);
        state.commits.wake_worker();
        self.wake_writers(&mut state);
    }

    /// Waits for a late write as long as its device may take at most.
    pub(super) fn see_through(&self, late: UnderWay) {
        self.finish(late.wait_to_end(self.write_timeout()));
    }

    /// Takes note that a write is an outlier.
    pub(super) fn note_late(&self, state: &mut State, late: &UnderWay) {
        state.placement.devices[late.device_index].hidden.outliers += 1;
        if self.hides() && !state.commits.is_complete(late.start, self.durable()) {
            state.outliers.add(late);
        }
    }

    /// Wakes a worker if an overdue request can be re-issued, and asks for a checkpoint if that is what is missing.
    pub(super) fn wake_for_overdue(&self, state: &mut State) {
        // After a failure nothing is re-issued, and a worker that is woken for it would wake the next one.
        if state.failure.is_some() {
            return;
        }
        match self.rescue(state) {
            Rescue::Give(..) => state.commits.wake_worker(),
            Rescue::Full if !state.outliers.areas_are_full => {
                state.outliers.areas_are_full = true;
                self.pressure.notify_all();
            }
            _ => {}
        }
    }

    /// The oldest overdue request that an idle device on other hardware can take, and a place for it.
    pub(super) fn next_hidden(&self, state: &mut State) -> Option<Job> {
        if state.outliers.overdue.is_empty() || state.failure.is_some() {
            return None;
        }
        let Rescue::Give(at, device, target) = self.rescue(state) else { return None };
        let overdue = &mut state.outliers.overdue[at];
        let (start, end) = (overdue.start, overdue.end);
        let room = state.placement.devices[device].main.layout.request_bytes(overdue.bytes());
        // The main area's room is promised to what was appended; a copy pays for what it takes.
        if target == Target::Main && !self.space.take(room) {
            return None;
        }
        overdue.is_waiting = false;
        let source = Source::Borrowed(Arc::clone(&overdue.buffer));
        state.placement.devices[device].hidden.reissued += 1;
        let job = self.start_job(state, device, target, (start, end, source), true);
        if target == Target::Main {
            self.rebalance(state, room);
        }
        Some(job)
    }

    fn rescue(&self, state: &State) -> Rescue {
        let mut is_full = false;
        for (at, overdue) in state.outliers.overdue.iter().enumerate().filter(|(_, overdue)| overdue.is_waiting) {
            let bytes = overdue.bytes();
            let has_it = |device: &LogDevice| {
                let mut writing = state.placement.devices.iter().filter(|other| other.is_writing(overdue.start));
                writing.any(|other| other.hardware == device.hardware)
                    || state.placement.has_copy(overdue.start, device.hardware)
            };
            let mut best: Option<(Duration, usize, Target)> = None;
            for (index, device) in state.placement.devices.iter().enumerate() {
                if !device.is_idle() || has_it(device) {
                    continue;
                }
                let (target, area, has_room) = match &device.hiding {
                    Some(hiding) => (Target::Hiding, hiding, hiding.has_room(bytes)),
                    None => (Target::Main, &device.main, device.has_room(bytes)),
                };
                let is_free = target == Target::Hiding || self.space.has(area.layout.request_bytes(bytes));
                if !area.keeps_order(overdue.start) || !is_free {
                    continue;
                }
                if !has_room {
                    is_full = true;
                } else if best.is_none_or(|(fastest, ..)| device.latency < fastest) {
                    best = Some((device.latency, index, target));
                }
            }
            if let Some((_, index, target)) = best {
                return Rescue::Give(at, index, target);
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
        let counts = &mut state.placement.devices[outcome.device_index].hidden;
        if in_flight.is_reissued {
            let is_first = !was_complete && outcome.result.is_ok();
            counts.won += u64::from(is_first);
            counts.lost += u64::from(!is_first);
            state.outliers.adaptive.spend(now - in_flight.since);
            if was_complete {
                state.outliers.adaptive.settle(Duration::ZERO, now);
            }
        } else if let Some(overtaken) = in_flight.overtaken {
            let saved = now - overtaken;
            counts.saved_us += micros(saved);
            state.outliers.adaptive.settle(saved, now);
        }
    }
}
