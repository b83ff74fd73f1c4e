//! The pages of a compaction: those behind as many as are in use move to free ones in front, the last one first.
//!
//! Nothing leads from an overflow page of an earlier version to its row. So if one is to move, the rows of its table are looked through,
//! and each value that has a page back there is written anew, by a transaction of its own: snapshots, locks, the archive and recovery
//! need nothing new for that. Nor does anything lead from pages of a staging table that is being freed; they are waited for.
//!
//! The first page that cannot be moved ends it: what lies before that stays in the file.

use std::{collections::BTreeMap, time::Duration};

use tantalum_rt::sleep;
use tantalum_store::{PageId, PageKind, TableId, page::header};

use super::{CompactProgress, CompactReport, CompactStep};
use crate::{
    db::Db,
    error::{ErrorKind, Result},
    options::Isolation,
    table::Table,
    tree::{ChainRow, Moved, lower_fence},
};

/// Moves the pages of a database.
pub(super) struct Mover<'c> {
    db: &'c Db,
    report: &'c mut dyn FnMut(CompactProgress),
    pages_moved: u64,
    values_converted: u64,
    /// Tables whose rows were looked through.
    tables: BTreeMap<TableId, Skipped>,
    /// How often staging tables that are being freed may still be waited for.
    waits_left: u32,
}

/// Large values of a table that stay in overflow pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Skipped {
    /// Their rows were locked.
    pub locked: u64,
    /// The device had no space for a second one.
    pub has_no_space: bool,
}

/// What is in a page that is to move.
enum Found {
    Node(Moved),
    /// A part of a large value of this table.
    Chain(TableId),
    /// Something that no open table has.
    Unknown,
}

/// How often staging tables are waited for; large transactions may commit all the time.
const WAITS: u32 = 3;
/// A locked row is tried so often, ...
const LOCK_TRIES: u32 = 6;
/// ... with this pause in between, ...
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// ... but only the first ones of a table.
const MOST_WAITED_FOR: u64 = 16;

impl<'c> Mover<'c> {
    pub fn new(db: &'c Db, report: &'c mut dyn FnMut(CompactProgress)) -> Self {
        let tables = BTreeMap::new();
        Self { db, report, pages_moved: 0, values_converted: 0, tables, waits_left: WAITS }
    }

    /// Moves what can be moved.
    pub fn run(&mut self) -> Result<()> {
        // Values that were written anew may lie behind the end too: their pages move in another round, which converts less.
        loop {
            let before = self.values_converted;
            self.move_pages()?;
            if self.values_converted == before {
                return Ok(());
            }
        }
    }

    /// Counts what was done. Returns the values that stayed.
    pub fn finish(self, done: &mut CompactReport) -> BTreeMap<TableId, Skipped> {
        (done.pages_moved, done.values_converted) = (self.pages_moved, self.values_converted);
        self.tables
    }

    fn move_pages(&mut self) -> Result<()> {
        let core = self.db.core();
        let (end, pages) = core.space.behind_those_in_use()?;
        let total = pages.len() as u64;
        for (done, page) in (0..).zip(pages.into_iter().rev()) {
            self.tell(CompactStep::MovePages, done, total);
            loop {
                let operation = core.begin_operation()?;
                let found = self.move_page(page)?;
                drop(operation);
                let has_changed = match found {
                    Found::Node(Moved::Forward) => {
                        self.pages_moved += 1;
                        break;
                    }
                    Found::Node(Moved::Gone) => break,
                    Found::Node(Moved::NoRoom | Moved::IsRoot) => false,
                    Found::Chain(owner) => self.convert(owner, end)?,
                    Found::Unknown => self.wait_for_freed(),
                };
                if !has_changed {
                    self.tell(CompactStep::MovePages, total, total);
                    return Ok(());
                }
            }
        }
        self.tell(CompactStep::MovePages, total, total);
        Ok(())
    }

    fn tell(&mut self, step: CompactStep, done: u64, total: u64) {
        (self.report)(CompactProgress { step, done, total });
    }

    /// Moves what is in a page, if it is a node.
    fn move_page(&self, id: PageId) -> Result<Found> {
        let core = self.db.core();
        let (owner, level, lower) = {
            let page = core.pool.pin_or_blank(id)?.read();
            let owner = header::owner(&page);
            match header::kind(&page)? {
                PageKind::Leaf | PageKind::Inner => {}
                PageKind::Free => return Ok(Found::Node(Moved::Gone)),
                PageKind::Overflow => return Ok(Found::Chain(owner)),
                _ => return Ok(Found::Unknown),
            }
            (owner, header::level(&page), lower_fence(&page)?.to_vec())
        };
        let moved = core.catalog.move_node(owner, id, &lower, level, self.db.manager().staged_commits())?;
        Ok(moved.map_or(Found::Unknown, Found::Node))
    }

    /// Waits until staging tables are freed that are done with. False if it was done often enough, or the database is closed.
    fn wait_for_freed(&mut self) -> bool {
        let Some(left) = self.waits_left.checked_sub(1) else { return false };
        self.waits_left = left;
        self.settle();
        self.db.core().check_open().is_ok()
    }

    fn settle(&mut self) {
        let report = &mut *self.report;
        let step = CompactStep::FinishTransactions;
        self.db.manager().settle(&mut |done, total| report(CompactProgress { step, done, total }));
    }

    /// Writes the large values of a table anew that have overflow pages from `end` on. False if that was done before.
    fn convert(&mut self, owner: TableId, end: PageId) -> Result<bool> {
        let core = self.db.core();
        let table = core.catalog.tables().into_iter().find(|table| table.id() == owner);
        let Some(table) = table else { return Ok(self.wait_for_freed()) };
        if self.tables.contains_key(&owner) {
            return Ok(false);
        }
        self.tables.insert(owner, Skipped::default());
        let (mut next, mut done) = (Some(Vec::new()), 0);
        while let Some(from) = next.take() {
            let operation = core.begin_operation()?;
            let Some(claim) = core.catalog.keep_table(&table) else { return Ok(true) };
            let (rows, behind) = table.tree().chains_behind(&from, end)?;
            drop((claim, operation));
            next = behind;
            for row in rows {
                self.tell(CompactStep::ConvertValues, done, done + row.pages);
                if !self.convert_row(&table, &row)? {
                    next = None;
                    break;
                }
                done += row.pages;
            }
        }
        // What was too much for one record is staged.
        self.settle();
        Ok(true)
    }

    /// Writes the value of a row anew, unless the row is locked. False if there is no space for further ones.
    fn convert_row(&mut self, table: &Table, row: &ChainRow) -> Result<bool> {
        let core = self.db.core();
        let skipped = self.tables.entry(table.id()).or_default();
        let tries = if skipped.locked < MOST_WAITED_FOR { LOCK_TRIES } else { 1 };
        for turn in 0..tries {
            if turn > 0 {
                sleep(LOCK_PAUSE);
            }
            // A commit on a full device would have snapshots given up.
            match core.space.ensure_free(row.pages) {
                Err(error) if error.kind() == ErrorKind::StoreFull => {
                    skipped.has_no_space = true;
                    return Ok(false);
                }
                free => free?,
            }
            // Else the table could not be dropped meanwhile, as one that is in use.
            let Some(_claim) = core.catalog.keep_table(table) else { return Ok(true) };
            let mut transaction = self.db.begin_with(Isolation::Serializable)?;
            if transaction.write_large_anew(table, &row.key)? {
                transaction.commit_async()?;
                self.values_converted += 1;
                return Ok(true);
            }
        }
        skipped.locked += 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_device::MemoryDevice;
    use tantalum_rt::{Simulation, sleep, spawn};

    use crate::{Db, Devices};

    /// The commit could write the root that its staging table had before.
    #[test]
    fn the_root_of_a_staging_table_does_not_move_while_it_is_committed() {
        let run = || {
            let log = vec![MemoryDevice::new("log", 4 << 20) as _];
            let area = MemoryDevice::new("area", 300 << 10);
            let devices = Devices { data: MemoryDevice::new("data", 1 << 20), double_write: Some(area), log };
            let builder = Db::builder().transaction_memory_bytes(8 << 10).buffer_pool_bytes(256 * 4096);
            let db = builder.open_on(devices).unwrap();
            let [table, dropped] = ["t", "dropped"].map(|name| db.table(name).unwrap());
            for first in (0..200u32).step_by(20) {
                let mut tx = db.begin().unwrap();
                (first..first + 20).for_each(|n| tx.put(&dropped, n.to_be_bytes(), [1; 1000]).unwrap());
                tx.commit().unwrap();
            }
            let mut tx = db.begin().unwrap();
            (0..60u32).for_each(|n| tx.put(&table, n.to_be_bytes(), [7; 600]).unwrap());
            drop(dropped);
            db.drop_table("dropped").unwrap();
            let id = *table.staging().ids().first().unwrap();
            let root = || table.staging().with_id(id).unwrap().tree().root();
            let (before, committing) = (root(), db.manager().staged_commits().lock());
            let compaction = spawn("compaction", {
                let db = db.clone();
                move || db.compact(&mut |_| {}).unwrap()
            });
            sleep(Duration::from_secs(1));
            assert!(root() == before && !compaction.is_finished());
            drop(committing);
            compaction.join().unwrap();
            assert!(root() < before);
            tx.commit().unwrap();
            db.close().unwrap();
        };
        Simulation::new(1).run(run).expect_finished();
    }
}
