//! One step of the [applier](super::applier): staged rows, in key order, go to their table and out of their staging tables, in one
//! change group.

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
use std::{
    cell::Cell,
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use super::{StagedRow, StagedWrite, StagingTree, gain::Moved, spill::is_too_much};
use crate::transaction::Value;

/// Leaves of the staging table that it reads, at most: many may be empty.
const GROUP_LEAVES: usize = 64;
/// When the next rows have changed so often between being read and being moved, the applier rests. Commits change them now and then; a leaf
/// from before a split makes it look so every time.
const MOST_CHANGES: u32 = 100;

/// Rows of a committed transaction, or of change buffers, that are moved to their table.
#[derive(Debug)]
pub(super) struct Moving {
    pub table: Table,
    /// Where they are, the oldest first.
    pub sources: Vec<Arc<StagingTree>>,
    /// All rows below this were moved since the database was opened.
    from: Vec<u8>,
    /// The most rows of a group.
    rows: usize,
    pub moved: Moved,
    /// How often the next rows had changed since they were read when they were to be moved.
    changes: u32,
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
    /// What becomes of their keys.
    rows: BTreeMap<Value, StagedWrite>,
    /// The keys that each source has, as many as there are sources.
    keys: Vec<Vec<Value>>,
    leaves: Vec<ReadLeaf>,
    /// For each source, the last key of each leaf of which all rows were read.
    ends: Vec<Vec<Value>>,
    /// Where the next ones begin; `None` at the end.
    next: Option<Vec<u8>>,
}

/// Rows of one source.
struct ReadSource {
    rows: Vec<StagedRow>,
    ends: Vec<Value>,
    next: Option<Vec<u8>>,
}

impl Moving {
    /// Rows of staging tables, the oldest first.
    pub fn new(table: Table, sources: Vec<Arc<StagingTree>>, rows: usize) -> Self {
        assert!(sources.is_sorted_by_key(|source| source.position()), "later rows replace earlier ones");
        Self { table, sources, from: Vec::new(), rows: rows.max(1), moved: Moved::default(), changes: 0 }
    }

    /// Where the first of the sources was committed.
    pub fn position(&self) -> u64 {
        self.sources[0].position()
    }

    /// Moves some rows.
    ///
    /// # Errors
    /// Nothing is moved then.
    pub fn step(&mut self, manager: &Manager) -> Result<Step> {
        let table = self.table.clone();
        let retired = table.staging().retired.lock();
        if *retired {
            return Ok(Step::Retired);
        }
        manager.leave_log_space()?;
        // `None`: a commit has overwritten one of them meanwhile.
        let Some(mut read) = self.read(manager.group_bytes())? else { return self.changed() };
        self.write_large(manager, &mut read.rows)?;
        if !read.rows.is_empty() {
            match self.move_rows(manager, &read) {
                Ok(Some(leaves)) => {
                    self.moved.rows += read.rows.len() as u64;
                    self.moved.leaves += leaves;
                    self.changes = 0;
                    self.free_leaves(&read);
                }
                Ok(None) => return self.changed(),
                Err(error) if is_too_much(&error) && self.rows > 1 && read.rows.len() > 1 => {
                    self.rows = self.rows.min(read.rows.len()) / 2;
                    return Ok(Step::Moved);
                }
                Err(error) => return Err(error),
            }
        }
        match read.next {
            None => {
                // While the table cannot be dropped: either this lists the staging tables no more and frees them, or the drop does.
                self.sources.iter().for_each(|source| self.table.staging().remove(source.id()));
                Ok(Step::Done)
            }
            Some(next) => {
                self.from = next;
                Ok(Step::Moved)
            }
        }
    }

    /// Commits have changed the next rows meanwhile: they are read anew.
    fn changed(&mut self) -> Result<Step> {
        self.changes += 1;
        if self.changes < MOST_CHANGES {
            return Ok(Step::Moved);
        }
        self.changes = 0;
        let what = format!(
            "the staged rows of table {:?} from the key \"{}\" on",
            self.table.name(),
            self.from.escape_ascii()
        );
        let how_often = format!("changed each of {MOST_CHANGES} times between being read and being moved");
        Err(Error::new(ErrorKind::Corrupt, format!("{what} {how_often}; if they do so again, check the database")))
    }

    /// Writes the large values that rows have, as versions before value trees staged them.
    fn write_large(&self, manager: &Manager, rows: &mut BTreeMap<Value, StagedWrite>) -> Result<()> {
        let limit = self.table.tree().inline_limit();
        for write in rows.values_mut() {
            if let StagedWrite::Put(Content::Bytes(value)) = write
                && value.len() > limit
            {
                let written =
                    manager.write_value(&self.table, self.sources[0].id(), &mut &value[..], Writer::Applier)?;
                *write = StagedWrite::Put(Content::Large(written));
            }
        }
        Ok(())
    }

    /// Appends the group. Returns the leaves that the rows came to; `None` if a row has been changed since it was read.
    fn move_rows(&self, manager: &Manager, read: &Read) -> Result<Option<u64>> {
        let Read { rows, keys, leaves, .. } = read;
        let writes = rows
            .iter()
            .filter(|(_, write)| **write != StagedWrite::Undone)
            .map(|(key, write)| LeafWrite { key, value: value_of(write) })
            .collect();
        let mut parts = vec![Part { tree: PartTree::Target(self.table.clone()), writes }];
        for (source, keys) in self.sources.iter().zip(keys) {
            let writes = keys.iter().map(|key| LeafWrite { key, value: None }).collect();
            parts.push(Part { tree: PartTree::Staging(Arc::clone(source)), writes });
        }
        // Rows of the table name them from now on.
        let references = rows.values().filter_map(StagedWrite::reference);
        let mut marks: Vec<_> = references.map(|reference| mark_key(reference.id)).collect();
        marks.sort_unstable();
        if let Some(values) = self.table.values().filter(|_| !marks.is_empty()) {
            let writes = marks.iter().map(|key| LeafWrite { key, value: None }).collect();
            parts.push(Part { tree: PartTree::Values(values), writes });
        }
        let leaves_changed = Cell::new(0);
        let purpose = Purpose::Move { position: self.position(), read: leaves, leaves: &leaves_changed };
        if manager.append(&parts, &purpose)?.is_none() {
            return Ok(None);
        }
        manager.counters.rows_moved.fetch_add(rows.len() as u64, Ordering::Relaxed);
        Ok(Some(leaves_changed.get()))
    }

    /// Frees leaves that have no rows any more, so that their pages serve others before they are stored. The group stands, whatever comes of
    /// it.
    fn free_leaves(&self, read: &Read) {
        for (source, ends) in self.sources.iter().zip(&read.ends) {
            for end in ends {
                if let Err(error) = source.tree().free_empty_leaf(end) {
                    tantalum_rt::tracing::warn!(table = self.table.name(), %error, "an empty leaf of staged rows could not be freed");
                }
            }
        }
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
        let (count, mut leaves) = (self.sources.len(), Vec::new());
        let mut read = Vec::with_capacity(count);
        for source in &self.sources {
            match self.read_source(source, group_bytes / count, (self.rows / count).max(1), &mut leaves)? {
                Some(rows) => read.push(rows),
                None => return Ok(None),
            }
        }
        // All rows below this were read of each source.
        let next = read.iter().filter_map(|source| source.next.clone()).min();
        let (mut rows, mut keys, mut ends) = (BTreeMap::new(), Vec::with_capacity(count), Vec::with_capacity(count));
        let is_below = |key: &Value| next.as_ref().is_none_or(|next| **key < **next);
        for ReadSource { rows: of_source, ends: mut of_leaves, .. } in read {
            of_leaves.retain(is_below);
            ends.push(of_leaves);
            let below: Vec<_> = of_source.into_iter().take_while(|(key, _)| is_below(key)).collect();
            keys.push(below.iter().map(|(key, _)| key.clone()).collect());
            // A later one replaces an earlier one.
            rows.extend(below);
        }
        Ok(Some(Read { rows, keys, leaves, ends, next }))
    }

    /// The next rows of a source, and the leaves that they are in. `None` if one went while it was read.
    fn read_source(
        &self,
        source: &StagingTree,
        group_bytes: usize,
        most_rows: usize,
        leaves: &mut Vec<ReadLeaf>,
    ) -> Result<Option<ReadSource>> {
        let (mut rows, mut ends, mut bytes, first_leaf) = (Vec::new(), Vec::new(), 0, leaves.len());
        let (mut copy, mut from) = (LeafCopy::default(), self.from.clone());
        while leaves.len() < first_leaf + GROUP_LEAVES {
            let left = most_rows - rows.len();
            let look = source.tree().read_leaf(LeafPosition::Containing(&from), |leaf| {
                let start = leaf.lower_bound(&from)?;
                let entries = start..leaf.len().min(start + left);
                let is_whole = entries.end == leaf.len();
                copy.fill(&leaf, entries.clone())?;
                let upper = leaf.upper().map(<[u8]>::to_vec);
                Ok::<_, crate::error::Error>((entries, is_whole, upper, (leaf.page_id(), leaf.lsn())))
            });
            let (entries, is_whole, upper, leaf) = look??;
            copy.read_large(source.tree())?;
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
                    return Ok(Some(ReadSource { rows, ends, next: Some(behind) }));
                }
            }
            if !is_whole {
                let behind = rows.last().map(|(key, _)| [&key[..], &[0]].concat());
                return Ok(Some(ReadSource { rows, ends, next: behind }));
            }
            if !entries.is_empty() {
                ends.extend(rows.last().map(|(key, _)| key.clone()));
            }
            let Some(upper) = upper else { return Ok(Some(ReadSource { rows, ends, next: None })) };
            from = upper;
            if bytes >= group_bytes || rows.len() >= most_rows {
                break;
            }
        }
        Ok(Some(ReadSource { rows, ends, next: Some(from) }))
    }
}

fn value_of(write: &StagedWrite) -> Option<LeafValue<'_>> {
    match write {
        StagedWrite::Put(content) => Some(content.as_leaf()),
        StagedWrite::Delete | StagedWrite::Undone => None,
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Simulation;

    use super::*;
    use crate::{StoreKind, transaction::versions::tests::database};

    fn write(manager: &Manager, staged: &Arc<StagingTree>, keys: impl Iterator<Item = u32>) {
        let keys: Vec<_> = keys.map(u32::to_be_bytes).collect();
        let row = StagedWrite::encode_write(Some(LeafValue::Bytes(&[7; 100])));
        let writes = keys.iter().map(|key| LeafWrite { key, value: Some(LeafValue::Bytes(&row)) }).collect();
        manager.append(&[Part { tree: PartTree::Buffer(Arc::clone(staged)), writes }], &Purpose::Applier).unwrap();
    }

    /// A leaf that has the rows which it had before it was split, as a device leaves it that loses a write.
    #[test]
    fn rows_that_are_never_where_they_were_read_are_an_error() {
        let run = || {
            let db = database(StoreKind::InPlace);
            let table = db.table("t").unwrap();
            let manager = db.manager();
            assert!(manager.make_change_buffer(&table).unwrap());
            let staged = table.staging().committed(u64::MAX)[0].1.clone();
            write(manager, &staged, (0..60).map(|number| 100 * number));
            let first = || staged.tree().read_leaf(LeafPosition::First, |leaf| leaf.page_id()).unwrap();
            let page = db.pool().pin(first()).unwrap();
            let before = page.read().to_vec();
            write(manager, &staged, (0..20).map(|number| 100 * number + 50));
            assert_eq!(first(), page.id(), "the rows behind it have gone to another leaf");
            let mut guard = page.write();
            let lsn = guard.lsn();
            guard.redo(lsn).copy_from_slice(&before);
            drop(guard);

            // The first rows go, as far as searches find them there. A walk from the beginning still comes to the others.
            let moving = |rows| Moving::new(table.clone(), vec![Arc::clone(&staged)], rows);
            let mut first_rows = moving(4);
            (0..6).for_each(|_| assert_eq!(first_rows.step(manager).unwrap(), Step::Moved));
            let mut moving = moving(1000);
            let ended =
                (0..10 * MOST_CHANGES).map(|_| moving.step(manager)).find(|step| !matches!(step, Ok(Step::Moved)));
            let error = ended.expect("it does not go on for ever").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        };
        Simulation::new(1).run(run).expect_finished();
    }
}
