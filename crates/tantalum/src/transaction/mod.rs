//! Transactions: what a caller reads and writes as if alone.
//!
//! Writes stay in the transaction until it commits, so no page ever holds uncommitted data. Serializable transactions lock
//! the keys and ranges that they touch until they commit (strict two-phase locking); snapshot isolation reads the state at
//! the beginning and locks only what it writes.
//!
//! Invariants:
//! - locks are released only after the commit record is in the log's order, so a transaction that sees a write comes later in
//!   it
//! - a commit returns only when everything it has read and written is durable, unless it is asked not to

mod append;
mod batch;
mod bulk_load;
mod commit;
mod commit_times;
mod content;
mod handle;
mod key_range;
mod large_values;
mod locks;
mod manager;
mod notifier;
mod precedence;
mod range;
mod snapshot;
mod sorted_rows;
mod staging;
mod streaming;
mod table_map;
mod value;
mod versions;
mod write_set;

use std::sync::{Arc, atomic::Ordering};

use tantalum_log::Lsn;

pub use bulk_load::{BulkLoad, BulkLoadReport};
pub use commit::{Commit, Ticket};
pub(crate) use content::Content;
pub use handle::Transaction;
pub use key_range::{KeyRange, Prefix};
pub use large_values::ValueReader;
#[cfg(test)]
pub(crate) use large_values::piece_key;
pub(crate) use large_values::{PiecesSeen, ValueTree, read_present_value, references_in};
pub(crate) use locks::TableLocks;
pub(crate) use manager::Manager;
pub use manager::TransactionStats;
pub use range::RangeIter;
pub use snapshot::Snapshot;
pub(crate) use staging::{StagingTree, TableStaging};
pub use value::Value;

use self::{
    key_range::Interval,
    large_values::load,
    locks::{Granted, Mode, Refusal, TransactionId},
    snapshot::View,
    staging::Staged,
    table_map::TableMap,
    write_set::{WriteSet, cost},
};
use crate::{
    db::{Core, Open},
    error::{Error, ErrorKind, Result},
    limits,
    options::Isolation,
    table::{Table, TableUse},
};

/// A table that a transaction has touched, and its locks there.
struct Touched {
    table: TableUse,
    /// Keys locked, each once. How, the table's locks know.
    keys: Vec<Value>,
    has_ranges: bool,
    has_read: bool,
}

/// What a [`Transaction`] has read, locked and written. Its reads change it as its writes do, since they lock, and may end it.
pub(crate) struct TransactionState {
    database: Database,
    id: TransactionId,
    /// Present under snapshot isolation.
    view: Option<Arc<View>>,
    touched: TableMap<Touched>,
    writes: WriteSet,
    /// What was too much for memory, or for one record.
    staged: Option<Staged>,
    /// Marks of the savepoints that can still be rolled back to, in order.
    savepoints: Vec<(u64, usize)>,
    savepoints_made: u64,
    /// Everything that was read is in the log before this.
    read_lsn: Lsn,
    is_over: bool,
    /// It was ended by an error after which it may succeed when it is run again.
    is_to_be_run_again: bool,
    /// It is one of the operations that closing waits for.
    is_committing: bool,
    /// What it writes is what the rows have: the change feed says nothing of it.
    changes_no_rows: bool,
}

/// A transaction's database.
enum Database {
    /// The transaction runs, and keeps it open.
    Open(Arc<Open>),
    /// The transaction is over.
    Left(Arc<Manager>),
}

/// A row that is to be written.
struct Write<'v> {
    key: Value,
    value: ToWrite<'v>,
}

enum ToWrite<'v> {
    Whole(Value),
    /// Too large for memory, or a record.
    InPieces(&'v [u8]),
}

impl Write<'_> {
    fn key(&self) -> &Value {
        &self.key
    }
}

/// A place in a transaction to come back to; see [`Transaction::savepoint`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let mut tx = db.begin()?;
/// let start = tx.savepoint();
/// tx.rollback_to(&start)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Savepoint {
    transaction: TransactionId,
    number: u64,
}

impl TransactionState {
    pub fn begin(open: &Arc<Open>, isolation: Isolation) -> Self {
        let manager = &open.manager;
        let id = TransactionId(manager.next_id.fetch_add(1, Ordering::Relaxed));
        let view = (isolation == Isolation::SnapshotIsolation).then(|| Arc::new(View::begin(manager)));
        Self {
            database: Database::Open(Arc::clone(open)),
            id,
            view,
            touched: TableMap::default(),
            writes: WriteSet::default(),
            staged: None,
            savepoints: Vec::new(),
            savepoints_made: 0,
            read_lsn: Lsn::ZERO,
            is_over: false,
            is_to_be_run_again: false,
            is_committing: false,
            changes_no_rows: false,
        }
    }

    fn manager(&self) -> &Arc<Manager> {
        match &self.database {
            Database::Open(open) => &open.manager,
            Database::Left(manager) => manager,
        }
    }

    fn core(&self) -> &Core {
        &self.manager().core
    }

    /// See [`Transaction::get`].
    pub fn get(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.lock_to_read(table, key)?;
        self.read_value(table, key)
    }

    /// See [`Transaction::prefetch`].
    pub fn prefetch<K: AsRef<[u8]>>(&mut self, table: &Table, keys: &[K]) -> Result<()> {
        self.enter(table)?;
        table.tree().prefetch(keys);
        Ok(())
    }

    /// See [`Transaction::contains`].
    pub fn contains(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.lock_to_read(table, key)?;
        Ok(self.read(table, key)?.is_some())
    }

    /// See [`Transaction::get_for_update`].
    pub fn get_for_update(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        self.enter(table)?;
        self.lock(table, &key.into(), Mode::Exclusive)?;
        self.read_value(table, key)
    }

    /// See [`Transaction::put`].
    pub fn put(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let write = self.writable(table, key, value)?;
        self.lock(table, write.key(), Mode::Exclusive)?;
        self.put_locked(table, write)
    }

    /// See [`Transaction::insert`].
    pub fn insert(&mut self, table: &Table, key: &[u8], value: &[u8]) -> Result<()> {
        let write = self.writable(table, key, value)?;
        let key = write.key();
        self.lock(table, key, Mode::Exclusive)?;
        if self.read(table, key)?.is_some() {
            return Err(Error::new(
                ErrorKind::AlreadyExists,
                format!(
                    "table {table:?} already holds the key \"{}\"; use put to replace its value",
                    key.escape_ascii(),
                    table = table.name()
                ),
            ));
        }
        self.put_locked(table, write)
    }

    /// See [`Transaction::delete`].
    pub fn delete(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        let Write { key, .. } = self.writable(table, key, &[])?;
        self.lock(table, &key, Mode::Exclusive)?;
        if self.read(table, &key)?.is_none() {
            return Ok(false);
        }
        self.write(table, key, None)?;
        Ok(true)
    }

    /// See [`Transaction::blind_delete`].
    pub fn blind_delete(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let Write { key, .. } = self.writable(table, key, &[])?;
        self.lock(table, &key, Mode::Exclusive)?;
        self.write(table, key, None)
    }

    /// Writes a large value anew that has pages of its own, as earlier versions wrote it, or that is staged: the row stays what it is. False,
    /// and nothing is done, if another transaction has locked the key.
    pub fn write_large_anew(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.enter(table)?;
        let locked = Value::from(key);
        let Some(granted) = self.manager().locks.try_lock(table.locks(), self.id, &locked, Mode::Exclusive) else {
            return Ok(false);
        };
        let is_staged = table.staging().take_back(table.locks(), self.id, &locked);
        if let Ok(true) = is_staged {
            return Ok(false);
        }
        if granted.is_first {
            self.touched.get_mut(table.id()).expect("it was entered").keys.push(locked);
        }
        is_staged?;
        if let Some(Content::Bytes(value)) = self.read(table, key)?
            && value.len() > table.tree().inline_limit()
        {
            let write = self.writable(table, key, &value)?;
            self.put_locked(table, write)?;
            self.changes_no_rows = true;
        }
        Ok(true)
    }

    /// Prepares a table to have the rows of an interval deleted: it is entered and writable, and the interval is locked if the isolation
    /// asks for that.
    pub fn claim_range(&mut self, table: &Table, interval: &Interval) -> Result<()> {
        self.enter(table)?;
        self.core().check_writable()?;
        if self.view.is_none() && !interval.is_empty() {
            self.lock_range(table, interval)?;
        }
        Ok(())
    }

    /// See [`Transaction::savepoint`].
    pub fn savepoint(&mut self) -> Savepoint {
        self.savepoints_made += 1;
        self.savepoints.push((self.savepoints_made, self.writes.mark()));
        Savepoint { transaction: self.id, number: self.savepoints_made }
    }

    /// See [`Transaction::rollback_to`].
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.check_running()?;
        let found = self.savepoints.iter().position(|(number, _)| *number == savepoint.number);
        let Some(index) = found.filter(|_| savepoint.transaction == self.id) else {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "the savepoint does not belong to this transaction, or was undone by rolling back to an earlier one",
            ));
        };
        self.savepoints.truncate(index + 1);
        let mark = self.savepoints[index].1;
        if self.staged.is_none() {
            self.writes.roll_back_to(mark);
            return Ok(());
        }
        // What is half taken back must not be committed.
        self.unstage_to(mark).inspect_err(|_| self.end())
    }

    fn check_running(&self) -> Result<()> {
        self.core().check_open()?;
        if self.is_over {
            Err(Error::new(
                ErrorKind::Aborted,
                format!(
                    "transaction {transaction} was aborted by an earlier failure; drop it and run it again",
                    transaction = self.id.0
                ),
            ))
        } else {
            Ok(())
        }
    }

    /// Notes that the table is in use until the transaction ends.
    fn enter(&mut self, table: &Table) -> Result<()> {
        self.check_running()?;
        let log_id = self.core().log().log_id();
        if let Some(touched) = self.touched.get(table.id())
            && table.is_of(log_id)
        {
            // A table's number is not given to another while a transaction or snapshot uses the table.
            debug_assert_eq!(touched.table.table().name(), table.name());
            return Ok(());
        }
        let touched = Touched { table: table.enter(log_id)?, keys: Vec::new(), has_ranges: false, has_read: false };
        self.touched.insert(table.id(), touched);
        Ok(())
    }

    /// Enters a table of which a range is read.
    fn enter_to_read(&mut self, table: &Table) -> Result<()> {
        self.enter(table)?;
        self.note_reading(table);
        Ok(())
    }

    /// Enters a table and locks a key of it for reading, if the isolation asks for that.
    fn lock_to_read(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        self.enter(table)?;
        match self.view {
            Some(_) => Ok(()),
            None => self.lock(table, &key.into(), Mode::Shared),
        }
    }

    /// A row that may be written.
    fn writable<'v>(&mut self, table: &Table, key: &[u8], value: &'v [u8]) -> Result<Write<'v>> {
        self.enter(table)?;
        self.core().check_writable()?;
        limits::check_key(key, self.core().superblock.page_size)?;
        limits::check_value(value)?;
        if value.len() > self.value_in_commit_bytes() {
            return Ok(Write { key: key.into(), value: ToWrite::InPieces(value) });
        }
        let (key, value) = Value::row(key, value);
        Ok(Write { key, value: ToWrite::Whole(value) })
    }

    /// Larger values are not written in the commit's record.
    fn value_in_commit_bytes(&self) -> usize {
        limits::MAX_VALUE_IN_COMMIT_BYTES.min(self.manager().write_limit().bytes / 2)
    }

    fn put_locked(&mut self, table: &Table, Write { key, value }: Write<'_>) -> Result<()> {
        let content = match value {
            ToWrite::Whole(value) => Content::Bytes(value),
            ToWrite::InPieces(mut value) => self.write_large(table, &mut value)?,
        };
        self.write(table, key, Some(content))
    }

    fn write(&mut self, table: &Table, key: Value, value: Option<Content>) -> Result<()> {
        let (limit, memory_bytes) = (self.manager().write_limit(), self.manager().memory_bytes);
        let bytes = cost(key.len(), value.as_ref());
        if bytes > limit.bytes {
            return Err(limit.refuse(bytes));
        }
        if !self.writes.has_memory_for(&key, value.as_ref(), memory_bytes) {
            self.spill()?;
        }
        let spilled = match &self.staged {
            Some(staged) if self.writes.is_marked() && self.writes.get(table.id(), &key).is_none() => {
                staged.get(table.id(), &key)?
            }
            _ => None,
        };
        self.writes.set(table.id(), key, value, spilled);
        Ok(())
    }

    /// Reads a key that is locked, as far as the isolation asks for that.
    fn read_value(&mut self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
        let Some(content) = self.read(table, key)? else { return Ok(None) };
        let loaded = self.core().if_open(load(content, table, self.view.as_deref()));
        self.abort_if_retryable(loaded).map(Some)
    }

    /// As [`read_value`](Self::read_value), but does not read a large value.
    fn read(&mut self, table: &Table, key: &[u8]) -> Result<Option<Content>> {
        if let Some(written) = self.writes.get(table.id(), key) {
            return Ok(written.clone());
        }
        if let Some(staged) = &self.staged
            && let Some(written) = self.core().if_open(staged.get(table.id(), key))?
        {
            return Ok(written);
        }
        self.note_reading(table);
        let found = self.core().if_open(match &self.view {
            Some(view) => view.get(table, key),
            None => read_present(table, key),
        });
        let (value, lsn) = self.abort_if_retryable(found)?;
        self.read_lsn = self.read_lsn.max(lsn);
        Ok(value)
    }

    /// Notes that rows of a table that was entered are read.
    fn note_reading(&mut self, table: &Table) {
        self.touched.get_mut(table.id()).expect("a table is entered before it is read").has_read = true;
    }

    /// Locks a key of a table that was entered.
    fn lock(&mut self, table: &Table, key: &Value, mode: Mode) -> Result<()> {
        // Another transaction's range may wait for this one to end, because it has staged the key.
        if let Some(staged) = &self.staged
            && table.locks().has_ranges()
            && staged.has(table.id(), key)?
        {
            return Ok(());
        }
        loop {
            match self.manager().locks.lock(table.locks(), self.id, key, mode) {
                Ok(Granted { is_first: true, .. }) => {}
                Ok(_) => break,
                Err(refusal) => return Err(self.abort(table, refusal)),
            }
            let is_staged = table.staging().take_back(table.locks(), self.id, key);
            if let Ok(true) = is_staged {
                continue;
            }
            let touched = self.touched.get_mut(table.id()).expect("a table is entered before it is locked");
            touched.keys.push(key.clone());
            is_staged?;
            break;
        }
        // First committer wins: a transaction that overwrote the key since the snapshot began has committed by now.
        if mode == Mode::Exclusive
            && let Some(view) = &self.view
        {
            let conflict = || {
                Error::new(
                    ErrorKind::WriteConflict,
                    format!(
                        "transaction {transaction} was aborted: a key that it writes in table {table:?} was changed since it began; run it again",
                        transaction = self.id.0,
                        table = table.name()
                    ),
                )
            };
            let outcome = view.is_overwritten(table, key).and_then(|is| if is { Err(conflict()) } else { Ok(()) });
            return self.abort_if_retryable(outcome);
        }
        Ok(())
    }

    /// Ends the transaction when what its isolation asks for is not to be had any more.
    fn abort_if_retryable<T>(&mut self, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(Error::is_retryable) {
            self.end_for_another_try();
        }
        outcome
    }

    /// Locks a range. Returns whether others wrote in it while it was waited for.
    fn lock_range(&mut self, table: &Table, interval: &Interval) -> Result<bool> {
        let touched = self.touched.get_mut(table.id()).expect("a table is entered before it is locked");
        touched.has_ranges = true;
        let locked = self.manager().locks.lock_range(table.locks(), self.id, interval);
        let mut waited = locked.map_err(|refusal| self.abort(table, refusal))?;
        // Transactions that have staged keys in it.
        while let Some(key) = table.staging().locked_in(table.locks(), self.id, interval)? {
            let locked = self.manager().locks.lock(table.locks(), self.id, &key, Mode::Probe);
            locked.map_err(|refusal| self.abort(table, refusal))?;
            waited = true;
        }
        Ok(waited)
    }

    /// Ends the transaction because a lock was refused.
    fn abort(&mut self, table: &Table, refusal: Refusal) -> Error {
        self.end_for_another_try();
        let (transaction, table) = (self.id.0, table.name().to_owned());
        match refusal {
            Refusal::Deadlock => Error::new(
                ErrorKind::Deadlock,
                format!(
                    "transaction {transaction} was aborted to end a deadlock over a key of table {table:?}; run it again"
                ),
            ),
            Refusal::TimedOut(holders) => Error::new(
                ErrorKind::LockTimeout,
                format!(
                    "transaction {transaction} was aborted after waiting {waited:?} for a lock in table {table:?} held by \
         transactions {holders:?}; run it again, or raise lock_timeout",
                    waited = self.manager().locks.timeout(),
                    holders = holders.into_iter().map(|holder| holder.0).collect::<Vec<_>>()
                ),
            ),
        }
    }

    fn end_for_another_try(&mut self) {
        self.is_to_be_run_again = true;
        self.end();
    }

    /// Ends the transaction without a commit: others need not wait for it any more, and it keeps no database open.
    fn end(&mut self) {
        self.roll_back();
        self.database = Database::Left(Arc::clone(self.manager()));
    }

    fn roll_back(&mut self) {
        self.is_over = true;
        self.writes = WriteSet::default();
        self.manager().counters.rollbacks.fetch_add(1, Ordering::Relaxed);
        self.release_locks();
    }

    /// Releases all locks and lets go of the tables and the snapshot.
    fn release_locks(&mut self) {
        if let Some(staged) = self.staged.take() {
            staged.end(self.manager(), &self.touched);
        }
        for touched in std::mem::take(&mut self.touched).into_values() {
            let locks = touched.table.table().locks();
            for key in touched.keys {
                locks.release(self.id, key);
            }
            if touched.has_ranges {
                locks.release_ranges(self.id);
            }
        }
        self.view = None;
    }
}

/// What a key has as it is committed now, and how far the log must be durable before a caller gets it. No task writes it
/// meanwhile, or any value that it has meanwhile is right.
pub(crate) fn read_present(table: &Table, key: &[u8]) -> Result<(Option<Content>, Lsn)> {
    match table.staging().get(key, u64::MAX)? {
        Some(staged) => Ok(staged),
        None => table.tree().read(key, |value, lsn| (value.map(Content::of), lsn)),
    }
}

impl Drop for TransactionState {
    fn drop(&mut self) {
        if !self.is_over {
            self.roll_back();
        }
        self.release_locks();
        // Before it lets go of the database, which may then be closed.
        if self.is_committing {
            self.core().operations.leave();
        }
    }
}
