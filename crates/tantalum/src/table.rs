//! Tables: the handle that callers hold, and what keeps a table from being dropped under them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tantalum_log::Lsn;
use tantalum_rt::{Condvar, Mutex, RwLock};
use tantalum_store::TableId;

use crate::{
    error::{Error, ErrorKind, Result},
    transaction::{TableLocks, TableStaging, ValueTree},
    tree::Tree,
};

/// A table of a database: an ordered map from keys to values. Cheap to clone; made by [`Db::table`](crate::Db::table).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let accounts = db.table("accounts")?;
/// assert_eq!(accounts.name(), "accounts");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Table {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    /// The log of the table's database, which tells databases apart.
    log_id: u128,
    tree: Tree,
    locks: Arc<TableLocks>,
    staging: TableStaging,
    /// Its large values, if it has had any.
    values: RwLock<Option<Arc<ValueTree>>>,
    /// From where on the log has its changes for readers of the change feed; 0 if it does not have them.
    feed_start: AtomicU64,
    /// Held by the task that makes the value tree.
    making_values: Mutex<()>,
    /// How many transactions and snapshots have touched the table and are not over, and [`DROPPING`], [`DROPPED`] or [`LOADING`]. While
    /// one is set, each one that would begin to use it counts for a moment.
    state: AtomicUsize,
    /// Where transactions and snapshots wait that want to use the table while it is being dropped.
    settling: Mutex<()>,
    settled: Condvar,
}

/// It is about to be said in the catalog that the table is dropped, and that may yet fail.
const DROPPING: usize = 1 << (usize::BITS - 1);
/// The catalog says that the table is dropped.
const DROPPED: usize = DROPPING >> 1;
/// A bulk load makes the table's rows.
const LOADING: usize = DROPPED >> 1;

impl Table {
    pub(crate) fn new(name: &str, log_id: u128, tree: Tree, feed_start: Option<Lsn>) -> Self {
        let shared = Shared {
            name: name.into(),
            log_id,
            tree,
            locks: Arc::default(),
            staging: TableStaging::default(),
            values: RwLock::default(),
            feed_start: AtomicU64::new(feed_start.map_or(0, Lsn::get)),
            making_values: Mutex::default(),
            state: AtomicUsize::new(0),
            settling: Mutex::default(),
            settled: Condvar::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The number that names the table on its pages.
    pub fn id(&self) -> TableId {
        self.shared.tree.owner()
    }

    /// Whether what transactions write to it is in the [change feed](crate::ChangeFeed).
    pub fn has_change_feed(&self) -> bool {
        self.feed_start().is_some()
    }

    /// From where on the log has its changes for readers of the change feed, if it has them.
    pub(crate) fn feed_start(&self) -> Option<Lsn> {
        let start = self.shared.feed_start.load(Ordering::Acquire);
        (start > 0).then(|| Lsn::new(start))
    }

    /// The catalog says so, and no transaction uses the table.
    pub(crate) fn set_feed_start(&self, start: Option<Lsn>) {
        assert!(start != Some(Lsn::ZERO), "the catalog has records before");
        self.shared.feed_start.store(start.map_or(0, Lsn::get), Ordering::Release);
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.shared.tree
    }

    pub(crate) fn locks(&self) -> &Arc<TableLocks> {
        &self.shared.locks
    }

    /// The staging tables that hold rows for it.
    pub(crate) fn staging(&self) -> &TableStaging {
        &self.shared.staging
    }

    /// The tree with its large values, if it has had any.
    pub(crate) fn values(&self) -> Option<Arc<ValueTree>> {
        self.shared.values.read().clone()
    }

    /// The catalog's value tree for it.
    pub(crate) fn set_values(&self, values: ValueTree) -> Arc<ValueTree> {
        Arc::clone(self.shared.values.write().insert(Arc::new(values)))
    }

    /// The tree with its large values, which `make` makes if there is none.
    pub(crate) fn make_values(&self, make: impl FnOnce() -> Result<ValueTree>) -> Result<Arc<ValueTree>> {
        let _making = self.shared.making_values.lock();
        match self.values() {
            Some(values) => Ok(values),
            None => Ok(self.set_values(make()?)),
        }
    }

    /// Whether the table belongs to the database whose log is `log_id`.
    pub(crate) fn is_of(&self, log_id: u128) -> bool {
        self.shared.log_id == log_id
    }

    /// Keeps the table from being dropped, for a transaction or snapshot of the database whose log is `log_id`. Waits until it is
    /// certain whether a drop that has begun takes place.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound); [`InUse`](ErrorKind::InUse) while it is loaded in bulk;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a table of another database.
    pub(crate) fn enter(&self, log_id: u128) -> Result<TableUse> {
        loop {
            self.check_usable(log_id)?;
            let before = self.shared.state.fetch_add(1, Ordering::SeqCst);
            let guard = TableUse { table: self.clone() };
            if before & (DROPPING | DROPPED | LOADING) == 0 {
                return Ok(guard);
            }
            drop(guard);
            if before & LOADING != 0 {
                let what = format!("table {:?} is being loaded; use it when that is done", self.name());
                return Err(Error::new(ErrorKind::InUse, what));
            }
            let mut settling = self.shared.settling.lock();
            while self.shared.state.load(Ordering::SeqCst) & DROPPING != 0 {
                self.shared.settled.wait(&mut settling);
            }
        }
    }

    /// Whether a task of the database whose log is `log_id` may use the table now. The call does not keep the table from being
    /// dropped.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(crate) fn check_usable(&self, log_id: u128) -> Result<()> {
        if !self.is_of(log_id) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "table {name:?} belongs to another database; open it on the database of the transaction",
                    name = self.name()
                ),
            ));
        }
        if self.shared.state.load(Ordering::SeqCst) & DROPPED != 0 {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("table {:?} was dropped; open it again to create it anew", self.name()),
            ));
        }
        Ok(())
    }

    /// Begins to drop the table: no transaction or snapshot begins to use it until the returned `Dropping` is dropped.
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse), and nothing is changed, while a transaction or snapshot uses it.
    pub(crate) fn begin_drop(&self) -> Result<Dropping<'_>> {
        self.begin_alone(DROPPING)?;
        Ok(Dropping { table: &self.shared, outcome: 0 })
    }

    /// Begins to change what the catalog says of the table, which stays: no transaction or snapshot begins to use it until what is
    /// returned is dropped. The table's name is claimed.
    ///
    /// # Errors
    /// As [`begin_drop`](Self::begin_drop).
    pub(crate) fn begin_change(&self) -> Result<Dropping<'_>> {
        self.begin_drop()
    }

    /// Begins to load the table in bulk: no transaction or snapshot uses it until the returned `Loading` is dropped.
    ///
    /// # Errors
    /// As [`begin_drop`](Self::begin_drop); [`NotFound`](ErrorKind::NotFound) if it was dropped.
    pub(crate) fn begin_load(&self) -> Result<Loading> {
        let begun = self.begin_alone(LOADING);
        // A drop that has begun may be done by now, or fail.
        begun.map_err(|error| self.check_usable(self.shared.log_id).err().unwrap_or(error))?;
        Ok(Loading { table: self.clone() })
    }

    /// Marks the table, unless a transaction or snapshot uses it, or it is marked.
    fn begin_alone(&self, mark: usize) -> Result<()> {
        let begun = self.shared.state.compare_exchange(0, mark, Ordering::SeqCst, Ordering::SeqCst);
        begun.map(drop).map_err(|state| {
            assert!(mark == LOADING || state & (DROPPING | DROPPED) == 0, "a table is dropped once");
            let what = match state & LOADING {
                0 => format!(
                    "table {name:?} is in use by transactions or snapshots; end them and try again",
                    name = self.name()
                ),
                _ => format!("table {name:?} is being loaded; try again when that is done", name = self.name()),
            };
            Error::new(ErrorKind::InUse, what)
        })
    }
}

/// Keeps all others from using a table while it is loaded in bulk.
#[derive(Debug)]
pub(crate) struct Loading {
    table: Table,
}

impl Drop for Loading {
    fn drop(&mut self) {
        self.table.shared.state.fetch_and(!LOADING, Ordering::SeqCst);
    }
}

/// A drop of a table that may yet fail.
pub(crate) struct Dropping<'t> {
    table: &'t Shared,
    outcome: usize,
}

impl Dropping<'_> {
    /// The catalog says that the table is dropped.
    pub(crate) fn succeed(&mut self) {
        self.outcome = DROPPED;
    }
}

impl Drop for Dropping<'_> {
    fn drop(&mut self) {
        let _settling = self.table.settling.lock();
        // In this order: no task sees a dropped table with neither mark.
        self.table.state.fetch_or(self.outcome, Ordering::SeqCst);
        self.table.state.fetch_and(!DROPPING, Ordering::SeqCst);
        self.table.settled.notify_all();
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.shared.name).field("id", &self.id()).finish()
    }
}

/// Keeps a table from being dropped while it lives.
#[derive(Debug)]
pub(crate) struct TableUse {
    table: Table,
}

impl TableUse {
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

impl Drop for TableUse {
    fn drop(&mut self) {
        self.table.shared.state.fetch_sub(1, Ordering::SeqCst);
    }
}
