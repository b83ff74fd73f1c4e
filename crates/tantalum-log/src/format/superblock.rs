//! The superblock: which log a device was formatted for, as which device, and how its area is divided and filled.
//!
//! Written once, when the device is formatted, in block 0 and again in block 1. Whether the device still belongs to the
//! log, the checkpoint slots say.

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
    /// The device's place in the log, from 0. Free again once the device was removed.
    pub ordinal: u32,
    /// Chosen at random whenever a device is formatted, never 0: what is on it can be told from what was there before.
    pub device_id: u64,
    /// How requests are laid out on the devices.
    pub layout: LogLayout,
    /// Over how many devices the log is striped; 1 in the other layouts, whatever their number.
    pub stripe_devices: u32,
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

/// What so many sections take of a device, or of each of so many in a stripe, the fixed structures included.
pub fn area_bytes_of(layout: LogLayout, stripe_devices: u32, section_bytes: u64, section_count: u64) -> u64 {
    let sections = section_bytes * section_count;
    let share = match layout {
        LogLayout::FlashLogging | LogLayout::Single => sections,
        LogLayout::Striped { unit_bytes } => {
            let unit_bytes = u64::from(unit_bytes);
            sections.div_ceil(unit_bytes * u64::from(stripe_devices)) * unit_bytes
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
        encoder.u64(self.device_id);
        encoder.u32(self.block_bytes);
        encoder.u32(self.section_bytes);
        encoder.u32(self.section_count);
        encoder.u32(self.hiding_section_count);
        encoder.u64(self.area_bytes);
        encoder.u32(unit_bytes);
        encoder.u32(self.stripe_devices);
        encoder.checksum();
        block
    }

    /// Reads and checks a superblock.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        let kind = decoder.u16()?;
        let log_id = decoder.u128()?;
        let (ordinal, device_id, block_bytes) = (decoder.u32()?, decoder.u64()?, decoder.u32()?);
        let (section_bytes, section_count, hiding_section_count) = (decoder.u32()?, decoder.u32()?, decoder.u32()?);
        let (area_bytes, unit_bytes, stripe_devices) = (decoder.u64()?, decoder.u32()?, decoder.u32()?);
        decoder.checksum()?;
        let blocks = MIN_BLOCK_BYTES..=BLOCK as u32;
        check(block_bytes.is_power_of_two() && blocks.contains(&block_bytes), "block size", block_bytes.into())?;
        let layout = match kind {
            0 => LogLayout::FlashLogging,
            1 => LogLayout::Single,
            2 => LogLayout::Striped { unit_bytes },
            _ => return Err(DecodeError::Field { field: "layout", value: kind.into() }),
        };
        let striped = matches!(layout, LogLayout::Striped { .. });
        check(!striped || is_unit(unit_bytes, block_bytes), "unit bytes", unit_bytes.into())?;
        let widths = 1..=if striped { MAX_DEVICES as u32 } else { 1 };
        check(widths.contains(&stripe_devices), "stripe devices", stripe_devices.into())?;
        let ordinals = if striped { stripe_devices } else { MAX_DEVICES as u32 };
        check(ordinal < ordinals, "ordinal", ordinal.into())?;
        check(device_id != 0, "device identity", device_id)?;
        let sections = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        let whole = section_bytes.is_multiple_of(BLOCK as u32);
        check(whole && sections.contains(&section_bytes), "section bytes", section_bytes.into())?;
        check(section_count >= MIN_SECTIONS, "section count", section_count.into())?;
        let may_hide = layout == LogLayout::FlashLogging && hiding_section_count >= MIN_HIDING_SECTIONS;
        check(hiding_section_count == 0 || may_hide, "hiding section count", hiding_section_count.into())?;
        let sections = u64::from(section_count) + u64::from(hiding_section_count);
        let needed = area_bytes_of(layout, stripe_devices, section_bytes.into(), sections);
        check(area_bytes == needed, "area bytes", area_bytes)?;
        Ok(Superblock {
            log_id,
            ordinal,
            device_id,
            layout,
            stripe_devices,
            block_bytes,
            section_bytes,
            section_count,
            hiding_section_count,
            area_bytes,
        })
    }
}
