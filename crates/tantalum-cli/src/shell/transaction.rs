//! The transaction that is open between `begin` and `commit`.

use std::{cell::RefCell, io::Read, ops::Bound};

use tantalum::{
    Commit, Db, RangeIter, Table, Transaction,
    control::{KeyBounds, RowSelection, TableWrite, Written},
};

use crate::{
    db::source::{RowAccess, TakeRow},
    error::Result,
};

/// A transaction that a user has begun.
pub struct OpenTransaction {
    db: Db,
    transaction: RefCell<Transaction>,
}

impl OpenTransaction {
    pub fn begin(db: &Db) -> Result<Self> {
        Ok(Self { db: db.clone(), transaction: RefCell::new(db.begin()?) })
    }

    /// Makes its writes durable.
    pub fn commit(self) -> Result<Commit> {
        Ok(self.transaction.into_inner().commit()?)
    }

    /// Takes its writes back.
    pub fn roll_back(self) {
        self.transaction.into_inner().rollback();
    }

    /// Gives each row to `take`.
    fn each_row(&self, selection: &RowSelection, take: TakeRow<'_>) -> Result<()> {
        let RowSelection { tables, from, to, reverse, limit, keys_only } = selection;
        let transaction = self.transaction.borrow();
        let bounds = bounds_of(from.as_ref(), to.as_ref());
        for name in tables {
            let table: Table = self.db.open_table(name)?;
            take(name, None)?;
            let mut rows: RangeIter<'_> = transaction.range(&table, bounds)?;
            let mut left = limit.unwrap_or(u64::MAX);
            while left > 0 {
                let row = if *reverse { rows.next_back_borrowed() } else { rows.next_borrowed() };
                let Some(row) = row else { break };
                let (key, value) = row?;
                let mut value = if *keys_only { &[][..] } else { value };
                take(name, Some((key, &mut value)))?;
                left -= 1;
            }
        }
        Ok(())
    }
}

fn bounds_of<'k>(from: Option<&'k Vec<u8>>, to: Option<&'k Vec<u8>>) -> (Bound<&'k Vec<u8>>, Bound<&'k Vec<u8>>) {
    (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded))
}

impl RowAccess for OpenTransaction {
    fn table_names(&self) -> Result<Vec<String>> {
        Ok(self.db.tables()?)
    }

    fn rows(&self, selection: RowSelection, take: TakeRow<'_>) -> Result<()> {
        self.each_row(&selection, take)
    }

    fn count(&self, selection: RowSelection) -> Result<u64> {
        let mut count = 0;
        self.each_row(&selection, &mut |_, row| {
            count += u64::from(row.is_some());
            Ok(())
        })?;
        Ok(count)
    }

    fn write(&self, write: TableWrite) -> Result<Written> {
        let table = self.db.open_table(&write.table)?;
        let mut transaction = self.transaction.borrow_mut();
        let mut deleted = 0;
        if let Some(KeyBounds { from, to }) = &write.delete_range {
            deleted += transaction.delete_range(&table, bounds_of(from.as_ref(), to.as_ref()))?;
        }
        for key in &write.deletes {
            deleted += u64::from(transaction.delete(&table, key)?);
        }
        write.puts.iter().try_for_each(|(key, value)| transaction.put(&table, key, value))?;
        Ok(Written { deleted })
    }

    fn put(&self, table: &str, key: &[u8], value: &mut dyn Read) -> Result<()> {
        let table = self.db.table(table)?;
        self.transaction.borrow_mut().put_from(&table, key, value)?;
        Ok(())
    }
}
