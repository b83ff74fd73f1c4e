//! The tables of a node's state machine: those of the program, and the row that says how far entries were applied to them.
//!
//! Invariant: that row changes in the transaction that changes the rows. So whatever the database has after a crash, the entries behind
//! it are applied again.

use std::io;

use tantalum::{Db, Snapshot, Table, Transaction, Value};

use crate::{Error, ErrorKind, Result, StateSnapshot};

/// A transaction that has to give way to others of the program is tried again so often.
const TRIES: u32 = 100;

#[derive(Clone)]
pub(crate) struct StateTables {
    pub(crate) db: Db,
    pub(crate) group: u64,
    pub(crate) tables: Vec<Table>,
    /// Has a row for each group.
    applied: Table,
}

impl StateTables {
    /// Those of group `group`, which are created if need be.
    pub(crate) fn new(db: Db, group: u64, tables: &[&str], applied: &str) -> Result<StateTables> {
        let tables = tables.iter().map(|name| db.table(name)).collect::<Result<_>>()?;
        let applied = db.table(applied)?;
        Ok(StateTables { db, group, tables, applied })
    }

    fn key(&self) -> [u8; 8] {
        self.group.to_be_bytes()
    }

    /// How far entries were applied, durably.
    pub(crate) fn applied(&self) -> Result<Option<Value>> {
        self.db.get(&self.applied, self.key())
    }

    /// As [`applied`](Self::applied), as the transaction sees it.
    pub(crate) fn applied_in(&self, transaction: &Transaction) -> Result<Option<Value>> {
        transaction.get(&self.applied, self.key())
    }

    pub(crate) fn set_applied(&self, transaction: &mut Transaction, applied: &[u8]) -> Result<()> {
        transaction.put(&self.applied, self.key(), applied)
    }

    /// The rows that a snapshot of the database shows, and how far entries were applied then.
    pub(crate) fn snapshot(&self, snapshot: Snapshot) -> Result<(Option<Value>, StateSnapshot)> {
        let applied = snapshot.get(&self.applied, self.key())?;
        Ok((applied, StateSnapshot::of_database(snapshot, self.tables.clone())))
    }

    /// Replaces the rows. Durable when it returns.
    pub(crate) fn install(&self, applied: &[u8], rows: &StateSnapshot) -> Result<()> {
        let replace = |transaction: &mut Transaction| {
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
            self.set_applied(transaction, applied)
        };
        self.transact(replace, Transaction::commit_async)?.1.wait().map(drop)
    }

    fn unknown_table(&self, table: u16) -> Error {
        let (count, group) = (self.tables.len(), self.group);
        let what = format!(
            "the snapshot has rows of table {table}, raft group {group} has {count} tables; give all nodes the same"
        );
        Error::new(ErrorKind::InvalidInput, what)
    }

    /// Runs a transaction until it need not give way to others. Its commit is not waited for, and nothing is written for it: what a crash
    /// takes of it is in raft's log.
    pub(crate) fn apply<T>(&self, run: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact(run, Transaction::commit_delayed).map(|(result, _)| result)
    }

    /// As [`apply`](Self::apply), with a commit of a kind, and its outcome.
    pub(crate) fn transact<T, C>(
        &self,
        mut run: impl FnMut(&mut Transaction) -> Result<T>,
        commit: impl Fn(Transaction) -> Result<C>,
    ) -> Result<(T, C)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let done = self.db.begin().and_then(|mut transaction| {
                let result = run(&mut transaction)?;
                Ok((result, commit(transaction)?))
            });
            match done {
                Err(error) if error.is_retryable() && tries < TRIES => {}
                done => return done,
            }
        }
    }
}

/// The error of a snapshot's rows.
pub(crate) fn unreadable(error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("the rows of a snapshot cannot be read: {error}")).with_source(error)
}
