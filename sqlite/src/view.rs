//! What a connection reads: the database as one commit left it, until SQLite lets go of its lock.

use tantalum::{Isolation, Transaction, Value};

use crate::{
    database::Database,
    failure::{Failure, Result},
    fragments::{fragment_of, key_of, read_size},
};

/// So often a view is begun in place of one that has failed.
const ANEW_TRIES: usize = 5;

/// The state of a SQLite database after one commit. It may not be durable yet: [`confirm`](Self::confirm) waits for that.
pub(crate) struct View {
    transaction: Transaction,
    size: u64,
}

impl View {
    /// The present state.
    pub fn begin(database: &Database) -> Result<Self> {
        // A transaction under snapshot isolation reads without locks, as a snapshot does, but does not wait for the log: a writer begins
        // from a commit that is still on its way to the devices, and its own commit comes behind it in the log.
        let transaction = database.store.db().begin_with(Isolation::SnapshotIsolation)?;
        let size = read_size(&transaction, &database.table)?;
        Ok(Self { transaction, size })
    }

    /// The present state, in place of a view that has failed. To confirm it is to confirm what was read from that one: every commit before
    /// has changed the first fragment, where the change counter is.
    pub fn begin_anew(database: &Database) -> Result<Self> {
        let view = Self::begin(database)?;
        view.fragment(database, 0)?;
        Ok(view)
    }

    /// Waits until what was read from a view that has failed survives a power cut, by views in its place. They can be given up as that one was,
    /// though not for having been kept for long.
    pub fn confirm_anew(database: &Database) -> Result<()> {
        let confirm = || Self::begin_anew(database)?.confirm();
        (1..ANEW_TRIES).fold(confirm(), |confirmed, _| confirmed.or_else(|_| confirm()))
    }

    /// Size of the database in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes of a fragment, if any is not zero.
    fn fragment(&self, database: &Database, fragment: u64) -> Result<Option<Value>> {
        Ok(self.transaction.get(&database.table, key_of(fragment))?)
    }

    /// Reads bytes. Those beyond the size are zeros.
    pub fn read(&self, database: &Database, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let Some(last) = (offset + bytes.len() as u64).checked_sub(1).filter(|_| offset < self.size) else {
            bytes.fill(0);
            return Ok(());
        };
        let fragment_bytes = database.fragment_bytes as u64;
        let [first, last] = [offset, last].map(|place| place / fragment_bytes);
        if first == last {
            let row = self.fragment(database, first)?;
            return copy_part(database, row.as_deref(), (offset % fragment_bytes) as usize, bytes);
        }
        bytes.fill(0);
        let mut rows = self.transaction.range(&database.table, key_of(first)..=key_of(last))?;
        while let Some(row) = rows.next_borrowed() {
            let (key, row) = row?;
            let begin = fragment_of(key)? * fragment_bytes;
            let (skipped, from) = (offset.saturating_sub(begin) as usize, begin.saturating_sub(offset) as usize);
            let to = bytes.len().min(from + database.fragment_bytes - skipped);
            copy_part(database, Some(row), skipped, &mut bytes[from..to])?;
        }
        Ok(())
    }

    /// Waits until what was read survives a power cut.
    pub fn confirm(&self) -> Result<()> {
        Ok(self.transaction.confirm_reads()?)
    }
}

/// Copies bytes of a fragment from `begin` on. Its row ends behind the last byte that is not zero; fails if it is too long.
pub(crate) fn copy_part(database: &Database, row: Option<&[u8]>, begin: usize, bytes: &mut [u8]) -> Result<()> {
    let row = row.unwrap_or_default();
    if row.len() > database.fragment_bytes {
        return Err(Failure::io("a row of the database is too long; restore a backup"));
    }
    let kept = row.get(begin..).map_or(&[][..], |rest| &rest[..rest.len().min(bytes.len())]);
    let (from_row, zeros) = bytes.split_at_mut(kept.len());
    from_row.copy_from_slice(kept);
    zeros.fill(0);
    Ok(())
}
