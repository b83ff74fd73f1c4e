//! Finding an archive and reading it: from a position to its end, which a power cut may have torn.

use std::sync::Arc;

use tantalum_device::{Access, Device, Durability};

use super::circle::Circle;
use super::directory::{Directory, Found as FoundDirectory};
use super::store::{Segment, Store};
use super::writer::{MAX_WRITE_BYTES, device_bytes};
use super::{ArchiveOptions, ArchiveTarget, archive_tag};
use crate::format::archive::{ArchiveSuperblock, CONTROL_BYTES, SegmentHeader};
use crate::format::request::RequestHeader;
use crate::format::slot::{EpochStart, Slot};
use crate::format::{BLOCK, DecodeError, NUMBER_LIMIT, VERSION, round_up};
use crate::layout::{SUPERBLOCKS, slot_offset};
use crate::recovery::chunks::Chunks;
use crate::recovery::merge::is_void;
use crate::recovery::scan::{Scan, Scope};
use crate::{Damage, Error, Lsn, Result};

/// Segments of a directory have this size unless the options ask for another.
const DEFAULT_FILE_BYTES: u32 = 16 << 20;

/// An archive that was found.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub(crate) store: Arc<dyn Store>,
    /// What its two slots hold, if valid.
    pub(crate) slots: [Option<Slot>; 2],
}

/// What an archive holds from a position on.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) scan: Scan,
    /// Where the newest run starts.
    pub(crate) run_start: Lsn,
    /// Where the newest run ends.
    pub(crate) end: Lsn,
    /// The segments that were read: number and end.
    pub(crate) segments: Vec<(u64, Lsn)>,
    pub(crate) next_number: u64,
    pub(crate) next_sequence: u64,
}

impl Scanned {
    /// What was read does not count: the run is empty and starts at `run_start`.
    pub(crate) fn forget(&mut self, run_start: Lsn) {
        self.scan = Scan::default();
        self.segments.clear();
        (self.run_start, self.end) = (run_start, run_start);
    }
}

impl Archive {
    /// Looks for an archive. `None` where there is nothing at all.
    pub(crate) fn find(options: &ArchiveOptions, access: Access) -> Result<Option<Archive>> {
        options.check()?;
        let control = match &options.target {
            ArchiveTarget::Device(device) => Arc::clone(device),
            ArchiveTarget::Directory(path) => match Directory::find(path, access)? {
                FoundDirectory::Blank => return Ok(None),
                FoundDirectory::Control(control) => control,
            },
        };
        let Some(superblock) = read_superblock(&*control)? else { return Ok(None) };
        let mut block = vec![0; BLOCK];
        let mut slots = [None, None];
        for (parity, slot) in slots.iter_mut().enumerate() {
            control.read(slot_offset(parity as u64), &mut block)?;
            *slot = Slot::decode(&block).ok().filter(|slot| slot.log_id == superblock.log_id);
        }
        Ok(Some(Archive { store: store(options, control, superblock)?, slots }))
    }

    /// Makes an empty archive for the log `log_id`; what is there is lost. It becomes one with the last write, and has no
    /// slot yet.
    pub(crate) fn create(options: &ArchiveOptions, log_id: u128) -> Result<Archive> {
        options.check()?;
        let (control, superblock) = match &options.target {
            ArchiveTarget::Device(device) => {
                let superblock = Circle::divide(&**device, log_id, options.segment_bytes)?;
                (Arc::clone(device), superblock)
            }
            ArchiveTarget::Directory(path) => {
                let control = match Directory::find(path, Access::ReadWrite)? {
                    FoundDirectory::Blank => Directory::create(path)?,
                    FoundDirectory::Control(control) => control,
                };
                let segment_bytes = options.segment_bytes.unwrap_or(DEFAULT_FILE_BYTES);
                (control, ArchiveSuperblock { log_id, segment_bytes, segment_count: 0 })
            }
        };
        let zeros = vec![0; CONTROL_BYTES as usize];
        control.write(0, &[&zeros], Durability::Durable)?;
        match &options.target {
            ArchiveTarget::Device(_) => Circle::new(Arc::clone(&control), superblock)?.blank()?,
            ArchiveTarget::Directory(path) => Directory::new(path, Arc::clone(&control), superblock).blank()?,
        }
        for offset in SUPERBLOCKS {
            control.write(offset, &[&superblock.encode()], Durability::Durable)?;
        }
        Ok(Archive { store: store(options, control, superblock)?, slots: [None, None] })
    }

    pub(crate) fn log_id(&self) -> u128 {
        self.store.superblock().log_id
    }

    /// The number of the next segment.
    pub(crate) fn next_number(&self) -> Result<u64> {
        let segments = self.store.segments(Some(Lsn::new(NUMBER_LIMIT)), false)?;
        let numbers = segments.iter().filter_map(|segment| segment.header.ok()).map(|header| header.number);
        Ok(numbers.max().map_or(0, |newest| newest + 1))
    }

    /// What to say if the archive is not that of the log `expected`.
    pub(crate) fn foreign(&self, expected: u128) -> Error {
        Error::ForeignArchive { archive: self.store.name().into(), found: self.log_id(), expected }
    }

    /// The newest slot.
    pub(crate) fn slot(&self) -> Result<&Slot> {
        Slot::newest_of(self.slots.iter().flatten()).ok_or_else(|| Error::Corrupt {
            device: self.store.control().name().into(),
            offset: slot_offset(0),
            lsn: Lsn::ZERO,
            what: "the archive has no valid checkpoint slot".into(),
        })
    }

    /// The segments that hold what lies behind `from`, made durable, so that what is read of them stays.
    pub(crate) fn segments(&self, from: Lsn) -> Result<Vec<Segment>> {
        let segments = without_void(self.store.segments(Some(from), true)?);
        segments.iter().try_for_each(|segment| segment.place.device.flush())?;
        Ok(segments)
    }

    /// Reads what lies behind `scope.checkpoint` in these segments. `None` if nothing was ever archived.
    pub(crate) fn scan(&self, segments: &[Segment], epochs: &[EpochStart], scope: &Scope) -> Result<Option<Scanned>> {
        let Some(first) = segments.first() else { return Ok(None) };
        let mut walk = Walk {
            archive: self,
            scope,
            scanned: Scanned {
                scan: Scan { name: self.store.name().into(), ..Scan::default() },
                run_start: first.start,
                end: first.start,
                segments: Vec::new(),
                next_number: 0,
                next_sequence: 0,
            },
            chunks: Chunks::new(Arc::clone(&first.place.device)),
        };
        for (at, segment) in segments.iter().enumerate() {
            walk.segment(segment, segments.get(at + 1))?;
        }
        let mut scanned = walk.scanned;
        // What a crash left behind, and the log went on without.
        while let Some(last) = scanned.scan.found.pop() {
            if !is_void(&last.request.header, epochs) {
                scanned.scan.found.push(last);
                break;
            }
            scanned.end = last.request.header.start;
        }
        Ok(Some(scanned))
    }
}

/// Drops segments that start at or behind the start of a later one: the log was cut before they began.
fn without_void(mut segments: Vec<Segment>) -> Vec<Segment> {
    let number = |segment: &Segment| segment.header.map(|header| header.number).ok();
    // Damaged ones stay where their names put them.
    if segments.iter().all(|segment| segment.header.is_ok()) {
        segments.sort_by_key(number);
    }
    let mut cut = None;
    let mut kept: Vec<Segment> = Vec::new();
    for segment in segments.into_iter().rev() {
        if cut.is_none_or(|cut| segment.start < cut) {
            cut = Some(segment.start);
            kept.push(segment);
        }
    }
    kept.reverse();
    kept
}

struct Walk<'a> {
    archive: &'a Archive,
    scope: &'a Scope,
    scanned: Scanned,
    chunks: Chunks,
}

impl Walk<'_> {
    /// Reads a segment up to where the next one takes over, and judges what is missing in between.
    fn segment(&mut self, segment: &Segment, next: Option<&Segment>) -> Result<()> {
        let header = match segment.header {
            Ok(header) => header,
            // Made, and then the power was cut before its first write: nothing can follow it.
            Err(_) if next.is_none() => return Ok(()),
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
        let stopped = loop {
            if offset == end {
                break "the segment's end".to_owned();
            }
            match self.request(segment, &header, (offset, end), (sequence, at))? {
                Err(what) => break what,
                Ok(found) => {
                    offset += device_bytes(found.payload_bytes as usize);
                    sequence += 1;
                    at = found.end();
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
            None => self.search_proof(segment, &header, offset, end)?,
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

    /// Behind the last intact request of the last segment: a later request proves that the archive went on. It would
    /// start within the largest write.
    fn search_proof(&mut self, segment: &Segment, header: &SegmentHeader, from: u64, end: u64) -> Result<()> {
        let last = from + round_up(MAX_WRITE_BYTES) as u64 + BLOCK as u64;
        let mut offset = from + BLOCK as u64;
        while offset < end.min(last) {
            let block = self.chunks.read(offset, BLOCK as u64, end, &self.scope.progress)?;
            let later = decode_request(self.archive.log_id(), block, offset).ok().map(|later| later.header);
            if let Some(later) = later.filter(|later| later.section == header.number) {
                let (sequence, start) = (later.sequence, later.start);
                let what = format!(
                    "a request is damaged, but a later one (request {sequence}, LSN {start}, at {offset}) is there"
                );
                self.damage(segment, from, what);
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
fn decode_request(
    log_id: u128,
    bytes: &[u8],
    offset: u64,
) -> Result<crate::format::request::DecodedRequest, DecodeError> {
    let request = RequestHeader::decode(bytes)?;
    match request.header {
        header if header.device_tag != archive_tag(log_id) => {
            Err(DecodeError::Field { field: "identity", value: header.device_tag })
        }
        header if header.offset != offset => Err(DecodeError::Field { field: "offset", value: header.offset }),
        _ => Ok(request),
    }
}

fn store(options: &ArchiveOptions, control: Arc<dyn Device>, superblock: ArchiveSuperblock) -> Result<Arc<dyn Store>> {
    let wrong = |what: &str| Error::NotAnArchive { archive: control.name().into(), what: what.into() };
    match (&options.target, superblock.segment_count) {
        (ArchiveTarget::Device(_), 0) => Err(wrong("it is the control file of an archive in a directory")),
        (ArchiveTarget::Device(_), _) => Ok(Arc::new(Circle::new(control, superblock)?)),
        (ArchiveTarget::Directory(path), 0) => Ok(Arc::new(Directory::new(path, control, superblock))),
        (ArchiveTarget::Directory(_), _) => Err(wrong("its superblock is that of an archive on a device")),
    }
}

/// Reads the superblock, or its copy. `None` if the control area is blank.
fn read_superblock(control: &dyn Device) -> Result<Option<ArchiveSuperblock>> {
    let name = || control.name().to_string();
    let not_an_archive = |what: String| Err(Error::NotAnArchive { archive: name(), what });
    if control.capacity_bytes() < CONTROL_BYTES {
        return not_an_archive(format!("{} bytes are too few", control.capacity_bytes()));
    }
    let mut blocks = vec![0; CONTROL_BYTES as usize];
    control.read(0, &mut blocks)?;
    let mut failures = Vec::new();
    for offset in SUPERBLOCKS {
        match ArchiveSuperblock::decode(&blocks[offset as usize..][..BLOCK]) {
            Ok(superblock) => return Ok(Some(superblock)),
            Err(DecodeError::NewerVersion { found }) => {
                return Err(Error::NewerVersion { device: name(), offset, found, supported: VERSION });
            }
            Err(error) => failures.push(error),
        }
    }
    match failures.iter().find(|error| **error != DecodeError::Magic) {
        Some(error) => not_an_archive(format!("both superblocks are damaged: {error}")),
        None if blocks.iter().all(|byte| *byte == 0) => Ok(None),
        None => not_an_archive("its first blocks hold something else".into()),
    }
}
