//! Appending to an archive: one large durable write after another, and a new segment when one is full.
//!
//! Every session begins a segment of its own with its first write, since what follows the last request may be torn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Durability};

use super::archive_tag;
use super::store::{Place, Store};
use crate::format::archive::{ArchiveSuperblock, SegmentHeader};
use crate::format::request::{HEADER_BYTES, RequestHeader};
use crate::format::wall_clock_us;
use crate::format::{BLOCK, round_up};
use crate::group::PREFIX_BYTES;
use crate::{Error, ErrorKind, Lsn, Result, error};

/// Record bytes of one write at most.
pub(super) const MAX_WRITE_BYTES: usize = 4 << 20;

/// What one write joins was taken for writing within this time, so that the request's time is exact to it.
pub(crate) const JOINED_US: u64 = 500_000;

/// Proof that the archive has everything of its run before an LSN, durably: only a write that completed gives one.
#[derive(Debug)]
#[must_use]
pub(crate) struct Archived(Lsn);

impl Archived {
    pub(crate) fn end(&self) -> Lsn {
        self.0
    }
}

/// Where writing goes on.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    pub(crate) epoch: u64,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
    /// Where the next write starts.
    pub(crate) end: Lsn,
    pub(crate) run_start: Lsn,
    /// Segments that hold something behind the checkpoint, by number, with their ends.
    pub(crate) used: VecDeque<(u64, Lsn)>,
}

/// Record bytes from one LSN to another.
pub(crate) struct Batch<'a> {
    pub(crate) pieces: &'a [Box<[u8]>],
    pub(crate) durable: Lsn,
    pub(crate) time_us: u64,
}

/// The end of an archive.
#[derive(Debug)]
pub(crate) struct Writer {
    store: Arc<dyn Store>,
    resume: Resume,
    open: Option<Open>,
    /// Kept from write to write.
    buffer: Option<AlignedBuffer>,
}

/// The segment that is being filled.
#[derive(Debug)]
struct Open {
    number: u64,
    place: Place,
    /// The segment's first unused byte on its device.
    next: u64,
}

/// Record bytes that one write to an archive takes at most.
pub(super) fn max_payload_bytes(superblock: &ArchiveSuperblock) -> usize {
    (superblock.segment_bytes as usize - BLOCK - HEADER_BYTES).min(MAX_WRITE_BYTES)
}

impl Writer {
    pub(crate) fn new(store: Arc<dyn Store>, resume: Resume) -> Writer {
        Writer { store, resume, open: None, buffer: None }
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The number of the segment that the next new one gets.
    pub(crate) fn next_number(&self) -> u64 {
        self.resume.next_number
    }

    /// Where the next write starts.
    pub(crate) fn end(&self) -> Lsn {
        self.resume.end
    }

    pub(crate) fn run_start(&self) -> Lsn {
        self.resume.run_start
    }

    pub(crate) fn max_payload_bytes(&self) -> usize {
        max_payload_bytes(self.store.superblock())
    }

    /// Record bytes that the next write takes, if those of its first request are `first_bytes`: what fits into the open segment,
    /// unless that request does not. So a segment is left with less than its next request takes.
    pub(crate) fn payload_limit(&self, first_bytes: usize) -> usize {
        let left = self.open.as_ref().map_or(0, |open| open.place.range.end - open.next);
        match device_bytes(first_bytes) <= left {
            true => self.max_payload_bytes().min(left as usize - HEADER_BYTES),
            false => self.max_payload_bytes(),
        }
    }

    /// So many bytes of requests find room without a later checkpoint, if each is counted as if it were written alone and takes
    /// `largest_bytes` at most; also in the next session, which leaves the open segment as it is.
    pub(crate) fn room_bytes(&self, checkpoint: Lsn, largest_bytes: u64) -> u64 {
        let Some(free) = self.free_segments(checkpoint) else { return u64::MAX };
        // The session's first segment may be left as soon as it has one request, and so may one of each opening that is cut
        // off while it archives what the archive lacks.
        let openings = (u64::from(self.store.superblock().segment_count) / 8).max(1);
        let free = free.saturating_sub(openings + u64::from(self.open.is_none()));
        // What one segment and the next one's first request take together is more than a segment; and what is left of a segment
        // is less than a request.
        let bytes = u64::from(self.store.superblock().segment_bytes) - BLOCK as u64;
        (free.div_ceil(2) * bytes).max(free * (bytes + BLOCK as u64).saturating_sub(largest_bytes))
    }

    /// Segments that hold nothing behind `checkpoint`; `None` where there are as many as needed.
    fn free_segments(&self, checkpoint: Lsn) -> Option<u64> {
        let count = u64::from(self.store.superblock().segment_count);
        let is_needed = |&&(number, end): &&(u64, Lsn)| end > checkpoint || self.is_open(number);
        let used = self.resume.used.iter().find(is_needed).map_or(0, |(oldest, _)| self.resume.next_number - oldest);
        (count > 0).then(|| count.saturating_sub(used))
    }

    fn is_open(&self, number: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.number == number)
    }

    /// Refuses segments that are too small for requests of the log.
    pub(crate) fn check_takes(&self, payload_bytes: usize) -> Result<()> {
        if payload_bytes <= self.max_payload_bytes() {
            return Ok(());
        }
        let value = self.store.superblock().segment_bytes.into();
        let expected = "the log has larger requests to archive; name another place, and ask for larger segments there";
        Err(error::invalid_option("archive.segment_bytes", value, expected))
    }

    /// Percent of the segments that hold something behind `checkpoint`; 0 where there are as many as needed.
    pub(crate) fn fill_percent(&self, checkpoint: Lsn) -> u64 {
        let count = u64::from(self.store.superblock().segment_count);
        self.free_segments(checkpoint).map_or(0, |free| 100 * (count - free) / count)
    }

    /// Forgets segments that hold nothing behind `checkpoint`.
    fn release(&mut self, checkpoint: Lsn) {
        while self.resume.used.front().is_some_and(|&(number, end)| end <= checkpoint && !self.is_open(number)) {
            self.resume.used.pop_front();
        }
    }

    /// Writes a batch behind the last one, over nothing behind `checkpoint`, and waits until it is durable.
    ///
    /// # Errors
    /// [`ErrorKind::NoSpace`], those of the store, and [`ErrorKind::TimedOut`] after `timeout`. Nothing may be written
    /// afterwards.
    pub(crate) fn append(&mut self, batch: &Batch<'_>, checkpoint: Lsn, timeout: Duration) -> Result<Archived> {
        let payload_bytes = batch.pieces.iter().map(|piece| piece.len()).sum();
        assert!((1..=self.max_payload_bytes()).contains(&payload_bytes), "a batch is what one write takes");
        let bytes = device_bytes(payload_bytes);
        let start = self.resume.end;
        let end = Lsn::new(start.get() + payload_bytes as u64);
        let opens = match &self.open {
            Some(open) if open.next + bytes <= open.place.range.end => {
                let used = open.next + bytes - open.place.range.start;
                self.store.extend(&open.place, used)?;
                None
            }
            _ => {
                self.release(checkpoint);
                if self.free_segments(checkpoint) == Some(0) {
                    return Err(Error::new(
                        ErrorKind::NoSpace,
                        format!(
                            "{}: every segment of the archive holds what opening the log needs; make checkpoints, and use a larger device",
                            self.store.name()
                        ),
                    ));
                }
                Some(self.open_segment(start, bytes)?)
            }
        };
        let open = self.open.as_mut().expect("a segment was opened if none had room");
        let header = RequestHeader {
            device_tag: archive_tag(self.store.superblock().log_id),
            epoch: self.resume.epoch,
            sequence: self.resume.next_sequence,
            section: open.number,
            offset: open.next,
            start,
            stream_lsn: start,
            durable_lsn: batch.durable,
            payload_bytes: payload_bytes as u32,
            time_us: batch.time_us,
        };
        let needed = BLOCK + bytes as usize;
        let idle = self.buffer.take().filter(|buffer| buffer.len() >= needed);
        let mut buffer = idle.unwrap_or_else(|| AlignedBuffer::zeroed(needed.next_power_of_two()));
        let mut at = PREFIX_BYTES;
        for piece in batch.pieces {
            buffer[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        buffer[at..needed].fill(0);
        header.encode(&mut buffer[BLOCK..]);
        let (offset, range) = match &opens {
            Some(segment) => {
                segment.encode(&mut buffer[..BLOCK]);
                (open.next - BLOCK as u64, 0..needed)
            }
            None => (open.next, BLOCK..needed),
        };
        let (buffer, written) = (Arc::new(buffer), range.len() as u64);
        let device = &open.place.device;
        let mut pending = device.submit(offset, Arc::clone(&buffer), range, Durability::Durable)?;
        let hung = || error::device_hung(device.name(), offset, written, timeout);
        pending.wait(Some(timeout)).ok_or_else(hung)??;
        self.buffer = Arc::try_unwrap(buffer).ok();
        open.next += bytes;
        assert!(open.next <= open.place.range.end, "a request lies in one segment");
        self.resume.next_sequence += 1;
        self.resume.end = end;
        match self.resume.used.back_mut() {
            Some(used) if used.0 == open.number => used.1 = end,
            _ => self.resume.used.push_back((open.number, end)),
        }
        Ok(Archived(end))
    }

    /// Moves on to the next segment and returns its header.
    fn open_segment(&mut self, start: Lsn, bytes: u64) -> Result<SegmentHeader> {
        let number = self.resume.next_number;
        let place = self.store.create(number, start, BLOCK as u64 + bytes)?;
        let next = place.range.start + BLOCK as u64;
        self.resume.next_number += 1;
        self.open = Some(Open { number, place, next });
        Ok(SegmentHeader {
            log_id: self.store.superblock().log_id,
            number,
            epoch: self.resume.epoch,
            first_sequence: self.resume.next_sequence,
            start,
            run_start: self.resume.run_start,
            time_us: wall_clock_us(),
        })
    }
}

/// Bytes of a request in the archive.
pub(crate) fn device_bytes(payload_bytes: usize) -> u64 {
    round_up(HEADER_BYTES + payload_bytes) as u64
}
