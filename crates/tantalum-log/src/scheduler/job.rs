//! One request's way to one device: choosing the device and the place, and the write itself.

use std::ops::Range;
use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::now;

use super::{Scheduler, State};
use crate::format::BLOCK;
use crate::format::request::RequestHeader;
use crate::format::section::SectionHeader;
use crate::group::{PREFIX_BYTES, Request, Source, compose};
use crate::layout::log_tag;
use crate::stream::{Placement, Stream};
use crate::{Error, Lsn, Result};

/// A request with its place, to be written outside the lock.
pub(super) struct Job {
    /// Index of the stream.
    pub(super) stream: usize,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    source: Source,
    placement: Placement,
    device: Arc<dyn Device>,
    ordinal: u32,
    durable: Lsn,
}

/// How a job ended.
pub(super) struct Outcome {
    pub(super) stream: usize,
    pub(super) start: Lsn,
    pub(super) end: Lsn,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) result: Result<()>,
}

impl Scheduler {
    /// The oldest request that has no device, and a place for it; seals one if there is none and `wanted` asks for it.
    pub(super) fn next_job(&self, state: &mut State, wanted: Lsn) -> Option<Job> {
        if state.failure.is_some() || !state.streams.iter().any(Stream::is_idle) {
            return None;
        }
        if state.queue.is_empty() && wanted > state.sealed_end && self.is_worth_a_request(state) {
            self.seal(state);
        }
        let bytes = state.queue.front()?.device_bytes();
        let Some(index) = choose(&state.streams, bytes) else {
            let stuck = state.streams.iter().all(|stream| stream.in_flight.is_none() || !stream.state.is_healthy());
            assert!(!stuck || state.set_aside > 1, "admission leaves room for what was appended");
            return None;
        };
        let request = state.queue.pop_front()?;
        let placement = state.streams[index].place(bytes, request.end, now());
        self.rebalance(state, request.charge());
        state.under_way.0 += 1;
        state.under_way.1 += request.payload_bytes() as u64;
        let stream = &state.streams[index];
        Some(Job {
            stream: index,
            start: request.start,
            end: request.end,
            source: request.source,
            placement,
            device: Arc::clone(&stream.device),
            ordinal: stream.ordinal,
            durable: self.durable(),
        })
    }

    /// Whether what has gathered should go out now, beside the requests under way.
    ///
    /// Several devices take whatever there is: one of them may be slow. Partitions of one device share its speed, and
    /// many small requests are slower than few large ones; there a request goes out beside others only if it is no
    /// smaller than they are on average, up to a size that takes about as long as the smallest.
    pub(super) fn is_worth_a_request(&self, state: &State) -> bool {
        const SMALL_BYTES: u64 = 16 << 10;
        let (requests, bytes) = state.under_way;
        let gathered = || self.end().bytes_since(state.sealed_end);
        self.can_give_up || requests == 0 || gathered() >= (bytes / requests).min(SMALL_BYTES)
    }

    /// Writes a request and waits for it.
    pub(super) fn write(&self, job: Job) -> Outcome {
        let Job { stream, start, end, source, placement, device, ordinal, durable } = job;
        let header = RequestHeader {
            log_tag: log_tag(self.log_id),
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
            ordinal,
            number: placement.section,
            epoch: self.epoch,
            first_sequence: placement.sequence,
            stream_lsn: placement.stream_lsn,
            previous,
        });
        let mut buffer = source.take();
        self.feed.give(start, &buffer[PREFIX_BYTES..PREFIX_BYTES + header.payload_bytes as usize]);
        let range_end = compose(&mut buffer, &header, section.as_ref());
        // The section's header lies right before the request, on the device as in the buffer.
        let (offset, range) = match section {
            Some(_) => (placement.offset - BLOCK as u64, 0..range_end),
            None => (placement.offset, BLOCK..range_end),
        };
        let buffer = Arc::new(buffer);
        let result = self.write_durably(&*device, offset, &buffer, range);
        Outcome { stream, start, end, buffer, result }
    }

    /// One durable write. It is given up after the hang time-out if other hardware could take the request; without
    /// any, there is nothing better to do than to wait in the kernel, which is also the quickest way to wait.
    fn write_durably(
        &self,
        device: &dyn Device,
        offset: u64,
        buffer: &Arc<AlignedBuffer>,
        range: Range<usize>,
    ) -> Result<()> {
        if !self.can_give_up {
            return Ok(device.write(offset, &[&buffer[range]], Durability::Durable)?);
        }
        let (bytes, timeout) = (range.len() as u64, self.options.hang_timeout);
        let mut pending = device.submit(offset, Arc::clone(buffer), range, Durability::Durable)?;
        let hung = || Error::DeviceHung { device: device.name().into(), offset, bytes, timeout };
        Ok(pending.wait(Some(timeout)).ok_or_else(hung)??)
    }

    /// Makes a request that failed or hung wait for another device. Its bytes are copied, because a write that hung
    /// may still read them while the copy gets another header.
    pub(super) fn reissue(&self, state: &mut State, outcome: &Outcome) {
        let request = Request {
            start: outcome.start,
            end: outcome.end,
            source: Source::Taken(AlignedBuffer::clone(&outcome.buffer)),
        };
        self.space.shift(-(request.charge() as i64));
        state.reissued += 1;
        let at = state.queue.partition_point(|queued| queued.start < request.start);
        state.queue.insert(at, request);
    }
}

/// The idle device to write to: among those about as fast as the fastest, the one with the most room.
///
/// Room is spread, because what one device alone could take is not counted on (see [`crate::space`]); but a request
/// does not wait for a slow device just to spread it.
fn choose(streams: &[Stream], bytes: u64) -> Option<usize> {
    let usable = || streams.iter().enumerate().filter(|(_, stream)| stream.is_idle() && stream.has_room(bytes));
    let fastest = usable().map(|(_, stream)| stream.latency).min()?;
    let near = usable().filter(|(_, stream)| stream.latency <= fastest * 2);
    near.max_by_key(|(index, stream)| (stream.share().assured, usize::MAX - index)).map(|(index, _)| index)
}
