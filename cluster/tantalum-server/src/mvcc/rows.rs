//! The rows of the store: what their keys and values are.
//!
//! | table | key | value |
//! |---|---|---|
//! | [`META`] | a name | a number, or a revision |
//! | [`KEYS`] | a key that is there | [`KeyMeta`] |
//! | [`HISTORY`] | a key, escaped, and a revision that changed it | whether it was deleted |
//! | [`REVISIONS`] | a revision | the event: whether the key was deleted, and etcd's `KeyValue` |
//! | [`LEASES`] | a lease | its time to live |
//! | [`LEASE_KEYS`] | a lease, and a key that it holds | |
//! | [`ALARMS`] | a member, and the kind of an alarm | |
//! | [`PARTS`] | a member, and the number of a part | bytes of a command |
//!
//! `REVISIONS` has each value once. `KEYS` answers reads of the present, `HISTORY` those of the past; what `HISTORY` has and what
//! `REVISIONS` has are the same revisions, until compaction deletes both.

use std::ops::Bound;

use prost::Message;
use serde::{Deserialize, Serialize};
use tantalum::{Error, ErrorKind, Result};

use crate::api::mvccpb::KeyValue;

/// The names of the tables, in the order of their numbers.
pub const TABLES: [&str; 8] = ["meta", "keys", "history", "revisions", "leases", "lease keys", "alarms", "parts"];
pub const META: usize = 0;
pub const KEYS: usize = 1;
pub const HISTORY: usize = 2;
pub const REVISIONS: usize = 3;
pub const LEASES: usize = 4;
pub const LEASE_KEYS: usize = 5;
pub const ALARMS: usize = 6;
pub const PARTS: usize = 7;

/// Of a row of [`META`]: the last revision.
pub const REVISION: &str = "revision";
/// Of a row of [`META`]: the revision before which the history is given up.
pub const COMPACTED: &str = "compacted";
/// Of a row of [`META`]: the revision up to which compaction has deleted what it gave up.
pub const SWEPT: &str = "swept";

/// Bytes of a revision in a key.
pub const REVISION_BYTES: usize = 16;
const PUT: u8 = 0;
const DELETED: u8 = 1;

/// A change of a key: the revision of the store, and the number of the change within it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Revision {
    pub main: i64,
    pub sub: i64,
}

impl Revision {
    /// The first change of a revision.
    pub fn first_of(main: i64) -> Revision {
        Revision { main, sub: 0 }
    }

    /// Behind all changes of a revision.
    pub fn end_of(main: i64) -> Revision {
        Revision { main, sub: i64::MAX }
    }

    pub fn to_bytes(self) -> [u8; REVISION_BYTES] {
        (u128::from(self.main as u64) << 64 | u128::from(self.sub as u64)).to_be_bytes()
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Revision> {
        let bytes: [u8; REVISION_BYTES] = bytes.try_into().map_err(|_| damaged("a revision", "its length is wrong"))?;
        let both = u128::from_be_bytes(bytes);
        Ok(Revision { main: (both >> 64) as i64, sub: both as i64 })
    }
}

/// What is known of a key that is there, without its value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyMeta {
    pub revision: Revision,
    pub create_revision: i64,
    pub version: i64,
    pub lease: i64,
}

impl KeyMeta {
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("numbers can be encoded")
    }

    pub fn decode(row: &[u8]) -> Result<KeyMeta> {
        postcard::from_bytes(row).map_err(|error| damaged("a key", error))
    }

    /// The key with this, without a value.
    pub fn to_key_value(self, key: Vec<u8>) -> KeyValue {
        KeyValue {
            key,
            create_revision: self.create_revision,
            mod_revision: self.revision.main,
            version: self.version,
            value: Vec::new(),
            lease: self.lease,
        }
    }
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub revision: Revision,
    pub is_delete: bool,
    /// Of a deleted key, only key and revision.
    pub key_value: KeyValue,
}

impl Event {
    /// The value of the row, without the revision.
    pub fn encode(is_delete: bool, key_value: &KeyValue) -> Vec<u8> {
        let mut row = vec![if is_delete { DELETED } else { PUT }];
        row.reserve(key_value.encoded_len());
        row.extend(key_value.encode_to_vec());
        row
    }

    pub fn decode(revision: Revision, row: &[u8]) -> Result<Event> {
        let (kind, rest) = row.split_first().ok_or_else(|| damaged("a revision", "it is empty"))?;
        let mut key_value = KeyValue::decode(rest).map_err(|error| damaged("a revision", error))?;
        let is_delete = *kind == DELETED;
        if is_delete {
            key_value.mod_revision = revision.main;
        }
        Ok(Event { revision, is_delete, key_value })
    }
}

/// The value of a row of [`HISTORY`].
pub fn history_row(is_delete: bool) -> [u8; 1] {
    [if is_delete { DELETED } else { PUT }]
}

/// Whether a row of [`HISTORY`] says that the key was deleted.
pub fn is_delete(history_row: &[u8]) -> bool {
    history_row == [DELETED]
}

/// A key so that revisions can follow it in a row's key: the order stays that of keys, and none begins another.
pub fn escape(key: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(key.len() + 2 + REVISION_BYTES);
    for &byte in key {
        escaped.push(byte);
        if byte == 0 {
            escaped.push(u8::MAX);
        }
    }
    escaped.extend([0, 1]);
    escaped
}

/// The key of a row of [`HISTORY`].
pub fn history_key(escaped: &[u8], revision: Revision) -> Vec<u8> {
    [escaped, &revision.to_bytes()].concat()
}

/// The escaped key and the revision of a row of [`HISTORY`].
pub fn split_history_key(row_key: &[u8]) -> Result<(&[u8], Revision)> {
    let split =
        row_key.len().checked_sub(REVISION_BYTES).ok_or_else(|| damaged("the history", "a key is too short"))?;
    let (escaped, revision) = row_key.split_at(split);
    Ok((escaped, Revision::from_bytes(revision)?))
}

/// The key of a row of [`LEASE_KEYS`].
pub fn lease_key(lease: i64, key: &[u8]) -> Vec<u8> {
    [&lease.to_be_bytes()[..], key].concat()
}

/// A number in a row.
pub fn number(row: &[u8], what: &str) -> Result<i64> {
    Ok(i64::from_be_bytes(row.try_into().map_err(|_| damaged(what, "its length is wrong"))?))
}

/// A row is not what it must be.
pub fn damaged(what: &str, why: impl std::fmt::Display) -> Error {
    let message = format!(
        "a row of the store with {what} is damaged: {why}; restore this member from a snapshot or from another member"
    );
    Error::new(ErrorKind::Corrupt, message)
}

/// The keys that a request names, as etcd writes them.
#[derive(Clone, Debug, PartialEq)]
pub struct Keys {
    pub start: Vec<u8>,
    pub end: KeysEnd,
}

/// Where [`Keys`] end.
#[derive(Clone, Debug, PartialEq)]
pub enum KeysEnd {
    /// It is the one key.
    Single,
    /// Before this key.
    Before(Vec<u8>),
    /// Nowhere.
    Unbounded,
}

impl Keys {
    /// From a request: no end is the one key, and a zero byte no end.
    pub fn new(key: &[u8], range_end: &[u8]) -> Keys {
        let end = match range_end {
            [] => KeysEnd::Single,
            [0] => KeysEnd::Unbounded,
            end => KeysEnd::Before(end.to_vec()),
        };
        Keys { start: key.to_vec(), end }
    }

    pub fn single(key: &[u8]) -> Keys {
        Keys::new(key, &[])
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        match &self.end {
            KeysEnd::Single => key == self.start,
            KeysEnd::Before(end) => key >= &self.start[..] && key < &end[..],
            KeysEnd::Unbounded => key >= &self.start[..],
        }
    }

    /// The rows of [`KEYS`].
    pub fn bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let end = match &self.end {
            KeysEnd::Single => Bound::Included(self.start.clone()),
            KeysEnd::Before(end) => Bound::Excluded(end.clone()),
            KeysEnd::Unbounded => Bound::Unbounded,
        };
        (Bound::Included(self.start.clone()), end)
    }

    /// The rows of [`HISTORY`].
    pub fn history_bounds(&self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let start = escape(&self.start);
        let end = match &self.end {
            KeysEnd::Single => Bound::Included(history_key(&start, Revision::end_of(i64::MAX))),
            KeysEnd::Before(end) => Bound::Excluded(escape(end)),
            KeysEnd::Unbounded => Bound::Unbounded,
        };
        (Bound::Included(start), end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_keys_keep_their_order_and_none_begins_another() {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for a in [0u8, 1, 2, 254, 255] {
            keys.push(vec![a]);
            for b in [0u8, 1, 255] {
                keys.push(vec![a, b]);
                keys.push(vec![a, b, 0]);
            }
        }
        keys.sort();
        for pair in keys.windows(2) {
            let (low, high) = (escape(&pair[0]), escape(&pair[1]));
            assert!(low < high && !high.starts_with(&low), "{pair:?}");
            let last_of_low = history_key(&low, Revision::end_of(i64::MAX));
            assert!(last_of_low < history_key(&high, Revision::default()), "{pair:?}");
        }
    }

    #[test]
    fn rows_that_are_damaged_are_errors() {
        assert!(Event::decode(Revision::default(), b"").is_err());
        assert!(Event::decode(Revision::default(), b"\0\xff\xff").is_err());
        assert!(KeyMeta::decode(b"").is_err());
        assert!(split_history_key(b"short").is_err());
        let revision = Revision { main: 7, sub: 1 };
        assert_eq!(Revision::from_bytes(&revision.to_bytes()).expect("intact"), revision);
    }
}
