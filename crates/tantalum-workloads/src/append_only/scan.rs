//! Opening: where the units end that survived.

use tantalum_device::{AlignedBuffer, Device};

use super::{
    BLOCK_BYTES,
    anchor::Anchor,
    unit::{Header, Root, is_whole},
};
use crate::error::Result;

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
