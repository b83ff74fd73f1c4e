//! The value trees of the [`Catalog`], with the large values of tables: made, found at opening, and dropped with their tables.

use std::{collections::BTreeMap, sync::Arc};

use tantalum_store::{PageId, TableId};

use super::{
    Catalog,
    row::{CatalogRow, ValuesRow},
};
use crate::{
    error::Result,
    table::Table,
    transaction::{StagingTree, ValueTree},
    tree::Tree,
};

impl Catalog {
    /// Makes an empty value tree for table `target`. Need not be durable: what is written to it is logged later.
    pub fn create_values(&self, target: TableId) -> Result<Tree> {
        let row = ValuesRow { id: self.next_id()?, root: PageId(u64::MAX), target };
        let (root, _) = self.in_group(&row.key(), Some(CatalogRow::Values(row)))?;
        Ok(self.tree_at(row.id, root))
    }

    /// The rows of all value trees.
    pub fn values_rows(&self) -> Result<Vec<ValuesRow>> {
        let values = self.all_rows()?.into_iter().filter_map(|(_, row)| match row {
            CatalogRow::Values(row) => Some(row),
            CatalogRow::Table(_) | CatalogRow::Staging(_) => None,
        });
        Ok(values.collect())
    }

    /// The value tree that a row names.
    pub fn values_tree_of(&self, row: ValuesRow) -> ValueTree {
        ValueTree::new(self.tree_at(row.id, row.root))
    }

    /// Gives the tables their value trees.
    pub(super) fn recover_values(&self, rows: Vec<ValuesRow>) {
        let tables = self.tables();
        let by_id: BTreeMap<TableId, &Table> = tables.iter().map(|table| (table.id(), table)).collect();
        for row in rows {
            // One of a table that is gone was freed with it.
            if let Some(table) = by_id.get(&row.target) {
                table.set_values(self.values_tree_of(row));
            }
        }
    }

    /// Frees the pages of the large values of a table that is being dropped.
    pub(super) fn drop_values_of(&self, target: TableId, may_go_on: &dyn Fn() -> Result<()>) -> Result<()> {
        for row in self.values_rows()?.into_iter().filter(|row| row.target == target) {
            self.drop_staging(row.id, may_go_on).inspect_err(|_| {
                // The table's row does not lead there.
                let left = StagingTree::recovered(self.tree_at(row.id, row.root), 0);
                self.recovered.lock().dropped.push(Arc::new(left));
            })?;
        }
        Ok(())
    }
}
