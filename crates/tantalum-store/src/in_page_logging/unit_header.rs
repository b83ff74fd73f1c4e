//! The header of a physical unit: what it holds, and of which version.
//!
//! The headers are the map from logical to physical units. A version of a logical unit is complete when its header and the
//! log sectors that were carried into it are whole; the complete one with the highest sequence counts. Every version
//! of every unit has another sequence, in all sessions.
//!
//! A write that failed may have been done all the same, after which the version is written elsewhere: the attempts are counted, and
//! the last one counts.
//!
//! Bytes: CRC-32C of the rest, seeded with the store's number (4); magic (4); kind (1); format (1); attempts before (2); physical unit (4);
//! logical unit (4); erase count (4); carried sectors (4); 0 (4); sequence (8); pages present, a bit each (8).

/// The bytes of a header that are used; the rest of its sector is zero.
pub const HEADER_BYTES: usize = 48;

/// No page of ours has 0xF7 as its kind, which stands at this place of a page.
const MAGIC: [u8; 4] = [0xf7, b'I', b'P', b'L'];
const FORMAT: u8 = 1;

/// What a unit is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// Pages and their log sectors.
    Home,
    /// Log sectors of any home units.
    Overflow,
    /// How many log sectors home units had; the unit is free.
    Tally,
}

/// What a unit says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// What it is for.
    pub kind: UnitKind,
    /// Where it was written; guards against misdirected writes.
    pub physical: u32,
    /// Which pages it has: those from `logical` times the pages of a unit on. 0 in another unit than a home one.
    pub logical: u32,
    /// How often the physical unit was erased.
    pub erase_count: u32,
    /// Log sectors that belong to this version from its beginning; sectors with tallies.
    pub carried: u32,
    /// The version.
    pub sequence: u64,
    /// How often the version was tried to be written before.
    pub attempt: u16,
    /// Pages that it holds, a bit each; which tallies it belongs to: the higher number is newer.
    pub pages: u64,
}

fn checksum(block: &[u8], store: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.to_le_bytes()), &block[4..HEADER_BYTES])
}

impl UnitHeader {
    /// Stores the checksum of a sector that is long enough, and the magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8], store: u64) {
        if block.len() >= HEADER_BYTES {
            block[4..8].copy_from_slice(&MAGIC);
            let crc = checksum(block, store);
            block[..4].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// Writes the header into a blank sector, for the store with that number.
    pub fn encode(&self, block: &mut [u8], store: u64) {
        block.fill(0);
        block[8] = match self.kind {
            UnitKind::Home => 1,
            UnitKind::Overflow => 2,
            UnitKind::Tally => 3,
        };
        block[9] = FORMAT;
        block[10..12].copy_from_slice(&self.attempt.to_le_bytes());
        block[12..16].copy_from_slice(&self.physical.to_le_bytes());
        block[16..20].copy_from_slice(&self.logical.to_le_bytes());
        block[20..24].copy_from_slice(&self.erase_count.to_le_bytes());
        block[24..28].copy_from_slice(&self.carried.to_le_bytes());
        block[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        block[40..48].copy_from_slice(&self.pages.to_le_bytes());
        Self::repair_checksum(block, store);
    }

    /// Reads what [`encode`](Self::encode) wrote; `None` if it is something else, damaged, of another store or place.
    pub fn decode(block: &[u8], store: u64, physical: u32) -> Option<Self> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(block.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(block.get(at..at + 8)?.try_into().ok()?));
        if block.get(4..8)? != MAGIC || block.len() < HEADER_BYTES || u32_at(0)? != checksum(block, store) {
            return None;
        }
        let kind = match (block[8], block[9]) {
            (1, FORMAT) => UnitKind::Home,
            (2, FORMAT) => UnitKind::Overflow,
            (3, FORMAT) => UnitKind::Tally,
            _ => return None,
        };
        let header = Self {
            kind,
            physical: u32_at(12)?,
            logical: u32_at(16)?,
            erase_count: u32_at(20)?,
            carried: u32_at(24)?,
            sequence: u64_at(32)?,
            attempt: u16::from_le_bytes([block[10], block[11]]),
            pages: u64_at(40)?,
        };
        (header.physical == physical).then_some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_only_whole_in_its_place_and_store() {
        let header = UnitHeader {
            kind: UnitKind::Home,
            physical: 7,
            logical: 5,
            erase_count: 3,
            carried: 2,
            sequence: 1 << 41,
            attempt: 3,
            pages: 0b101,
        };
        let mut block = [0; 512];
        header.encode(&mut block, 99);
        assert_eq!(UnitHeader::decode(&block, 99, 7), Some(header));
        assert_eq!(UnitHeader::decode(&block, 98, 7), None, "another store's");
        assert_eq!(UnitHeader::decode(&block, 99, 8), None, "misdirected");
        for bit in 0..HEADER_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(UnitHeader::decode(&block, 99, 7), None, "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(UnitHeader::decode(&block[..40], 99, 7), None);
    }
}
