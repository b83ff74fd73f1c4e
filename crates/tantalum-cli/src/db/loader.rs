//! Fills tables with rows that come one by one: a new table by a bulk load, another by transactions of a good size; and tables of
//! a database that another process has open by requests to it.

use std::{collections::VecDeque, io::Read};

use tantalum::{BulkLoad, Db, Table, Ticket, Transaction, control::TableWrite};

use super::source::{Remote, RowAccess, Source};
use crate::error::{Error, Result};

/// Bytes of keys and values in one transaction, where rows are merged; a larger row has one of its own, and is read and written in
/// pieces.
const TRANSACTION_BYTES: usize = 64 << 10;
/// Commits that may be under way.
const COMMITS_IN_FLIGHT: usize = 16;

/// Fills one table after the other.
pub struct Loader<'a> {
    target: &'a Source,
    /// Whether rows come in any order, and tables have some.
    merges: bool,
    /// Tables that were there before.
    existing: Vec<String>,
    filling: Option<Filling<'a>>,
    /// The running transaction, and the bytes in it.
    batch: Option<(Transaction, usize)>,
    in_flight: VecDeque<Ticket>,
}

/// The table that rows go to.
enum Filling<'a> {
    New(Box<BulkLoad>),
    Merging(&'a Db, Table),
    /// What the next request writes, and its bytes.
    There(&'a Remote, TableWrite, usize),
}

impl<'a> Loader<'a> {
    /// Without `merges`, tables must not be there, and their rows come in the order of their keys.
    pub fn new(target: &'a Source, merges: bool) -> Result<Self> {
        let existing = target.table_names()?;
        Ok(Self { target, merges, existing, filling: None, batch: None, in_flight: VecDeque::new() })
    }

    /// Begins a table.
    pub fn begin(&mut self, name: &str) -> Result<()> {
        self.finish_table()?;
        let exists = self.existing.iter().any(|existing| existing == name);
        if exists && !self.merges {
            return Err(Error::Other(format!(
                "table {name:?} exists already; drop it, choose another place, or give --merge"
            )));
        }
        self.filling = Some(match self.target {
            Source::Here(db) if self.merges => Filling::Merging(db, db.table(name)?),
            Source::Here(db) => Filling::New(Box::new(db.begin_bulk_load(name)?)),
            Source::There(remote) => {
                let write = TableWrite { table: name.into(), create: true, ..TableWrite::default() };
                Filling::There(remote, write, 0)
            }
        });
        Ok(())
    }

    /// Adds a row to the table.
    pub fn put(&mut self, key: &[u8], value: &mut dyn Read) -> Result<()> {
        let (db, table) = match self.filling.as_mut().expect("a table was begun") {
            Filling::New(load) => {
                load.add_from(key, value)?;
                return Ok(());
            }
            Filling::There(remote, write, bytes) => {
                let first = begin_of(value)?;
                if first.len() == TRANSACTION_BYTES {
                    // Which of two rows with the same key is the last, stays.
                    send(remote, write)?;
                    *bytes = 0;
                    return remote.put(&write.table, key, &mut (&first[..]).chain(value));
                }
                *bytes += key.len() + first.len() + 16;
                if *bytes > TRANSACTION_BYTES && !write.puts.is_empty() {
                    send(remote, write)?;
                    *bytes = key.len() + first.len() + 16;
                }
                write.puts.push((key.to_vec(), first));
                return Ok(());
            }
            Filling::Merging(db, table) => (*db, table.clone()),
        };
        let first = begin_of(value)?;
        if first.len() == TRANSACTION_BYTES {
            self.commit()?;
            let mut transaction = db.begin()?;
            transaction.put_from(&table, key, (&first[..]).chain(value))?;
            self.in_flight.push_back(transaction.commit_async()?);
            return self.commit();
        }
        let bytes = key.len() + first.len() + 16;
        if self.batch.as_ref().is_some_and(|(_, filled)| filled + bytes > TRANSACTION_BYTES) {
            self.commit()?;
        }
        let (mut transaction, filled) = match self.batch.take() {
            Some(batch) => batch,
            None => (db.begin()?, 0),
        };
        transaction.put(&table, key, first)?;
        self.batch = Some((transaction, filled + bytes));
        Ok(())
    }

    /// Makes all rows durable.
    pub fn finish(mut self) -> Result<()> {
        self.finish_table()?;
        self.commit()?;
        while !self.in_flight.is_empty() {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn finish_table(&mut self) -> Result<()> {
        match self.filling.take() {
            Some(Filling::New(load)) => drop(load.finish()?),
            Some(Filling::There(remote, mut write, _)) => send(remote, &mut write)?,
            Some(Filling::Merging(..)) | None => {}
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        if let Some((transaction, _)) = self.batch.take() {
            self.in_flight.push_back(transaction.commit_async()?);
        }
        while self.in_flight.len() > COMMITS_IN_FLIGHT {
            self.wait_for_oldest()?;
        }
        Ok(())
    }

    fn wait_for_oldest(&mut self) -> Result<()> {
        if let Some(ticket) = self.in_flight.pop_front() {
            ticket.wait()?;
        }
        Ok(())
    }
}

/// What a value begins with: all of it, if it has fewer bytes than a transaction.
fn begin_of(value: &mut dyn Read) -> Result<Vec<u8>> {
    let mut first = Vec::new();
    let read = value.take(TRANSACTION_BYTES as u64).read_to_end(&mut first);
    read.map_err(|error| Error::Other(error.to_string()))?;
    Ok(first)
}

/// Has the rows written, also none, which makes the table.
fn send(remote: &Remote, write: &mut TableWrite) -> Result<()> {
    remote.call(&tantalum::control::Command::Write { write: write.clone() })?;
    write.puts.clear();
    Ok(())
}
