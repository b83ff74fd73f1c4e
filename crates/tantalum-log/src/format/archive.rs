//! The archive's structures: its superblock, and the header of a segment.
//!
//! An archive's first blocks are laid out as those of a log device: superblock and copy, then two checkpoint slots. A
//! segment is a header's block and then requests, each the continuation of the one before.

use super::superblock::{FIXED_BLOCKS, MAX_SECTION_BYTES, MIN_SECTION_BYTES};
use super::{BLOCK, DecodeError, Decoder, Encoder, VERSION, check, check_numbers};
use crate::Lsn;

const SUPERBLOCK_MAGIC: u64 = u64::from_le_bytes(*b"TNTLARCH");
const SEGMENT_MAGIC: u64 = u64::from_le_bytes(*b"TNTLASEG");

/// Bytes of an archive before its segments, on a device; all of the control file of an archive in a directory.
pub const CONTROL_BYTES: u64 = FIXED_BLOCKS * BLOCK as u64;
/// The fewest segments of an archive on a device.
pub const MIN_SEGMENTS: u32 = 4;

/// An archive's identity and division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveSuperblock {
    /// The identity of the log that is archived.
    pub log_id: u128,
    /// Bytes of a segment, its header included; in a directory the most that a file takes.
    pub segment_bytes: u32,
    /// Segments on a device, used as a circle; 0 in a directory, which has a file for each.
    pub segment_count: u32,
}

impl ArchiveSuperblock {
    /// The block that holds the superblock.
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut encoder = Encoder::new(&mut block);
        encoder.u64(SUPERBLOCK_MAGIC);
        encoder.u16(VERSION);
        encoder.u16(0);
        encoder.u128(self.log_id);
        encoder.u32(BLOCK as u32);
        encoder.u32(self.segment_bytes);
        encoder.u32(self.segment_count);
        encoder.checksum();
        block
    }

    /// Reads and checks a superblock.
    pub fn decode(bytes: &[u8]) -> Result<ArchiveSuperblock, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(SUPERBLOCK_MAGIC)?;
        decoder.u16()?;
        let log_id = decoder.u128()?;
        let (block_bytes, segment_bytes, segment_count) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        decoder.checksum()?;
        check(block_bytes == BLOCK as u32, "block size", block_bytes.into())?;
        let segments = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        let whole = segment_bytes.is_multiple_of(BLOCK as u32);
        check(whole && segments.contains(&segment_bytes), "segment bytes", segment_bytes.into())?;
        check(segment_count == 0 || segment_count >= MIN_SEGMENTS, "segment count", segment_count.into())?;
        Ok(ArchiveSuperblock { log_id, segment_bytes, segment_count })
    }
}

/// What a segment's first block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// The identity of the log that is archived.
    pub log_id: u128,
    /// The segment's number in the archive; on a device it lies at position `number % segment count`.
    pub number: u64,
    /// The session that began the segment.
    pub epoch: u64,
    /// The sequence number of the segment's first request.
    pub first_sequence: u64,
    /// Where the segment's first record starts. What earlier segments hold at or past it is void.
    pub start: Lsn,
    /// Where the archive began without a gap up to this segment. Equal to `start` if records before it were not archived.
    pub run_start: Lsn,
    /// The wall clock when the segment was begun, in microseconds since the Unix epoch.
    pub time_us: u64,
}

impl SegmentHeader {
    /// Writes the header into a block.
    ///
    /// # Panics
    /// If the block is shorter than [`BLOCK`].
    pub fn encode(&self, block: &mut [u8]) {
        block[..BLOCK].fill(0);
        let mut encoder = Encoder::new(block);
        encoder.u64(SEGMENT_MAGIC);
        encoder.u16(VERSION);
        encoder.u16(0);
        encoder.u128(self.log_id);
        let (start, run_start) = (self.start.get(), self.run_start.get());
        for field in [self.number, self.epoch, self.first_sequence, start, run_start, self.time_us] {
            encoder.u64(field);
        }
        encoder.checksum();
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8]) -> Result<SegmentHeader, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(SEGMENT_MAGIC)?;
        decoder.u16()?;
        let log_id = decoder.u128()?;
        let (number, epoch, first_sequence) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let (start, run_start, time_us) = (Lsn::new(decoder.u64()?), Lsn::new(decoder.u64()?), decoder.u64()?);
        decoder.checksum()?;
        check_numbers([number, epoch, first_sequence, start.get(), run_start.get(), time_us])?;
        check(run_start <= start, "run start", run_start.get())?;
        Ok(SegmentHeader { log_id, number, epoch, first_sequence, start, run_start, time_us })
    }
}
