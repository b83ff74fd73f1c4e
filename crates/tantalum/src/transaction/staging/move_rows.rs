//! One step of the [applier](super::applier): staged rows, in key order, go to their table and out of the staging table, in one change
//! group.

use crate::{
    error::{Error, ErrorKind, Result},
    table::Table,
    transaction::{
        Content, Manager,
        append::{Part, PartTree, Purpose, ReadLeaf},
        large_values::{Writer, mark_key},
    },
    tree::{LeafCopy, LeafPosition, LeafValue, LeafWrite},
};
use std::sync::Arc;

use super::{StagedRow, StagedWrite, StagingTree, spill::is_too_much};
use crate::transaction::Value;

/// Leaves of the staging table that it reads, at most: many may be empty.
const GROUP_LEAVES: usize = 64;

/// Rows of a committed transaction that are moved to their table.
#[derive(Debug)]
pub(super) struct Moving {
    pub table: Table,
    pub staged: Arc<StagingTree>,
    /// All rows below this were moved since the database was opened.
    from: Vec<u8>,
    /// The most rows of a group.
    rows: usize,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// There is more.
    Moved,
    /// The staging table is empty.
    Done,
    /// The table was dropped, and its staging tables with it.
    Retired,
}

/// Rows that were read to be moved.
struct Read {
    rows: Vec<StagedRow>,
    leaves: Vec<ReadLeaf>,
    /// Where the next ones begin; `None` at the end.
    next: Option<Vec<u8>>,
}

impl Moving {
    pub fn new(table: Table, staged: Arc<StagingTree>, rows: usize) -> Self {
        Self { table, staged, from: Vec::new(), rows: rows.max(1) }
    }

    /// Moves some rows.
    ///
    /// # Errors
    /// Nothing is moved then.
    pub fn step(&mut self, manager: &Manager) -> Result<Step> {
        let retired = self.table.staging().retired.lock();
        if *retired {
            return Ok(Step::Retired);
        }
        manager.leave_log_space()?;
        // `None`: a commit has overwritten one of them meanwhile.
        let Some(Read { mut rows, leaves, next }) = self.read(manager.group_bytes())? else { return Ok(Step::Moved) };
        self.write_large(manager, &mut rows)?;
        if !rows.is_empty() {
            match self.move_rows(manager, &rows, &leaves) {
                Ok(true) => {}
                Ok(false) => return Ok(Step::Moved),
                Err(error) if is_too_much(&error) && rows.len() > 1 => {
                    self.rows = rows.len() / 2;
                    return Ok(Step::Moved);
                }
                Err(error) => return Err(error),
            }
        }
        match next {
            None => {
                // While the table cannot be dropped: either this lists the staging table no more and frees it, or the drop does.
                self.table.staging().remove(self.staged.id());
                Ok(Step::Done)
            }
            Some(next) => {
                self.from = next;
                Ok(Step::Moved)
            }
        }
    }

    /// Writes the large values that rows have, as versions before value trees staged them.
    fn write_large(&self, manager: &Manager, rows: &mut [StagedRow]) -> Result<()> {
        let limit = self.table.tree().inline_limit();
        for (_, write) in rows {
            if let StagedWrite::Put(Content::Bytes(value)) = write
                && value.len() > limit
            {
                let written = manager.write_value(&self.table, self.staged.id(), &mut &value[..], Writer::Applier)?;
                *write = StagedWrite::Put(Content::Large(written));
            }
        }
        Ok(())
    }

    /// Appends the group. False if a row has been changed since it was read.
    fn move_rows(&self, manager: &Manager, rows: &[StagedRow], read: &[ReadLeaf]) -> Result<bool> {
        let writes = rows
            .iter()
            .filter(|(_, write)| *write != StagedWrite::Undone)
            .map(|(key, write)| LeafWrite { key, value: value_of(write) })
            .collect();
        let removals = rows.iter().map(|(key, _)| LeafWrite { key, value: None }).collect();
        let mut parts = vec![
            Part { tree: PartTree::Target(self.table.clone()), writes },
            Part { tree: PartTree::Staging(Arc::clone(&self.staged)), writes: removals },
        ];
        // Rows of the table name them from now on.
        let references = rows.iter().filter_map(|(_, write)| write.reference());
        let mut marks: Vec<_> = references.map(|reference| mark_key(reference.id)).collect();
        marks.sort_unstable();
        if let Some(values) = self.table.values().filter(|_| !marks.is_empty()) {
            let writes = marks.iter().map(|key| LeafWrite { key, value: None }).collect();
            parts.push(Part { tree: PartTree::Values(values), writes });
        }
        let purpose = Purpose::Move { position: self.staged.position(), read };
        Ok(manager.append(&parts, &purpose)?.is_some())
    }

    #[cold]
    fn damaged(&self, key: &[u8]) -> Error {
        let what = "names a large value as no staged row does; restore the database from a backup";
        Error::new(
            ErrorKind::Corrupt,
            format!("the row \"{}\" staged for table {:?} {what}", key.escape_ascii(), self.table.name()),
        )
    }

    /// The next rows. `None` if one went while it was read.
    fn read(&self, group_bytes: usize) -> Result<Option<Read>> {
        let (mut rows, mut leaves, mut bytes) = (Vec::new(), Vec::new(), 0);
        let (mut copy, mut from) = (LeafCopy::default(), self.from.clone());
        while leaves.len() < GROUP_LEAVES {
            let left = self.rows - rows.len();
            let look = self.staged.tree().read_leaf(LeafPosition::Containing(&from), |leaf| {
                let start = leaf.lower_bound(&from)?;
                let entries = start..leaf.len().min(start + left);
                let is_whole = entries.end == leaf.len();
                copy.fill(&leaf, entries.clone())?;
                let upper = leaf.upper().map(<[u8]>::to_vec);
                Ok::<_, crate::error::Error>((entries, is_whole, upper, (leaf.page_id(), leaf.lsn())))
            });
            let (entries, is_whole, upper, leaf) = look??;
            copy.read_large(self.staged.tree())?;
            leaves.push(leaf);
            for entry in entries.clone() {
                let (key, row) = copy.entry(entry)?;
                let key = Value::from(key);
                let row = row.bytes().ok_or_else(|| self.damaged(&key))?;
                let Some(write) = StagedWrite::decode(row.into())? else { return Ok(None) };
                bytes += key.len() + write.value_bytes();
                let behind = [&key[..], &[0]].concat();
                rows.push((key, write));
                if bytes >= group_bytes && (entry + 1 < entries.end || !is_whole) {
                    return Ok(Some(Read { rows, leaves, next: Some(behind) }));
                }
            }
            if !is_whole {
                let behind = rows.last().map(|(key, _)| [&key[..], &[0]].concat());
                return Ok(Some(Read { rows, leaves, next: behind }));
            }
            let Some(upper) = upper else { return Ok(Some(Read { rows, leaves, next: None })) };
            from = upper;
            if bytes >= group_bytes || rows.len() >= self.rows {
                break;
            }
        }
        Ok(Some(Read { rows, leaves, next: Some(from) }))
    }
}

fn value_of(write: &StagedWrite) -> Option<LeafValue<'_>> {
    match write {
        StagedWrite::Put(content) => Some(content.as_leaf()),
        StagedWrite::Delete | StagedWrite::Undone => None,
    }
}
