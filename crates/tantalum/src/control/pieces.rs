//! Values that are too large for one line: they pass in pieces, so that neither side has one in memory as a whole.

use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::{
    client::Client,
    protocol::Answer,
    rows::{Rows, bytes},
};
use crate::error::{Error, ErrorKind, Result};

/// Bytes of a piece, and of the smallest value that passes in pieces. As JSON they are at most six times as many, which is less than a line
/// may have.
pub(super) const PIECE_BYTES: usize = 128 << 10;

/// Bytes of keys and values that are sent at a time.
const BATCH_BYTES: usize = 32 << 10;

/// A piece of a value that a client sends, a line each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Piece {
    #[serde(with = "bytes")]
    pub bytes: Vec<u8>,
    pub is_last: bool,
}

/// Reads a value piece by piece, and knows of each whether it is the last.
pub(super) struct Cut<'v> {
    value: &'v mut dyn Read,
    next: Vec<u8>,
}

impl<'v> Cut<'v> {
    /// Reads the first piece.
    pub fn begin(value: &'v mut dyn Read) -> io::Result<Self> {
        let mut cut = Self { value, next: Vec::new() };
        cut.next = cut.read()?;
        Ok(cut)
    }

    fn read(&mut self) -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        (&mut self.value).take(PIECE_BYTES as u64).read_to_end(&mut piece)?;
        Ok(piece)
    }

    /// All of the value, if it is small.
    pub fn small(&mut self) -> Option<Vec<u8>> {
        (self.next.len() < PIECE_BYTES).then(|| std::mem::take(&mut self.next))
    }

    /// The next piece of a large one.
    pub fn piece(&mut self) -> io::Result<Piece> {
        let next = if self.next.len() < PIECE_BYTES { Vec::new() } else { self.read()? };
        let bytes = std::mem::replace(&mut self.next, next);
        Ok(Piece { bytes, is_last: self.next.is_empty() })
    }
}

/// Makes lines of rows: small ones together, large values in pieces.
pub(super) struct RowLines<'s> {
    send: &'s mut dyn FnMut(&Answer) -> Result<()>,
    table: Option<String>,
    rows: Rows,
    bytes: usize,
    /// Whether there was a line of the table.
    was_sent: bool,
}

impl<'s> RowLines<'s> {
    pub fn new(send: &'s mut dyn FnMut(&Answer) -> Result<()>) -> Self {
        Self { send, table: None, rows: Rows::new(), bytes: 0, was_sent: false }
    }

    /// Begins a table: it has a line at least, also if it has no rows.
    pub fn table(&mut self, name: &str) -> Result<()> {
        self.end()?;
        (self.table, self.was_sent) = (Some(name.into()), false);
        Ok(())
    }

    /// A row of the table.
    pub fn row(&mut self, key: &[u8], value: &mut dyn Read) -> Result<()> {
        let unreadable =
            |error| Error::new(ErrorKind::Io, format!("a value cannot be read: {error}")).with_source(error);
        let mut cut = Cut::begin(value).map_err(unreadable)?;
        if let Some(value) = cut.small() {
            self.bytes += key.len() + value.len();
            self.rows.push((key.to_vec(), value));
            return if self.bytes >= BATCH_BYTES { self.send_rows() } else { Ok(()) };
        }
        if !self.rows.is_empty() {
            self.send_rows()?;
        }
        let table = self.table.clone().expect("a table was begun");
        loop {
            let Piece { bytes, is_last } = cut.piece().map_err(unreadable)?;
            self.was_sent = true;
            (self.send)(&Answer::Piece { table: table.clone(), key: key.to_vec(), bytes, is_last })?;
            if is_last {
                return Ok(());
            }
        }
    }

    /// Ends the last table.
    pub fn end(&mut self) -> Result<()> {
        if self.rows.is_empty() && self.was_sent { Ok(()) } else { self.send_rows() }
    }

    fn send_rows(&mut self) -> Result<()> {
        let Some(table) = self.table.clone() else { return Ok(()) };
        (self.bytes, self.was_sent) = (0, true);
        (self.send)(&Answer::Rows { table, rows: std::mem::take(&mut self.rows) })
    }
}

/// A large value that a client reads while it comes.
pub(super) struct Coming<'c> {
    client: &'c mut Client,
    bytes: Vec<u8>,
    at: usize,
    is_last: bool,
    failure: Option<Error>,
}

impl<'c> Coming<'c> {
    /// Of which this piece has come.
    pub fn begin(client: &'c mut Client, bytes: Vec<u8>, is_last: bool) -> Self {
        Self { client, bytes, at: 0, is_last, failure: None }
    }

    /// Passes over what was not read. An error is why the value cannot be read, if it cannot, or else what `taken` has.
    pub fn end(mut self, taken: Result<()>) -> Result<()> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        taken?;
        while !self.is_last {
            self.next_piece()?;
        }
        Ok(())
    }

    fn next_piece(&mut self) -> Result<()> {
        match self.client.answer()? {
            Answer::Piece { bytes, is_last, .. } => {
                (self.bytes, self.at, self.is_last) = (bytes, 0, is_last);
                Ok(())
            }
            _ => Err(Error::new(ErrorKind::Io, "the database's answer ends within a value; read it again")),
        }
    }
}

impl Read for Coming<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() && !self.is_last {
            if self.failure.is_none() {
                self.failure = self.next_piece().err();
            }
            if let Some(failure) = &self.failure {
                return Err(io::Error::other(failure.to_string()));
            }
        }
        let read = (&self.bytes[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_cut_and_the_last_piece_is_known() {
        for (bytes, expected) in [
            (0, vec![]),
            (PIECE_BYTES - 1, vec![]),
            (PIECE_BYTES, vec![PIECE_BYTES]),
            (PIECE_BYTES + 1, vec![PIECE_BYTES, 1]),
            (PIECE_BYTES * 2, vec![PIECE_BYTES; 2]),
        ] {
            let mut value = io::repeat(b'\0').take(bytes as u64);
            let mut cut = Cut::begin(&mut value).unwrap();
            if expected.is_empty() {
                assert_eq!(cut.small().unwrap().len(), bytes);
                continue;
            }
            assert!(cut.small().is_none());
            for (n, expected_bytes) in expected.iter().enumerate() {
                let piece = cut.piece().unwrap();
                assert_eq!((piece.bytes.len(), piece.is_last), (*expected_bytes, n + 1 == expected.len()));
                assert!(serde_json::to_string(&piece).unwrap().len() < super::super::LINE_BYTES_MAX);
            }
        }
    }

    #[test]
    fn each_table_has_a_line_and_rows_go_together() {
        let mut lines = Vec::new();
        let mut send = |answer: &Answer| {
            lines.push(match answer {
                Answer::Rows { table, rows } => format!("{table}: {} rows", rows.len()),
                Answer::Piece { table, bytes, is_last, .. } => format!("{table}: {} bytes, {is_last}", bytes.len()),
                other => panic!("{other:?}"),
            });
            Ok(())
        };
        let mut rows = RowLines::new(&mut send);
        rows.table("empty").unwrap();
        rows.table("large").unwrap();
        rows.row(b"a", &mut io::repeat(1).take(PIECE_BYTES as u64 + 7)).unwrap();
        rows.table("mixed").unwrap();
        rows.row(b"a", &mut &b"1"[..]).unwrap();
        rows.row(b"b", &mut io::repeat(1).take(PIECE_BYTES as u64)).unwrap();
        (0..3u8).for_each(|n| rows.row(&[n], &mut &[0; 20_000][..]).unwrap());
        rows.end().unwrap();
        let expected = [
            "empty: 0 rows",
            "large: 131072 bytes, false",
            "large: 7 bytes, true",
            "mixed: 1 rows",
            "mixed: 131072 bytes, true",
            "mixed: 2 rows",
            "mixed: 1 rows",
        ];
        assert_eq!(lines, expected);
    }
}
