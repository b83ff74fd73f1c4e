//! Reading a device from the checkpoint to its end, and telling a torn tail from damage.
//!
//! A device has one write under way at a time, so only its last request can be torn. What is not intact is taken for
//! the end only if nothing proves that the device went on: requests carry consecutive sequence numbers, each section's
//! header tells the first of its section, and the rest of the last section is searched for later requests. On an array
//! ([`crate::log_layout`]) several of the last section's requests can be torn, and later ones only bear witness.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tantalum_device::Device;

use super::Progress;
use super::chunks::Chunks;
use super::locate::{Sections, Start};
use super::members::Member;
use crate::format::BLOCK;
use crate::format::request::{DecodedRequest, HEADER_BYTES, RequestHeader};
use crate::{Damage, Lsn, Result};

/// An intact request.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) request: DecodedRequest,
    /// Its records, if they fit in the memory set aside for them.
    pub(crate) payload: Option<Box<[u8]>>,
    /// Where it lies.
    pub(crate) device: Arc<dyn Device>,
}

/// What a device holds from the checkpoint on.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    /// The device's or archive's name.
    pub(crate) name: String,
    /// Intact requests in the order in which they were written, void ones included.
    pub(crate) found: Vec<Found>,
    /// What cannot be explained by a power cut.
    pub(crate) damage: Vec<Damage>,
    /// The largest durable end to which a request testifies, and where.
    pub(crate) witness: (Lsn, u64),
    /// Sections that were read, with the largest end LSN up to their end.
    pub(crate) sections: Vec<(u64, Lsn)>,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
    /// The largest end LSN on the device.
    pub(crate) stream_lsn: Lsn,
}

/// What a scan needs to know beside the device.
#[derive(Clone)]
pub(crate) struct Scope {
    pub(crate) checkpoint: Lsn,
    /// The newest epoch that the slots know.
    pub(crate) epoch: u64,
    /// Payload bytes that may still be kept.
    pub(crate) memory: Arc<AtomicI64>,
    pub(crate) progress: Arc<Progress>,
}

/// Reads a device from the place located for the checkpoint.
pub(crate) fn scan(member: &Member, sections: &Sections, scope: &Scope) -> Result<Scan> {
    let scan = Scan { name: member.device.name().into(), ..Scan::default() };
    let mut scanner = Scanner { member, scope, scan, chunks: Chunks::new(Arc::clone(&member.device)) };
    match sections.locate(member, scope.checkpoint) {
        Err(damage) => scanner.scan.damage.push(damage),
        Ok(None) => scanner.search_proof(0, member.layout.section(0).start, false)?,
        Ok(Some(start)) => scanner.walk_from(sections, start)?,
    }
    Ok(scanner.scan)
}

struct Scanner<'a> {
    member: &'a Member,
    scope: &'a Scope,
    scan: Scan,
    chunks: Chunks,
}

impl Scan {
    /// Takes an intact request, of which `whole` starts with the header, if any of it lies behind the checkpoint.
    pub(crate) fn take(&mut self, request: DecodedRequest, whole: &[u8], scope: &Scope, device: &Arc<dyn Device>) {
        let header = request.header;
        if header.end() > scope.checkpoint {
            let payload = &whole[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize];
            let payload = reserve(&scope.memory, payload.len()).then(|| payload.into());
            self.found.push(Found { request, payload, device: Arc::clone(device) });
        }
    }
}

impl Scanner<'_> {
    /// Walks the sections from `start` to the last, and looks behind it.
    fn walk_from(&mut self, sections: &Sections, start: Start) -> Result<()> {
        let sections = &sections.sections[start.index..];
        self.scan.stream_lsn = start.stream_lsn;
        let mut expected = (start.at == BLOCK as u64).then_some(sections[0].first_sequence);
        let behind = sections[sections.len() - 1].number + 1;
        for (at, section) in sections.iter().enumerate() {
            self.chunks.ahead_to(self.member.layout.run_end(section.number, behind));
            let next = sections.get(at + 1);
            if next.is_some_and(|next| next.number != section.number + 1) {
                let what = format!("section {} is missing", section.number + 1);
                let missing = self.member.layout.section(section.number + 1).start;
                self.damage(missing, what);
            }
            let from = if at == 0 { start.at } else { BLOCK as u64 };
            self.walk(section.number, from, expected, next.map(|next| next.first_sequence))?;
            self.scan.sections.push((section.number, self.scan.stream_lsn));
            self.scan.next_number = section.number + 1;
            expected = Some(self.scan.next_sequence);
        }
        // Behind the last section there may be one whose first write was torn; but then nothing came after it.
        let behind = self.member.layout.section(self.scan.next_number);
        self.chunks.ahead_to(behind.end);
        self.search_proof(self.scan.next_number, behind.start, false)
    }

    /// Walks a section's requests from its byte `from`. `expected` is the first one's sequence number, `until` that of the
    /// first request of the next section, if there is a next section.
    fn walk(&mut self, number: u64, from: u64, expected: Option<u64>, until: Option<u64>) -> Result<()> {
        let section = self.member.layout.section(number);
        let mut offset = section.start + from;
        let mut expected = expected;
        while offset < section.end && (until.is_none() || expected != until) {
            match self.request_at(offset, section.end, number, expected)? {
                Err(what) => {
                    if until.is_some() {
                        self.damage(offset, what);
                        expected = until;
                    }
                    break;
                }
                Ok(header) => {
                    offset += self.member.layout.request_bytes(header.bytes());
                    expected = Some(header.sequence + 1);
                    self.scan.stream_lsn = self.scan.stream_lsn.max(header.end());
                }
            }
        }
        self.scan.next_sequence = expected.unwrap_or(0);
        match until {
            None => self.search_proof(number, offset, self.member.layout.depth > 1),
            Some(until) if expected != Some(until) => {
                let what = format!("the section ends before request {until}, with which the next one starts");
                self.damage(offset.min(section.end - BLOCK as u64), what);
                self.scan.next_sequence = until;
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Takes the request at `offset` if it is the expected one and intact; otherwise says what is wrong with it.
    fn request_at(
        &mut self,
        offset: u64,
        section_end: u64,
        number: u64,
        expected: Option<u64>,
    ) -> Result<std::result::Result<RequestHeader, String>> {
        let member = self.member;
        let found = self.chunks.read(offset, HEADER_BYTES as u64, section_end, &self.scope.progress)?;
        let request = match member.decode_request(found, offset) {
            Ok(request) => request,
            Err(error) => return Ok(Err(format!("no request: {error}"))),
        };
        let header = request.header;
        if header.section != number || expected.is_some_and(|expected| expected != header.sequence) {
            let (section, sequence) = (header.section, header.sequence);
            return Ok(Err(format!("request {sequence} of section {section} stands where another was written")));
        }
        let bytes = member.layout.request_bytes(header.bytes());
        if bytes > section_end - offset {
            return Ok(Err(format!("the request's {bytes} bytes exceed its section")));
        }
        // The header is intact, so what it says was true, whatever became of the payload.
        self.scan.witness = self.scan.witness.max((header.durable_lsn, offset));
        if header.epoch > self.scope.epoch {
            let (epoch, known) = (header.epoch, self.scope.epoch);
            self.damage(
                offset,
                format!("a request of epoch {epoch} proves that a newer slot than epoch {known}'s was lost"),
            );
        }
        if member.is_hiding && header.start < header.stream_lsn {
            let (start, before) = (header.start, header.stream_lsn);
            let what = "but LSNs in a hiding area never decrease";
            self.damage(offset, format!("a request from LSN {start} on stands behind one up to LSN {before}, {what}"));
        }
        let whole = self.chunks.read(offset, bytes, section_end, &self.scope.progress)?;
        if let Err(error) = request.check_payload(whole) {
            return Ok(Err(format!("damaged request: {error}")));
        }
        self.scan.take(request, whole, self.scope, &member.device);
        Ok(Ok(header))
    }

    /// Behind the last intact request: any request of the same section there proves that the device went on, so that
    /// what is not intact in between was durable once. Unless a gap may be there: then they only tell what was durable.
    fn search_proof(&mut self, number: u64, from: u64, may_have_gap: bool) -> Result<()> {
        let member = self.member;
        let section_end = member.layout.section(number).end;
        let mut offset = from;
        while offset < section_end {
            let bytes = self.chunks.read(offset, HEADER_BYTES as u64, section_end, &self.scope.progress)?;
            let later = member.decode_request(bytes, offset).ok().map(|later| later.header);
            if let Some(later) = later.filter(|later| later.section == number && offset > from) {
                self.scan.witness = self.scan.witness.max((later.durable_lsn, offset));
                if may_have_gap {
                    offset += member.layout.alignment;
                    continue;
                }
                let what =
                    format!("a request is damaged, but a later one (request {} at {offset}) is there", later.sequence);
                self.damage(from, what);
                return Ok(());
            }
            offset += member.layout.alignment;
        }
        Ok(())
    }

    fn damage(&mut self, offset: u64, what: String) {
        let damage = self.member.damage(offset, self.scan.stream_lsn, what);
        self.scan.damage.push(damage);
    }
}

/// Takes `bytes` from the memory for payloads, or nothing.
fn reserve(memory: &AtomicI64, bytes: usize) -> bool {
    let bytes = bytes as i64;
    let lower = |left: i64| (left >= bytes).then(|| left - bytes);
    memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower).is_ok()
}
