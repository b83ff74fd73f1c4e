//! Cells of any length, found by number.
//!
//! A directory of (offset, length) pairs grows up from the header; the cells grow down from the page's end. What a cell
//! leaves behind is garbage until a compaction; [`free_bytes`] counts it as free.
//!
//! Invariant, kept by every change and checked at every read from a device ([`check`]): every cell lies between the
//! heap's start and the page's end, and the lengths of all cells and the garbage add up to the heap.

use super::{
    change::ChangeError,
    header::{
        HEADER_BYTES, garbage, heap_start, set_garbage, set_heap_start, set_slot_count, set_u16, slot_count, u16_at,
    },
    patch::Patch,
};
use crate::{Error, Result, error};

/// What a slot takes beside its cell.
pub const SLOT_BYTES: usize = 4;

/// The bytes that the slots and cells of an empty page can take.
pub fn capacity(page_size: usize) -> usize {
    page_size - HEADER_BYTES
}

/// The number of slots.
pub fn count(page: &[u8]) -> usize {
    slot_count(page)
}

/// The cell of a slot.
///
/// # Errors
/// [`Corrupt`](crate::ErrorKind::Corrupt) when there is no such slot, or its cell does not lie within the page.
#[inline]
pub fn cell(page: &[u8], slot: usize) -> Result<&[u8]> {
    find(page, slot).map(|(offset, len)| &page[offset..offset + len]).ok_or_else(|| no_cell(page, slot))
}

#[cold]
fn no_cell(page: &[u8], slot: usize) -> Error {
    error::corrupt_page(page, format!("slot {slot} of {} has no cell", count(page)))
}

/// As [`cell`], for a slot that is known to be there; `None` if its cell does not lie within the page.
#[inline]
pub fn cell_of_known(page: &[u8], slot: usize) -> Option<&[u8]> {
    let entry = page.get(entry_offset(slot)..)?.first_chunk::<SLOT_BYTES>()?;
    let [offset, len] =
        [[entry[0], entry[1]], [entry[2], entry[3]]].map(|bytes| usize::from(u16::from_le_bytes(bytes)));
    page.get(offset..offset + len)
}

/// Whether the cells of all these slots begin with `byte`.
pub fn are_first_bytes(page: &[u8], slots: std::ops::Range<usize>, byte: u8) -> bool {
    let directory = page.get(entry_offset(slots.start)..entry_offset(slots.end)).unwrap_or_default().as_chunks().0;
    let begins = |[low, high, len @ ..]: &[u8; SLOT_BYTES]| {
        let first = page.get(usize::from(u16::from_le_bytes([*low, *high])));
        first == Some(&byte) && *len != [0, 0]
    };
    directory.len() == slots.len() && directory.iter().all(begins)
}

/// The bytes that further slots and their cells may take; a compaction may be needed for it.
pub fn free_bytes(page: &[u8]) -> usize {
    contiguous_bytes(page) + garbage(page)
}

/// The offset and length of a slot's cell, if both are within bounds.
#[inline]
fn find(page: &[u8], slot: usize) -> Option<(usize, usize)> {
    let entry = entry_offset(slot);
    if slot >= count(page) || entry + SLOT_BYTES > page.len() {
        return None;
    }
    let (offset, len) = (u16_at(page, entry), u16_at(page, entry + 2));
    (offset + len <= page.len()).then_some((offset, len))
}

/// Where the directory's entry for a slot is in its page.
pub fn entry_offset(slot: usize) -> usize {
    HEADER_BYTES + slot * SLOT_BYTES
}

/// The gap between directory and heap.
fn contiguous_bytes(page: &[u8]) -> usize {
    heap_start(page).saturating_sub(entry_offset(count(page)))
}

/// Whether the invariant of this module holds.
///
/// # Errors
/// Says what does not.
pub fn check(page: &[u8]) -> Result<(), &'static str> {
    let heap = heap_start(page);
    if entry_offset(count(page)) > heap {
        return Err("its slots and its cells overlap");
    }
    let mut used = garbage(page);
    for slot in 0..count(page) {
        match find(page, slot) {
            Some((offset, len)) if offset >= heap => used += len,
            _ => return Err("a cell lies outside the page's heap"),
        }
    }
    if used == page.len() - heap { Ok(()) } else { Err("its cells do not add up to its heap") }
}

/// Makes room for a slot before `slot` and puts `cell` there.
pub(super) fn insert(page: &mut [u8], slot: usize, cell: &[u8]) -> Result<(), ChangeError> {
    let slots = count(page);
    if slot > slots {
        return Err(ChangeError::NoSuchSlot { slot, slots });
    }
    require(cell.len() + SLOT_BYTES, free_bytes(page))?;
    if contiguous_bytes(page) < cell.len() + SLOT_BYTES {
        compact(page, None)?;
        require(cell.len() + SLOT_BYTES, contiguous_bytes(page))?;
    }
    page.copy_within(entry_offset(slot)..entry_offset(slots), entry_offset(slot + 1));
    set_slot_count(page, slots + 1);
    place(page, slot, cell);
    Ok(())
}

/// Adds a slot behind all others, with the parts of its cell one behind the other: for a page that is being built.
///
/// # Panics
/// When the page has no room for it.
pub fn append(page: &mut [u8], parts: &[&[u8]]) {
    let (slots, len) = (count(page), parts.iter().map(|part| part.len()).sum::<usize>());
    assert!(len + SLOT_BYTES <= contiguous_bytes(page), "the page has room for a cell of {len} bytes");
    let offset = heap_start(page) - len;
    let mut at = offset;
    for part in parts {
        page[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    set_slot_count(page, slots + 1);
    set_u16(page, entry_offset(slots), offset);
    set_u16(page, entry_offset(slots) + 2, len);
    set_heap_start(page, offset);
}

/// Whether [`insert`] is certain to succeed, without a compaction.
pub(super) fn has_place_for(page: &[u8], slot: usize, cell: &[u8]) -> bool {
    slot <= count(page) && cell.len() + SLOT_BYTES <= contiguous_bytes(page)
}

/// Whether [`replace`] is certain to succeed, without a compaction.
pub(super) fn has_place_instead(page: &[u8], slot: usize, cell: &[u8]) -> bool {
    match existing(page, slot) {
        Ok((_, len)) if cell.len() <= len => add_garbage(page, len - cell.len()).is_ok(),
        Ok((_, len)) => cell.len() <= contiguous_bytes(page) && add_garbage(page, len).is_ok(),
        Err(_) => false,
    }
}

/// Puts `cell` in the place of the cell of `slot`.
pub(super) fn replace(page: &mut [u8], slot: usize, cell: &[u8]) -> Result<(), ChangeError> {
    let (offset, len) = existing(page, slot)?;
    if cell.len() <= len {
        let left_over = add_garbage(page, len - cell.len())?;
        page[offset..offset + cell.len()].copy_from_slice(cell);
        set_u16(page, entry_offset(slot) + 2, cell.len());
        set_garbage(page, left_over);
        return Ok(());
    }
    require(cell.len(), free_bytes(page) + len)?;
    if contiguous_bytes(page) < cell.len() {
        compact(page, Some(slot))?;
        require(cell.len(), contiguous_bytes(page))?;
    } else {
        let left_over = add_garbage(page, len)?;
        set_garbage(page, left_over);
    }
    place(page, slot, cell);
    Ok(())
}

/// Edits the cell of `slot`.
pub(super) fn patch(page: &mut [u8], slot: usize, patch: &Patch<'_>) -> Result<(), ChangeError> {
    let (offset, len) = existing(page, slot)?;
    let cell = &mut page[offset..offset + len];
    patch.check(cell)?;
    if patch.overwrites() {
        patch.overwrite(cell);
        return Ok(());
    }
    let new = patch.apply(cell);
    replace(page, slot, &new)
}

/// Takes away the slots from `from` up to, not including, `to`.
pub(super) fn delete(page: &mut [u8], from: usize, to: usize) -> Result<(), ChangeError> {
    let slots = count(page);
    if from > to || to > slots {
        return Err(ChangeError::NoSuchSlot { slot: to.max(from), slots });
    }
    let mut bytes = 0;
    for slot in from..to {
        bytes += existing(page, slot)?.1;
    }
    let left_over = add_garbage(page, bytes)?;
    page.copy_within(entry_offset(to)..entry_offset(slots), entry_offset(from));
    set_slot_count(page, slots - (to - from));
    set_garbage(page, left_over);
    Ok(())
}

/// Writes `cell` at the start of the heap, which must have the room, and points `slot` at it.
fn place(page: &mut [u8], slot: usize, cell: &[u8]) {
    let offset = heap_start(page) - cell.len();
    page[offset..offset + cell.len()].copy_from_slice(cell);
    set_u16(page, entry_offset(slot), offset);
    set_u16(page, entry_offset(slot) + 2, cell.len());
    set_heap_start(page, offset);
}

/// Moves all cells but that of `except`, which becomes empty, to the page's end.
fn compact(page: &mut [u8], except: Option<usize>) -> Result<(), ChangeError> {
    check(page).map_err(ChangeError::Damaged)?;
    let slots = count(page);
    let old = page.to_vec();
    let mut start = page.len();
    for slot in 0..slots {
        let (offset, len) = match find(&old, slot) {
            Some(found) if except != Some(slot) => found,
            _ => (start, 0),
        };
        start -= len;
        page[start..start + len].copy_from_slice(&old[offset..offset + len]);
        set_u16(page, entry_offset(slot), start);
        set_u16(page, entry_offset(slot) + 2, len);
    }
    set_heap_start(page, start);
    set_garbage(page, 0);
    Ok(())
}

fn existing(page: &[u8], slot: usize) -> Result<(usize, usize), ChangeError> {
    let slots = count(page);
    if slot >= slots {
        return Err(ChangeError::NoSuchSlot { slot, slots });
    }
    find(page, slot).ok_or(ChangeError::Damaged("a cell lies outside the page's heap"))
}

fn add_garbage(page: &[u8], bytes: usize) -> Result<usize, ChangeError> {
    let sum = garbage(page) + bytes;
    if sum <= page.len() { Ok(sum) } else { Err(ChangeError::Damaged("its cells do not add up to its heap")) }
}

fn require(needed: usize, free: usize) -> Result<(), ChangeError> {
    if needed <= free { Ok(()) } else { Err(ChangeError::NoRoom { needed, free }) }
}
