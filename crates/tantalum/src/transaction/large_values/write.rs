//! Writing large values: in the group of their commit, or piece by piece before it, with a mark.

use std::{io::Read, sync::Arc};

use tantalum_store::TableId;

use super::{super::streaming::source_error, Mark, Piece, PieceKey, ValueTree, mark_key, piece_key};
use crate::{
    error::Result,
    limits::{self, MAX_VALUE_BYTES},
    table::Table,
    transaction::{
        Manager,
        append::{Part, PartTree, Purpose},
        staging::is_too_much,
    },
    tree::{LeafValue, LeafWrite, Reference},
};

/// Rows of a value tree that go there in one group.
type Rows<'a> = Vec<(&'a [u8], &'a [u8])>;

/// For what a large value is written before its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::transaction) enum Writer {
    /// A running transaction: each group is an operation, so that closing ends it.
    Running,
    /// A commit, which is one.
    Committing,
    /// The applier, which must not wait for itself.
    Applier,
}

impl Writer {
    fn purpose(self) -> Purpose<'static> {
        if self == Self::Applier { Purpose::Applier } else { Purpose::Staging }
    }
}

/// Large values of a table, cut into pieces for one group.
pub(in crate::transaction) struct CutValues<'v> {
    values: Arc<ValueTree>,
    references: Vec<Reference>,
    pieces: Vec<Piece<'v>>,
    /// What is free in the leaf that the last value begins, for the next.
    room: Option<usize>,
}

impl<'v> CutValues<'v> {
    pub fn new(values: Arc<ValueTree>) -> Self {
        Self { values, references: Vec::new(), pieces: Vec::new(), room: None }
    }

    /// Numbers a value that is written as a whole. `log_end` is not behind the end of the log.
    pub fn add(&mut self, manager: &Manager, value: &'v [u8], log_end: u64) -> Result<()> {
        let id = manager.retry_when_full(|| self.values.new_id())?;
        let whole = self.values.piece_bytes();
        let mut next = match self.room {
            Some(room) => room,
            None => self.values.first_piece_bytes()?,
        };
        let mut end = 0;
        while end < value.len() {
            let begin = end;
            end = value.len().min(begin + next);
            self.pieces.push((piece_key(id, end as u32), &value[begin..end]));
            next -= end - begin;
            if next == 0 {
                next = whole;
            }
        }
        self.room = Some(self.values.room_beside(next));
        self.references.push(Reference { id, length: value.len() as u32, born: log_end });
        Ok(())
    }

    /// What the rows have of the values, in the order in which these were added.
    pub fn references(&self) -> &[Reference] {
        &self.references
    }

    pub fn part(&self) -> Part<'_> {
        let writes = self.pieces.iter().map(|(key, piece)| LeafWrite { key, value: Some(LeafValue::Bytes(piece)) });
        Part { tree: PartTree::Values(Arc::clone(&self.values)), writes: writes.collect() }
    }
}

impl Manager {
    /// The value tree of a table, made if there is none.
    pub(in crate::transaction) fn values_of(&self, table: &Table, writer: Writer) -> Result<Arc<ValueTree>> {
        if let Some(values) = table.values() {
            return Ok(values);
        }
        let _operation = if writer == Writer::Running { Some(self.core().begin_operation()?) } else { None };
        let make = || table.make_values(|| self.core().catalog.create_values(table.id()).map(ValueTree::new));
        self.retry_when_full_for(&writer.purpose(), make)
    }

    /// Writes a value from a source, in as many groups as it takes. Until the mark goes, it stays while the staging table `owner` is
    /// there.
    ///
    /// # Errors
    /// [`TooLarge`](ErrorKind::TooLarge), and what the source reports. The pieces that were written go with the staging table.
    pub(in crate::transaction) fn write_value(
        &self,
        table: &Table,
        owner: TableId,
        source: &mut dyn Read,
        writer: Writer,
    ) -> Result<Reference> {
        if writer != Writer::Applier {
            // Values of transactions that are rolled back would else be written faster than they are deleted.
            self.wait_for_reaper(1);
        }
        let values = self.values_of(table, writer)?;
        let id = {
            let _operation = if writer == Writer::Running { Some(self.core().begin_operation()?) } else { None };
            self.retry_when_full_for(&writer.purpose(), || values.new_id())?
        };
        let born = self.core().pool.end().get();
        let mark = (mark_key(id), Mark { owner, born }.encode());
        let whole = values.piece_bytes();
        let most = (self.group_bytes() / whole).min(self.group_rows().saturating_sub(2)).max(1);
        let (mut length, mut buffer, mut keys) = (0, Vec::new(), Vec::<PieceKey>::new());
        loop {
            let first = if length == 0 { values.first_piece_bytes()? } else { whole };
            let wanted = first + (most - 1) * whole;
            buffer.clear();
            let read = source.take(wanted as u64).read_to_end(&mut buffer);
            read.map_err(|error| source_error(length + buffer.len(), error))?;
            if length + buffer.len() > MAX_VALUE_BYTES {
                return Err(limits::value_too_large());
            }
            let (head, rest) = buffer.split_at(first.min(buffer.len()));
            keys.clear();
            let mut end = length;
            let pieces: Vec<&[u8]> =
                [head].into_iter().chain(rest.chunks(whole)).filter(|part| !part.is_empty()).collect();
            keys.extend(pieces.iter().map(|part| {
                end += part.len();
                piece_key(id, end as u32)
            }));
            let mut rows = Rows::new();
            if length == 0 {
                rows.push((&mark.0, &mark.1));
            }
            rows.extend(keys.iter().map(|key| &key[..]).zip(pieces));
            if !rows.is_empty() {
                let _operation = if writer == Writer::Running { Some(self.core().begin_operation()?) } else { None };
                self.leave_log_space()?;
                self.append_pieces(&values, &rows, &writer.purpose())?;
            }
            length += buffer.len();
            if buffer.len() < wanted {
                return Ok(Reference { id, length: length as u32, born });
            }
        }
    }

    /// Writes rows of a value tree, in as many groups as it takes.
    fn append_pieces(&self, values: &Arc<ValueTree>, rows: &[(&[u8], &[u8])], purpose: &Purpose<'_>) -> Result<()> {
        let writes = rows.iter().map(|&(key, row)| LeafWrite { key, value: Some(LeafValue::Bytes(row)) }).collect();
        let part = Part { tree: PartTree::Values(Arc::clone(values)), writes };
        match self.append(&[part], purpose) {
            Err(error) if is_too_much(&error) && rows.len() > 1 => {
                let (first, second) = rows.split_at(rows.len() / 2);
                self.append_pieces(values, first, purpose)?;
                self.append_pieces(values, second, purpose)
            }
            appended => appended.map(drop),
        }
    }
}
