//! Building a [`Tree`](super::Tree)'s nodes from rows in key order, from left to right, each full and written once.
//!
//! A level collects entries until one more cannot fit, whatever upper fence comes; then it closes a node behind the last entry with
//! which it fits, and adds an entry for it to the level above. The node that is left alone on its level is the root: its contents go
//! into the page that the tree hangs on.

use tantalum_log::Lsn;
use tantalum_store::{
    Change, PageId, PageKind, TableId,
    page::{change, header, slots},
};

use super::{
    draft::Fences,
    node::{self, FENCES},
    reference::LeafValue,
};
use crate::{
    error::{Error, ErrorKind, Result},
    space::UnnamedPages,
};

/// Builds the nodes of one tree.
pub(crate) struct TreeBuilder {
    owner: TableId,
    /// What pages bear.
    lsn: Lsn,
    /// Leaves first.
    levels: Vec<Level>,
    /// Memory for a page.
    page: Vec<u8>,
}

/// The entries of one level that are in no page yet.
#[derive(Default)]
struct Level {
    /// Where the node begins that they are of.
    lower: Vec<u8>,
    entries: Vec<Entry>,
    /// Their keys and what follows these in their cells, one behind the other.
    bytes: Vec<u8>,
    /// Whether a node was closed.
    has_nodes: bool,
    /// Memory for entries and bytes.
    spare: (Vec<Entry>, Vec<u8>),
}

/// An entry, by where it stands among the bytes.
#[derive(Clone, Copy)]
struct Entry {
    begin: usize,
    key_end: usize,
    end: usize,
    /// Bytes that this and all before it take in a page with their whole keys, slots included.
    sum: usize,
}

/// The root of a tree that was built, as the page that the tree hangs on is to be.
pub(crate) struct BuiltRoot {
    page: Vec<u8>,
}

impl BuiltRoot {
    /// The image that the page with this number is to be.
    pub fn image_for(&mut self, id: PageId) -> &[u8] {
        header::set_page_id(&mut self.page, id);
        &self.page
    }
}

impl Level {
    fn key(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[entry.begin..entry.key_end]
    }

    fn rest(&self, index: usize) -> &[u8] {
        let entry = &self.entries[index];
        &self.bytes[entry.key_end..entry.end]
    }

    /// Adds an entry. The first of an inner node has no key of its own.
    fn push(&mut self, height: u8, key: &[u8], form: Option<u8>, rest: &[u8]) {
        let begin = self.bytes.len();
        let key = if height > 0 && self.entries.is_empty() { &[] } else { key };
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend(form);
        self.bytes.extend_from_slice(rest);
        let end = self.bytes.len();
        let before = self.entries.last().map_or(0, |last| last.sum);
        let sum = before + slots::SLOT_BYTES + node::KEY_LENGTH_BYTES + (end - begin);
        self.entries.push(Entry { begin, key_end, end, sum });
    }

    /// Bytes of a node of the first `count` entries that ends at `upper`.
    fn node_bytes(&self, height: u8, count: usize, upper: Option<&[u8]>) -> usize {
        let prefix = Fences { lower: &self.lower, upper }.prefix();
        let keys = count - usize::from(height > 0);
        node::fence_bytes(&self.lower, upper) + self.entries[count - 1].sum - keys * prefix
    }

    /// Whether there are more entries than one node can have, whatever ends it.
    fn is_too_much(&self, height: u8, capacity: usize) -> bool {
        let Some(last) = self.entries.last() else { return false };
        let prefix = node::common_prefix(&self.lower, self.key(self.entries.len() - 1));
        let keys = self.entries.len() - usize::from(height > 0);
        node::fence_bytes(&self.lower, Some(&[])) + last.sum > capacity + keys * prefix
    }

    /// Where a node of the first `count` entries ends, if others follow.
    fn separator(&self, height: u8, count: usize) -> &[u8] {
        if height > 0 { self.key(count) } else { node::shortest_separator(self.key(count - 1), self.key(count)) }
    }

    /// The most entries, and not all, with which a node fits in a page.
    fn fitting(&self, height: u8, capacity: usize) -> Option<usize> {
        (1..self.entries.len())
            .rev()
            .find(|count| self.node_bytes(height, *count, Some(self.separator(height, *count))) <= capacity)
    }

    /// Takes out the first entries, which are in a page now; the node of the others begins at `lower`.
    fn advance(&mut self, height: u8, count: usize, lower: Vec<u8>) {
        self.lower = lower;
        self.has_nodes = true;
        let (entries, bytes) = std::mem::take(&mut self.spare);
        let (mut entries, mut bytes) =
            (std::mem::replace(&mut self.entries, entries), std::mem::replace(&mut self.bytes, bytes));
        for &Entry { begin, key_end, end, .. } in &entries[count..] {
            let (form, rest) = match height {
                0 => (Some(bytes[key_end]), &bytes[key_end + 1..end]),
                _ => (None, &bytes[key_end..end]),
            };
            self.push(height, &bytes[begin..key_end], form, rest);
        }
        entries.clear();
        bytes.clear();
        self.spare = (entries, bytes);
    }
}

impl TreeBuilder {
    /// For a tree of this owner. The pages bear an LSN that those of the tree do not.
    pub fn new(owner: TableId, page_size: usize, lsn: Lsn) -> Self {
        Self { owner, lsn, levels: vec![Level::default()], page: vec![0; page_size] }
    }

    /// Adds a row, whose key is above those before, and whose value is not too large for a leaf.
    pub fn add(&mut self, pages: &mut UnnamedPages, key: &[u8], value: LeafValue<'_>) -> Result<()> {
        match value {
            LeafValue::Bytes(value) => self.add_to(pages, 0, key, Some(node::INLINE), value),
            LeafValue::Reference(reference) => self.add_to(pages, 0, key, Some(node::REFERENCE), &reference.encode()),
        }
    }

    /// Ends the last leaf before `fence`, which is above all keys that were added and not above those to come.
    pub fn divide(&mut self, pages: &mut UnnamedPages, fence: &[u8]) -> Result<()> {
        let count = self.levels[0].entries.len();
        self.close(pages, 0, count, Some(fence.to_vec()))
    }

    /// Bytes of the last leaf that are free, as far as its fences are known.
    pub fn free_bytes(&self) -> usize {
        let leaf = &self.levels[0];
        let used = leaf.entries.last().map_or(0, |last| last.sum);
        slots::capacity(self.page.len()).saturating_sub(used + node::fence_bytes(&leaf.lower, None))
    }

    /// Writes what is left but for the root, which is returned.
    pub fn finish(mut self, pages: &mut UnnamedPages) -> Result<BuiltRoot> {
        let capacity = slots::capacity(self.page.len());
        let mut height = 0;
        loop {
            loop {
                let level = &self.levels[usize::from(height)];
                let count = level.entries.len();
                if count == 0 || level.node_bytes(height, count, None) <= capacity {
                    break;
                }
                self.close_fitting(pages, height)?;
            }
            let level = &self.levels[usize::from(height)];
            let count = level.entries.len();
            if !level.has_nodes {
                self.fill_page(height, count, None, PageId(0));
                return Ok(BuiltRoot { page: self.page });
            }
            self.close(pages, height, count, None)?;
            height += 1;
        }
    }

    fn add_to(
        &mut self,
        pages: &mut UnnamedPages,
        height: u8,
        key: &[u8],
        form: Option<u8>,
        rest: &[u8],
    ) -> Result<()> {
        let capacity = slots::capacity(self.page.len());
        if self.levels.len() == usize::from(height) {
            self.levels.push(Level::default());
        }
        self.levels[usize::from(height)].push(height, key, form, rest);
        while self.levels[usize::from(height)].is_too_much(height, capacity) {
            self.close_fitting(pages, height)?;
        }
        Ok(())
    }

    /// Closes a node behind the last entry with which it fits.
    fn close_fitting(&mut self, pages: &mut UnnamedPages, height: u8) -> Result<()> {
        let level = &self.levels[usize::from(height)];
        let count = level.fitting(height, slots::capacity(self.page.len())).ok_or_else(|| {
            // Keys and values are limited so that several fit.
            Error::new(ErrorKind::TooLarge, "a row does not fit in a page")
        })?;
        let separator = level.separator(height, count).to_vec();
        self.close(pages, height, count, Some(separator))
    }

    /// Writes a node of the first `count` entries of a level, and adds an entry for it to the level above.
    fn close(&mut self, pages: &mut UnnamedPages, height: u8, count: usize, upper: Option<Vec<u8>>) -> Result<()> {
        let id = pages.take()?;
        self.fill_page(height, count, upper.as_deref(), id);
        pages.write(&self.page)?;
        let level = &mut self.levels[usize::from(height)];
        let lower = std::mem::take(&mut level.lower);
        level.advance(height, count, upper.unwrap_or_default());
        let above = height.checked_add(1).expect("a tree is not that high");
        self.add_to(pages, above, &lower, None, &id.0.to_le_bytes())
    }

    /// Makes the page of a node of the first `count` entries of a level.
    fn fill_page(&mut self, height: u8, count: usize, upper: Option<&[u8]>, id: PageId) {
        let (page, level) = (&mut self.page[..], &self.levels[usize::from(height)]);
        let kind = if height == 0 { PageKind::Leaf } else { PageKind::Inner };
        header::clear(page, id);
        change::apply(page, &Change::Format { kind, level: height, owner: self.owner })
            .expect("any page can be formatted");
        header::set_lsn(page, self.lsn);
        slots::append(page, &[&level.lower]);
        slots::append(page, &[&node::encode_upper(upper)]);
        let prefix = Fences { lower: &level.lower, upper }.prefix();
        for index in 0..count {
            let (key, rest) = (level.key(index), level.rest(index));
            let suffix = if height > 0 && index == 0 { &[] } else { &key[prefix..] };
            let length = u16::try_from(suffix.len()).expect("a key is shorter than a page").to_le_bytes();
            match height {
                0 => slots::append(page, &[&rest[..1], &length, suffix, &rest[1..]]),
                _ => slots::append(page, &[&length, suffix, rest]),
            }
        }
        debug_assert_eq!(slots::count(page), FENCES + count);
    }
}
