//! What a record of the log says to readers of the change feed: the rows that a commit wrote to tables with a feed, with keys.
//!
//! A section begins with its kind ([`Kind`]). Then follow the tables with their rows: the length of the table's name, the name, the
//! number of rows, and each row. A row is the length of its key times four, plus what became of it; the key; and the length and the
//! bytes of a value, or the reference to a large one. Numbers are varints.

use tantalum_store::page::varint;

use crate::{
    transaction::Content,
    tree::{REFERENCE_BYTES, Reference},
};

const WHOLE: u8 = 0;
const PART: u8 = 1;
const COMMIT_OF_PARTS: u8 = 2;
const DROPPED: u8 = 3;
const ENDED: u8 = 4;

/// What the two lengths of a table or a row take, but for very large ones.
const LENGTHS_BYTES: usize = 6;

const DELETE: u64 = 0;
const PUT: u64 = 1;
const PUT_LARGE: u64 = 2;

/// What a section is, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'s> {
    /// All that a commit wrote.
    Whole,
    /// Some of what the transaction with this number, of this session, will have written, if it commits.
    Part(u64),
    /// The commit of the transaction with this number: its parts, which have so many rows, stand in the log from this position on.
    CommitOfParts { number: u64, start: u64, rows: u64 },
    /// A table was dropped.
    Dropped(&'s str),
    /// The feed of a table was ended.
    Ended(&'s str),
}

/// A row of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row<'s> {
    pub key: &'s [u8],
    pub write: Write<'s>,
}

/// What became of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write<'s> {
    Delete,
    Put(&'s [u8]),
    PutLarge(Reference),
}

/// Collects the rows of a section.
#[derive(Debug)]
pub(crate) struct Section {
    bytes: Vec<u8>,
    rows: u64,
}

impl Section {
    fn begin(kind: u8) -> Self {
        Self { bytes: vec![kind], rows: 0 }
    }

    /// Of all that a commit writes, with room for so many bytes.
    pub fn whole(bytes: usize) -> Self {
        let mut section = Self { bytes: Vec::with_capacity(bytes), rows: 0 };
        section.bytes.push(WHOLE);
        section
    }

    /// Of a part of what the transaction of this number has written.
    pub fn part(number: u64) -> Self {
        let mut section = Self::begin(PART);
        varint::put(&mut section.bytes, number);
        section
    }

    /// Of a commit whose rows are in parts.
    pub fn commit_of_parts(number: u64, start: u64, rows: u64) -> Vec<u8> {
        let mut bytes = vec![COMMIT_OF_PARTS];
        [number, start, rows].iter().for_each(|number| varint::put(&mut bytes, *number));
        bytes
    }

    /// Of a table that is dropped.
    pub fn dropped(table: &str) -> Vec<u8> {
        Self::of_name(DROPPED, table)
    }

    /// Of a table whose feed is ended.
    pub fn ended(table: &str) -> Vec<u8> {
        Self::of_name(ENDED, table)
    }

    fn of_name(kind: u8, table: &str) -> Vec<u8> {
        let mut bytes = vec![kind];
        put_bytes(&mut bytes, table.as_bytes());
        bytes
    }

    /// About the bytes that a table takes without its rows.
    pub fn table_bytes(name: &str) -> usize {
        name.len() + LENGTHS_BYTES
    }

    /// About the bytes that a row takes.
    pub fn row_bytes(key: &[u8], content: Option<&Content>) -> usize {
        let value = match content {
            Some(Content::Bytes(value)) => value.len(),
            Some(Content::Large(_)) => REFERENCE_BYTES,
            None => 0,
        };
        key.len() + value + LENGTHS_BYTES
    }

    /// The next rows, of which there are `rows`, are of this table.
    pub fn table(&mut self, name: &str, rows: u64) {
        put_bytes(&mut self.bytes, name.as_bytes());
        varint::put(&mut self.bytes, rows);
        self.rows += rows;
    }

    /// Adds a row of the table.
    pub fn row(&mut self, key: &[u8], content: Option<&Content>) {
        let kind = match content {
            None => DELETE,
            Some(Content::Bytes(_)) => PUT,
            Some(Content::Large(_)) => PUT_LARGE,
        };
        varint::put(&mut self.bytes, (key.len() as u64) << 2 | kind);
        self.bytes.extend_from_slice(key);
        match content {
            None => {}
            Some(Content::Bytes(value)) => put_bytes(&mut self.bytes, value),
            Some(Content::Large(reference)) => self.bytes.extend_from_slice(&reference.encode()),
        }
    }

    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// What is wrong with a section.
pub(super) type Fault = &'static str;

/// Takes what stands before the tables.
pub(super) fn take_kind<'s>(bytes: &mut &'s [u8]) -> Result<Kind<'s>, Fault> {
    let (&kind, rest) = bytes.split_first().ok_or("it is empty")?;
    *bytes = rest;
    Ok(match kind {
        WHOLE => Kind::Whole,
        PART => Kind::Part(take_number(bytes)?),
        COMMIT_OF_PARTS => {
            let (number, start, rows) = (take_number(bytes)?, take_number(bytes)?, take_number(bytes)?);
            Kind::CommitOfParts { number, start, rows }
        }
        DROPPED => Kind::Dropped(take_text(bytes)?),
        ENDED => Kind::Ended(take_text(bytes)?),
        _ => return Err("it is of an unknown kind"),
    })
}

/// Takes the name of the next table, and how many rows of it follow; `None` behind the last.
pub(super) fn take_table<'s>(bytes: &mut &'s [u8]) -> Result<Option<(&'s str, u64)>, Fault> {
    if bytes.is_empty() {
        return Ok(None);
    }
    Ok(Some((take_text(bytes)?, take_number(bytes)?)))
}

/// Takes a row.
pub(super) fn take_row<'s>(bytes: &mut &'s [u8]) -> Result<Row<'s>, Fault> {
    let head = take_number(bytes)?;
    let key = take(bytes, head >> 2)?;
    let write = match head & 3 {
        DELETE => Write::Delete,
        PUT => {
            let length = take_number(bytes)?;
            Write::Put(take(bytes, length)?)
        }
        PUT_LARGE => {
            let reference = take(bytes, REFERENCE_BYTES as u64)?;
            Write::PutLarge(Reference::decode(reference).ok_or("a reference to a large value is none")?)
        }
        _ => return Err("a row is of an unknown kind"),
    };
    Ok(Row { key, write })
}

fn take_number(bytes: &mut &[u8]) -> Result<u64, Fault> {
    varint::take(bytes).ok_or("a number does not end")
}

fn take<'s>(bytes: &mut &'s [u8], length: u64) -> Result<&'s [u8], Fault> {
    let length = usize::try_from(length).map_err(|_| "it ends too early")?;
    let (taken, rest) = bytes.split_at_checked(length).ok_or("it ends too early")?;
    *bytes = rest;
    Ok(taken)
}

fn take_text<'s>(bytes: &mut &'s [u8]) -> Result<&'s str, Fault> {
    let length = take_number(bytes)?;
    std::str::from_utf8(take(bytes, length)?).map_err(|_| "a table's name is no text")
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Random;

    use super::*;
    use crate::transaction::Value;

    #[test]
    fn sections_are_read_back() {
        let reference = Reference { id: 3, length: 1 << 20, born: 9 };
        let value = Content::from(Value::from(vec![7; 300]));
        let mut section = Section::part(12);
        section.table("a", 2);
        section.row(b"k", Some(&value));
        section.row(&[1; 200], None);
        section.table("b", 1);
        section.row(b"", Some(&Content::Large(reference)));
        assert_eq!(section.rows(), 3);
        let bytes = section.into_bytes();
        let mut rest = &bytes[..];
        assert_eq!(take_kind(&mut rest), Ok(Kind::Part(12)));
        assert_eq!(take_table(&mut rest), Ok(Some(("a", 2))));
        assert_eq!(take_row(&mut rest), Ok(Row { key: b"k", write: Write::Put(&[7; 300]) }));
        assert_eq!(take_row(&mut rest), Ok(Row { key: &[1; 200], write: Write::Delete }));
        assert_eq!(take_table(&mut rest), Ok(Some(("b", 1))));
        assert_eq!(take_row(&mut rest), Ok(Row { key: b"", write: Write::PutLarge(reference) }));
        assert_eq!(take_table(&mut rest), Ok(None));
        let commit = Section::commit_of_parts(12, 1 << 40, 3);
        assert_eq!(take_kind(&mut &commit[..]), Ok(Kind::CommitOfParts { number: 12, start: 1 << 40, rows: 3 }));
        assert_eq!(take_kind(&mut &Section::dropped("t")[..]), Ok(Kind::Dropped("t")));
        assert_eq!(take_kind(&mut &Section::ended("t")[..]), Ok(Kind::Ended("t")));
    }

    #[test]
    fn nonsense_is_refused_without_a_panic() {
        let mut random = Random::with_seed(1);
        let mut refused = 0;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..random.usize(0..40)).map(|_| random.u8(0..5)).collect();
            let mut rest = &bytes[..];
            let mut read = || {
                take_kind(&mut rest)?;
                while let Some((_, rows)) = take_table(&mut rest)? {
                    for _ in 0..rows {
                        take_row(&mut rest)?;
                    }
                }
                Ok::<_, Fault>(())
            };
            refused += u32::from(read().is_err());
        }
        assert!(refused > 1000, "{refused}");
    }
}
