//! The root of the map on the device: where the map is, and where the streams went on from there.
//!
//! It stands in two slots, and a checkpoint writes one after the other, each durably, and never first the one that is known to be
//! whole: of the other a power cut may have left a part. So one of them is whole at any time, and
//! when segments are used again that the newest map leaves, both slots have that map.

use tantalum_device::{AlignedBuffer, Device, Durability};

use super::{
    layout::{BLOCK_BYTES, Layout, Place, SLOTS},
    layout::{FIRST_VERSION, Kind, TAG, u32_at, u64_at},
    summary::Stream,
};
use crate::{Result, error};

/// The version with more than two streams of pages.
const VERSION_OF_STREAMS: u16 = 2;
const KIND: Kind = Kind { magic: *b"TNTLROOT", newest_version: VERSION_OF_STREAMS };
const POSITIONS: usize = 80;
const POSITION_BYTES: usize = 24;
/// The streams of pages in the first version.
pub const FIRST_STREAMS: usize = 2;
/// Blocks of level 1 that a root has at most.
pub const DIRECTORIES_MAX: usize = directories_max(FIRST_STREAMS);

/// Where the map's blocks of level 1 stand behind the positions of so many streams.
const fn directories_at(streams: usize) -> usize {
    POSITIONS + streams * POSITION_BYTES
}

/// Blocks of level 1 that a root with so many streams of pages has at most.
pub const fn directories_max(streams: usize) -> usize {
    (BLOCK_BYTES - directories_at(streams)) / 8
}

/// Where a stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The segment that is open.
    pub segment: u32,
    /// The first block of it that is not used.
    pub block: u32,
    /// The segment after it.
    pub next: u32,
    /// The number of the last append before this; 0 if there is none in the session.
    pub after: u64,
}

/// What a checkpoint says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Its number; a later one has a higher one.
    pub number: u64,
    /// The session of appends that may follow it.
    pub session: u64,
    /// The next append's number.
    pub sequence: u64,
    /// Blocks of pages stored, ever.
    pub clock: u64,
    /// Where each stream of pages goes on; empty before the first.
    pub positions: Vec<Position>,
    /// The map's blocks of level 1.
    pub directories: Vec<Option<Place>>,
}

impl Root {
    /// That of an empty store.
    pub fn empty() -> Self {
        Self { number: 1, session: 0, sequence: 1, clock: 0, positions: Vec::new(), directories: Vec::new() }
    }

    /// As it is written.
    pub fn encode(&self, database: u128) -> AlignedBuffer {
        let streams = self.positions.len().max(FIRST_STREAMS);
        let most = directories_max(streams);
        assert!(self.directories.len() <= most, "a root with {streams} streams has at most {most} directories");
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        let (version, tag) = match self.positions.len() {
            0 => (FIRST_VERSION, 0),
            FIRST_STREAMS => (FIRST_VERSION, 1),
            _ => (VERSION_OF_STREAMS, streams as u8),
        };
        let block = KIND.begin(&mut bytes, version, database);
        block[TAG] = tag;
        for (at, value) in [(32, self.number), (40, self.session), (48, self.sequence), (56, self.clock)] {
            block[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        block[64..68].copy_from_slice(&(self.directories.len() as u32).to_le_bytes());
        for (position, at) in self.positions.iter().zip((POSITIONS..).step_by(POSITION_BYTES)) {
            for (at, value) in [(at, position.segment), (at + 4, position.block), (at + 8, position.next)] {
                block[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            block[at + 16..at + 24].copy_from_slice(&position.after.to_le_bytes());
        }
        for (place, bytes) in self.directories.iter().zip(block[directories_at(streams)..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&place.map_or(0, |place| place.0).to_le_bytes());
        }
        KIND.seal(block);
        bytes
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        KIND.seal(block);
    }

    /// Reads a root of the database. `None` if these bytes are none.
    pub fn decode(block: &[u8], database: u128) -> Option<Self> {
        let (block, version) = KIND.open(block, database)?;
        let positions = match (version, block[TAG]) {
            (FIRST_VERSION, 0) => 0,
            (FIRST_VERSION, _) => FIRST_STREAMS,
            (_, streams) => usize::from(streams),
        };
        if positions > Stream::OF_PAGES.len() {
            return None;
        }
        let streams = positions.max(FIRST_STREAMS);
        let directories = u32_at(block, 64) as usize;
        if directories > directories_max(streams) {
            return None;
        }
        let position = |stream: usize| {
            let at = POSITIONS + stream * POSITION_BYTES;
            Position {
                segment: u32_at(block, at),
                block: u32_at(block, at + 4),
                next: u32_at(block, at + 8),
                after: u64_at(block, at + 16),
            }
        };
        let place =
            |index: usize| Some(Place(u64_at(block, directories_at(streams) + 8 * index))).filter(|place| place.0 != 0);
        let directories: Vec<Option<Place>> = (0..directories).map(place).collect();
        if directories.iter().flatten().any(|place| !place.is_possible()) {
            return None;
        }
        Some(Self {
            number: u64_at(block, 32),
            session: u64_at(block, 40),
            sequence: u64_at(block, 48),
            clock: u64_at(block, 56),
            positions: (0..positions).map(position).collect(),
            directories,
        })
    }

    /// Writes both slots, one after the other. `whole` is the one that is whole, and stays so: it is written when the other is.
    ///
    /// # Errors
    /// When the device cannot write. Then `whole` says which is whole.
    pub fn write(&self, device: &dyn Device, layout: Layout, database: u128, whole: &mut u64) -> Result<()> {
        let block = self.encode(database);
        for slot in [(*whole + 1) % SLOTS, *whole] {
            device.write(layout.slot_at(slot), &[&block], Durability::Durable)?;
            *whole = slot;
        }
        Ok(())
    }

    /// Reads the newest that is whole, and says which slot it is in.
    ///
    /// # Errors
    /// When the device cannot read, or neither is whole.
    pub fn read(device: &dyn Device, layout: Layout, database: u128) -> Result<(Self, u64)> {
        let (mut newest, mut failed): (Option<(Self, u64)>, _) = (None, None);
        for slot in 0..SLOTS {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            match device.read(layout.slot_at(slot), &mut block) {
                Ok(()) => {
                    let found = Self::decode(&block, database).map(|root| (root, slot));
                    newest = newest.into_iter().chain(found).max_by_key(|(root, _)| root.number);
                }
                Err(error) => failed = Some(error),
            }
        }
        match (newest, failed) {
            (Some(found), _) => Ok(found),
            (None, Some(error)) => Err(error),
            (None, None) => Err(error::superblock(
                device.name(),
                format!(
                    "neither slot of the page map's root, at bytes {} and {}, is whole; restore the database from a backup",
                    layout.slot_at(0),
                    layout.slot_at(1)
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use tantalum_device::MemoryDevice;

    use super::*;
    use crate::{SegmentSizes, tests::Cut};

    #[test]
    fn one_slot_is_whole_after_any_power_cuts_in_a_row() {
        const CUTS: u64 = 5;
        for writes in 0..1 << CUTS {
            let device = MemoryDevice::new("data", 4 << 20);
            let layout = Layout::new(&*device, 4096, SegmentSizes { segment: 9 * 4096, fill_percent: 60 }).unwrap();
            Root::empty().write(&*device, layout, 1, &mut 0).unwrap();
            for cut in 0..CUTS {
                let (mut root, mut whole) = Root::read(&*device, layout, 1).unwrap();
                root.number += 1;
                let before = AtomicU64::new(writes >> cut & 1);
                root.write(&Cut(device.clone(), before), layout, 1, &mut whole).unwrap_err();
                assert_eq!(Root::read(&*device, layout, 1).unwrap().1, whole);
            }
        }
    }

    #[test]
    fn a_root_is_read_back() {
        let position = |segment| Position { segment, block: 3, next: segment + 1, after: 40 };
        let root = Root {
            number: 5,
            session: 6,
            sequence: 7,
            clock: 8,
            positions: vec![position(1), position(10)],
            directories: vec![Some(Place(44)), None, Some(Place(45))],
        };
        let block = root.encode(1);
        assert_eq!(Root::decode(&block, 1), Some(root.clone()));
        assert_eq!(Root::decode(&block, 2), None);
        assert_eq!(Root::decode(&Root::empty().encode(2), 2), Some(Root::empty()));
        let impossible = Root { directories: vec![Some(Place(u64::MAX))], ..root.clone() };
        assert_eq!(Root::decode(&impossible.encode(1), 1), None, "no device has that block");
        let mut damaged = block.clone();
        damaged[4000] ^= 1;
        assert_eq!(Root::decode(&damaged, 1), None);
        assert_eq!(block[12..14], [1, 0], "older programs read it");
        let all = Root { positions: (1..7).map(position).collect(), ..root };
        let block = all.encode(1);
        assert_eq!((&block[12..14], Root::decode(&block, 1)), (&[2, 0][..], Some(all)));
        let mut impossible = block.clone();
        impossible[TAG] = 7;
        Root::repair_checksum(&mut impossible);
        assert_eq!(Root::decode(&impossible, 1), None, "no version has so many streams");
    }
}
