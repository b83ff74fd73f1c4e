//! Moving the nodes of the trees that the [`Catalog`] names, root pages included.

use std::sync::Arc;

use tantalum_store::{PageId, TableId};

use super::{
    CATALOG_ID, Catalog,
    row::{CatalogRow, staging_key},
};
use crate::{
    buffer::{ChangeGroup, Reservation},
    error::{GroupResult, Lack, Result},
    table::Table,
    tree::{Chains, LeafValue, LeafWrite, Moved, Tree, or_no_room},
};

impl Catalog {
    /// Moves a node of the tree with this number to a page further in front; `None` if no table has it, as its value tree or as its own.
    pub fn move_node(&self, owner: TableId, id: PageId, lower: &[u8], level: u8) -> Result<Option<Moved>> {
        if owner == CATALOG_ID {
            return self.tree.move_node(id, lower, level).map(Some);
        }
        let Some((table, tree)) = self.owner_of(owner) else { return Ok(None) };
        let name = table.name();
        let mut tables = self.unclaimed(name);
        // No task drops the table meanwhile, which would free its trees from the root on.
        let is_open = tables.open.get(name).is_some_and(|open| open.id() == table.id());
        if !is_open {
            return Ok(Some(Moved::Gone));
        }
        let _claim = self.claim(&mut tables, name);
        drop(tables);
        match tree.move_node(id, lower, level)? {
            Moved::IsRoot => self.move_root(&table, &tree).map(Some),
            moved => Ok(Some(moved)),
        }
    }

    /// The table with the tree of this number, and that tree.
    fn owner_of(&self, owner: TableId) -> Option<(Table, Tree)> {
        self.tables().into_iter().find_map(|table| {
            if table.id() == owner {
                let tree = table.tree().clone();
                return Some((table, tree));
            }
            let values = table.values().filter(|values| values.tree().owner() == owner)?;
            Some((table, values.tree().clone()))
        })
    }

    /// Moves the root of a table's tree, or of its value tree, and has its row say so. The table's name is claimed.
    fn move_root(&self, table: &Table, tree: &Tree) -> Result<Moved> {
        let staging_key = staging_key(tree.owner());
        let key = if tree.owner() == table.id() { table.name().as_bytes() } else { &staging_key };
        let Some(row) = self.row_at(key)? else { return Ok(Moved::Gone) };
        loop {
            let attempt = |reservation: &_| self.try_move_root(key, row, tree, reservation);
            let moved = self.space.supplied(|reservation| match attempt(reservation) {
                Err(error) => or_no_room(Err(error)).map(Some),
                done => done,
            })?;
            if let Some(moved) = moved {
                return Ok(moved);
            }
        }
    }

    /// `None` if the row's leaf has changed meanwhile.
    fn try_move_root(
        &self,
        key: &[u8],
        row: CatalogRow,
        tree: &Tree,
        reservation: &Arc<Reservation>,
    ) -> GroupResult<Option<Moved>> {
        let root = tree.root();
        let root = self.pool.pin_in_memory(root).ok_or(Lack::Page(root))?;
        let draft = row.encode();
        let drafts = [LeafWrite { key, value: Some(LeafValue::Bytes(&draft)) }];
        let mut places = Vec::new();
        let (leaf, found_at) = self.tree.prepare(&drafts, &mut places, reservation)?;
        let leaf = leaf.write();
        if !self.tree.accepts(&leaf, &drafts, found_at, &mut places)? {
            return Ok(None);
        }
        let mut group = ChangeGroup::with(&self.pool, Some(reservation));
        let index = group.add(leaf);
        // It may be an inner page, which is latched before leaves.
        let root = root.try_write().ok_or(Lack::Latch(root.id()))?;
        let Some(fresh) = tree.move_root(&mut group, root)? else { return Ok(Some(Moved::NoRoom)) };
        let value = row.with_root(fresh).encode();
        let writes = [LeafWrite { key, value: Some(LeafValue::Bytes(&value)) }];
        self.tree.stage(&mut group, index, &writes, &places, &Chains::default())?;
        tree.append_moved_root(group, fresh)?;
        Ok(Some(Moved::Forward))
    }
}
