//! The header block of a slot of the double-write area.

use tantalum_device::AlignedBuffer;

use crate::{PageBatch, PageId};

const MAGIC: [u8; 8] = *b"TNTLDBLW";
/// In an area of one slot, as all areas were once.
const VERSION_OF_ONE: u32 = 1;
/// In an area of several slots.
const VERSION_OF_SEVERAL: u32 = 2;
/// The header's block; the first page follows it.
pub const HEADER_BYTES: usize = 4096;
const CRC_AT: usize = 12;
const IDS_AT: usize = 48;
/// The version once more, where the checksum covers it; 0 in a header of an earlier version.
const COVERED_VERSION_AT: usize = SESSION_AT - 4;
/// The session; 0 if it was not noted.
const SESSION_AT: usize = HEADER_BYTES - 8;

/// The header block of a slot: of which batch it holds the pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The database that the pages belong to.
    pub database_id: u128,
    /// The batch's number.
    pub sequence: u64,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// The pages that follow, ascending.
    pub ids: Vec<PageId>,
    /// What only an area of several slots needs.
    pub among_others: Option<AmongOthers>,
    /// The session of the log in which it was written, if that was noted.
    pub session: Option<u64>,
}

/// How a slot's batch stands to those in other slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmongOthers {
    /// Every batch before this one was in place, durably, when the header was written.
    pub in_place_before: u64,
    /// The checksums of the pages that follow: a page under another is from a batch that the slot held before.
    pub checksums: Vec<u32>,
}

impl Header {
    /// The header as it is written.
    pub fn encode(&self) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(HEADER_BYTES);
        let version = if self.among_others.is_some() { VERSION_OF_SEVERAL } else { VERSION_OF_ONE };
        block[8..12].copy_from_slice(&version.to_le_bytes());
        block[16..32].copy_from_slice(&self.database_id.to_le_bytes());
        block[32..40].copy_from_slice(&self.sequence.to_le_bytes());
        block[40..44].copy_from_slice(&self.page_size.to_le_bytes());
        block[44..48].copy_from_slice(&(self.ids.len() as u32).to_le_bytes());
        let mut at = IDS_AT;
        let mut put = |bytes: &[u8]| {
            block[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        self.ids.iter().for_each(|id| put(&id.0.to_le_bytes()));
        if let Some(AmongOthers { in_place_before, checksums }) = &self.among_others {
            assert_eq!(checksums.len(), self.ids.len(), "each page has a checksum");
            checksums.iter().for_each(|checksum| put(&checksum.to_le_bytes()));
            put(&in_place_before.to_le_bytes());
        }
        block[COVERED_VERSION_AT..SESSION_AT].copy_from_slice(&version.to_le_bytes());
        block[SESSION_AT..].copy_from_slice(&self.session.unwrap_or(0).to_le_bytes());
        Self::repair_checksum(&mut block);
        block
    }

    /// Stores the checksum of a block that is long enough, and magic number and a version with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        let Some(block) = block.get_mut(..HEADER_BYTES) else { return };
        block[0..8].copy_from_slice(&MAGIC);
        if block[8..12] != VERSION_OF_SEVERAL.to_le_bytes() {
            block[8..12].copy_from_slice(&VERSION_OF_ONE.to_le_bytes());
        }
        let crc = crc32c::crc32c(&block[CRC_AT + 4..]);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads what [`encode`](Self::encode) wrote. `None` when it is torn, blank, or something else.
    pub fn decode(block: &[u8]) -> Option<Self> {
        let block: &[u8; HEADER_BYTES] = block.get(..HEADER_BYTES)?.try_into().ok()?;
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        let version = u32_at(8);
        let is_ours = block[0..8] == MAGIC && [VERSION_OF_ONE, VERSION_OF_SEVERAL].contains(&version);
        let is_ours = is_ours && [0, version].contains(&u32_at(COVERED_VERSION_AT));
        if !is_ours || crc32c::crc32c(&block[CRC_AT + 4..]) != u32_at(CRC_AT) {
            return None;
        }
        let count = u32_at(44) as usize;
        if count > PageBatch::MAX_PAGES {
            return None;
        }
        let (checksums_at, end) = (IDS_AT + 8 * count, IDS_AT + 12 * count);
        let ids: Vec<_> = (0..count).map(|index| PageId(u64_at(IDS_AT + 8 * index))).collect();
        let sequence = u64_at(32);
        let among_others = (version == VERSION_OF_SEVERAL).then(|| AmongOthers {
            in_place_before: u64_at(end),
            checksums: (0..count).map(|index| u32_at(checksums_at + 4 * index)).collect(),
        });
        let is_possible = among_others.as_ref().is_none_or(|others| others.in_place_before <= sequence);
        (is_possible && ids.is_sorted_by(|a, b| a < b)).then_some(Self {
            database_id: u128::from_le_bytes(block[16..32].try_into().expect("sixteen bytes")),
            sequence,
            page_size: u32_at(40),
            ids,
            among_others,
            session: Some(u64_at(SESSION_AT)).filter(|session| *session != 0),
        })
    }
}
