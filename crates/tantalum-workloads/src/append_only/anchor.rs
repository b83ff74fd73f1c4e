//! Opening: anchors, from which it follows the units, and where the units end that survived.
//!
//! There are two anchors, written in turn. Each names a unit that was durable before the anchor was written, and is durable
//! itself before the other one is written again: so at any time at least one of them is whole.

use tantalum_device::{AlignedBuffer, Device, Durability};

use super::{
    BLOCK_BYTES, damaged,
    node::{is_sealed, seal, u32_at, u64_at},
    unit::{Header, Root, is_whole},
};
use crate::error::Result;

const MAGIC: &[u8; 8] = b"TNTLAOCA";
const VERSION: u32 = 1;

/// Where units begin: behind the anchors.
pub(super) const FIRST_UNIT: u64 = 2 * BLOCK_BYTES as u64;

/// How far the units were followed, or written, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Anchor {
    pub(super) tree_id: u64,
    /// Counts the anchors.
    number: u64,
    /// Of the named unit; 0 for the begin of the units.
    pub(super) epoch: u64,
    /// Likewise.
    pub(super) sequence: u64,
    /// Where the next unit begins.
    pub(super) end: u64,
    /// Its root.
    pub(super) root: Root,
}

impl Anchor {
    /// Of an empty tree.
    pub(super) fn first(tree_id: u64) -> Self {
        Self { tree_id, number: 0, epoch: 0, sequence: 0, end: FIRST_UNIT, root: Root::default() }
    }

    /// The one after it.
    pub(super) fn next(&self, epoch: u64, sequence: u64, end: u64, root: Root) -> Self {
        Self { tree_id: self.tree_id, number: self.number + 1, epoch, sequence, end, root }
    }

    /// Writes it into its place, not durably.
    pub(super) fn write(&self, device: &dyn Device) -> Result<()> {
        let place = self.number % 2 * BLOCK_BYTES as u64;
        device.write(place, &[&self.encode()], Durability::Cached)
    }

    /// Writes it into both places, durably: the first is the one that counts if this is cut off.
    pub(super) fn write_both(&self, device: &dyn Device) -> Result<()> {
        let block = self.encode();
        for place in [0, BLOCK_BYTES as u64] {
            device.write(place, &[&block], Durability::Cached)?;
            device.flush()?;
        }
        Ok(())
    }

    /// The newer one that is whole.
    pub(super) fn read(device: &dyn Device) -> Result<Self> {
        let mut blocks = AlignedBuffer::zeroed(2 * BLOCK_BYTES);
        device.read(0, &mut blocks)?;
        let capacity = device.capacity_bytes();
        let mut found = blocks.chunks_exact(BLOCK_BYTES).filter_map(|block| Self::decode(block, capacity));
        let first = found.next().ok_or_else(|| damaged(device, 0, "it holds no append-only tree"))?;
        // One of another tree is left over from before this one was created.
        Ok(found.find(|other| other.tree_id == first.tree_id && other.number > first.number).unwrap_or(first))
    }

    pub(super) fn encode(&self) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        block[4..8].copy_from_slice(&VERSION.to_le_bytes());
        block[8..16].copy_from_slice(MAGIC);
        let numbers = [self.tree_id, self.number, self.epoch, self.sequence, self.end, self.root.offset];
        for (at, number) in (16..).step_by(8).zip(numbers) {
            block[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        block[64..68].copy_from_slice(&self.root.levels.to_le_bytes());
        seal(&mut block);
        block
    }

    /// `None` unless it is one, of a device of this size.
    pub(super) fn decode(block: &[u8], capacity: u64) -> Option<Self> {
        if block.len() != BLOCK_BYTES || !is_sealed(block) || &block[8..16] != MAGIC || u32_at(block, 4) != VERSION {
            return None;
        }
        let [tree_id, number, epoch, sequence, end, offset] = [16, 24, 32, 40, 48, 56].map(|at| u64_at(block, at));
        let root = Root { offset, levels: u32_at(block, 64) };
        let is_possible = (FIRST_UNIT..=capacity).contains(&end)
            && end.is_multiple_of(BLOCK_BYTES as u64)
            && root.is_possible(end)
            && [number, epoch, sequence].iter().all(|&count| count < u64::MAX / 2);
        is_possible.then_some(Self { tree_id, number, epoch, sequence, end, root })
    }
}

/// The last unit of which all before are whole, and it itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) epoch: u64,
    pub(super) sequence: u64,
    /// Where it ends.
    pub(super) end: u64,
    pub(super) root: Root,
}

/// Follows the units from the anchor.
pub(super) fn last_complete(device: &dyn Device, anchor: &Anchor) -> Result<Found> {
    let mut found = Found { epoch: anchor.epoch, sequence: anchor.sequence, end: anchor.end, root: anchor.root };
    let capacity = device.capacity_bytes();
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    while capacity - found.end >= BLOCK_BYTES as u64 {
        device.read(found.end, &mut block)?;
        let header = Header::decode(&block, anchor.tree_id, found.end);
        // A unit of an earlier epoch was beyond the end when the tree was opened after it.
        let follows = |header: &Header| header.sequence == found.sequence + 1 && header.epoch >= found.epoch;
        let Some(header) = header.filter(follows) else { break };
        let end = found.end + header.bytes as u64;
        if end > capacity || header.epoch >= u64::MAX / 2 {
            break;
        }
        let mut unit = AlignedBuffer::zeroed(header.bytes);
        device.read(found.end, &mut unit)?;
        if !is_whole(&unit) {
            break;
        }
        found = Found { epoch: header.epoch, sequence: header.sequence, end, root: header.root };
    }
    Ok(found)
}
