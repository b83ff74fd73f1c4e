//! The superblock: which log a device belongs to, as which member, and how its area is divided.
//!
//! Written once, at creation, in block 0 and again in block 1.

use super::{BLOCK, DecodeError, Decoder, Encoder, MAX_DEVICES, VERSION, check};

const MAGIC: u64 = u64::from_le_bytes(*b"TNTLMLOG");

/// Blocks before the first section: two superblocks and two slots.
pub const FIXED_BLOCKS: u64 = 4;
/// The smallest section.
pub const MIN_SECTION_BYTES: u32 = 64 << 10;
/// The largest section.
pub const MAX_SECTION_BYTES: u32 = 1 << 30;
/// The fewest sections of a device.
pub const MIN_SECTIONS: u32 = 4;
/// The fewest sections of a hiding area, if there is one: one is filled while the other is still needed.
pub const MIN_HIDING_SECTIONS: u32 = 2;

/// A device's identity and division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log's identity.
    pub log_id: u128,
    /// The device's place in the log, from 0.
    pub ordinal: u32,
    /// How many devices the log has.
    pub device_count: u32,
    /// Bytes of a section.
    pub section_bytes: u32,
    /// How many sections the device has, those of its hiding area not counted.
    pub section_count: u32,
    /// How many sections its hiding area has, which follows the others; 0 without one.
    pub hiding_section_count: u32,
    /// Bytes of the device that the log uses.
    pub area_bytes: u64,
}

impl Superblock {
    /// The block that holds the superblock.
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut encoder = Encoder::new(&mut block);
        encoder.u64(MAGIC);
        encoder.u16(VERSION);
        encoder.u16(0);
        encoder.u128(self.log_id);
        encoder.u32(self.ordinal);
        encoder.u32(self.device_count);
        encoder.u32(BLOCK as u32);
        encoder.u32(self.section_bytes);
        encoder.u32(self.section_count);
        encoder.u32(self.hiding_section_count);
        encoder.u64(self.area_bytes);
        encoder.checksum();
        block
    }

    /// Reads and checks a superblock.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        decoder.u16()?;
        let log_id = decoder.u128()?;
        let (ordinal, device_count, block_bytes) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let (section_bytes, section_count, hiding_section_count) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let area_bytes = decoder.u64()?;
        decoder.checksum()?;
        check(block_bytes == BLOCK as u32, "block size", block_bytes.into())?;
        check((1..=MAX_DEVICES as u32).contains(&device_count), "device count", device_count.into())?;
        check(ordinal < device_count, "ordinal", ordinal.into())?;
        let sections = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        let whole = section_bytes.is_multiple_of(BLOCK as u32);
        check(whole && sections.contains(&section_bytes), "section bytes", section_bytes.into())?;
        check(section_count >= MIN_SECTIONS, "section count", section_count.into())?;
        let hides = hiding_section_count == 0 || hiding_section_count >= MIN_HIDING_SECTIONS;
        check(hides, "hiding section count", hiding_section_count.into())?;
        let sections = u64::from(section_count) + u64::from(hiding_section_count);
        let needed = FIXED_BLOCKS * BLOCK as u64 + u64::from(section_bytes) * sections;
        check(area_bytes == needed, "area bytes", area_bytes)?;
        Ok(Superblock { log_id, ordinal, device_count, section_bytes, section_count, hiding_section_count, area_bytes })
    }
}
