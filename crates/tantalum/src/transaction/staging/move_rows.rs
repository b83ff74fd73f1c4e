//! One step of the [applier](super::applier): staged rows, in key order, go to their table and out of the staging table, in one change
//! group.

use crate::{
    error::Result,
    table::Table,
    transaction::{
        Manager,
        append::{Part, PartTree, Purpose, ReadLeaf},
    },
    tree::{LeafCopy, LeafPosition, LeafWrite},
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
        let Some(Read { rows, leaves, next }) = self.read(manager.group_bytes())? else { return Ok(Step::Moved) };
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
            None => Ok(Step::Done),
            Some(next) => {
                self.from = next;
                Ok(Step::Moved)
            }
        }
    }

    /// Appends the group. False if a row has been changed since it was read.
    fn move_rows(&self, manager: &Manager, rows: &[StagedRow], read: &[ReadLeaf]) -> Result<bool> {
        let writes = rows
            .iter()
            .filter(|(_, write)| *write != StagedWrite::Undone)
            .map(|(key, write)| LeafWrite { key, value: value_of(write) })
            .collect();
        let removals = rows.iter().map(|(key, _)| LeafWrite { key, value: None }).collect();
        let parts = [
            Part { tree: PartTree::Target(self.table.clone()), writes },
            Part { tree: PartTree::Staging(Arc::clone(&self.staged)), writes: removals },
        ];
        let purpose = Purpose::Move { position: self.staged.position(), read };
        Ok(manager.append(&parts, &purpose)?.is_some())
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
                let Some(write) = StagedWrite::decode(row.bytes().into())? else { return Ok(None) };
                bytes += key.len() + value_of(&write).map_or(0, <[u8]>::len);
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

fn value_of(write: &StagedWrite) -> Option<&[u8]> {
    match write {
        StagedWrite::Put(value) => Some(value),
        StagedWrite::Delete | StagedWrite::Undone => None,
    }
}
