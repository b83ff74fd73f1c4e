//! One request's way to one device: choosing the device and the place, the write itself, and what follows when it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite};
use tantalum_rt::{Instant, now};

use super::group_commit::Waiter;
use super::placement::UnderWayCount;
use super::{Scheduler, State};
use crate::area::Place;
use crate::format::BLOCK;
use crate::format::request::{HEADER_BYTES, RequestHeader};
use crate::format::section::SectionHeader;
use crate::group::{PREFIX_BYTES, Request, Source, compose};
use crate::layout::device_tag;
use crate::log_device::{LogDevice, Target};
use crate::{Error, Lsn, Result, error};

/// A request with its place, to be written outside the lock.
pub(super) struct Job {
    device_index: usize,
    target: Target,
    start: Lsn,
    end: Lsn,
    source: Source,
    place: Place,
    device: Arc<dyn Device>,
    device_id: u64,
    durable: Lsn,
    /// After how long the write is an outlier.
    outlier_after: Option<Duration>,
}

/// A write that was submitted.
pub(super) struct UnderWay {
    pub(super) device_index: usize,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    pub(super) buffer: Arc<AlignedBuffer>,
    device: Arc<dyn Device>,
    offset: u64,
    bytes: u64,
    since: Instant,
    pending: Box<dyn PendingWrite>,
}

/// How a job ended.
pub(super) struct Outcome {
    pub(super) device_index: usize,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) result: Result<()>,
    /// The write, if it hung.
    pub(super) given_up: Option<Box<dyn PendingWrite>>,
}

/// How far a job came until its write was an outlier.
pub(super) enum Written {
    Ended(Outcome),
    Late(UnderWay),
}

impl UnderWay {
    /// Waits for the write until it has taken so long.
    fn wait(mut self, limit: Duration) -> Written {
        match self.pending.wait(Some(limit.saturating_sub(self.since.elapsed()))) {
            Some(result) => Written::Ended(self.end(result, false)),
            None => Written::Late(self),
        }
    }

    /// Waits for the write, and gives it up if it takes longer than `timeout` in all.
    pub(super) fn wait_to_end(mut self, timeout: Option<Duration>) -> Outcome {
        let Some(timeout) = timeout else {
            let result = self.pending.wait(None).expect("without a time-out a write is waited for to its end");
            return self.end(result, false);
        };
        match self.wait(timeout) {
            Written::Ended(outcome) => outcome,
            Written::Late(hung) => {
                let error = error::device_hung(hung.device.name(), hung.offset, hung.bytes, timeout);
                hung.end(Err(error), true)
            }
        }
    }

    fn end(self, result: Result<()>, is_given_up: bool) -> Outcome {
        let given_up = is_given_up.then_some(self.pending);
        Outcome {
            device_index: self.device_index,
            start: self.start,
            end: self.end,
            buffer: self.buffer,
            result,
            given_up,
        }
    }
}

impl Scheduler {
    /// The oldest request that has no device, and a place for it; seals one if there is none and `wanted` asks for it.
    pub(super) fn next_job(&self, state: &mut State, wanted: Lsn) -> Option<Job> {
        if state.failure.is_some() || !state.placement.devices.iter().any(LogDevice::is_idle) {
            return None;
        }
        if state.placement.mirror.is_some() {
            return self.next_copy(state, wanted);
        }
        let index = self.device_for_next(state, wanted)?;
        let request = state.commits.queue.pop_front()?;
        let charge = request.charge();
        let job = self.start_job(state, index, Target::Main, (request.start, request.end, request.source), false);
        self.rebalance(state, charge);
        Some(job)
    }

    /// An idle device for the oldest request that has none, and seals one if there is none and `wanted` asks for it. None while
    /// a log leader waits for other commits.
    pub(super) fn device_for_next(&self, state: &mut State, wanted: Lsn) -> Option<usize> {
        if self.delay.has_leader() {
            return None;
        }
        if state.commits.queue.is_empty() && wanted > state.commits.sealed_end && self.is_worth_a_request(state) {
            self.seal(state);
        }
        let bytes = state.commits.queue.front()?.bytes();
        let chosen = state.placement.choose(bytes, |_| true);
        if chosen.is_none() {
            let stuck = state.placement.devices.iter().all(|device| !device.is_busy() || !device.is_healthy());
            let may_be = state.placement.set_aside > 1 || state.admission.reserve_is_used;
            assert!(!stuck || may_be, "admission leaves room for what was appended");
        }
        chosen
    }

    /// Gives a request to an idle device.
    pub(super) fn start_job(
        &self,
        state: &mut State,
        index: usize,
        target: Target,
        (start, end, source): (Lsn, Lsn, Source),
        is_reissued: bool,
    ) -> Job {
        let (payload, now) = (end.bytes_since(start), now());
        let bytes = HEADER_BYTES as u64 + payload;
        let outlier_after = self.outlier_after(state, index, bytes, now);
        state.placement.under_way.writes += 1;
        state.placement.under_way.record_bytes += payload;
        let chosen = &mut state.placement.devices[index];
        let place = chosen.begin_request(target, bytes, (start, end), is_reissued, now);
        let (device, device_id, durable) = (Arc::clone(chosen.device()), chosen.device_id, self.durable());
        Job { device_index: index, target, start, end, source, place, device, device_id, durable, outlier_after }
    }

    /// Whether the records in no request yet should go out now, beside the requests under way.
    ///
    /// Several devices, striped or not, take whatever there is: one of them may be slow. Partitions of one device share its
    /// speed, and many small requests are slower than few large ones; there a request goes out beside others only if it is no
    /// smaller than they are on average, up to a size that takes about as long as the smallest.
    pub(super) fn is_worth_a_request(&self, state: &State) -> bool {
        const SMALL_BYTES: u64 = 16 << 10;
        let UnderWayCount { writes, record_bytes } = state.placement.under_way;
        let unsealed = || self.end().bytes_since(state.commits.sealed_end);
        self.can_give_up() || self.is_striped() || writes == 0 || unsealed() >= (record_bytes / writes).min(SMALL_BYTES)
    }

    /// Writes a request and waits for it until it is an outlier, or as long as its device may take at most.
    ///
    /// If neither other hardware nor the archive could have it first, there is nothing better to do than to wait in the
    /// kernel, which is also the quickest way to wait.
    pub(super) fn write(&self, job: Job) -> Written {
        let Job { device_index, target, start, end, source, place, device, device_id, durable, outlier_after } = job;
        let header = RequestHeader {
            device_tag: device_tag(self.log_id, device_id),
            epoch: self.epoch,
            sequence: place.sequence,
            section: place.section,
            offset: place.offset,
            start,
            stream_lsn: place.stream_lsn,
            durable_lsn: durable,
            payload_bytes: end.bytes_since(start) as u32,
            time_us: crate::format::wall_clock_us(),
        };
        let section = place.opens.map(|previous| SectionHeader {
            log_id: self.log_id,
            device_id,
            is_hiding: target == Target::Hiding,
            number: place.section,
            epoch: self.epoch,
            first_sequence: place.sequence,
            stream_lsn: place.stream_lsn,
            previous,
        });
        let mut buffer = source.take(header.payload_bytes as usize, &self.pool);
        if self.feed.is_attached() {
            let records = &buffer[PREFIX_BYTES..PREFIX_BYTES + header.payload_bytes as usize];
            self.feed.give(start, records, header.time_us);
        }
        let range = compose(&mut buffer, &header, section.as_ref(), &place.layout, &place.tail);
        // What the write carries before the request lies right before it, on the device as in the buffer.
        let offset = header.offset + range.start as u64 - BLOCK as u64;
        let bytes = range.len() as u64;
        let buffer = Arc::new(buffer);
        let ended =
            |buffer, result| Written::Ended(Outcome { device_index, start, end, buffer, result, given_up: None });
        if !self.can_give_up() && outlier_after.is_none() {
            let result = device.write(offset, &[&buffer[range]], Durability::Durable);
            return ended(buffer, result);
        }
        let since = now();
        match device.submit(offset, Arc::clone(&buffer), range, Durability::Durable) {
            Err(error) => ended(buffer, Err(error)),
            Ok(pending) => {
                let under_way = UnderWay { device_index, start, end, buffer, device, offset, bytes, since, pending };
                let timeout = self.write_timeout();
                match outlier_after.filter(|&after| timeout.is_none_or(|timeout| after < timeout)) {
                    Some(after) => under_way.wait(after),
                    None => Written::Ended(under_way.wait_to_end(timeout)),
                }
            }
        }
    }

    /// After how long a write is given up; `None` if there is no other hardware to go to.
    pub(super) fn write_timeout(&self) -> Option<Duration> {
        self.can_give_up().then_some(self.options.hang_timeout)
    }

    /// Makes a request that failed or hung wait for another device. A write that hung may still read its bytes.
    pub(super) fn reissue(&self, state: &mut State, outcome: &Outcome) {
        let source = Source::Borrowed(Arc::clone(&outcome.buffer));
        let request = Request { start: outcome.start, end: outcome.end, source };
        self.space.shift(-(request.charge() as i64));
        state.commits.push_again(request);
    }

    /// Takes note of a write's end. The caller calls `wake_writers`, and wakes the tasks returned: their records are durable.
    pub(super) fn complete(&self, state: &mut State, mut outcome: Outcome) -> Vec<Arc<Waiter>> {
        let now = now();
        let has_alternative = self.can_give_up() || state.has_archive();
        let device = &mut state.placement.devices[outcome.device_index];
        let in_flight = device.end_request(outcome.start);
        state.placement.under_way.writes -= 1;
        state.placement.under_way.record_bytes -= outcome.end.bytes_since(outcome.start);
        let took = now - in_flight.since;
        device.busy += took;
        if outcome.result.is_ok() {
            device.writes += 1;
            device.bytes += in_flight.bytes;
            // A re-issued write may stand in the hiding area, which may have other latencies.
            if has_alternative && !in_flight.is_reissued {
                device.latencies.learn(in_flight.bytes, took);
            }
            state.placement.learn_latency(outcome.device_index, took);
            self.delay.learn(took);
        }
        let was_complete = state.commits.is_complete(outcome.start, self.durable());
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
                    state.placement.devices[outcome.device_index].give_up(write);
                }
                if !was_complete && !state.placement.is_writing(outcome.start) {
                    state.placement.reissued += 1;
                    state.outliers.remove(outcome.start);
                    // A mirror has the records of what is not complete itself.
                    if state.placement.mirror.is_none() {
                        self.reissue(state, &outcome);
                    }
                }
                self.set_aside(state, outcome.device_index, error);
                Vec::new()
            }
        }
    }

    /// Takes note that a request is complete.
    pub(super) fn note_complete(&self, state: &mut State, start: Lsn, end: Lsn) {
        state.commits.complete(start, end);
        let now = now();
        state.outliers.remove(start);
        state.placement.devices.iter_mut().for_each(|device| device.overtake(start, now));
    }

    /// Moves the durable end by the prefix rule; the archive has everything before `archived`. Returns the tasks that waited for
    /// what is durable now.
    pub(super) fn advance_durable(&self, state: &mut State, archived: Lsn) -> Vec<Arc<Waiter>> {
        let before = self.durable();
        let durable = state.commits.advance(before.max(archived));
        if durable == before {
            return Vec::new();
        }
        self.durable.store(durable.get(), Ordering::Release);
        self.wake_followers(state);
        if self.archive_follows() {
            self.feed.durable_moved();
        }
        state.outliers.remove_before(durable);
        state.commits.take_waiters(durable)
    }

    /// Gives a device no more requests, because it failed or hung.
    pub(super) fn set_aside(&self, state: &mut State, index: usize, error: Error) {
        if state.placement.devices[index].is_healthy() {
            state.placement.devices[index].set_aside = Some(error.clone());
            state.placement.set_aside += 1;
            state.membership.aside_is_needed = true;
        }
        state.placement.keep_enough_serving(self.options.copies.into());
        if !state.placement.has_healthy() {
            self.poison(state, error);
        }
        self.settle_pairs(state);
        self.rebalance(state, 0);
        self.pressure.notify_all();
    }
}
