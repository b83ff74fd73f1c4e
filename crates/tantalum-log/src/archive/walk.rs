//! Walking an archive's segments: intact requests in order, and what is wrong where one was expected.
//!
//! One write is under way at a time, so only the last can be torn, and what is not intact is taken for the end unless
//! something later is there. A running log may be writing what is read: before anything counts as damage behind the last
//! intact request, it is read once more.

use std::sync::Arc;

use super::archive_tag;
use super::reader::{Archive, Scanned};
use super::store::{Place, Segment};
use super::writer::{MAX_WRITE_BYTES, device_bytes};
use crate::format::archive::SegmentHeader;
use crate::format::request::{DecodedRequest, RequestHeader};
use crate::format::{BLOCK, DecodeError, round_up};
use crate::recovery::chunks::Chunks;
use crate::recovery::scan::{Scan, Scope};
use crate::{Damage, Lsn, Result};

pub(super) struct Walk<'a> {
    archive: &'a Archive,
    scope: &'a Scope,
    pub(super) scanned: Scanned,
    chunks: Chunks,
}

impl<'a> Walk<'a> {
    /// A walk that goes on behind what was `scanned`; nothing yet if that has no segments.
    pub(super) fn new(archive: &'a Archive, scope: &'a Scope, scanned: Scanned) -> Walk<'a> {
        let scan = Scan { name: archive.store.name().into(), ..Scan::default() };
        let chunks = Chunks::new(Arc::clone(archive.store.control()));
        Walk { archive, scope, scanned: Scanned { scan, ..scanned }, chunks }
    }

    /// Reads a segment up to where the next one takes over, and judges what is missing in between.
    pub(super) fn segment(&mut self, segment: &Segment, next: Option<&Segment>) -> Result<()> {
        let header = match segment.header {
            Ok(header) => header,
            // Made, and then the power was cut before its first write: nothing can follow it.
            Err(_) if next.is_none() => return self.check_unbegun(&segment.place, None),
            Err(error) => {
                self.damage(segment, segment.place.range.start, format!("no segment header: {error}"));
                return Ok(());
            }
        };
        if header.run_start > self.scanned.end || self.scanned.segments.is_empty() {
            // A recorded gap, or the first segment that is read.
            self.scanned.run_start = header.run_start;
            self.scanned.end = header.start;
        }
        let end = segment.place.range.end.min(segment.place.device.capacity_bytes());
        self.chunks = Chunks::new(Arc::clone(&segment.place.device));
        let mut offset = segment.place.range.start + BLOCK as u64;
        let mut sequence = header.first_sequence;
        let mut at = header.start;
        let mut read_again = None;
        let stopped = loop {
            let stopped = if offset == end {
                "the segment's end".to_owned()
            } else {
                match self.request(segment, &header, (offset, end), (sequence, at))? {
                    Err(what) => what,
                    Ok(found) => {
                        offset += device_bytes(found.payload_bytes as usize);
                        sequence += 1;
                        at = found.end();
                        continue;
                    }
                }
            };
            if next.is_some() {
                break stopped;
            }
            match self.later_request(&segment.place, header.number, offset, end)? {
                None => break stopped,
                Some(_) if read_again != Some(offset) => {
                    read_again = Some(offset);
                    self.chunks = Chunks::new(Arc::clone(&segment.place.device));
                }
                Some(later) => {
                    let what = format!("a request is damaged, but a later one ({later}) is there");
                    self.damage(segment, offset, what);
                    break stopped;
                }
            }
        };
        if let Some(next) = next.filter(|next| next.start < at) {
            self.scanned.scan.found.retain(|found| found.request.header.end() <= next.start);
            at = next.start;
        }
        match next.map(|next| (next.start, next.header.map_or(next.start, |header| header.run_start))) {
            Some((start, run_start)) if start > at && run_start < start => {
                self.damage(segment, offset, format!("records up to LSN {start} are missing: {stopped}"));
            }
            Some(_) => {}
            None => {
                if let Some(place) = self.archive.store.place_behind(header.number) {
                    self.check_unbegun(&place, Some(header.number + 1))?;
                }
            }
        }
        self.scanned.end = at;
        self.scanned.segments.push((header.number, at));
        self.scanned.next_number = header.number + 1;
        self.scanned.next_sequence = sequence;
        Ok(())
    }

    /// Takes the request at `offset` if it is the expected one and intact; otherwise says what is wrong with it.
    fn request(
        &mut self,
        segment: &Segment,
        header: &SegmentHeader,
        (offset, end): (u64, u64),
        (sequence, start): (u64, Lsn),
    ) -> Result<std::result::Result<RequestHeader, String>> {
        let block = self.chunks.read(offset, BLOCK as u64, end, &self.scope.progress)?;
        let request = match decode_request(self.archive.log_id(), block, offset) {
            Ok(request) => request,
            Err(error) => return Ok(Err(format!("no request: {error}"))),
        };
        let found = request.header;
        if (found.section, found.sequence, found.start) != (header.number, sequence, start) {
            let (found, sequence) = (found.start, found.sequence);
            return Ok(Err(format!("request {sequence} at LSN {found} stands where LSN {start} was to follow")));
        }
        let bytes = device_bytes(found.payload_bytes as usize);
        if bytes > end - offset {
            return Ok(Err(format!("the request's {bytes} bytes exceed its segment")));
        }
        if found.epoch > self.scope.epoch {
            let (epoch, known) = (found.epoch, self.scope.epoch);
            let what = format!("a request of epoch {epoch} proves that a newer slot than epoch {known}'s was lost");
            self.damage(segment, offset, what);
        }
        // What was durable in an older epoch lies below the newest one's start, or was lost with the devices.
        let witness = (found.epoch == self.scope.epoch).then_some((found.durable_lsn, offset));
        let whole = self.chunks.read(offset, bytes, end, &self.scope.progress)?;
        if let Err(error) = request.check_payload(whole) {
            return Ok(Err(format!("damaged request: {error}")));
        }
        let scan = &mut self.scanned.scan;
        scan.witness = scan.witness.max(witness.unwrap_or_default());
        scan.take(request, whole, self.scope, &segment.place.device);
        Ok(Ok(found))
    }

    /// A request of the segment `number`, behind `from`, where one that is not intact was expected: it proves that the
    /// archive went on. It would start within the largest write.
    fn later_request(&mut self, place: &Place, number: u64, from: u64, end: u64) -> Result<Option<String>> {
        let last = from + round_up(MAX_WRITE_BYTES) as u64 + BLOCK as u64;
        let mut offset = from + BLOCK as u64;
        let end = end.min(place.device.capacity_bytes());
        while offset < end.min(last) {
            let block = self.chunks.read(offset, BLOCK as u64, end, &self.scope.progress)?;
            let later = decode_request(self.archive.log_id(), block, offset).ok().map(|later| later.header);
            if let Some(later) = later.filter(|later| later.section == number) {
                let (sequence, start) = (later.sequence, later.start);
                return Ok(Some(format!("request {sequence}, LSN {start}, at {offset}")));
            }
            offset += BLOCK as u64;
        }
        Ok(None)
    }

    /// Looks where a segment would follow, whose header is not there: its first write holds the header and one request and
    /// may have been torn, but there can be no second request. `number` is what it would be; any if that is not known.
    fn check_unbegun(&mut self, place: &Place, number: Option<u64>) -> Result<()> {
        let (start, end) = (place.range.start, place.range.start + place.bytes());
        self.chunks = Chunks::new(Arc::clone(&place.device));
        let last = start + round_up(MAX_WRITE_BYTES) as u64 + 3 * BLOCK as u64;
        let mut offset = start + 2 * BLOCK as u64;
        while offset < end.min(last) {
            let block = self.chunks.read(offset, BLOCK as u64, end, &self.scope.progress)?;
            let later = decode_request(self.archive.log_id(), block, offset).ok().map(|later| later.header);
            if let Some(later) = later.filter(|later| number.is_none_or(|number| number == later.section)) {
                // A running log may have begun the segment since the segments were listed.
                if place.read_header(self.archive.log_id())?.is_ok() {
                    return Ok(());
                }
                let (sequence, lsn) = (later.sequence, later.start);
                let what =
                    format!("the segment's header is damaged: its request {sequence}, LSN {lsn}, is there at {offset}");
                let device = place.device.name().into();
                let lsn = Some(self.scanned.end);
                self.scanned.scan.damage.push(Damage { device, offset: start, lsn, what });
                return Ok(());
            }
            offset += BLOCK as u64;
        }
        Ok(())
    }

    fn damage(&mut self, segment: &Segment, offset: u64, what: String) {
        let device = segment.place.device.name().into();
        self.scanned.scan.damage.push(Damage { device, offset, lsn: Some(self.scanned.end), what });
    }
}

/// The request header at `offset`, if `bytes` holds one that this archive wrote there.
fn decode_request(log_id: u128, bytes: &[u8], offset: u64) -> Result<DecodedRequest, DecodeError> {
    let request = RequestHeader::decode(bytes)?;
    match request.header {
        header if header.device_tag != archive_tag(log_id) => {
            Err(DecodeError::Field { field: "identity", value: header.device_tag })
        }
        header if header.offset != offset => Err(DecodeError::Field { field: "offset", value: header.offset }),
        _ => Ok(request),
    }
}
