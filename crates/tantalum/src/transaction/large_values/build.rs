//! The large values of a table that is loaded in bulk: its value tree, which is empty, is built anew.

use std::{io::Read, sync::Arc};

use tantalum_log::Lsn;

use super::{PIECE, ValueTree, piece_key};
use crate::{
    error::Result,
    limits::{MAX_VALUE_BYTES, value_too_large},
    space::UnnamedPages,
    transaction::streaming::source_error,
    tree::{BuiltRoot, LeafValue, Reference, TreeBuilder},
};

/// Large values that are being built.
pub(in crate::transaction) struct BuiltValues {
    values: Arc<ValueTree>,
    tree: TreeBuilder,
    next_id: u64,
    born: u64,
    /// The piece that was read last.
    piece: Vec<u8>,
}

impl BuiltValues {
    /// Begins to build a value tree, which is empty, when the log ended at `end`.
    pub fn begin(values: Arc<ValueTree>, pages: &mut UnnamedPages, end: Lsn) -> Result<Self> {
        values.tree.set_building(pages.lsn());
        let mut tree = TreeBuilder::new(values.tree.owner(), values.tree.page_bytes(), pages.lsn());
        // Marks have leaves of their own.
        tree.divide(pages, &[PIECE])?;
        let next_id = values.next_unused_id()?;
        Ok(Self { values, tree, next_id, born: end.get(), piece: Vec::new() })
    }

    /// Adds a value, which is all that the source has.
    pub fn add(&mut self, pages: &mut UnnamedPages, source: &mut dyn Read) -> Result<Reference> {
        let id = self.next_id;
        self.next_id += 1;
        let mut room = self.values.room_beside(self.tree.free_bytes());
        let mut length = 0;
        loop {
            self.piece.clear();
            let read = source.take(room as u64).read_to_end(&mut self.piece);
            length += read.map_err(|error| source_error(length, error))?;
            if length > MAX_VALUE_BYTES {
                return Err(value_too_large());
            }
            if self.piece.is_empty() {
                return Ok(Reference { id, length: length as u32, born: self.born });
            }
            self.tree.add(pages, &piece_key(id, length as u32), LeafValue::Bytes(&self.piece))?;
            room = self.values.piece_bytes();
        }
    }

    /// Writes what is left. Returns the tree, the root that it is to have, and the number of the next value.
    pub fn finish(self, pages: &mut UnnamedPages) -> Result<(Arc<ValueTree>, BuiltRoot, u64)> {
        Ok((self.values, self.tree.finish(pages)?, self.next_id))
    }
}

impl ValueTree {
    /// As [`new_id`](Self::new_id), but a later call gives it again, unless [`set_next_id`](Self::set_next_id) was called before.
    fn next_unused_id(&self) -> Result<u64> {
        let next = self.next_id.lock();
        next.map_or_else(|| self.next_id(), Ok)
    }

    /// The number of the next value, which is above those of all that are there.
    pub(in crate::transaction) fn set_next_id(&self, id: u64) {
        *self.next_id.lock() = Some(id);
    }
}
