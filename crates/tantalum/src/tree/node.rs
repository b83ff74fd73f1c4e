//! What the slots of a tree page mean, and how to search them: pure functions over the bytes of one page.
//!
//! Slot 0 holds the lower fence key, slot 1 the upper fence (`0` for no bound, else `1` and the key); a node owns the
//! keys `lower <= key < upper`. The entries follow in key order. The prefix that both fences share is stored in neither
//! an entry's key nor compared in a search (prefix truncation: Graefe, "Modern B-Tree Techniques", 2011, 3.5).
//!
//! - leaf cell: form (0 inline, 1 overflow, 2 reference), suffix length u16, suffix, then the value, or its length u32 and the
//!   first page of its chain u64, or a [`Reference`]
//! - inner cell: suffix length u16, suffix, child u64; a node's first child has no key of its own, it starts at the
//!   lower fence
//!
//! Every access is checked: a page whose checksum holds may still have been written by an attacker, or by a bug.

use tantalum_store::{
    PageId, PageKind,
    page::{header, slots},
};

use super::damaged;
use super::reference::{LeafValue, REFERENCE_BYTES, Reference};
use crate::error::{Error, Result};
use std::cmp::Ordering;

/// The slots in front of the entries: the two fences.
pub(super) const FENCES: usize = 2;

pub(super) const INLINE: u8 = 0;
const OVERFLOW: u8 = 1;
pub(super) const REFERENCE: u8 = 2;
const LEAF_HEAD: usize = 3;
const INNER_HEAD: usize = KEY_LENGTH_BYTES;
/// What says how long a cell's key is.
pub(super) const KEY_LENGTH_BYTES: usize = 2;
const CHILD_BYTES: usize = 8;
const OVERFLOW_BYTES: usize = 12;

/// A tree page that can be searched.
#[derive(Clone, Copy)]
pub(crate) struct Node<'a> {
    page: &'a [u8],
    is_leaf: bool,
    lower: &'a [u8],
    upper: Option<&'a [u8]>,
    prefix: usize,
    entries: usize,
}

/// A value as it stands in a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored<'a> {
    /// The value itself.
    Inline(&'a [u8]),
    /// The value's length, and the first page of the chain that holds it.
    Overflow {
        /// Bytes of the whole value.
        length: u32,
        /// The first page of the chain.
        first: PageId,
    },
    /// The value lies in the value tree of the table.
    Reference(Reference),
}

/// Where a key is, or where it would be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The entry with this key.
    At(usize),
    /// No entry has this key; the first larger one, or the number of entries.
    Before(usize),
}

impl<'a> Node<'a> {
    /// Reads the fences of a leaf or an inner page.
    pub(crate) fn read(page: &'a [u8]) -> Result<Self> {
        let is_leaf = match header::kind(page)? {
            PageKind::Leaf => true,
            PageKind::Inner => false,
            _ => return Err(damaged(page, "a leaf or an inner page was expected here")),
        };
        let entries =
            slots::count(page).checked_sub(FENCES).ok_or_else(|| damaged(page, "the page lacks its fences"))?;
        let lower = slots::cell(page, 0)?;
        let upper = match slots::cell(page, 1)?.split_first() {
            Some((0, [])) => None,
            Some((1, key)) => Some(key),
            _ => return Err(damaged(page, "its upper fence is malformed")),
        };
        let prefix = upper.map_or(0, |upper| common_prefix(lower, upper));
        if is_leaf != (header::level(page) == 0) {
            return Err(damaged(page, "its level does not fit its kind"));
        }
        Ok(Node { page, is_leaf, lower, upper, prefix, entries })
    }

    pub(crate) fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    pub(crate) fn level(&self) -> u8 {
        header::level(self.page)
    }

    pub(crate) fn lower(&self) -> &'a [u8] {
        self.lower
    }

    pub(crate) fn upper(&self) -> Option<&'a [u8]> {
        self.upper
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// The bytes that both fences, and so all keys, begin with.
    pub(super) fn prefix(&self) -> &'a [u8] {
        &self.lower[..self.prefix]
    }

    /// Whether `key` belongs to this node.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.lower <= key && self.is_below_upper(key)
    }

    pub(crate) fn is_below_upper(&self, key: &[u8]) -> bool {
        self.upper.is_none_or(|upper| key < upper)
    }

    /// Whether the largest keys below `bound` belong to this node.
    pub(crate) fn covers_before(&self, bound: &[u8]) -> bool {
        (self.lower < bound || self.lower.is_empty()) && self.upper.is_none_or(|upper| bound <= upper)
    }

    /// Looks for a key, which the node must cover.
    pub(crate) fn search(&self, key: &[u8]) -> Result<Found> {
        self.search_from(0, key)
    }

    /// As [`search`](Self::search), for a key that is above all entries before `first`, which is at most their number.
    pub(crate) fn search_from(&self, first: usize, key: &[u8]) -> Result<Found> {
        let wanted = self.suffix_of(key)?;
        let (mut low, mut high) = (first, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.suffix(middle)?.cmp(wanted) {
                Ordering::Equal => return Ok(Found::At(middle)),
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
            }
        }
        Ok(Found::Before(low))
    }

    /// As [`search`](Self::search); quicker if the key is that of the entry `guess`.
    pub(crate) fn search_at(&self, guess: usize, key: &[u8]) -> Result<Found> {
        if guess < self.entries && self.suffix(guess)? == self.suffix_of(key)? {
            return Ok(Found::At(guess));
        }
        self.search(key)
    }

    /// The first entry whose key is not below `key`, which may lie outside the fences.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<usize> {
        if key <= self.lower {
            return Ok(0);
        }
        if !self.is_below_upper(key) {
            return Ok(self.entries);
        }
        Ok(match self.search(key)? {
            Found::At(index) | Found::Before(index) => index,
        })
    }

    /// The entry of an inner node whose child covers `key`, which the node must cover.
    pub(crate) fn child_for(&self, key: &[u8]) -> Result<usize> {
        let wanted = self.suffix_of(key)?;
        self.last_child_where(|separator| separator <= wanted)
    }

    /// The entry of an inner node whose child covers the largest keys below `bound`.
    pub(crate) fn child_before(&self, bound: &[u8]) -> Result<usize> {
        let wanted = self.suffix_of(bound)?;
        self.last_child_where(|separator| separator < wanted)
    }

    fn last_child_where(&self, starts_early_enough: impl Fn(&[u8]) -> bool) -> Result<usize> {
        if self.entries == 0 {
            return Err(damaged(self.page, "an inner page without children"));
        }
        let (mut low, mut high) = (1, self.entries);
        while low < high {
            let middle = low + (high - low) / 2;
            if starts_early_enough(self.suffix(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low - 1)
    }

    /// What of `key` follows the common prefix.
    fn suffix_of<'k>(&self, key: &'k [u8]) -> Result<&'k [u8]> {
        key.get(self.prefix..).ok_or_else(|| damaged(self.page, "a key was sought that lies outside its fences"))
    }

    #[inline]
    fn cell(&self, index: usize) -> Result<&'a [u8]> {
        slots::cell(self.page, FENCES + index)
    }

    /// An entry's key without the common prefix, and what follows it in the cell.
    #[inline]
    fn split(&self, index: usize) -> Result<(&'a [u8], &'a [u8])> {
        split_cell(self.page, index, self.cell(index)?, if self.is_leaf { LEAF_HEAD } else { INNER_HEAD })
    }

    #[inline]
    pub(super) fn suffix(&self, index: usize) -> Result<&'a [u8]> {
        let head = if self.is_leaf { LEAF_HEAD } else { INNER_HEAD };
        key_of(self.cell(index)?, head).ok_or_else(|| damaged_entry(self.page, index, CUT_OFF))
    }

    /// The whole key of an entry.
    pub(crate) fn key(&self, index: usize) -> Result<Vec<u8>> {
        if !self.is_leaf && index == 0 {
            return Ok(self.lower.to_vec());
        }
        Ok([self.prefix(), self.suffix(index)?].concat())
    }

    /// The value of a leaf's entry.
    pub(crate) fn value(&self, index: usize) -> Result<Stored<'a>> {
        Ok(self.entry(index)?.1)
    }

    /// The key of a leaf's entry, without the common prefix, and its value.
    pub(super) fn entry(&self, index: usize) -> Result<(&'a [u8], Stored<'a>)> {
        leaf_entry(self.page, index)
    }

    /// The bytes and the first page of the value of a leaf's entry, if it has pages of its own.
    pub(super) fn large(&self, index: usize) -> Result<Option<(u32, PageId)>> {
        if self.cell(index)?.first() != Some(&OVERFLOW) {
            return Ok(None);
        }
        Ok(match self.value(index)? {
            Stored::Overflow { length, first } => Some((length, first)),
            Stored::Inline(_) | Stored::Reference(_) => None,
        })
    }

    /// What the value of a leaf's entry is, if it lies in the table's value tree.
    pub(super) fn reference(&self, index: usize) -> Result<Option<Reference>> {
        if self.cell(index)?.first() != Some(&REFERENCE) {
            return Ok(None);
        }
        Ok(match self.value(index)? {
            Stored::Reference(reference) => Some(reference),
            Stored::Inline(_) | Stored::Overflow { .. } => None,
        })
    }

    /// Whether the values of all these entries of a leaf stand in it. False also if one is damaged.
    pub(super) fn are_inline(&self, entries: std::ops::Range<usize>) -> bool {
        slots::are_first_bytes(self.page, FENCES + entries.start..FENCES + entries.end, INLINE)
    }

    /// The page itself.
    pub(super) fn page(&self) -> &'a [u8] {
        self.page
    }

    /// The child of an inner node's entry.
    pub(crate) fn child(&self, index: usize) -> Result<PageId> {
        let (_, rest) = self.split(index)?;
        let id = rest.try_into().map_err(|_| damaged(self.page, &format!("entry {index} names no child")))?;
        Ok(PageId(u64::from_le_bytes(id)))
    }

    /// The bytes of an entry's cell.
    pub(super) fn cell_bytes(&self, index: usize) -> Result<usize> {
        Ok(self.cell(index)?.len())
    }

    /// An entry's cell without its key: what is needed to write it again under another prefix.
    pub(super) fn payload(&self, index: usize) -> Result<Payload<'a>> {
        let (_, rest) = self.split(index)?;
        let form = if self.is_leaf { self.cell(index)?.first().copied() } else { None };
        Ok(Payload { form, rest })
    }

    /// The bytes of the page that its cells and their slots take.
    pub(super) fn used_bytes(&self) -> usize {
        slots::capacity(self.page.len()).saturating_sub(slots::free_bytes(self.page))
    }

    pub(super) fn error(&self, what: &str) -> Error {
        damaged(self.page, what)
    }
}

/// The key of an entry of a leaf page, without the common prefix, and its value.
#[inline]
pub(super) fn leaf_entry(page: &[u8], index: usize) -> Result<(&[u8], Stored<'_>)> {
    let cell = slots::cell(page, FENCES + index)?;
    let (suffix, rest) = split_cell(page, index, cell, LEAF_HEAD)?;
    let value = match (cell.first(), rest.split_at_checked(4)) {
        (Some(&INLINE), _) => Some(Stored::Inline(rest)),
        (Some(&OVERFLOW), Some((length, first))) if rest.len() == OVERFLOW_BYTES => Some(Stored::Overflow {
            length: u32::from_le_bytes(array(length)),
            first: PageId(u64::from_le_bytes(array(first))),
        }),
        (Some(&REFERENCE), _) => Reference::decode(rest).map(Stored::Reference),
        _ => None,
    };
    Ok((suffix, value.ok_or_else(|| damaged_entry(page, index, "has an unknown form"))?))
}

/// As [`leaf_entry`], the quicker way for most: of an entry that the page has and whose value stands in it. Any other is `None`.
#[inline]
pub(super) fn inline_entry(page: &[u8], index: usize) -> Option<(&[u8], &[u8])> {
    match slots::cell_of_known(page, FENCES + index)? {
        [INLINE, low, high, rest @ ..] => rest.split_at_checked(usize::from(u16::from_le_bytes([*low, *high]))),
        _ => None,
    }
}

/// An entry's key without the common prefix, and what follows it in the cell, whose key begins after `head` bytes.
#[inline]
fn split_cell<'a>(page: &[u8], index: usize, cell: &'a [u8], head: usize) -> Result<(&'a [u8], &'a [u8])> {
    let key = key_of(cell, head).ok_or_else(|| damaged_entry(page, index, CUT_OFF))?;
    Ok((key, &cell[head + key.len()..]))
}

/// The key in a cell, where it begins after `head` bytes, the last two of which are its length; `None` if it is cut off.
#[inline]
fn key_of(cell: &[u8], head: usize) -> Option<&[u8]> {
    let length = u16::from_le_bytes(cell.get(head - 2..head)?.try_into().ok()?);
    cell.get(head..head + usize::from(length))
}

const CUT_OFF: &str = "is cut off";

/// Apart from what reads entries, which is to be inlined.
#[cold]
fn damaged_entry(page: &[u8], index: usize, how: &str) -> Error {
    damaged(page, &format!("entry {index} {how}"))
}

/// A cell without its key.
#[derive(Clone, Copy)]
pub(super) struct Payload<'a> {
    /// A leaf's form byte; nothing in an inner page.
    form: Option<u8>,
    rest: &'a [u8],
}

impl<'a> Payload<'a> {
    pub(super) fn inline(value: &'a [u8]) -> Self {
        Payload { form: Some(INLINE), rest: value }
    }

    #[cfg(test)]
    pub(super) fn overflow(encoded: &'a [u8; OVERFLOW_BYTES]) -> Self {
        Payload { form: Some(OVERFLOW), rest: encoded }
    }

    pub(super) fn reference(encoded: &'a [u8; REFERENCE_BYTES]) -> Self {
        Payload { form: Some(REFERENCE), rest: encoded }
    }

    pub(super) fn child(encoded: &'a [u8; CHILD_BYTES]) -> Self {
        Payload { form: None, rest: encoded }
    }

    /// The cell with a key of which the common prefix has been taken off.
    pub(super) fn with_suffix(&self, suffix: &[u8]) -> Vec<u8> {
        let mut cell = Vec::with_capacity(self.cell_bytes(suffix.len()));
        cell.extend(self.form);
        cell.extend_from_slice(&(suffix.len() as u16).to_le_bytes());
        cell.extend_from_slice(suffix);
        cell.extend_from_slice(self.rest);
        cell
    }

    pub(super) fn cell_bytes(&self, suffix_bytes: usize) -> usize {
        usize::from(self.form.is_some()) + INNER_HEAD + suffix_bytes + self.rest.len()
    }
}

/// How an overflow value is named in its leaf.
#[cfg(test)]
pub(super) fn encode_overflow(length: u32, first: PageId) -> [u8; OVERFLOW_BYTES] {
    let mut encoded = [0; OVERFLOW_BYTES];
    encoded[..4].copy_from_slice(&length.to_le_bytes());
    encoded[4..].copy_from_slice(&first.0.to_le_bytes());
    encoded
}

/// The cell size of a leaf entry.
pub(super) fn leaf_cell_bytes(suffix_bytes: usize, value: LeafValue<'_>, inline_limit: usize) -> usize {
    let value_bytes = match value {
        LeafValue::Bytes(value) if value.len() > inline_limit => OVERFLOW_BYTES,
        LeafValue::Bytes(value) => value.len(),
        LeafValue::Reference(_) => REFERENCE_BYTES,
    };
    LEAF_HEAD + suffix_bytes + value_bytes
}

/// The cell size of an inner entry.
pub(super) fn inner_cell_bytes(suffix_bytes: usize) -> usize {
    INNER_HEAD + suffix_bytes + CHILD_BYTES
}

/// The upper fence as its slot holds it.
pub(super) fn encode_upper(upper: Option<&[u8]>) -> Vec<u8> {
    match upper {
        None => vec![0],
        Some(key) => [&[1], key].concat(),
    }
}

/// The bytes that the two fences take, with their slots.
pub(super) fn fence_bytes(lower: &[u8], upper: Option<&[u8]>) -> usize {
    FENCES * slots::SLOT_BYTES + lower.len() + 1 + upper.map_or(0, <[u8]>::len)
}

pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    // Eight bytes at a time: every look at a page asks for this.
    let (eights_a, eights_b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let same = 8 * eights_a.iter().zip(eights_b).take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is above `left` and not above `right`, for `left < right` (suffix truncation).
pub(super) fn shortest_separator<'k>(left: &[u8], right: &'k [u8]) -> &'k [u8] {
    &right[..right.len().min(common_prefix(left, right) + 1)]
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(bytes);
    array
}
