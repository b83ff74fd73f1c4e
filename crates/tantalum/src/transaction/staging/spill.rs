//! Spilling: the writes of a transaction that exceed its memory, or one record of the log, go to staging tables.
//!
//! Rows are inserted in key order, in small change groups that need not be durable. Afterwards the keys are locked by being staged,
//! so their locks in memory go.

use std::{
    collections::BTreeMap,
    io::Read,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_store::TableId;

use super::{ROW_HEAD_BYTES, StagedWrite, Stager, StagingTree, feed::PartWriter, undo::UndoLog};
use crate::{
    db::{StagingRow, StagingState},
    error::{Error, ErrorKind, Result},
    table::Table,
    transaction::{
        Content, Manager, Touched, TransactionState, Value,
        append::{Part, PartTree, Purpose},
        large_values::Writer,
        locks::TransactionId,
        table_map::TableMap,
    },
    tree::{LeafValue, LeafWrite, Tree},
};

/// Bytes of rows in one change group, about.
const GROUP_BYTES: usize = 64 << 10;
/// A group writes to so many leaves at most, in the worst case: a part of the buffer pool.
const GROUP_POOL_PART: usize = 8;

/// What a transaction has staged.
#[derive(Debug)]
pub(in crate::transaction) struct Staged {
    stager: Arc<Stager>,
    tables: BTreeMap<TableId, Arc<StagingTree>>,
    pub(super) undo: Option<UndoLog>,
    /// Bytes of keys and values that were put.
    put_bytes: u64,
}

/// An encoded row of a staging table.
pub(super) type EncodedRow = (Value, Vec<u8>);

impl Staged {
    fn new(owner: TransactionId) -> Self {
        Self { stager: Arc::new(Stager::new(owner)), tables: BTreeMap::new(), undo: None, put_bytes: 0 }
    }

    pub fn tree(&self, table: TableId) -> Option<&StagingTree> {
        self.tables.get(&table).map(|staged| &**staged)
    }

    /// What the transaction has staged for a key: `None` if nothing, `Some(None)` if it has deleted it.
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Option<Content>>> {
        let Some(staged) = self.tree(table) else { return Ok(None) };
        Ok(staged.get(key)?.and_then(StagedWrite::made))
    }

    /// Whether the key is staged, which locks it.
    pub fn has(&self, table: TableId, key: &[u8]) -> Result<bool> {
        self.tree(table).map_or(Ok(false), |staged| Ok(staged.get(key)?.is_some()))
    }

    /// Ends the transaction: what is committed is moved in the background, and what is not is dropped there.
    pub fn end(self, manager: &Arc<Manager>, touched: &TableMap<Touched>) {
        let is_committed = self.stager.position.load(Ordering::Acquire) > 0;
        let (mut apply, mut drop) = (Vec::new(), Vec::new());
        for (id, staged) in self.tables {
            let table = touched[id].table.table().clone();
            if is_committed {
                apply.push((table, staged));
            } else {
                table.staging().remove(staged.id());
                manager.look_for_dead_values(&table);
                drop.push(staged);
            }
        }
        drop.extend(self.undo.map(UndoLog::into_tree));
        self.stager.end();
        manager.apply_staged(apply, drop);
    }
}

impl TransactionState {
    /// Moves all writes from memory to staging tables.
    ///
    /// # Errors
    /// The transaction is then what it was; some of its writes are staged as well.
    pub(in crate::transaction) fn spill(&mut self) -> Result<()> {
        let manager = Arc::clone(self.manager());
        let tables: Vec<TableId> = self.writes.tables().map(|(id, _)| id).collect();
        for id in tables {
            let tree = self.staging_tree(id)?;
            let mut group = Group::new(&manager, &tree, !self.is_committing);
            let rows = self.writes.rows(id).expect("it has writes");
            let mut put_bytes = 0;
            for (key, made) in rows.iter() {
                put_bytes += made.as_ref().map_or(0, |content| key.len() + content.memory_bytes()) as u64;
                let limit = tree.inline_limit() - ROW_HEAD_BYTES;
                let made = made.as_ref().map(|content| self.small_enough(id, content, limit)).transpose()?;
                group.push(key.clone(), StagedWrite::encode(Some(&made)))?;
            }
            group.append()?;
            self.staged.as_mut().expect("it has a staging table").put_bytes += put_bytes;
            let touched = self.touched.get_mut(id).expect("a written table was touched");
            let locks = touched.table.table().locks();
            let owner = self.id;
            // Where another transaction waits for the lock, it stays.
            touched.keys.retain(|key| rows.get(key).is_none() || !locks.forget(owner, key));
            touched.keys.shrink_to_fit();
        }
        self.spill_undo(&manager)?;
        self.writes.clear();
        Ok(())
    }

    /// What a staged row has of a value: one of more bytes than the limit is written to the table's value tree.
    pub(super) fn small_enough(&self, table: TableId, content: &Content, limit: usize) -> Result<Content> {
        match content {
            Content::Bytes(value) if value.len() > limit => {
                let staged = self.staged.as_ref().and_then(|staged| staged.tree(table)).expect("it was made");
                let table = self.touched[table].table.table();
                let written = self.manager().write_value(table, staged.id(), &mut &value[..], self.writer())?;
                Ok(Content::Large(written))
            }
            small => Ok(small.clone()),
        }
    }

    /// Writes a large value for a row that is written next.
    pub(in crate::transaction) fn write_large(&mut self, table: &Table, source: &mut dyn Read) -> Result<Content> {
        let owner = self.staging_tree(table.id())?.owner();
        Ok(Content::Large(self.manager().write_value(table, owner, source, self.writer())?))
    }

    fn writer(&self) -> Writer {
        if self.is_committing { Writer::Committing } else { Writer::Running }
    }

    /// The staging table for a table that was touched, made if there is none.
    pub(super) fn staging_tree(&mut self, table: TableId) -> Result<Tree> {
        let manager = Arc::clone(self.manager());
        let staged = self.staged.get_or_insert_with(|| Staged::new(self.id));
        if let Some(staged) = staged.tables.get(&table) {
            return Ok(staged.tree().clone());
        }
        let tree = manager.create_staging(table, !self.is_committing)?;
        let of_table = Arc::new(StagingTree::new(tree.clone(), &staged.stager));
        self.touched[table].table.table().staging().add(Arc::clone(&of_table));
        staged.tables.insert(table, of_table);
        Ok(tree)
    }

    /// Stages what is left in memory, and commits all. Returns the end of the record, which is not durable yet.
    ///
    /// # Errors
    /// The transaction is then not committed.
    pub(in crate::transaction) fn commit_staged(&mut self) -> Result<Lsn> {
        self.spill()?;
        let manager = Arc::clone(self.manager());
        let core = manager.core();
        manager.wait_for_moved_rows();
        let staged = self.staged.as_ref().expect("there was something to stage");
        // So that nothing fails for want of room after the commit.
        let pages = staged.put_bytes.div_ceil(u64::from(core.superblock.page_size));
        manager.retry_when_full(|| core.space.ensure_free(pages))?;
        let feed = self.log_staged_changes(&manager)?;
        let _order = manager.staged_commits.lock();
        let order = core.pool.end().get();
        let row = |(target, staged): (&TableId, &Arc<StagingTree>)| {
            let state = StagingState::Committed(order);
            let row = StagingRow { state, id: staged.id(), root: staged.tree().root(), target: *target };
            (row.key(), row.encode())
        };
        let mut rows: Vec<_> = staged.tables.iter().map(row).collect();
        rows.sort();
        let writes = rows.iter().map(|(key, row)| LeafWrite { key, value: Some(LeafValue::Bytes(row)) }).collect();
        let part = Part { tree: PartTree::Own(core.catalog.tree().clone()), writes };
        let committed = |end: Lsn| staged.stager.commit(end);
        let end = manager.append(&[part], &Purpose::CommitOfStaged(&committed, &feed))?;
        manager.counters.staged_commits.fetch_add(1, Ordering::Relaxed);
        Ok(end.expect("a commit moves no rows"))
    }
}

impl TransactionState {
    /// Logs what is staged for tables with a change feed. Returns what the record of the commit says to its readers.
    fn log_staged_changes(&self, manager: &Manager) -> Result<Vec<u8>> {
        let staged = self.staged.as_ref().expect("all is staged");
        let mut parts = PartWriter::new(manager, self.id.0);
        for (id, staged) in &staged.tables {
            let table = self.touched[*id].table.table();
            if table.has_change_feed() && !self.changes_no_rows {
                parts.append_staged(table, staged)?;
            }
        }
        Ok(parts.finish())
    }
}

impl Manager {
    /// Makes a staging table. As an operation of its own if `is_operation`, so that closing ends it.
    pub(super) fn create_staging(&self, target: TableId, is_operation: bool) -> Result<Tree> {
        let _operation = if is_operation { Some(self.core().begin_operation()?) } else { None };
        self.retry_when_full(|| self.core().catalog.create_staging(target).map(|(_, tree)| tree))
    }

    /// Waits until a good part of the log is free: what takes much of it leaves the rest to small commits.
    pub(in crate::transaction) fn leave_log_space(&self) -> Result<()> {
        let log = self.core().log();
        if log.end_lsn().get().saturating_sub(log.checkpoint_lsn().get()) > self.log_share_bytes() {
            self.core().pool.checkpoint()?;
        }
        Ok(())
    }

    /// Bytes of rows that are moved or staged in one group, about.
    pub(in crate::transaction) fn group_bytes(&self) -> usize {
        GROUP_BYTES.min(self.write_limit().bytes / 4)
    }

    /// The most rows of a group that moves or stages them.
    pub(in crate::transaction) fn group_rows(&self) -> usize {
        let frames = self.core().settings.buffer_pool_bytes() / u64::from(self.core().superblock.page_size);
        usize::try_from(frames).unwrap_or(usize::MAX) / GROUP_POOL_PART
    }
}

/// Rows that go to a staging table in one change group.
pub(super) struct Group<'a> {
    manager: &'a Manager,
    tree: &'a Tree,
    is_operation: bool,
    rows: Vec<EncodedRow>,
    bytes: usize,
}

impl<'a> Group<'a> {
    pub fn new(manager: &'a Manager, tree: &'a Tree, is_operation: bool) -> Self {
        Self { manager, tree, is_operation, rows: Vec::new(), bytes: 0 }
    }

    /// Adds a row behind all others, and appends the group if it is large enough.
    pub fn push(&mut self, key: Value, row: Vec<u8>) -> Result<()> {
        self.bytes += key.len() + row.len();
        self.rows.push((key, row));
        if self.bytes < self.manager.group_bytes() && self.rows.len() < self.manager.group_rows() {
            return Ok(());
        }
        self.append()
    }

    /// Appends what is left.
    pub fn append(&mut self) -> Result<()> {
        if !self.rows.is_empty() {
            let _operation = if self.is_operation { Some(self.manager.core().begin_operation()?) } else { None };
            self.manager.leave_log_space()?;
            append_rows(self.manager, self.tree, &self.rows)?;
        }
        self.rows.clear();
        self.bytes = 0;
        Ok(())
    }
}

/// Whether a group has more pages than the pool has room for, or its record more bytes than the log takes.
pub(in crate::transaction) fn is_too_much(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::TransactionTooLarge | ErrorKind::TooLarge)
}

/// Writes rows to a staging table, in as many groups as it takes.
fn append_rows(manager: &Manager, tree: &Tree, rows: &[EncodedRow]) -> Result<()> {
    let writes = rows.iter().map(|(key, row)| LeafWrite { key, value: Some(LeafValue::Bytes(row)) }).collect();
    let part = Part { tree: PartTree::Own(tree.clone()), writes };
    match manager.append(&[part], &Purpose::Staging) {
        Err(error) if is_too_much(&error) && rows.len() > 1 => {
            let (first, second) = rows.split_at(rows.len() / 2);
            append_rows(manager, tree, first)?;
            append_rows(manager, tree, second)
        }
        Err(error) if error.kind() == ErrorKind::TooLarge => Err(manager.write_limit().refuse(rows[0].1.len())),
        appended => appended.map(drop),
    }
}
