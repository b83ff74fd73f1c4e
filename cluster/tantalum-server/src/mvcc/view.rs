//! Reading the store, as of now or of a revision that is not compacted.

use std::ops::Bound;

use tantalum::{Result, Table, Transaction, Value};

use super::rows::{
    COMPACTED, Event, HISTORY, KEYS, KeyMeta, Keys, KeysEnd, LEASES, META, REVISION, REVISIONS, Revision, SWEPT,
    damaged, escape, history_key, is_delete, number, split_history_key,
};
use crate::api::mvccpb::KeyValue;

/// The store, as a transaction sees it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub transaction: &'a Transaction,
    pub tables: &'a [Table],
}

/// How much of the keys is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    Count,
    /// Everything but the values.
    Keys,
    Values,
}

/// What a range has.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// In the order of their keys, as many as asked for.
    pub key_values: Vec<KeyValue>,
    /// All of them.
    pub count: i64,
}

impl<'a> View<'a> {
    /// The last revision; that of an empty store is 1.
    pub fn revision(&self) -> Result<i64> {
        Ok(self.meta(REVISION)?.unwrap_or(1))
    }

    /// The revision before which the history is given up; -1 if it never was.
    pub fn compacted(&self) -> Result<i64> {
        Ok(self.meta(COMPACTED)?.unwrap_or(-1))
    }

    /// What compaction has to look at next.
    pub fn swept(&self) -> Result<Revision> {
        let row = self.transaction.get(&self.tables[META], SWEPT)?;
        row.map_or(Ok(Revision::default()), |row| Revision::from_bytes(&row))
    }

    fn meta(&self, name: &str) -> Result<Option<i64>> {
        self.transaction.get(&self.tables[META], name)?.map(|row| number(&row, name)).transpose()
    }

    /// What is known of a key that is there.
    pub fn key_meta(&self, key: &[u8]) -> Result<Option<KeyMeta>> {
        self.transaction.get(&self.tables[KEYS], key)?.map(|row| KeyMeta::decode(&row)).transpose()
    }

    /// A key as it is now.
    pub fn get(&self, key: &[u8]) -> Result<Option<KeyValue>> {
        let Some(meta) = self.key_meta(key)? else { return Ok(None) };
        Ok(self.key_values(&[meta.revision])?.pop())
    }

    /// A lease's time to live in seconds.
    pub fn lease_ttl_s(&self, id: i64) -> Result<Option<i64>> {
        let row = self.transaction.get(&self.tables[LEASES], id.to_be_bytes())?;
        row.map(|row| number(&row, "a lease")).transpose()
    }

    /// The keys of a range as they are now; `limit` of them, or all if it is 0.
    pub fn range(&self, keys: &Keys, limit: usize, fetch: Fetch) -> Result<Found> {
        let mut metas = Vec::new();
        let mut count = 0;
        let limit = if limit == 0 { usize::MAX } else { limit };
        if keys.end == KeysEnd::Single {
            metas.extend(self.key_meta(&keys.start)?.map(|meta| (keys.start.clone(), meta)));
            count = metas.len() as i64;
        } else if !is_empty(keys) {
            let mut rows = self.transaction.range(&self.tables[KEYS], keys.bounds())?;
            while fetch != Fetch::Count && metas.len() < limit {
                let Some(row) = rows.next_borrowed() else { break };
                let (key, meta) = row?;
                metas.push((key.to_vec(), KeyMeta::decode(meta)?));
            }
            count = metas.len() as i64;
            while let Some(key) = rows.next_key() {
                key?;
                count += 1;
            }
        }
        let key_values = match fetch {
            Fetch::Count => Vec::new(),
            Fetch::Keys => metas.into_iter().map(|(key, meta)| meta.to_key_value(key)).collect(),
            Fetch::Values => self.key_values(&metas.iter().map(|(_, meta)| meta.revision).collect::<Vec<_>>())?,
        };
        Ok(Found { key_values, count })
    }

    /// The keys of a range as a revision that is not compacted left them.
    pub fn range_at(&self, keys: &Keys, main: i64, limit: usize, fetch: Fetch) -> Result<Found> {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut revisions = Vec::new();
        let mut count = 0;
        let (mut lower, upper) = keys.history_bounds();
        while !is_empty(keys) {
            let mut rows = self.transaction.range(&self.tables[HISTORY], (lower, upper.clone()))?;
            let Some(row) = rows.next_key().transpose()? else { break };
            let (escaped, _) = split_history_key(&row)?;
            if let Some((revision, false)) = self.last_change(escaped, Revision::end_of(main))? {
                count += 1;
                if fetch != Fetch::Count && revisions.len() < limit {
                    revisions.push(revision);
                }
            }
            lower = Bound::Excluded(history_key(escaped, Revision::end_of(i64::MAX)));
        }
        let mut key_values = self.key_values(&revisions)?;
        if fetch == Fetch::Keys {
            key_values.iter_mut().for_each(|key_value| key_value.value.clear());
        }
        Ok(Found { key_values, count })
    }

    /// The last change of a key up to `up_to`, and whether it deleted the key.
    pub fn last_change(&self, escaped: &[u8], up_to: Revision) -> Result<Option<(Revision, bool)>> {
        let bounds = history_key(escaped, Revision::default())..=history_key(escaped, up_to);
        let Some((row_key, row)) = self.transaction.range(&self.tables[HISTORY], bounds)?.next_back().transpose()?
        else {
            return Ok(None);
        };
        Ok(Some((split_history_key(&row_key)?.1, is_delete(&row))))
    }

    /// A key as a revision left it.
    pub fn get_at(&self, key: &[u8], main: i64) -> Result<Option<KeyValue>> {
        match self.last_change(&escape(key), Revision::end_of(main))? {
            Some((revision, false)) => Ok(self.key_values(&[revision])?.pop()),
            _ => Ok(None),
        }
    }

    fn key_values(&self, revisions: &[Revision]) -> Result<Vec<KeyValue>> {
        let rows =
            self.transaction.get_many(&self.tables[REVISIONS], revisions.iter().map(|revision| revision.to_bytes()))?;
        let decode = |(row, revision): (Option<Value>, &Revision)| {
            let row = row.ok_or_else(|| damaged("a revision", format_args!("revision {revision:?} is missing")))?;
            Ok(Event::decode(*revision, &row)?.key_value)
        };
        rows.into_iter().zip(revisions).map(decode).collect()
    }

    /// The changes of the revisions from `from` to `to`, whole revisions, until they have more than `bytes`. Returns also the last
    /// revision that is complete.
    pub fn events(&self, from: i64, to: i64, bytes: usize) -> Result<(Vec<Event>, i64)> {
        let mut events: Vec<Event> = Vec::new();
        let bounds = Revision::first_of(from).to_bytes()..=Revision::end_of(to).to_bytes();
        let mut rows = self.transaction.range(&self.tables[REVISIONS], bounds)?;
        let mut size = 0;
        while let Some(row) = rows.next_borrowed() {
            let (row_key, row) = row?;
            let revision = Revision::from_bytes(row_key)?;
            if size > bytes && events.last().is_some_and(|last| last.revision.main < revision.main) {
                return Ok((events, revision.main - 1));
            }
            size += row.len();
            events.push(Event::decode(revision, row)?);
        }
        Ok((events, to))
    }
}

/// Whether a range ends before it begins.
fn is_empty(keys: &Keys) -> bool {
    matches!(&keys.end, KeysEnd::Before(end) if *end <= keys.start)
}
