//! One request's way to one device: choosing the device and the place, and the write itself.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite};
use tantalum_rt::{Instant, now};

use super::{Scheduler, State};
use crate::format::BLOCK;
use crate::format::request::{HEADER_BYTES, RequestHeader};
use crate::format::section::SectionHeader;
use crate::group::{PREFIX_BYTES, Request, Source, compose};
use crate::layout::device_tag;
use crate::stream::{Placement, Stream};
use crate::{Error, Lsn, Result};

/// Where on a device a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Area {
    Main,
    Hiding,
}

/// A request with its place, to be written outside the lock.
pub(super) struct Job {
    /// Index of the stream.
    stream: usize,
    area: Area,
    start: Lsn,
    end: Lsn,
    source: Source,
    placement: Placement,
    device: Arc<dyn Device>,
    device_id: u64,
    durable: Lsn,
    /// After how long it is an outlier.
    patience: Option<Duration>,
}

/// A write that was submitted.
pub(super) struct UnderWay {
    pub(super) stream: usize,
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
    pub(super) stream: usize,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) result: Result<()>,
    /// The write, if it hung.
    pub(super) given_up: Option<Box<dyn PendingWrite>>,
}

/// How far a job came until its writer's patience ended.
pub(super) enum Written {
    Ended(Outcome),
    Late(UnderWay),
}

impl UnderWay {
    /// Waits for the write until it has taken so long.
    fn wait(mut self, limit: Duration) -> Written {
        match self.pending.wait(Some(limit.saturating_sub(self.since.elapsed()))) {
            Some(result) => Written::Ended(self.end(result.map_err(Error::from), false)),
            None => Written::Late(self),
        }
    }

    /// Waits for the write, and gives it up if it takes longer than `timeout` in all.
    pub(super) fn wait_to_end(mut self, timeout: Option<Duration>) -> Outcome {
        let Some(timeout) = timeout else {
            let result = self.pending.wait(None).expect("without a time-out a write is waited for to its end");
            return self.end(result.map_err(Error::from), false);
        };
        match self.wait(timeout) {
            Written::Ended(outcome) => outcome,
            Written::Late(hung) => {
                let (device, offset, bytes) = (hung.device.name().into(), hung.offset, hung.bytes);
                hung.end(Err(Error::DeviceHung { device, offset, bytes, timeout }), true)
            }
        }
    }

    fn end(self, result: Result<()>, is_given_up: bool) -> Outcome {
        let given_up = is_given_up.then_some(self.pending);
        Outcome { stream: self.stream, start: self.start, end: self.end, buffer: self.buffer, result, given_up }
    }
}

impl Scheduler {
    /// The oldest request that has no device, and a place for it; seals one if there is none and `wanted` asks for it.
    pub(super) fn next_job(&self, state: &mut State, wanted: Lsn) -> Option<Job> {
        if state.failure.is_some() || !state.streams.iter().any(Stream::is_idle) {
            return None;
        }
        if state.mirror.is_some() {
            return self.next_copy(state, wanted);
        }
        let index = self.device_for_next(state, wanted)?;
        let request = state.queue.pop_front()?;
        let charge = request.charge();
        let job = self.start_job(state, index, Area::Main, (request.start, request.end, request.source), false);
        self.rebalance(state, charge);
        Some(job)
    }

    /// An idle device for the oldest request that has none, and seals one if there is none and `wanted` asks for it. None while
    /// somebody waits for others to write with.
    pub(super) fn device_for_next(&self, state: &mut State, wanted: Lsn) -> Option<usize> {
        if self.gather.is_led() {
            return None;
        }
        if state.queue.is_empty() && wanted > state.sealed_end && self.is_worth_a_request(state) {
            self.seal(state);
        }
        let bytes = state.queue.front()?.bytes();
        let chosen = choose(&state.streams, bytes, |_| true);
        if chosen.is_none() {
            let stuck = state.streams.iter().all(|stream| !stream.is_busy() || !stream.state.is_healthy());
            assert!(!stuck || state.set_aside > 1, "admission leaves room for what was appended");
        }
        chosen
    }

    /// Gives a request to an idle device.
    pub(super) fn start_job(
        &self,
        state: &mut State,
        index: usize,
        area: Area,
        (start, end, source): (Lsn, Lsn, Source),
        is_reissued: bool,
    ) -> Job {
        let (payload, now) = (end.bytes_since(start), now());
        let bytes = HEADER_BYTES as u64 + payload;
        let patience = self.patience(state, index, bytes, now);
        state.under_way.0 += 1;
        state.under_way.1 += payload;
        let stream = &mut state.streams[index];
        assert!(stream.is_idle(), "a device takes no more requests than it may");
        let placement = match (area, &mut stream.hiding) {
            (Area::Hiding, Some(hiding)) => hiding.place(bytes, start, end),
            (Area::Hiding, None) => unreachable!("a hiding area is chosen only where there is one"),
            (Area::Main, _) => stream.place(bytes, start, end),
        };
        stream.begin_request(start, bytes, placement.opens.is_some(), is_reissued, now);
        let (device, device_id, durable) = (Arc::clone(stream.device()), stream.device_id, self.durable());
        Job { stream: index, area, start, end, source, placement, device, device_id, durable, patience }
    }

    /// Whether what has gathered should go out now, beside the requests under way.
    ///
    /// Several devices, striped or not, take whatever there is: one of them may be slow. Partitions of one device share its speed, and
    /// many small requests are slower than few large ones; there a request goes out beside others only if it is no
    /// smaller than they are on average, up to a size that takes about as long as the smallest.
    pub(super) fn is_worth_a_request(&self, state: &State) -> bool {
        const SMALL_BYTES: u64 = 16 << 10;
        let (requests, bytes) = state.under_way;
        let gathered = || self.end().bytes_since(state.sealed_end);
        self.can_give_up() || self.is_striped() || requests == 0 || gathered() >= (bytes / requests).min(SMALL_BYTES)
    }

    /// Writes a request and waits for it until it is an outlier, or as long as its device may take at most.
    ///
    /// If neither other hardware nor the archive could have it first, there is nothing better to do than to wait in the
    /// kernel, which is also the quickest way to wait.
    pub(super) fn write(&self, job: Job) -> Written {
        let Job { stream, area, start, end, source, placement, device, device_id, durable, patience } = job;
        let header = RequestHeader {
            device_tag: device_tag(self.log_id, device_id),
            epoch: self.epoch,
            sequence: placement.sequence,
            section: placement.section,
            offset: placement.offset,
            start,
            stream_lsn: placement.stream_lsn,
            durable_lsn: durable,
            payload_bytes: end.bytes_since(start) as u32,
            time_us: crate::time::wall_clock_us(),
        };
        let section = placement.opens.map(|previous| SectionHeader {
            log_id: self.log_id,
            device_id,
            is_hiding: area == Area::Hiding,
            number: placement.section,
            epoch: self.epoch,
            first_sequence: placement.sequence,
            stream_lsn: placement.stream_lsn,
            previous,
        });
        let mut buffer = source.take(header.payload_bytes as usize, &self.pool);
        let records = &buffer[PREFIX_BYTES..PREFIX_BYTES + header.payload_bytes as usize];
        self.feed.give(start, records, header.time_us);
        let range = compose(&mut buffer, &header, section.as_ref(), &placement.layout, &placement.tail);
        // What the write carries before the request lies right before it, on the device as in the buffer.
        let offset = header.offset + range.start as u64 - BLOCK as u64;
        let bytes = range.len() as u64;
        let buffer = Arc::new(buffer);
        let ended = |buffer, result| Written::Ended(Outcome { stream, start, end, buffer, result, given_up: None });
        if !self.can_give_up() && patience.is_none() {
            let result = device.write(offset, &[&buffer[range]], Durability::Durable);
            return ended(buffer, result.map_err(Error::from));
        }
        let since = now();
        match device.submit(offset, Arc::clone(&buffer), range, Durability::Durable) {
            Err(error) => ended(buffer, Err(error.into())),
            Ok(pending) => {
                let under_way = UnderWay { stream, start, end, buffer, device, offset, bytes, since, pending };
                let timeout = self.write_timeout();
                match patience.filter(|&patience| timeout.is_none_or(|timeout| patience < timeout)) {
                    Some(patience) => under_way.wait(patience),
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
        let at = state.queue.partition_point(|queued| queued.start < request.start);
        state.queue.insert(at, request);
    }
}

/// The idle device to write to: among those of which `takes_it` holds and that are about as fast as the fastest, the one with
/// the most room.
///
/// Room is spread, because what one device alone could take is not counted on (see [`crate::space`]); but a request
/// does not wait for a slow device just to spread it.
pub(super) fn choose(streams: &[Stream], bytes: u64, takes_it: impl Fn(&Stream) -> bool) -> Option<usize> {
    let is_usable = |stream: &Stream| stream.is_idle() && takes_it(stream) && stream.has_room(bytes);
    let usable = || streams.iter().enumerate().filter(|(_, stream)| is_usable(stream));
    let fastest = usable().map(|(_, stream)| stream.latency).min()?;
    let near = usable().filter(|(_, stream)| stream.latency <= fastest * 2);
    near.max_by_key(|(index, stream)| (stream.share().assured, usize::MAX - index)).map(|(index, _)| index)
}
