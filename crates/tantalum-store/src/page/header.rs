//! The 32 bytes at the start of every page: what it is, whose, how new, and whether it is whole.
//!
//! The checksum is computed when a page is stored and stands for nothing while the page is in memory.

use tantalum_log::Lsn;

use super::{PageId, TableId, slots};
use crate::{Error, Result, error};

/// The length of the header.
pub const HEADER_BYTES: usize = 32;

const CRC: usize = 0;
const KIND: usize = 4;
const LEVEL: usize = 5;
const SLOT_COUNT: usize = 6;
const PAGE_ID: usize = 8;
const LSN: usize = 16;
const HEAP_START: usize = 24;
const GARBAGE: usize = 26;
const OWNER: usize = 28;

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Nothing yet.
    Free = 0,
    /// Slots with rows.
    Leaf = 1,
    /// Slots with keys and children.
    Inner = 2,
    /// A part of a large value.
    Overflow = 3,
    /// Which pages are in use.
    SpaceMap = 4,
}

impl PageKind {
    /// The kind that a byte stands for.
    pub fn from_byte(byte: u8) -> Option<Self> {
        [Self::Free, Self::Leaf, Self::Inner, Self::Overflow, Self::SpaceMap]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }

    /// Whether the page has slots; otherwise its body is plain bytes.
    pub fn has_slots(self) -> bool {
        matches!(self, Self::Leaf | Self::Inner)
    }
}

pub(super) fn bytes_at<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    page[at..at + N].try_into().expect("the slice is N bytes long")
}

pub(super) fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes_at(page, at)))
}

pub(super) fn set_u16(page: &mut [u8], at: usize, value: usize) {
    let value = u16::try_from(value).expect("nothing in a page lies beyond 16 KiB");
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

/// What the page is for.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) when the byte stands for no kind.
#[inline]
pub fn kind(page: &[u8]) -> Result<PageKind> {
    PageKind::from_byte(page[KIND]).ok_or_else(|| no_kind(page))
}

#[cold]
fn no_kind(page: &[u8]) -> Error {
    error::corrupt_page(page, format!("no page kind is {}", page[KIND]))
}

/// The page's height in its tree; a leaf has 0.
pub fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

/// The page's own number.
pub fn page_id(page: &[u8]) -> PageId {
    PageId(u64::from_le_bytes(bytes_at(page, PAGE_ID)))
}

/// The end of the log record that changed the page last; 0 when none has.
pub fn lsn(page: &[u8]) -> Lsn {
    Lsn::new(u64::from_le_bytes(bytes_at(page, LSN)))
}

/// The table that the page belongs to.
pub fn owner(page: &[u8]) -> TableId {
    TableId(u32::from_le_bytes(bytes_at(page, OWNER)))
}

/// Everything after the header.
pub fn body(page: &[u8]) -> &[u8] {
    &page[HEADER_BYTES..]
}

/// Never more slots than the page has room for, whatever is stored.
pub(super) fn slot_count(page: &[u8]) -> usize {
    u16_at(page, SLOT_COUNT).min(slots::capacity(page.len()) / slots::SLOT_BYTES)
}

/// Never beyond the page's end, whatever is stored.
pub(super) fn heap_start(page: &[u8]) -> usize {
    u16_at(page, HEAP_START).min(page.len())
}

pub(super) fn garbage(page: &[u8]) -> usize {
    u16_at(page, GARBAGE)
}

pub(super) fn set_slot_count(page: &mut [u8], count: usize) {
    set_u16(page, SLOT_COUNT, count);
}

pub(super) fn set_heap_start(page: &mut [u8], offset: usize) {
    set_u16(page, HEAP_START, offset);
}

pub(super) fn set_garbage(page: &mut [u8], bytes: usize) {
    set_u16(page, GARBAGE, bytes);
}

/// Makes the page an empty one of the given kind. Its number and LSN stay.
pub(super) fn format(page: &mut [u8], kind: PageKind, level: u8, owner: TableId) {
    page[HEADER_BYTES..].fill(0);
    page[KIND] = kind as u8;
    page[LEVEL] = level;
    page[OWNER..OWNER + 4].copy_from_slice(&owner.0.to_le_bytes());
    set_slot_count(page, 0);
    set_garbage(page, 0);
    let end = page.len();
    set_heap_start(page, end);
}

/// Makes `page` what a page is before its first change: zeros, and its number.
pub fn clear(page: &mut [u8], id: PageId) {
    page.fill(0);
    set_page_id(page, id);
}

/// Gives a page its number.
pub fn set_page_id(page: &mut [u8], id: PageId) {
    page[PAGE_ID..PAGE_ID + 8].copy_from_slice(&id.0.to_le_bytes());
}

/// Notes that the page holds every change up to `lsn`.
pub fn set_lsn(page: &mut [u8], lsn: Lsn) {
    page[LSN..LSN + 8].copy_from_slice(&lsn.get().to_le_bytes());
}

/// The checksum that is stored in the page.
pub fn checksum(page: &[u8]) -> u32 {
    u32::from_le_bytes(bytes_at(page, CRC))
}

/// Computes the checksum: the last thing done to the copy of a page that is stored.
pub fn seal(page: &mut [u8]) {
    let crc = crc32c::crc32c(&page[CRC + 4..]);
    page[CRC..CRC + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether `page`, just read, is the whole page `id`; otherwise what is wrong with it.
///
/// # Errors
/// A description of what was found and what was expected.
pub fn verify(page: &[u8], id: PageId) -> Result<(), String> {
    let stored = checksum(page);
    let computed = crc32c::crc32c(&page[CRC + 4..]);
    if stored != computed {
        return Err(format!("its checksum is {computed:#010x}, but {stored:#010x} is stored in it"));
    }
    if page_id(page) != id {
        return Err(format!("it holds page {} instead", page_id(page)));
    }
    check_structure(page)
}

/// Whether a page's kind is known and its slots are sound; otherwise what is wrong.
pub(super) fn check_structure(page: &[u8]) -> Result<(), String> {
    let Some(kind) = PageKind::from_byte(page[KIND]) else {
        return Err(format!("no page kind is {}", page[KIND]));
    };
    if kind.has_slots() { slots::check(page).map_err(str::to_owned) } else { Ok(()) }
}
