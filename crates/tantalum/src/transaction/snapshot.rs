//! Views of the past: the state after one commit, whatever is committed later.

use std::{collections::BTreeMap, fmt, ops::RangeBounds, sync::Arc};

use tantalum_log::Lsn;
use tantalum_rt::Mutex;
use tantalum_store::TableId;

use super::{
    Content, Manager, Value, ValueReader,
    key_range::{Interval, KeyRange, Prefix},
    large_values::load,
    range::RangeIter,
    versions::SnapshotId,
};
use crate::{
    error::Result,
    table::{Table, TableUse},
    tree::LeafValue,
};

/// So many of many keys are prefetched before the first is read.
const READ_AT_A_TIME: usize = 64;

/// The state of the database after a commit. Old versions of what it sees are kept while it lives.
pub(super) struct View {
    pub(super) manager: Arc<Manager>,
    pub(super) snapshot: SnapshotId,
}

impl View {
    /// The present state.
    pub fn begin(manager: &Arc<Manager>) -> Self {
        let snapshot = manager.versions.begin(|| manager.core.pool.end().get());
        Self { snapshot, manager: Arc::clone(manager) }
    }

    /// The log must be durable up to here before the caller gets what the view shows of a leaf with this LSN: up to the
    /// leaf's last change, if the view has it.
    pub fn shown_lsn(&self, leaf: Lsn) -> Lsn {
        leaf.min(Lsn::new(self.snapshot.number))
    }

    /// The commit of the bulk load that has filled the table since this view began, if one has. The leaves then have nothing of what the
    /// view sees, and versions that were overwritten after that commit are of rows that it does not see.
    pub fn loaded_since(&self, table: &Table) -> Option<u64> {
        Some(table.tree().loaded_at()).filter(|loaded_at| *loaded_at > self.snapshot.number)
    }

    /// What a key has in this view, and how far the log must be durable before the caller gets it. A large value stays while the view
    /// lives.
    pub fn get(&self, table: &Table, key: &[u8]) -> Result<(Option<Content>, Lsn)> {
        if let Some((staged, lsn)) = table.staging().get(key, self.snapshot.number)? {
            // A change buffer has what a view does not see only if that was given up.
            self.check()?;
            return Ok((staged, self.shown_lsn(lsn)));
        }
        let mut show = Some(|value: Option<LeafValue<'_>>, leaf| {
            let value = value.filter(|_| self.loaded_since(table).is_none());
            (value.map(Content::of), self.shown_lsn(leaf))
        });
        loop {
            let shown = table.tree().try_read(key, &mut show)?;
            // Asked after the leaf was looked at: what has been overwritten since is here as well, and the same. So is a large value
            // that was replaced while it was read.
            let until = self.loaded_since(table).unwrap_or(u64::MAX);
            if let Some(old) = self.manager.versions.get(table.id(), key, self.snapshot, until)? {
                return Ok((old, Lsn::new(self.snapshot.number)));
            }
            if let Some(shown) = shown {
                return Ok(shown);
            }
        }
    }

    /// A reader of the value of a key in this view, and how far the log must be durable before the caller gets it.
    pub fn reader(self: &Arc<Self>, table: &Table, key: &[u8]) -> Result<(Option<ValueReader>, Lsn)> {
        let (content, lsn) = self.get(table, key)?;
        let table = table.enter(self.manager.core.log().log_id())?;
        Ok((content.map(|content| ValueReader::new(content, Arc::clone(self), table)).transpose()?, lsn))
    }

    /// # Errors
    /// [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) if the view was given up.
    pub fn check(&self) -> Result<()> {
        self.manager.versions.check(self.snapshot)
    }

    /// Whether a key was overwritten since.
    pub fn is_overwritten(&self, table: &Table, key: &[u8]) -> Result<bool> {
        // In this order: rows that are moved meanwhile leave a version.
        Ok(table.staging().is_overwritten(key, self.snapshot.number)?
            || self.loaded_since(table).is_some()
            || self.manager.versions.get(table.id(), key, self.snapshot, u64::MAX)?.is_some())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.manager.versions.end(self.snapshot);
        self.manager.reap_unseen();
    }
}

/// A read-only view of everything that was committed when it was made by [`Db::snapshot`](crate::Db::snapshot). It takes
/// no locks. May be used by many threads at once. It keeps no database open: when that is closed, everything fails with
/// [`Closed`](crate::ErrorKind::Closed).
///
/// While it lives, the old versions of rows that it sees are kept: in memory, and beyond
/// [`version_bytes`](crate::Expert::version_bytes) on free pages of the data device. Where these run out, the oldest snapshot is given
/// up, and its reads fail with [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld); commits go on.
///
/// What it shows is durable: a read of rows that are committed but not durable yet, or that share a page with such, waits
/// until they are, about one write of the log.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let accounts = db.table("accounts")?;
/// let before = db.snapshot()?;
/// let mut tx = db.begin()?;
/// tx.put(&accounts, "alice", "100")?;
/// tx.commit()?;
/// assert_eq!(before.get(&accounts, "alice")?, None);
/// assert_eq!(db.snapshot()?.range(&accounts, ..)?.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Snapshot {
    view: Arc<View>,
    uses: Mutex<BTreeMap<TableId, TableUse>>,
}

impl Snapshot {
    pub(crate) fn new(manager: &Arc<Manager>) -> Self {
        Self { view: Arc::new(View::begin(manager)), uses: Mutex::new(BTreeMap::new()) }
    }

    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) for a table that was dropped,
    /// [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld), and what a device or the log reports.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.content(table, key.as_ref())?.map(|content| self.value_of(content, table)).transpose()
    }

    /// What a key has, durably; a large value is not read.
    fn content(&self, table: &Table, key: &[u8]) -> Result<Option<Content>> {
        self.enter(table)?;
        let core = &self.view.manager.core;
        let (content, lsn) = core.if_open(self.view.get(table, key))?;
        core.pool.flush(lsn)?;
        Ok(content)
    }

    /// A part of the value of a key, as far as the value has these bytes: only the pages with them are read. `None` if the key is not
    /// there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let films = db.table("films")?;
    /// let mut tx = db.begin()?;
    /// tx.put(&films, "a", [7; 100_000])?;
    /// tx.commit()?;
    /// assert_eq!(db.snapshot()?.get_range(&films, "a", 99_998..)?.unwrap(), [7; 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_range(
        &self,
        table: &Table,
        key: impl AsRef<[u8]>,
        bytes: impl RangeBounds<u64>,
    ) -> Result<Option<Value>> {
        self.reader(table, key)?.map(|reader| reader.part(bytes)).transpose()
    }

    /// A reader of the value of a key, which needs no memory for it; `None` if the key is not there. It stays when the snapshot goes.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn reader(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.enter(table)?;
        let core = &self.view.manager.core;
        let (reader, lsn) = core.if_open(self.view.reader(table, key.as_ref()))?;
        core.pool.flush(lsn)?;
        Ok(reader)
    }

    /// The values of keys, in the order of the keys, with `None` for each that is not there.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        get_many(keys, |keys| self.prefetch(table, keys), |key| self.get(table, key))
    }

    /// Says that keys will be read soon: see [`Transaction::prefetch`](super::Transaction::prefetch).
    ///
    /// # Errors
    /// As those of [`get`](Self::get) that say that the table cannot be used, or the snapshot.
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<()> {
        self.enter(table)?;
        table.tree().prefetch(keys);
        Ok(())
    }

    /// Whether a key is there. Reads no large value.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.content(table, key.as_ref())?.is_some())
    }

    /// The rows of a range of keys, in key order from either end. The iterator keeps what it needs of the snapshot, which may go before
    /// it.
    ///
    /// # Errors
    /// As [`get`](Self::get), also of the iterator's items.
    pub fn range(&self, table: &Table, range: impl KeyRange) -> Result<RangeIter<'static>> {
        self.enter(table)?;
        let table = table.enter(self.view.manager.core.log().log_id())?;
        Ok(RangeIter::of_view(Arc::clone(&self.view), table, Interval::of(range)))
    }

    /// The rows whose keys begin with these bytes; otherwise as [`range`](Self::range).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let files = db.table("files")?;
    /// for path in ["bin/ls", "etc/hosts", "etc/motd", "var"] {
    ///     db.put(&files, path, "")?;
    /// }
    /// let snapshot = db.snapshot()?;
    /// assert_eq!(snapshot.prefix(&files, "etc/")?.count(), 2);
    /// assert_eq!(snapshot.first(&files)?.unwrap().0, b"bin/ls");
    /// assert_eq!(snapshot.last(&files)?.unwrap().0, b"var");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<RangeIter<'static>> {
        self.range(table, Prefix(prefix))
    }

    /// The row with the lowest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.range(table, ..)?.next().transpose()
    }

    /// The row with the highest key.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.range(table, ..)?.next_back().transpose()
    }

    /// The value of a row that the snapshot has shown.
    pub(crate) fn value_of(&self, content: Content, table: &Table) -> Result<Value> {
        self.view.manager.core.if_open(load(content, table, Some(&self.view)))
    }

    /// A reader of the value of a row that the snapshot has shown.
    pub(crate) fn reader_of(&self, content: Content, table: &Table) -> Result<ValueReader> {
        let table = table.enter(self.view.manager.core.log().log_id())?;
        ValueReader::new(content, Arc::clone(&self.view), table)
    }

    fn enter(&self, table: &Table) -> Result<()> {
        let log_id = self.view.manager.core.log().log_id();
        self.view.manager.core.check_open()?;
        let mut uses = self.uses.lock();
        if !(table.is_of(log_id) && uses.contains_key(&table.id())) {
            uses.insert(table.id(), table.enter(log_id)?);
        }
        Ok(())
    }
}

/// Reads many keys: some are prefetched, then each of them is read.
pub(super) fn get_many<K>(
    keys: impl IntoIterator<Item = K>,
    prefetch: impl Fn(&[K]) -> Result<()>,
    get: impl Fn(&K) -> Result<Option<Value>>,
) -> Result<Vec<Option<Value>>> {
    let mut keys = keys.into_iter();
    let mut values = Vec::with_capacity(keys.size_hint().0);
    loop {
        let some: Vec<K> = keys.by_ref().take(READ_AT_A_TIME).collect();
        if some.is_empty() {
            return Ok(values);
        }
        if some.len() > 1 {
            prefetch(&some)?;
        }
        for key in &some {
            values.push(get(key)?);
        }
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("number", &self.view.snapshot.number).finish_non_exhaustive()
    }
}
