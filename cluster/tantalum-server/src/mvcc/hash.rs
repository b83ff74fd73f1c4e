//! Hashes by which members compare what they have.

use prost::Message;
use tantalum::Result;

use super::rows::{Event, Keys, META, PARTS, REVISIONS, Revision, SWEPT, escape};
use super::view::{Fetch, View};
use crate::refusal::{Failed, Refusal};

/// The name of the bucket that etcd has revisions in, with which its hash begins.
const BUCKET: &[u8] = b"key";

/// A hash of the revisions up to one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeysHash {
    pub hash: u32,
    pub revision: i64,
    pub compacted: i64,
}

/// The hash that etcd makes of the same revisions, up to `revision`, or all if it is 0: CRC-32C over the rows that its database would
/// have. How far compaction was swept makes no difference.
pub fn hash_keys(view: View<'_>, revision: i64) -> Result<KeysHash, Failed> {
    let (current, compacted) = (view.revision()?, view.compacted()?);
    if revision > 0 && revision < compacted {
        return Err(Refusal::Compacted.into());
    }
    if revision > current {
        return Err(Refusal::FutureRevision.into());
    }
    if revision < 0 {
        // Nothing was there then.
        return Ok(KeysHash { hash: crc32c::crc32c(BUCKET), revision, compacted });
    }
    let revision = if revision == 0 { current } else { revision };
    let all = Keys::new(&[], &[0]);
    let is_empty = compacted >= 0 && view.range_at(&all, revision, 1, Fetch::Count)?.count == 0;
    let mut hash = crc32c::crc32c(BUCKET);
    for row in view.transaction.range(&view.tables[REVISIONS], ..Revision::first_of(revision + 1).to_bytes())? {
        let (row_key, row) = row?;
        let at = Revision::from_bytes(&row_key)?;
        let Event { is_delete, key_value, .. } = Event::decode(at, &row)?;
        if at.main <= compacted {
            // Only what keys have at the revision that is hashed; if that is nothing, etcd takes what compaction left.
            let up_to = Revision::end_of(if is_empty { compacted } else { revision });
            let last = view.last_change(&escape(&key_value.key), up_to)?;
            if is_delete || last.is_none_or(|(last, _)| last != at) {
                continue;
            }
        }
        let mut key = [0; 18];
        key[..8].copy_from_slice(&at.main.to_be_bytes());
        key[8] = b'_';
        key[9..17].copy_from_slice(&at.sub.to_be_bytes());
        key[17] = b't';
        hash = crc32c::crc32c_append(hash, &key[..17 + usize::from(is_delete)]);
        let value = if is_delete { crate::api::mvccpb::KeyValue { mod_revision: 0, ..key_value } } else { key_value };
        hash = crc32c::crc32c_append(hash, &value.encode_to_vec());
    }
    Ok(KeysHash { hash, revision, compacted })
}

/// A hash of all rows but those that are on their way in or out.
pub fn hash_all(view: View<'_>) -> Result<u32> {
    let mut hash = 0;
    for (number, table) in view.tables.iter().enumerate() {
        let mut rows = view.transaction.range(table, ..)?;
        while let Some(row) = rows.next_borrowed() {
            let (key, value) = row?;
            if number == PARTS || (number == META && key == SWEPT.as_bytes()) {
                continue;
            }
            hash = crc32c::crc32c_append(hash, &(key.len() as u64).to_le_bytes());
            hash = crc32c::crc32c_append(crc32c::crc32c_append(hash, key), value);
        }
    }
    Ok(hash)
}
