//! Entries of a leaf, to be looked at when its latch is no longer held.
//!
//! The page is copied as it is: consecutive bytes are copied in less time than it takes to find the cells among them, and who
//! looks at a few entries only pays for nothing else.

use std::ops::Range;

use super::{
    LeafView, damaged,
    node::{Stored, leaf_entry},
};
use crate::error::Result;

/// What was copied of a leaf. Its memory serves again for the next one.
#[derive(Debug, Default)]
pub(crate) struct LeafCopy {
    page: Vec<u8>,
    /// What all keys begin with, and after it the rest of the one that was looked at last.
    key: Vec<u8>,
    prefix: usize,
    /// Values of entries that have pages of their own, in the order of entries.
    large: Vec<(usize, Vec<u8>)>,
}

/// A value that was copied.
pub(crate) enum CopiedValue<'a> {
    /// With its leaf.
    Inline(&'a [u8]),
    /// From pages of its own. May be taken away, if nobody looks at the entry again.
    Large(&'a mut Vec<u8>),
}

impl<'a> CopiedValue<'a> {
    /// The value.
    pub(crate) fn bytes(self) -> &'a [u8] {
        match self {
            CopiedValue::Inline(value) => value,
            CopiedValue::Large(value) => value,
        }
    }
}

impl LeafCopy {
    /// Copies these entries, in the place of what was copied before.
    pub(crate) fn fill(&mut self, leaf: &LeafView<'_>, entries: Range<usize>) -> Result<()> {
        self.page.clear();
        self.page.extend_from_slice(leaf.page());
        self.key.clear();
        self.key.extend_from_slice(leaf.prefix());
        self.prefix = self.key.len();
        self.large.clear();
        for entry in entries {
            if let Some(value) = leaf.large_value(entry)? {
                self.large.push((entry, value));
            }
        }
        Ok(())
    }

    /// The key and the value of an entry that was copied.
    pub(crate) fn entry(&mut self, entry: usize) -> Result<(&[u8], CopiedValue<'_>)> {
        let (suffix, value) = leaf_entry(&self.page, entry)?;
        self.key.truncate(self.prefix);
        self.key.extend_from_slice(suffix);
        let value = match value {
            Stored::Inline(value) => CopiedValue::Inline(value),
            Stored::Overflow { .. } => {
                let found = self.large.binary_search_by_key(&entry, |(of, _)| *of);
                let index = found.map_err(|_| damaged(&self.page, &format!("entry {entry} was not copied")))?;
                CopiedValue::Large(&mut self.large[index].1)
            }
        };
        Ok((&self.key, value))
    }
}
