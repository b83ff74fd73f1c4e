//! Rows that another process writes into an open database: what one request writes, and how it is carried out.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::rows::{Rows, byte_list, optional_bytes, row_list};
use crate::{
    db::Db,
    error::{Error, ErrorKind, Result},
    table::Table,
};

/// What is to be written into one table by one serializable transaction, which is run again if it loses against others: by
/// [`Client::call`](super::Client::call) in a database that another process has open, or by [`TableWrite::apply`].
///
/// Keys of the range are deleted first, then those of `deletes`, then `puts` are written.
///
/// ```
/// use tantalum::control::TableWrite;
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?;
/// let puts = vec![(b"apple".to_vec(), b"3".to_vec()), (b"pear".to_vec(), b"5".to_vec())];
/// let write = TableWrite { table: "fruit".into(), create: true, puts, ..TableWrite::default() };
/// assert_eq!(write.apply(&db)?.deleted, 0);
/// assert_eq!(TableWrite::of_delete("fruit", b"pear").apply(&db)?.deleted, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableWrite {
    /// The table.
    pub table: String,
    /// Whether a table that is not there is created, which is durable by itself.
    #[serde(default)]
    pub create: bool,
    /// Rows to be written; they replace rows with the same keys.
    #[serde(default, with = "row_list")]
    pub puts: Rows,
    /// Keys to be deleted.
    #[serde(default, with = "byte_list")]
    pub deletes: Vec<Vec<u8>>,
    /// Keys to be deleted, all that lie in a range.
    #[serde(default)]
    pub delete_range: Option<KeyBounds>,
}

/// A range of keys, for a [`TableWrite`].
///
/// ```
/// use tantalum::control::{KeyBounds, TableWrite};
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?;
/// let logs = db.table("logs")?;
/// ["2025-12", "2026-01", "2026-02"].iter().try_for_each(|month| db.put(&logs, month, ""))?;
/// let old = Some(KeyBounds { from: None, to: Some(b"2026".to_vec()) });
/// let write = TableWrite { table: "logs".into(), delete_range: old, ..TableWrite::default() };
/// assert_eq!(write.apply(&db)?.deleted, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyBounds {
    /// The smallest key; absent for no bound.
    #[serde(default, with = "optional_bytes")]
    pub from: Option<Vec<u8>>,
    /// The smallest key that is not in the range any more; absent for no bound.
    #[serde(default, with = "optional_bytes")]
    pub to: Option<Vec<u8>>,
}

/// What a [`TableWrite`] did.
///
/// ```
/// let written = tantalum::control::Written { deleted: 1 };
/// assert_eq!(serde_json::to_value(written)?["deleted"], 1);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Keys that were there and were deleted.
    pub deleted: u64,
}

impl TableWrite {
    /// Deletes a key.
    pub fn of_delete(table: &str, key: &[u8]) -> Self {
        Self { table: table.into(), deletes: vec![key.to_vec()], ..Self::default() }
    }

    /// Writes a row.
    pub fn of_put(table: &str, key: &[u8], value: &[u8]) -> Self {
        Self { table: table.into(), puts: vec![(key.to_vec(), value.to_vec())], ..Self::default() }
    }

    /// Carries it out. Durable when it returns.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a table that is not there; those of [`Db::transact`] and of the writes.
    pub fn apply(&self, db: &Db) -> Result<Written> {
        let table = self.table_of(db)?;
        let is_empty = self.puts.is_empty() && self.deletes.is_empty() && self.delete_range.is_none();
        if is_empty {
            return Ok(Written::default());
        }
        db.transact(|tx| {
            let mut deleted = 0;
            if let Some(KeyBounds { from, to }) = &self.delete_range {
                let from = from.as_ref().map_or(Bound::Unbounded, Bound::Included);
                let to = to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                deleted += tx.delete_range(&table, (from, to))?;
            }
            for key in &self.deletes {
                deleted += u64::from(tx.delete(&table, key)?);
            }
            self.puts.iter().try_for_each(|(key, value)| tx.put(&table, key, value))?;
            Ok(Written { deleted })
        })
    }

    fn table_of(&self, db: &Db) -> Result<Table> {
        match db.open_table(&self.table) {
            Err(error) if error.kind() == ErrorKind::NotFound && self.create => db.table(&self.table),
            found => found,
        }
    }
}

/// What a client says of a request that is longer than the database takes.
pub(super) fn too_long(bytes: usize, max: usize) -> Error {
    let what = format!(
        "a request to an open database has at most {max} bytes, and this one has {bytes}; write it in smaller parts, a large value with `Client::put`"
    );
    Error::new(ErrorKind::TooLarge, what)
}
