//! The layout of a log device: superblocks in blocks 0 and 1, slots in blocks 2 and 3, then equal sections: first
//! those of the main area, then those of the hiding area. Blocks are of 4096 bytes here; requests are written in blocks
//! that may be smaller.

use std::ops::Range;

use crate::format::superblock::{
    FIXED_BLOCKS, MAX_SECTION_BYTES, MIN_BLOCK_BYTES, MIN_HIDING_SECTIONS, MIN_SECTION_BYTES, MIN_SECTIONS, Superblock,
};
use crate::format::{BLOCK, request};
use crate::{LogLayout, Result, error};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Sections are no larger than this unless the options ask for it: what recovery may have to read for nothing.
const DEFAULT_MAX_SECTION_BYTES: u64 = 16 << 20;

/// Where packed requests start.
const PACKED_BYTES: u64 = 8;

/// Byte offsets of the superblock and its copy.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, BLOCK_BYTES];

/// Byte offset of the slot that takes `sequence`: slots are written in turn.
pub(crate) fn slot_offset(sequence: u64) -> u64 {
    (2 + sequence % 2) * BLOCK_BYTES
}

/// What the requests on a device carry to tell them from those of another log, and from what stood there before the
/// device was formatted.
pub(crate) fn device_tag(log_id: u128, device_id: u64) -> u64 {
    (log_id ^ (log_id >> 64)) as u64 ^ device_id
}

/// A circle of sections, a device's main area or its hiding area, and how it is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where the first section lies, in bytes.
    pub(crate) base: u64,
    pub(crate) section_bytes: u64,
    pub(crate) section_count: u64,
    /// Requests start at multiples of this, one right behind the other. Divides the block.
    pub(crate) alignment: u64,
    /// Device writes start and end at multiples of this.
    pub(crate) block_bytes: u64,
    /// Requests that may be under way at the same time: as many as an array has devices, or more with a request for each flush. If
    /// more than one, a power cut may leave a request torn and later ones whole; but only in the last section, see [`crate::log_layout`].
    pub(crate) depth: usize,
}

impl Layout {
    /// How many sections of `section_bytes` a device of `capacity_bytes` has in its main and in its hiding area. If it
    /// `hides` and there is room, the hiding area has a sixteenth of them, but at least four if that is no more than a
    /// quarter.
    pub(crate) fn section_counts(
        device: &str,
        capacity_bytes: u64,
        section_bytes: u32,
        hides: bool,
    ) -> Result<(u32, u32)> {
        let section_bytes = u64::from(section_bytes);
        let sections = capacity_bytes.saturating_sub(FIXED_BLOCKS * BLOCK_BYTES) / section_bytes;
        let sections = u32::try_from(sections).unwrap_or(u32::MAX);
        if sections < MIN_SECTIONS {
            let needed = FIXED_BLOCKS * BLOCK_BYTES + u64::from(MIN_SECTIONS) * section_bytes;
            return Err(error::area_too_small(device, capacity_bytes, needed));
        }
        let hiding = match hides && sections >= MIN_SECTIONS + MIN_HIDING_SECTIONS {
            true => (sections / 4).clamp(MIN_HIDING_SECTIONS, 4).max(sections / 16),
            false => 0,
        };
        Ok((sections - hiding, hiding))
    }

    /// The block in which requests are written to a device with these logical blocks: what was asked for, or the
    /// default of the layout.
    pub(crate) fn block_bytes(wanted: Option<u32>, log_layout: LogLayout, logical_block: u32) -> Result<u32> {
        let least = logical_block.max(MIN_BLOCK_BYTES);
        let default = match log_layout {
            LogLayout::FlashLogging => BLOCK as u32,
            LogLayout::Single | LogLayout::Striped { .. } => least,
        };
        let chosen = wanted.unwrap_or(default);
        if !chosen.is_power_of_two() || !(least..=BLOCK as u32).contains(&chosen) {
            let expected = "it must be a power of two from 512, and from the logical block of every device, to 4096";
            return Err(error::invalid_option("block_bytes", chosen.into(), expected));
        }
        Ok(chosen)
    }

    /// The section size for a log whose smallest device has `capacity_bytes`: what was asked for, or the default.
    pub(crate) fn section_bytes(wanted: Option<u32>, capacity_bytes: u64) -> Result<u32> {
        let limits = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        if let Some(wanted) = wanted {
            if !limits.contains(&wanted) || !wanted.is_multiple_of(BLOCK as u32) {
                let expected = "it must be a multiple of 4096 between 64 KiB and 1 GiB";
                return Err(error::invalid_option("section_bytes", wanted.into(), expected));
            }
            return Ok(wanted);
        }
        let eighth = (capacity_bytes / 8).min(DEFAULT_MAX_SECTION_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        Ok((eighth as u32).max(MIN_SECTION_BYTES))
    }

    /// Record bytes that fit in the largest request on a device of so many bytes, cut as is usual.
    pub(crate) fn default_payload_bytes(capacity_bytes: u64) -> usize {
        let section_bytes = Layout::section_bytes(None, capacity_bytes).expect("the default is possible");
        let layout = Layout {
            base: 0,
            section_bytes: section_bytes.into(),
            section_count: 0,
            alignment: BLOCK_BYTES,
            block_bytes: BLOCK_BYTES,
            depth: 1,
        };
        layout.max_payload_bytes()
    }

    /// The main area.
    pub(crate) fn of(superblock: &Superblock) -> Layout {
        let block_bytes = superblock.block_bytes.into();
        Layout {
            base: FIXED_BLOCKS * BLOCK_BYTES,
            section_bytes: superblock.section_bytes.into(),
            section_count: superblock.section_count.into(),
            alignment: alignment(superblock.layout, block_bytes),
            block_bytes,
            depth: match superblock.layout {
                LogLayout::FlashLogging | LogLayout::Single => 1,
                LogLayout::Striped { .. } => superblock.stripe_devices as usize,
            },
        }
    }

    /// The hiding area, if there is one.
    pub(crate) fn of_hiding(superblock: &Superblock) -> Option<Layout> {
        let main = Layout::of(superblock);
        let section_count = superblock.hiding_section_count.into();
        (section_count > 0).then_some(Layout { base: main.end(), section_count, ..main })
    }

    /// Where the area ends.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.section_bytes * self.section_count
    }

    pub(crate) fn position(&self, number: u64) -> u64 {
        number % self.section_count
    }

    /// The bytes of the device that section `number` occupies.
    pub(crate) fn section(&self, number: u64) -> Range<u64> {
        let start = self.base + self.position(number) * self.section_bytes;
        start..start + self.section_bytes
    }

    /// Where the sections from `first` to `last` end that lie one behind the other, before the circle begins anew.
    pub(crate) fn run_end(&self, first: u64, last: u64) -> u64 {
        let at_most = self.section_count - 1 - self.position(first);
        self.section(first + at_most.min(last.saturating_sub(first))).end
    }

    /// The largest request in bytes. A quarter of a section, so that the unused end of a section is less than that.
    pub(crate) fn max_request_bytes(&self) -> u64 {
        self.section_bytes / 4 / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Whether a request may begin in the block in which the one before it ended.
    pub(crate) fn is_packed(&self) -> bool {
        self.alignment < self.block_bytes
    }

    /// What a request of `bytes` bytes of header and payload occupies.
    pub(crate) fn request_bytes(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.alignment)
    }

    /// Record bytes that fit in the largest request.
    pub(crate) fn max_payload_bytes(&self) -> usize {
        (self.max_request_bytes() as usize - request::HEADER_BYTES).min(request::MAX_PAYLOAD_BYTES as usize)
    }

    /// Request bytes that every section takes whatever their sizes: what is left over at its end is smaller than the
    /// largest request, by at least the alignment, and its header takes one block.
    pub(crate) fn assured_section_bytes(&self) -> u64 {
        self.section_bytes - BLOCK_BYTES - (self.max_request_bytes() - self.alignment)
    }
}

/// Where requests start in blocks of `block_bytes`.
fn alignment(log_layout: LogLayout, block_bytes: u64) -> u64 {
    match log_layout {
        LogLayout::FlashLogging | LogLayout::Striped { .. } => block_bytes,
        LogLayout::Single => PACKED_BYTES,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tile_the_area() {
        assert_eq!(Layout::section_counts("d", 1 << 20, 65536, false).expect("large enough"), (15, 0));
        let layout =
            Layout { base: 16384, section_bytes: 65536, section_count: 15, alignment: 512, block_bytes: 512, depth: 1 };
        assert_eq!(layout.section(0).start, 16384);
        assert_eq!(layout.section(1).start, layout.section(0).end);
        assert_eq!(layout.section(15), layout.section(0));
        assert!(layout.section(14).end <= 1 << 20);
        assert!(layout.end() <= 1 << 20);
        assert_eq!((layout.run_end(3, 7), layout.run_end(3, 3)), (layout.section(7).end, layout.section(3).end));
        assert_eq!((layout.run_end(13, 17), layout.run_end(17, 19)), (layout.end(), layout.section(4).end));
    }

    #[test]
    fn the_hiding_area_follows_the_main_area_where_there_is_room() {
        let sections = [(4, 0), (5, 0), (6, 2), (11, 2), (12, 3), (16, 4), (64, 4), (160, 10)];
        for (sections, expected) in sections {
            let capacity = 16384 + u64::from(sections) * 65536 + 5000;
            let counts = Layout::section_counts("d", capacity, 65536, true).expect("large enough");
            assert_eq!(counts, (sections - expected, expected));
            let superblock = Superblock {
                log_id: 1,
                ordinal: 0,
                device_id: 1,
                layout: LogLayout::FlashLogging,
                stripe_devices: 1,
                block_bytes: 4096,
                section_bytes: 65536,
                section_count: counts.0,
                hiding_section_count: counts.1,
                area_bytes: capacity - 5000,
            };
            let main = Layout::of(&superblock);
            let hiding = Layout::of_hiding(&superblock);
            assert_eq!(hiding.is_some(), expected > 0);
            if let Some(hiding) = hiding {
                assert_eq!(hiding.section(0).start, main.end());
                assert_eq!(hiding.section(hiding.section_count - 1).end, hiding.end());
            }
            assert_eq!(hiding.unwrap_or(main).end(), superblock.area_bytes);
        }
    }

    #[test]
    fn a_device_too_small_is_named_with_what_it_needs() {
        let error = Layout::section_counts("tiny", 100_000, 65536, true).unwrap_err();
        assert!(
            error.to_string().contains("device, at least 278528 are needed") && error.to_string().starts_with("tiny: "),
            "{error}"
        );
    }

    #[test]
    fn default_sections_are_an_eighth_within_bounds() {
        for (capacity, expected) in [(0, 65536), (1 << 20, 131_072), (64 << 20, 8 << 20), (1 << 40, 16 << 20)] {
            assert_eq!(Layout::section_bytes(None, capacity).expect("default"), expected);
        }
        assert!(Layout::section_bytes(Some(65537), 1 << 30).is_err());
    }
}
