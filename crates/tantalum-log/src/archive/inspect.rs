//! Inspecting, verifying and reading an archive without changing it; the log may be open meanwhile.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::SystemTime;

use super::ArchiveTarget;
use super::reader::{Archive, Scanned, without_void};
use super::store::Segment;
use super::walk::Walk;
use crate::format::from_us;
#[cfg(feature = "serde")]
use crate::inspect::as_hex;
use crate::recovery::merge::is_void;
use crate::recovery::scan::{Scan, Scope};
use crate::recovery::{Progress, Reader};
use crate::{Damage, Error, Lsn, Record, RecoveryPhase, RecoveryProgress, Result, error};

/// Payload bytes of a segment that are kept between checking it and delivering its records; the rest is read twice.
const MEMORY_BYTES: i64 = 32 << 20;

/// The contents of an archive, from [`inspect_archive`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ArchiveInspection {
    /// The directory's path or the device's name.
    pub name: String,
    /// The identity of the log that is archived.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_hex::<32, _, _>"))]
    pub log_id: u128,
    /// Bytes that a segment takes at most.
    pub segment_bytes: u32,
    /// How many segments a device has room for; `None` in a directory.
    pub segment_count: Option<u32>,
    /// Where recovery would start, as far as the archive knows.
    pub checkpoint_lsn: Option<Lsn>,
    /// Whether the log cannot be opened without the archive, as far as the archive knows.
    pub is_needed: bool,
    /// The segments, oldest first. Those whose records were cut off, and archived anew, are not among them.
    pub segments: Vec<ArchiveSegment>,
    /// The runs without a gap, oldest first.
    pub runs: Vec<ArchiveRun>,
}

/// A segment of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ArchiveSegment {
    /// The file, or the device.
    pub place: String,
    /// Where it starts there, in bytes.
    pub offset: u64,
    /// Bytes that it takes.
    pub bytes: u64,
    /// Its number, if its header is intact.
    pub number: Option<u64>,
    /// Where its records start.
    #[cfg_attr(feature = "serde", serde(rename = "start_lsn"))]
    pub start: Lsn,
    /// Where its records end.
    #[cfg_attr(feature = "serde", serde(rename = "end_lsn"))]
    pub end: Lsn,
    /// When it was begun, if its header is intact.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_times"))]
    pub begun: Option<SystemTime>,
    /// The damage of its header.
    pub damage: Option<String>,
}

/// A stretch of the log that an archive has without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ArchiveRun {
    /// Where it starts, as far as the archive still has it.
    #[cfg_attr(feature = "serde", serde(rename = "start_lsn"))]
    pub start: Lsn,
    /// Where it ends.
    #[cfg_attr(feature = "serde", serde(rename = "end_lsn"))]
    pub end: Lsn,
    /// When its first segment was begun.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_time"))]
    pub begun: SystemTime,
    /// The time of its last records; when it was begun if it has none.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_time"))]
    pub last: SystemTime,
}

#[cfg(feature = "serde")]
fn as_time<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&tantalum_rt::rfc3339(*time), serializer)
}

#[cfg(feature = "serde")]
fn as_times<S: serde::Serializer>(time: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&time.map(tantalum_rt::rfc3339), serializer)
}

impl ArchiveSegment {
    pub(super) fn new(segment: &Segment, end: Lsn) -> ArchiveSegment {
        let header = segment.header.ok();
        ArchiveSegment {
            place: segment.place.device.name().into(),
            offset: segment.place.range.start,
            bytes: segment.place.bytes(),
            number: header.map(|header| header.number),
            start: segment.start,
            end,
            begun: header.map(|header| from_us(header.time_us)),
            damage: segment.header.err().map(|error| error.to_string()),
        }
    }
}

/// Lists what is in an archive. Reads headers, and whole segments only where an end cannot be told otherwise.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{ArchiveOptions, Log, LogOptions, inspect_archive};
/// let archive = ArchiveOptions::on_device(MemoryDevice::new("archive", 4 << 20));
/// let options = LogOptions { archive: Some(archive.clone()), ..LogOptions::default() };
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20)];
/// Log::create(7, devices.clone(), options.clone())?;
/// let log = Log::open(devices, options, &mut |_| {})?.finish()?;
/// let end = log.append(&[b"a record"])?.end;
/// log.flush_archived(end)?;
/// assert_eq!(inspect_archive(&archive.target)?.runs[0].end, end);
/// # Ok::<(), tantalum_log::Error>(())
/// ```
///
/// # Errors
/// [`NotArchived`](crate::ErrorKind::NotArchived) if there is no archive, and read errors.
pub fn inspect_archive(target: &ArchiveTarget) -> Result<ArchiveInspection> {
    let archive = Archive::open(target)?;
    let slot = archive.slot().ok();
    let (segments, _) = without_void(archive.store.segments(None, false)?);
    let mut listed = Vec::new();
    let mut runs: Vec<ArchiveRun> = Vec::new();
    let mut scanned = Scanned::default();
    for (at, segment) in segments.iter().enumerate() {
        let next = segments.get(at + 1);
        let Ok(header) = segment.header else {
            listed.push(ArchiveSegment::new(segment, next.map_or(segment.start, |next| next.start)));
            continue;
        };
        let begins_run = runs.last().is_none_or(|run| header.run_start > run.end);
        let begun = from_us(header.time_us);
        if begins_run {
            runs.push(ArchiveRun { start: segment.start, end: segment.start, begun, last: begun });
        }
        let run = runs.last_mut().expect("the first segment begins a run");
        match next.and_then(|next| next.header.ok()).filter(|next| next.run_start == header.run_start) {
            // Of those between, only the last one's times are asked for.
            Some(next) => (run.end, run.last) = (next.start, begun.max(run.last)),
            None => {
                let scope = whole_scope(&archive, 0);
                let mut walk = Walk::new(&archive, &scope, scanned);
                walk.segment(segment, next)?;
                drop_void(&archive, &mut walk.scanned);
                let last = walk.scanned.scan.found.last().map(|last| from_us(last.request.header.time_us));
                (run.end, run.last) = (walk.scanned.end, last.unwrap_or(run.last));
                scanned = walk.scanned;
            }
        }
        listed.push(ArchiveSegment::new(segment, run.end));
    }
    let superblock = archive.store.superblock();
    Ok(ArchiveInspection {
        name: archive.store.name().into(),
        log_id: superblock.log_id,
        segment_bytes: superblock.segment_bytes,
        segment_count: (superblock.segment_count > 0).then_some(superblock.segment_count),
        checkpoint_lsn: slot.map(|slot| slot.checkpoint),
        is_needed: slot.is_some_and(|slot| slot.needs_archive),
        segments: listed,
        runs,
    })
}

/// The result of [`verify_archive`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ArchiveVerification {
    /// Everything that is wrong, by file or device and offset.
    pub damage: Vec<Damage>,
    /// Intact requests.
    pub requests: u64,
    /// The records in them.
    pub records: u64,
    /// Their bytes, framing not included.
    pub record_bytes: u64,
    /// The runs without a gap, oldest first. Between two runs lie records that were not archived.
    pub runs: Vec<ArchiveRun>,
}

/// Reads everything in an archive and reports every damage rather than the first.
///
/// # Errors
/// [`NotArchived`](crate::ErrorKind::NotArchived) if there is no archive, and read errors.
pub fn verify_archive(target: &ArchiveTarget, report: &mut dyn FnMut(RecoveryProgress)) -> Result<ArchiveVerification> {
    let (segments, _) = without_void(Archive::open(target)?.store.segments(None, false)?);
    // With the checkpoint of now: what an earlier one needed may be overwritten.
    let archive = Archive::open(target)?;
    let mut result =
        ArchiveVerification { damage: Vec::new(), requests: 0, records: 0, record_bytes: 0, runs: Vec::new() };
    let total_bytes = segments.iter().map(|segment| segment.place.bytes()).sum();
    let mut done_bytes = 0;
    match (archive.slot(), segments.first()) {
        (Ok(slot), Some(first)) => result.damage.extend(archive.missing_before(first, slot.checkpoint)),
        (Err(error), _) => result.damage.extend(error.cause::<Damage>().cloned()),
        (Ok(_), None) => {}
    }
    let mut scanned = Scanned::default();
    for (at, segment) in segments.iter().enumerate() {
        report(RecoveryProgress { phase: RecoveryPhase::Archive, done_bytes, total_bytes });
        let scope = whole_scope(&archive, MEMORY_BYTES);
        let mut walk = Walk::new(&archive, &scope, scanned);
        walk.segment(segment, segments.get(at + 1))?;
        scanned = walk.scanned;
        done_bytes += segment.place.bytes();
        if !scanned.scan.damage.is_empty() && is_overwritten(&archive, segment)? {
            // What it held is no longer part of the archive.
            scanned = Scanned::default();
            result.runs.clear();
            continue;
        }
        drop_void(&archive, &mut scanned);
        let Scan { found, damage, .. } = std::mem::take(&mut scanned.scan);
        result.damage.extend(damage);
        result.requests += found.len() as u64;
        if let Ok(header) = segment.header {
            let begun = from_us(header.time_us);
            if result.runs.last().is_none_or(|run| header.run_start > run.end) {
                result.runs.push(ArchiveRun { start: segment.start, end: segment.start, begun, last: begun });
            }
            let run = result.runs.last_mut().expect("there is one now");
            let last = found.last().map(|last| from_us(last.request.header.time_us));
            (run.end, run.last) = (scanned.end, last.unwrap_or(run.last));
        }
        let mut scans = [Scan { found, ..Scan::default() }];
        let mut reader = in_order(&scans[0], Lsn::ZERO);
        loop {
            match reader.next(&mut scans) {
                Ok(None) => break,
                Ok(Some(record)) => {
                    result.records += 1;
                    result.record_bytes += record.bytes.len() as u64;
                }
                Err(error) => {
                    if !is_overwritten(&archive, segment)? {
                        result.damage.extend(error.cause::<Damage>().cloned());
                    }
                    break;
                }
            }
        }
    }
    report(RecoveryProgress { phase: RecoveryPhase::Archive, done_bytes, total_bytes });
    Ok(result)
}

/// One record of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRecord {
    /// The record, as it was appended.
    pub record: Record,
    /// It was appended before this time, by the wall clock, and nothing of it was durable more than half a second earlier:
    /// what the archive joins into one request within that time has the time of the last.
    pub time: SystemTime,
}

/// The records of an archive, from a position to its end or to the first gap.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{ArchiveOptions, ArchiveReader, Log, LogOptions, Lsn};
/// # let archive = ArchiveOptions::on_device(MemoryDevice::new("archive", 4 << 20));
/// # let options = LogOptions { archive: Some(archive.clone()), ..LogOptions::default() };
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20)];
/// # Log::create(7, devices.clone(), options.clone())?;
/// # let log = Log::open(devices, options, &mut |_| {})?.finish()?;
/// log.flush_archived(log.append(&[b"a record"])?.end)?;
/// let mut reader = ArchiveReader::open(&archive.target, Lsn::ZERO)?;
/// while let Some(archived) = reader.next_record()? {
///     println!("{} bytes at {}", archived.record.bytes.len(), archived.record.start);
/// }
/// assert_eq!(reader.end_lsn(), log.end_lsn());
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Debug)]
pub struct ArchiveReader {
    archive: Archive,
    from: Lsn,
    segments: VecDeque<Segment>,
    /// The segment that is being delivered.
    current: Option<Segment>,
    /// What was read of the segments so far, their requests not included.
    scanned: Scanned,
    /// Its requests.
    scan: [Scan; 1],
    reader: Reader,
    /// What is to be said once the records before it are delivered.
    failure: Option<Error>,
    done_bytes: u64,
    total_bytes: u64,
}

impl ArchiveReader {
    /// Begins at `from`, a record's start.
    ///
    /// # Errors
    /// [`NotArchived`](crate::ErrorKind::NotArchived) if there is no archive, or it does not reach back so far, and read
    /// errors.
    pub fn open(target: &ArchiveTarget, from: Lsn) -> Result<ArchiveReader> {
        let archive = Archive::open(target)?;
        let (segments, _) = without_void(archive.store.segments(Some(from), false)?);
        let start = segments.first().map(|first| first.start);
        if start.is_none_or(|start| start > from) {
            let to = start.unwrap_or(from);
            return Err(error::not_archived(archive.store.name(), from, to));
        }
        Ok(ArchiveReader {
            from,
            current: None,
            scanned: Scanned::default(),
            scan: [Scan::default()],
            reader: Reader::new(Vec::new(), from),
            failure: None,
            done_bytes: 0,
            total_bytes: segments.iter().map(|segment| segment.place.bytes()).sum(),
            segments: segments.into(),
            archive,
        })
    }

    /// The identity of the log that is archived.
    pub fn log_id(&self) -> u128 {
        self.archive.log_id()
    }

    /// Where the records end that have been read; after [`next_record`](Self::next_record) returned `None`, where the
    /// archive ends, or its gap begins.
    pub fn end_lsn(&self) -> Lsn {
        self.scanned.end
    }

    /// Bytes of the archive that have been read, and all that there are to read.
    pub fn progress(&self) -> RecoveryProgress {
        let (done_bytes, total_bytes) = (self.done_bytes, self.total_bytes);
        RecoveryProgress { phase: RecoveryPhase::Archive, done_bytes, total_bytes }
    }

    /// Where the archive goes on behind the gap that ended the reading, if there was one.
    pub fn gap_end(&self) -> Option<Lsn> {
        let header = self.segments.front()?.header.ok()?;
        (!self.scanned.segments.is_empty() && header.run_start > self.scanned.end).then_some(header.run_start)
    }

    /// The next record; `None` at the archive's end, and at a gap.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) with file and offset where the archive is damaged, once all records
    /// before are delivered; [`NotArchived`](crate::ErrorKind::NotArchived) where the log, which is open, has overwritten
    /// them; read errors.
    pub fn next_record(&mut self) -> Result<Option<ArchivedRecord>> {
        loop {
            let next = self.reader.next(&mut self.scan);
            if let Some(record) = next.or_else(|error| Err(self.unless_overwritten(error)?))? {
                return Ok(Some(ArchivedRecord { record, time: from_us(self.reader.time_us()) }));
            }
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if self.gap_end().is_some() || !self.next_segment()? {
                return Ok(None);
            }
        }
    }

    /// Whether a record follows, before the archive's end or a gap.
    ///
    /// # Errors
    /// As [`next_record`](Self::next_record).
    pub(crate) fn has_record(&mut self) -> Result<bool> {
        while !self.reader.has_more() {
            if let Some(failure) = &self.failure {
                return Err(failure.clone());
            }
            if self.gap_end().is_some() || !self.next_segment()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads the next segment. False if there is none.
    fn next_segment(&mut self) -> Result<bool> {
        let Some(segment) = self.segments.pop_front() else { return Ok(false) };
        let scope = Scope { checkpoint: self.from, ..whole_scope(&self.archive, MEMORY_BYTES) };
        let mut walk = Walk::new(&self.archive, &scope, std::mem::take(&mut self.scanned));
        walk.segment(&segment, self.segments.front())?;
        self.scanned = walk.scanned;
        self.done_bytes += segment.place.bytes();
        self.current = Some(segment);
        drop_void(&self.archive, &mut self.scanned);
        self.scan = [std::mem::take(&mut self.scanned.scan)];
        let damage = self.scan[0].damage.first().cloned();
        self.failure = damage.map(|damage| self.unless_overwritten(damage.into())).transpose()?;
        self.reader = in_order(&self.scan[0], self.from);
        Ok(true)
    }

    /// What to say of damage to the segment that is being delivered.
    fn unless_overwritten(&self, damage: Error) -> Result<Error> {
        let Some(segment) = &self.current else { return Ok(damage) };
        if !is_overwritten(&self.archive, segment)? {
            return Ok(damage);
        }
        let from = self.scanned.end.max(segment.start);
        let to = self.segments.front().map_or(from, |next| next.start);
        Ok(error::not_archived(self.archive.store.name(), from, to))
    }
}

/// Without bounds, and so many payload bytes in memory.
fn whole_scope(archive: &Archive, memory_bytes: i64) -> Scope {
    Scope {
        checkpoint: Lsn::ZERO,
        epoch: archive.slot().map_or(u64::MAX, |slot| slot.newest().epoch),
        memory: Arc::new(AtomicI64::new(memory_bytes)),
        progress: Progress::unwatched(),
    }
}

/// Drops what a crash left behind at the end of what was read, and the log went on without.
fn drop_void(archive: &Archive, scanned: &mut Scanned) {
    let Ok(slot) = archive.slot() else { return };
    let found = &mut scanned.scan.found;
    if let Some(first) = found.iter().position(|found| is_void(&found.request.header, &slot.epochs)) {
        scanned.end = found[first].request.header.start;
        found.truncate(first);
    }
}

/// Whether a newer segment may have taken the place of this one, or be about to: on a device, the archive goes round. A write
/// that is under way, or that a power cut tore, may have come before its own header.
fn is_overwritten(archive: &Archive, segment: &Segment) -> Result<bool> {
    let count = u64::from(archive.store.superblock().segment_count);
    let Some(header) = segment.header.ok().filter(|_| count > 0) else { return Ok(false) };
    let is_replaced = segment.place.read_header(archive.log_id())? != segment.header;
    Ok(is_replaced || header.number + count <= archive.next_number()?)
}

/// Delivers the requests of one scan in their order.
fn in_order(scan: &Scan, from: Lsn) -> Reader {
    Reader::new((0..scan.found.len()).map(|index| (0, index)).collect(), from)
}
