//! The staging tables of the [`Catalog`]: made, found at opening, committed and dropped.

use std::{collections::BTreeMap, sync::Arc};

use tantalum_log::Lsn;
use tantalum_store::{PageId, TableId};

use super::{
    Catalog,
    row::{CatalogRow, StagingRow, StagingState, staging_key},
};
use crate::{error::Result, table::Table, transaction::StagingTree, tree::Tree};

/// The staging tables of a database that is being opened.
#[derive(Default)]
pub(crate) struct Recovered {
    /// Those whose rows belong to their tables, in the order of the commits.
    pub committed: Vec<(Table, Arc<StagingTree>)>,
    /// Those whose pages are to be freed.
    pub dropped: Vec<Arc<StagingTree>>,
}

impl Catalog {
    /// Makes an empty staging table for writes to table `target`. Need not be durable: the commit is logged later.
    pub fn create_staging(&self, target: TableId) -> Result<(TableId, Tree)> {
        let id = self.next_id()?;
        let row = StagingRow { state: StagingState::Uncommitted, id, root: PageId(u64::MAX), target };
        let (root, _) = self.in_group(&row.key(), Some(CatalogRow::Staging(row)))?;
        Ok((id, self.tree_at(id, root)))
    }

    /// Makes a change buffer for writes to table `target`: an empty staging table that is committed, at this place in the order of commits.
    /// Returns where in the log it was made. Need not be durable: what is put into it is logged later.
    pub fn create_change_buffer(&self, target: TableId, order: u64) -> Result<(Tree, Lsn)> {
        let id = self.next_id()?;
        let row = StagingRow { state: StagingState::Committed(order), id, root: PageId(u64::MAX), target };
        let (root, end) = self.in_group(&row.key(), Some(CatalogRow::Staging(row)))?;
        Ok((self.tree_at(id, root), end))
    }

    /// Frees the pages of a staging table, or of a value tree, that no task looks at any more, and removes its row. Need not be
    /// durable: a crash leaves it to the next open. Frees no more pages when `may_go_on` fails.
    pub fn drop_staging(&self, id: TableId, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        let key = staging_key(id);
        let row = match self.row_at(&key)? {
            Some(CatalogRow::Staging(row)) => row,
            Some(CatalogRow::Values(row)) => StagingRow { state: StagingState::Uncommitted, ..row.dropping() },
            Some(CatalogRow::Table(_)) | None => return Ok(()),
        };
        if row.state != StagingState::Dropping {
            self.in_group(&key, Some(CatalogRow::Staging(StagingRow { state: StagingState::Dropping, ..row })))?;
        }
        let tree = self.tree_at(row.id, row.root);
        loop {
            may_go_on()?;
            if tree.free_step()? {
                break;
            }
        }
        self.in_group(&key, None)?;
        self.tree.rebalance(&key)
    }

    /// The rows of all staging tables.
    pub fn staging_rows(&self) -> Result<Vec<StagingRow>> {
        let staging = self.all_rows()?.into_iter().filter_map(|(_, row)| match row {
            CatalogRow::Staging(row) => Some(row),
            CatalogRow::Table(_) | CatalogRow::Values(_) => None,
        });
        Ok(staging.collect())
    }

    /// The row of a staging table.
    pub fn staging_row(&self, id: TableId) -> Result<Option<StagingRow>> {
        Ok(match self.row_at(&staging_key(id))? {
            Some(CatalogRow::Staging(row)) => Some(row),
            _ => None,
        })
    }

    /// The tree that a staging table's row names.
    pub fn staging_tree_of(&self, row: StagingRow) -> Tree {
        self.tree_at(row.id, row.root)
    }

    /// Gives the tables the committed rows that were staged for them when the database was closed, or crashed.
    pub(super) fn recover_staging(&self, rows: Vec<StagingRow>) {
        let tables = self.tables();
        let by_id: BTreeMap<TableId, &Table> = tables.iter().map(|table| (table.id(), table)).collect();
        let mut recovered = self.recovered.lock();
        for row in rows {
            let tree = self.tree_at(row.id, row.root);
            match (row.state, by_id.get(&row.target)) {
                (StagingState::Committed(order), Some(table)) => {
                    let staged = Arc::new(StagingTree::recovered(tree, order));
                    table.staging().add(Arc::clone(&staged));
                    recovered.committed.push(((*table).clone(), staged));
                }
                // Its transaction has not committed, or its table is gone.
                _ => recovered.dropped.push(Arc::new(StagingTree::recovered(tree, 0))),
            }
        }
        recovered.committed.sort_by_key(|(_, staged)| staged.position());
    }

    /// The staging tables that were there when the database was opened, once.
    pub fn take_recovered(&self) -> Recovered {
        std::mem::take(&mut self.recovered.lock())
    }
}
