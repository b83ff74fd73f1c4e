//! Changing keys: one new revision of the store for all changes of a request.

use tantalum::{Result, Table, Transaction};

use super::rows::{
    Event, HISTORY, KEYS, KeyMeta, Keys, LEASE_KEYS, META, REVISION, REVISIONS, Revision, escape, history_key,
    history_row, lease_key,
};
use super::view::{Fetch, View};
use crate::api::mvccpb::KeyValue;

/// Writes the changes of one request. They count with [`finish`](Self::finish).
pub struct Writer<'a> {
    transaction: &'a mut Transaction,
    tables: &'a [Table],
    /// The revision of the store before.
    before: i64,
    changes: i64,
}

impl<'a> Writer<'a> {
    pub fn begin(transaction: &'a mut Transaction, tables: &'a [Table]) -> Result<Writer<'a>> {
        let before = View { transaction, tables }.revision()?;
        Ok(Writer { transaction, tables, before, changes: 0 })
    }

    pub fn view(&self) -> View<'_> {
        View { transaction: self.transaction, tables: self.tables }
    }

    /// The revision of the store, with what was changed so far.
    pub fn revision(&self) -> i64 {
        self.before + i64::from(self.changes > 0)
    }

    /// Sets a key. Returns the revision.
    pub fn put(&mut self, key: &[u8], value: Vec<u8>, lease: i64) -> Result<i64> {
        let before = self.view().key_meta(key)?;
        let revision = self.next();
        let meta = KeyMeta {
            revision,
            create_revision: before.map_or(revision.main, |meta| meta.create_revision),
            version: before.map_or(0, |meta| meta.version) + 1,
            lease,
        };
        let key_value = KeyValue { value, ..meta.to_key_value(key.to_vec()) };
        self.record(revision, false, &key_value)?;
        self.transaction.put(&self.tables[KEYS], key, meta.encode())?;
        let lease_before = before.map_or(0, |meta| meta.lease);
        if lease_before != lease {
            self.detach(lease_before, key)?;
            if lease != 0 {
                self.transaction.put(&self.tables[LEASE_KEYS], lease_key(lease, key), "")?;
            }
        }
        Ok(revision.main)
    }

    /// Deletes the keys of a range. Returns how many there were.
    pub fn delete_range(&mut self, keys: &Keys) -> Result<i64> {
        let found = self.view().range(keys, 0, Fetch::Keys)?.key_values;
        let count = found.len() as i64;
        for KeyValue { key, lease, .. } in found {
            let revision = self.next();
            let deleted = KeyValue { key, ..KeyValue::default() };
            self.record(revision, true, &deleted)?;
            self.transaction.delete(&self.tables[KEYS], &deleted.key)?;
            self.detach(lease, &deleted.key)?;
        }
        Ok(count)
    }

    /// Makes the changes the store's next revision, if there are any. Returns the revision of the store.
    pub fn finish(self) -> Result<i64> {
        let revision = self.revision();
        if self.changes > 0 {
            self.transaction.put(&self.tables[META], REVISION, revision.to_be_bytes())?;
        }
        Ok(revision)
    }

    fn next(&mut self) -> Revision {
        let revision = Revision { main: self.before + 1, sub: self.changes };
        self.changes += 1;
        revision
    }

    fn record(&mut self, revision: Revision, is_delete: bool, key_value: &KeyValue) -> Result<()> {
        self.transaction.put(&self.tables[REVISIONS], revision.to_bytes(), Event::encode(is_delete, key_value))?;
        let history_key = history_key(&escape(&key_value.key), revision);
        self.transaction.put(&self.tables[HISTORY], history_key, history_row(is_delete))
    }

    fn detach(&mut self, lease: i64, key: &[u8]) -> Result<()> {
        if lease != 0 {
            self.transaction.delete(&self.tables[LEASE_KEYS], lease_key(lease, key))?;
        }
        Ok(())
    }
}
