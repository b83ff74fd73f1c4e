//! A node's state machine in a database.
//!
//! Invariant: the row that says how far entries were applied, and the configuration then, changes in the transaction that changes the
//! rows. So whatever the database has after a crash, raft-rs hands over what follows it.

use std::fmt;
use std::io;

use raft::eraftpb::{ConfState, Entry, SnapshotMetadata};
use tantalum::{Db, Snapshot, Table, Ticket, Transaction};

use super::{decode, encode};
use crate::{Error, ErrorKind, Result, StateSnapshot};

/// The table that says how far each group has come.
const APPLIED_TABLE: &str = "tantalum-raft-rs";
/// A transaction that has to give way to others of the program is tried again so often.
const TRIES: u32 = 100;

/// The state of a node, for raft-rs, in tables of a [`Db`]. Clones are handles to the same state.
///
/// The database may have other tables, and those of other groups. A program reads the tables when it likes, and writes them only by
/// [`apply`](Self::apply).
///
/// ```
/// use raft::eraftpb::{ConfState, Entry};
/// use tantalum_raft::raft_rs_storage::StateMachine;
///
/// let directory = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path().join("db"))?;
/// let machine = StateMachine::new(db, 1, &["words"])?;
/// machine.initialize(&ConfState::from((vec![1, 2, 3], vec![])))?;
/// let entry = Entry { index: 1, term: 1, data: "hello".into(), ..Entry::default() };
/// let counts = machine.apply(&[entry], None, |transaction, tables, entry| transaction.increment(&tables[0], &entry.data, 1))?;
/// assert_eq!((counts, machine.applied()?.index), (vec![1], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StateMachine {
    db: Db,
    group: u64,
    tables: Vec<Table>,
    applied: Table,
}

impl StateMachine {
    /// The state of group `group` in tables of these names, which are created if need be. All nodes give the same tables in the same
    /// order; no table belongs to two groups.
    ///
    /// # Errors
    /// Those of [`Db::table`].
    pub fn new(db: Db, group: u64, tables: &[&str]) -> Result<StateMachine> {
        let tables = tables.iter().map(|name| db.table(name)).collect::<Result<_>>()?;
        let applied = db.table(APPLIED_TABLE)?;
        Ok(StateMachine { db, group, tables, applied })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// Its tables.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Gives a group that begins its first configuration, the same on all of its first nodes; nodes that come later get it with a
    /// snapshot. Changes nothing if the group has one. Durable when it returns.
    ///
    /// # Errors
    /// Those of the database.
    pub fn initialize(&self, first: &ConfState) -> Result<()> {
        let (_, ticket) = self.transact(|transaction| {
            if transaction.get(&self.applied, self.key())?.is_none() {
                let state = SnapshotMetadata { conf_state: Some(first.clone()).into(), ..SnapshotMetadata::default() };
                transaction.put(&self.applied, self.key(), encode(&state)?)?;
            }
            Ok(())
        })?;
        ticket.wait().map(drop)
    }

    /// Index and term of the entry that was applied last, 0 if none was, with the configuration then: for
    /// [`Config::applied`](raft::Config::applied). It is durable.
    ///
    /// # Errors
    /// Those of the database, and [`Corrupt`](ErrorKind::Corrupt) if something else is stored there.
    pub fn applied(&self) -> Result<SnapshotMetadata> {
        self.decode(self.db.get(&self.applied, self.key())?)
    }

    /// Applies the entries of a [`Ready`](raft::Ready) or [`LightReady`](raft::LightReady) in one transaction: calls `apply` for each,
    /// with the [tables](Self::new), and returns the answers. `conf_state` is the configuration behind the last of them, if one changes
    /// it. Blank entries and configuration changes come too. All nodes must do the same, so what `apply` does depends on nothing but
    /// the entry and the tables; it is called again where the transaction had to give way to others.
    ///
    /// The commit is not waited for: what a crash takes of it is applied again, from the raft log.
    ///
    /// # Errors
    /// - Those of `apply` and of the database: then nothing was applied.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if the first entry does not follow the last that was applied.
    pub fn apply<T>(
        &self,
        entries: &[Entry],
        conf_state: Option<&ConfState>,
        mut apply: impl FnMut(&mut Transaction, &[Table], &Entry) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Some(last) = entries.last() else { return Ok(Vec::new()) };
        let (answers, _written_in_the_background) = self.transact(|transaction| {
            let mut applied = self.decode(transaction.get(&self.applied, self.key())?)?;
            if entries[0].index != applied.index + 1 {
                let what = format!(
                    "entry {} cannot be applied to the state of raft group {}, which has come to entry {}; give the raft node that index at its start (Config::applied)",
                    entries[0].index, self.group, applied.index
                );
                return Err(Error::new(ErrorKind::InvalidInput, what));
            }
            let answers =
                entries.iter().map(|entry| apply(transaction, &self.tables, entry)).collect::<Result<Vec<_>>>()?;
            (applied.index, applied.term) = (last.index, last.term);
            if let Some(conf_state) = conf_state {
                applied.conf_state = Some(conf_state.clone()).into();
            }
            transaction.put(&self.applied, self.key(), encode(&applied)?)?;
            Ok(answers)
        })?;
        Ok(answers)
    }

    /// The rows at one moment, which are durable, and how far they were applied.
    pub(super) fn snapshot(&self) -> Result<(SnapshotMetadata, StateSnapshot)> {
        let snapshot: Snapshot = self.db.snapshot()?;
        let applied = self.decode(snapshot.get(&self.applied, self.key())?)?;
        Ok((applied, StateSnapshot::of_database(snapshot, self.tables.clone())))
    }

    /// Replaces the rows. Durable when it returns.
    pub(super) fn install(&self, applied: &SnapshotMetadata, rows: &StateSnapshot) -> Result<()> {
        let (_, ticket) = self.transact(|transaction| {
            for table in &self.tables {
                transaction.delete_range(table, ..)?;
            }
            let mut refused = None;
            let put = |table: u16, key: &[u8], value: &[u8]| {
                let put = match self.tables.get(usize::from(table)) {
                    Some(table) => transaction.put(table, key, value),
                    None => Err(self.unknown_table(table)),
                };
                put.map_err(|error| {
                    refused = Some(error.clone());
                    io::Error::other(error)
                })
            };
            if let Err(error) = rows.for_each(put) {
                return Err(refused.unwrap_or_else(|| unreadable(error)));
            }
            transaction.put(&self.applied, self.key(), encode(applied)?)
        })?;
        ticket.wait().map(drop)
    }

    fn unknown_table(&self, table: u16) -> Error {
        let (count, group) = (self.tables.len(), self.group);
        let what = format!(
            "the snapshot has rows of table {table}, raft group {group} has {count} tables; give all nodes the same"
        );
        Error::new(ErrorKind::InvalidInput, what)
    }

    fn key(&self) -> [u8; 8] {
        self.group.to_be_bytes()
    }

    fn decode(&self, row: Option<tantalum::Value>) -> Result<SnapshotMetadata> {
        let what = format_args!("how far raft group {} was applied", self.group);
        row.map_or_else(|| Ok(SnapshotMetadata::default()), |row| decode(&row, what))
    }

    /// Runs a transaction until it need not give way to others.
    fn transact<T>(&self, mut run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<(T, Ticket)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let done = self.db.begin().and_then(|mut transaction| {
                let result = run(&mut transaction)?;
                Ok((result, transaction.commit_async()?))
            });
            match done {
                Err(error) if error.is_retryable() && tries < TRIES => {}
                done => return done,
            }
        }
    }
}

/// The error of a snapshot's rows.
pub(super) fn unreadable(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("the rows of a snapshot cannot be read: {error}")).with_source(error)
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("group", &self.group).finish_non_exhaustive()
    }
}
