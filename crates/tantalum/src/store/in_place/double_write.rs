//! The double-write area: the batch that is being put in place, once more, so that a page torn there is found here.
//!
//! Invariant: from the first write of a batch in place until all of it is durable there, the area holds the batch,
//! durably. So at every instant each page is whole in its place or in the area.
//!
//! One durable write holds a header block and the pages. A torn area is harmless: nothing was written in place yet.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability};

use crate::{
    error::{Error, Result},
    page::PageId,
    store::PageBatch,
};

const MAGIC: [u8; 8] = *b"TNTLDBLW";
const VERSION: u32 = 1;
/// The header's block; the first page follows it.
const HEADER_BYTES: usize = 4096;
const CRC_AT: usize = 12;
const IDS_AT: usize = 48;

/// The header block of the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The database that the pages belong to.
    pub database_id: u128,
    /// Counts the batches.
    pub sequence: u64,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The pages that follow, ascending.
    pub ids: Vec<PageId>,
}

impl Header {
    /// The header as it is written.
    pub fn encode(&self) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        block[16..32].copy_from_slice(&self.database_id.to_le_bytes());
        block[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        block[40..44].copy_from_slice(&self.page_size.to_le_bytes());
        block[44..48].copy_from_slice(&(self.ids.len() as u32).to_le_bytes());
        for (index, id) in self.ids.iter().enumerate() {
            let at = IDS_AT + 8 * index;
            block[at..at + 8].copy_from_slice(&id.0.to_le_bytes());
        }
        Self::repair_checksum(&mut block);
        block
    }

    /// Stores the checksum of a block that is long enough, and magic number and version with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        let Some(block) = block.get_mut(..HEADER_BYTES) else { return };
        block[0..8].copy_from_slice(&MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let crc = crc32c::crc32c(&block[CRC_AT + 4..]);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads what [`encode`](Self::encode) wrote. `None` when it is torn, blank, or something else.
    pub fn decode(block: &[u8]) -> Option<Self> {
        let block: &[u8; HEADER_BYTES] = block.get(..HEADER_BYTES)?.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let is_ours = block[0..8] == MAGIC && u32_at(8) == VERSION;
        if !is_ours || crc32c::crc32c(&block[CRC_AT + 4..]) != u32_at(CRC_AT) {
            return None;
        }
        let count = u32_at(44) as usize;
        if count > PageBatch::MAX_PAGES {
            return None;
        }
        let ids: Vec<_> = (0..count).map(|index| PageId(u64_at(IDS_AT + 8 * index))).collect();
        ids.is_sorted_by(|a, b| a < b).then_some(Self {
            database_id: u128::from_le_bytes(block[16..32].try_into().expect("sixteen bytes")),
            sequence: u64_at(32),
            page_size: u32_at(40),
            ids,
        })
    }
}

/// The double-write area of a database.
#[derive(Debug)]
pub struct DoubleWrite {
    device: Arc<dyn Device>,
    page_size: usize,
    database_id: u128,
    sequence: u64,
}

/// What the area holds: copies that may themselves be torn.
#[derive(Debug)]
pub struct Copies {
    ids: Vec<PageId>,
    pages: AlignedBuffer,
    page_size: usize,
}

impl Copies {
    /// The pages.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, &[u8])> {
        self.ids.iter().copied().zip(self.pages.chunks_exact(self.page_size))
    }
}

impl DoubleWrite {
    /// The bytes that the area needs.
    pub fn area_bytes(page_size: usize) -> u64 {
        (HEADER_BYTES + PageBatch::MAX_PAGES * page_size) as u64
    }

    /// The area on `device`.
    ///
    /// # Errors
    /// [`Error::Protection`] when the device is too small.
    pub fn open(device: Arc<dyn Device>, page_size: usize, database_id: u128) -> Result<Self> {
        let needed = Self::area_bytes(page_size);
        if device.capacity_bytes() < needed {
            let what = format!("a double-write area needs {needed} bytes, here are {}", device.capacity_bytes());
            return Err(Error::Protection { file: device.name().into(), what });
        }
        Ok(Self { device, page_size, database_id, sequence: 0 })
    }

    /// Replaces what the area holds, durably.
    ///
    /// # Errors
    /// When the device cannot write.
    pub fn write(&mut self, batch: &PageBatch) -> Result<()> {
        self.sequence += 1;
        let header = Header {
            database_id: self.database_id,
            sequence: self.sequence,
            page_size: self.page_size as u32,
            ids: batch.ids().to_vec(),
        };
        Ok(self.device.write(0, &[&header.encode(), batch.bytes()], Durability::Durable)?)
    }

    /// Lets the area hold nothing, durably.
    ///
    /// # Errors
    /// When the device cannot write.
    pub fn clear(&self) -> Result<()> {
        Ok(self.device.write(0, &[&AlignedBuffer::zeroed(HEADER_BYTES)], Durability::Durable)?)
    }

    /// What the area holds for this database.
    ///
    /// # Errors
    /// When the device cannot read.
    pub fn read(&self) -> Result<Option<Copies>> {
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        self.device.read(0, &mut block)?;
        let Some(header) = Header::decode(&block) else { return Ok(None) };
        if header.database_id != self.database_id || header.page_size as usize != self.page_size {
            return Ok(None);
        }
        let mut pages = AlignedBuffer::zeroed(header.ids.len() * self.page_size);
        if !header.ids.is_empty() {
            self.device.read(HEADER_BYTES as u64, &mut pages)?;
        }
        Ok(Some(Copies { ids: header.ids, pages, page_size: self.page_size }))
    }
}
