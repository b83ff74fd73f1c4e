//! The superblock: which log a device belongs to, as which member, and how its area is divided and filled.
//!
//! Written once, at creation, in block 0 and again in block 1.

use super::{BLOCK, DecodeError, Decoder, Encoder, MAX_DEVICES, VERSION, check};
use crate::LogLayout;
use crate::log_layout::is_unit;

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
/// The smallest block in which requests are written.
pub const MIN_BLOCK_BYTES: u32 = 512;

/// A device's identity and division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The log's identity.
    pub log_id: u128,
    /// The device's place in the log, from 0.
    pub ordinal: u32,
    /// How many devices the log has.
    pub device_count: u32,
    /// How requests are laid out on the devices.
    pub layout: LogLayout,
    /// Requests are written in multiples of this: a power of two between 512 and 4096.
    pub block_bytes: u32,
    /// Bytes of a section.
    pub section_bytes: u32,
    /// How many sections the device has, those of its hiding area not counted; in the striped layout, all devices
    /// together.
    pub section_count: u32,
    /// How many sections its hiding area has, which follows the others; 0 without one.
    pub hiding_section_count: u32,
    /// Bytes of this device that the log uses.
    pub area_bytes: u64,
}

/// What so many sections take of each of so many devices, the fixed structures included.
pub fn area_bytes_of(layout: LogLayout, device_count: u32, section_bytes: u64, section_count: u64) -> u64 {
    let sections = section_bytes * section_count;
    let share = match layout {
        LogLayout::FlashLogging | LogLayout::Single => sections,
        LogLayout::Striped { unit_bytes } => {
            let unit_bytes = u64::from(unit_bytes);
            sections.div_ceil(unit_bytes * u64::from(device_count)) * unit_bytes
        }
    };
    FIXED_BLOCKS * BLOCK as u64 + share
}

impl Superblock {
    /// The block that holds the superblock.
    pub fn encode(&self) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut encoder = Encoder::new(&mut block);
        encoder.u64(MAGIC);
        encoder.u16(VERSION);
        let (kind, unit_bytes) = match self.layout {
            LogLayout::FlashLogging => (0, 0),
            LogLayout::Single => (1, 0),
            LogLayout::Striped { unit_bytes } => (2, unit_bytes),
        };
        encoder.u16(kind);
        encoder.u128(self.log_id);
        encoder.u32(self.ordinal);
        encoder.u32(self.device_count);
        encoder.u32(self.block_bytes);
        encoder.u32(self.section_bytes);
        encoder.u32(self.section_count);
        encoder.u32(self.hiding_section_count);
        encoder.u64(self.area_bytes);
        encoder.u32(unit_bytes);
        encoder.checksum();
        block
    }

    /// Reads and checks a superblock.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        let kind = decoder.u16()?;
        let log_id = decoder.u128()?;
        let (ordinal, device_count, block_bytes) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let (section_bytes, section_count, hiding_section_count) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let (area_bytes, unit_bytes) = (decoder.u64()?, decoder.u32()?);
        decoder.checksum()?;
        let blocks = MIN_BLOCK_BYTES..=BLOCK as u32;
        check(block_bytes.is_power_of_two() && blocks.contains(&block_bytes), "block size", block_bytes.into())?;
        let layout = match kind {
            0 => LogLayout::FlashLogging,
            1 => LogLayout::Single,
            2 => LogLayout::Striped { unit_bytes },
            _ => return Err(DecodeError::Field { field: "layout", value: kind.into() }),
        };
        check((1..=MAX_DEVICES as u32).contains(&device_count), "device count", device_count.into())?;
        check(ordinal < device_count, "ordinal", ordinal.into())?;
        let striped = matches!(layout, LogLayout::Striped { .. });
        check(!striped || is_unit(unit_bytes, block_bytes), "unit bytes", unit_bytes.into())?;
        let sections = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        let whole = section_bytes.is_multiple_of(BLOCK as u32);
        check(whole && sections.contains(&section_bytes), "section bytes", section_bytes.into())?;
        check(section_count >= MIN_SECTIONS, "section count", section_count.into())?;
        let may_hide = layout == LogLayout::FlashLogging && hiding_section_count >= MIN_HIDING_SECTIONS;
        check(hiding_section_count == 0 || may_hide, "hiding section count", hiding_section_count.into())?;
        let sections = u64::from(section_count) + u64::from(hiding_section_count);
        let needed = area_bytes_of(layout, device_count, section_bytes.into(), sections);
        check(area_bytes == needed, "area bytes", area_bytes)?;
        Ok(Superblock {
            log_id,
            ordinal,
            device_count,
            layout,
            block_bytes,
            section_bytes,
            section_count,
            hiding_section_count,
            area_bytes,
        })
    }
}
