//! The tables of LinkBench, their keys and rows.
//!
//! Keys are composite and big-endian, so that their order as bytes is their order as numbers.
//!
//! | table | key | row |
//! |---|---|---|
//! | node | id | [`Node`] |
//! | link | id1 type id2 | [`Link`] |
//! | link_list | id1 type !time id2 | [`Listed`] |
//! | link_count | id type | [`Count`] |
//!
//! The list holds the visible links of a node and a type, the newest first: the order in which they are asked for. It
//! repeats what a reader of the list wants to know, as the covering index of LinkBench's schema does.

use tantalum::{Db, Table};

use crate::error::{self, Error, Result};
use crate::row::row;

/// The names of all tables, in the order of the fields of `Tables`.
pub const TABLE_NAMES: [&str; 5] =
    ["linkbench_parameters", "linkbench_node", "linkbench_link", "linkbench_link_list", "linkbench_link_count"];

/// Handles of all tables; cheap to clone.
#[derive(Clone)]
pub(super) struct Tables {
    pub(super) node: Table,
    pub(super) link: Table,
    pub(super) link_list: Table,
    pub(super) link_count: Table,
}

impl Tables {
    /// Opens the tables, creating those that are missing.
    pub(super) fn open(db: &Db) -> Result<Self> {
        let [_, node, link, link_list, link_count] = TABLE_NAMES;
        Ok(Self {
            node: db.table(node)?,
            link: db.table(link)?,
            link_list: db.table(link_list)?,
            link_count: db.table(link_count)?,
        })
    }
}

row!(
    /// A node of the graph.
    pub(crate) struct Node<'a> of "linkbench_node" {
        node_type: u32,
        version: u64,
        time: u64,
        data: &'a [u8],
    }
);

row!(
    /// A link; one that was deleted stays, hidden.
    pub(crate) struct Link<'a> of "linkbench_link" {
        is_visible: u8,
        time: u64,
        version: u32,
        data: &'a [u8],
    }
);

row!(
    /// What the list repeats of a visible link.
    pub(crate) struct Listed<'a> of "linkbench_link_list" {
        version: u32,
        data: &'a [u8],
    }
);

row!(
    /// How many visible links of a type a node has.
    pub(crate) struct Count of "linkbench_link_count" {
        count: u64,
        time: u64,
        version: u64,
    }
);

/// A node and a type of its links: what one list and one count are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ListId {
    pub(super) id1: u64,
    pub(super) link_type: u32,
}

impl ListId {
    /// The key of the count, and the prefix of the links and of the list.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(28);
        key.extend_from_slice(&self.id1.to_be_bytes());
        key.extend_from_slice(&self.link_type.to_be_bytes());
        key
    }

    pub(super) fn link(&self, id2: u64) -> Vec<u8> {
        let mut key = self.key();
        key.extend_from_slice(&id2.to_be_bytes());
        key
    }

    /// Newer ones come first.
    pub(super) fn listed(&self, time: u64, id2: u64) -> Vec<u8> {
        let mut key = self.key();
        key.extend_from_slice(&(!time).to_be_bytes());
        key.extend_from_slice(&id2.to_be_bytes());
        key
    }

    /// After all keys that begin with [`key`](Self::key).
    pub(super) fn after(&self) -> Vec<u8> {
        let next_type = self.link_type.checked_add(1);
        match next_type {
            Some(link_type) => Self { link_type, ..*self }.key(),
            None => self.id1.saturating_add(1).to_be_bytes().to_vec(),
        }
    }
}

/// Reads the parts of a key.
pub(super) struct KeyParts<'k> {
    table: &'static str,
    key: &'k [u8],
    at: usize,
}

impl<'k> KeyParts<'k> {
    pub(super) fn of(table: &'static str, key: &'k [u8]) -> Self {
        Self { table, key, at: 0 }
    }

    fn take<const BYTES: usize>(&mut self) -> Result<[u8; BYTES]> {
        let part = self.key[self.at..].first_chunk::<BYTES>();
        let part = part.ok_or_else(|| self.damaged("a longer key"))?;
        self.at += BYTES;
        Ok(*part)
    }

    pub(super) fn number(&mut self) -> Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn list(&mut self) -> Result<ListId> {
        Ok(ListId { id1: self.number()?, link_type: self.take().map(u32::from_be_bytes)? })
    }

    pub(super) fn end(self) -> Result<()> {
        if self.at == self.key.len() { Ok(()) } else { Err(self.damaged("a shorter key")) }
    }

    fn damaged(&self, expected: &'static str) -> Error {
        error::row(self.table, self.key.len(), self.at, expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_time() {
        let list = ListId { id1: 7, link_type: 1 };
        assert!(list.listed(20, 1) < list.listed(10, 2), "the newest first");
        assert!(list.key() < list.listed(u64::MAX, 0) && list.listed(0, u64::MAX) < list.after());
        assert!(list.after() <= ListId { id1: 7, link_type: 2 }.key());
        assert!(ListId { id1: 7, link_type: u32::MAX }.after() > ListId { id1: 7, link_type: u32::MAX }.link(9));
        let key = list.listed(20, 3);
        let mut parts = KeyParts::of("t", &key);
        assert_eq!(parts.list().unwrap(), list);
        assert_eq!((!parts.number().unwrap(), parts.number().unwrap()), (20, 3));
        parts.end().unwrap();
        assert!(KeyParts::of("t", &key[..11]).list().is_err());
        assert!(KeyParts::of("t", &key).end().is_err());
    }
}
