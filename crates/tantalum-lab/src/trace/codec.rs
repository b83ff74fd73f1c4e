//! A trace's bytes, written and read; docs/format.md describes them.
//!
//! Promise: whatever the bytes are, reading them gives what was written or says where they are damaged, in memory for one block.

use std::{
    fs::File,
    io::{self, BufReader, Read, Write},
    path::Path,
};

use tantalum::PageOperation;
use tantalum_device::{Durability, Ending, Request, RequestKind};

use super::{Event, Header, Summary, TracedRequest};
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"TNTLTRCE";
/// Of the traces of requests of version 1, which had a format of their own.
const REQUESTS_MAGIC: &[u8; 8] = b"TNTLIOTR";
/// The version that is written, and the only one that is read.
const VERSION: u16 = 2;
/// What a file begins with: checksum, magic, version, zeros.
const START_BYTES: usize = 16;
/// What a block begins with: checksum, kind and length, place in the file.
const HEAD_BYTES: usize = 16;
/// The most bytes of a block: so much memory is taken before its checksum is known.
const MOST_BYTES: usize = 1 << 20;
/// Numbers of events that are gathered into a block.
const BLOCK_NUMBERS: usize = 4096;
const NUMBER_BYTES: usize = 8;

/// Kinds of blocks: one with the header, any number with events, one with the summary.
const HEADER: u32 = 1;
const EVENTS: u32 = 2;
const SUMMARY: u32 = 3;
/// The kind of a block stands above its length.
const KIND_SHIFT: u32 = 24;

/// An event's first number has its kind in the lowest bits. Of a change or write follow its bytes, then the page.
const EVENT_BITS: u32 = 4;
const LENGTH_BITS: u32 = 21;
const PAGE_SHIFT: u32 = EVENT_BITS + LENGTH_BITS;
const WRITE: u64 = 0;
const OPERATIONS: [PageOperation; 4] =
    [PageOperation::Insert, PageOperation::Update, PageOperation::Delete, PageOperation::Whole];
/// Of a request follow its ending and its begin; then time and device, and place and length, in numbers of their own.
const FIRST_REQUEST: u64 = 1 + OPERATIONS.len() as u64;
const REQUESTS: [RequestKind; 6] = [
    RequestKind::Read,
    RequestKind::Write(Durability::Cached),
    RequestKind::Write(Durability::Durable),
    RequestKind::Write(Durability::Delivered),
    RequestKind::Flush,
    RequestKind::Discard,
];
const ENDINGS: [Ending; 3] = [Ending::Done, Ending::Failed, Ending::Unknown];
const ENDING_BITS: u32 = 4;
const TIME_SHIFT: u32 = EVENT_BITS + ENDING_BITS;
const DEVICE_BITS: u32 = 16;
const SECTORS_BITS: u32 = 24;
/// Offsets and lengths are in these: no device has smaller blocks.
const SECTOR: u64 = 512;

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It ends before its summary.
    #[error("it ends too early")]
    Short,
    /// It goes on after its end.
    #[error("something follows its end")]
    Long,
    /// It is something else.
    #[error("it does not begin as a trace does")]
    Magic,
    /// It is of another version.
    #[error("it is of format version {found}, and this program reads version {VERSION}")]
    Version {
        /// Its version.
        found: u16,
    },
    /// The bytes changed since they were written.
    #[error("the checksum is {computed:#010x}, but {stored:#010x} was stored")]
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A field has a value that no writer writes.
    #[error("{field} has the impossible value {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// A header or summary is no JSON of its kind, by the place in its text.
    #[error("its text cannot be read from line {line}, column {column} on")]
    Text {
        /// The line, from 1.
        line: u64,
        /// The column, from 1.
        column: u64,
    },
    /// It has no page changes.
    #[error("it has requests to devices and no page changes; see tantalum lab io-trace")]
    NoPages,
    /// It has no requests.
    #[error("it has page changes and no requests to devices; see tantalum lab trace")]
    NoRequests,
}

fn field<T>(field: &'static str, value: u64) -> Result<T, Damage> {
    Err(Damage::Field { field, value })
}

/// Adds the numbers of an event; `false`, and nothing added, if one does not fit its bits.
fn encode(event: &Event, numbers: &mut Vec<u64>) -> bool {
    let fits = |number: u64, bits: u32| number >> bits == 0;
    let of_page = |kind: u64, page: u64, bytes: u64| {
        let all_fit = fits(bytes, LENGTH_BITS) && fits(page, u64::BITS - PAGE_SHIFT);
        all_fit.then_some(kind | bytes << EVENT_BITS | page << PAGE_SHIFT)
    };
    let before = numbers.len();
    match *event {
        Event::Write { page } => numbers.extend(of_page(WRITE, page, 0)),
        Event::Change { page, operation, bytes } => {
            let kind = OPERATIONS.iter().position(|known| *known == operation).map(|at| at as u64 + 1);
            numbers.extend(kind.and_then(|kind| of_page(kind, page, bytes.into())));
        }
        Event::Request(TracedRequest { device, began_ns, took_ns, request, ending }) => {
            let Request { kind, offset, len } = request;
            let kind = REQUESTS.iter().position(|known| *known == kind).map(|at| at as u64 + FIRST_REQUEST);
            let ending = ENDINGS.iter().position(|known| *known == ending);
            let is_whole = offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR);
            let (offset, len) = (offset / SECTOR, len / SECTOR);
            let all_fit = fits(began_ns, u64::BITS - TIME_SHIFT)
                && fits(took_ns, u64::BITS - DEVICE_BITS)
                && fits(offset, u64::BITS - SECTORS_BITS)
                && fits(len, SECTORS_BITS);
            if let (Some(kind), Some(ending), true) = (kind, ending, is_whole && all_fit) {
                numbers.push(began_ns << TIME_SHIFT | (ending as u64) << EVENT_BITS | kind);
                numbers.push(took_ns << DEVICE_BITS | u64::from(device));
                numbers.push(offset << SECTORS_BITS | len);
            }
        }
    }
    numbers.len() > before
}

/// Takes an event off the front of `numbers`, which are not empty.
fn decode(numbers: &mut &[u64]) -> Result<Event, Damage> {
    let low = |number: u64, bits: u32| number & ((1 << bits) - 1);
    let first = numbers[0];
    *numbers = &numbers[1..];
    let kind = low(first, EVENT_BITS);
    let Some(request) = kind.checked_sub(FIRST_REQUEST) else {
        let (page, bytes) = (first >> PAGE_SHIFT, low(first >> EVENT_BITS, LENGTH_BITS) as u32);
        return match kind {
            WRITE if bytes == 0 => Ok(Event::Write { page }),
            WRITE => field("a write's length", bytes.into()),
            kind => Ok(Event::Change { page, operation: OPERATIONS[kind as usize - 1], bytes }),
        };
    };
    let Some(&kind) = REQUESTS.get(request as usize) else { return field("an event's kind", kind) };
    let number = low(first >> EVENT_BITS, ENDING_BITS);
    let Some(&ending) = ENDINGS.get(number as usize) else { return field("a request's ending", number) };
    let &[time, place, ref rest @ ..] = *numbers else { return field("a block's numbers", numbers.len() as u64) };
    *numbers = rest;
    Ok(Event::Request(TracedRequest {
        device: low(time, DEVICE_BITS) as u16,
        began_ns: first >> TIME_SHIFT,
        took_ns: time >> DEVICE_BITS,
        request: Request { kind, offset: (place >> SECTORS_BITS) * SECTOR, len: low(place, SECTORS_BITS) * SECTOR },
        ending,
    }))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// The checksum of everything behind the first four bytes stands there.
fn seal(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
}

fn check(bytes: &[u8]) -> Result<(), Damage> {
    match (u32_at(bytes, 0), crc32c::crc32c(&bytes[4..])) {
        (stored, computed) if stored == computed => Ok(()),
        (stored, computed) => Err(Damage::Checksum { stored, computed }),
    }
}

/// The begin of a file.
fn start() -> [u8; START_BYTES] {
    let mut bytes = [0; START_BYTES];
    bytes[4..12].copy_from_slice(MAGIC);
    bytes[12..14].copy_from_slice(&VERSION.to_le_bytes());
    seal(&mut bytes);
    bytes
}

fn check_start(bytes: &[u8; START_BYTES]) -> Result<(), Damage> {
    let version = u32_at(bytes, 12) as u16;
    match &bytes[4..12] {
        magic if magic == REQUESTS_MAGIC => Err(Damage::Version { found: 1 }),
        magic if magic != MAGIC => Err(Damage::Magic),
        _ if version != VERSION => Err(Damage::Version { found: version }),
        _ => check(bytes),
    }
}

/// Writes a trace, in memory for one block.
///
/// ```
/// use tantalum_lab::trace::{Event, Header, Reader, Summary, Writer};
///
/// let mut writer = Writer::new(Vec::new(), &Header::new("an example"))?;
/// writer.push(Event::Write { page: 5 })?;
/// let bytes = writer.finish(&Summary::default())?;
///
/// let events: Vec<Event> = Reader::new("example", &bytes[..])?.collect::<Result<_, _>>()?;
/// assert_eq!(events, [Event::Write { page: 5 }]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a trace without its end cannot be read"]
pub struct Writer<W: Write> {
    out: W,
    /// Bytes that were written.
    at: u64,
    numbers: Vec<u64>,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// What `out` says; and if the header has more than 1 MiB of text.
    pub fn new(mut out: W, header: &Header) -> io::Result<Self> {
        out.write_all(&start())?;
        let mut writer = Self { out, at: START_BYTES as u64, numbers: Vec::with_capacity(BLOCK_NUMBERS) };
        writer.block(HEADER, &serde_json::to_vec(header)?)?;
        Ok(writer)
    }

    /// Adds an event.
    ///
    /// # Errors
    /// What the output says; and of pages, if the number is 2^39 or more or the change has 2 MiB or more; of requests, if an offset
    /// or length is no multiple of 512, an offset has 512 TiB or more, a length 8 GiB, a time two years, or it took three days.
    pub fn push(&mut self, event: Event) -> io::Result<()> {
        if self.numbers.len() + 3 > BLOCK_NUMBERS {
            self.end_events()?;
        }
        match encode(&event, &mut self.numbers) {
            true => Ok(()),
            false => Err(invalid(format!("{event:?} does not fit into a trace"))),
        }
    }

    /// Writes the end, without which the trace counts as cut off, and gives the output back.
    ///
    /// # Errors
    /// What the output says; and if the summary has more than 1 MiB of text.
    pub fn finish(mut self, summary: &Summary) -> io::Result<W> {
        self.end_events()?;
        self.block(SUMMARY, &serde_json::to_vec(summary)?)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn end_events(&mut self) -> io::Result<()> {
        let bytes: Vec<u8> = self.numbers.drain(..).flat_map(u64::to_le_bytes).collect();
        if bytes.is_empty() { Ok(()) } else { self.block(EVENTS, &bytes) }
    }

    fn block(&mut self, kind: u32, content: &[u8]) -> io::Result<()> {
        if content.len() > MOST_BYTES {
            return Err(invalid(format!("a text of a trace has 1 MiB at most, and this has {} bytes", content.len())));
        }
        let mut bytes = Vec::with_capacity(HEAD_BYTES + content.len());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(kind << KIND_SHIFT | content.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.at.to_le_bytes());
        bytes.extend_from_slice(content);
        seal(&mut bytes);
        self.at += bytes.len() as u64;
        self.out.write_all(&bytes)
    }
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Reads a trace: an iterator over its events, requests in the order in which they ended, which ends after the first error. Each
/// block is checked before any of its events is given.
#[derive(Debug)]
pub struct Reader<R> {
    name: String,
    input: R,
    /// Where the part begins that was read last, in bytes, and the next one.
    at: u64,
    next_at: u64,
    header: Header,
    /// Of the block, in reverse.
    left: Vec<Event>,
    /// One more than the greatest device of a request.
    devices: u64,
    summary: Option<Summary>,
    is_over: bool,
}

impl Reader<BufReader<File>> {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        match File::open(path) {
            Ok(file) => Self::new(name, BufReader::new(file)),
            Err(source) => Err(Error::TraceInput { name, source }),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Reads the header of a trace; `name` is for messages.
    ///
    /// # Errors
    /// [`Error::Trace`] if this is no trace of this version, [`Error::TraceInput`] if it cannot be read.
    pub fn new(name: impl Into<String>, input: R) -> Result<Self> {
        let header = Header::new("");
        let (name, left) = (name.into(), Vec::new());
        let mut reader =
            Self { name, input, at: 0, next_at: 0, header, left, devices: 0, summary: None, is_over: false };
        let mut bytes = [0; START_BYTES];
        reader.fill(&mut bytes)?;
        check_start(&bytes).map_err(|damage| reader.damaged(damage))?;
        let header: Header = match reader.block()? {
            (HEADER, text) => reader.text(&text)?,
            (kind, _) => {
                return Err(reader.damaged(Damage::Field { field: "the first block's kind", value: kind.into() }));
            }
        };
        let is_size = |bytes: u32| bytes.is_power_of_two() && (512..=1 << 20).contains(&bytes);
        if let Some(database) = header.database.filter(|database| !is_size(database.page_bytes)) {
            return Err(reader.damaged(Damage::Field { field: "the page size", value: database.page_bytes.into() }));
        }
        reader.header = header;
        Ok(reader)
    }

    /// Of which run the trace is.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What stands at its end; `None` before all events were read without an error.
    pub fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// The error for damage in the part that was read last.
    pub(super) fn damaged(&self, damage: Damage) -> Error {
        Error::Trace { name: self.name.clone(), at: self.at, damage }
    }

    /// Reads a block of events, or the summary and the end.
    fn advance(&mut self) -> Result<()> {
        let (kind, content) = self.block()?;
        match kind {
            EVENTS => self.decode(&content).map_err(|damage| self.damaged(damage)),
            SUMMARY => {
                let summary: Summary = self.text(&content)?;
                if self.devices > summary.devices.len() as u64 {
                    let value = self.devices - 1;
                    return Err(self.damaged(Damage::Field { field: "a request's device", value }));
                }
                match self.input.read(&mut [0]) {
                    Ok(0) => (self.summary, self.is_over) = (Some(summary), true),
                    Ok(_) => return Err(self.damaged(Damage::Long)),
                    Err(error) => return Err(self.failed(error)),
                }
                Ok(())
            }
            kind => Err(self.damaged(Damage::Field { field: "a block's kind", value: kind.into() })),
        }
    }

    fn decode(&mut self, content: &[u8]) -> Result<(), Damage> {
        if content.is_empty() || !content.len().is_multiple_of(NUMBER_BYTES) {
            return field("a block's length", content.len() as u64);
        }
        let numbers: Vec<u64> = content.chunks_exact(NUMBER_BYTES).map(|number| u64_at(number, 0)).collect();
        let mut numbers = &numbers[..];
        while !numbers.is_empty() {
            let event = decode(&mut numbers)?;
            if let Event::Request(request) = event {
                self.devices = self.devices.max(u64::from(request.device) + 1);
            }
            self.left.push(event);
        }
        self.left.reverse();
        Ok(())
    }

    /// Reads a block, whatever its kind.
    fn block(&mut self) -> Result<(u32, Vec<u8>)> {
        self.at = self.next_at;
        let mut bytes = vec![0; HEAD_BYTES];
        self.fill(&mut bytes)?;
        let what = u32_at(&bytes, 4);
        let (kind, len) = (what >> KIND_SHIFT, (what & ((1 << KIND_SHIFT) - 1)) as usize);
        if len > MOST_BYTES {
            return Err(self.damaged(Damage::Field { field: "a block's length", value: len as u64 }));
        }
        bytes.resize(HEAD_BYTES + len, 0);
        self.fill(&mut bytes[HEAD_BYTES..])?;
        check(&bytes).map_err(|damage| self.damaged(damage))?;
        let place = u64_at(&bytes, 8);
        if place != self.at {
            return Err(self.damaged(Damage::Field { field: "a block's place", value: place }));
        }
        bytes.drain(..HEAD_BYTES);
        Ok((kind, bytes))
    }

    fn text<T: serde::de::DeserializeOwned>(&self, text: &[u8]) -> Result<T> {
        serde_json::from_slice(text)
            .map_err(|error| self.damaged(Damage::Text { line: error.line() as u64, column: error.column() as u64 }))
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.input.read_exact(bytes).map_err(|error| self.failed(error))?;
        self.next_at += bytes.len() as u64;
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.damaged(Damage::Short),
            _ => Error::TraceInput { name: self.name.clone(), source: error },
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            if let Some(event) = self.left.pop() {
                return Some(Ok(event));
            }
            if let Err(error) = self.advance() {
                self.is_over = true;
                return Some(Err(error));
            }
        }
        None
    }
}
