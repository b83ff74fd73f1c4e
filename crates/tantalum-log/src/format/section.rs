//! The section header: a small index over what the device wrote before ("FlashLogging", section 3.6, Figure 9).
//!
//! It occupies a section's first block and goes out in one device write with the section's first request. It speeds up
//! finding an LSN; what it says can also be learnt from the requests, so a damaged one loses nothing.

use super::{BLOCK, DecodeError, Decoder, Encoder, VERSION, check, check_numbers};
use crate::Lsn;

const MAGIC: u64 = u64::from_le_bytes(*b"TNTLSECT");
const FIXED_BYTES: usize = 72;
const ENTRY_BYTES: usize = 12;

/// The most entries about the previous section.
pub const MAX_ENTRIES: usize = (BLOCK - FIXED_BYTES - 4) / ENTRY_BYTES;

/// What a section's first block says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// The log's identity.
    pub log_id: u128,
    /// The device's identity, as in its superblock.
    pub device_id: u64,
    /// Whether it belongs to the device's hiding area, whose sections have numbers of their own.
    pub is_hiding: bool,
    /// The section's number in its area; it lies at position `number % section count`.
    pub number: u64,
    /// The session that began the section.
    pub epoch: u64,
    /// The sequence number of the section's first request.
    pub first_sequence: u64,
    /// The largest end LSN in the area before this section.
    pub stream_lsn: Lsn,
    /// Requests of the previous section, one for each stride of blocks, in order.
    pub previous: Vec<StrideEntry>,
}

/// A request of the previous section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrideEntry {
    /// The byte of the section at which the request starts.
    pub at: u32,
    /// The largest end LSN in the area before the request.
    pub stream_lsn: Lsn,
}

impl SectionHeader {
    /// Writes the header into a block.
    ///
    /// # Panics
    /// If the block is shorter than [`BLOCK`] or there are more than [`MAX_ENTRIES`] entries.
    pub fn encode(&self, block: &mut [u8]) {
        assert!(self.previous.len() <= MAX_ENTRIES, "a section header holds at most {MAX_ENTRIES} entries");
        block[..BLOCK].fill(0);
        let mut encoder = Encoder::new(block);
        encoder.u64(MAGIC);
        encoder.u16(VERSION);
        encoder.u16(self.previous.len() as u16);
        encoder.u128(self.log_id);
        encoder.u64(self.device_id);
        encoder.u32(self.is_hiding.into());
        encoder.u64(self.number);
        encoder.u64(self.epoch);
        encoder.u64(self.first_sequence);
        encoder.u64(self.stream_lsn.get());
        for entry in &self.previous {
            encoder.u32(entry.at);
            encoder.u64(entry.stream_lsn.get());
        }
        encoder.checksum();
    }

    /// Reads and checks a header.
    pub fn decode(bytes: &[u8]) -> Result<SectionHeader, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        let count = decoder.u16()?;
        check(usize::from(count) <= MAX_ENTRIES, "entry count", count.into())?;
        let (log_id, device_id, area) = (decoder.u128()?, decoder.u64()?, decoder.u32()?);
        let (number, epoch, first_sequence) = (decoder.u64()?, decoder.u64()?, decoder.u64()?);
        let stream_lsn = Lsn::new(decoder.u64()?);
        let mut previous = Vec::with_capacity(count.into());
        for _ in 0..count {
            previous.push(StrideEntry { at: decoder.u32()?, stream_lsn: Lsn::new(decoder.u64()?) });
        }
        decoder.checksum()?;
        check(area <= 1, "area", area.into())?;
        check_numbers([number, epoch, first_sequence, stream_lsn.get()])?;
        let ascending = previous.is_sorted_by(|a, b| a.at < b.at && a.stream_lsn <= b.stream_lsn);
        check(ascending, "entry order", 0)?;
        let is_hiding = area == 1;
        Ok(SectionHeader { log_id, device_id, is_hiding, number, epoch, first_sequence, stream_lsn, previous })
    }
}
