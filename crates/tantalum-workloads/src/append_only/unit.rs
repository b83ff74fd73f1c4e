//! A unit: what one update appends, as one write.
//!
//! First a header, then the documents, padded to whole blocks, then the nodes, children before their parents. The
//! checksum in the header is of the whole unit.

use tantalum_device::AlignedBuffer;

use super::{
    BLOCK_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES,
    anchor::FIRST_UNIT,
    node::{Entry, MAX_LEVELS, Node, Place, is_sealed, seal, u32_at, u64_at},
};
use crate::error::{self, Result};

const MAGIC: u32 = u32::from_le_bytes(*b"AOCU");
const HEADER_BYTES: usize = 64;

/// No unit is larger: what opening reads at once.
pub(super) const MAX_UNIT_BYTES: usize = 64 << 20;

/// Where a tree begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Root {
    /// Of its highest node; without a meaning in an empty tree.
    pub(super) offset: Place,
    /// 0: the tree is empty.
    pub(super) levels: u32,
}

impl Root {
    /// Its highest node.
    pub(super) fn place(&self) -> Option<Place> {
        (self.levels > 0).then_some(self.offset)
    }

    /// Whether it can be the root of a tree that ends at `end`.
    pub(super) fn is_possible(&self, end: u64) -> bool {
        let is_node = (FIRST_UNIT..end).contains(&self.offset) && self.offset.is_multiple_of(BLOCK_BYTES as u64);
        self.levels == 0 || (is_node && self.levels <= MAX_LEVELS)
    }
}

/// What the header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Bytes of the unit.
    pub(super) bytes: usize,
    /// Counts how often the tree was opened.
    pub(super) epoch: u64,
    /// Counts the units.
    pub(super) sequence: u64,
    /// The tree's after it.
    pub(super) root: Root,
}

impl Header {
    /// Of the unit of this tree that begins at `place` with this block; `None` unless one does. Whether it is whole
    /// [`is_whole`] tells.
    pub(super) fn decode(block: &[u8], tree_id: u64, place: Place) -> Option<Self> {
        if block.len() < HEADER_BYTES || u32_at(block, 4) != MAGIC || u64_at(block, 8) != tree_id {
            return None;
        }
        let blocks = u32_at(block, 16) as usize;
        let bytes = blocks.checked_mul(BLOCK_BYTES).filter(|bytes| (1..=MAX_UNIT_BYTES).contains(bytes))?;
        let root = Root { levels: u32_at(block, 20), offset: u64_at(block, 40) };
        let [epoch, sequence, own_place] = [24, 32, 48].map(|at| u64_at(block, at));
        let is_possible = own_place == place && root.is_possible(place.checked_add(bytes as u64)?);
        is_possible.then_some(Self { bytes, epoch, sequence, root })
    }
}

/// Whether all of a unit's bytes are those that were written.
pub(super) fn is_whole(unit: &[u8]) -> bool {
    is_sealed(unit)
}

/// A unit that is being made.
pub(super) struct Draft {
    place: Place,
    bytes: Vec<u8>,
    /// Keys and places of its documents.
    pub(super) documents: Vec<Entry>,
    nodes: Vec<Node>,
}

impl Draft {
    /// Of the unit that will begin at `place`.
    pub(super) fn new(place: Place) -> Self {
        Self { place, bytes: vec![0; HEADER_BYTES], documents: Vec::new(), nodes: Vec::new() }
    }

    /// Adds a document, before any node.
    pub(super) fn add_document(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        debug_assert!(self.nodes.is_empty(), "documents come first");
        let check = |ok: bool, name, value: usize, expected| {
            if ok { Ok(()) } else { Err(error::out_of_range(name, value, expected)) }
        };
        check(key.len() <= MAX_KEY_BYTES, "bytes of a key", key.len(), "at most 512")?;
        check(value.len() <= MAX_VALUE_BYTES, "bytes of a value", value.len(), "at most 1 MiB")?;
        self.documents.push(Entry { key: key.to_vec(), place: self.place + self.bytes.len() as u64 });
        document::encode(key, value, &mut self.bytes);
        Ok(())
    }

    /// Adds a node, after all documents, and tells its place.
    pub(super) fn add_node(&mut self, node: Node) -> Place {
        let blocks = self.bytes.len().div_ceil(BLOCK_BYTES) + self.nodes.len();
        self.nodes.push(node);
        self.place + (blocks * BLOCK_BYTES) as u64
    }

    /// The unit, ready to be written.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when it is too large.
    pub(super) fn seal(&self, tree_id: u64, epoch: u64, sequence: u64, root: Root) -> Result<AlignedBuffer> {
        let nodes_at = self.bytes.len().next_multiple_of(BLOCK_BYTES);
        let bytes = nodes_at + self.nodes.len() * BLOCK_BYTES;
        if bytes > MAX_UNIT_BYTES {
            let (name, expected) =
                ("bytes of an update with its nodes", "at most 64 MiB: put fewer documents at a time");
            return Err(error::out_of_range(name, bytes, expected));
        }
        let mut unit = AlignedBuffer::zeroed(bytes);
        unit[..self.bytes.len()].copy_from_slice(&self.bytes);
        for (number, node) in self.nodes.iter().enumerate() {
            let at = nodes_at + number * BLOCK_BYTES;
            node.encode(tree_id, self.place + at as u64, &mut unit[at..at + BLOCK_BYTES]);
        }
        let blocks = (unit.len() / BLOCK_BYTES) as u32;
        unit[4..8].copy_from_slice(&MAGIC.to_le_bytes());
        unit[16..20].copy_from_slice(&blocks.to_le_bytes());
        unit[20..24].copy_from_slice(&root.levels.to_le_bytes());
        for (at, number) in [(8, tree_id), (24, epoch), (32, sequence), (40, root.offset), (48, self.place)] {
            unit[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        seal(&mut unit);
        Ok(unit)
    }

    /// The nodes and their places.
    pub(super) fn into_nodes(self) -> impl Iterator<Item = (Place, Node)> {
        let first = self.place + self.bytes.len().next_multiple_of(BLOCK_BYTES) as u64;
        (first..).step_by(BLOCK_BYTES).zip(self.nodes)
    }
}

/// Documents within a unit: checksum, lengths, key, value.
pub(super) mod document {
    use super::*;

    const HEAD_BYTES: usize = 12;

    pub(in super::super) fn encode(key: &[u8], value: &[u8], bytes: &mut Vec<u8>) {
        let start = bytes.len();
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(key.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(value);
        seal(&mut bytes[start..]);
        // The next one's head lies within a block as well.
        let to_next = BLOCK_BYTES - bytes.len() % BLOCK_BYTES;
        if to_next < HEAD_BYTES {
            bytes.resize(bytes.len() + to_next, 0);
        }
    }

    /// Bytes of the document that begins here.
    pub(in super::super) fn total_bytes(bytes: &[u8]) -> Result<usize, &'static str> {
        let head = bytes.get(..HEAD_BYTES).ok_or("there is no document, so near to the end of a block")?;
        let (key_bytes, value_bytes) = (u32_at(head, 4) as usize, u32_at(head, 8) as usize);
        match key_bytes <= MAX_KEY_BYTES && value_bytes <= MAX_VALUE_BYTES {
            true => Ok(HEAD_BYTES + key_bytes + value_bytes),
            false => Err("there is no document"),
        }
    }

    /// The value of the document, which is that of `key` and has [`total_bytes`].
    pub(in super::super) fn decode<'b>(bytes: &'b [u8], key: &[u8]) -> Result<&'b [u8], &'static str> {
        if !is_sealed(bytes) {
            return Err("the document is damaged");
        }
        let (of, value) = bytes[HEAD_BYTES..].split_at(u32_at(bytes, 4) as usize);
        if of == key { Ok(value) } else { Err("the document is of another key") }
    }
}
