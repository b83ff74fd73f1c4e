//! Where things lie on a log device: superblocks in blocks 0 and 1, slots in blocks 2 and 3, then equal sections: first
//! those of the main area, then those of the hiding area.

use std::ops::Range;

use crate::format::superblock::{
    FIXED_BLOCKS, MAX_SECTION_BYTES, MIN_HIDING_SECTIONS, MIN_SECTION_BYTES, MIN_SECTIONS, Superblock,
};
use crate::format::{BLOCK, request};
use crate::{Error, Result};

const BLOCK_BYTES: u64 = BLOCK as u64;
/// Sections are no larger than this unless the options ask for it: what recovery may have to read for nothing.
const DEFAULT_MAX_SECTION_BYTES: u64 = 16 << 20;

/// Byte offsets of the superblock and its copy.
pub(crate) const SUPERBLOCKS: [u64; 2] = [0, BLOCK_BYTES];

/// Byte offset of the slot that takes `sequence`: slots are written in turn.
pub(crate) fn slot_offset(sequence: u64) -> u64 {
    (2 + sequence % 2) * BLOCK_BYTES
}

/// What the requests of a log carry to tell them from those of another log.
pub(crate) fn log_tag(log_id: u128) -> u64 {
    (log_id ^ (log_id >> 64)) as u64
}

/// A circle of sections: a device's main area, or its hiding area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Where the first section lies, in bytes.
    pub(crate) base: u64,
    pub(crate) section_bytes: u64,
    pub(crate) section_count: u64,
}

impl Layout {
    /// Divides a device of `capacity_bytes` into sections of `section_bytes`, and gives those at its end to a hiding
    /// area if it `hides` and there is room: a sixteenth of them, but at least four if that is no more than a quarter.
    pub(crate) fn divide(
        device: &str,
        capacity_bytes: u64,
        section_bytes: u32,
        hides: bool,
    ) -> Result<(Layout, Option<Layout>)> {
        let section_bytes = u64::from(section_bytes);
        let sections = capacity_bytes.saturating_sub(FIXED_BLOCKS * BLOCK_BYTES) / section_bytes;
        let sections = sections.min(u32::MAX.into());
        if sections < u64::from(MIN_SECTIONS) {
            let needed = FIXED_BLOCKS * BLOCK_BYTES + u64::from(MIN_SECTIONS) * section_bytes;
            return Err(Error::AreaTooSmall { device: device.into(), bytes: capacity_bytes, needed });
        }
        let hiding = match hides && sections >= u64::from(MIN_SECTIONS + MIN_HIDING_SECTIONS) {
            true => (sections / 4).clamp(MIN_HIDING_SECTIONS.into(), 4).max(sections / 16),
            false => 0,
        };
        let base = FIXED_BLOCKS * BLOCK_BYTES;
        let main = Layout { base, section_bytes, section_count: sections - hiding };
        Ok((main, main.followed_by(hiding)))
    }

    /// The area of `section_count` sections behind this one.
    fn followed_by(&self, section_count: u64) -> Option<Layout> {
        let base = self.base + self.section_bytes * self.section_count;
        (section_count > 0).then_some(Layout { base, section_bytes: self.section_bytes, section_count })
    }

    /// The section size for a log whose smallest device has `capacity_bytes`: what was asked for, or the default.
    pub(crate) fn section_bytes(wanted: Option<u32>, capacity_bytes: u64) -> Result<u32> {
        let limits = MIN_SECTION_BYTES..=MAX_SECTION_BYTES;
        if let Some(wanted) = wanted {
            if !limits.contains(&wanted) || !wanted.is_multiple_of(BLOCK as u32) {
                let expected = "it must be a multiple of 4096 between 64 KiB and 1 GiB";
                return Err(Error::InvalidOption { option: "section_bytes", value: wanted.into(), expected });
            }
            return Ok(wanted);
        }
        let eighth = (capacity_bytes / 8).min(DEFAULT_MAX_SECTION_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
        Ok((eighth as u32).max(MIN_SECTION_BYTES))
    }

    /// The main area.
    pub(crate) fn of(superblock: &Superblock) -> Layout {
        let (section_bytes, section_count) = (superblock.section_bytes.into(), superblock.section_count.into());
        Layout { base: FIXED_BLOCKS * BLOCK_BYTES, section_bytes, section_count }
    }

    /// The hiding area, if there is one.
    pub(crate) fn of_hiding(superblock: &Superblock) -> Option<Layout> {
        Layout::of(superblock).followed_by(superblock.hiding_section_count.into())
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

    /// The largest request in bytes. A quarter of a section, so that the unused end of a section is less than that.
    pub(crate) fn max_request_bytes(&self) -> u64 {
        self.section_bytes / 4 / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Record bytes that fit in the largest request.
    pub(crate) fn max_payload_bytes(&self) -> usize {
        (self.max_request_bytes() as usize - request::HEADER_BYTES).min(request::MAX_PAYLOAD_BYTES as usize)
    }

    /// Request bytes that every section takes whatever their sizes: what is left over at its end is smaller than the
    /// largest request, and its header takes one block.
    pub(crate) fn assured_section_bytes(&self) -> u64 {
        self.section_bytes - self.max_request_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_tile_the_area() {
        let (layout, hiding) = Layout::divide("d", 1 << 20, 65536, false).expect("large enough");
        assert_eq!((layout.section_count, hiding), (15, None));
        assert_eq!(layout.section(0).start, 16384);
        assert_eq!(layout.section(1).start, layout.section(0).end);
        assert_eq!(layout.section(15), layout.section(0));
        assert!(layout.section(14).end <= 1 << 20);
        assert!(layout.end() <= 1 << 20);
    }

    #[test]
    fn the_hiding_area_follows_the_main_area_where_there_is_room() {
        let sections = [(4, 0), (5, 0), (6, 2), (11, 2), (12, 3), (16, 4), (64, 4), (160, 10)];
        for (sections, expected) in sections {
            let capacity = 16384 + sections * 65536 + 5000;
            let (main, hiding) = Layout::divide("d", capacity, 65536, true).expect("large enough");
            assert_eq!(hiding.map_or(0, |hiding| hiding.section_count), expected, "of {sections}");
            assert_eq!(main.section_count, sections - expected);
            if let Some(hiding) = hiding {
                assert_eq!(hiding.section(0).start, main.end());
                assert_eq!(hiding.section(hiding.section_count - 1).end, hiding.end());
            }
        }
    }

    #[test]
    fn a_device_too_small_is_named_with_what_it_needs() {
        let error = Layout::divide("tiny", 100_000, 65536, true).unwrap_err();
        assert!(matches!(&error, Error::AreaTooSmall { device, needed: 278_528, .. } if device == "tiny"), "{error}");
    }

    #[test]
    fn default_sections_are_an_eighth_within_bounds() {
        for (capacity, expected) in [(0, 65536), (1 << 20, 131_072), (64 << 20, 8 << 20), (1 << 40, 16 << 20)] {
            assert_eq!(Layout::section_bytes(None, capacity).expect("default"), expected);
        }
        assert!(Layout::section_bytes(Some(65537), 1 << 30).is_err());
    }
}
