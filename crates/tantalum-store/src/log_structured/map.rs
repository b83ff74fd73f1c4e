//! Where each page is: in memory, and as the tree of two levels that checkpoints write.
//!
//! A block of level 0, a *chunk*, has the places of 504 pages that follow each other; one of level 1, a *directory*, those of 504
//! chunks; the root those of the directories. A checkpoint writes the blocks that changed since the last one.

use super::{
    layout::{BLOCK_BYTES, Extent, Place},
    layout::{BODY, FIRST_VERSION, Kind, TAG, VERSION_OF_EXTENTS, u64_at},
    root::DIRECTORIES_MAX,
};
use crate::PageId;

const KIND: Kind = Kind { magic: *b"TNTLPMAP", newest_version: VERSION_OF_EXTENTS };
const HEADER_BYTES: usize = 64;
/// Places in a block.
pub const ENTRIES: usize = (BLOCK_BYTES - HEADER_BYTES) / 8;
/// Chunks that a map has at most.
pub const CHUNKS_MAX: usize = DIRECTORIES_MAX * ENTRIES;

/// Levels of blocks below the root.
pub const LEVELS: usize = 2;

/// Which block of the map: its level, and its number on it.
pub type BlockNumber = (usize, usize);

/// A block of the map: `ENTRIES` numbers, which say where each page is, or each chunk; 0 for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapBlock {
    numbers: Box<[u64; ENTRIES]>,
    /// Where it stands, as of the newest durable checkpoint.
    at: Option<Place>,
    /// Whether it changed since it was last written.
    is_dirty: bool,
}

impl MapBlock {
    fn new() -> Self {
        Self { numbers: Box::new([0; ENTRIES]), at: None, is_dirty: false }
    }

    /// Where it stands, as of the newest durable checkpoint.
    pub fn at(&self) -> Option<Place> {
        self.at
    }

    /// Where a page of a chunk is.
    fn page(&self, index: usize) -> Option<Extent> {
        Extent::from_number(self.numbers[index])
    }

    /// Where a chunk of a directory is.
    fn chunk(&self, index: usize) -> Option<Place> {
        Some(Place(self.numbers[index])).filter(|place| place.0 != 0)
    }

    fn set(&mut self, index: usize, number: u64) {
        self.numbers[index] = number;
        self.is_dirty = true;
    }

    /// As it is written, where pages have so many units.
    pub fn encode(&self, (level, index): BlockNumber, database: u128, page_units: u32, block: &mut [u8]) {
        let block_of = |number: &u64| {
            Extent::from_number(*number).map_or(Some(0), |extent| extent.block_of_whole_page(page_units))
        };
        // Those of a directory are blocks.
        let blocks = if level > 0 { Some(self.numbers.to_vec()) } else { self.numbers.iter().map(block_of).collect() };
        let (version, numbers) = match blocks {
            Some(blocks) => (FIRST_VERSION, blocks),
            None => (VERSION_OF_EXTENTS, self.numbers.to_vec()),
        };
        let block = KIND.begin(block, version, database);
        block[TAG] = level as u8;
        block[BODY..40].copy_from_slice(&(index as u64).to_le_bytes());
        for (number, bytes) in numbers.iter().zip(block[HEADER_BYTES..].chunks_exact_mut(8)) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        KIND.seal(block);
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        KIND.seal(block);
    }

    /// Reads the block `index` of `level` of the map of the database, of which pages have so many units. `None` if these bytes are
    /// something else.
    pub fn decode(block: &[u8], (level, index): BlockNumber, database: u128, page_units: u32) -> Option<Self> {
        let (block, version) = KIND.open(block, database)?;
        if usize::from(block[TAG]) != level || u64_at(block, BODY) != index as u64 {
            return None;
        }
        let mut read = Self::new();
        for (number, bytes) in read.numbers.iter_mut().zip(block[HEADER_BYTES..].chunks_exact(8)) {
            *number = u64_at(bytes, 0);
            if level > 0 && !Place(*number).is_possible() {
                return None;
            }
            if (version, level) == (FIRST_VERSION, 0) && *number != 0 {
                *number = Extent::of_whole_page(*number, page_units)?.number();
            }
        }
        Some(read)
    }
}

/// What was forgotten of a map.
#[derive(Debug)]
pub struct Forgotten {
    /// Where the pages were.
    pub pages: Vec<Extent>,
    /// Where blocks of the map are that the next checkpoint does not name any more.
    pub blocks: Vec<Place>,
}

/// The map.
#[derive(Clone, Debug, Default)]
pub struct PageMap {
    /// Chunks, and directories.
    levels: [Vec<MapBlock>; LEVELS],
}

impl PageMap {
    /// Where a page is; `None` if it was never stored.
    pub fn get(&self, id: PageId) -> Option<Extent> {
        let (chunk, index) = Self::split(id)?;
        self.levels[0].get(chunk)?.page(index)
    }

    /// Notes where a page is. Returns where it was.
    ///
    /// # Panics
    /// With a page beyond the largest store.
    pub fn set(&mut self, id: PageId, extent: Extent) -> Option<Extent> {
        let (chunk, index) = Self::split(id).expect("no store has room for more pages than a map");
        let chunk = Self::block(&mut self.levels[0], chunk);
        let old = chunk.page(index);
        chunk.set(index, extent.number());
        old
    }

    /// Forgets the pages of the last chunk, from page `pages` on; `None` if there are none in it.
    pub fn forget_last(&mut self, pages: u64) -> Option<Forgotten> {
        let last = self.levels[0].len().checked_sub(1)?;
        let first_page = (last * ENTRIES) as u64;
        if first_page < pages {
            let kept = usize::try_from(pages - first_page).ok().filter(|kept| *kept < ENTRIES)?;
            let chunk = &mut self.levels[0][last];
            let pages: Vec<Extent> = (kept..ENTRIES).filter_map(|index| chunk.page(index)).collect();
            if pages.is_empty() {
                return None;
            }
            (kept..ENTRIES).for_each(|index| chunk.set(index, 0));
            return Some(Forgotten { pages, blocks: Vec::new() });
        }
        let chunk = self.levels[0].pop()?;
        let pages = (0..ENTRIES).filter_map(|index| chunk.page(index)).collect();
        let mut blocks: Vec<Place> = chunk.at.into_iter().collect();
        let (directory, index) = (last / ENTRIES, last % ENTRIES);
        if let Some(block) = self.levels[1].get_mut(directory) {
            if index > 0 {
                block.set(index, 0);
            } else {
                blocks.extend(block.at);
                self.levels[1].truncate(directory);
            }
        }
        Some(Forgotten { pages, blocks })
    }

    fn split(id: PageId) -> Option<(usize, usize)> {
        let chunk = usize::try_from(id.0 / ENTRIES as u64).ok().filter(|chunk| *chunk < CHUNKS_MAX)?;
        Some((chunk, (id.0 % ENTRIES as u64) as usize))
    }

    fn block(level: &mut Vec<MapBlock>, index: usize) -> &mut MapBlock {
        if level.len() <= index {
            level.resize_with(index + 1, MapBlock::new);
        }
        &mut level[index]
    }

    /// All pages that were stored, and where they are.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, Extent)> {
        self.levels[0].iter().enumerate().flat_map(|(number, chunk)| {
            let first = (number * ENTRIES) as u64;
            (0..ENTRIES).filter_map(move |index| Some((PageId(first + index as u64), chunk.page(index)?)))
        })
    }

    /// The blocks of a level.
    pub fn level(&self, level: usize) -> &[MapBlock] {
        &self.levels[level]
    }

    /// Blocks of the map that stand somewhere, and where.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockNumber, Place)> {
        let blocks =
            |level: usize| self.levels[level].iter().enumerate().map(move |(index, block)| ((level, index), block));
        blocks(0).chain(blocks(1)).filter_map(|(number, block)| Some((number, block.at?)))
    }

    /// Adds a block that was read from `at`.
    pub fn adopt(&mut self, (level, index): BlockNumber, block: MapBlock, at: Place) {
        *Self::block(&mut self.levels[level], index) = MapBlock { at: Some(at), ..block };
    }

    /// The places that a directory has, with the numbers of the chunks.
    pub fn chunks_of(&self, directory: usize) -> impl Iterator<Item = (usize, Place)> {
        let block = &self.levels[1][directory];
        (0..ENTRIES).filter_map(move |index| Some((directory * ENTRIES + index, block.chunk(index)?)))
    }

    /// Copies of a level's dirty blocks. They are clean from now on.
    pub fn take_dirty(&mut self, level: usize) -> Vec<(BlockNumber, MapBlock)> {
        let dirty = self.levels[level].iter_mut().enumerate().filter(|(_, block)| block.is_dirty);
        let take = |(index, block): (usize, &mut MapBlock)| {
            block.is_dirty = false;
            ((level, index), block.clone())
        };
        dirty.map(take).collect()
    }

    /// Notes that a block has to be written.
    pub fn touch(&mut self, (level, index): BlockNumber) {
        self.levels[level][index].is_dirty = true;
    }

    /// Notes, in the chunk's directory, where the checkpoint that is under way has written it.
    pub fn point_at(&mut self, chunk: usize, place: Place) {
        Self::block(&mut self.levels[1], chunk / ENTRIES).set(chunk % ENTRIES, place.0);
    }

    /// Notes that a block's new place is durable. Returns its old one.
    pub fn moved(&mut self, (level, index): BlockNumber, place: Place) -> Option<Place> {
        self.levels[level][index].at.replace(place)
    }

    /// Blocks on all levels.
    pub fn block_count(&self) -> u64 {
        self.levels.iter().map(|level| level.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(block: u64) -> Extent {
        Extent::at(Place(block), 3, 7)
    }

    #[test]
    fn only_what_changed_is_dirty() {
        let mut map = PageMap::default();
        assert_eq!(map.set(PageId(5), at(9)), None);
        assert_eq!(map.set(PageId(5), at(10)), Some(at(9)));
        map.set(PageId(3 * ENTRIES as u64 + 1), at(11));
        let take =
            |map: &mut PageMap, level| map.take_dirty(level).into_iter().map(|(number, _)| number).collect::<Vec<_>>();
        assert_eq!(take(&mut map, 0), [(0, 0), (0, 3)]);
        assert_eq!((take(&mut map, 0), take(&mut map, 1)), (vec![], vec![]));
        map.point_at(3, Place(99));
        assert_eq!(take(&mut map, 1), [(1, 0)]);
        assert_eq!(map.chunks_of(0).collect::<Vec<_>>(), [(3, Place(99))]);
        assert_eq!(map.pages().collect::<Vec<_>>(), [(PageId(5), at(10)), (PageId(3 * ENTRIES as u64 + 1), at(11))]);
        assert_eq!(map.get(PageId(u64::MAX)), None);
    }

    #[test]
    fn the_last_pages_are_forgotten_with_their_blocks() {
        let entries = ENTRIES as u64;
        let mut map = PageMap::default();
        let pages = [5, entries - 1, entries, entries * entries + 7, entries * entries + entries];
        (1..).zip(pages).for_each(|(block, page)| _ = map.set(PageId(page), at(block)));
        for (chunk, at) in [(0, 100), (1, 101), (ENTRIES, 102)] {
            map.point_at(chunk, Place(at));
            map.moved((0, chunk), Place(at));
        }
        map.moved((1, 0), Place(200));
        map.moved((1, 1), Place(201));
        map.take_dirty(0);
        map.take_dirty(1);
        let forget = |map: &mut PageMap, pages| {
            let (mut places, mut blocks) = (Vec::new(), Vec::new());
            while let Some(forgotten) = map.forget_last(pages) {
                places.extend(forgotten.pages.iter().map(|page| page.offset() / BLOCK_BYTES as u64));
                blocks.extend(forgotten.blocks.iter().map(|place| place.0));
            }
            (places, blocks)
        };
        assert_eq!(forget(&mut map, entries * entries + entries), (vec![5], vec![]));
        assert_eq!(map.block_count(), ENTRIES as u64 + 3);
        let none: Vec<u64> = Vec::new();
        assert_eq!(forget(&mut map, entries * entries), (vec![4], vec![102, 201]));
        assert_eq!((map.level(0).len(), map.level(1).len()), (ENTRIES, 1));
        assert_eq!(forget(&mut map, entries + 1), (none.clone(), none.clone()));
        assert_eq!(map.level(0).len(), 2);
        map.take_dirty(1);
        assert_eq!(forget(&mut map, entries - 1), (vec![3, 2], vec![101]));
        assert_eq!(map.take_dirty(0).len(), 1);
        assert_eq!((map.take_dirty(1).len(), map.chunks_of(0).collect::<Vec<_>>()), (1, vec![(0, Place(100))]));
        assert_eq!(map.pages().collect::<Vec<_>>(), [(PageId(5), at(1))]);
        assert_eq!(forget(&mut map, entries), (none.clone(), none), "there is nothing left behind");
    }

    #[test]
    fn a_block_is_read_back_as_itself_only() {
        let mut map = PageMap::default();
        map.set(PageId(7), at(70));
        let chunk = &map.level(0)[0];
        let mut bytes = [0xee; BLOCK_BYTES];
        chunk.encode((0, 0), 5, 16, &mut bytes);
        let read = MapBlock::decode(&bytes, (0, 0), 5, 16).unwrap();
        assert_eq!(read.page(7), Some(at(70)));
        assert!(MapBlock::decode(&bytes, (0, 1), 5, 16).is_none());
        assert!(MapBlock::decode(&bytes, (1, 0), 5, 16).is_none());
        assert!(MapBlock::decode(&bytes, (0, 0), 6, 16).is_none());
    }

    #[test]
    fn a_block_that_no_device_has_is_refused() {
        let mut bytes = [0; BLOCK_BYTES];
        for level in 0..LEVELS {
            MapBlock::new().encode((level, 0), 5, 16, &mut bytes);
            for (number, is_possible) in [((1 << 44) - 1, true), (1 << 44, false), (u64::MAX, false)] {
                bytes[HEADER_BYTES..HEADER_BYTES + 8].copy_from_slice(&u64::to_le_bytes(number));
                MapBlock::repair_checksum(&mut bytes);
                assert_eq!(MapBlock::decode(&bytes, (level, 0), 5, 16).is_some(), is_possible, "{number}");
            }
        }
    }

    #[test]
    fn a_chunk_without_compressed_pages_is_read_by_older_programs() {
        let whole = Extent::of_whole_page(70, 32).unwrap();
        let mut bytes = [0; BLOCK_BYTES];
        for (level, number, version, stored) in
            [(0, whole.number(), 1, 70), (0, at(70).number(), 2, at(70).number()), (1, 70, 1, 70)]
        {
            let mut block = MapBlock::new();
            block.set(7, number);
            block.encode((level, 0), 5, 32, &mut bytes);
            assert_eq!(u64_at(&bytes, HEADER_BYTES + 7 * 8), stored);
            assert_eq!(bytes[12..14], [version, 0]);
            let read = MapBlock::decode(&bytes, (level, 0), 5, 32).unwrap();
            assert_eq!((read.numbers[6], read.numbers[7]), (0, number));
        }
    }
}
