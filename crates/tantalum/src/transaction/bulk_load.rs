//! Bulk loads: rows in key order become the contents of an empty table, all at once.
//!
//! Where the log keeps the changes of pages and is not archived, the table's pages are [built](crate::tree::TreeBuilder) from left to
//! right, around the buffer pool and the log, in [pages that no tree names](crate::space::UnnamedPages); large values go to the value
//! tree in the same way. One change group then says that the pages are in use and puts the roots into the pages that the trees hang
//! on: it is the commit. What a crash or an error leaves before that are free pages.
//!
//! An archive and a change feed must have all contents, and a store that keeps the changes gets no pages; there, and where a table without rows is more
//! than an empty leaf, the rows are written by one transaction, which is [staged](super::staging) if it is large.
//!
//! While pages are built, no transaction or snapshot uses the table. A snapshot that began before the commit sees nothing in its
//! leaves afterwards.

use std::{
    fmt,
    io::Read,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_store::{Change, Logging, page::header, page::record};

use super::{
    Manager, Transaction,
    large_values::{BuiltValues, Writer},
    streaming::{MEMORY_PER_SOURCE, source_error},
};
use crate::{
    buffer::ChangeGroup,
    db::{Core, Open},
    error::{self, Error, ErrorKind, GroupResult, Result},
    limits,
    options::Isolation,
    space::UnnamedPages,
    table::{Loading, Table},
    tree::{BuiltRoot, LeafValue, Tree, TreeBuilder},
};

/// A bulk load that is under way, made by [`Db::begin_bulk_load`](crate::Db::begin_bulk_load): for rows that come one by one, or may
/// fail to come. Dropping it without [`finish`](Self::finish) leaves the table empty.
///
/// It keeps the database open. When that is closed by [`Db::close`](crate::Db::close), everything fails with
/// [`Closed`](ErrorKind::Closed).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let mut load = db.begin_bulk_load("letters")?;
/// for line in "alpha 1\nbeta 2".lines() {
///     let (name, number) = line.split_once(' ').ok_or("a line without a number")?;
///     load.add(name, number)?;
/// }
/// assert_eq!(load.finish()?.rows, 2);
/// assert_eq!(db.get(&db.table("letters")?, "beta")?.unwrap(), b"2");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BulkLoad {
    way: Way,
    table: Table,
    /// Of the row that was added last.
    last_key: Vec<u8>,
    report: BulkLoadReport,
    open: Arc<Open>,
}

/// What a bulk load did.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let report = db.bulk_load("letters", (0..10_000u32).map(|number| (number.to_be_bytes(), "a letter")))?;
/// assert_eq!((report.rows, report.row_bytes), (10_000, 120_000));
/// assert!(report.pages > 0, "without an archive of the log, pages are built");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct BulkLoadReport {
    /// Rows loaded.
    pub rows: u64,
    /// Bytes of their keys and values.
    pub row_bytes: u64,
    /// Pages that were built and written once, without the log. 0 where the rows were written by a transaction, or there are so few that
    /// the table is one page.
    pub pages: u64,
}

/// How rows become the table's.
enum Way {
    Building(Box<Building>),
    Transaction(Box<Transaction>),
    /// After an error.
    Over,
}

/// A table whose pages are being built.
struct Building {
    pages: UnnamedPages,
    rows: TreeBuilder,
    /// None before the first large value.
    values: Option<BuiltValues>,
    /// Last: until all else is over, no other task uses the table.
    _loading: Loading,
}

impl BulkLoad {
    /// Begins to load a table of this database, which must be empty.
    pub(crate) fn begin(open: &Arc<Open>, table: Table) -> Result<Self> {
        let way = match open.manager.begin_building(&table)? {
            Some(building) => Way::Building(Box::new(building)),
            None => Way::Transaction(Box::new(begin_transaction(open, &table)?)),
        };
        Ok(Self { way, table, last_key: Vec::new(), report: BulkLoadReport::default(), open: Arc::clone(open) })
    }

    /// Adds a row, whose key is above those of all rows before.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a key that is not above the one before; [`TooLarge`](ErrorKind::TooLarge) for a
    /// key or a value, or when the table would be too large for one load; [`StoreFull`](ErrorKind::StoreFull);
    /// [`Closed`](ErrorKind::Closed); what a device reports. The load is over then, and the table stays empty.
    pub fn add(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.end_after_error(|load| load.try_add(key.as_ref(), value.as_ref()))
    }

    /// As [`add`](Self::add), with a value of all bytes of a source. Returns how many these are, at most 1 GiB; they are in memory in
    /// pieces only.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`Io`](ErrorKind::Io) when the source fails.
    pub fn add_from(&mut self, key: impl AsRef<[u8]>, source: impl Read) -> Result<u64> {
        self.end_after_error(|load| load.try_add_from(key.as_ref(), source))
    }

    fn end_after_error<T>(&mut self, add: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let added = add(self);
        if added.is_err() {
            self.way = Way::Over;
        }
        added
    }

    fn try_add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_key(key)?;
        limits::check_value(value)?;
        match &mut self.way {
            Way::Building(building) => building.add(&self.open.manager, &self.table, key, value)?,
            Way::Transaction(transaction) => transaction.put(&self.table, key, value)?,
            Way::Over => return Err(over()),
        }
        self.note_row(key, value.len() as u64);
        Ok(())
    }

    fn try_add_from(&mut self, key: &[u8], mut source: impl Read) -> Result<u64> {
        let mut begin = Vec::new();
        let read = source.by_ref().take(MEMORY_PER_SOURCE).read_to_end(&mut begin);
        read.map_err(|error| source_error(0, error))?;
        if (begin.len() as u64) < MEMORY_PER_SOURCE {
            self.try_add(key, &begin)?;
            return Ok(begin.len() as u64);
        }
        self.check_key(key)?;
        let mut source = begin.chain(source);
        let length = match &mut self.way {
            Way::Building(building) => building.add_large(&self.open.manager, &self.table, key, &mut source)?,
            Way::Transaction(transaction) => transaction.put_from(&self.table, key, source)?,
            Way::Over => return Err(over()),
        };
        self.note_row(key, length);
        Ok(length)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        if self.report.rows > 0 && *key <= self.last_key[..] {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "row {row} of a bulk load has the key \"{key}\", which is not above the key \"{before}\" before it; sort the rows by \
                     key, and give each key once",
                    row = self.report.rows + 1,
                    key = key.escape_ascii(),
                    before = self.last_key.escape_ascii()
                ),
            ));
        }
        limits::check_key(key, self.open.manager.core.superblock.page_size)
    }

    fn note_row(&mut self, key: &[u8], value_bytes: u64) {
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        self.report.rows += 1;
        self.report.row_bytes += key.len() as u64 + value_bytes;
    }

    /// Makes the rows the table's. When it returns, they survive a power cut.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn finish(self) -> Result<BulkLoadReport> {
        let Self { way, table, report, open, .. } = self;
        let pages = match way {
            Way::Building(building) => open.manager.finish_building(*building, &table)?,
            Way::Transaction(transaction) => {
                transaction.commit()?;
                0
            }
            Way::Over => return Err(over()),
        };
        tantalum_rt::tracing::debug!(table = table.name(), rows = report.rows, pages, "a table was loaded in bulk");
        Ok(BulkLoadReport { pages, ..report })
    }
}

fn over() -> Error {
    Error::new(ErrorKind::Aborted, "the bulk load was ended by an earlier failure; begin it again")
}

/// A transaction that has found the table empty, and keeps it so for others.
fn begin_transaction(open: &Arc<Open>, table: &Table) -> Result<Transaction> {
    let transaction = Transaction::begin(open, Isolation::Serializable);
    let first = transaction.range(table, ..)?.next();
    match first.transpose()? {
        Some(_) => Err(has_rows(table)),
        None => Ok(transaction),
    }
}

fn has_rows(table: &Table) -> Error {
    let what = format!(
        "table {:?} has rows; load into a new or an empty table, or write the rows in transactions",
        table.name()
    );
    Error::new(ErrorKind::InvalidInput, what)
}

impl Building {
    fn add(&mut self, manager: &Manager, table: &Table, key: &[u8], mut value: &[u8]) -> Result<()> {
        if value.len() <= table.tree().inline_limit() {
            return self.rows.add(&mut self.pages, key, LeafValue::Bytes(value));
        }
        self.add_large(manager, table, key, &mut value).map(drop)
    }

    /// Adds a row whose value goes to the value tree. Returns its length in bytes.
    fn add_large(&mut self, manager: &Manager, table: &Table, key: &[u8], source: &mut dyn Read) -> Result<u64> {
        let values = match &mut self.values {
            Some(values) => values,
            none => {
                let values = manager.values_of(table, Writer::Running)?;
                none.insert(BuiltValues::begin(values, &mut self.pages, manager.core.pool.end())?)
            }
        };
        let reference = values.add(&mut self.pages, source)?;
        self.rows.add(&mut self.pages, key, LeafValue::Reference(reference))?;
        Ok(reference.length.into())
    }
}

impl Manager {
    /// Begins to build the pages of a table; `None` if it is not empty, or its rows must be logged.
    fn begin_building(self: &Arc<Self>, table: &Table) -> Result<Option<Building>> {
        let Core { pool, space, .. } = self.core();
        let must_be_logged = pool.store().logging() != Logging::Redo || pool.log().stats().archive.is_some();
        if must_be_logged || !UnnamedPages::can_be_named(space) {
            return Ok(None);
        }
        let loading = table.begin_load()?;
        if table.has_change_feed() {
            return Ok(None);
        }
        let values = table.values();
        let is_empty = |tree: &Tree| space.supplied(|_| Ok(tree.latch_empty_root()?.is_some()));
        {
            let _operation = self.core().begin_operation()?;
            let is_bare = !table.staging().has_any()
                && is_empty(table.tree())?
                && values.map_or(Ok(true), |values| is_empty(values.tree()))?;
            if !is_bare {
                return Ok(None);
            }
        }
        let core = Arc::clone(&self.core);
        let in_operation = Arc::new(move |f: &mut dyn FnMut() -> Result<()>| {
            let _operation = core.begin_operation()?;
            f()
        });
        let pages = UnnamedPages::new(space, in_operation);
        table.tree().set_building(pages.lsn());
        let rows = TreeBuilder::new(table.id(), pool.page_size(), pages.lsn());
        Ok(Some(Building { pages, rows, values: None, _loading: loading }))
    }

    /// Makes what was built the table's, durably. Returns how many pages it has beside its roots.
    fn finish_building(&self, building: Building, table: &Table) -> Result<u64> {
        let Building { mut pages, rows, values, _loading } = building;
        let mut built = vec![(table.tree().clone(), rows.finish(&mut pages)?)];
        let values = values.map(|values| values.finish(&mut pages)).transpose()?;
        let values = values.map(|(tree, root, next_id)| {
            built.push((tree.tree().clone(), root));
            (tree, next_id)
        });
        pages.finish()?;
        let _operation = self.core().begin_operation()?;
        // Before the group that names the pages.
        pages.end_tearing();
        let named = self.core().space.supplied(|reservation| {
            let mut group = ChangeGroup::with(&self.core().pool, Some(reservation));
            self.name_built(&mut built, &mut group)?;
            pages.allocate(&mut group)?;
            let _gate = self.versions.gate();
            let number = self.commit_count.fetch_add(1, Ordering::Relaxed) + 1;
            let loaded = |end: Lsn| built.iter().for_each(|(tree, _)| tree.set_loaded_at(end));
            group.append_with(record::COMMIT, number, &[], loaded)
        });
        let end = named?;
        if let Some((values, next_id)) = values {
            values.set_next_id(next_id);
        }
        built.iter().for_each(|(tree, _)| tree.set_building(Lsn::ZERO));
        let count = pages.count();
        pages.keep();
        self.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.counters.bulk_loads.fetch_add(1, Ordering::Relaxed);
        self.core().pool.flush(end).map_err(error::outcome_unknown)?;
        Ok(count)
    }

    /// Plans that the roots of trees, which are empty, become those that were built.
    fn name_built(&self, built: &mut [(Tree, BuiltRoot)], group: &mut ChangeGroup) -> GroupResult<()> {
        // Leaves are latched in the order of their pages.
        built.sort_by_key(|(tree, _)| tree.root());
        for (tree, root) in built {
            let Some(page) = tree.latch_empty_root()? else {
                let what = "a table was written to while it was loaded in bulk";
                return Err(Error::new(ErrorKind::Corrupt, what).into());
            };
            let id = header::page_id(&page);
            let index = group.add(page);
            group.change(index, Change::Image(root.image_for(id)))?;
        }
        Ok(())
    }
}

impl fmt::Debug for BulkLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BulkLoad").field("table", &self.table).field("report", &self.report).finish_non_exhaustive()
    }
}
