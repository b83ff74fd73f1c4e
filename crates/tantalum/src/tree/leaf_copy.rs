//! Entries of a leaf, to be looked at when its latch is no longer held.
//!
//! The page is copied as it is: consecutive bytes are copied in less time than it takes to find the cells among them, and a
//! reader that looks at a few entries only pays for nothing else.

use std::ops::Range;

use tantalum_log::Lsn;

use super::{
    LeafView, Reference, Tree, damaged,
    node::{Stored, inline_entry, leaf_entry},
    overflow::LargeValue,
};
use crate::{buffer::PageCopy, error::Result};

/// What was copied of a leaf.
#[derive(Debug, Default)]
pub(crate) struct LeafCopy {
    page: PageCopy,
    /// What all keys begin with, and after it the rest of the one that was looked at last.
    key: Vec<u8>,
    prefix: usize,
    /// The leaf's LSN.
    lsn: Lsn,
    /// Values of entries that have pages of their own, in the order of entries.
    large: Vec<Large>,
}

/// A value that has pages of its own.
#[derive(Debug)]
struct Large {
    entry: usize,
    place: LargeValue,
    /// Empty before it is read.
    value: Vec<u8>,
}

/// A value that was copied.
pub(crate) enum CopiedValue<'a> {
    /// With its leaf.
    Inline(&'a [u8]),
    /// From pages of its own. May be taken away, if the caller does not look at the entry again.
    Large(&'a mut Vec<u8>),
    /// In the table's value tree.
    Reference(Reference),
}

impl<'a> CopiedValue<'a> {
    /// The value, unless it lies in the table's value tree.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            CopiedValue::Inline(value) => Some(value),
            CopiedValue::Large(value) => Some(value),
            CopiedValue::Reference(_) => None,
        }
    }
}

impl LeafCopy {
    /// Copies these entries, in the place of what was copied before. Large values must be [read](Self::read_large) when the leaf is
    /// no longer latched.
    pub(crate) fn fill(&mut self, leaf: &LeafView<'_>, entries: Range<usize>) -> Result<()> {
        self.page.fill(leaf.page());
        self.key.clear();
        self.key.extend_from_slice(leaf.prefix());
        self.prefix = self.key.len();
        self.large.clear();
        self.lsn = leaf.lsn();
        if !leaf.has_large(entries.clone()) {
            return Ok(());
        }
        for entry in entries {
            if let Some(place) = leaf.large_value(entry)? {
                self.large.push(Large { entry, place, value: Vec::new() });
            }
        }
        Ok(())
    }

    /// Reads the large values of the entries that were copied from a leaf of this tree. A value that was replaced meanwhile is
    /// empty: a reader of a past state finds it among the old versions, and a reader that has not locked its key looks again, since
    /// the leaf has changed. Returns the LSN of the newest leaf that was looked at. The caller holds no latch.
    pub(crate) fn read_large(&mut self, tree: &Tree) -> Result<Lsn> {
        let mut newest = self.lsn;
        for at in 0..self.large.len() {
            let Large { entry, place, .. } = self.large[at];
            let (suffix, _) = leaf_entry(&self.page, entry)?;
            self.key.truncate(self.prefix);
            self.key.extend_from_slice(suffix);
            if let Some((value, lsn)) = tree.read_large(&self.key, place, self.lsn)? {
                self.large[at].value = value;
                newest = newest.max(lsn);
            }
        }
        Ok(newest)
    }

    /// The key and the value of an entry that was copied.
    #[inline]
    pub(crate) fn entry(&mut self, entry: usize) -> Result<(&[u8], CopiedValue<'_>)> {
        let Self { page, key, prefix, large, .. } = self;
        key.truncate(*prefix);
        match inline_entry(page, entry) {
            Some((suffix, value)) => {
                key.extend_from_slice(suffix);
                Ok((key, CopiedValue::Inline(value)))
            }
            None => other_entry(page, key, large, entry),
        }
    }
}

/// An entry whose value does not stand in the leaf; or it is damaged. `key` is what all keys begin with.
#[cold]
fn other_entry<'c>(
    page: &'c [u8],
    key: &'c mut Vec<u8>,
    large: &'c mut [Large],
    entry: usize,
) -> Result<(&'c [u8], CopiedValue<'c>)> {
    let (suffix, value) = leaf_entry(page, entry)?;
    key.extend_from_slice(suffix);
    let value = match value {
        Stored::Inline(value) => CopiedValue::Inline(value),
        Stored::Reference(reference) => CopiedValue::Reference(reference),
        Stored::Overflow { .. } => {
            let found = large.binary_search_by_key(&entry, |large| large.entry);
            let index = found.map_err(|_| damaged(page, &format!("entry {entry} was not copied")))?;
            CopiedValue::Large(&mut large[index].value)
        }
    };
    Ok((key, value))
}
