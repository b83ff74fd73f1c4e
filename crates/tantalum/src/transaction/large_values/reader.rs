//! Reading a value in pieces.

use std::{
    fmt,
    io::{self, Read, Seek, SeekFrom},
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

use super::{ValueTree, lost};
use crate::{
    error::{Error, ErrorKind, Result},
    table::TableUse,
    transaction::{Content, Value, snapshot::View},
    tree::Reference,
};

/// Reads a value in pieces, without all of it in memory: a [`Read`] that is also [`Seek`]. From
/// [`Transaction::reader`](crate::Transaction::reader), [`Snapshot::reader`](crate::Snapshot::reader) and
/// [`Db::reader`](crate::Db::reader).
///
/// It shows the value as it was when the reader was made, whatever is written meanwhile: until it is dropped, the pages of the value
/// stay, and the table cannot be dropped. It holds nothing else, and keeps no database open.
///
/// ```
/// use std::io::{Read, Seek, SeekFrom};
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let films = db.table("films")?;
/// let mut tx = db.begin()?;
/// tx.put_from(&films, "a", &mut std::io::repeat(7).take(3_000_000))?;
/// tx.commit()?;
///
/// let mut film = db.reader(&films, "a")?.expect("it is there");
/// assert_eq!(film.length(), 3_000_000);
/// film.seek(SeekFrom::End(-10))?;
/// let mut end = Vec::new();
/// film.read_to_end(&mut end)?;
/// assert_eq!(end, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ValueReader {
    source: Source,
    length: u64,
    at: u64,
    view: Arc<View>,
    _table: TableUse,
}

enum Source {
    Whole(Value),
    Pieces { values: Arc<ValueTree>, reference: Reference },
}

impl ValueReader {
    pub(in crate::transaction) fn new(content: Content, view: Arc<View>, table: TableUse) -> Result<Self> {
        let (source, length) = match content {
            Content::Bytes(value) => (Source::Whole(value.clone()), value.len() as u64),
            Content::Large(reference) => {
                let values = table.table().values().ok_or_else(|| lost(reference))?;
                (Source::Pieces { values, reference }, u64::from(reference.length))
            }
        };
        Ok(Self { source, length, at: 0, view, _table: table })
    }

    /// Bytes of the value.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Shows a part of the value in pieces, as far as there is one.
    fn show(&self, part: Range<u64>, show: &mut dyn FnMut(&[u8])) -> Result<()> {
        let part = part.start.min(self.length)..part.end.min(self.length);
        self.view.manager.core().check_open()?;
        if part.is_empty() {
            return Ok(());
        }
        match &self.source {
            Source::Whole(value) => {
                show(&value[part.start as usize..part.end as usize]);
                Ok(())
            }
            Source::Pieces { values, reference } => {
                let core = self.view.manager.core();
                let read = values.read(reference.id, part.start as u32..part.end as u32, show);
                match core.if_open(read)? {
                    true => Ok(()),
                    // If the snapshot was given up, that is why.
                    false => self.view.check().and(Err(lost(*reference))),
                }
            }
        }
    }

    /// These bytes of the value, as far as it has them.
    pub(in crate::transaction) fn part(&self, bytes: impl RangeBounds<u64>) -> Result<Value> {
        let start = match bytes.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match bytes.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => self.length,
        };
        let (start, end) = (start.min(self.length), end.min(self.length));
        let mut part = Vec::with_capacity(end.saturating_sub(start) as usize);
        self.show(start..end, &mut |piece| part.extend_from_slice(piece))?;
        Ok(part.into())
    }
}

impl Read for ValueReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let end = self.at.saturating_add(buffer.len() as u64).min(self.length);
        let mut filled = 0;
        let part = self.at..end;
        self.show(part, &mut |piece| {
            buffer[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })
        .map_err(io_error)?;
        self.at += filled as u64;
        Ok(filled)
    }
}

impl Seek for ValueReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(offset) => self.length.checked_add_signed(offset),
            SeekFrom::Current(offset) => self.at.checked_add_signed(offset),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "a place before the beginning of a value");
        self.at = at.ok_or_else(before)?;
        Ok(self.at)
    }
}

impl fmt::Debug for ValueReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueReader").field("length", &self.length).field("at", &self.at).finish_non_exhaustive()
    }
}

/// The error as one of reading; it is the source.
fn io_error(error: Error) -> io::Error {
    let kind = match error.kind() {
        ErrorKind::Corrupt => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
