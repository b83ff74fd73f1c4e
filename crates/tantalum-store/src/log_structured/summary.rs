//! The block before the pages of an append, which says what they are (Rosenblum and Ousterhout, "The Design and Implementation
//! of a Log-Structured File System", section 3.3: the segment summary).
//!
//! Invariant: one write has the summary and everything that it speaks of, and nothing follows it in its stream before it is
//! durable. So of all appends of a stream, only the last can be torn.

use tantalum_log::Lsn;

use super::{
    layout::{BLOCK_BYTES, Place},
    layout::{Kind, TAG, u32_at, u64_at},
};
use crate::PageId;

const KIND: Kind = Kind { magic: *b"TNTLSEGM", version: 1 };
const HEADER_BYTES: usize = 128;
const ENTRY_BYTES: usize = 32;
/// Things that an append has at most.
pub const ENTRIES_MAX: usize = (BLOCK_BYTES - HEADER_BYTES) / ENTRY_BYTES;
/// Blocks of no meaning that an append has at most: more than any segment.
const FILLER_BLOCKS_MAX: u32 = 1 << 20;
/// The segment that follows, if there is none.
const NONE: u32 = u32::MAX;

/// Where appends go one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Pages as they are stored.
    Hot = 0,
    /// Pages that cleaning moved: they have not changed for a while.
    Cold = 1,
    /// Parts of the map.
    Map = 2,
}

impl Stream {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "hot",
            Self::Cold => "cold",
            Self::Map => "map",
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Hot, Self::Cold, Self::Map].into_iter().find(|stream| *stream as u8 == byte)
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
        from: Option<Place>,
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
    /// What follows, in this order.
    pub entries: Vec<Entry>,
    /// Blocks behind that, which mean nothing.
    pub filler_blocks: u32,
}

impl Summary {
    /// Blocks of the append, this one included.
    pub fn blocks(&self, page_blocks: u32) -> u32 {
        1 + self.entries.iter().map(|entry| entry.blocks(page_blocks)).sum::<u32>() + self.filler_blocks
    }

    /// Each entry and the block that it begins in, counted from this one.
    pub fn at(&self, page_blocks: u32) -> impl Iterator<Item = (u32, &Entry)> {
        self.entries.iter().scan(1, move |at, entry| {
            let begins = *at;
            *at += entry.blocks(page_blocks);
            Some((begins, entry))
        })
    }

    /// Writes it to `block`, as the database's.
    ///
    /// # Panics
    /// With more entries than there is room for.
    pub fn encode(&self, block: &mut [u8], database: u128) {
        assert!(self.entries.len() <= ENTRIES_MAX, "an append has at most {ENTRIES_MAX} entries");
        let block = KIND.begin(block, database);
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
            entry.encode(bytes);
        }
        KIND.seal(block);
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        KIND.seal(block);
    }

    /// Reads a summary of the database. `None` if these bytes are none.
    pub fn decode(block: &[u8], database: u128) -> Option<Self> {
        let block = KIND.open(block, database)?;
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
            entries: bytes.map(Entry::decode).collect::<Option<_>>()?,
            filler_blocks,
        })
    }
}

impl Entry {
    fn blocks(&self, page_blocks: u32) -> u32 {
        match self {
            Self::Page { .. } => page_blocks,
            Self::Map { .. } => 1,
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        match *self {
            Self::Page { id, lsn, crc, from } => {
                bytes[0..8].copy_from_slice(&id.0.to_le_bytes());
                bytes[8..16].copy_from_slice(&lsn.get().to_le_bytes());
                bytes[16..24].copy_from_slice(&from.map_or(0, |place| place.0).to_le_bytes());
                bytes[24..28].copy_from_slice(&crc.to_le_bytes());
            }
            Self::Map { level, index } => {
                bytes[0..8].copy_from_slice(&index.to_le_bytes());
                bytes[28] = 1 + level;
            }
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes[28] {
            0 => Some(Self::Page {
                id: PageId(u64_at(bytes, 0)),
                lsn: Lsn::new(u64_at(bytes, 8)),
                crc: u32_at(bytes, 24),
                from: Some(Place(u64_at(bytes, 16))).filter(|from| from.0 != 0),
            }),
            level @ 1..=2 => Some(Self::Map { level: level - 1, index: u64_at(bytes, 0) }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_back_and_no_other_databases() {
        let page = |id, from| Entry::Page { id: PageId(id), lsn: Lsn::new(9 * id), crc: 7, from };
        let summary = Summary {
            session: 3,
            sequence: 4,
            stream: Stream::Cold,
            segment: 5,
            block: 6,
            next: Some(8),
            stamp: 99,
            entries: vec![page(1, None), page(2, Some(Place(77))), Entry::Map { level: 1, index: 3 }],
            filler_blocks: 2,
        };
        let mut block = [0xee; BLOCK_BYTES];
        summary.encode(&mut block, 11);
        assert_eq!(Summary::decode(&block, 11), Some(summary.clone()));
        assert_eq!(Summary::decode(&block, 12), None);
        let at: Vec<u32> = summary.at(4).map(|(at, _)| at).collect();
        assert_eq!((at, summary.blocks(4)), (vec![1, 5, 9], 12));
        for at in [0, 9, 40, 130, 4095] {
            let mut damaged = block;
            damaged[at] ^= 4;
            assert_eq!(Summary::decode(&damaged, 11), None, "byte {at}");
        }
    }
}
