//! The catalog: which tables there are. A tree of its own, with the table's name as the key.
//!
//! A table comes into being in one change group, root page and row together. Dropping one marks its row first, then gives
//! the pages back in bounded groups, then removes the row; a drop that a crash interrupts is finished at the next open, one
//! that an error interrupts when the name is used again, or then. Until it is finished, nothing else has the name: its row is
//! the only thing that leads to the pages that are left.
//!
//! Staging tables, which hold the writes of large transactions, have rows beside those of tables ([`row`], [`staging`]), and so have
//! value trees, which hold the large values of tables ([`values`]).

mod roots;
mod row;
mod staging;
mod values;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tantalum_log::Lsn;
use tantalum_rt::{Condvar, Mutex, MutexGuard};
use tantalum_store::{PageId, TableId};

use self::row::CatalogRow;
pub(crate) use self::{
    row::{Row, StagingRow, StagingState, ValuesRow},
    staging::Recovered,
};
use crate::{
    buffer::{BufferPool, ChangeGroup, Reservation},
    change_feed::section::Section,
    error::{self, Error, ErrorKind, GroupResult, Result},
    limits,
    space::{CATALOG_ROOT, Space},
    table::{Dropping, Table},
    tree::{Chains, InsertRuns, LeafCopy, LeafPosition, LeafValue, LeafWrite, Tree},
};

/// The owner of the catalog's pages.
pub(crate) const CATALOG_ID: TableId = TableId(1);

/// The tables of an open database.
pub(crate) struct Catalog {
    pool: BufferPool,
    space: Space,
    runs: InsertRuns,
    tree: Tree,
    /// Never held while a page or the log is waited for.
    tables: Mutex<Tables>,
    /// Signalled when a name is no longer claimed.
    released: Condvar,
    /// The staging tables that were there when the database was opened, until they are taken over.
    recovered: Mutex<Recovered>,
}

#[derive(Default)]
struct Tables {
    open: BTreeMap<String, Table>,
    /// Rows of dropped tables whose pages are not all free: an error interrupted the drop.
    dropping: BTreeMap<String, Row>,
    /// Names whose tables are being created or dropped, each by one task.
    claimed: BTreeSet<String>,
    next_id: u32,
}

/// A table's name: no other task creates or drops the table meanwhile.
pub(crate) struct Claim<'c> {
    catalog: &'c Catalog,
    name: &'c str,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.catalog.tables.lock().claimed.remove(self.name);
        self.catalog.released.notify_all();
    }
}

impl Catalog {
    /// Makes the catalog of a fresh database; the caller makes it durable.
    pub fn create(pool: &BufferPool, space: &Space) -> Result<()> {
        space.supplied(|reservation| {
            let mut group = ChangeGroup::with(pool, Some(reservation));
            let root = Tree::create(space, CATALOG_ID, &mut group)?;
            assert_eq!(root, CATALOG_ROOT, "a fresh space gives out the catalog's root first");
            group.append(0, 0).map(drop)
        })
    }

    /// Reads the catalog, and finishes drops that were interrupted.
    pub fn open(pool: &BufferPool, space: &Space) -> Result<Self> {
        let runs = InsertRuns::default();
        let tree = Tree::new(pool.clone(), space.clone(), runs.clone(), CATALOG_ID, CATALOG_ROOT);
        let mut catalog = Self {
            pool: pool.clone(),
            runs,
            space: space.clone(),
            tree,
            tables: Mutex::new(Tables { next_id: CATALOG_ID.0 + 1, ..Tables::default() }),
            released: Condvar::default(),
            recovered: Mutex::default(),
        };
        let rows = catalog.rows()?;
        let staging = catalog.staging_rows()?;
        let values = catalog.values_rows()?;
        let tables = catalog.tables.get_mut();
        for (_, row) in &rows {
            tables.next_id = tables.next_id.max(row.id.0.saturating_add(1));
        }
        for row in &staging {
            tables.next_id = tables.next_id.max(row.id.max(row.target).0.saturating_add(1));
        }
        for row in &values {
            tables.next_id = tables.next_id.max(row.id.0.saturating_add(1));
        }
        for (name, row) in rows {
            if row.is_dropping {
                catalog.free_and_forget(&name, row, &|| Ok(()))?;
            } else {
                let table = catalog.handle(&name, row);
                catalog.tables.get_mut().open.insert(name, table);
            }
        }
        catalog.recover_values(values);
        catalog.recover_staging(staging);
        Ok(catalog)
    }

    /// The catalog's own tree: for checking, and for the commit of staged rows.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// All tables, by name.
    pub fn tables(&self) -> Vec<Table> {
        self.tables.lock().open.values().cloned().collect()
    }

    /// The table of that name, if there is one.
    pub fn opened(&self, name: &str) -> Option<Table> {
        self.unclaimed(name).open.get(name).cloned()
    }

    /// The table of that name, created if there is none; if `must_be_new`, there must be none. Durable when it returns. Waits only for
    /// tasks that create or drop the same table. If it has to free the pages of an earlier table first, it stops when `may_go_on` fails.
    pub fn make(&self, name: &str, must_be_new: bool, may_go_on: &dyn Fn() -> Result<()>) -> Result<Table> {
        limits::check_table_name(name)?;
        let mut tables = self.unclaimed(name);
        match tables.open.get(name) {
            Some(_) if must_be_new => return Err(error::exists(format_args!("table {name:?}"))),
            Some(table) => return Ok(table.clone()),
            None => {}
        }
        let claim = self.claim(&mut tables, name);
        drop(tables);
        self.finish_drop(name, may_go_on)?;
        let id = self.next_id()?;
        let guard = self.pool.poison_unless_ended("a table was being created");
        let created = self.in_group(
            name.as_bytes(),
            Some(CatalogRow::Table(Row { is_dropping: false, id, root: PageId(u64::MAX), feed_start: None })),
        );
        let created = created.map(|(root, end)| {
            let table = self.handle(name, Row { is_dropping: false, id, root, feed_start: None });
            // Still claimed: others see it when it is durable.
            let flushed = self.pool.flush(end);
            self.tables.lock().open.insert(name.into(), table.clone());
            flushed.map(|()| table)
        });
        guard.end();
        drop(claim);
        created?
    }

    /// Drops a table, or what an error left of it. Durable when it returns; its pages are free then, but for those of rows that are
    /// staged for it, which the applier frees. Frees no more pages, and leaves the rest to the next open, when `may_go_on` fails.
    pub fn drop_table(&self, name: &str, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let mut tables = self.unclaimed(name);
        let table = tables.open.get(name).cloned();
        if table.is_none() && !tables.dropping.contains_key(name) {
            return Err(error::no_such_table(name));
        }
        let _claim = self.claim(&mut tables, name);
        drop(tables);
        if let Some(table) = table {
            self.mark_dropped(name, &table)?;
        }
        self.finish_drop(name, may_go_on)
    }

    /// Has the catalog say, durably, that a table is dropped. Its name is claimed.
    fn mark_dropped(&self, name: &str, table: &Table) -> Result<()> {
        let mut dropping = table.begin_drop()?;
        let row = Row { is_dropping: true, id: table.id(), root: table.tree().root(), feed_start: None };
        let guard = self.pool.poison_unless_ended("a table was being dropped");
        // A failure leaves no trace.
        let feed = if table.has_change_feed() { Section::dropped(name) } else { Vec::new() };
        let marked = self.in_group_with(name.as_bytes(), Some(CatalogRow::Table(row)), &feed);
        if marked.is_ok() {
            // Whether the mark is durable or not yet, the next open may find it: no task may use the table any more.
            let mut tables = self.tables.lock();
            tables.open.remove(name);
            tables.dropping.insert(name.into(), row);
            dropping.succeed();
        }
        guard.end();
        let (_, end) = marked?;
        drop(dropping);
        // Before its pages are freed, to which rows may be moved just now.
        let staged = table.staging().retire();
        self.recovered.lock().dropped.extend(staged.iter().cloned());
        self.pool.flush(end)
    }

    /// Has the catalog say that the log has a table's changes for readers of the change feed. Durable when it returns; returns from
    /// where on.
    pub fn start_feed(&self, table: &Table) -> Result<Lsn> {
        let _claim = self.claim_open(table)?;
        if let Some(start) = table.feed_start() {
            return Ok(start);
        }
        let change = table.begin_change()?;
        // All that was committed to the table lies before it.
        let start = self.pool.log().end_lsn();
        self.set_feed(table, Some(start), change)?;
        Ok(start)
    }

    /// Has the catalog say that the log has a table's changes no more, in a record that tells readers. Durable when it returns.
    pub fn end_feed(&self, table: &Table) -> Result<()> {
        let _claim = self.claim_open(table)?;
        if !table.has_change_feed() {
            return Ok(());
        }
        let change = table.begin_change()?;
        self.set_feed(table, None, change)
    }

    /// Starts or ends the change feed of a table, whose name is claimed, while no transaction uses it.
    fn set_feed(&self, table: &Table, feed_start: Option<Lsn>, change: Dropping<'_>) -> Result<()> {
        let row = Row { is_dropping: false, id: table.id(), root: table.tree().root(), feed_start };
        let said = if feed_start.is_some() { Vec::new() } else { Section::ended(table.name()) };
        let guard = self.pool.poison_unless_ended("the change feed of a table was being started or ended");
        let done = self.in_group_with(table.name().as_bytes(), Some(CatalogRow::Table(row)), &said);
        if done.is_ok() {
            table.set_feed_start(feed_start);
        }
        guard.end();
        drop(change);
        self.pool.flush(done?.1)
    }

    /// Claims the name of a table that must be there.
    fn claim_open<'c>(&'c self, table: &'c Table) -> Result<Claim<'c>> {
        self.keep_table(table).ok_or_else(|| error::no_such_table(table.name()))
    }

    /// Waits until no task creates or drops the table of this name, and returns the locked tables.
    fn unclaimed(&self, name: &str) -> MutexGuard<'_, Tables> {
        let mut tables = self.tables.lock();
        while tables.claimed.contains(name) {
            self.released.wait(&mut tables);
        }
        tables
    }

    /// Keeps other tasks from creating or dropping the table of this name, which no task does now.
    fn claim<'c>(&'c self, tables: &mut Tables, name: &'c str) -> Claim<'c> {
        assert!(tables.claimed.insert(name.into()), "a table is created or dropped by one task at a time");
        Claim { catalog: self, name }
    }

    /// Finishes the drop of the table that had this name, if there is one to finish. The name is claimed: it must not be taken
    /// again while its row still names the old table.
    fn finish_drop(&self, name: &str, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let Some(row) = self.tables.lock().dropping.get(name).copied() else { return Ok(()) };
        self.free_and_forget(name, row, may_go_on)?;
        self.tables.lock().dropping.remove(name);
        Ok(())
    }

    fn free_and_forget(&self, name: &str, row: Row, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        self.drop_values_of(row.id, may_go_on)?;
        let tree = self.tree_of(row);
        while !tree.free_step()? {
            may_go_on()?;
        }
        let (_, end) = self.in_group(name.as_bytes(), None)?;
        self.tree.rebalance(name.as_bytes())?;
        self.pool.flush(end)
    }

    /// A number that no other table has had since the database was opened.
    fn next_id(&self) -> Result<TableId> {
        let mut tables = self.tables.lock();
        let id = tables.next_id;
        tables.next_id = id.checked_add(1).ok_or_else(|| {
            let what = "no more tables can be created in this database; copy it into a fresh one";
            Error::new(ErrorKind::NoSpace, what)
        })?;
        Ok(TableId(id))
    }

    fn handle(&self, name: &str, row: Row) -> Table {
        Table::new(name, self.pool.log().log_id(), self.tree_of(row), row.feed_start)
    }

    /// The tree that a row names.
    pub fn tree_of(&self, row: Row) -> Tree {
        self.tree_at(row.id, row.root)
    }

    fn tree_at(&self, id: TableId, root: PageId) -> Tree {
        Tree::new(self.pool.clone(), self.space.clone(), self.runs.clone(), id, root)
    }

    /// The row of the table of this name.
    pub fn row(&self, name: &str) -> Result<Option<Row>> {
        Ok(match self.row_at(name.as_bytes())? {
            Some(CatalogRow::Table(row)) => Some(row),
            _ => None,
        })
    }

    fn row_at(&self, key: &[u8]) -> Result<Option<CatalogRow>> {
        let bytes = self.tree.read_bytes(key, |row| row.map(<[u8]>::to_vec))?;
        bytes.map(|bytes| CatalogRow::read(key, &bytes)).transpose()
    }

    /// Sets or removes a row in one change group. A row whose root is `u64::MAX` gets a fresh, empty tree in the same
    /// group. Returns the row's root and the end of the record.
    fn in_group(&self, key: &[u8], row: Option<CatalogRow>) -> Result<(PageId, Lsn)> {
        self.in_group_with(key, row, &[])
    }

    /// As [`in_group`](Self::in_group), in a record that has something for the change feed.
    fn in_group_with(&self, key: &[u8], row: Option<CatalogRow>, feed: &[u8]) -> Result<(PageId, Lsn)> {
        loop {
            // The name is claimed, so no other task changes the row. If another changes the leaf, the group is tried again.
            if let Some(done) = self.space.supplied(|reservation| self.try_in_group(key, row, feed, reservation))? {
                return Ok(done);
            }
        }
    }

    fn try_in_group(
        &self,
        key: &[u8],
        row: Option<CatalogRow>,
        feed: &[u8],
        reservation: &Arc<Reservation>,
    ) -> GroupResult<Option<(PageId, Lsn)>> {
        let draft = row.map(CatalogRow::encode);
        let drafts = [LeafWrite { key, value: draft.as_deref().map(LeafValue::Bytes) }];
        let mut places = Vec::new();
        let (leaf, found_at) = self.tree.prepare(&drafts, &mut places, reservation)?;
        let leaf = leaf.write();
        if !self.tree.accepts(&leaf, &drafts, found_at, &mut places)? {
            return Ok(None);
        }
        let mut group = ChangeGroup::with(&self.pool, Some(reservation));
        let index = group.add(leaf);
        let row = match row {
            Some(row) if row.root() == PageId(u64::MAX) => {
                let root = Tree::create(&self.space, row.id(), &mut group)?;
                Some(row.with_root(root))
            }
            row => row,
        };
        let value = row.map(CatalogRow::encode);
        let writes = [LeafWrite { key, value: value.as_deref().map(LeafValue::Bytes) }];
        // A row is never large.
        self.tree.stage(&mut group, index, &writes, &places, &Chains::default())?;
        let end = group.append_with(0, 0, feed, |_| ())?;
        Ok(Some((row.map_or(PageId(0), CatalogRow::root), end)))
    }

    /// The rows of all tables, by name. Each is as it was at some moment since the call.
    pub fn rows(&self) -> Result<Vec<(String, Row)>> {
        let tables = self.all_rows()?.into_iter().filter_map(|(key, row)| match row {
            CatalogRow::Table(row) => Some((String::from_utf8_lossy(&key).into_owned(), row)),
            CatalogRow::Staging(_) | CatalogRow::Values(_) => None,
        });
        Ok(tables.collect())
    }

    fn all_rows(&self) -> Result<Vec<(Vec<u8>, CatalogRow)>> {
        let mut rows = Vec::new();
        let mut next: Vec<u8> = Vec::new();
        let mut copy = LeafCopy::default();
        loop {
            let (entries, upper) = self.tree.read_leaf(LeafPosition::Containing(&next), |leaf| {
                // It may have been merged with the one before.
                let entries = leaf.lower_bound(&next)?..leaf.len();
                copy.fill(&leaf, entries.clone()).map(|()| (entries, leaf.upper().map(<[u8]>::to_vec)))
            })??;
            for entry in entries {
                let (key, row) = copy.entry(entry)?;
                let key = key.to_vec();
                let row = CatalogRow::read(&key, row.bytes().unwrap_or_default())?;
                rows.push((key, row));
            }
            match upper {
                Some(upper) => next = upper,
                None => return Ok(rows),
            }
        }
    }
}
