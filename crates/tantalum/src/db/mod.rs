//! A database: opening, closing, and the doors to everything that it does.

mod barriers;
mod catalog;
mod compact;
mod core;
mod creation;
mod devices;
pub(crate) mod files;
mod log_devices;
mod open;
mod operations;
mod plan;
mod protection;
mod remake;
mod rows;
mod transact;

use std::{
    fmt,
    path::Path,
    sync::{Arc, Weak},
};

use tantalum_store::Superblock;

pub use self::barriers::BarrierSummary;
pub(crate) use self::catalog::{StagingRow, StagingState, ValuesRow};
pub use self::compact::{CompactProgress, CompactReport, CompactStep, KeptPages};
pub(crate) use self::core::{Core, CoreKind};
pub(crate) use self::devices::Wrap;
pub use self::devices::{DeviceOpener, DeviceRequest, DeviceUse, Devices};
pub(crate) use self::files::sync_parent;
pub use self::log_devices::{LogChange, LogChangePhase, LogChangeProgress, LogLocation, NewLogDevice, locate_log};
use self::operations::Operations;
pub(crate) use self::plan::Plan;
pub(crate) use self::remake::Remaking;
pub use self::transact::TransactOptions;
use crate::{
    backup,
    buffer::BufferPool,
    check::{self, CheckReport},
    error::{self, Result},
    options::{Builder, Isolation, Settings},
    restore::{self, BaseBackup, RestoreProgress},
    space::Space,
    stats::Stats,
    table::Table,
    transaction::{BulkLoad, BulkLoadReport, Manager, Snapshot, Transaction},
};

/// An open database. Clones are handles to the same one. All methods may be called by many threads at once.
///
/// It is closed by [`Db::close`], or when the last handle is dropped, no transaction is running, and no order from the control
/// socket is being carried out. Its directory can then be opened again at once. Transactions and snapshots that are still there
/// answer [`Closed`](crate::ErrorKind::Closed) from then on; a snapshot, or a transaction that was aborted, keeps no database
/// open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("accounts.db");
/// let db = tantalum::Db::open(path)?; // a directory; created if missing
/// let accounts = db.table("accounts")?;
///
/// let mut tx = db.begin()?;
/// tx.put(&accounts, b"alice", b"100")?;
/// assert_eq!(tx.get(&accounts, b"alice")?.as_deref(), Some(&b"100"[..]));
/// tx.commit()?; // durable when it returns
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Db {
    open: Arc<Open>,
}

/// Keeps a database open: for its handles, and for transactions that are running. It is closed when the last of them is gone.
pub(crate) struct Open {
    pub manager: Arc<Manager>,
}

impl Drop for Open {
    fn drop(&mut self) {
        let core = self.manager.core();
        // A panic may have left pages half changed in memory; the log alone is trusted then.
        if tantalum_rt::panicking() {
            return core.abandon();
        }
        if let Err(error) = core.close() {
            tantalum_rt::tracing::error!(%error, "the database could not be closed cleanly; the next open recovers it");
        }
    }
}

impl Db {
    /// Opens the database in the directory `path` with the settings of its `tantalum.toml`, or creates it with the
    /// defaults.
    ///
    /// # Errors
    /// As [`Builder::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().open(path)
    }

    /// For other settings than the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn manager(&self) -> &Arc<Manager> {
        &self.open.manager
    }

    pub(crate) fn core(&self) -> &Core {
        self.open.manager.core()
    }

    /// The table of that name, created if there is none. Creating is durable at once, whatever transactions do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// use tantalum::ErrorKind;
    ///
    /// db.table("accounts")?; // there after the call, whether it was before or not
    /// db.open_table("accounts")?; // must be there
    /// assert_eq!(db.open_table("acounts").unwrap_err().kind(), ErrorKind::NotFound);
    /// db.create_table("orders")?; // must not be there
    /// assert_eq!(db.create_table("orders").unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is empty, longer than 255 bytes or has control
    /// characters; [`ReadOnly`](crate::ErrorKind::ReadOnly) if it would have to be created in a database that is open for
    /// reading only.
    pub fn table(&self, name: &str) -> Result<Table> {
        if self.core().is_read_only {
            self.core().check_open()?;
            return self.core().catalog.opened(name).ok_or_else(error::read_only);
        }
        self.make_table(name, false)
    }

    /// The table of that name, which must be there.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`Closed`](crate::ErrorKind::Closed).
    pub fn open_table(&self, name: &str) -> Result<Table> {
        self.core().check_open()?;
        self.core().catalog.opened(name).ok_or_else(|| error::no_such_table(name))
    }

    /// A new table of that name, which must not be there. Durable when it returns.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists); otherwise as [`table`](Self::table).
    pub fn create_table(&self, name: &str) -> Result<Table> {
        self.core().check_writable()?;
        self.make_table(name, true)
    }

    fn make_table(&self, name: &str, must_be_new: bool) -> Result<Table> {
        let operations = self.operations();
        let _operation = self.core().begin_operation()?;
        let make = || self.core().catalog.make(name, must_be_new, &|| operations.check_open());
        self.open.manager.retry_when_full(make)
    }

    /// The names of all tables, in order.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn tables(&self) -> Result<Vec<String>> {
        self.core().check_open()?;
        Ok(self.core().catalog.tables().iter().map(|table| table.name().to_owned()).collect())
    }

    /// Drops a table and everything in it. Durable at once; it takes time for a large table, and a crash meanwhile leaves
    /// the table dropped.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound); [`InUse`](crate::ErrorKind::InUse) while a transaction or snapshot that has
    /// used the table is alive. After another error the table may be dropped, and some of its pages not be free: call this
    /// again, use the name again, or open the database again.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let operations = self.operations();
        let _operation = self.core().begin_operation()?;
        let dropped = self.core().catalog.drop_table(name, &|| operations.check_open());
        self.open.manager.forget_dropped_change_buffers();
        self.open.manager.take_over_staged();
        dropped
    }

    /// Loads rows into a table, which is created if there is none, and must be empty: all of them, or none. The rows come in the
    /// ascending order of their keys, each key once. Durable when it returns.
    ///
    /// The pages of the table are built from left to right and written once, in large writes, and the log gets one record: this is the
    /// quickest way to fill a table. Where the log is [archived](Builder::log_archive), and with the store of in-page logging, the rows
    /// are written by one [large transaction](Transaction) instead.
    ///
    /// While it is loaded, [`get`](Self::get) sees an empty table, and transactions and snapshots that would use the table fail with
    /// [`InUse`](crate::ErrorKind::InUse), also where the iterator `rows` begins them. A snapshot that began before sees an empty table for
    /// good.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let report = db.bulk_load("squares", (0..1000u64).map(|n| (n.to_be_bytes(), (n * n).to_string())))?;
    /// assert_eq!(report.rows, 1000);
    /// let squares = db.table("squares")?;
    /// assert_eq!(db.get(&squares, 12u64.to_be_bytes())?.unwrap(), b"144");
    ///
    /// // A table with rows is refused, and so are rows out of order.
    /// assert!(db.bulk_load("squares", [("a", "b")]).is_err());
    /// let error = db.bulk_load("letters", [("b", "2"), ("a", "1")]).unwrap_err();
    /// assert!(error.to_string().contains("row 2"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a table with rows, and for a row whose key is not above the one before, which
    /// is named; [`InUse`](crate::ErrorKind::InUse) while a transaction or snapshot that has used the table is alive, or it is being
    /// loaded; [`StoreFull`](crate::ErrorKind::StoreFull); [`TooLarge`](crate::ErrorKind::TooLarge);
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) when the log fails at the end. After any other error nothing is left of
    /// the load but the empty table.
    pub fn bulk_load<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        table: &str,
        rows: impl IntoIterator<Item = (K, V)>,
    ) -> Result<BulkLoadReport> {
        let mut load = self.begin_bulk_load(table)?;
        rows.into_iter().try_for_each(|(key, value)| load.add(key, value))?;
        load.finish()
    }

    /// As [`bulk_load`](Self::bulk_load), for rows that are added one by one.
    ///
    /// # Errors
    /// As [`bulk_load`](Self::bulk_load).
    pub fn begin_bulk_load(&self, table: &str) -> Result<BulkLoad> {
        self.core().check_writable()?;
        BulkLoad::begin(&self.open, self.table(table)?)
    }

    /// Begins a transaction with the database's default isolation.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(self.core().settings.isolation())
    }

    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn begin_with(&self, isolation: Isolation) -> Result<Transaction> {
        self.core().check_open()?;
        Ok(Transaction::begin(&self.open, isolation))
    }

    /// A view of everything that is committed now. It takes no locks, and reading it blocks no transaction; see [`Snapshot`].
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.core().check_open()?;
        Ok(Snapshot::new(&self.open.manager))
    }

    /// Stores everything that was committed before the call in the data file, so that recovery has nothing to do for it.
    /// The database does this by itself when the log fills up.
    ///
    /// # Errors
    /// When a device cannot write. Nothing is lost.
    pub fn checkpoint(&self) -> Result<()> {
        let _operation = self.core().begin_operation()?;
        self.core().pool.checkpoint().map(drop)
    }

    /// Writes a copy of the database, as of now, into the new directory `path`, while transactions go on. What is copied
    /// is first written to `path` with `.partial` appended.
    ///
    /// # Errors
    /// When `path` exists or cannot be written. The partial copy is removed.
    pub fn backup(&self, path: impl AsRef<Path>) -> Result<()> {
        self.core().check_open()?;
        backup::run(self, path.as_ref())
    }

    /// Copies all pages, as they are while transactions go on, into the new directory `path`. With the archive of the log from
    /// there on, [`Restore`](crate::Restore) makes the database of any later moment of them. What is copied is first written to
    /// `path` with `.partial` appended.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the log is not [archived](Builder::log_archive); when `path` exists
    /// or cannot be written, or a page is damaged. The partial copy is removed.
    pub fn base_backup(&self, path: impl AsRef<Path>, report: &mut dyn FnMut(RestoreProgress)) -> Result<BaseBackup> {
        self.core().check_open()?;
        restore::base_backup(self, path.as_ref(), report)
    }

    /// Reads the rows of the named tables, or of all if none is named, that a damaged database still has, as of one moment. `rows` gets
    /// them as [`RowSelection::read`](crate::control::RowSelection::read) gives them, each whole; `skipped` hears of what cannot be read.
    ///
    /// Which keys are lost with a page is known from the page above it, so the loss of an inner page of a tree loses the rows of all
    /// pages below it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// db.put(&db.table("accounts")?, "alice", "100")?;
    /// let (mut rows, mut skipped) = (0, Vec::new());
    /// db.salvage(
    ///     &[],
    ///     &mut |_, row| {
    ///         rows += row.into_iter().count();
    ///         Ok(())
    ///     },
    ///     &mut |what| skipped.push(what),
    /// )?;
    /// assert_eq!((rows, skipped.len()), (1, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound) for a table that is not there; those of `rows`, and errors other than damage.
    pub fn salvage(
        &self,
        tables: &[String],
        rows: crate::ValueSink<'_>,
        skipped: &mut dyn FnMut(crate::Skipped),
    ) -> Result<()> {
        self.core().check_open()?;
        crate::salvage::run(self, tables, rows, skipped)
    }

    /// Reads every page and checks that all trees are sound and every page is used once or free. Transactions go on meanwhile, and
    /// tables come and go; what they allocate and free since the beginning is left to the next check, all else is checked exactly.
    ///
    /// No commit is stopped for longer than by a reader, which latches a page at a time, but for a moment at the end, which takes
    /// no reading of a device: while the log-structured store copies its map of pages, eight bytes for each; and while the store of
    /// in-page logging, which also holds an erase unit as long as that is read, compares the uses of all units. Checks at the same
    /// time are made one after the other.
    ///
    /// # Errors
    /// When a device cannot read. What is damaged is in the report.
    pub fn check(&self) -> Result<CheckReport> {
        self.core().check_open()?;
        self.core().if_open(check::run(self.core()))
    }

    /// Counters since the database was opened, and what it is.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn stats(&self) -> Result<Stats> {
        self.core().check_not_closed()?;
        Ok(Stats::gather(self.core(), &self.open.manager))
    }

    /// Lets another device take the log's requests, while transactions go on: a device of the opener, a path, or, for a
    /// database that was opened on devices, a device. A file that is missing is created, of
    /// [`log_bytes`](Builder::log_bytes); what exists must be blank, or have belonged to this log before. It is cut into
    /// as many [partitions](Builder::log_partitions) as the others. The database remembers it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tantalum::Db::builder().log_bytes(4 << 20).open(dir.path().join("db"))?;
    /// db.add_log_device("log-1")?;
    /// assert_eq!(db.stats()?.log.devices.len(), 2);
    /// db.remove_log_device("log-0")?; // by path; or by number, as the statistics tell it
    /// db.replace_log_device("log-1", "log-2")?;
    /// assert!(db.stats()?.log.devices[0].name.ends_with("log-2"));
    /// # db.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the device cannot be used, or another change is under way; nothing is changed then.
    pub fn add_log_device(&self, new: impl Into<NewLogDevice>) -> Result<()> {
        self.change_log_devices(LogChange::Add { new: new.into() }, &mut |_| {})
    }

    /// Takes a device out of the log, by its path, or by its name or number as the statistics tell it, whether it is healthy, set
    /// aside or absent. The name or number of a partition stands for its device. Waits for a checkpoint. A file stays where it is.
    ///
    /// # Errors
    /// When there is no such device, or no other healthy one, or another change is under way; nothing is changed then.
    pub fn remove_log_device(&self, old: &str) -> Result<()> {
        self.change_log_devices(LogChange::Remove { old: old.into() }, &mut |_| {})
    }

    /// Adds a device, and then removes another. Where both are the same, it is removed, formatted, and added: for a
    /// device that failed or hung and works again.
    ///
    /// # Errors
    /// Those of [`add_log_device`](Self::add_log_device) and [`remove_log_device`](Self::remove_log_device).
    pub fn replace_log_device(&self, old: &str, new: impl Into<NewLogDevice>) -> Result<()> {
        self.change_log_devices(LogChange::Replace { old: old.into(), new: new.into() }, &mut |_| {})
    }

    /// Changes the log's devices, and tells how far it is. `report` must not close the database, which waits for the change.
    ///
    /// # Errors
    /// Those of [`add_log_device`](Self::add_log_device) and [`remove_log_device`](Self::remove_log_device).
    pub fn change_log_devices(&self, change: LogChange, report: &mut dyn FnMut(LogChangeProgress)) -> Result<()> {
        let _operation = self.core().begin_operation()?;
        self.core().log_devices.change(self.core().log(), change, report)
    }

    /// Closes the database for all its handles: stores all pages and marks the log as cleanly ended. New work is refused with
    /// [`Closed`](crate::ErrorKind::Closed) from the beginning; commits, and other changes that are under way, are waited for.
    /// A transaction that is running and has not begun to commit fails with [`Closed`](crate::ErrorKind::Closed), and so do
    /// reads, and a table that is being dropped is freed by the next open. When it returns, the directory can be opened again.
    /// Closing twice does nothing.
    ///
    /// # Errors
    /// When a device cannot write. Where pages cannot be stored and the log cannot be ended either, the message names both
    /// failures, and the kind is that of the first. The database is closed all the same, and what was committed is safe in the
    /// log as far as it was acknowledged.
    pub fn close(self) -> Result<()> {
        self.core().close()
    }

    pub(crate) fn page_bytes(&self) -> u32 {
        self.superblock().page_size
    }

    pub(crate) fn superblock(&self) -> &Superblock {
        &self.core().superblock
    }

    pub(crate) fn begin_operation(&self) -> Result<operations::Operation<'_>> {
        self.core().begin_operation()
    }

    pub(crate) fn operations(&self) -> &Operations {
        &self.core().operations
    }

    pub(crate) fn pool(&self) -> &BufferPool {
        &self.core().pool
    }

    pub(crate) fn space(&self) -> &Space {
        &self.core().space
    }

    /// All tables that there are.
    pub(crate) fn open_tables(&self) -> Vec<Table> {
        self.core().catalog.tables()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.core().settings
    }

    /// Has `companion` dropped when the database is closed.
    pub(crate) fn keep(&self, companion: impl Send + 'static) {
        self.core().keep(companion);
    }

    /// A handle that does not keep the database open.
    pub(crate) fn downgrade(&self) -> WeakDb {
        WeakDb { open: Arc::downgrade(&self.open) }
    }

    /// Opens the database of a plan, or creates it.
    pub(crate) fn of_plan(plan: Plan) -> Result<Self> {
        span!("open");
        let core = Arc::new(open::open(plan)?);
        let manager = Manager::new(core);
        manager.take_over_staged();
        manager.take_over_dead_values();
        Ok(Self { open: Arc::new(Open { manager }) })
    }
}

/// A handle to a database that may be gone.
#[derive(Clone)]
pub(crate) struct WeakDb {
    open: Weak<Open>,
}

impl WeakDb {
    /// The database, unless it is gone.
    pub fn upgrade(&self) -> Option<Db> {
        self.open.upgrade().map(|open| Db { open })
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("data", &self.core().pool.store().name()).finish_non_exhaustive()
    }
}
