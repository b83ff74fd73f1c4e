//! The superblock: what the data file is, in its first page and again in its second.
//!
//! It is written as the last step of creating a database, so a file without one was never a database; and again, before anything
//! else, when the database goes on with another protection against torn pages.

use tantalum_device::{AlignedBuffer, Device, Durability};

use crate::{PAGE_SIZES, Protection, Result, error};

const MAGIC: [u8; 8] = *b"TANTALUM";
/// With a double-write area of one slot, or none.
const VERSION: u16 = 1;
/// With one of several, which a program that knows only the first would not look into.
const VERSION_OF_SLOTS: u16 = 2;
/// Of a log-structured store that may have compressed pages, which a program that knows only the others could not read.
const VERSION_OF_COMPRESSION: u16 = 3;
/// Of a log-structured store that says which of its features older programs do not know.
const VERSION_OF_FEATURES: u16 = 4;
/// There may be compressed pages.
const COMPRESSED_PAGES: u32 = 1;
/// There may be more than two streams of pages.
const LIFETIME_STREAMS: u32 = 2;
/// More slots than any area will have.
const MAX_SLOTS: u32 = 1 << 16;
/// The part of the page that is used: small enough for every page size.
const BLOCK_BYTES: usize = 4096;
const CRC_AT: usize = 48;
/// What in-page logging and the log-structured store add, or the slots of a double-write area; behind it stands a checksum of
/// its own.
const UNITS: std::ops::Range<usize> = 52..64;
/// The last session, with a checksum of its own behind it; both are zero if none was noted.
const SESSION: std::ops::Range<usize> = 68..76;
/// The sizes that erase units can have: where the copy of the superblock may be.
const UNIT_BYTES: [u64; 11] = [4096, 8192, 16384, 32768, 65536, 1 << 17, 1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22];

/// How pages are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum StoreKind {
    /// Each page has its place in the file.
    #[default]
    InPlace,
    /// Changes are written beside their page, and merged into it later: in-page logging.
    InPageLogging,
    /// Pages are appended to segments, which are cleaned: a log-structured store.
    LogStructured,
}

impl StoreKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::InPlace, Self::InPageLogging, Self::LogStructured];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::InPlace => "in-place",
            Self::InPageLogging => "in-page-logging",
            Self::LogStructured => "log-structured",
        }
    }
}

tantalum_device::named_field!(StoreKind);

/// Sizes in bytes of what in-page logging divides a device into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitSizes {
    /// Of an erase unit.
    pub unit: u32,
    /// Of the log region in it.
    pub region: u32,
    /// Of a log sector.
    pub sector: u32,
}

/// How a log-structured store cuts and fills a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSizes {
    /// Bytes of a segment.
    pub segment: u32,
    /// How much of all segments live pages may take, in percent.
    pub fill_percent: u32,
}

/// What a data file says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Tells databases apart.
    pub database_id: u128,
    /// The log that belongs to the database.
    pub log_id: u128,
    /// The size of a page in bytes.
    pub page_size: u32,
    /// How pages are stored.
    pub store_kind: StoreKind,
    /// The sizes of what in-page logging divides the device into; `None` in another store.
    pub units: Option<UnitSizes>,
    /// The slots of the double-write area, whether it is used or not; 1 where there is none.
    pub double_write_slots: u32,
    /// How a log-structured store cuts the device; `None` in another store.
    pub segments: Option<SegmentSizes>,
    /// Whether a log-structured store may have compressed pages: it was opened to compress once.
    pub compressed_pages: bool,
    /// Whether a log-structured store may keep pages apart by how long they are expected to live, in more than two streams.
    pub lifetime_streams: bool,
    /// How torn pages are prevented.
    pub protection: Protection,
    /// The last session of the log that was noted here; always `None` where it cannot be written again, with erase units.
    pub session: Option<u64>,
}

/// Why bytes are no superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoSuperblock {
    /// Nothing was ever written there.
    Blank,
    /// Something else, and what is wrong with it.
    Damaged(String),
}

/// Where a superblock or its copy may be on a device: before its first zone, if it has any.
fn places(device: &dyn Device) -> impl Iterator<Item = u64> {
    let end = device.capabilities().zones.map_or(device.capacity_bytes(), |zones| zones.start);
    [0].into_iter().chain(UNIT_BYTES).filter(move |offset| offset + BLOCK_BYTES as u64 <= end)
}

impl Superblock {
    /// The pages that it and its copy take.
    pub const PAGES: u64 = 2;

    /// The bytes that one copy takes.
    pub const BYTES: usize = BLOCK_BYTES;

    /// The superblock as it is written.
    pub fn encode(&self) -> AlignedBuffer {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        let version = match self.double_write_slots {
            _ if self.lifetime_streams => VERSION_OF_FEATURES,
            _ if self.compressed_pages => VERSION_OF_COMPRESSION,
            2.. => VERSION_OF_SLOTS,
            _ => VERSION,
        };
        block[8..10].copy_from_slice(&version.to_le_bytes());
        block[10] = match self.store_kind {
            StoreKind::InPlace => 0,
            StoreKind::InPageLogging => 1,
            StoreKind::LogStructured => 2,
        };
        block[11] = match self.protection {
            Protection::DoubleWrite => 0,
            Protection::FullPageImages => 1,
            Protection::Device => 2,
            Protection::Store => 3,
        };
        if let Some(UnitSizes { unit, region, sector }) = self.units {
            block[52..56].copy_from_slice(&unit.to_le_bytes());
            block[56..60].copy_from_slice(&region.to_le_bytes());
            block[60..64].copy_from_slice(&sector.to_le_bytes());
        } else if self.double_write_slots > 1 {
            block[52..56].copy_from_slice(&self.double_write_slots.to_le_bytes());
        }
        if let Some(SegmentSizes { segment, fill_percent }) = self.segments {
            block[52..56].copy_from_slice(&segment.to_le_bytes());
            block[56..60].copy_from_slice(&fill_percent.to_le_bytes());
            if version == VERSION_OF_FEATURES {
                let compressed = if self.compressed_pages { COMPRESSED_PAGES } else { 0 };
                block[60..64].copy_from_slice(&(compressed | LIFETIME_STREAMS).to_le_bytes());
            }
        }
        block[12..16].copy_from_slice(&self.page_size.to_le_bytes());
        block[16..32].copy_from_slice(&self.database_id.to_le_bytes());
        block[32..48].copy_from_slice(&self.log_id.to_le_bytes());
        if let Some(session) = self.session {
            block[SESSION].copy_from_slice(&session.to_le_bytes());
            let crc = crc32c::crc32c(&block[SESSION]);
            block[SESSION.end..SESSION.end + 4].copy_from_slice(&crc.to_le_bytes());
        }
        Self::repair_checksum(&mut block);
        block
    }

    /// Stores the checksum of a block that is long enough, and its magic number with it.
    pub(crate) fn repair_checksum(block: &mut [u8]) {
        if block.len() < BLOCK_BYTES {
            return;
        }
        block[0..8].copy_from_slice(&MAGIC);
        let crc = crc32c::crc32c(&block[..CRC_AT]);
        block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        let crc = crc32c::crc32c(&block[UNITS]);
        block[UNITS.end..UNITS.end + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads what [`encode`](Self::encode) wrote; longer bytes are fine.
    ///
    /// # Errors
    /// Says why it is none.
    pub fn decode(block: &[u8]) -> Result<Self, NoSuperblock> {
        let damaged = |what: String| Err(NoSuperblock::Damaged(what));
        // Erased flash is all ones.
        if [0, 0xff].iter().any(|blank| block.iter().all(|byte| byte == blank)) {
            return Err(NoSuperblock::Blank);
        }
        if block.len() < BLOCK_BYTES || block[0..8] != MAGIC {
            return damaged("it does not begin with TANTALUM".into());
        }
        let version = u16::from_le_bytes([block[8], block[9]]);
        if version > VERSION_OF_FEATURES {
            return damaged(format!("its format is version {version}, this program reads up to {VERSION_OF_FEATURES}"));
        }
        let u32_at = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"));
        let u128_at = |at: usize| u128::from_le_bytes(block[at..at + 16].try_into().expect("sixteen bytes"));
        if crc32c::crc32c(&block[..CRC_AT]) != u32_at(CRC_AT) {
            return damaged("its checksum is wrong".into());
        }
        let page_size = u32_at(12);
        if !PAGE_SIZES.contains(&page_size) {
            return damaged(format!("pages of {page_size} bytes are not possible"));
        }
        let store_kind = match block[10] {
            0 => StoreKind::InPlace,
            1 => StoreKind::InPageLogging,
            2 => StoreKind::LogStructured,
            other => return damaged(format!("no page store has number {other}")),
        };
        let protection = match block[11] {
            0 => Protection::DoubleWrite,
            1 => Protection::FullPageImages,
            2 => Protection::Device,
            3 => Protection::Store,
            other => return damaged(format!("no torn-page protection has number {other}")),
        };
        if store_kind != StoreKind::InPlace && crc32c::crc32c(&block[UNITS]) != u32_at(UNITS.end) {
            return damaged("the checksum of the sizes of its units is wrong".into());
        }
        let [first, second, third] = [0, 4, 8].map(|at| u32_at(UNITS.start + at));
        let units = (store_kind == StoreKind::InPageLogging).then_some(UnitSizes {
            unit: first,
            region: second,
            sector: third,
        });
        let segments =
            (store_kind == StoreKind::LogStructured).then_some(SegmentSizes { segment: first, fill_percent: second });
        let double_write_slots = match version {
            VERSION_OF_SLOTS if crc32c::crc32c(&block[UNITS]) != u32_at(UNITS.end) => {
                return damaged("the checksum of the number of its slots is wrong".into());
            }
            VERSION_OF_SLOTS => u32_at(UNITS.start),
            _ => 1,
        };
        let least = if version == VERSION_OF_SLOTS { 2 } else { 1 };
        if !(least..=MAX_SLOTS).contains(&double_write_slots)
            || (double_write_slots > 1 && store_kind != StoreKind::InPlace)
        {
            return damaged(format!("a double-write area of {double_write_slots} slots is not possible"));
        }
        let features = match version {
            VERSION_OF_COMPRESSION => COMPRESSED_PAGES,
            VERSION_OF_FEATURES => third,
            _ => 0,
        };
        let unknown = features & !(COMPRESSED_PAGES | LIFETIME_STREAMS);
        if unknown != 0 {
            return damaged(format!("it has features that this program does not know (bits {unknown:#x})"));
        }
        if features != 0 && store_kind != StoreKind::LogStructured {
            return damaged(format!("its format is version {version}, which no store {store_kind} has"));
        }
        let session = match &block[SESSION.start..SESSION.end + 4] {
            noted if noted.iter().all(|byte| *byte == 0) => None,
            _ if crc32c::crc32c(&block[SESSION]) != u32_at(SESSION.end) => {
                return damaged("the checksum of its session is wrong".into());
            }
            _ => Some(u64::from_le_bytes(block[SESSION].try_into().expect("eight bytes"))),
        };
        Ok(Self {
            database_id: u128_at(16),
            log_id: u128_at(32),
            page_size,
            store_kind,
            units,
            segments,
            double_write_slots,
            compressed_pages: features & COMPRESSED_PAGES != 0,
            lifetime_streams: features & LIFETIME_STREAMS != 0,
            protection,
            session,
        })
    }

    /// Reads the superblock of a data file; `None` when the file has none and never had.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when both copies are damaged, or the file is something else.
    pub fn read(device: &dyn Device) -> Result<Option<Self>> {
        let mut damage = None;
        // Where the second copy lies depends on the page size, which only the first copy tells.
        for offset in places(device) {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            let decoded = match device.read(offset, &mut block) {
                Ok(()) => Self::decode(&block),
                // Raw flash cannot read what a power cut has torn.
                Err(error) if error.is_io() && device.capabilities().erase_block_bytes > 0 => {
                    Err(NoSuperblock::Damaged(error.to_string()))
                }
                Err(error) => return Err(error),
            };
            match decoded {
                Ok(found) if offset == 0 || offset == found.copy_at() => return Ok(Some(found)),
                Err(NoSuperblock::Damaged(what)) if offset == 0 => damage = Some(what),
                _ => {}
            }
        }
        match damage {
            None => Ok(None),
            Some(what) => Err(error::superblock(
                device.name(),
                format!(
                    "no superblock, neither at byte 0 ({what}) nor its copy in the second page; check the path and the \
                     program's version, or restore the database from a backup"
                ),
            )),
        }
    }

    /// Makes sure that a device is taken for one without a superblock: what an interrupted creation left is none.
    ///
    /// # Errors
    /// When the device cannot read or write.
    pub fn wipe(device: &dyn Device) -> Result<()> {
        let erased = u64::from(device.capabilities().erase_block_bytes);
        for offset in places(device) {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            let is_read = device.read(offset, &mut block);
            if is_read.is_ok() && Self::decode(&block) == Err(NoSuperblock::Blank) {
                continue;
            }
            match erased {
                0 => {
                    block.fill(0);
                    device.write(offset, &[&block], Durability::Durable)?;
                }
                _ => device.discard(offset / erased * erased, erased)?,
            }
        }
        device.flush()
    }

    /// Where the second copy is: in the second page, or the second erase unit.
    fn copy_at(&self) -> u64 {
        self.units.map_or(self.page_size, |units| units.unit).into()
    }

    /// Whether a power cut has left a part of the first page, and the copy is all that the database has: then the copy is not written
    /// before the first page is whole.
    fn is_only_in_copy(&self, device: &dyn Device) -> bool {
        let read = |place| {
            let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
            device.read(place, &mut block).ok().map(|()| Self::decode(&block))
        };
        matches!(read(0), Some(Err(NoSuperblock::Damaged(_))))
            && matches!(read(self.copy_at()), Some(Ok(copy)) if copy.database_id == self.database_id)
    }

    /// Writes both copies, durably.
    ///
    /// # Errors
    /// When the device cannot write.
    pub fn write(&self, device: &dyn Device) -> Result<()> {
        let block = self.encode();
        // The copy first: a first page without one means a database whose creation did not end.
        let mut places = [self.copy_at(), 0];
        if self.is_only_in_copy(device) {
            places.reverse();
        }
        for place in places {
            device.write(place, &[&block], Durability::Durable)?;
        }
        if Self::read(device)? == Some(*self) {
            return Ok(());
        }
        let what = "the superblock that was just written is not read back; the device is faulty";
        Err(error::superblock(device.name(), what))
    }
}
