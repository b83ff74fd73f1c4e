//! A request: one group of records, as one device write. A header, then the records, each behind its length.
//!
//! Two checksums guard a request. The header's own lets a torn request still testify to what was durable when it was
//! composed; the whole's covers header and payload, and decides whether the request counts. The request's own device
//! offset and section number betray a write that landed elsewhere, and bytes left from an earlier round of the circle.

use super::{DecodeError, Decoder, Encoder, VERSION, check, check_numbers};
use crate::Lsn;

const MAGIC: u64 = u64::from_le_bytes(*b"TNTLREQS");

/// Bytes of a request before its payload.
pub const HEADER_BYTES: usize = 96;
/// The largest payload that a header can describe.
pub const MAX_PAYLOAD_BYTES: u32 = 1 << 30;
/// The bytes that the whole's checksum takes from the header.
const DESCRIPTION_BYTES: usize = 88;

/// What a request says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// What tells it from the requests of other logs, and from those that stood on the device before it was formatted:
    /// the two halves of the log's identity and the device's, xor.
    pub device_tag: u64,
    /// The session that wrote it.
    pub epoch: u64,
    /// Its number among the device's requests, without gaps.
    pub sequence: u64,
    /// The section in which it lies.
    pub section: u64,
    /// Where it lies on the device, in bytes.
    pub offset: u64,
    /// Where its first record starts.
    pub start: Lsn,
    /// The largest end LSN on the device before it.
    pub stream_lsn: Lsn,
    /// What was durable when the request was composed.
    pub durable_lsn: Lsn,
    /// Bytes of records.
    pub payload_bytes: u32,
    /// The wall clock when the request was sealed, in microseconds since the Unix epoch.
    pub time_us: u64,
}

/// A header read from a device, with the checksum that its payload must satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedRequest {
    /// The header.
    pub header: RequestHeader,
    /// CRC-32C of the description and the payload.
    pub whole_checksum: u32,
}

impl RequestHeader {
    /// Where the last record ends.
    pub fn end(&self) -> Lsn {
        Lsn::new(self.start.get() + u64::from(self.payload_bytes))
    }

    /// Bytes of header and payload, without padding.
    pub fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.payload_bytes)
    }

    /// Writes the header before its payload: `bytes` holds space for the header, then the payload.
    ///
    /// # Panics
    /// If `bytes` is shorter than header and payload.
    pub fn encode(&self, bytes: &mut [u8]) {
        let (header, rest) = bytes.split_at_mut(HEADER_BYTES);
        let payload = &rest[..self.payload_bytes as usize];
        let mut encoder = Encoder::new(header);
        encoder.u64(MAGIC);
        encoder.u16(VERSION);
        encoder.u16(HEADER_BYTES as u16);
        encoder.u32(self.payload_bytes);
        for field in [self.device_tag, self.epoch, self.sequence, self.section, self.offset] {
            encoder.u64(field);
        }
        for lsn in [self.start, self.stream_lsn, self.durable_lsn] {
            encoder.u64(lsn.get());
        }
        encoder.u64(self.time_us);
        let whole = crc32c::crc32c_append(crc32c::crc32c(&header[..DESCRIPTION_BYTES]), payload);
        header[DESCRIPTION_BYTES..DESCRIPTION_BYTES + 4].copy_from_slice(&whole.to_le_bytes());
        let own = crc32c::crc32c(&header[..DESCRIPTION_BYTES + 4]);
        header[DESCRIPTION_BYTES + 4..].copy_from_slice(&own.to_le_bytes());
    }

    /// Reads and checks a header; the payload is checked by [`DecodedRequest::check_payload`].
    pub fn decode(bytes: &[u8]) -> Result<DecodedRequest, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        let (header_bytes, payload_bytes) = (decoder.u16()?, decoder.u32()?);
        let device_tag = decoder.u64()?;
        let (epoch, sequence, section, offset) = (decoder.u64()?, decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let start = Lsn::new(decoder.u64()?);
        let stream_lsn = Lsn::new(decoder.u64()?);
        let durable_lsn = Lsn::new(decoder.u64()?);
        let time_us = decoder.u64()?;
        let whole_checksum = decoder.u32()?;
        decoder.checksum()?;
        check(usize::from(header_bytes) == HEADER_BYTES, "header bytes", header_bytes.into())?;
        check((1..=MAX_PAYLOAD_BYTES).contains(&payload_bytes), "payload bytes", payload_bytes.into())?;
        check_numbers([epoch, sequence, section, start.get(), stream_lsn.get(), durable_lsn.get(), time_us])?;
        let header = RequestHeader {
            device_tag,
            epoch,
            sequence,
            section,
            offset,
            start,
            stream_lsn,
            durable_lsn,
            payload_bytes,
            time_us,
        };
        Ok(DecodedRequest { header, whole_checksum })
    }
}

impl DecodedRequest {
    /// Whether `bytes`, which start with the header, hold the payload that was written.
    pub fn check_payload(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        let needed = HEADER_BYTES + self.header.payload_bytes as usize;
        let whole = bytes.get(..needed).ok_or(DecodeError::Short { found: bytes.len(), needed })?;
        let computed = crc32c::crc32c_append(crc32c::crc32c(&whole[..DESCRIPTION_BYTES]), &whole[HEADER_BYTES..]);
        let stored = self.whole_checksum;
        if computed == stored { Ok(()) } else { Err(DecodeError::Checksum { stored, computed }) }
    }
}

/// Bytes of framing before each record in a request's payload: its length.
pub const FRAME_BYTES: usize = 4;

/// The framing of a record of `bytes` bytes.
pub fn encode_frame(bytes: u32) -> [u8; FRAME_BYTES] {
    bytes.to_le_bytes()
}

/// The record at the front of `payload`, without its framing.
pub fn decode_record(payload: &[u8]) -> Result<&[u8], DecodeError> {
    let (frame, rest) =
        payload.split_first_chunk().ok_or(DecodeError::Short { found: payload.len(), needed: FRAME_BYTES })?;
    let bytes = u32::from_le_bytes(*frame) as usize;
    check(bytes <= rest.len(), "record bytes", bytes as u64)?;
    Ok(&rest[..bytes])
}
