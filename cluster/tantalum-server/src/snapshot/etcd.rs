//! What etcd's database has, as rows of this store: keys with their history, revisions, leases. Not users and roles, members, alarms.

use std::fs::File;
use std::io;

use prost::Message;
use tantalum::{Db, Table, Transaction};

use super::bolt::Bolt;
use crate::api::mvccpb::KeyValue;
use crate::mvcc::{Event, Revision, import};
use crate::service::is_short_enough;

/// Events that are written in one transaction.
const EVENTS_AT_A_TIME: usize = 2000;
/// A revision: its number, `_`, the number of the change.
const REVISION_BYTES: usize = 17;
/// Behind the revision of a deleted key.
const TOMBSTONE: &[u8] = b"t";

/// etcd's message `Lease`.
#[derive(Clone, PartialEq, Message)]
struct Lease {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(int64, tag = "2")]
    ttl_s: i64,
}

fn damaged(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("etcd's database is damaged: {what}"))
}

/// A revision, and what follows it.
fn revision(key: &[u8]) -> io::Result<(Revision, &[u8])> {
    let parts = key.split_at_checked(REVISION_BYTES).filter(|(revision, _)| revision[8] == b'_');
    let (bytes, rest) = parts.ok_or_else(|| damaged("the key of a revision is none"))?;
    let number = |bytes: &[u8]| i64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    let revision = Revision { main: number(&bytes[..8]), sub: number(&bytes[9..]) };
    match revision.main >= 1 && revision.sub >= 0 {
        true => Ok((revision, rest)),
        false => Err(damaged("a revision is negative")),
    }
}

/// Writes rows in transactions of some.
struct Rows<'d> {
    db: &'d Db,
    tables: &'d [Table],
    waiting: Vec<Event>,
}

impl Rows<'_> {
    fn write(&mut self) -> io::Result<()> {
        let (tables, waiting) = (self.tables, std::mem::take(&mut self.waiting));
        let write = |transaction: &mut Transaction| {
            waiting.iter().try_for_each(|event| import::add_event(transaction, tables, event))
        };
        self.db.transact(write).map_err(io::Error::other)
    }

    fn add(&mut self, event: Event) -> io::Result<()> {
        self.waiting.push(event);
        if self.waiting.len() == EVENTS_AT_A_TIME { self.write() } else { Ok(()) }
    }
}

/// Fills the tables of an empty store with what a file has. Returns the last revision.
pub fn fill(file: File, db: &Db, tables: &[Table]) -> io::Result<i64> {
    let bolt = Bolt::open(file)?;
    let mut compacted = None;
    if let Some(meta) = bolt.bucket("meta")? {
        bolt.for_each(&meta, |key, value| {
            if [&b"scheduledCompactRev"[..], b"finishedCompactRev"].contains(&key) {
                compacted = compacted.max(Some(revision(value)?.0.main));
            }
            Ok(())
        })?;
    }
    let keys = bolt.bucket("key")?.ok_or_else(|| damaged("it has no bucket \"key\""))?;
    let mut rows = Rows { db, tables, waiting: Vec::new() };
    let mut last = Revision::default();
    bolt.for_each(&keys, |key, value| {
        let (at, rest) = revision(key)?;
        if at <= last && last != Revision::default() {
            return Err(damaged("its revisions are not in order"));
        }
        last = at;
        let is_delete = match rest {
            [] => false,
            mark if mark == TOMBSTONE => true,
            _ => return Err(damaged("the key of a revision is none")),
        };
        let row = KeyValue::decode(value).map_err(|error| damaged(format_args!("a revision: {error}")))?;
        if !is_short_enough(&row.key) {
            let begin = String::from_utf8_lossy(&row.key[..40]).into_owned();
            let what = format!(
                "etcd's database has a key of {} bytes, which begins with {begin:?}; a key has at most 2030 bytes here, each zero \
                 byte counted twice: delete it in etcd, compact there, and take another snapshot",
                row.key.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let key_value = match is_delete {
            true => KeyValue { key: row.key, mod_revision: at.main, ..KeyValue::default() },
            false if row.mod_revision == at.main && row.create_revision <= at.main && row.version >= 1 => row,
            false => return Err(damaged(format_args!("revision {} is not what its key says", at.main))),
        };
        rows.add(Event { revision: at, is_delete, key_value })
    })?;
    rows.write()?;
    let mut leases = Vec::new();
    if let Some(bucket) = bolt.bucket("lease")? {
        bolt.for_each(&bucket, |_, value| {
            let lease = Lease::decode(value).map_err(|error| damaged(format_args!("a lease: {error}")))?;
            leases.push((lease.id, lease.ttl_s));
            Ok(())
        })?;
    }
    let last = last.main.max(compacted.unwrap_or(1)).max(1);
    let finish = |transaction: &mut Transaction| import::finish(transaction, tables, last, compacted, &leases);
    db.transact(finish).map_err(io::Error::other)?;
    Ok(last)
}
