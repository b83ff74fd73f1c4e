//! What can be done to the graph. Reads are of a snapshot; writes make a transaction, which its caller commits.

use std::sync::atomic::{AtomicU64, Ordering};

use tantalum::{Db, Transaction};

use super::schema::{Count, KeyParts, Link, ListId, Listed, Node, Tables};
use crate::error::Result;
use crate::row::timestamp;

/// Links that one look at a list returns at most.
pub(super) const LIST_LIMIT: usize = 10_000;

/// The graph in a database.
pub(super) struct Graph {
    pub(super) db: Db,
    pub(super) tables: Tables,
    /// The number of the node that is added next.
    next_node: AtomicU64,
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) links: usize,
    /// The time of its last link, if there may be older ones.
    pub(super) more_before: Option<u64>,
}

impl Graph {
    pub(super) fn open(db: &Db) -> Result<Self> {
        let tables = Tables::open(db)?;
        let last = db.snapshot()?.range(&tables.node, ..)?.next_back().transpose()?;
        let last = last.map_or(Ok(0), |(key, _)| KeyParts::of("linkbench_node", &key).number())?;
        Ok(Self { db: db.clone(), tables, next_node: AtomicU64::new(last + 1) })
    }

    /// The number of bytes of a node's data.
    pub(super) fn get_node(&self, id: u64) -> Result<Option<usize>> {
        let row = self.db.snapshot()?.get(&self.tables.node, id.to_be_bytes())?;
        row.map(|row| Ok(Node::decode(&row)?.data.len())).transpose()
    }

    pub(super) fn count_links(&self, list: &ListId) -> Result<u64> {
        let row = self.db.snapshot()?.get(&self.tables.link_count, list.key())?;
        row.map_or(Ok(0), |row| Ok(Count::decode(&row)?.count))
    }

    /// How many of these links there are and are visible.
    pub(super) fn get_links(&self, list: &ListId, id2s: &[u64]) -> Result<usize> {
        let snapshot = self.db.snapshot()?;
        let mut found = 0;
        for &id2 in id2s {
            if let Some(row) = snapshot.get(&self.tables.link, list.link(id2))? {
                found += usize::from(Link::decode(&row)?.is_visible);
            }
        }
        Ok(found)
    }

    /// The newest links of a list, or the newest of those that are no newer than `until`.
    pub(super) fn get_list(&self, list: &ListId, until: u64) -> Result<Part> {
        let snapshot = self.db.snapshot()?;
        let mut links = 0;
        for row in snapshot.range(&self.tables.link_list, list.listed(until, 0)..list.after())? {
            let (key, row) = row?;
            Listed::decode(&row)?;
            let mut parts = KeyParts::of("linkbench_link_list", &key);
            parts.list()?;
            let time = !parts.number()?;
            links += 1;
            if links == LIST_LIMIT {
                return Ok(Part { links, more_before: Some(time) });
            }
        }
        Ok(Part { links, more_before: None })
    }

    pub(super) fn new_node_id(&self) -> u64 {
        self.next_node.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn add_node(&self, id: u64, data: &[u8]) -> Result<Transaction> {
        let mut tx = self.db.begin()?;
        tx.insert(&self.tables.node, id.to_be_bytes(), node(data, 0))?;
        Ok(tx)
    }

    /// Does nothing to a node that is not there.
    pub(super) fn update_node(&self, id: u64, data: &[u8]) -> Result<Transaction> {
        let mut tx = self.db.begin()?;
        let old = tx.get_for_update(&self.tables.node, id.to_be_bytes())?;
        if let Some(old) = old {
            let version = Node::decode(&old)?.version;
            tx.put(&self.tables.node, id.to_be_bytes(), node(data, version + 1))?;
        }
        Ok(tx)
    }

    /// Its links stay, as in LinkBench.
    pub(super) fn delete_node(&self, id: u64) -> Result<Transaction> {
        let mut tx = self.db.begin()?;
        tx.delete(&self.tables.node, id.to_be_bytes())?;
        Ok(tx)
    }

    /// Makes the link visible with this data, whether it was there or not.
    pub(super) fn add_link(&self, list: &ListId, id2: u64, data: &[u8]) -> Result<Transaction> {
        let (mut tx, time) = (self.db.begin()?, timestamp());
        let key = list.link(id2);
        let old = tx.get_for_update(&self.tables.link, &key)?;
        let old = old.as_ref().map(|row| Link::decode(row)).transpose()?;
        let version = old.as_ref().map_or(0, |old| old.version.wrapping_add(1));
        if let Some(old) = old.filter(|old| old.is_visible == 1) {
            tx.delete(&self.tables.link_list, list.listed(old.time, id2))?;
        } else {
            self.count(&mut tx, list, |count| count + 1, time)?;
        }
        tx.put(&self.tables.link, &key, Link { is_visible: 1, time, version, data }.encode())?;
        tx.put(&self.tables.link_list, list.listed(time, id2), Listed { version, data }.encode())?;
        Ok(tx)
    }

    /// Hides the link, if it is there and visible.
    pub(super) fn delete_link(&self, list: &ListId, id2: u64) -> Result<Transaction> {
        let (mut tx, time) = (self.db.begin()?, timestamp());
        let key = list.link(id2);
        let Some(row) = tx.get_for_update(&self.tables.link, &key)? else { return Ok(tx) };
        let old = Link::decode(&row)?;
        if old.is_visible == 1 {
            tx.delete(&self.tables.link_list, list.listed(old.time, id2))?;
            tx.put(&self.tables.link, &key, Link { is_visible: 0, ..old }.encode())?;
            self.count(&mut tx, list, |count| count.saturating_sub(1), time)?;
        }
        Ok(tx)
    }

    fn count(&self, tx: &mut Transaction, list: &ListId, change: impl FnOnce(u64) -> u64, time: u64) -> Result<()> {
        let old = tx.get_for_update(&self.tables.link_count, list.key())?;
        let old = old.map_or(Ok(Count { count: 0, time, version: 0 }), |row| Count::decode(&row))?;
        let new = Count { count: change(old.count), time, version: old.version + 1 };
        tx.put(&self.tables.link_count, list.key(), new.encode())
    }
}

/// The row of a node.
pub(super) fn node(data: &[u8], version: u64) -> Vec<u8> {
    Node { node_type: 2048, version, time: timestamp(), data }.encode()
}
