//! The block before the pages of an append, which says what they are (Rosenblum and Ousterhout, "The Design and Implementation
//! of a Log-Structured File System", section 3.3: the segment summary).
//!
//! Invariant: one write has the summary and everything that it speaks of, and nothing follows it in its stream before it is
//! durable. So of all appends of a stream, only the last can be torn.

use tantalum_log::Lsn;

use super::{
    layout::{BLOCK_BYTES, BLOCK_UNITS, Extent, Place},
    layout::{FIRST_VERSION, Kind, TAG, VERSION_OF_EXTENTS, u32_at, u64_at},
};
use crate::PageId;

const KIND: Kind = Kind { magic: *b"TNTLSEGM", newest_version: VERSION_OF_EXTENTS };
const HEADER_BYTES: usize = 128;
const ENTRY_BYTES: usize = 32;
/// Where an entry says how long a page is.
const UNITS: usize = 30;
/// Things that an append has at most.
pub const ENTRIES_MAX: usize = (BLOCK_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Blocks of no meaning that an append has at most: more than any segment.
const FILLER_BLOCKS_MAX: u32 = 1 << 20;
/// The segment that follows, if there is none.
const NONE: u32 = u32::MAX;

/// Where appends go one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Pages as they are stored; where there is also `Lasting`, those that are expected to be stored again soon.
    Hot = 0,
    /// Pages that cleaning moved: they have not changed for a while. Where there are the streams after it, those that came from `Hot`.
    Cold = 1,
    /// Parts of the map.
    Map = 2,
    /// Pages as they are stored, of which nothing is known, or that are not expected to be stored again soon.
    Lasting = 3,
    /// Pages that cleaning moved, and that were stored not long ago, longer ago, and very long ago.
    Cold1 = 4,
    Cold2 = 5,
    Cold3 = 6,
}

impl Stream {
    /// Those for pages, in the order of their use: the first two, or all.
    pub const OF_PAGES: [Self; 6] = [Self::Hot, Self::Cold, Self::Lasting, Self::Cold1, Self::Cold2, Self::Cold3];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
            Self::Map => "map",
            Self::Lasting => "lasting",
            Self::Cold1 => "cold-1",
            Self::Cold2 => "cold-2",
            Self::Cold3 => "cold-3",
        }
    }

    /// Whether it is for pages as they are stored.
    pub fn is_of_new_pages(self) -> bool {
        matches!(self, Self::Hot | Self::Lasting)
    }

    /// Its place among those for pages.
    ///
    /// # Panics
    /// If it is the map's.
    pub fn number(self) -> usize {
        Self::OF_PAGES.iter().position(|stream| *stream == self).expect("a stream of pages")
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::OF_PAGES.into_iter().chain([Self::Map]).find(|stream| *stream as u8 == byte)
    }
}

/// Something in an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A page.
    Page {
        /// Which.
        id: PageId,
        /// Its last change.
        lsn: Lsn,
        /// Its checksum, as its header has it.
        crc: u32,
        /// Where cleaning read it: it counts only if the page was not stored since.
        from: Option<Extent>,
        /// How long it is as it is stored.
        units: u32,
    },
    /// A block of the map: of places of pages on level 0, of those of such blocks on level 1.
    Map {
        /// Its level.
        level: u8,
        /// Its number on its level.
        index: u64,
    },
}

/// What an append is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// From one start of the streams to the next: a random number.
    pub session: u64,
    /// Its number among all appends; later ones have higher ones.
    pub sequence: u64,
    /// Where it was appended.
    pub stream: Stream,
    /// The segment that it is in.
    pub segment: u32,
    /// Its first block there.
    pub block: u32,
    /// The segment in which the stream goes on.
    pub next: Option<u32>,
    /// When the youngest of the pages was stored, counted in blocks of pages stored.
    pub stamp: u64,
    /// What follows, in this order: one right behind the other, of which the first begins a block.
    pub entries: Vec<Entry>,
    /// Blocks behind that, which mean nothing.
    pub filler_blocks: u32,
}

impl Summary {
    /// Blocks of the append, this one included.
    pub fn blocks(&self) -> u32 {
        1 + self.entries.iter().map(Entry::units).sum::<u32>().div_ceil(BLOCK_UNITS) + self.filler_blocks
    }

    /// Each entry, and where it is if the append begins at `start`.
    pub fn extents(&self, start: Place) -> impl Iterator<Item = (Extent, &Entry)> {
        let first = start.plus(1);
        self.entries.iter().scan(0, move |at, entry| {
            let found = Extent::at(first, *at, entry.units());
            *at += entry.units();
            Some((found, entry))
        })
    }

    /// Writes it to `block`, as the database's, of which pages have so many units.
    ///
    /// # Panics
    /// With more entries than there is room for.
    pub fn encode(&self, block: &mut [u8], database: u128, page_units: u32) {
        assert!(self.entries.len() <= ENTRIES_MAX, "an append has at most {ENTRIES_MAX} entries");
        let needs_extents = self.entries.iter().any(|entry| !entry.is_of_first_version(page_units));
        let version = if needs_extents { VERSION_OF_EXTENTS } else { FIRST_VERSION };
        let block = KIND.begin(block, version, database);
        block[TAG] = self.stream as u8;
        block[32..40].copy_from_slice(&self.session.to_le_bytes());
        block[40..48].copy_from_slice(&self.sequence.to_le_bytes());
        block[48..52].copy_from_slice(&self.segment.to_le_bytes());
        block[52..56].copy_from_slice(&self.block.to_le_bytes());
        block[56..60].copy_from_slice(&self.next.unwrap_or(NONE).to_le_bytes());
        block[60..64].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        block[64..72].copy_from_slice(&self.stamp.to_le_bytes());
        block[72..76].copy_from_slice(&self.filler_blocks.to_le_bytes());
        for (entry, bytes) in self.entries.iter().zip(block[HEADER_BYTES..].chunks_exact_mut(ENTRY_BYTES)) {
            entry.encode(bytes, version, page_units);
        }
        KIND.seal(block);
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        KIND.seal(block);
    }

    /// Reads a summary of the database, of which pages have so many units. `None` if these bytes are none.
    pub fn decode(block: &[u8], database: u128, page_units: u32) -> Option<Self> {
        let (block, version) = KIND.open(block, database)?;
        let (entries, filler_blocks) = (u32_at(block, 60) as usize, u32_at(block, 72));
        if entries > ENTRIES_MAX || filler_blocks > FILLER_BLOCKS_MAX {
            return None;
        }
        let bytes = block[HEADER_BYTES..].chunks_exact(ENTRY_BYTES).take(entries);
        Some(Self {
            session: u64_at(block, 32),
            sequence: u64_at(block, 40),
            stream: Stream::from_byte(block[TAG])?,
            segment: u32_at(block, 48),
            block: u32_at(block, 52),
            next: Some(u32_at(block, 56)).filter(|next| *next != NONE),
            stamp: u64_at(block, 64),
            entries: bytes.map(|bytes| Entry::decode(bytes, version, page_units)).collect::<Option<_>>()?,
            filler_blocks,
        })
    }
}

impl Entry {
    fn units(&self) -> u32 {
        match self {
            Self::Page { units, .. } => *units,
            Self::Map { .. } => BLOCK_UNITS,
        }
    }

    fn is_of_first_version(&self, page_units: u32) -> bool {
        match *self {
            Self::Page { from, units, .. } => {
                units == page_units && from.is_none_or(|from| from.block_of_whole_page(page_units).is_some())
            }
            Self::Map { .. } => true,
        }
    }

    fn encode(&self, bytes: &mut [u8], version: u16, page_units: u32) {
        match *self {
            Self::Page { id, lsn, crc, from, units } => {
                bytes[0..8].copy_from_slice(&id.0.to_le_bytes());
                bytes[8..16].copy_from_slice(&lsn.get().to_le_bytes());
                let from = match version {
                    FIRST_VERSION => from.and_then(|from| from.block_of_whole_page(page_units)).unwrap_or(0),
                    _ => {
                        bytes[UNITS..UNITS + 2].copy_from_slice(&(units as u16).to_le_bytes());
                        from.map_or(0, Extent::number)
                    }
                };
                bytes[16..24].copy_from_slice(&from.to_le_bytes());
                bytes[24..28].copy_from_slice(&crc.to_le_bytes());
            }
            Self::Map { level, index } => {
                bytes[0..8].copy_from_slice(&index.to_le_bytes());
                bytes[28] = 1 + level;
            }
        }
    }

    fn decode(bytes: &[u8], version: u16, page_units: u32) -> Option<Self> {
        match bytes[28] {
            0 => {
                let (from, units) = match (u64_at(bytes, 16), version) {
                    (0, FIRST_VERSION) => (None, page_units),
                    (block, FIRST_VERSION) => (Some(Extent::of_whole_page(block, page_units)?), page_units),
                    (number, _) => {
                        (Extent::from_number(number), u16::from_le_bytes([bytes[UNITS], bytes[UNITS + 1]]).into())
                    }
                };
                let (id, lsn) = (PageId(u64_at(bytes, 0)), Lsn::new(u64_at(bytes, 8)));
                let page = Self::Page { id, lsn, crc: u32_at(bytes, 24), from, units };
                (1..=page_units).contains(&units).then_some(page)
            }
            level @ 1..=2 => Some(Self::Map { level: level - 1, index: u64_at(bytes, 0) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(entries: Vec<Entry>, filler_blocks: u32) -> Summary {
        Summary {
            session: 3,
            sequence: 4,
            stream: Stream::Cold,
            segment: 5,
            block: 6,
            next: Some(8),
            stamp: 99,
            entries,
            filler_blocks,
        }
    }

    #[test]
    fn a_summary_is_read_back_and_no_other_databases() {
        let page = |id, from, units| Entry::Page { id: PageId(id), lsn: Lsn::new(9 * id), crc: 7, from, units };
        let from = Some(Extent::at(Place(77), 5, 9));
        let summary = summary(vec![page(1, None, 64), page(2, from, 13), Entry::Map { level: 1, index: 3 }], 2);
        let mut block = [0xee; BLOCK_BYTES];
        summary.encode(&mut block, 11, 64);
        assert_eq!(Summary::decode(&block, 11, 64), Some(summary.clone()));
        assert_eq!(Summary::decode(&block, 11, 63), None, "no page is so long");
        assert_eq!(Summary::decode(&block, 12, 64), None);
        let at: Vec<u64> = summary.extents(Place(0)).map(|(extent, _)| extent.offset() / 256).collect();
        assert_eq!((at, summary.blocks()), (vec![16, 80, 93], 1 + 6 + 2));
        for at in [0, 9, 40, 130, 4095] {
            let mut damaged = block;
            damaged[at] ^= 4;
            assert_eq!(Summary::decode(&damaged, 11, 64), None, "byte {at}");
        }
    }

    #[test]
    fn a_summary_without_compressed_pages_is_read_by_older_programs() {
        let whole = Extent::of_whole_page(77, 32).unwrap();
        let compressed = Extent::at(Place(77), 0, 31);
        for (from, units, version, stored) in
            [(whole, 32, 1, 77), (whole, 31, 2, whole.number()), (compressed, 32, 2, compressed.number())]
        {
            let entry = Entry::Page { id: PageId(6), lsn: Lsn::new(9), crc: 7, from: Some(from), units };
            let summary = summary(vec![entry], 0);
            let mut block = [0; BLOCK_BYTES];
            summary.encode(&mut block, 11, 32);
            assert_eq!((&block[12..14], u64_at(&block, HEADER_BYTES + 16)), (&[version, 0][..], stored));
            assert_eq!(Summary::decode(&block, 11, 32), Some(summary));
        }
    }
}
