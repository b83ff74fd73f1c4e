//! Looking at one leaf at a time, in either direction.
//!
//! Leaves have no pointers to their neighbours: a walk forwards goes on at the leaf that contains this one's upper
//! fence, a walk backwards at the one before its lower fence. Between two leaves no latch is held, so a walk blocks
//! no other task.

use std::ops::Range;

use super::Tree;
use super::node::{Node, Stored};
use super::overflow::LargeValue;
use super::reference::Reference;
use crate::error::Result;
use tantalum_log::Lsn;
use tantalum_store::{
    PageId,
    page::{header, slots},
};

/// Which leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LeafPosition<'a> {
    /// The one that the key belongs to.
    Containing(&'a [u8]),
    /// The one that holds the keys next below this bound; the first one when the bound is empty.
    Before(&'a [u8]),
    /// The leftmost.
    First,
    /// The rightmost.
    Last,
}

/// A leaf under its read latch.
pub(crate) struct LeafView<'a> {
    tree: &'a Tree,
    node: Node<'a>,
    lsn: Lsn,
}

impl LeafView<'_> {
    /// The smallest key that belongs to this leaf.
    pub(crate) fn lower(&self) -> &[u8] {
        self.node.lower()
    }

    /// The smallest key that no longer belongs to this leaf; `None` in the rightmost.
    pub(crate) fn upper(&self) -> Option<&[u8]> {
        self.node.upper()
    }

    /// The end of the log record that changed the leaf last.
    pub(crate) fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// The leaf's page.
    pub(crate) fn page_id(&self) -> PageId {
        header::page_id(self.page())
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.node.len()
    }

    /// The key of entry `index`, which must be below `len()`.
    pub(crate) fn key(&self, index: usize) -> Result<Vec<u8>> {
        assert!(index < self.len(), "entry {index} of {}", self.len());
        self.node.key(index)
    }

    /// The bytes that all keys of the leaf begin with.
    pub(super) fn prefix(&self) -> &[u8] {
        self.node.prefix()
    }

    /// The page itself.
    pub(super) fn page(&self) -> &[u8] {
        self.node.page()
    }

    /// Whether a value of these entries has pages of its own, or an entry is damaged.
    pub(super) fn has_large(&self, entries: Range<usize>) -> bool {
        !self.node.are_inline(entries)
    }

    /// Where the value of entry `index` is, if it has pages of its own.
    pub(super) fn large_value(&self, index: usize) -> Result<Option<LargeValue>> {
        Ok(match self.node.value(index)? {
            Stored::Inline(_) | Stored::Reference(_) => None,
            Stored::Overflow { length, first } => Some(self.tree.large_value(length, first)),
        })
    }

    /// The value of entry `index`, in a tree whose rows have all of their values.
    pub(crate) fn bytes(&self, index: usize) -> Result<&[u8]> {
        match self.node.value(index)? {
            Stored::Inline(value) => Ok(value),
            Stored::Overflow { .. } | Stored::Reference(_) => Err(self.node.error("a value is not in its leaf")),
        }
    }

    /// The bytes of entry `index` that stand in the leaf as its value; `None` if it has others.
    pub(crate) fn stored_bytes(&self, index: usize) -> Result<Option<&[u8]>> {
        Ok(match self.node.value(index)? {
            Stored::Inline(value) => Some(value),
            Stored::Overflow { .. } | Stored::Reference(_) => None,
        })
    }

    /// The large value that entry `index` names.
    pub(crate) fn reference(&self, index: usize) -> Result<Option<Reference>> {
        self.node.reference(index)
    }

    /// Bytes that are free in it.
    pub(crate) fn free_bytes(&self) -> usize {
        slots::free_bytes(self.page())
    }

    /// The first entry whose key is not below `key`, or `len()`. The key may lie outside this leaf.
    pub(crate) fn lower_bound(&self, key: &[u8]) -> Result<usize> {
        self.node.lower_bound(key)
    }
}

impl Tree {
    /// A key beyond which no row is now.
    pub(crate) fn end_key(&self) -> Result<Vec<u8>> {
        self.read_leaf(LeafPosition::Last, |leaf| match leaf.len() {
            0 => Ok(leaf.lower().to_vec()),
            rows => leaf.key(rows - 1),
        })?
    }

    /// Shows `f` one leaf. It is latched for reading while `f` runs.
    pub(crate) fn read_leaf<R>(&self, at: LeafPosition<'_>, f: impl FnOnce(LeafView<'_>) -> R) -> Result<R> {
        self.at_leaf(at, |node, page, entry| {
            Ok((f(LeafView { tree: self, node: *node, lsn: self.lsn_of(page) }), entry))
        })
    }
}
