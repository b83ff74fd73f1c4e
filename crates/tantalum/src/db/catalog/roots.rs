//! Moving the nodes of the trees that the [`Catalog`] names, root pages included.

use std::sync::Arc;

use tantalum_rt::Mutex;
use tantalum_store::{PageId, TableId};

use super::{
    CATALOG_ID, Catalog, Claim,
    row::{CatalogRow, staging_key},
};
use crate::{
    buffer::{ChangeGroup, Reservation},
    error::{GroupResult, Lack, Result},
    table::Table,
    transaction::StagingTree,
    tree::{Chains, LeafValue, LeafWrite, Moved, Tree, or_no_room},
};

/// A tree that the catalog names.
enum Named {
    /// A table's own, or the one with its large values.
    OfTable(Table, Tree),
    /// A staging table. Its pages are not freed while it is known here.
    Staging(Arc<StagingTree>),
}

impl Catalog {
    /// Moves a node of the tree with this number to a page further in front; `None` if it is no tree of an open table: neither its own nor
    /// its value tree nor a staging table for it. No transaction commits what it has staged while it has locked `staged_commits`.
    pub fn move_node(
        &self,
        owner: TableId,
        id: PageId,
        lower: &[u8],
        level: u8,
        staged_commits: &Mutex<()>,
    ) -> Result<Option<Moved>> {
        if owner == CATALOG_ID {
            return self.tree.move_node(id, lower, level).map(Some);
        }
        match self.named(owner) {
            None => Ok(None),
            Some(Named::OfTable(table, tree)) => {
                // No task drops the table meanwhile, which would free its trees from the root on.
                let Some(_claim) = self.keep_table(&table) else { return Ok(Some(Moved::Gone)) };
                match tree.move_node(id, lower, level)? {
                    Moved::IsRoot => self.move_root(&table, &tree).map(Some),
                    moved => Ok(Some(moved)),
                }
            }
            Some(Named::Staging(staged)) => match staged.tree().move_node(id, lower, level)? {
                Moved::IsRoot => {
                    // Else the commit could write the row with the root that it had.
                    let _no_commit = staged_commits.lock();
                    self.move_named_root(&staging_key(owner), staged.tree()).map(Some)
                }
                moved => Ok(Some(moved)),
            },
        }
    }

    /// Whether it is the number of a tree whose nodes can [move](Self::move_node).
    pub fn has_tree(&self, owner: TableId) -> bool {
        owner == CATALOG_ID || self.named(owner).is_some()
    }

    /// Keeps a table from being dropped as long as what is returned lives: tasks that would drop it wait. `None` if it was dropped.
    pub fn keep_table<'c>(&'c self, table: &'c Table) -> Option<Claim<'c>> {
        let mut tables = self.unclaimed(table.name());
        let is_open = tables.open.get(table.name()).is_some_and(|open| open.id() == table.id());
        is_open.then(|| self.claim(&mut tables, table.name()))
    }

    fn named(&self, owner: TableId) -> Option<Named> {
        self.tables().into_iter().find_map(|table| {
            if table.id() == owner {
                let tree = table.tree().clone();
                return Some(Named::OfTable(table, tree));
            }
            if let Some(values) = table.values().filter(|values| values.tree().owner() == owner) {
                return Some(Named::OfTable(table, values.tree().clone()));
            }
            table.staging().with_id(owner).map(Named::Staging)
        })
    }

    /// Moves the root of a table's tree, or of its value tree, and has its row say so. The table's name is claimed.
    fn move_root(&self, table: &Table, tree: &Tree) -> Result<Moved> {
        let staging_key = staging_key(tree.owner());
        let key = if tree.owner() == table.id() { table.name().as_bytes() } else { &staging_key };
        self.move_named_root(key, tree)
    }

    /// Moves the root of a tree whose row has this key, and that no other task changes.
    fn move_named_root(&self, key: &[u8], tree: &Tree) -> Result<Moved> {
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
