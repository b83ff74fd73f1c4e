//! Spare areas and block states: in memory, and written through to the file behind the device if there is one.
//!
//! Promises: whenever the program dies, the file holds a state that a power cut could have left: data is written before
//! the spare area that says so, and a block whose erase was begun is found half erased. A spare area whose checksum is
//! wrong is found torn, as error correction would say.
//!
//! A spare area takes 32 bytes in the file, all zero while it is erased: state, kind, programs, 0, CRC-32C of the rest
//! (4), sequence (8), units (4 each). A block takes 16: erases (4), flags (4), CRC-32C of these (4), 0.

use super::{Block, Geometry, NO_UNIT, PAGE_PIECES_MAX, PageState, Spare};
use crate::Contents;

const SPARE_BYTES: usize = 32;
const BLOCK_BYTES: usize = 16;

/// The block failed.
const FLAG_BAD: u32 = 1;
/// Its erase has begun.
const FLAG_ERASING: u32 = 2;

/// The spare areas of a block; `None` while all are erased.
pub(super) type Spares = Option<Box<[Spare]>>;

#[derive(Debug)]
pub(super) struct Tables {
    pages_per_block: u32,
    blocks: Vec<Block>,
    spares: Vec<Spares>,
    file: Option<Areas>,
}

#[derive(Debug)]
struct Areas {
    spares: Contents,
    blocks: Contents,
}

static ERASED: Spare =
    Spare { state: PageState::Erased, kind: 0, programs: 0, sequence: 0, units: [NO_UNIT; PAGE_PIECES_MAX] };

impl Tables {
    /// Those of an erased memory, or what the file beside `contents` holds.
    pub fn new(geometry: &Geometry, contents: &Contents) -> Self {
        let (blocks, pages) = (geometry.blocks() as usize, u64::from(geometry.pages()));
        let spares = contents.beside(pages * SPARE_BYTES as u64);
        let areas = spares.and_then(|spares| {
            let blocks = spares.beside(blocks as u64 * BLOCK_BYTES as u64)?;
            Some(Areas { spares, blocks })
        });
        let mut tables = Self {
            pages_per_block: geometry.pages_per_block,
            blocks: vec![Block::default(); blocks],
            spares: vec![None; blocks],
            file: None,
        };
        if let Some(areas) = areas.as_ref().filter(|_| !contents.is_new()) {
            tables.load(areas);
        }
        tables.file = areas;
        tables
    }

    pub fn block(&self, block: u32) -> Block {
        self.blocks[block as usize]
    }

    pub fn spare(&self, page: u32) -> &Spare {
        match &self.spares[(page / self.pages_per_block) as usize] {
            Some(spares) => &spares[(page % self.pages_per_block) as usize],
            None => &ERASED,
        }
    }

    /// A page's spare area is programmed, torn, or taken back.
    pub fn set_spare(&mut self, page: u32, spare: Spare) {
        let pages = self.pages_per_block;
        let slot = &mut self.spares[(page / pages) as usize];
        slot.get_or_insert_with(|| vec![ERASED; pages as usize].into())[(page % pages) as usize] = spare;
        if let Some(areas) = &mut self.file {
            areas.spares.write(u64::from(page) * SPARE_BYTES as u64, &encode_spare(&spare));
        }
    }

    /// How far a block is programmed. The file does not tell: its spare areas do.
    pub fn set_next_page(&mut self, block: u32, next_page: u32) {
        self.blocks[block as usize].next_page = next_page;
    }

    /// A block's erase has failed, or it came so from the factory.
    pub fn set_bad(&mut self, block: u32) {
        self.blocks[block as usize].is_bad = true;
        self.write_block(block, 0);
    }

    /// Empties a block, and counts that. Returns what its spare areas were.
    pub fn erase(&mut self, block: u32) -> Spares {
        let state = &mut self.blocks[block as usize];
        *state = Block { next_page: 0, erase_count: state.erase_count.saturating_add(1), is_bad: state.is_bad };
        self.write_block(block, FLAG_ERASING);
        let old = self.spares[block as usize].take();
        self.write_spares(block);
        self.write_block(block, 0);
        old
    }

    /// Takes an erase back.
    pub fn restore(&mut self, block: u32, spares: Spares, state: Block) {
        self.spares[block as usize] = spares;
        self.write_spares(block);
        self.blocks[block as usize] = state;
        self.write_block(block, 0);
    }

    fn write_block(&mut self, block: u32, flags: u32) {
        let Some(areas) = &mut self.file else { return };
        let state = &self.blocks[block as usize];
        let flags = flags | if state.is_bad { FLAG_BAD } else { 0 };
        let mut bytes = [0; BLOCK_BYTES];
        bytes[..4].copy_from_slice(&state.erase_count.to_le_bytes());
        bytes[4..8].copy_from_slice(&flags.to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..8]);
        bytes[8..12].copy_from_slice(&checksum.to_le_bytes());
        areas.blocks.write(u64::from(block) * BLOCK_BYTES as u64, &bytes);
    }

    fn write_spares(&mut self, block: u32) {
        let Some(areas) = &mut self.file else { return };
        let bytes: Vec<u8> = match &self.spares[block as usize] {
            Some(spares) => spares.iter().flat_map(encode_spare).collect(),
            None => vec![0; self.pages_per_block as usize * SPARE_BYTES],
        };
        areas.spares.write(u64::from(block) * u64::from(self.pages_per_block) * SPARE_BYTES as u64, &bytes);
    }

    fn load(&mut self, areas: &Areas) {
        let mut bytes = vec![0; self.pages_per_block as usize * SPARE_BYTES];
        let size = bytes.len() as u64;
        for index in 0..self.blocks.len() {
            let mut entry = [0; BLOCK_BYTES];
            areas.blocks.read((index * BLOCK_BYTES) as u64, &mut entry);
            let [erases, flags, checksum, _] = words(&entry);
            // A damaged entry leaves the block in use: its age is unknown.
            let (erase_count, flags) = if crc32c::crc32c(&entry[..8]) == checksum { (erases, flags) } else { (0, 0) };
            areas.spares.read(index as u64 * size, &mut bytes);
            let mut spares: Spares = bytes
                .iter()
                .any(|&byte| byte != 0)
                .then(|| bytes.as_chunks::<SPARE_BYTES>().0.iter().map(decode_spare).collect());
            if flags & FLAG_ERASING != 0 {
                let torn = Spare { state: PageState::Torn, ..ERASED };
                spares = Some(vec![torn; self.pages_per_block as usize].into());
            }
            let is_programmed = |spare: &Spare| spare.state != PageState::Erased;
            let next_page =
                spares.as_ref().and_then(|spares| spares.iter().rposition(is_programmed)).map_or(0, |last| last + 1);
            self.blocks[index] = Block { next_page: next_page as u32, erase_count, is_bad: flags & FLAG_BAD != 0 };
            self.spares[index] = spares;
        }
    }
}

fn words(bytes: &[u8; BLOCK_BYTES]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

fn encode_spare(spare: &Spare) -> [u8; SPARE_BYTES] {
    let mut bytes = [0; SPARE_BYTES];
    if *spare == ERASED {
        return bytes;
    }
    bytes[..3].copy_from_slice(&[spare.state as u8, spare.kind, spare.programs]);
    bytes[8..16].copy_from_slice(&spare.sequence.to_le_bytes());
    for (bytes, unit) in bytes[16..].as_chunks_mut::<4>().0.iter_mut().zip(spare.units) {
        *bytes = unit.to_le_bytes();
    }
    let checksum = crc32c::crc32c(&bytes);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode_spare(bytes: &[u8; SPARE_BYTES]) -> Spare {
    if bytes.iter().all(|&byte| byte == 0) {
        return ERASED;
    }
    let mut plain = *bytes;
    plain[4..8].fill(0);
    let state = match bytes[0] {
        0 => PageState::Erased,
        1 => PageState::Programmed,
        _ => PageState::Torn,
    };
    let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    if crc32c::crc32c(&plain) != word(4) {
        return Spare { state: PageState::Torn, ..ERASED };
    }
    Spare {
        state,
        kind: bytes[1],
        programs: bytes[2],
        sequence: u64::from(word(8)) | u64::from(word(12)) << 32,
        units: [word(16), word(20), word(24), word(28)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_area_is_found_as_written_or_torn() {
        let spare =
            Spare { state: PageState::Programmed, kind: 3, programs: 1, sequence: 1 << 40, units: [1, 2, 3, 4] };
        let bytes = encode_spare(&spare);
        assert_eq!(decode_spare(&bytes), spare);
        assert_eq!(decode_spare(&encode_spare(&ERASED)), ERASED);
        for bit in 0..SPARE_BYTES * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode_spare(&flipped).state, PageState::Torn, "bit {bit}");
        }
    }
}
