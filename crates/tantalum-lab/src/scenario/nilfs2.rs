//! Where NILFS2 writes the blocks of a file, and which blocks of its own with them. As in its code of the study's
//! time, the module of 2008 and Linux 2.6.30 (`fs/nilfs2`: `segment.c`, `file.c`, `btree.c`, `dat.c`, `super.c`):
//!
//! - A write with `O_SYNC` constructs a *data-only* logical segment: a segment summary and the data (`nilfs_construct_dsync_segment`).
//! - `fsync`, and a write with `O_SYNC` while the inode is dirty, constructs a segment that ends with a checkpoint: the data, the nodes of the
//!   file's B-tree, the blocks of the inode file, the checkpoint file and the segment usage file that have changed, those of the table of disk
//!   addresses (DAT) with its own B-tree, and the super root.
//! - The inode is dirty when the file's time of modification has changed since the last checkpoint. That time has the
//!   kernel's default granularity, a second (`s_time_gran`); so there is a checkpoint in each second with a write, and the timer of 5 s
//!   (`NILFS_SC_DEFAULT_TIMEOUT`) never ends.
//! - Each block but those of the DAT has a virtual block number, and a new one each time it is written. The DAT changes where the old number has
//!   its entry, and where the new one has it.
//!
//! Garbage collection is off, as in the study (section IV-A). A log that reaches the end of the drive goes on at its beginning, as if what
//! is overwritten there had been collected in no time.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use super::buffered_file::DurableBy;

pub(super) const BLOCK_BYTES: u64 = 4096;
/// "2KB blocks per segments" (section IV-A).
const SEGMENT_BLOCKS: u64 = 2048;
/// The header of a segment summary with what it says of a file (`nilfs_segment_summary`, `nilfs_finfo`), and what it says of each block
/// (`nilfs_binfo_v`).
const SUMMARY_HEADER_BYTES: u64 = 96;
const SUMMARY_ENTRY_BYTES: u64 = 16;
/// Pairs of a key and a pointer in a node of a B-tree, and in its root, which lies in the inode.
const NODE_POINTERS: u64 = 255;
const ROOT_POINTERS: u64 = 3;
/// Entries of 32 bytes in a block of the DAT.
const NUMBERS_PER_TABLE_BLOCK: u64 = BLOCK_BYTES / 32;
/// Numbers of which a block of the DAT's bitmaps says whether they are in use.
const NUMBERS_PER_BITMAP: u64 = 8 * BLOCK_BYTES;
/// What each checkpoint changes of the file system's own files: the inode; of the checkpoint file the header, the block with the new
/// checkpoint and a node; of the segment usage file a block and a node.
const OWN_BLOCKS: u32 = 6;

/// A log with one file, which was written in order when the file system was new.
#[derive(Debug)]
pub(super) struct Log {
    drive_segments: u64,
    /// The block of the drive at which the log goes on.
    next: u64,
    /// Where each block of the file is.
    addresses: Vec<u64>,
    metadata: Metadata,
    time_granularity: Duration,
    /// The time of modification, in units of its granularity.
    modified_at: Option<u128>,
    is_inode_dirty: bool,
}

impl Log {
    pub fn new(drive_bytes: u64, file_bytes: u64, time_granularity: Duration) -> Self {
        let file_blocks = file_bytes.div_ceil(BLOCK_BYTES);
        let next = file_blocks.next_multiple_of(SEGMENT_BLOCKS);
        let drive_segments = drive_bytes / BLOCK_BYTES / SEGMENT_BLOCKS;
        assert!(next < drive_segments * SEGMENT_BLOCKS, "the log has room behind the file");
        Self {
            drive_segments,
            next,
            addresses: (0..file_blocks).collect(),
            metadata: Metadata::new(file_blocks),
            time_granularity,
            modified_at: None,
            is_inode_dirty: false,
        }
    }

    /// The block of the drive that holds a block of the file.
    pub fn address(&self, block: u64) -> u64 {
        self.addresses[block as usize]
    }

    /// Notes that the file is written to, so long after the beginning.
    pub fn modify(&mut self, elapsed: Duration) {
        let now = Some(elapsed.as_nanos() / self.time_granularity.as_nanos());
        self.is_inode_dirty |= self.modified_at != now;
        self.modified_at = now;
    }

    /// Constructs a segment, with a checkpoint if one is due. Returns the blocks of the drive that are written.
    pub fn construct(&mut self, data: &BTreeSet<u64>, by: DurableBy) -> Vec<Range<u64>> {
        data.iter().for_each(|block| self.metadata.write_data(*block));
        let has_checkpoint = by == DurableBy::Fsync || self.is_inode_dirty;
        let metadata_blocks = match has_checkpoint {
            true => self.metadata.checkpoint(),
            false => 0,
        };
        self.is_inode_dirty &= !has_checkpoint;
        self.place(data, metadata_blocks)
    }

    /// Places the data, and so many other blocks behind them, in partial segments: one, unless a segment ends.
    fn place(&mut self, data: &BTreeSet<u64>, metadata_blocks: u64) -> Vec<Range<u64>> {
        let (mut partial_segments, mut data, mut left) = (Vec::new(), data.iter(), data.len() as u64 + metadata_blocks);
        while left > 0 {
            let room = SEGMENT_BLOCKS - self.next % SEGMENT_BLOCKS;
            let blocks = payload_blocks(left, room);
            if blocks == 0 {
                self.go_on_at(self.next + room);
                continue;
            }
            let payload = self.next + summary_blocks(blocks);
            for (address, block) in (payload..payload + blocks).zip(&mut data) {
                self.addresses[*block as usize] = address;
            }
            partial_segments.push(self.next..payload + blocks);
            self.go_on_at(payload + blocks);
            left -= blocks;
        }
        partial_segments
    }

    fn go_on_at(&mut self, next: u64) {
        self.next = next % (self.drive_segments * SEGMENT_BLOCKS);
    }
}

fn summary_blocks(blocks: u64) -> u64 {
    (SUMMARY_HEADER_BYTES + SUMMARY_ENTRY_BYTES * blocks).div_ceil(BLOCK_BYTES)
}

/// How many of so many blocks go into a partial segment of at most `room` blocks.
fn payload_blocks(wanted: u64, room: u64) -> u64 {
    let mut blocks = wanted.min(room - 1);
    while blocks > 0 && summary_blocks(blocks) + blocks > room {
        blocks -= 1;
    }
    blocks
}

/// What has changed of the file system's own blocks since the last checkpoint.
#[derive(Debug)]
struct Metadata {
    /// Levels of nodes of the file's B-tree, below the root.
    levels: u32,
    /// The virtual block numbers of the file's blocks; those of nodes and of blocks of the file system's own files, once they have been
    /// written.
    numbers: Vec<u64>,
    own_numbers: BTreeMap<Own, u64>,
    next_number: u64,
    nodes: BTreeSet<(u32, u64)>,
    table_blocks: BTreeSet<u64>,
    bitmaps: BTreeSet<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Own {
    /// A node of the file's B-tree, by level and place.
    Node(u32, u64),
    /// A block of the file system's own files that each checkpoint changes.
    OfCheckpoint(u32),
}

impl Metadata {
    fn new(file_blocks: u64) -> Self {
        Self {
            levels: node_levels(file_blocks),
            numbers: (0..file_blocks).collect(),
            own_numbers: BTreeMap::new(),
            next_number: file_blocks,
            nodes: BTreeSet::new(),
            table_blocks: BTreeSet::new(),
            bitmaps: BTreeSet::new(),
        }
    }

    /// Notes that a block of the file is written: its place and the nodes on the way to it change.
    fn write_data(&mut self, block: u64) {
        let number = self.new_number();
        let old = std::mem::replace(&mut self.numbers[block as usize], number);
        self.table_blocks.insert(old / NUMBERS_PER_TABLE_BLOCK);
        for node in path(block, self.levels) {
            if self.nodes.insert(node) {
                self.write_own(Own::Node(node.0, node.1));
            }
        }
    }

    fn write_own(&mut self, block: Own) {
        let number = self.new_number();
        if let Some(old) = self.own_numbers.insert(block, number) {
            self.table_blocks.insert(old / NUMBERS_PER_TABLE_BLOCK);
        }
    }

    fn new_number(&mut self) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.table_blocks.insert(number / NUMBERS_PER_TABLE_BLOCK);
        self.bitmaps.insert(number / NUMBERS_PER_BITMAP);
        number
    }

    /// Returns how many blocks a checkpoint writes. Nothing has changed afterwards.
    fn checkpoint(&mut self) -> u64 {
        (0..OWN_BLOCKS).for_each(|block| self.write_own(Own::OfCheckpoint(block)));
        let levels = node_levels(self.next_number.div_ceil(NUMBERS_PER_TABLE_BLOCK));
        let table_nodes: BTreeSet<_> = self.table_blocks.iter().flat_map(|block| path(*block, levels)).collect();
        let table = self.table_blocks.len() + table_nodes.len() + self.bitmaps.len();
        let group_descriptors_and_super_root = 2;
        let blocks = self.nodes.len() + OWN_BLOCKS as usize + table + group_descriptors_and_super_root;
        self.nodes.clear();
        self.table_blocks.clear();
        self.bitmaps.clear();
        blocks as u64
    }
}

/// Levels of nodes above so many blocks, below the root.
fn node_levels(blocks: u64) -> u32 {
    let (mut levels, mut pointers) = (0, blocks);
    while pointers > ROOT_POINTERS {
        (levels, pointers) = (levels + 1, pointers.div_ceil(NODE_POINTERS));
    }
    levels
}

/// The nodes on the way to a block.
fn path(block: u64, levels: u32) -> impl Iterator<Item = (u32, u64)> {
    (1..=levels).map(move |level| (level, block / NODE_POINTERS.pow(level)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BLOCKS: u64 = 4096;

    /// A log whose inode is clean.
    fn log() -> Log {
        Log::new(64 << 20, FILE_BLOCKS * BLOCK_BYTES, Duration::from_secs(1))
    }

    fn only(segments: Vec<Range<u64>>) -> Range<u64> {
        let [segment] = &segments[..] else { panic!("one partial segment: {segments:?}") };
        segment.clone()
    }

    fn blocks(data: &[u64]) -> BTreeSet<u64> {
        data.iter().copied().collect()
    }

    #[test]
    fn a_synchronous_write_takes_a_summary_and_its_data_and_goes_behind_the_one_before() {
        let mut log = log();
        assert_eq!((log.address(7), log.address(3000)), (7, 3000), "the file was written in order");
        assert_eq!(only(log.construct(&blocks(&[7]), DurableBy::Write)), 4096..4098);
        assert_eq!(only(log.construct(&blocks(&[3000, 5]), DurableBy::Write)), 4098..4101);
        assert_eq!([7, 5, 3000, 8].map(|block| log.address(block)), [4097, 4099, 4100, 8]);
    }

    #[test]
    fn the_first_write_in_each_unit_of_the_clock_makes_a_checkpoint() {
        let mut log = log();
        let mut written = |ms| {
            log.modify(Duration::from_millis(ms));
            let segment = only(log.construct(&blocks(&[7]), DurableBy::Write));
            segment.end - segment.start
        };
        let [first, same, next, later] = [200, 900, 1100, 1200].map(&mut written);
        assert_eq!((same, later), (2, 2));
        // Summary and data; two levels of nodes, as 4096 blocks have 17 nodes, and their root three pointers; the DAT's block of the old
        // number, that of the new ones, a node for both and a bitmap; the descriptors of the bitmaps, the super root.
        assert_eq!(first, 2 + 2 + u64::from(OWN_BLOCKS) + 2 + 1 + 1 + 2);
        assert_eq!(next, first - 1, "old and new numbers are in one block");
    }

    #[test]
    fn data_far_apart_change_a_node_and_a_block_of_addresses_each() {
        let written = |data: &[u64]| {
            let segment = only(log().construct(&blocks(data), DurableBy::Fsync));
            segment.end - segment.start
        };
        let alone = written(&[7]);
        assert_eq!(written(&[7, 8]), alone + 1);
        assert_eq!(written(&[7, 1000]), alone + 3);
    }

    #[test]
    fn data_only_segments_leave_their_metadata_to_the_next_checkpoint() {
        let mut log = log();
        let mut at_once = self::log();
        log.construct(&blocks(&[7]), DurableBy::Write);
        log.construct(&blocks(&[1000]), DurableBy::Write);
        let deferred = only(log.construct(&blocks(&[2000]), DurableBy::Fsync));
        let whole = only(at_once.construct(&blocks(&[7, 1000, 2000]), DurableBy::Fsync));
        assert_eq!(deferred.end - deferred.start + 2, whole.end - whole.start);
    }

    #[test]
    fn a_log_goes_on_in_the_next_segment_and_after_the_last_one_in_the_first() {
        let mut log = log();
        let most: BTreeSet<u64> = (0..2030).collect();
        assert_eq!(only(log.construct(&most, DurableBy::Write)), 4096..4096 + 2038, "8 blocks of summary");
        assert_eq!(log.construct(&(0..12).collect(), DurableBy::Write), [6134..6144, 6144..6148]);
        assert_eq!((log.address(8), log.address(9)), (6143, 6145));
        let end = log.drive_segments * SEGMENT_BLOCKS;
        log.next = end - 1;
        assert_eq!(only(log.construct(&blocks(&[1]), DurableBy::Write)), 0..2, "a summary alone is no segment");
    }
}
