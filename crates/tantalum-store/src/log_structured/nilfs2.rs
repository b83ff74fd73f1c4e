//! What is written beside pages: what the store needs itself, or for comparisons as much as NILFS2 wrote ("Early Experience and Evaluation of File Systems on SSD with Database Applications",
//! section IV-G: about half of its new blocks are B-tree nodes and metadata).
//!
//! A file written synchronously makes a partial segment of each write: the data blocks, every node of the file's B-tree on
//! the way to them, and the blocks of its own files (inodes, checkpoints, segment usage, and the table of disk addresses with
//! its own tree), with a super root at the end.

use std::collections::BTreeSet;

use crate::PageId;

/// Pointers in a node: 4 KiB of pairs of 64-bit keys and addresses.
const NODE_POINTERS: u64 = 255;
/// Entries of 32 bytes in a block of the disk address table.
const ADDRESSES_PER_BLOCK: u64 = 128;
/// A block each of the inode file, the checkpoint file and the segment usage file, the root of the address table's tree,
/// and the super root.
const FIXED_BLOCKS: u32 = 5;
/// Nodes of a file's B-tree on the way to a block, without the root in the inode, which for a few GiB is all there are.
const NODE_LEVELS: u32 = 2;

/// What the log-structured store writes beside pages.
///
/// ```
/// use tantalum_store::MetadataWrites;
/// assert_eq!(MetadataWrites::default(), MetadataWrites::Own);
/// assert_eq!("nilfs2".parse(), Ok(MetadataWrites::Nilfs2));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum MetadataWrites {
    /// What it needs itself: a block before each append, and now and then the blocks of its map that changed.
    #[default]
    Own,
    /// As much more with each append as the file system NILFS2 wrote: nodes of its trees and blocks of its own files, about as
    /// much as the pages ("Early Experience and Evaluation of File Systems on SSD with Database Applications", section IV-G).
    /// For comparisons only: the blocks mean nothing.
    Nilfs2,
}

impl MetadataWrites {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Own, Self::Nilfs2];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Nilfs2 => "nilfs2",
        }
    }
}

tantalum_device::named_field!(MetadataWrites);

/// Blocks that NILFS2 would have written with these pages of `page_blocks` blocks.
pub fn metadata_blocks(pages: impl Iterator<Item = PageId>, page_blocks: u32) -> u32 {
    let blocks: Vec<u64> = pages.map(|id| id.0 * u64::from(page_blocks)).collect();
    let mut nodes = 0;
    let mut divisor = 1;
    for _ in 0..NODE_LEVELS {
        divisor *= NODE_POINTERS;
        nodes += blocks.iter().map(|block| block / divisor).collect::<BTreeSet<_>>().len() as u32;
    }
    let addresses = (blocks.len() as u64 * u64::from(page_blocks)).div_ceil(ADDRESSES_PER_BLOCK) as u32;
    nodes + addresses + FIXED_BLOCKS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_far_apart_take_a_node_each() {
        let blocks = |ids: &[u64]| metadata_blocks(ids.iter().copied().map(PageId), 1);
        assert_eq!(blocks(&[7]), 2 + 1 + FIXED_BLOCKS);
        assert_eq!(blocks(&[7, 8, 9]), 2 + 1 + FIXED_BLOCKS);
        assert_eq!(blocks(&[7, 1000, 2000]), 3 + 1 + 1 + FIXED_BLOCKS);
    }
}
