//! Tables: the handle that callers hold, and what keeps a table from being dropped under them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::{
    error::{Error, Result},
    page::TableId,
    transaction::TableLocks,
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
    /// Transactions and snapshots that have touched the table and are not over.
    uses: AtomicUsize,
    is_dropped: AtomicBool,
}

impl Table {
    pub(crate) fn new(name: &str, log_id: u128, tree: Tree) -> Self {
        let shared = Shared {
            name: name.into(),
            log_id,
            tree,
            locks: Arc::default(),
            uses: AtomicUsize::new(0),
            is_dropped: AtomicBool::new(false),
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

    pub(crate) fn tree(&self) -> &Tree {
        &self.shared.tree
    }

    pub(crate) fn locks(&self) -> &Arc<TableLocks> {
        &self.shared.locks
    }

    /// Whether the table belongs to the database whose log is `log_id`.
    pub(crate) fn is_of(&self, log_id: u128) -> bool {
        self.shared.log_id == log_id
    }

    /// Keeps the table from being dropped, for a transaction or snapshot of the database whose log is `log_id`.
    ///
    /// # Errors
    /// [`Error::TableDropped`]; [`Error::ForeignTable`] for a table of another database.
    pub(crate) fn enter(&self, log_id: u128) -> Result<TableUse> {
        self.check_usable(log_id)?;
        // Announced before the last look: `retire` announces the drop and then looks for uses.
        self.shared.uses.fetch_add(1, Ordering::SeqCst);
        let guard = TableUse { table: self.clone() };
        self.check_usable(log_id)?;
        Ok(guard)
    }

    /// Whether the table may be used now, by somebody of the database whose log is `log_id` who does not keep it from being
    /// dropped.
    ///
    /// # Errors
    /// As [`enter`](Self::enter).
    pub(crate) fn check_usable(&self, log_id: u128) -> Result<()> {
        if !self.is_of(log_id) {
            return Err(Error::ForeignTable { name: self.name().into() });
        }
        if self.shared.is_dropped.load(Ordering::SeqCst) {
            return Err(Error::TableDropped { name: self.name().into() });
        }
        Ok(())
    }

    /// Lets nobody use the table any more.
    ///
    /// # Errors
    /// [`Error::TableInUse`] while somebody does; [`Error::TableDropped`] when it was retired before.
    pub(crate) fn retire(&self) -> Result<()> {
        if self.shared.is_dropped.swap(true, Ordering::SeqCst) {
            return Err(Error::TableDropped { name: self.name().into() });
        }
        if self.shared.uses.load(Ordering::SeqCst) > 0 {
            self.reinstate();
            return Err(Error::TableInUse { name: self.name().into() });
        }
        Ok(())
    }

    /// Takes back [`retire`](Self::retire), when nothing says yet that the table is dropped.
    pub(crate) fn reinstate(&self) {
        self.shared.is_dropped.store(false, Ordering::SeqCst);
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
        self.table.shared.uses.fetch_sub(1, Ordering::SeqCst);
    }
}
