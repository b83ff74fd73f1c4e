//! How each block of the store's own begins: what it is, its checksum, its version, and the database that it belongs to.

use super::layout::BLOCK_BYTES;

const CRC: usize = 8;
const VERSION: usize = 12;
/// One byte of a kind's own, between the version and the database.
pub const TAG: usize = 14;
const DATABASE: usize = 16;
/// Where what a kind of block has of its own begins.
pub const BODY: usize = 32;

/// A kind of block.
pub struct Kind {
    pub magic: [u8; 8],
    pub version: u16,
}

impl Kind {
    /// Makes the first bytes an empty block of the database, of which the checksum is missing.
    ///
    /// # Panics
    /// With less than a block.
    pub fn begin<'a>(&self, bytes: &'a mut [u8], database: u128) -> &'a mut [u8] {
        let block = &mut bytes[..BLOCK_BYTES];
        block.fill(0);
        block[VERSION..TAG].copy_from_slice(&self.version.to_le_bytes());
        block[DATABASE..BODY].copy_from_slice(&database.to_le_bytes());
        block
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub fn seal(&self, block: &mut [u8]) {
        if block.len() >= BLOCK_BYTES {
            block[..CRC].copy_from_slice(&self.magic);
            let crc = crc32c::crc32c(&block[VERSION..BLOCK_BYTES]);
            block[CRC..VERSION].copy_from_slice(&crc.to_le_bytes());
        }
    }

    /// The block, if the first bytes are one of this kind and this database.
    pub fn open<'a>(&self, bytes: &'a [u8], database: u128) -> Option<&'a [u8]> {
        let block = bytes.get(..BLOCK_BYTES)?;
        let is_ours = block[..CRC] == self.magic
            && u32_at(block, CRC) == crc32c::crc32c(&block[VERSION..])
            && block[VERSION..TAG] == self.version.to_le_bytes()
            && block[DATABASE..BODY] == database.to_le_bytes();
        is_ours.then_some(block)
    }
}

/// Four bytes.
///
/// # Panics
/// Behind the end.
pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Eight bytes.
///
/// # Panics
/// Behind the end.
pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
