//! The bytes of a trace; docs/format.md describes them. Pure, and safe on bytes that may be anything.

use tantalum::PageOperation;

use super::{Header, Record};

/// The version that is written, and the only one that is read.
pub(super) const VERSION: u16 = 1;
const MAGIC: &[u8; 8] = b"TNTLTRCE";
/// Of the header, before its label.
pub(super) const HEADER_BYTES: usize = 32;
/// Of a chunk, before its records.
pub(super) const CHUNK_HEAD_BYTES: usize = 16;
/// The most records of a chunk.
pub(super) const CHUNK_RECORDS: usize = 4096;
pub(super) const RECORD_BYTES: usize = 8;

/// A record is one number: the kind in the lowest bits, then the bytes, then the page.
const KIND_BITS: u32 = 3;
const BYTES_BITS: u32 = 21;
const PAGE_SHIFT: u32 = KIND_BITS + BYTES_BITS;

const WRITE: u64 = 0;
const INSERT: u64 = 1;
const UPDATE: u64 = 2;
const DELETE: u64 = 3;
const WHOLE: u64 = 4;

/// What is wrong with a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// It ends before its end mark.
    #[error("it ends too early")]
    Short,
    /// It goes on after its end mark.
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
}

fn field<T>(field: &'static str, value: u64) -> Result<T, Damage> {
    Err(Damage::Field { field, value })
}

/// `None` if a number does not fit its bits.
pub(super) fn encode_record(record: &Record) -> Option<u64> {
    let (kind, page, bytes) = match *record {
        Record::Write { page } => (WRITE, page, 0),
        Record::Change { page, operation, bytes } => {
            let kind = match operation {
                PageOperation::Insert => INSERT,
                PageOperation::Update => UPDATE,
                PageOperation::Delete => DELETE,
                PageOperation::Whole => WHOLE,
            };
            (kind, page, u64::from(bytes))
        }
    };
    let fits = bytes >> BYTES_BITS == 0 && page >> (u64::BITS - PAGE_SHIFT) == 0;
    fits.then_some(kind | bytes << KIND_BITS | page << PAGE_SHIFT)
}

pub(super) fn decode_record(number: u64) -> Result<Record, Damage> {
    let page = number >> PAGE_SHIFT;
    let bytes = (number >> KIND_BITS) as u32 & ((1 << BYTES_BITS) - 1);
    let operation = match number & ((1 << KIND_BITS) - 1) {
        WRITE if bytes == 0 => return Ok(Record::Write { page }),
        WRITE => return field("a write's length", bytes.into()),
        INSERT => PageOperation::Insert,
        UPDATE => PageOperation::Update,
        DELETE => PageOperation::Delete,
        WHOLE => PageOperation::Whole,
        kind => return field("a record's kind", kind),
    };
    Ok(Record::Change { page, operation, bytes })
}

/// `None` if the label is too long.
pub(super) fn encode_header(header: &Header) -> Option<Vec<u8>> {
    let label_bytes = u8::try_from(header.label.len()).ok()?;
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u16::from(label_bytes).to_le_bytes());
    bytes.extend_from_slice(&header.page_bytes.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&header.buffer_pool_bytes.to_le_bytes());
    assert_eq!(bytes.len(), HEADER_BYTES, "the fields fill the header");
    bytes.extend_from_slice(header.label.as_bytes());
    seal(&mut bytes);
    Some(bytes)
}

/// How long the label is that follows these bytes.
pub(super) fn label_bytes(head: &[u8; HEADER_BYTES]) -> Result<usize, Damage> {
    if &head[4..12] != MAGIC {
        return Err(Damage::Magic);
    }
    match u16_at(head, 12) {
        VERSION => Ok(usize::from(u16_at(head, 14) & 0xff)),
        found => Err(Damage::Version { found }),
    }
}

/// Decodes a header with its label.
pub(super) fn decode_header(bytes: &[u8]) -> Result<Header, Damage> {
    check(bytes)?;
    let label_bytes = u16_at(bytes, 14);
    if usize::from(label_bytes) != bytes.len() - HEADER_BYTES {
        return field("the label's length", label_bytes.into());
    }
    let page_bytes = u32_at(bytes, 16);
    if !page_bytes.is_power_of_two() || !(512..=1 << 20).contains(&page_bytes) {
        return field("the page size", page_bytes.into());
    }
    let Ok(label) = std::str::from_utf8(&bytes[HEADER_BYTES..]) else {
        return field("the label, which is no text, of length", label_bytes.into());
    };
    Ok(Header { page_bytes, buffer_pool_bytes: u64_at(bytes, 24), label: label.to_owned() })
}

/// A chunk of records, `before` of which stand before it; the end mark if there are none.
pub(super) fn encode_chunk(before: u64, records: &[u64]) -> Vec<u8> {
    assert!(records.len() <= CHUNK_RECORDS, "a chunk is cut before it is too long");
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&(records.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&before.to_le_bytes());
    records.iter().for_each(|record| bytes.extend_from_slice(&record.to_le_bytes()));
    seal(&mut bytes);
    bytes
}

/// How many bytes of records follow these.
pub(super) fn chunk_bytes(head: &[u8; CHUNK_HEAD_BYTES]) -> Result<usize, Damage> {
    match u32_at(head, 4) as usize {
        count if count <= CHUNK_RECORDS => Ok(count * RECORD_BYTES),
        count => field("a chunk's length", count as u64),
    }
}

/// Decodes a chunk, which must be the one after `before` records.
pub(super) fn decode_chunk(bytes: &[u8], before: u64) -> Result<Vec<Record>, Damage> {
    check(bytes)?;
    if u64_at(bytes, 8) != before {
        return field("the number of records before a chunk", u64_at(bytes, 8));
    }
    bytes[CHUNK_HEAD_BYTES..].chunks_exact(RECORD_BYTES).map(|record| decode_record(u64_at(record, 0))).collect()
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

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
