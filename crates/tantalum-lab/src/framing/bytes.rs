//! The bytes; docs/understand/format.md describes them. Pure, and safe on bytes that may be anything.

use super::{Damage, TraceKind};

/// The version that is written, and the only one that is read.
const VERSION: u16 = 1;
/// Of the header, before its text.
pub(super) const HEADER_BYTES: usize = 32;
/// Of the header, what the kind of the trace gives a meaning.
pub(crate) const FIXED_BYTES: usize = 16;
/// Of a chunk, before its numbers.
pub(super) const CHUNK_HEAD_BYTES: usize = 16;
/// The most numbers of a chunk.
pub(super) const CHUNK_NUMBERS: usize = 4096;
const NUMBER_BYTES: usize = 8;
/// Of a trailer, before its text.
pub(super) const TRAILER_HEAD_BYTES: usize = 8;
/// The most bytes of a trailer's text: so much memory is taken before its checksum is known.
const TRAILER_MOST: usize = 1 << 20;

/// What a header says beside what kind it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// What the kind gives a meaning.
    pub fixed: [u8; FIXED_BYTES],
    /// For people: at most 255 bytes.
    pub text: String,
}

pub(crate) fn field<T>(field: &'static str, value: u64) -> Result<T, Damage> {
    Err(Damage::Field { field, value })
}

/// `None` if the text is too long.
pub(super) fn encode_header(kind: TraceKind, head: &Head) -> Option<Vec<u8>> {
    let text_bytes = u8::try_from(head.text.len()).ok()?;
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(kind.magic());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&u16::from(text_bytes).to_le_bytes());
    bytes.extend_from_slice(&head.fixed);
    assert_eq!(bytes.len(), HEADER_BYTES, "the fields fill the header");
    bytes.extend_from_slice(head.text.as_bytes());
    seal(&mut bytes);
    Some(bytes)
}

/// How long the text is that follows these bytes.
pub(super) fn text_bytes(kind: TraceKind, head: &[u8; HEADER_BYTES]) -> Result<usize, Damage> {
    let magic = &head[4..12];
    if magic != kind.magic() {
        let other = TraceKind::ALL.into_iter().find(|other| magic == other.magic());
        return Err(other.map_or(Damage::Magic, |found| Damage::OtherKind { found }));
    }
    match u16_at(head, 12) {
        VERSION => Ok(usize::from(u16_at(head, 14) & 0xff)),
        found => Err(Damage::Version { found, expected: VERSION }),
    }
}

/// Decodes a header with its text.
pub(super) fn decode_header(bytes: &[u8]) -> Result<Head, Damage> {
    check(bytes)?;
    let text_bytes = u16_at(bytes, 14);
    if usize::from(text_bytes) != bytes.len() - HEADER_BYTES {
        return field("the label's length", text_bytes.into());
    }
    let Ok(text) = std::str::from_utf8(&bytes[HEADER_BYTES..]) else {
        return field("the label, which is no text, of length", text_bytes.into());
    };
    let mut fixed = [0; FIXED_BYTES];
    fixed.copy_from_slice(&bytes[HEADER_BYTES - FIXED_BYTES..HEADER_BYTES]);
    Ok(Head { fixed, text: text.to_owned() })
}

/// A chunk of numbers, `before` of which stand before it; the end mark if there are none.
pub(super) fn encode_chunk(before: u64, numbers: &[u64]) -> Vec<u8> {
    assert!(numbers.len() <= CHUNK_NUMBERS, "a chunk is cut before it is too long");
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&(numbers.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&before.to_le_bytes());
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    seal(&mut bytes);
    bytes
}

/// How many bytes of numbers follow these.
pub(super) fn chunk_bytes(head: &[u8; CHUNK_HEAD_BYTES]) -> Result<usize, Damage> {
    match u32_at(head, 4) as usize {
        count if count <= CHUNK_NUMBERS => Ok(count * NUMBER_BYTES),
        count => field("a chunk's length", count as u64),
    }
}

/// Decodes a chunk, which must be the one after `before` numbers.
pub(super) fn decode_chunk(bytes: &[u8], before: u64) -> Result<Vec<u64>, Damage> {
    check(bytes)?;
    if u64_at(bytes, 8) != before {
        return field("the number of records before a chunk", u64_at(bytes, 8));
    }
    Ok(bytes[CHUNK_HEAD_BYTES..].chunks_exact(NUMBER_BYTES).map(|number| u64_at(number, 0)).collect())
}

/// `None` if the text is too long.
pub(super) fn encode_trailer(text: &[u8]) -> Option<Vec<u8>> {
    let text_bytes = u32::try_from(text.len()).ok().filter(|&bytes| bytes as usize <= TRAILER_MOST)?;
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&text_bytes.to_le_bytes());
    bytes.extend_from_slice(text);
    seal(&mut bytes);
    Some(bytes)
}

/// How many bytes of text follow these.
pub(super) fn trailer_bytes(head: &[u8; TRAILER_HEAD_BYTES]) -> Result<usize, Damage> {
    match u32_at(head, 4) as usize {
        bytes if bytes <= TRAILER_MOST => Ok(bytes),
        bytes => field("the summary's length", bytes as u64),
    }
}

/// The text of a trailer.
pub(super) fn decode_trailer(mut bytes: Vec<u8>) -> Result<Vec<u8>, Damage> {
    check(&bytes)?;
    bytes.drain(..TRAILER_HEAD_BYTES);
    Ok(bytes)
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

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
