//! Protected memory in the file behind a drive: what capacitors would keep alive outlives the program.
//!
//! Promises: a write that has completed is found when the drive is opened again after the program died, unless flash
//! holds it; one that has not is found whole or not at all. The drive then replays it like a dump.
//!
//! The file has a word that says which command was the last one complete (8 bytes, in a page of its own), an entry for
//! each sector (its command's number, 0 if it is free, 8 bytes; the sector, 4; CRC-32C of entry and data, 4), and the
//! sectors' data.

use tantalum_device::sparse::{PIECE_BYTES, Piece, piece_of};

use crate::Contents;

const WORD_BYTES: usize = 4096;
const ENTRY_BYTES: usize = 16;

/// The mirror of a buffer pool.
#[derive(Debug)]
pub(super) struct Mirror {
    area: Contents,
    places: u32,
    free: Vec<u32>,
    /// Places that the command coming in makes superfluous.
    superseded: Vec<u32>,
    command: u64,
}

impl Mirror {
    /// Bytes in the file for so many sectors.
    pub fn bytes(sectors: usize) -> u64 {
        (WORD_BYTES + sectors * (ENTRY_BYTES + PIECE_BYTES)) as u64
    }

    /// A mirror in an area of [`Mirror::bytes`].
    pub fn new(area: Contents, sectors: usize) -> Self {
        let mut word = [0; 8];
        area.read(0, &mut word);
        let (places, command) = (sectors as u32, u64::from_le_bytes(word));
        Self { area, places, free: (0..places).rev().collect(), superseded: Vec::new(), command }
    }

    /// Keeps a sector of the command that is coming in. Returns its place.
    pub fn keep(&mut self, unit: u32, piece: &Piece) -> u32 {
        let place = self.free.pop().expect("the pool never queues more sectors than it has room for");
        let data = piece.as_deref().unwrap_or(&[0; PIECE_BYTES]);
        self.area.write(self.data_at(place), data);
        self.write_entry(place, entry(self.command + 1, unit, data));
        place
    }

    /// The command that is coming in has a newer version of this sector.
    pub fn supersede(&mut self, place: u32) {
        self.superseded.push(place);
    }

    /// The command has come in whole.
    pub fn commit(&mut self) {
        self.command += 1;
        self.area.write(0, &self.command.to_le_bytes());
        // Before flash holds the newer version: the older one must not be replayed over it.
        for place in std::mem::take(&mut self.superseded) {
            self.release(place);
        }
    }

    /// Flash holds the sector, or the drive no longer needs it.
    pub fn release(&mut self, place: u32) {
        self.write_entry(place, [0; ENTRY_BYTES]);
        self.free.push(place);
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.area.write(WORD_BYTES as u64, &vec![0; self.places as usize * ENTRY_BYTES]);
        self.free = (0..self.places).rev().collect();
        self.superseded.clear();
    }

    /// The sectors of complete commands, in their order.
    pub fn sectors(&self) -> Vec<(u32, Piece)> {
        self.kept().into_iter().map(|(unit, piece, _)| (unit, piece)).collect()
    }

    /// The same with the place of each, which stays in use until it is released.
    pub fn adopt(&mut self) -> Vec<(u32, Piece, u32)> {
        let kept = self.kept();
        self.free.retain(|place| kept.iter().all(|(.., used)| used != place));
        kept
    }

    fn kept(&self) -> Vec<(u32, Piece, u32)> {
        let mut found = Vec::new();
        for place in 0..self.places {
            let (mut stored, mut data) = ([0; ENTRY_BYTES], [0; PIECE_BYTES]);
            self.area.read((WORD_BYTES + place as usize * ENTRY_BYTES) as u64, &mut stored);
            if stored == [0; ENTRY_BYTES] {
                continue;
            }
            self.area.read(self.data_at(place), &mut data);
            let command = u64::from_le_bytes(*stored.first_chunk().expect("an entry is longer"));
            let unit = u32::from_le_bytes([stored[8], stored[9], stored[10], stored[11]]);
            if command <= self.command && stored == entry(command, unit, &data) {
                found.push((command, unit, piece_of(&data), place));
            }
        }
        found.sort_by_key(|&(command, unit, ..)| (command, unit));
        found.into_iter().map(|(_, unit, piece, place)| (unit, piece, place)).collect()
    }

    fn data_at(&self, place: u32) -> u64 {
        (WORD_BYTES + self.places as usize * ENTRY_BYTES + place as usize * PIECE_BYTES) as u64
    }

    fn write_entry(&mut self, place: u32, entry: [u8; ENTRY_BYTES]) {
        self.area.write((WORD_BYTES + place as usize * ENTRY_BYTES) as u64, &entry);
    }
}

fn entry(command: u64, unit: u32, data: &[u8; PIECE_BYTES]) -> [u8; ENTRY_BYTES] {
    let mut entry = [0; ENTRY_BYTES];
    entry[..8].copy_from_slice(&command.to_le_bytes());
    entry[8..12].copy_from_slice(&unit.to_le_bytes());
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&entry[..12]), data);
    entry[12..].copy_from_slice(&checksum.to_le_bytes());
    entry
}
