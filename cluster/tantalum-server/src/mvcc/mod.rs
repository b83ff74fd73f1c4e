//! The store: keys with all their revisions, leases and alarms, in tables of a database ([`rows`]).
//!
//! [`Keyspace`] applies a [`Command`] within the transaction that also notes how far raft's log was applied. Reads are a [`View`].

mod compaction;
mod hash;
pub mod import;
mod leases;
mod range;
mod rows;
#[cfg(test)]
mod tests;
mod txn;
mod view;
mod writer;

use std::sync::Arc;

use openraft::EntryPayload;
use openraft::alias::EntryOf;
use prost::Message;
use tantalum::{Db, Isolation, Prefix, Table, Transaction};
use tantalum_raft::openraft_storage::Application;

pub use hash::{KeysHash, hash_all, hash_keys};
pub use range::range;
pub use rows::{Event, Keys, KeysEnd, PARTS, REVISION_BYTES, Revision, TABLES, escape};
pub use txn::{is_read_only, is_serializable, read};
pub use view::{Fetch, View};

use crate::api::etcdserverpb as pb;
use crate::command::{Answer, Command, Config, Encoded};
use crate::lease::Lessor;
use crate::refusal::{Failed, Refusal};
use rows::damaged;
use writer::Writer;

/// The store, as openraft's application.
pub struct Keyspace {
    lessor: Arc<Lessor>,
}

/// Reads the store as it is now, without locks.
pub fn read_store<T>(db: &Db, tables: &[Table], read: impl FnOnce(View<'_>) -> Result<T, Failed>) -> Result<T, Failed> {
    let transaction = db.begin_with(Isolation::SnapshotIsolation)?;
    read(View { transaction: &transaction, tables })
}

impl Keyspace {
    /// The store that tells `lessor` which leases are made and ended.
    pub fn new(lessor: Arc<Lessor>) -> Keyspace {
        Keyspace { lessor }
    }

    /// Does what a command says.
    fn execute(&self, transaction: &mut Transaction, tables: &[Table], command: &Command) -> tantalum::Result<Answer> {
        match self.try_execute(transaction, tables, command) {
            Ok(answer) => Ok(answer),
            Err(Failed::Refused(refusal)) => Ok(Answer::Refused(refusal)),
            Err(Failed::Database(error)) => Err(error),
        }
    }

    fn try_execute(
        &self,
        transaction: &mut Transaction,
        tables: &[Table],
        command: &Command,
    ) -> Result<Answer, Failed> {
        check_alarms(View { transaction, tables }, command)?;
        match command {
            Command::Put(Encoded(request)) => {
                let mut writer = Writer::begin(transaction, tables)?;
                txn::check_put(writer.view(), request)?;
                let response = txn::put(&mut writer, request)?;
                writer.finish()?;
                Ok(Answer::Put(Encoded(response)))
            }
            Command::DeleteRange(Encoded(request)) => {
                let mut writer = Writer::begin(transaction, tables)?;
                let response = txn::delete_range(&mut writer, request)?;
                writer.finish()?;
                Ok(Answer::DeleteRange(Encoded(response)))
            }
            Command::Txn(Encoded(request)) => {
                let mut writer = Writer::begin(transaction, tables)?;
                let response = txn::run(&mut writer, request)?;
                writer.finish()?;
                Ok(Answer::Txn(Encoded(response)))
            }
            Command::Compact { revision } => {
                compaction::compact(transaction, tables, *revision)?;
                Ok(Answer::Done { revision: View { transaction, tables }.revision()? })
            }
            Command::Sweep { revisions } => {
                let is_finished = compaction::sweep(transaction, tables, *revisions as usize)?;
                Ok(Answer::Swept { is_finished })
            }
            Command::LeaseGrant { id, ttl_s } => {
                leases::grant(transaction, tables, *id, *ttl_s)?;
                // Again, should the transaction be: that changes nothing.
                self.lessor.granted(*id, *ttl_s);
                Ok(Answer::Done { revision: View { transaction, tables }.revision()? })
            }
            Command::LeaseRevoke { id } => {
                let revision = leases::revoke(transaction, tables, *id)?;
                self.lessor.revoked(*id);
                Ok(Answer::Done { revision })
            }
            Command::Alarm(Encoded(request)) => {
                let alarms = leases::alarm(transaction, tables, request)?;
                let header =
                    pb::ResponseHeader { revision: View { transaction, tables }.revision()?, ..Default::default() };
                Ok(Answer::Alarm(Encoded(pb::AlarmResponse { header: Some(header), alarms })))
            }
            Command::Part { member, number, bytes } => {
                if *number == 0 {
                    transaction.delete_range(&tables[PARTS], Prefix(member.to_be_bytes()))?;
                }
                transaction.put(&tables[PARTS], part_key(*member, *number), &bytes.0)?;
                Ok(Answer::Nothing)
            }
            Command::Assembled { member, parts } => {
                let whole = assemble(transaction, tables, *member, *parts)?;
                self.try_execute(transaction, tables, &whole)
            }
        }
    }
}

impl Application<Config> for Keyspace {
    fn apply(
        &self,
        transaction: &mut Transaction,
        tables: &[Table],
        entry: &EntryOf<Config>,
    ) -> tantalum::Result<Answer> {
        match &entry.payload {
            EntryPayload::Normal(command) => self.execute(transaction, tables, command),
            EntryPayload::Blank | EntryPayload::Membership(_) => Ok(Answer::Nothing),
        }
    }

    fn replaced(&self, transaction: &Transaction, tables: &[Table]) -> tantalum::Result<()> {
        self.lessor.replaced(View { transaction, tables }.leases()?);
        Ok(())
    }
}

/// Whether a command adds to the store what it is to keep.
pub fn takes_space(command: &Command) -> bool {
    match command {
        Command::Put(_) | Command::LeaseGrant { .. } => true,
        Command::Txn(Encoded(request)) => txn::puts(request),
        _ => false,
    }
}

/// What alarms forbid.
fn check_alarms(view: View<'_>, command: &Command) -> Result<(), Failed> {
    let takes_space = takes_space(command);
    let is_of_a_client = !matches!(command, Command::Alarm(_) | Command::Sweep { .. } | Command::Part { .. });
    for alarm in view.alarms()? {
        match alarm.alarm() {
            pb::AlarmType::Nospace if takes_space => return Err(Refusal::NoSpace.into()),
            pb::AlarmType::Corrupt if is_of_a_client => return Err(Refusal::Corrupt.into()),
            _ => {}
        }
    }
    Ok(())
}

fn part_key(member: u64, number: u32) -> [u8; 12] {
    (u128::from(member) << 32 | u128::from(number)).to_be_bytes().last_chunk().copied().expect("it has 16 bytes")
}

/// Takes the parts of a command out of the store.
fn assemble(transaction: &mut Transaction, tables: &[Table], member: u64, parts: u32) -> Result<Command, Failed> {
    let mut bytes = Vec::new();
    for number in 0..parts {
        let missing = || damaged("a command", format_args!("part {number} of {parts} of member {member} is missing"));
        let key = part_key(member, number);
        bytes.extend_from_slice(&transaction.get(&tables[PARTS], key)?.ok_or_else(missing)?);
        transaction.delete(&tables[PARTS], key)?;
    }
    Ok(postcard::from_bytes(&bytes).map_err(|error| damaged("a command", error))?)
}

/// The parts of an encoded command, and what puts them together.
pub fn parts_of(member: u64, encoded: &[u8], part_bytes: usize) -> (Vec<Command>, Command) {
    let part =
        |(number, bytes): (u32, &[u8])| Command::Part { member, number, bytes: crate::command::Bytes(bytes.to_vec()) };
    let parts: Vec<_> = (0..).zip(encoded.chunks(part_bytes.max(1))).map(part).collect();
    let assembled = Command::Assembled { member, parts: parts.len() as u32 };
    (parts, assembled)
}

/// Bytes that the message of a command has, as etcd counts a request.
pub fn request_bytes(command: &Command) -> usize {
    match command {
        Command::Put(request) => request.0.encoded_len(),
        Command::DeleteRange(request) => request.0.encoded_len(),
        Command::Txn(request) => request.0.encoded_len(),
        Command::Alarm(request) => request.0.encoded_len(),
        _ => 0,
    }
}
