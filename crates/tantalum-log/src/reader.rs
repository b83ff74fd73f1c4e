//! Reading a running log: its records in the order of their LSNs, from a position on, for a reader that comes back.
//!
//! A reader looks for the request that holds its position. In each area of each device it has a place behind the requests that it has
//! seen there, and the headers of those that lie ahead of it; of what a device has written, only whole requests count whose epoch
//! wrote them and whose records no later epoch gave up. A section that was overwritten bears another number, so what stands there is
//! not mistaken for what was. Records that the devices have no more are read from the archive.
//!
//! It reads what is durable, keeps nothing from being overwritten, and holds no lock while it reads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device};

use crate::format::BLOCK;
use crate::format::request::{DecodedRequest, HEADER_BYTES};
use crate::format::slot::EpochStart;
use crate::recovery::locate::Sections;
use crate::recovery::members::Member;
use crate::recovery::merge::is_void;
use crate::recovery::{Record, Records};
use crate::scheduler::Scheduler;
use crate::{ArchiveInspection, ArchiveReader, Error, ErrorKind, Lsn, Result, inspect_archive, space};

/// Bytes of one read of a device, at least and at most.
const WINDOW_BYTES: (u64, u64) = (16 << 10, 1 << 20);
/// A reader that moves further than this looks for its position in the sections' headers, and not in those of all requests up to there.
const NEAR_BYTES: u64 = 256 << 10;
/// The sections' headers are read again for a move when so much was appended since: they lead to a request of the older sections, and
/// only to the beginning of the newest one.
const HEADERS_BYTES: u64 = 16 << 20;

/// A reader's position lies before what the log, and its archive, still have: the source of an error of kind
/// [`FellBehind`](ErrorKind::FellBehind).
///
/// ```
/// use tantalum_log::{FellBehind, Lsn};
///
/// let error = FellBehind { oldest: Lsn::new(7) };
/// assert!(error.to_string().contains("7"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FellBehind {
    /// From here on, all records could be read when the error was made.
    pub oldest: Lsn,
}

impl fmt::Display for FellBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the log begins at LSN {}", self.oldest)
    }
}

impl std::error::Error for FellBehind {}

/// Reads the durable records of a running log in their order. From [`Log::reader`](crate::Log::reader).
///
/// One task uses a reader at a time; a log has any number of them. A reader does not keep the log open.
///
/// ```
/// # use std::{sync::Arc, time::Duration};
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions};
/// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
/// # Log::create(7, vec![device.clone()], LogOptions::default())?;
/// # let log = Log::open(vec![device], LogOptions::default(), &mut |_| {})?.finish()?;
/// let mut reader = log.reader(log.end_lsn())?;
/// log.append(&[b"a record"])?;
/// assert_eq!(reader.next_record()?, None, "it is not durable yet");
/// log.flush(log.end_lsn())?;
/// assert!(reader.wait(Duration::from_secs(1))?);
/// assert_eq!(reader.next_record()?.map(|record| record.bytes), Some(b"a record".to_vec()));
/// # Ok::<(), tantalum_log::Error>(())
/// ```
pub struct LogReader {
    scheduler: Arc<Scheduler>,
    /// Where the next record starts.
    at: Lsn,
    /// `None` after an error: they are looked for anew.
    areas: Option<Vec<Area>>,
    /// Requests of older epochs than the first are not trusted: which of them count is not known any more.
    epochs: Vec<EpochStart>,
    archived: Option<Box<ArchiveReader>>,
    /// The rest of the request that is being delivered, and where it ends.
    current: Option<Records>,
    current_end: Lsn,
    /// Why a device cannot be read, since the devices were looked for.
    unreadable: Option<Error>,
    /// Where it began, or came to by a far move: at first little is read of a device at once, and more as it reads on.
    moved_to: Lsn,
    /// How far the log was durable when the areas were looked for.
    located_to: Lsn,
}

/// A main or hiding area, and how far it has been looked at.
struct Area {
    member: Member,
    /// The section, and the byte of the device in it, behind the last request that was seen.
    number: u64,
    offset: u64,
    /// Headers of requests that were seen and do not lie wholly before the reader's position.
    ahead: Vec<DecodedRequest>,
    /// As their headers were when the areas were looked for.
    sections: Sections,
    window: Window,
}

/// What was read of a device last.
struct Window {
    offset: u64,
    bytes: AlignedBuffer,
    len: usize,
}

impl LogReader {
    /// Begins at `at`, where a durable record starts or ends.
    pub(crate) fn new(scheduler: Arc<Scheduler>, at: Lsn) -> Result<LogReader> {
        let durable = scheduler.durable();
        check_durable(at, durable)?;
        let mut reader = LogReader {
            scheduler,
            at,
            areas: None,
            epochs: Vec::new(),
            archived: None,
            current: None,
            current_end: at,
            unreadable: None,
            moved_to: at,
            located_to: Lsn::ZERO,
        };
        // The devices of now are read from to their end, also when they have left the log.
        reader.locate();
        Ok(reader)
    }

    /// Where the next record starts.
    pub fn position(&self) -> Lsn {
        self.at
    }

    /// Goes on at `at`, where a durable record starts or ends, before or behind the position. A short way ahead takes no more reads than
    /// the records between; any other move reads a header of each section of the devices, if much was appended since they were read.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{Log, LogOptions};
    /// # let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
    /// # Log::create(7, vec![device.clone()], LogOptions::default())?;
    /// # let log = Log::open(vec![device], LogOptions::default(), &mut |_| {})?.finish()?;
    /// let places = [log.append(&[b"a"])?, log.append(&[b"b"])?, log.append(&[b"c"])?];
    /// log.flush(log.end_lsn())?;
    /// let mut reader = log.reader(places[2].start)?;
    /// assert_eq!(reader.next_record()?.map(|record| record.bytes), Some(b"c".to_vec()));
    /// reader.seek(places[1].start)?;
    /// assert_eq!(reader.next_record()?.map(|record| record.bytes), Some(b"b".to_vec()));
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the log is not durable so far.
    pub fn seek(&mut self, at: Lsn) -> Result<()> {
        check_durable(at, self.scheduler.durable())?;
        let is_ahead = at >= self.at;
        match &mut self.current {
            Some(current) if is_ahead && at < self.current_end => current.skip_to(at),
            _ => {
                self.current = None;
                if !is_ahead || at.bytes_since(self.at) > NEAR_BYTES {
                    self.moved_to = at;
                    self.move_areas(at);
                }
            }
        }
        self.archived = None;
        self.at = at;
        Ok(())
    }

    /// Has the areas lead to `at`, by the headers that were read; if these do not suffice, they are looked for anew.
    fn move_areas(&mut self, at: Lsn) {
        let appended = self.scheduler.durable().bytes_since(self.located_to);
        if at >= self.located_to || appended > HEADERS_BYTES {
            self.areas = None;
        }
        self.areas.iter_mut().flatten().for_each(|area| area.go_to(at));
    }

    /// Blocks until a record can be read, and returns true; or false after `timeout`. Lets nothing be written that would not be.
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned), [`Closed`](ErrorKind::Closed).
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        self.scheduler.wait_until_durable_beyond(self.at, timeout)
    }

    /// The next record; `None` where the log is not durable any further.
    ///
    /// # Errors
    /// [`FellBehind`](ErrorKind::FellBehind), with the [`FellBehind`] as its source, if the record was overwritten and is not archived;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if no record starts at the position; damage and read errors of the archive, and of a
    /// device that alone has the record.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(place) = current.next_record()? {
                    let bytes = current.bytes()[place.bytes].to_vec();
                    return self.deliver(Record { start: place.start, end: place.end, bytes }).map(Some);
                }
                if self.at < self.current_end {
                    return Err(self.no_record_here(self.current_end));
                }
                self.current = None;
            }
            let durable = self.scheduler.durable();
            if self.at >= durable {
                return Ok(None);
            }
            if let Some(archived) = &mut self.archived {
                match archived.next_record() {
                    // It was overwritten since it was found.
                    Err(error) if error.kind() == ErrorKind::NotArchived => self.archived = None,
                    // A device may have it.
                    Err(error) => {
                        self.archived = None;
                        self.locate();
                        if !self.read(durable) {
                            return Err(error);
                        }
                        continue;
                    }
                    Ok(Some(archived)) if archived.record.end <= durable => {
                        return self.deliver(archived.record).map(Some);
                    }
                    Ok(_) if archived.end_lsn() > self.at => return Err(self.no_record_here(durable)),
                    Ok(_) => self.archived = None,
                }
            }
            if !self.find(durable)? {
                return Err(self.fell_behind());
            }
        }
    }

    fn no_record_here(&self, next: Lsn) -> Error {
        let at = self.at;
        let what =
            format!("no record starts at LSN {at}, the next one does at LSN {next}; begin where the log was read to");
        Error::new(ErrorKind::InvalidInput, what)
    }

    fn deliver(&mut self, record: Record) -> Result<Record> {
        if record.start != self.at {
            return Err(self.no_record_here(record.start));
        }
        self.at = record.end;
        Ok(record)
    }

    /// Finds the records of the request that holds the position, where it is expected, or anywhere. False if nothing has it.
    fn find(&mut self, durable: Lsn) -> Result<bool> {
        // Sooner than the log is looked through. If the archive cannot be read, a device may still have the record.
        if self.may_be_overwritten() && self.find_archived().unwrap_or(false) {
            return Ok(true);
        }
        if self.areas.is_some() && self.read(durable) {
            return Ok(true);
        }
        self.locate();
        Ok(self.read(durable) || self.find_archived()?)
    }

    /// Whether an area has overwritten requests that ended behind the position. Another area may have its record, but most often none has.
    fn may_be_overwritten(&self) -> bool {
        self.areas.iter().flatten().any(|area| self.at < area.lost_to())
    }

    /// Finds the records on the devices. False if none has them.
    fn read(&mut self, durable: Lsn) -> bool {
        while let Some((area, request)) = self.look(self.at, durable) {
            let areas = self.areas.as_mut().expect("they were looked at");
            match areas[area].records(&request, self.at) {
                Ok(Some(records)) => {
                    self.current_end = request.header.end();
                    // The next one is often there too.
                    areas.swap(0, area);
                    self.current = Some(records);
                    return true;
                }
                // It is torn, or was overwritten.
                Ok(None) => {}
                Err(error) => self.unreadable = Some(error),
            }
            areas[area].ahead.retain(|other| *other != request);
        }
        false
    }

    /// A request that holds the record at `at`, and in which area.
    fn look(&mut self, at: Lsn, durable: Lsn) -> Option<(usize, DecodedRequest)> {
        let oldest = self.epochs.first().map_or(0, |epoch| epoch.epoch);
        let areas = self.areas.as_mut()?;
        areas.iter_mut().for_each(|area| area.ahead.retain(|request| request.header.end() > at));
        let read_on = at.bytes_since(self.moved_to);
        let window = durable.bytes_since(at).min(2 * read_on).clamp(WINDOW_BYTES.0, WINDOW_BYTES.1);
        loop {
            for (index, area) in areas.iter().enumerate() {
                let holds = |request: &&DecodedRequest| {
                    let header = &request.header;
                    let is_current = header.epoch >= oldest && !is_void(header, &self.epochs);
                    (header.start..header.end()).contains(&at) && header.end() <= durable && is_current
                };
                if let Some(request) = area.ahead.iter().find(holds) {
                    return Some((index, *request));
                }
            }
            // Of an area that has come past the position only a request that was issued again could hold it, when so much at most was
            // appended behind it.
            let mut has_more = false;
            for ahead_bytes in [0, space::MAX_BUFFERED_BYTES] {
                let end = at.get().saturating_add(ahead_bytes);
                let mut index = 0;
                while let Some(area) = areas.get_mut(index).filter(|_| !has_more) {
                    index += 1;
                    if area.ahead.last().is_some_and(|last| last.header.start.get() > end) {
                        continue;
                    }
                    match area.advance(at, window) {
                        Ok(found) => has_more = found,
                        // Another device may have what is wanted.
                        Err(error) => {
                            self.unreadable = Some(error);
                            index -= 1;
                            areas.remove(index);
                        }
                    }
                }
            }
            if !has_more {
                return None;
            }
        }
    }

    /// Looks for the position on all devices that the log has now; of those that have left it, what was seen ahead stays.
    fn locate(&mut self) {
        self.epochs = self.scheduler.epochs();
        self.unreadable = None;
        self.located_to = self.scheduler.durable();
        let members = self.scheduler.readable_areas();
        let id = |member: &Member| member.superblock.device_id;
        let has_left = |area: &Area| members.iter().all(|member| id(member) != id(&area.member));
        let mut areas = self.areas.take().unwrap_or_default();
        areas.retain(|area| has_left(area) && !area.ahead.is_empty());
        for member in members {
            match Area::locate(member, self.at) {
                Ok(area) => areas.push(area),
                Err(error) => self.unreadable = Some(error),
            }
        }
        self.areas = Some(areas);
    }

    /// Opens the archive from the position on. False if it does not have that.
    fn find_archived(&mut self) -> Result<bool> {
        let Some(target) = self.scheduler.archive_target() else { return Ok(false) };
        let found = ArchiveReader::open(&target, self.at).and_then(|mut reader| {
            // So that a reader that finds nothing there does not look for ever.
            Ok(reader.has_record()?.then_some(reader))
        });
        self.archived = match found {
            Err(error) if error.kind() == ErrorKind::NotArchived => None,
            found => found?.map(Box::new),
        };
        Ok(self.archived.is_some())
    }

    fn fell_behind(&mut self) -> Error {
        if let Some(error) = self.unreadable.take() {
            return error;
        }
        match self.oldest() {
            Ok(oldest) => {
                let at = self.at;
                let what = format!(
                    "the records from LSN {at} on were overwritten, and are not archived; what is left of the log begins at LSN {oldest}: \
                     read the tables once more and go on from there, or archive the log"
                );
                Error::new(ErrorKind::FellBehind, what).with_source(FellBehind { oldest })
            }
            Err(error) => error,
        }
    }

    /// From where on all records can be read.
    fn oldest(&mut self) -> Result<Lsn> {
        let (durable, checkpoint) = (self.scheduler.durable(), self.scheduler.checkpoint());
        self.locate();
        let areas = self.areas.as_ref().expect("they were looked at");
        let known = self.epochs.first().map_or(Lsn::ZERO, |epoch| epoch.start);
        let mut oldest = areas.iter().map(Area::lost_to).fold(known.max(self.at), Lsn::max);
        // A device that has left, or a record that only the archive got, may leave a gap.
        let mut at = oldest;
        while at < checkpoint {
            match self.look(at, durable) {
                Some((_, request)) => at = request.header.end(),
                None => {
                    let areas = self.areas.iter().flatten();
                    let next = areas
                        .flat_map(|area| &area.ahead)
                        .map(|request| request.header.start)
                        .filter(|start| *start > at);
                    at = next.min().unwrap_or(checkpoint).min(checkpoint);
                    oldest = at;
                }
            }
        }
        self.areas = None;
        let Some(target) = self.scheduler.archive_target() else { return Ok(oldest) };
        let ArchiveInspection { runs, segments, .. } = inspect_archive(&target)?;
        let Some(run) = runs.last().filter(|run| run.end >= oldest) else { return Ok(oldest) };
        // The segment that holds the position is being overwritten.
        let mut starts = segments.iter().map(|segment| segment.start).filter(|start| *start >= run.start);
        let archived = starts.find(|start| *start > self.at);
        Ok(archived.map_or(oldest, |archived| archived.min(oldest)))
    }
}

/// Refuses a position that the log has not, or not durably.
fn check_durable(at: Lsn, durable: Lsn) -> Result<()> {
    if at <= durable {
        return Ok(());
    }
    let what =
        format!("LSN {at} lies beyond the log, which is durable up to LSN {durable}; begin where it was read to");
    Err(Error::new(ErrorKind::InvalidInput, what))
}

impl Area {
    /// The area, from the place on that leads to `at`.
    fn locate(member: Member, at: Lsn) -> Result<Area> {
        let sections = member.read_sections(|_| {})?;
        let window = Window { offset: 0, bytes: AlignedBuffer::zeroed(0), len: 0 };
        let mut area = Area { member, number: 0, offset: 0, ahead: Vec::new(), sections, window };
        area.go_to(at);
        Ok(area)
    }

    /// Goes to the place before which all requests end at or before `at`, as far as the sections' headers tell.
    fn go_to(&mut self, at: Lsn) {
        let sections = &self.sections.sections;
        let (number, byte) = match self.sections.locate(&self.member, at) {
            Ok(Some(start)) => (sections[start.index].number, start.at),
            // Another area may have what is overwritten here.
            Ok(None) | Err(_) => (sections.first().map_or(0, |oldest| oldest.number), BLOCK as u64),
        };
        (self.number, self.offset) = (number, self.member.layout.section(number).start + byte);
        self.ahead.clear();
    }

    /// No request of the area that was overwritten ends behind this.
    fn lost_to(&self) -> Lsn {
        self.sections.sections.first().map_or(Lsn::ZERO, |oldest| oldest.stream_lsn)
    }

    /// Takes the next request, if one was written. Returns whether there was one.
    fn advance(&mut self, at: Lsn, window: u64) -> Result<bool> {
        loop {
            let mut found = self.request(window)?;
            if found.is_none() {
                let next = self.member.layout.section(self.number + 1);
                let is_begun = self.member.holds_section(self.number + 1)?;
                // What was written there meanwhile comes first. All of a section is written before the next one is begun.
                found = self.request(window)?;
                if found.is_none() && !is_begun {
                    return Ok(false);
                }
                if found.is_none() {
                    (self.number, self.offset) = (self.number + 1, next.start + BLOCK as u64);
                    continue;
                }
            }
            let request = found.expect("it was found");
            self.offset += self.member.layout.request_bytes(request.header.bytes());
            if request.header.end() > at {
                self.ahead.push(request);
            }
            return Ok(true);
        }
    }

    /// The header of the request that was written at the place, if there is one.
    fn request(&mut self, window: u64) -> Result<Option<DecodedRequest>> {
        let section_end = self.member.layout.section(self.number).end;
        if self.offset + HEADER_BYTES as u64 > section_end {
            return Ok(None);
        }
        // What was read before it was written is read again.
        for is_fresh in [false, true] {
            if !is_fresh && !self.window.holds(self.offset, HEADER_BYTES as u64) {
                continue;
            }
            let bytes = match is_fresh {
                true => self.window.fill(&*self.member.device, self.offset, window, section_end)?,
                false => self.window.at(self.offset, HEADER_BYTES),
            };
            let request = self.member.decode_request(bytes, self.offset).ok();
            if let Some(request) = request.filter(|request| request.header.section == self.number) {
                return Ok(Some(request));
            }
        }
        Ok(None)
    }

    /// The records of a request, those before `at` left out; `None` if it is not whole.
    fn records(&mut self, request: &DecodedRequest, at: Lsn) -> Result<Option<Records>> {
        let header = &request.header;
        let section_end = self.member.layout.section(header.section).end;
        let bytes = self.member.layout.request_bytes(header.bytes());
        if bytes > section_end - header.offset {
            return Ok(None);
        }
        for is_fresh in [false, true] {
            if !is_fresh && !self.window.holds(header.offset, header.bytes()) {
                continue;
            }
            let whole = match is_fresh {
                true => self.window.fill(&*self.member.device, header.offset, bytes, section_end)?,
                false => self.window.at(header.offset, header.bytes() as usize),
            };
            let is_same = self.member.decode_request(whole, header.offset).is_ok_and(|again| again == *request);
            if is_same && request.check_payload(whole).is_ok() {
                let payload = whole[HEADER_BYTES..HEADER_BYTES + header.payload_bytes as usize].into();
                return Ok(Some(Records::of(Arc::clone(&self.member.device), request, payload, at)));
            }
        }
        Ok(None)
    }
}

impl Window {
    fn holds(&self, offset: u64, bytes: u64) -> bool {
        self.offset <= offset && offset + bytes <= self.offset + self.len as u64
    }

    fn at(&self, offset: u64, bytes: usize) -> &[u8] {
        &self.bytes[(offset - self.offset) as usize..][..bytes]
    }

    /// Reads at least `bytes` bytes from `offset` on, or those up to `end`, a multiple of the block. Returns all of them.
    fn fill(&mut self, device: &dyn Device, offset: u64, bytes: u64, end: u64) -> Result<&[u8]> {
        let start = offset / BLOCK as u64 * BLOCK as u64;
        let len = ((offset + bytes).next_multiple_of(BLOCK as u64).min(end) - start) as usize;
        self.len = 0;
        if self.bytes.len() < len {
            self.bytes = AlignedBuffer::zeroed(len);
        }
        device.read(start, &mut self.bytes[..len])?;
        (self.offset, self.len) = (start, len);
        Ok(&self.bytes[(offset - start) as usize..len])
    }
}

impl fmt::Debug for LogReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogReader").field("at", &self.at).finish_non_exhaustive()
    }
}
