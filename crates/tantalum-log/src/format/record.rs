//! The framing of records within a request's payload: a length, then the bytes.

use super::{DecodeError, check};

/// Bytes of framing before each record.
pub const FRAME_BYTES: usize = 4;

/// The framing of a record of `bytes` bytes.
pub fn encode(bytes: u32) -> [u8; FRAME_BYTES] {
    bytes.to_le_bytes()
}

/// The record at the front of `payload`, without its framing.
pub fn decode(payload: &[u8]) -> Result<&[u8], DecodeError> {
    let (frame, rest) =
        payload.split_first_chunk().ok_or(DecodeError::Short { found: payload.len(), needed: FRAME_BYTES })?;
    let bytes = u32::from_le_bytes(*frame) as usize;
    check(bytes <= rest.len(), "record bytes", bytes as u64)?;
    Ok(&rest[..bytes])
}
