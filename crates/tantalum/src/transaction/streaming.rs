//! Values of a transaction that are written from a source, or read in pieces.

use std::{
    io::{self, Read},
    sync::Arc,
};

use super::{Content, TransactionState, ValueReader, Write, locks::Mode, snapshot::View};
use crate::{
    error::{Error, ErrorKind, Result},
    table::Table,
};

/// So many bytes of a source are read before its value is written in pieces.
pub(super) const MEMORY_PER_SOURCE: u64 = 64 << 10;

impl TransactionState {
    /// See [`Transaction::reader`](super::Transaction::reader).
    pub fn reader(&mut self, table: &Table, key: &[u8]) -> Result<Option<ValueReader>> {
        self.lock_to_read(table, key)?;
        // Behind the lock: the view keeps what is read now.
        let view = self.view.clone().unwrap_or_else(|| Arc::new(View::begin(self.manager())));
        let Some(content) = self.read(table, key)? else { return Ok(None) };
        let table = table.enter(self.core().log().log_id())?;
        ValueReader::new(content, view, table).map(Some)
    }

    /// See [`Transaction::put_from`](super::Transaction::put_from).
    pub fn put_from(&mut self, table: &Table, key: &[u8], mut source: &mut dyn Read) -> Result<u64> {
        let Write { key, .. } = self.writable(table, key, &[])?;
        self.lock(table, &key, Mode::Exclusive)?;
        let mut begin = Vec::new();
        let read = (&mut source).take(MEMORY_PER_SOURCE).read_to_end(&mut begin);
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
