//! A node of the tree: keys in order, each with the place of its document, or of the node with the keys from there on. Nodes that
//! were used lately stay in memory. Last, numbers in blocks and checksums over them.

use std::{collections::HashMap, sync::Arc};

use super::{BLOCK_BYTES, MAX_KEY_BYTES};

/// A byte offset on the device.
pub(super) type Place = u64;

const MAGIC: u32 = u32::from_le_bytes(*b"AOCN");
const HEADER_BYTES: usize = 32;

/// Room for entries.
pub(super) const ROOM_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

/// Levels that a tree can have: more than fit any device, as a node that is not the only one has two entries.
pub(super) const MAX_LEVELS: u32 = 48;

/// A key and what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) place: Place,
}

impl Entry {
    /// In a node.
    pub(super) fn bytes(&self) -> usize {
        2 + 8 + self.key.len()
    }
}

/// A node, in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// 0 for leaves.
    pub(super) level: u32,
    /// In the order of their keys, at least one.
    pub(super) entries: Vec<Entry>,
}

impl Node {
    pub(super) fn new(level: u32, entries: Vec<Entry>) -> Self {
        Self { level, entries }
    }

    /// In a leaf the entry with this key or the last one before it; above, the entry whose node has this key if any has.
    pub(super) fn entry_for(&self, key: &[u8]) -> Option<&Entry> {
        let after = self.entries.partition_point(|entry| entry.key.as_slice() <= key);
        // Keys before all others belong to the first node.
        self.entries.get(after.saturating_sub(1))
    }

    /// As it is written to `block`, at `place`.
    ///
    /// # Panics
    /// If it does not fit.
    pub(super) fn encode(&self, tree_id: u64, place: Place, block: &mut [u8]) {
        block[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        block[8..16].copy_from_slice(&tree_id.to_le_bytes());
        block[16..24].copy_from_slice(&place.to_le_bytes());
        block[24..28].copy_from_slice(&self.level.to_le_bytes());
        block[28..32].copy_from_slice(&(self.entries.len() as u32).to_le_bytes());
        let mut at = HEADER_BYTES;
        for Entry { key, place } in &self.entries {
            block[at..at + 2].copy_from_slice(&(key.len() as u16).to_le_bytes());
            block[at + 2..at + 10].copy_from_slice(&place.to_le_bytes());
            block[at + 10..at + 10 + key.len()].copy_from_slice(key);
            at += 10 + key.len();
        }
        seal(block);
    }

    /// Reads what [`encode`](Self::encode) wrote at this place; or what is wrong with it. Whatever the bytes, what it leads
    /// to lies before it, so that no search loops.
    pub(super) fn decode(block: &[u8], tree_id: u64, place: Place, level: u32) -> Result<Self, &'static str> {
        if block.len() != BLOCK_BYTES || !is_sealed(block) || u32_at(block, 4) != MAGIC {
            return Err("there is no whole node");
        }
        if u64_at(block, 8) != tree_id || u64_at(block, 16) != place {
            return Err("the node is of another tree, or belongs elsewhere");
        }
        if u32_at(block, 24) != level {
            return Err("the node is of another level");
        }
        let count = u32_at(block, 28);
        let mut rest = &block[HEADER_BYTES..];
        let mut entries: Vec<Entry> = Vec::new();
        for _ in 0..count {
            let (head, tail) = rest.split_at_checked(10).ok_or("the node's entries do not end in it")?;
            let key_bytes = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let (key, tail) = tail.split_at_checked(key_bytes).ok_or("the node's entries do not end in it")?;
            let entry = Entry { key: key.to_vec(), place: u64_at(head, 2) };
            if entry.key.len() > MAX_KEY_BYTES || entries.last().is_some_and(|last| last.key >= entry.key) {
                return Err("the node's keys are not in order, or too long");
            }
            if entry.place >= place {
                return Err("the node leads to what was written later");
            }
            if level > 0 && !entry.place.is_multiple_of(BLOCK_BYTES as u64) {
                return Err("the node leads to a node between blocks");
            }
            entries.push(entry);
            rest = tail;
        }
        if entries.is_empty() { Err("the node is empty") } else { Ok(Self { level, entries }) }
    }
}

/// Cuts entries into as few runs as fill nodes to about two thirds, as they are after inserts at random; one, if all fit
/// one node. Of several, each has two entries or more.
pub(super) fn cut(entries: Vec<Entry>) -> Vec<Vec<Entry>> {
    const WELL_FILLED_BYTES: usize = ROOM_BYTES * 2 / 3;
    let total: usize = entries.iter().map(Entry::bytes).sum();
    if total <= ROOM_BYTES {
        return vec![entries];
    }
    let runs = total.div_ceil(WELL_FILLED_BYTES);
    let mut cut: Vec<Vec<Entry>> = Vec::with_capacity(runs);
    let mut before = 0;
    for entry in entries {
        if cut.len() <= before * runs / total {
            cut.push(Vec::new());
        }
        before += entry.bytes();
        cut.last_mut().expect("the first entry begins a run").push(entry);
    }
    cut
}

/// Nodes that were used lately, in two generations: what is used goes into the young one; when that is full it becomes the old
/// one, and what was in the old one and was not used since is dropped.
#[derive(Default)]
pub(super) struct Cache {
    young: HashMap<Place, Arc<Node>>,
    old: HashMap<Place, Arc<Node>>,
    generation: usize,
}

impl Cache {
    /// Of so many nodes, at least 2.
    pub(super) fn new(nodes: usize) -> Self {
        Self { generation: nodes / 2, ..Self::default() }
    }

    pub(super) fn get(&mut self, place: Place) -> Option<Arc<Node>> {
        if let Some(node) = self.young.get(&place) {
            return Some(Arc::clone(node));
        }
        let node = self.old.remove(&place)?;
        self.insert(place, Arc::clone(&node));
        Some(node)
    }

    pub(super) fn insert(&mut self, place: Place, node: Arc<Node>) {
        if self.young.len() >= self.generation {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(place, node);
    }
}

/// The little-endian number of the first bytes of `bytes` from `at` on.
///
/// # Panics
/// If they are not there: callers give blocks of fixed size.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// As [`u64_at`], of four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Puts into the first four bytes a checksum of all others.
pub(super) fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the first four bytes are a checksum of all others.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.len() > 4 && crc32c::crc32c(&bytes[4..]) == u32_at(bytes, 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<Entry>> {
        let keys = prop::collection::btree_set(prop::collection::vec(any::<u8>(), 0..MAX_KEY_BYTES), 1..60);
        let entry = |(at, key): (usize, Vec<u8>)| Entry { key, place: at as u64 * 4096 };
        keys.prop_map(move |keys| keys.into_iter().enumerate().map(entry).collect())
    }

    const PLACE: Place = 1 << 30;

    proptest! {
        #[test]
        fn nodes_read_back_as_they_were(entries in entries(), level in 0u32..3) {
            let runs = cut(entries.clone());
            prop_assert_eq!(runs.concat(), entries);
            let several = runs.len() > 1;
            for run in runs {
                prop_assert!(!several || run.len() > 1);
                let (node, mut block) = (Node::new(level, run), vec![0; BLOCK_BYTES]);
                node.encode(7, PLACE, &mut block);
                prop_assert_eq!(Node::decode(&block, 7, PLACE, level), Ok(node));
                for (tree, place, of) in [(8, PLACE, level), (7, PLACE + 4096, level), (7, PLACE, level + 1)] {
                    prop_assert!(Node::decode(&block, tree, place, of).is_err());
                }
            }
        }

        #[test]
        fn hostile_bytes_are_refused_or_in_order(
            entries in entries(),
            level in 0u32..2,
            changes in prop::collection::vec((24usize..300, any::<u8>()), 0..12),
        ) {
            let mut block = vec![0; BLOCK_BYTES];
            Node::new(level, cut(entries).remove(0)).encode(7, PLACE, &mut block);
            for (at, byte) in changes {
                block[at] = byte;
            }
            seal(&mut block);
            if let Ok(node) = Node::decode(&block, 7, PLACE, level) {
                prop_assert!(node.entries.is_sorted_by(|a, b| a.key < b.key));
                prop_assert!(node.entries.iter().all(|entry| entry.place < PLACE));
            }
        }
    }

    #[test]
    fn what_is_used_stays() {
        let mut cache = Cache::new(20);
        let node = |place| Arc::new(Node::new(0, vec![Entry { key: vec![1], place }]));
        cache.insert(0, node(0));
        for place in 1..100 {
            cache.insert(place, node(place));
            assert!(cache.get(0).is_some(), "{place}");
        }
        assert!(cache.get(50).is_none());
        assert!(cache.young.len() + cache.old.len() <= 21);
    }
}
