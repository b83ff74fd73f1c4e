//! Rows that a range has fetched and not handed out yet.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use tantalum_log::Lsn;

use super::{Content, Value};
use crate::{
    error::Result,
    tree::{CopiedValue, LeafCopy, LeafView, Reference, Tree},
};

/// A row of a table.
pub(super) type Row = (Value, Content);

/// A value where it lies.
pub(super) enum Lent<'a> {
    Bytes(&'a [u8]),
    /// In the table's value tree.
    Large(Reference),
}

/// An end of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Front,
    Back,
}

impl End {
    pub fn other(self) -> Self {
        match self {
            End::Front => End::Back,
            End::Back => End::Front,
        }
    }
}

/// Rows in key order: as they are in a leaf, or put together where others lie over those.
#[derive(Default)]
pub(super) struct Batch {
    copy: LeafCopy,
    /// The entries of the copy that are left.
    left: Range<usize>,
    /// If a row lies over the leaf's, all that are left, and none is left in the copy.
    merged: VecDeque<Row>,
    /// The merged row that was lent last.
    lent: Option<Row>,
    /// Where the bytes of a row are brought together.
    joined: Vec<u8>,
    /// A row could not be shown.
    has_failed: bool,
}

impl Batch {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.left.is_empty() && self.merged.is_empty()
    }

    /// Whether a row was damaged, after which there are no others.
    #[inline]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub fn clear(&mut self) {
        self.left = 0..0;
        self.merged.clear();
    }

    /// Takes these entries of a leaf, in the place of what is left.
    pub fn fill(&mut self, leaf: &LeafView<'_>, entries: Range<usize>) -> Result<()> {
        self.clear();
        self.copy.fill(leaf, entries.clone())?;
        self.left = entries;
        Ok(())
    }

    /// Reads the large values among what was copied, when the leaf is no longer latched. Returns the LSN of the newest leaf that
    /// says so.
    pub fn read_large(&mut self, tree: &Tree) -> Result<Lsn> {
        self.copy.read_large(tree)
    }

    /// Puts rows in the place of those with the same keys; `None` takes a row away.
    pub fn overlay(&mut self, rows: Vec<(Value, Option<Content>)>) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let mut merged = BTreeMap::new();
        while let Some(row) = self.take(End::Front) {
            let (key, value) = row?;
            merged.insert(key, value);
        }
        for (key, value) in rows {
            match value {
                Some(value) => drop(merged.insert(key, value)),
                None => drop(merged.remove(&key)),
            }
        }
        self.merged = merged.into_iter().collect();
        Ok(())
    }

    /// The next row from one end, in memory of its own.
    pub fn take(&mut self, end: End) -> Option<Result<Row>> {
        if let Some(row) = self.pop_merged(end) {
            return Some(Ok(row));
        }
        let entry = self.next_entry(end)?;
        let row = self.copy.entry(entry).inspect_err(|_| self.has_failed = true);
        Some(row.map(|(key, value)| match value {
            CopiedValue::Inline(value) => {
                self.joined.clear();
                self.joined.extend_from_slice(key);
                self.joined.extend_from_slice(value);
                let (key, value) = Value::pair(&self.joined, key.len());
                (key, value.into())
            }
            CopiedValue::Large(value) => (key.into(), Value::from(std::mem::take(value)).into()),
            CopiedValue::Reference(reference) => (key.into(), Content::Large(reference)),
        }))
    }

    /// The next row from one end, where it lies.
    #[inline]
    pub fn lend(&mut self, end: End) -> Option<Result<(&[u8], Lent<'_>)>> {
        let Some(entry) = self.next_entry(end) else { return self.lend_merged(end).map(Ok) };
        let row = self.copy.entry(entry).inspect_err(|_| self.has_failed = true);
        Some(row.map(|(key, value)| match value {
            CopiedValue::Inline(value) => (key, Lent::Bytes(value)),
            CopiedValue::Large(value) => (key, Lent::Bytes(value)),
            CopiedValue::Reference(reference) => (key, Lent::Large(reference)),
        }))
    }

    fn lend_merged(&mut self, end: End) -> Option<(&[u8], Lent<'_>)> {
        let row = self.pop_merged(end)?;
        let (key, content) = self.lent.insert(row);
        let value = match content {
            Content::Bytes(value) => Lent::Bytes(value),
            Content::Large(reference) => Lent::Large(*reference),
        };
        Some((key, value))
    }

    fn pop_merged(&mut self, end: End) -> Option<Row> {
        match end {
            End::Front => self.merged.pop_front(),
            End::Back => self.merged.pop_back(),
        }
    }

    #[inline]
    fn next_entry(&mut self, end: End) -> Option<usize> {
        match end {
            End::Front => self.left.next(),
            End::Back => self.left.next_back(),
        }
    }
}
