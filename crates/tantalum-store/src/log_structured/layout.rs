//! How a device is cut: the superblock, the two slots of the map's root, then segments; and how each block of the store's own begins:
//! what it is, its checksum, its version, and the database that it belongs to.
//!
//! Of a device with zones, each is a segment. What is written over lies before the first one.

use tantalum_device::{Device, Zones};

use super::{
    map::{CHUNKS_MAX, ENTRIES},
    root::{FIRST_STREAMS, directories_max},
    summary::{ENTRIES_MAX, Stream},
};
use crate::{SegmentSizes, Superblock};

/// What summaries and parts of the map are long, and places are counted in.
pub const BLOCK_BYTES: usize = 4096;
/// What the length of a stored page is counted in, and where one begins.
pub const UNIT_BYTES: usize = 256;
/// Units of a block.
pub const BLOCK_UNITS: u32 = (BLOCK_BYTES / UNIT_BYTES) as u32;

/// Between the slots of the root: no device tears both with one write.
const SLOT_STRIDE_BYTES: u64 = 16 << 10;
/// Slots of the root.
pub const SLOTS: u64 = 2;

/// Segments have room for so many pages at least.
const SEGMENT_PAGES_MIN: usize = 8;
/// Zones that are partly written at a time, at least: of new pages, of moved ones, and of the map.
const ACTIVE_ZONES_MIN: u32 = 3;
/// Opening after a crash reads what is left of the open segments, and what was appended to four.
const SEGMENT_BYTES_MAX: usize = 2 << 30;
/// Parts of the device that live pages may take, in percent.
const FILL_PERCENTS: std::ops::RangeInclusive<u32> = 10..=95;

/// The open segments: of new pages and of moved ones, those that follow them, and one of the map.
const OPEN_SEGMENTS: u32 = 5;
/// Free segments, beside those of a whole map, that opening after a crash can count on. It takes four; the two that were to follow
/// the open ones are free again; and cleaning needs one to go on in, beside that which it leaves.
const RESTART_SEGMENTS: u32 = 4;
/// Free segments that only cleaning takes, beside those of a whole map and those that opening can count on.
const CLEANING_SEGMENTS: u32 = 1;
/// Dead room that there is however many pages are live, so that cleaning finds some.
const SLACK_SEGMENTS: u32 = 8;
/// Pages for each block of a map, at least.
const PAGES_PER_MAP_BLOCK: u64 = 490;
/// Blocks of the smallest map, with a summary.
const MAP_BLOCKS_MIN: u64 = 3;
/// A store on fewer segments has too little choice what to clean.
const SEGMENTS_MIN: u32 = 32;

/// A block of a device, by its number. The first holds the superblock, so no page is ever there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u64);

impl Place {
    /// Whether a device could have such a block.
    pub fn is_possible(self) -> bool {
        Extent::of_whole_page(self.0, BLOCK_UNITS).is_some()
    }

    /// Where it starts, in bytes.
    pub fn offset(self) -> u64 {
        self.0 * BLOCK_BYTES as u64
    }

    /// The place so many blocks behind it.
    pub fn plus(self, blocks: u32) -> Self {
        Self(self.0 + u64::from(blocks))
    }
}

/// Where a page is stored, and how long it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// The device's unit in which it begins.
    start: u64,
    units: u16,
}

impl Extent {
    /// Bits of the number that stand for the first unit; the length is in the others.
    const START_BITS: u32 = 48;

    /// So many units, the first of which has `skip` units before it in its block.
    ///
    /// # Panics
    /// With more units than any page has.
    pub fn at(block: Place, skip: u32, units: u32) -> Self {
        let units = u16::try_from(units).expect("a page has at most 64 units");
        Self { start: block.0 * u64::from(BLOCK_UNITS) + u64::from(skip), units }
    }

    /// That of a page which is stored as it is, from a block on; `None` if no device has that block.
    pub fn of_whole_page(block: u64, page_units: u32) -> Option<Self> {
        let start = block.checked_mul(BLOCK_UNITS.into()).filter(|start| start >> Self::START_BITS == 0)?;
        Some(Self { start, units: u16::try_from(page_units).ok()? })
    }

    /// The block from which on a page is stored as it is; `None` for another.
    pub fn block_of_whole_page(self, page_units: u32) -> Option<u64> {
        let is_whole = self.units() == page_units && self.start.is_multiple_of(BLOCK_UNITS.into());
        is_whole.then_some(self.start / u64::from(BLOCK_UNITS))
    }

    /// The extent that a number in the map or a summary stands for; 0 stands for none.
    pub fn from_number(number: u64) -> Option<Self> {
        let found = Self { start: number & ((1 << Self::START_BITS) - 1), units: (number >> Self::START_BITS) as u16 };
        (number != 0).then_some(found)
    }

    /// The number that stands for it.
    pub fn number(self) -> u64 {
        debug_assert!(self.start >> Self::START_BITS == 0, "no device has so many units");
        u64::from(self.units) << Self::START_BITS | self.start
    }

    /// Where it starts, in bytes.
    pub fn offset(self) -> u64 {
        self.start * UNIT_BYTES as u64
    }

    /// Its units.
    pub fn units(self) -> u32 {
        self.units.into()
    }

    /// Its bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.units) * UNIT_BYTES
    }

    /// Where it ends, in bytes.
    pub fn end(self) -> u64 {
        self.offset() + self.bytes() as u64
    }
}

/// How a device is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    page_bytes: usize,
    sizes: SegmentSizes,
    zones: Option<Zones>,
}

impl SegmentSizes {
    /// Bytes of a file on which a store can begin.
    pub fn initial_bytes(self, page_bytes: usize) -> u64 {
        let layout = Layout { page_bytes, sizes: self, zones: None };
        layout.head_bytes() + u64::from(layout.segments_min() + SEGMENTS_MIN / 2) * u64::from(self.segment)
    }
}

impl Layout {
    /// Cuts a device for pages of `page_bytes`.
    ///
    /// # Errors
    /// Says why it cannot be cut so.
    pub fn new(device: &dyn Device, page_bytes: usize, sizes: SegmentSizes) -> Result<Self, String> {
        let (capabilities, segment) = (device.capabilities(), sizes.segment as usize);
        if capabilities.erase_block_bytes > 0 {
            return Err(
                "log-structured writes over its map's root, which raw flash does not allow; use in-page-logging".into(),
            );
        }
        if !BLOCK_BYTES.is_multiple_of(capabilities.logical_block as usize) {
            return Err(format!("blocks of {} bytes are larger than {BLOCK_BYTES}", capabilities.logical_block));
        }
        let (least, most) = (SEGMENT_PAGES_MIN * page_bytes, SEGMENT_BYTES_MAX);
        let zones = capabilities.zones;
        if let Some(Zones { bytes, .. }) = zones.filter(|zones| zones.bytes != segment as u64) {
            return Err(format!(
                "the device has zones of {bytes} bytes, each of which is a segment, and segments of {segment} bytes were asked \
                 for; take segment_bytes = {bytes} (a multiple of {page_bytes} from {least} to {most} is possible)"
            ));
        }
        if !segment.is_multiple_of(page_bytes) || !(least..=most).contains(&segment) {
            return Err(format!(
                "segments of {segment} bytes are not possible; take a multiple of {page_bytes} from {least} to {most}"
            ));
        }
        if !FILL_PERCENTS.contains(&sizes.fill_percent) {
            let (least, most) = FILL_PERCENTS.into_inner();
            return Err(format!("{} % cannot be filled; take {least} to {most}", sizes.fill_percent));
        }
        let layout = Self { page_bytes, sizes, zones };
        layout.check_zones()?;
        let (has, needs) = (layout.segments(device.capacity_bytes()), layout.segments_min());
        if has < needs {
            let bytes = layout.head_bytes() + u64::from(needs) * segment as u64;
            return Err(format!(
                "the device has room for {has} segments of {segment} bytes, and needs {needs} ({bytes} bytes in all); \
                 take a larger one, or smaller segments"
            ));
        }
        Ok(layout)
    }

    /// Refuses zones on which the store cannot be.
    fn check_zones(&self) -> Result<(), String> {
        let Some(Zones { start, max_active, .. }) = self.zones else { return Ok(()) };
        let needed = self.slot_at(SLOTS);
        if start < needed {
            return Err(format!(
                "the superblock and the map's root are written over, for which the device needs {needed} bytes before its first \
                 zone, and it has {start}; take one with a conventional part as large"
            ));
        }
        if !start.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(format!(
                "the first zone begins at byte {start}, no multiple of {BLOCK_BYTES}; take another device"
            ));
        }
        if max_active < ACTIVE_ZONES_MIN {
            return Err(format!(
                "{max_active} zones may be partly written at a time, and the store needs {ACTIVE_ZONES_MIN}; take another device"
            ));
        }
        Ok(())
    }

    /// Whether segments are zones of the device.
    pub fn has_zones(&self) -> bool {
        self.zones.is_some()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Blocks of a page that is stored as it is.
    pub fn page_blocks(&self) -> u32 {
        (self.page_bytes / BLOCK_BYTES) as u32
    }

    /// Units of a page that is stored as it is.
    pub fn page_units(&self) -> u32 {
        (self.page_bytes / UNIT_BYTES) as u32
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        u64::from(self.sizes.segment)
    }

    /// Blocks of a segment.
    pub fn segment_blocks(&self) -> u32 {
        self.sizes.segment / BLOCK_BYTES as u32
    }

    /// Units of a segment.
    pub fn segment_units(&self) -> u32 {
        self.segment_blocks() * BLOCK_UNITS
    }

    /// The fewest segments on which a store works that have room for so many pages.
    pub fn segments_for(&self, pages: u64) -> u32 {
        let (mut too_few, mut enough) = (self.segments_min() - 1, u32::MAX);
        while enough - too_few > 1 {
            let middle = too_few + (enough - too_few) / 2;
            if self.capacity_pages(middle) >= pages { enough = middle } else { too_few = middle }
        }
        enough
    }

    /// What stands before the first segment.
    fn head_bytes(&self) -> u64 {
        let written_over = self.slot_at(SLOTS).next_multiple_of(self.segment_bytes());
        self.zones.map_or(written_over, |zones| zones.start)
    }

    /// Where a slot of the root is.
    pub fn slot_at(&self, slot: u64) -> u64 {
        Superblock::PAGES * self.page_bytes as u64 + slot * SLOT_STRIDE_BYTES
    }

    /// The segments of a device of so many bytes.
    pub fn segments(&self, device_bytes: u64) -> u32 {
        u32::try_from(device_bytes.saturating_sub(self.head_bytes()) / self.segment_bytes()).unwrap_or(u32::MAX)
    }

    /// The size of a device with so many segments.
    pub fn device_bytes(&self, segments: u32) -> u64 {
        self.head_bytes() + u64::from(segments) * self.segment_bytes()
    }

    /// A block of a segment.
    pub fn place(&self, segment: u32, block: u32) -> Place {
        debug_assert!(block < self.segment_blocks());
        let bytes = self.head_bytes() + u64::from(segment) * self.segment_bytes();
        Place(bytes / BLOCK_BYTES as u64).plus(block)
    }

    /// The segment of a byte of the device, and the byte in it; `None` before the first.
    pub fn segment_at(&self, offset: u64) -> Option<(u32, u64)> {
        let bytes = offset.checked_sub(self.head_bytes())?;
        let segment = u32::try_from(bytes / self.segment_bytes()).ok()?;
        Some((segment, bytes % self.segment_bytes()))
    }

    /// The segment in which a page is stored, if one can be there: behind a summary, and to the segment's end at most.
    pub fn segment_of(&self, page: Extent) -> Option<u32> {
        let (segment, at) = self.segment_at(page.offset())?;
        let fits = at >= BLOCK_BYTES as u64 && at + page.bytes() as u64 <= self.segment_bytes();
        (fits && (1..=self.page_units()).contains(&page.units())).then_some(segment)
    }

    /// Whether an append of pages still begins in a segment of which so many blocks are used.
    pub fn has_room(&self, used_blocks: u32) -> bool {
        self.segment_blocks() - used_blocks > self.page_blocks()
    }

    /// Whether a stream goes on in another segment once so many blocks of one are used, though some are not.
    pub fn is_left(&self, stream: Stream, used_blocks: u32) -> bool {
        let goes_on = match stream {
            Stream::Map => used_blocks + 1 < self.segment_blocks(),
            _ => self.has_room(used_blocks),
        };
        !goes_on && used_blocks < self.segment_blocks()
    }

    /// Pages in a segment that is written in as few appends as possible.
    pub fn pages_per_segment(&self) -> u32 {
        let (mut used, mut pages) = (0, 0);
        while self.has_room(used) {
            let fit = ((self.segment_blocks() - used - 1) / self.page_blocks()).min(ENTRIES_MAX as u32);
            pages += fit;
            used += 1 + fit * self.page_blocks();
        }
        pages
    }

    /// Segments that so many whole maps of so many segments' pages take.
    fn map_segments(&self, maps: u64, segments: u32) -> u32 {
        let pages = u64::from(segments) * u64::from(self.pages_per_segment());
        // Chunks, directories and summaries: more than they are, and rising without jumps, so that the pages that there
        // is room for rise too.
        let blocks = maps * (pages / PAGES_PER_MAP_BLOCK + MAP_BLOCKS_MIN);
        u32::try_from(blocks.div_ceil(u64::from(self.segment_blocks()))).unwrap_or(u32::MAX)
    }

    /// Free segments that a checkpoint, and opening once more if it was in vain, can count on, of so many in all.
    pub fn checkpoint_reserve(&self, segments: u32) -> u32 {
        1 + self.map_segments(1, segments)
    }

    /// Free segments that checkpoints and opening can count on, of so many in all.
    pub fn restart_reserve(&self, segments: u32) -> u32 {
        RESTART_SEGMENTS + self.map_segments(1, segments)
    }

    /// Free segments that new pages do not take, of so many in all.
    pub fn cleaning_reserve(&self, segments: u32) -> u32 {
        CLEANING_SEGMENTS + self.map_segments(1, segments) + self.restart_reserve(segments)
    }

    /// Segments that have no live pages however full the store is, of so many in all.
    fn reserve(&self, segments: u32) -> u32 {
        // A map is in two copies while a checkpoint replaces it, and one that was replaced leaves holes.
        let fixed = OPEN_SEGMENTS + RESTART_SEGMENTS + CLEANING_SEGMENTS + SLACK_SEGMENTS;
        fixed + self.map_segments(4, segments)
    }

    /// The streams of pages that so many segments bear: as many as leave the pages that there is room for.
    pub fn page_streams(&self, segments: u32) -> usize {
        let all = Stream::OF_PAGES.len();
        let more = 2 * (all - FIRST_STREAMS) as u32;
        let capacity = self.capacity_pages(segments);
        let sparing = segments.saturating_sub(self.reserve(segments) + more);
        let has_segments = u64::from(sparing) * u64::from(self.pages_per_segment()) >= capacity;
        let has_directories = capacity <= (directories_max(all) * ENTRIES * ENTRIES) as u64;
        let streams = if has_segments && has_directories { all } else { FIRST_STREAMS };
        // The map takes one.
        self.zones.map_or(streams, |zones| streams.min(zones.max_active as usize - 1))
    }

    fn segments_min(&self) -> u32 {
        (SEGMENTS_MIN..).find(|segments| 3 * self.reserve(*segments) <= 2 * segments).unwrap_or(u32::MAX)
    }

    /// The pages that so many segments have room for.
    pub fn capacity_pages(&self, segments: u32) -> u64 {
        let per_segment = u64::from(self.pages_per_segment());
        let filled = u64::from(segments) * per_segment * u64::from(self.sizes.fill_percent) / 100;
        let sparing = u64::from(segments.saturating_sub(self.reserve(segments))) * per_segment;
        filled.min(sparing).min((CHUNKS_MAX * ENTRIES) as u64)
    }
}

const CRC: usize = 8;
const VERSION: usize = 12;
/// The version that every kind has, and the only one that older programs read: all pages are stored as they are, from a block on, and a
/// page's place is the number of that block.
pub const FIRST_VERSION: u16 = 1;
/// The version with an [`Extent`] for each page.
pub const VERSION_OF_EXTENTS: u16 = 2;
/// One byte of a kind's own, between the version and the database.
pub const TAG: usize = 14;
const DATABASE: usize = 16;
/// Where what a kind of block has of its own begins.
pub const BODY: usize = 32;

/// A kind of block, which is read in each version up to the newest.
pub struct Kind {
    pub magic: [u8; 8],
    pub newest_version: u16,
}

impl Kind {
    /// Makes the first bytes an empty block of the database and of a version, of which the checksum is missing.
    ///
    /// # Panics
    /// With less than a block.
    pub fn begin<'a>(&self, bytes: &'a mut [u8], version: u16, database: u128) -> &'a mut [u8] {
        debug_assert!((FIRST_VERSION..=self.newest_version).contains(&version));
        let block = &mut bytes[..BLOCK_BYTES];
        block.fill(0);
        block[VERSION..TAG].copy_from_slice(&version.to_le_bytes());
        block[DATABASE..BODY].copy_from_slice(&database.to_le_bytes());
        block
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub fn seal(&self, block: &mut [u8]) {
        if block.len() >= BLOCK_BYTES {
            block[..CRC].copy_from_slice(&self.magic);
            let crc = crc32c::crc32c(&block[VERSION..BLOCK_BYTES]);
            block[CRC..VERSION].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// The block, and its version, if the first bytes are one of this kind and this database.
    pub fn open<'a>(&self, bytes: &'a [u8], database: u128) -> Option<(&'a [u8], u16)> {
        let block = bytes.get(..BLOCK_BYTES)?;
        let version = u16::from_le_bytes([block[VERSION], block[VERSION + 1]]);
        let is_ours = block[..CRC] == self.magic
            && u32_at(block, CRC) == crc32c::crc32c(&block[VERSION..])
            && (FIRST_VERSION..=self.newest_version).contains(&version)
            && block[DATABASE..BODY] == database.to_le_bytes();
        is_ours.then_some((block, version))
    }
}

/// Four bytes.
///
/// # Panics
/// Behind the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Eight bytes.
///
/// # Panics
/// Behind the end.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use tantalum_device::MemoryDevice;

    use super::*;

    fn layout(page_bytes: usize, segment: u32, fill_percent: u32) -> Layout {
        let device = MemoryDevice::new("data", 1 << 30);
        Layout::new(&*device, page_bytes, SegmentSizes { segment, fill_percent }).unwrap()
    }

    #[test]
    fn places_and_segments_are_the_same_both_ways() {
        let layout = layout(8192, 1 << 20, 80);
        assert_eq!(layout.segment_at(Place(3).offset()), None);
        for (segment, block) in [(0, 0), (0, 255), (7, 12)] {
            let found = layout.segment_at(layout.place(segment, block).offset());
            assert_eq!(found, Some((segment, u64::from(block) * BLOCK_BYTES as u64)));
        }
        assert_eq!(layout.place(1, 0).offset(), 2 << 20);
        assert_eq!(layout.segments(layout.device_bytes(9)), 9);
    }

    #[test]
    fn a_page_is_stored_behind_a_summary_in_one_segment() {
        let layout = layout(8192, 1 << 20, 80);
        let (first, last) = (layout.place(5, 1), layout.place(5, 255));
        let segment_of = |place, skip, units| layout.segment_of(Extent::at(place, skip, units));
        assert_eq!((segment_of(first, 0, 32), segment_of(first, 3, 1)), (Some(5), Some(5)));
        assert_eq!((segment_of(last, 3, 13), segment_of(last, 3, 14)), (Some(5), None));
        assert_eq!((segment_of(first, 0, 33), segment_of(first, 0, 0)), (None, None), "no page is so long");
        assert_eq!((segment_of(layout.place(5, 0), 15, 1), segment_of(Place(3), 0, 1)), (None, None));
        let extent = Extent::at(first, 3, 14);
        assert_eq!(Extent::from_number(extent.number()), Some(extent));
        assert_eq!(extent.end() - first.offset(), 17 * UNIT_BYTES as u64);
        assert_eq!(Extent::from_number(0), None);
        assert_eq!(
            (extent.block_of_whole_page(14), extent.block_of_whole_page(16)),
            (None, None),
            "it begins no block, and is shorter"
        );
        let whole = Extent::of_whole_page(77, 16).unwrap();
        assert_eq!(
            (whole.block_of_whole_page(16), whole.block_of_whole_page(32), Extent::of_whole_page(u64::MAX / 9, 16)),
            (Some(77), None, None)
        );
    }

    #[test]
    fn a_segment_is_full_of_pages_but_for_its_summaries() {
        assert_eq!(layout(4096, 1 << 20, 80).pages_per_segment(), 253);
        assert_eq!(layout(16384, 1 << 20, 80).pages_per_segment(), 63);
        assert_eq!(layout(4096, 32 << 10, 80).pages_per_segment(), 7);
    }

    #[test]
    fn capacity_rises_with_the_device_and_leaves_what_cleaning_needs() {
        for layout in [layout(4096, 32 << 10, 95), layout(4096, 1 << 20, 80), layout(16384, 1 << 20, 90)] {
            let mut last = 0;
            for segments in layout.segments_min()..2000 {
                let pages = layout.capacity_pages(segments);
                assert!(pages >= last);
                let full = (pages as u32).div_ceil(layout.pages_per_segment());
                assert!(full + layout.cleaning_reserve(segments) + OPEN_SEGMENTS < segments);
                last = pages;
            }
        }
    }

    #[test]
    fn the_segments_for_pages_are_the_fewest_that_have_room() {
        for layout in [layout(4096, 32 << 10, 95), layout(4096, 1 << 20, 80), layout(16384, 1 << 20, 90)] {
            let least = layout.segments_min();
            assert_eq!(layout.segments_for(0), least);
            for pages in (1..200_000).step_by(777) {
                let segments = layout.segments_for(pages);
                assert!(layout.capacity_pages(segments) >= pages);
                assert!(segments == least || layout.capacity_pages(segments - 1) < pages);
            }
            assert_eq!(layout.segments_for(u64::MAX), u32::MAX);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let device = MemoryDevice::new("data", 8 << 20);
        let refused =
            |segment, fill_percent| Layout::new(&*device, 4096, SegmentSizes { segment, fill_percent }).unwrap_err();
        assert!(refused(5000, 80).contains("multiple of 4096"));
        assert!(refused(1 << 20, 80).contains("room for 7 segments"));
        assert!(refused(32 << 10, 99).contains("10 to 95"));
    }
}
