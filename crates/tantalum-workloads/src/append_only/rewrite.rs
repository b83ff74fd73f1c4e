//! Copy on write: the nodes on the way from changed documents to the root are made anew, the others stay.

use super::{
    Store,
    node::{Entry, MAX_LEVELS, Node, Place, cut},
    unit::{Draft, Root},
};
use crate::error::Result;

impl Store {
    /// Adds to the unit the nodes of a tree that is `old` with the unit's documents. Gives its root.
    pub(super) fn rewrite(&self, draft: &mut Draft, old: Root) -> Result<Root> {
        let mut documents = std::mem::take(&mut draft.documents);
        // Stable: of equal keys the last one stands last, and is kept.
        documents.sort_by(|a, b| a.key.cmp(&b.key));
        documents.reverse();
        documents.dedup_by(|one, kept| one.key == kept.key);
        documents.reverse();
        if documents.is_empty() {
            return Ok(old);
        }
        let mut top = match old.place() {
            Some(place) => self.rewrite_below(draft, place, old.levels - 1, &documents)?,
            None => self.add_nodes(draft, 0, documents),
        };
        let mut levels = old.levels.max(1);
        while top.len() > 1 {
            top = self.add_nodes(draft, levels, top);
            levels += 1;
        }
        if levels > MAX_LEVELS {
            return Err(self.damaged(old.offset, "the tree has more levels than a device has nodes for"));
        }
        Ok(Root { offset: top[0].place, levels })
    }

    /// Makes anew the node at a place, and those below it that lead to the documents. Gives what its parent is to lead to
    /// instead of it.
    fn rewrite_below(&self, draft: &mut Draft, place: Place, level: u32, documents: &[Entry]) -> Result<Vec<Entry>> {
        let old = self.node(place, level)?;
        let entries = if level == 0 { merge(&old.entries, documents) } else { self.descend(draft, &old, documents)? };
        if !entries.is_sorted_by(|a, b| a.key < b.key) {
            return Err(self.damaged(place, "the nodes below have keys of their neighbours"));
        }
        Ok(self.add_nodes(draft, level, entries))
    }

    /// The entries of an inner node after what is below it was made anew.
    fn descend(&self, draft: &mut Draft, old: &Node, mut documents: &[Entry]) -> Result<Vec<Entry>> {
        let mut entries = Vec::with_capacity(old.entries.len() + 1);
        for (at, entry) in old.entries.iter().enumerate() {
            let next = old.entries.get(at + 1);
            let below = next.map_or(documents.len(), |next| documents.partition_point(|one| one.key < next.key));
            let (here, later) = documents.split_at(below);
            documents = later;
            match here.is_empty() {
                true => entries.push(entry.clone()),
                false => entries.extend(self.rewrite_below(draft, entry.place, old.level - 1, here)?),
            }
        }
        Ok(entries)
    }

    /// Adds nodes with these entries; gives for each its first key and its place.
    fn add_nodes(&self, draft: &mut Draft, level: u32, entries: Vec<Entry>) -> Vec<Entry> {
        let add = |run: Vec<Entry>| {
            let key = run[0].key.clone();
            Entry { key, place: draft.add_node(Node::new(level, run)) }
        };
        cut(entries).into_iter().map(add).collect()
    }
}

/// Both in the order of their keys; of equal keys that of `newer`.
fn merge(older: &[Entry], newer: &[Entry]) -> Vec<Entry> {
    let mut merged = Vec::with_capacity(older.len() + newer.len());
    let mut older = older.iter().peekable();
    for entry in newer {
        while let Some(before) = older.next_if(|old| old.key < entry.key) {
            merged.push(before.clone());
        }
        older.next_if(|old| old.key == entry.key);
        merged.push(entry.clone());
    }
    merged.extend(older.cloned());
    merged
}
