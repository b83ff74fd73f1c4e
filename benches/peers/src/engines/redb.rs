//! redb: `Durability::Immediate`, its default: a commit is on the device when it returns.
//!
//! - One-phase commits, the default: one `fsync` each, consistent by checksums. Two phases, and quick repair, would only be
//!   slower here; what that costs at the next opening after a crash, its repair, is seen in the workload `reopen`.
//! - `ConcurrencyMode::ExclusiveWriter`, the default, as no other process has the file open.
//! - One writer at a time: a transaction that writes waits for the one before to be durable. That is its design.
//! - Rows are loaded in one transaction.

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::{
    engine::{Engine, Row, Rows, Session, Setup},
    error::{Error, Result},
};

/// In options and results.
pub const NAME: &str = "redb";

/// See [`Kind::configuration`](crate::engine::Kind::configuration).
pub const CONFIGURATION: &str = "durability immediate, one-phase commits with checksums";

const ROWS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("rows");

/// The open database.
pub struct Redb {
    db: Database,
}

fn failed<E: Into<redb::Error>>(doing: &'static str) -> impl Fn(E) -> Error {
    move |error| Error::engine(NAME, doing)(error.into())
}

type Table<'a> = redb::Table<'a, &'static [u8], &'static [u8]>;

impl Redb {
    /// Opens or creates it.
    ///
    /// # Errors
    /// Of the engine.
    pub fn open(setup: &Setup) -> Result<Self> {
        let mut builder = Database::builder();
        builder.set_cache_size(usize::try_from(setup.cache_bytes).unwrap_or(usize::MAX));
        let db = builder.create(setup.directory.join("rows.redb")).map_err(failed("opening"))?;
        Ok(Self { db })
    }

    /// One durable transaction.
    fn write(&self, work: impl FnOnce(&mut Table<'_>) -> Result<(), redb::Error>) -> Result<()> {
        let write = || {
            let transaction = self.db.begin_write()?;
            work(&mut transaction.open_table(ROWS)?)?;
            Ok(transaction.commit()?)
        };
        write().map_err(failed::<redb::Error>("committing"))
    }
}

impl Engine for Redb {
    fn session(&self) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(Client(self)))
    }

    fn load(&self, rows: Rows<'_>) -> Result<()> {
        self.write(|table| {
            for (key, value) in rows {
                table.insert(&key[..], &value[..])?;
            }
            Ok(())
        })
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.db.close().map_err(failed("closing"))
    }
}

/// A client has nothing of its own.
struct Client<'a>(&'a Redb);

impl Session for Client<'_> {
    fn put(&mut self, rows: &[Row<'_>]) -> Result<()> {
        self.0.write(|table| {
            for (key, value) in rows {
                table.insert(*key, *value)?;
            }
            Ok(())
        })
    }

    fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        let mut read = || {
            let found = self.0.db.begin_read()?.open_table(ROWS)?.get(key)?;
            Ok(found.inspect(|found| value.extend_from_slice(found.value())).is_some())
        };
        read().map_err(failed::<redb::Error>("reading"))
    }

    fn scan(&mut self, from: &[u8], rows: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let mut scan = || {
            for row in self.0.db.begin_read()?.open_table(ROWS)?.range(from..)?.take(rows) {
                let (key, value) = row?;
                visit(key.value(), value.value());
            }
            Ok(())
        };
        scan().map_err(failed::<redb::Error>("scanning"))
    }

    fn modify(&mut self, keys: &[&[u8]], change: &mut dyn FnMut(&mut [Vec<u8>])) -> Result<()> {
        self.0.write(|table| {
            let mut values = Vec::with_capacity(keys.len());
            for key in keys {
                values.push(table.get(*key)?.map(|value| value.value().to_vec()).unwrap_or_default());
            }
            change(&mut values);
            for (key, value) in keys.iter().zip(&values) {
                table.insert(*key, &value[..])?;
            }
            Ok(())
        })
    }
}
