//! What can happen to a page, as data: the redo record in the log, and the only way in which a page is changed.
//!
//! Promise: [`apply`] checks a change against the page before it touches a byte, so a change that is refused leaves no
//! trace, and applying the same changes to the same page gives the same page.

use super::{
    PageKind, TableId, header,
    header::{HEADER_BYTES, PageKind::Free},
    patch::{self, Patch},
    slots, varint,
};

/// One change of one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// The page becomes an empty one, whatever it was.
    Format {
        /// What it is for.
        kind: PageKind,
        /// Its height in its tree.
        level: u8,
        /// The table that it belongs to.
        owner: TableId,
    },
    /// A slot is added before `slot`; the later ones move up.
    InsertSlot {
        /// The number that the new slot gets, at most the number of slots.
        slot: u16,
        /// Its cell.
        cell: &'a [u8],
    },
    /// The cell of a slot is replaced.
    ReplaceSlot {
        /// The slot.
        slot: u16,
        /// Its new cell.
        cell: &'a [u8],
    },
    /// The cell of a slot is edited.
    PatchSlot {
        /// The slot.
        slot: u16,
        /// What becomes of its cell.
        patch: Patch<'a>,
    },
    /// Slots are taken away; the later ones move down.
    DeleteSlots {
        /// The first to go.
        from: u16,
        /// The first to stay.
        to: u16,
    },
    /// Bytes of the body of a page without slots are overwritten.
    WriteBytes {
        /// Where, counted from the end of the header.
        offset: u16,
        /// The new bytes.
        bytes: &'a [u8],
    },
    /// The page becomes a copy of these bytes, which are a whole page of the same number.
    Image(&'a [u8]),
}

/// Why a page cannot take a change. The page was not touched.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeError {
    /// The page is too full.
    NoRoom {
        /// Bytes that the change needs.
        needed: usize,
        /// Bytes that the page has.
        free: usize,
    },
    /// The change names a slot that is not there.
    NoSuchSlot {
        /// The slot named.
        slot: usize,
        /// The slots that there are.
        slots: usize,
    },
    /// The change edits another cell than the slot has.
    OtherCell,
    /// The change edits bytes that the cell does not have.
    BeyondCell {
        /// Bytes that it keeps or leaves out.
        used: usize,
        /// Bytes that there are.
        len: usize,
    },
    /// The change does not suit the kind of page.
    WrongKind,
    /// The change writes beyond the page's end.
    OutOfBounds {
        /// Where it writes.
        offset: usize,
        /// How much.
        len: usize,
    },
    /// The image is not one of this page.
    WrongImage(String),
    /// The page itself breaks a rule.
    Damaged(&'static str),
}

impl std::error::Error for ChangeError {}

impl std::fmt::Display for ChangeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRoom { needed, free } => write!(f, "{needed} bytes are needed, {free} are free"),
            Self::NoSuchSlot { slot, slots } => write!(f, "it names slot {slot}, the page has {slots}"),
            Self::OtherCell => f.write_str("it edits another cell than the slot has"),
            Self::BeyondCell { used, len } => write!(f, "it edits {used} bytes of a cell of {len}"),
            Self::WrongKind => f.write_str("the page is of another kind than the change"),
            Self::OutOfBounds { offset, len } => {
                write!(f, "it writes {len} bytes at byte {offset} of the body, beyond the page's end")
            }
            Self::WrongImage(what) => write!(f, "the page image {what}"),
            Self::Damaged(what) => write!(f, "the page is damaged: {what}"),
        }
    }
}

/// Changes `page`. Its LSN stays; the page's number too.
///
/// # Errors
/// A [`ChangeError`] when the page cannot take the change; it is then as it was.
pub fn apply(page: &mut [u8], change: &Change<'_>) -> Result<(), ChangeError> {
    match *change {
        Change::Format { kind, level, owner } => {
            header::format(page, kind, level, owner);
            Ok(())
        }
        Change::InsertSlot { slot, cell } => {
            require_slots(page, true)?;
            slots::insert(page, slot.into(), cell)
        }
        Change::ReplaceSlot { slot, cell } => {
            require_slots(page, true)?;
            slots::replace(page, slot.into(), cell)
        }
        Change::PatchSlot { slot, patch } => {
            require_slots(page, true)?;
            slots::patch(page, slot.into(), &patch)
        }
        Change::DeleteSlots { from, to } => {
            require_slots(page, true)?;
            slots::delete(page, from.into(), to.into())
        }
        Change::WriteBytes { offset, bytes } => {
            require_slots(page, false)?;
            let offset = usize::from(offset);
            page[HEADER_BYTES..]
                .get_mut(offset..offset + bytes.len())
                .ok_or(ChangeError::OutOfBounds { offset, len: bytes.len() })?
                .copy_from_slice(bytes);
            Ok(())
        }
        Change::Image(image) => apply_image(page, image),
    }
}

/// Whether [`apply`] is certain to succeed, and quick. If not, it may succeed all the same.
pub fn suits_as_it_is(page: &[u8], change: &Change<'_>) -> bool {
    match *change {
        Change::InsertSlot { slot, cell } => {
            require_slots(page, true).is_ok() && slots::has_place_for(page, slot.into(), cell)
        }
        Change::ReplaceSlot { slot, cell } => {
            require_slots(page, true).is_ok() && slots::has_place_instead(page, slot.into(), cell)
        }
        _ => false,
    }
}

fn require_slots(page: &[u8], wanted: bool) -> Result<(), ChangeError> {
    match header::kind(page) {
        Ok(kind) if kind != Free && kind.has_slots() == wanted => Ok(()),
        _ => Err(ChangeError::WrongKind),
    }
}

fn apply_image(page: &mut [u8], image: &[u8]) -> Result<(), ChangeError> {
    if image.len() != page.len() {
        return Err(ChangeError::WrongImage(format!("has {} bytes, the page {}", image.len(), page.len())));
    }
    if header::page_id(image) != header::page_id(page) {
        return Err(ChangeError::WrongImage(format!("is one of page {}", header::page_id(image))));
    }
    header::check_structure(image).map_err(ChangeError::WrongImage)?;
    let lsn = header::lsn(page);
    page.copy_from_slice(image);
    header::set_lsn(page, lsn);
    Ok(())
}

/// The most that stands before the bytes of a change: its kind and two numbers.
const MAX_HEAD_BYTES: usize = 8;

const FORMAT: u8 = 1;
const INSERT_SLOT: u8 = 2;
const REPLACE_SLOT: u8 = 3;
const DELETE_SLOTS: u8 = 4;
const WRITE_BYTES: u8 = 5;
const IMAGE: u8 = 6;
const PATCH_SLOT: u8 = 7;

impl<'a> Change<'a> {
    /// Whether the page after the change does not depend on the page before it.
    pub fn rebuilds(&self) -> bool {
        matches!(self, Change::Format { .. } | Change::Image(_))
    }

    /// Appends the change's encoding.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        // All of it at once, instead of growing step by step.
        if let Change::InsertSlot { cell, .. } | Change::ReplaceSlot { cell, .. } = self {
            out.reserve(MAX_HEAD_BYTES + cell.len());
        }
        match *self {
            Change::Format { kind, level, owner } => {
                out.extend_from_slice(&[FORMAT, kind as u8, level]);
                varint::put(out, owner.0.into());
            }
            Change::InsertSlot { slot, cell } => encode_bytes(out, INSERT_SLOT, slot, cell),
            Change::ReplaceSlot { slot, cell } => encode_bytes(out, REPLACE_SLOT, slot, cell),
            Change::PatchSlot { slot, patch } => {
                out.push(PATCH_SLOT);
                varint::put(out, slot.into());
                patch.encode_into(out);
            }
            Change::DeleteSlots { from, to } => {
                out.push(DELETE_SLOTS);
                varint::put(out, from.into());
                varint::put(out, to.into());
            }
            Change::WriteBytes { offset, bytes } => encode_bytes(out, WRITE_BYTES, offset, bytes),
            Change::Image(image) => {
                encode_image_head(out, image.len());
                out.extend_from_slice(image);
            }
        }
    }

    /// Appends the encoding of the change for `page` as it is before: a cell that is replaced is patched, unless the whole new one
    /// is shorter. Returns whether it is.
    pub fn encode_for(&self, page: &[u8], out: &mut Vec<u8>) -> bool {
        let start = out.len();
        if let Change::ReplaceSlot { slot, cell } = *self
            && let Ok(old) = slots::cell(page, slot.into())
        {
            out.reserve(MAX_HEAD_BYTES + cell.len());
            out.push(PATCH_SLOT);
            varint::put(out, slot.into());
            if patch::encode(out, old, cell, varint::len(cell.len() as u64) + cell.len()) {
                debug_assert!(is_patch(&out[start..], old, cell), "a patch of the old cell gives the new one");
                return true;
            }
            out.truncate(start);
        }
        self.encode_into(out);
        false
    }

    /// Takes a change off the front of `bytes`.
    ///
    /// # Errors
    /// Says what is wrong with the bytes.
    pub fn decode(bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let tag = take_u8(bytes)?;
        match tag {
            FORMAT => {
                let kind = PageKind::from_byte(take_u8(bytes)?).ok_or("an unknown page kind")?;
                let level = take_u8(bytes)?;
                Ok(Change::Format { kind, level, owner: TableId(take_number(bytes)?) })
            }
            INSERT_SLOT => Ok(Change::InsertSlot { slot: take_number(bytes)?, cell: take_bytes(bytes)? }),
            REPLACE_SLOT => Ok(Change::ReplaceSlot { slot: take_number(bytes)?, cell: take_bytes(bytes)? }),
            PATCH_SLOT => Ok(Change::PatchSlot { slot: take_number(bytes)?, patch: Patch::take(bytes)? }),
            DELETE_SLOTS => Ok(Change::DeleteSlots { from: take_number(bytes)?, to: take_number(bytes)? }),
            WRITE_BYTES => Ok(Change::WriteBytes { offset: take_number(bytes)?, bytes: take_bytes(bytes)? }),
            IMAGE => Ok(Change::Image(take_bytes(bytes)?)),
            _ => Err("an unknown kind of change"),
        }
    }
}

/// Appends what stands before the bytes of a [`Change::Image`].
pub fn encode_image_head(out: &mut Vec<u8>, len: usize) {
    out.push(IMAGE);
    varint::put(out, len as u64);
}

fn is_patch(mut change: &[u8], old: &[u8], new: &[u8]) -> bool {
    match Change::decode(&mut change) {
        Ok(Change::PatchSlot { patch, .. }) => change.is_empty() && patch.check(old).is_ok() && patch.apply(old) == new,
        _ => false,
    }
}

fn encode_bytes(out: &mut Vec<u8>, tag: u8, at: u16, bytes: &[u8]) {
    out.push(tag);
    varint::put(out, at.into());
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

pub(super) fn take_u8(bytes: &mut &[u8]) -> Result<u8, &'static str> {
    let (&byte, rest) = bytes.split_first().ok_or("it ends too early")?;
    *bytes = rest;
    Ok(byte)
}

pub(super) fn take_number<T: TryFrom<u64>>(bytes: &mut &[u8]) -> Result<T, &'static str> {
    let value = varint::take(bytes).ok_or("a number does not end")?;
    value.try_into().map_err(|_| "a number is too large")
}

pub(super) fn take_bytes<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], &'static str> {
    let len: usize = take_number(bytes)?;
    let (taken, rest) = bytes.split_at_checked(len).ok_or("it ends too early")?;
    *bytes = rest;
    Ok(taken)
}
