//! Values of a [`Transaction`] that are written from a source, or read in pieces.

use std::{
    io::{self, Read},
    ops::RangeBounds,
    sync::Arc,
};

use super::{Content, Transaction, Value, ValueReader, Write, locks::Mode, snapshot::View};
use crate::{
    error::{Error, ErrorKind, Result},
    table::Table,
};

/// So many bytes of a source are read before its value is written in pieces.
pub(super) const MEMORY_PER_SOURCE: u64 = 64 << 10;

impl Transaction {
    /// A part of the value of a key, as far as the value has these bytes: only the pages with them are read. `None` if the key is not
    /// there. Locks the key for reading.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_range(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        bytes: impl RangeBounds<u64>,
    ) -> Result<Option<Value>> {
        self.reader(table, key)?.map(|reader| reader.part(bytes)).transpose()
    }

    /// A reader of the value of a key, which needs no memory for it; `None` if the key is not there. Locks the key for reading. The
    /// reader stays when the transaction ends.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn reader(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.enter(table)?;
        if self.view.is_none() {
            self.lock(table, &key.as_ref().into(), Mode::Shared)?;
        }
        // Behind the lock: the view keeps what is read now.
        let view = self.view.clone().unwrap_or_else(|| Arc::new(View::begin(self.manager())));
        let Some(content) = self.read(table, key.as_ref())? else { return Ok(None) };
        let table = table.enter(self.core().log().log_id())?;
        ValueReader::new(content, view, table).map(Some)
    }

    /// Sets the value of a key to all bytes of a source, whether it is there or not, and returns how many these are, at most 1 GiB.
    /// Beyond some KiB it needs memory neither for the value nor for its size: the value is written to the database while it is
    /// read, and counts with the commit; until then, or until the transaction has ended otherwise and its pages are freed in the
    /// background, it takes space on the data device. The commit is that of a large transaction.
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let films = db.table("films")?;
    /// let mut tx = db.begin()?;
    /// let source = std::io::repeat(7).take(1_000_000); // or a file
    /// assert_eq!(tx.put_from(&films, "a", source)?, 1_000_000);
    /// tx.commit()?;
    /// assert_eq!(db.get_range(&films, "a", 999_990..)?.unwrap(), [7; 10]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put), and [`Io`](ErrorKind::Io) when the source fails, after which the key has its value from before and the
    /// transaction can go on.
    pub fn put_from(&mut self, table: &Table, key: impl AsRef<[u8]>, mut source: impl Read) -> Result<u64> {
        let Write { key, .. } = self.writable(table, key.as_ref(), &[])?;
        self.lock(table, &key, Mode::Exclusive)?;
        let mut begin = Vec::new();
        let read = source.by_ref().take(MEMORY_PER_SOURCE).read_to_end(&mut begin);
        read.map_err(|error| source_error(0, error))?;
        let is_all = (begin.len() as u64) < MEMORY_PER_SOURCE;
        let content = if is_all && begin.len() <= self.value_in_commit_bytes() {
            Content::Bytes(begin.into())
        } else {
            self.write_large(table, &mut begin.chain(source))?
        };
        let length = content.len();
        self.write(table, key, Some(content))?;
        Ok(length)
    }
}

/// The source of a value has failed after so many bytes.
pub(super) fn source_error(bytes: usize, error: io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("the source of a value failed after {bytes} bytes: {error}")).with_source(error)
}
