//! Which blocks are for what: the map's journal, the dump area, data.

use tantalum_device::sparse::PIECE_BYTES;

use crate::ftl::page_mapped::PageMapping;
use crate::nand::{Geometry, Wear};

/// Blocks that a plane keeps beyond its share of valid data: two open ones, three free for collection, and one for
/// what power cuts leave unused. Each placement handle beyond the first has another one open.
const PLANE_RESERVE: u32 = 6;

/// The division of a flash memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The flash, with as many blocks as the capacity takes.
    pub geometry: Geometry,
    /// Sectors of 4 KiB that the host can address.
    pub units: u32,
    /// Sectors of a page.
    pub page_sectors: u32,
    /// Entries of the map in a page.
    pub map_page_entries: u32,
    /// Blocks of the journal, in the order of their use.
    pub journal_blocks: Vec<u32>,
    /// Valid sectors that a plane can hold.
    pub(super) plane_sectors_max: u32,
    journal_per_plane: u32,
    dump_per_plane: u32,
    /// Blocks for a dump that each plane cannot do without.
    dump_per_plane_min: u32,
    /// Data blocks of a plane that take the place of bad ones.
    spare_per_plane: u32,
    /// Blocks that the journal cannot do without.
    pub(super) journal_blocks_min: u32,
}

impl Layout {
    /// The layout of a device of `capacity_bytes`, with room to dump `dump_bytes` at a power cut. It overrides the
    /// geometry's `blocks_per_plane`.
    pub fn new(geometry: Geometry, mapping: &PageMapping, capacity_bytes: u64, dump_bytes: u64) -> Self {
        let page_sectors = geometry.page_bytes / PIECE_BYTES as u32;
        let planes = u64::from(geometry.planes());
        let units = u32::try_from(capacity_bytes / PIECE_BYTES as u64).unwrap_or(u32::MAX - 1);
        let map_page_entries = geometry.page_bytes / 4;
        let map_pages = units.div_ceil(map_page_entries);
        // As much garbage as map pages, the block being written, the clean one after it, and one between.
        let journal_blocks = 2 * map_pages.div_ceil(block_bases_max(geometry.pages_per_block)) + 3;
        let journal_per_plane = journal_blocks.div_ceil(geometry.planes());
        let block_bytes = u64::from(geometry.page_bytes) * u64::from(geometry.pages_per_block);
        let dump_per_plane = if dump_bytes == 0 { 0 } else { dump_bytes.div_ceil(block_bytes * planes) as u32 };
        // Each channel serves its share of the sectors; its planes may share them unevenly, by a block.
        let block_sectors = page_sectors * geometry.pages_per_block;
        let channel_units = units.div_ceil(geometry.channels) + 2 * page_sectors;
        let channel_planes = geometry.planes() / geometry.channels;
        let sectors = (f64::from(channel_units) * (1.0 + mapping.over_provision) / f64::from(channel_planes)).ceil();
        let data_blocks = (sectors as u32).div_ceil(block_sectors) + 1;
        let per_plane = data_blocks + PLANE_RESERVE + (mapping.placement_handles - 1);
        let blocks_per_plane = per_plane + journal_per_plane + dump_per_plane;
        Self {
            journal_blocks: ring(journal_blocks, geometry.planes(), blocks_per_plane),
            geometry: Geometry { blocks_per_plane, ..geometry },
            units,
            page_sectors,
            map_page_entries,
            plane_sectors_max: data_blocks * block_sectors,
            journal_per_plane,
            dump_per_plane,
            dump_per_plane_min: dump_per_plane,
            spare_per_plane: 0,
            journal_blocks_min: journal_blocks,
        }
    }

    /// The layout with blocks in addition, which take the place of those that wear out.
    pub fn with_wear(self, wear: &Wear) -> Self {
        let planes = self.geometry.planes();
        let journal_blocks = self.journal_blocks_min + wear.spare_blocks(self.journal_blocks_min);
        let journal_per_plane = journal_blocks.div_ceil(planes);
        let dump_per_plane = self.dump_per_plane + u32::from(self.dump_per_plane > 0);
        let spare_per_plane = wear.spare_blocks(self.geometry.blocks_per_plane);
        let blocks_per_plane = self.geometry.blocks_per_plane - self.journal_per_plane - self.dump_per_plane
            + journal_per_plane
            + dump_per_plane
            + spare_per_plane;
        Self {
            journal_blocks: ring(journal_blocks, planes, blocks_per_plane),
            geometry: Geometry { blocks_per_plane, ..self.geometry },
            journal_per_plane,
            dump_per_plane,
            spare_per_plane,
            ..self
        }
    }

    /// Bytes that the host can address.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.units) * PIECE_BYTES as u64
    }

    /// Pages of the map that a block of the journal holds at most.
    pub(super) fn block_bases_max(&self) -> u32 {
        block_bases_max(self.geometry.pages_per_block)
    }

    /// The blocks of a plane that hold data.
    pub(super) fn data_blocks(&self, plane: u32) -> std::ops::Range<u32> {
        let first = plane * self.geometry.blocks_per_plane;
        first + self.system_blocks()..first + self.geometry.blocks_per_plane
    }

    /// Blocks at the beginning of a plane that are not for data.
    pub(crate) fn system_blocks(&self) -> u32 {
        self.journal_per_plane + self.dump_per_plane
    }

    /// Blocks of a plane that must hold data for everything to have room.
    pub(super) fn data_blocks_min(&self) -> usize {
        (self.geometry.blocks_per_plane - self.system_blocks() - self.spare_per_plane) as usize
    }

    /// The blocks of a plane that are kept clean for a dump.
    pub fn dump_blocks(&self, plane: u32) -> std::ops::Range<u32> {
        let first = plane * self.geometry.blocks_per_plane + self.journal_per_plane;
        first..first + self.dump_per_plane
    }

    /// Blocks for a dump that each plane cannot do without.
    pub(crate) fn dump_blocks_min(&self) -> usize {
        self.dump_per_plane_min as usize
    }

    /// Page and place in the page of a slot of the map.
    pub(super) fn place(&self, slot: u32) -> (u32, usize) {
        (slot / self.page_sectors, (slot % self.page_sectors) as usize)
    }
}

/// The blocks of the journal, over all planes in turn.
fn ring(blocks: u32, planes: u32, blocks_per_plane: u32) -> Vec<u32> {
    (0..blocks).map(|index| (index % planes) * blocks_per_plane + index / planes).collect()
}

fn block_bases_max(pages_per_block: u32) -> u32 {
    pages_per_block - pages_per_block / 4
}
