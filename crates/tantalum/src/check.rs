//! Proves that a database is sound, or says where it is not, while it is in use.
//!
//! Trees are walked while transactions go on, and tables come and go. The walk meets exactly once each page that is in a tree all the
//! time ([`crate::tree`], `check.rs`); which pages are allocated or freed meanwhile is noted where that is done
//! ([`SpaceWatch`]). So what the space map says is compared for those pages that stay what they are, and for them it is exact.
//! Nothing is stopped: latches are held as readers hold them, for a node at a time.

use tantalum_store::{PageId, PageSet, TableId, page::header};

use crate::{
    db::{Core, StagingRow, StagingState, ValuesRow},
    error::{self, Result},
    space::SpaceWatch,
    transaction::{PiecesSeen, ValueTree, references_in},
    tree::{Reference, ReferenceCheck, RowSight, Tree, TreeReport, no_reference},
};

/// More problems than this are not listed.
const PROBLEMS_MAX: usize = 100;

/// What [`Db::check`](crate::Db::check) found.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// assert!(db.check()?.is_sound());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CheckReport {
    /// The tables, by name, the catalog not included.
    pub tables: Vec<TableReport>,
    /// Pages that tables and the catalog use.
    pub pages_used: u64,
    /// Hidden tables with rows of large transactions, or deferred writes, that are not in their tables yet, and those whose pages are being
    /// freed.
    pub staging_tables: u64,
    /// What is wrong, at most a hundred entries; empty if all is well.
    problems: Vec<String>,
}

/// One table in a [`CheckReport`].
#[non_exhaustive]
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct TableReport {
    /// The table's name.
    pub name: String,
    /// Rows.
    pub rows: u64,
    /// Pages, those of large values included.
    pub pages: u64,
    /// Pages of large values, those of values that are to be freed included.
    pub overflow_pages: u64,
    /// Levels of the tree.
    pub height: u32,
    /// How full the pages are on average, from 0 to 1.
    pub fill: f64,
}

impl CheckReport {
    /// What is wrong, each with the page and what was expected.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks everything.
pub(crate) fn run(core: &Core) -> Result<CheckReport> {
    // One after the other: each has its own moment from which on pages are watched.
    let _alone = core.checks.lock();
    core.check_open()?;
    let mut check =
        Check { core, watch: core.space.watch()?, used: PageSet::default(), misuses: Vec::new(), problems: Vec::new() };
    let tables = check.walk_all()?;
    let pages_used = check.used.count();
    check.compare()?;
    let staging_tables = check.staging_rows()?.len() as u64;
    let Check { mut problems, misuses, .. } = check;
    core.pool.store().check(&mut |what| problems.push(what))?;
    problems.extend(misuses.into_iter().map(|(page, what)| format!("page {page}: {what}")));
    problems.truncate(PROBLEMS_MAX);
    Ok(CheckReport { tables, pages_used, staging_tables, problems })
}

/// A walk through everything.
struct Check<'c> {
    core: &'c Core,
    /// Begun before the walk.
    watch: SpaceWatch<'c>,
    /// The pages that trees use.
    used: PageSet,
    problems: Vec<String>,
    /// Pages that are used twice, or used and free, or neither.
    misuses: Vec<(PageId, String)>,
}

impl Check<'_> {
    fn walk_all(&mut self) -> Result<Vec<TableReport>> {
        let catalog = &self.core.catalog;
        if let Err(problems) = self.walk("the catalog", catalog.tree())? {
            self.problems.extend(problems);
        }
        let mut reports = Vec::new();
        let tables = self.tables()?;
        for (name, tree) in &tables {
            let core = self.core;
            let mut values = None;
            let refer =
                &mut |key: &[u8], reference: Reference| wrong_with_reference(core, tree, &mut values, key, reference);
            match self.walk_with(name, tree, refer, None)? {
                Ok(report) => reports.push(TableReport::of(name, report)),
                // Its pages were freed under the walk.
                Err(_) if self.is_dropped(name, tree)? => {}
                Err(problems) => self.problems.extend(problems),
            }
        }
        for row in self.value_trees()? {
            self.walk_values(row, &tables, &mut reports)?;
        }
        for row in self.staging_tables()? {
            let name = format!("rows staged for table {}", row.target);
            if let Err(problems) = self.walk(&name, &catalog.staging_tree_of(row))?
                && !self.is_staging_dropped(row)?
            {
                self.problems.extend(problems);
            }
        }
        Ok(reports)
    }

    /// The value trees, as the catalog's rows have them.
    fn value_trees(&self) -> Result<Vec<ValuesRow>> {
        match self.core.catalog.values_rows() {
            // The walk through the catalog has found it too.
            Err(error) if error::is_damage(&error) && !self.problems.is_empty() => Ok(Vec::new()),
            rows => rows,
        }
    }

    /// Checks a value tree, and that each value in it is marked, or whole and named by a row. What its pieces are is seen by the one walk
    /// through all its pages.
    fn walk_values(&mut self, row: ValuesRow, tables: &[(String, Tree)], reports: &mut [TableReport]) -> Result<()> {
        let catalog = &self.core.catalog;
        let table = tables.iter().find(|(_, tree)| tree.owner() == row.target);
        let name = match table {
            Some((name, _)) => format!("large values of table {name:?}"),
            None => format!("large values of table {}", row.target),
        };
        let values = catalog.values_tree_of(row);
        let mut seen = PiecesSeen::default();
        let rows: RowSight<'_> = &mut |key, bytes| seen.saw(key, bytes);
        let report = match self.walk_with(&name, values.tree(), &mut no_reference, Some(rows))? {
            Ok(report) => report,
            // Its pages were freed under the walk.
            Err(_) if !catalog.values_rows()?.contains(&row) => return Ok(()),
            Err(problems) => {
                self.problems.extend(problems);
                return Ok(());
            }
        };
        let Some((table_name, tree)) = table else { return Ok(()) };
        if let Some(of_table) = reports.iter_mut().find(|of_table| of_table.name == *table_name) {
            of_table.pages += report.pages;
            of_table.overflow_pages += report.pages;
        }
        if !self.problems.is_empty() {
            return Ok(());
        }
        let wrong = values.wrong_values(seen, &|show| {
            for staged in self.staging_tables()?.into_iter().filter(|staged| staged.target == row.target) {
                match references_in(&catalog.staging_tree_of(staged), true, show) {
                    Err(error) if error::is_damage(&error) && self.is_staging_dropped(staged)? => {}
                    shown => shown?,
                }
            }
            references_in(tree, false, show)
        });
        match wrong {
            Ok(wrong) if !wrong.is_empty() && self.is_dropped(table_name, tree)? => {}
            Ok(wrong) => {
                self.problems.extend(wrong.into_iter().map(|(id, what)| format!("{name}: value {id} {what}")));
            }
            Err(error) if error::is_damage(&error) && self.is_dropped(table_name, tree)? => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The staging tables whose pages are not being freed, as the catalog's rows have them.
    fn staging_tables(&self) -> Result<Vec<StagingRow>> {
        Ok(self.staging_rows()?.into_iter().filter(|row| row.state != StagingState::Dropping).collect())
    }

    fn staging_rows(&self) -> Result<Vec<StagingRow>> {
        match self.core.catalog.staging_rows() {
            // The walk through the catalog has found it too.
            Err(error) if error::is_damage(&error) && !self.problems.is_empty() => Ok(Vec::new()),
            rows => rows,
        }
    }

    fn is_staging_dropped(&self, row: StagingRow) -> Result<bool> {
        let present = self.core.catalog.staging_row(row.id)?;
        Ok(present.is_none_or(|row| row.state == StagingState::Dropping))
    }

    /// The tables, as the catalog's rows have them: a table and its root are there in one group, so none is missing that has pages
    /// which were allocated before they are watched.
    fn tables(&self) -> Result<Vec<(String, Tree)>> {
        let catalog = &self.core.catalog;
        match catalog.rows() {
            Ok(rows) => {
                let alive = rows.into_iter().filter(|(_, row)| !row.is_dropping);
                Ok(alive.map(|(name, row)| (name, catalog.tree_of(row))).collect())
            }
            // The walk through the catalog has found it too.
            Err(error) if error::is_damage(&error) && !self.problems.is_empty() => {
                Ok(catalog.tables().into_iter().map(|table| (table.name().to_owned(), table.tree().clone())).collect())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a table was dropped meanwhile: that is said in the catalog before the first of its pages is freed.
    fn is_dropped(&self, name: &str, tree: &Tree) -> Result<bool> {
        match self.core.catalog.row(name) {
            Ok(row) => Ok(row.is_none_or(|row| row.is_dropping || row.id != tree.owner())),
            Err(error) if error::is_damage(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn walk(&mut self, name: &str, tree: &Tree) -> Result<std::result::Result<TreeReport, Vec<String>>> {
        self.walk_with(name, tree, &mut no_reference, None)
    }

    fn walk_with(
        &mut self,
        name: &str,
        tree: &Tree,
        refer: ReferenceCheck<'_>,
        rows: Option<RowSight<'_>>,
    ) -> Result<std::result::Result<TreeReport, Vec<String>>> {
        let Self { core, used, misuses, .. } = self;
        let mut visit = |page| {
            if !used.insert(page) && misuses.len() < PROBLEMS_MAX {
                misuses.push((page, format!("used twice, the second time by {name}")));
            }
            core.check_open()
        };
        let checked = tree.check_with(&mut visit, refer, rows)?;
        Ok(checked.map_err(|problems| problems.iter().map(|problem| format!("{name}: {problem}")).collect()))
    }

    /// Every page that is used must be allocated, once, and every page that is allocated used. Those that were allocated or freed
    /// since they are watched may have been seen before or after, and prove nothing.
    fn compare(&mut self) -> Result<()> {
        let Self { core, watch, used, misuses, problems } = self;
        let changed = watch.changed();
        let free = used.missing_in(&watch.allocated).filter(|page| !changed.contains(*page)).take(PROBLEMS_MAX);
        misuses.extend(free.map(|page| (page, "used by a table, but free in the space map".into())));
        // A tree that could not be walked has pages that the check has not visited.
        if problems.is_empty() {
            // Of a drop that is under way, or that an error interrupted, pages are left.
            let rows = core.catalog.rows()?;
            let staging = core.catalog.staging_rows()?;
            let staging = staging.iter().filter(|row| row.state == StagingState::Dropping).map(|row| row.id);
            let tables = rows.iter().filter(|(_, row)| row.is_dropping).map(|(_, row)| row.id);
            let dropped: Vec<TableId> = tables.chain(staging).collect();
            let changed = watch.changed();
            let unused = watch.allocated.missing_in(used).filter(|page| !changed.contains(*page));
            let wrong = unused.filter_map(|page| {
                let what = wrong_with_unused(core, page, &dropped).transpose()?;
                Some(what.map(|what| (page, what)))
            });
            misuses.extend(wrong.take(PROBLEMS_MAX).collect::<Result<Vec<_>>>()?);
        }
        let changed = watch.changed();
        misuses.retain(|(page, _)| !changed.contains(*page));
        misuses.sort();
        Ok(())
    }
}

/// What is wrong with a large value that the row of a key named just now.
fn wrong_with_reference(
    core: &Core,
    tree: &Tree,
    values: &mut Option<ValueTree>,
    key: &[u8],
    reference: Reference,
) -> Result<Option<String>> {
    if values.is_none() {
        let of_table = core.catalog.values_rows()?.into_iter().find(|row| row.target == tree.owner());
        *values = of_table.map(|row| core.catalog.values_tree_of(row));
    }
    let has_end = match values {
        // Whether it has its other pieces is seen in the value tree.
        Some(values) => values.read(reference.id, reference.length - 1..reference.length, &mut |_| {})?,
        None => false,
    };
    // One that was replaced meanwhile may have gone.
    if has_end || tree.reference_of(key)? != Some(reference) {
        return Ok(None);
    }
    Ok(Some(format!("names large value {} of {} bytes, which is not whole", reference.id, reference.length)))
}

/// What is wrong with a page that is in use in the space map, and that no table uses; nothing, if one of the tables that are being
/// dropped has left it.
fn wrong_with_unused(core: &Core, page: PageId, dropped: &[TableId]) -> Result<Option<String>> {
    let what = "in use in the space map, but no table uses it";
    if dropped.is_empty() {
        return Ok(Some(what.into()));
    }
    match core.pool.pin(page).map(|page| header::owner(&page.read())) {
        Ok(owner) => Ok((!dropped.contains(&owner)).then(|| what.into())),
        Err(error) if error::is_damage(&error) => {
            Ok(Some(format!("in use, by no table or by one that is being dropped: {error}")))
        }
        Err(error) => Err(error),
    }
}

impl TableReport {
    fn of(name: &str, report: TreeReport) -> Self {
        Self {
            name: name.into(),
            rows: report.entries,
            pages: report.pages,
            overflow_pages: report.overflow_pages,
            height: report.height,
            fill: report.fill,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use tantalum_device::{Fault, MemoryDevice};
    use tantalum_rt::{Simulation, spawn};

    use crate::{
        Db, Devices,
        buffer::{ChangeGroup, Reservation},
        tree::{Chains, LeafValue, LeafWrite, Tree},
    };
    use tantalum_store::{Change, TableId, page::slots};

    fn database() -> Db {
        database_on(&MemoryDevice::new("data", 8 << 20))
    }

    fn database_on(data: &Arc<MemoryDevice>) -> Db {
        let devices = Devices {
            data: data.clone(),
            double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
            log: vec![MemoryDevice::new("log", 8 << 20)],
        };
        Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices).unwrap()
    }

    fn put(db: &Db, name: &str, key: u32, bytes: usize) {
        let table = db.table(name).unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&table, key.to_be_bytes(), vec![7; bytes]).unwrap();
        tx.commit().unwrap();
    }

    /// Lets `spoil` make something wrong, and demands that a check beside a writer says so, every time, and nothing else.
    fn is_found(expected: &'static str, spoil: fn(&Db)) {
        for seed in 0..8 {
            let run = move || {
                let db = database();
                (0..60).for_each(|key| put(&db, "mine", key, 300));
                put(&db, "mine", 5, 3000);
                spoil(&db);
                let stop = Arc::new(AtomicBool::new(false));
                let writer = spawn("writer", {
                    let (db, stop) = (db.clone(), Arc::clone(&stop));
                    move || {
                        let mut key = 0;
                        while !stop.load(Ordering::Acquire) {
                            put(&db, "other", key % 500, if key % 7 == 0 { 9000 } else { 200 });
                            key += 1;
                        }
                    }
                });
                for _ in 0..4 {
                    let report = db.check().unwrap();
                    let [problem] = report.problems() else { panic!("{:?}", report.problems()) };
                    assert!(problem.contains(expected), "{problem}");
                }
                stop.store(true, Ordering::Release);
                writer.join().unwrap();
            };
            Simulation::new(seed).run(run).expect_finished();
        }
    }

    /// What has pages of its own stays, while all between the first and the last row comes and goes.
    #[test]
    fn nothing_is_found_beside_a_tree_that_grows_and_shrinks() {
        for seed in 0..16 {
            let run = move || {
                let db = database();
                [0, 1000].into_iter().for_each(|key| put(&db, "mine", key, 6000));
                let stop = Arc::new(AtomicBool::new(false));
                let writer = spawn("writer", {
                    let (db, stop) = (db.clone(), Arc::clone(&stop));
                    move || {
                        let table = db.table("mine").unwrap();
                        let mut heights = BTreeSet::new();
                        while !stop.load(Ordering::Acquire) {
                            (1..30).for_each(|key| put(&db, "mine", key, 400));
                            heights.insert(height(&db));
                            for key in 1..30u32 {
                                let mut tx = db.begin().unwrap();
                                tx.delete(&table, key.to_be_bytes()).unwrap();
                                tx.commit().unwrap();
                            }
                            heights.insert(height(&db));
                        }
                        assert_eq!(heights, [1, 2].into());
                    }
                });
                for _ in 0..40 {
                    let report = db.check().unwrap();
                    assert!(report.is_sound(), "{:?}", report.problems());
                }
                stop.store(true, Ordering::Release);
                writer.join().unwrap();
            };
            Simulation::new(seed).run(run).expect_finished();
        }
    }

    fn height(db: &Db) -> u32 {
        let table = db.table("mine").unwrap();
        table.tree().check_with(&mut |_| Ok(()), &mut |_, _| Ok(None), None).unwrap().expect("the tree is sound").height
    }

    #[test]
    fn pages_of_an_interrupted_drop_are_expected_and_one_that_cannot_be_read_is_named() {
        let data = MemoryDevice::new("data", 8 << 20);
        let db = database_on(&data);
        (0..200).for_each(|key| put(&db, "mine", key, 3000));
        let interrupted = db.core().catalog.drop_table("mine", &|| Err(crate::error::closed()));
        assert_eq!(interrupted.unwrap_err().kind(), crate::ErrorKind::Closed);
        assert_eq!(db.check().unwrap().problems(), [""; 0]);
        db.checkpoint().unwrap();
        let mut left = Vec::new();
        db.core().space.for_each_allocated(&mut |page| left.push(page)).unwrap();
        let catalog = db.core().catalog.tree().root();
        let unreadable: Vec<_> = left.into_iter().filter(|page| *page != catalog).collect();
        assert!(!unreadable.is_empty() && unreadable.iter().all(|page| db.pool().discard_clean(*page)));
        let _in_memory = db.pool().pin(catalog).unwrap();
        data.inject(Fault::FailReads { after: 0 });
        let report = db.check().unwrap();
        assert_eq!(report.problems().len(), unreadable.len().min(super::PROBLEMS_MAX));
        let expected = "in use, by no table or by one that is being dropped: cannot read data at byte ";
        assert!(report.problems().iter().all(|problem| problem.contains(expected)), "{:?}", report.problems());
    }

    #[test]
    fn an_allocated_page_that_is_not_reachable_is_found() {
        is_found("in use in the space map, but no table uses it", |db| {
            let mut group = ChangeGroup::new(db.pool());
            db.core().space.allocate(&mut group, TableId(2)).unwrap();
            group.append(0, 0).unwrap();
        });
    }

    #[test]
    fn a_page_that_is_used_and_free_is_found() {
        let db = database();
        put(&db, "mine", 5, 300);
        let mut group = ChangeGroup::new(db.pool());
        let root = db.table("mine").unwrap().tree().root();
        db.core().space.free(&mut group, root).unwrap();
        group.append(0, 0).unwrap();
        let report = db.check().unwrap();
        assert_eq!(report.problems(), [format!("page {root}: used by a table, but free in the space map")]);
    }

    /// Writes a row of a tree by itself, as no other task does now.
    fn write_row(db: &Db, tree: &Tree, key: &[u8], value: Option<&[u8]>) {
        let writes = [LeafWrite { key, value: value.map(LeafValue::Bytes) }];
        let write = |reservation: &Arc<Reservation>| {
            let mut places = Vec::new();
            let (leaf, found_at) = tree.prepare(&writes, &mut places, reservation)?;
            let leaf = leaf.write();
            assert!(tree.accepts(&leaf, &writes, found_at, &mut places)?);
            let mut group = ChangeGroup::with(db.pool(), Some(reservation));
            let index = group.add(leaf);
            tree.stage(&mut group, index, &writes, &places, &Chains::default())?;
            group.append(0, 0)
        };
        db.space().supplied(write).unwrap();
    }

    #[test]
    fn a_page_that_is_used_twice_is_found() {
        is_found("used twice, the second time by mine", |db| {
            let table = db.table("mine").unwrap();
            let key = 61u32.to_be_bytes();
            // As versions before value trees wrote it, in pages of its own.
            write_row(db, table.tree(), &key, Some(&[7; 3000]));
            let leaf = table.tree().leaf_of(&key);
            let mut group = ChangeGroup::new(db.pool());
            let index = group.add(leaf.write());
            let page = group.page(index).to_vec();
            // The entry with its value, once more, under the next larger key.
            let slot = (2..slots::count(&page)).find(|&slot| slots::cell(&page, slot).unwrap()[0] == 1);
            let slot = slot.expect("a large value is there") as u16;
            let mut cell = slots::cell(&page, usize::from(slot)).unwrap().to_vec();
            let suffix = u16::from_le_bytes([cell[1], cell[2]]) + 1;
            cell[1..3].copy_from_slice(&suffix.to_le_bytes());
            cell.insert(2 + usize::from(suffix), 0);
            group.change(index, Change::InsertSlot { slot: slot + 1, cell: &cell }).unwrap();
            group.append(0, 0).unwrap();
        });
    }

    #[test]
    fn a_large_value_that_is_not_whole_is_found() {
        is_found("which is not whole", |db| {
            let values = db.table("mine").unwrap().values().expect("there is a large value");
            let mut last = Vec::new();
            values
                .rows(&[1], &[2], &mut |key, _| {
                    last = key.to_vec();
                    true
                })
                .unwrap();
            write_row(db, values.tree(), &last, None);
        });
    }

    #[test]
    fn a_large_value_without_a_piece_in_the_middle_is_found() {
        is_found("is not whole, and not marked", |db| {
            put(db, "mine", 6, 30_000);
            let values = db.table("mine").unwrap().values().expect("there is a large value");
            let mut pieces = Vec::new();
            values
                .rows(&[1], &[2], &mut |key, _| {
                    pieces.push(key.to_vec());
                    true
                })
                .unwrap();
            write_row(db, values.tree(), &pieces[pieces.len() - 3], None);
        });
    }

    /// A piece of a value that no row has, and no mark.
    #[test]
    fn a_large_value_that_no_row_has_is_found() {
        is_found("named by no row, and not marked", |db| {
            let values = db.table("mine").unwrap().values().expect("there is a large value");
            write_row(db, values.tree(), &crate::transaction::piece_key(1 << 40, 10), Some(&[7; 10]));
        });
    }
}
