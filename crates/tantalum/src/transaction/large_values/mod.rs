//! Large values: those that do not stand in their leaf lie in pieces in the *value tree* of their table, a tree that only the catalog
//! knows, made with the table's first large value. A row names its value by a [`Reference`].
//!
//! Numbers of values ascend, so the tree grows at its right edge, and a piece is as large as a leaf takes: pages are full. A value is
//! written once, and its pieces are never changed. So a snapshot that sees it needs no copy, and a reader holds no latch between two
//! pieces: if pieces are missing, the value has gone.
//!
//! A *mark* in the same tree says that a value may have to go. It is put there
//! - with the first piece of a value whose transaction has not committed, and names the staging table of that transaction; the applier
//!   removes it in the group that puts the reference into the table
//! - by the commit that overwrites or deletes the row.
//!
//! The [reaper](reaper) deletes what is marked, when no snapshot sees it any more, and its staging table is no more.
//!
//! Invariant: a value in the tree is named by one row, of the table or of a staging table, or is marked.

mod build;
mod orphans;
mod reader;
mod reaper;
mod write;

use std::{fmt, ops::Range};

use tantalum_log::Lsn;
use tantalum_rt::Mutex;
use tantalum_store::TableId;

pub(crate) use self::orphans::{PiecesSeen, references_in};
pub use self::reader::ValueReader;
pub(in crate::transaction) use self::{
    build::BuiltValues,
    reaper::{Reaped, Reaper},
    write::{CutValues, Writer},
};
use super::{Content, Value, read_present, snapshot::View};
use crate::{
    error::{Error, ErrorKind, Result},
    table::Table,
    tree::{LeafPosition, Reference, Tree},
};

const MARK: u8 = 0;
const PIECE: u8 = 1;
const MARK_KEY_BYTES: usize = 1 + 8;
const PIECE_KEY_BYTES: usize = MARK_KEY_BYTES + 4;
/// A piece that shares a leaf with others is not smaller than this part of a whole one, unless it is a value's end.
const WORTHY_PART: usize = 16;

/// Of a value, and of where a piece ends in it: a search finds the piece with a byte in the direction of the walk.
pub(crate) type PieceKey = [u8; PIECE_KEY_BYTES];
pub(in crate::transaction) type MarkKey = [u8; MARK_KEY_BYTES];

/// A piece that is to be written.
pub(in crate::transaction) type Piece<'a> = (PieceKey, &'a [u8]);

pub(crate) fn piece_key(id: u64, end: u32) -> PieceKey {
    let mut key = [PIECE; PIECE_KEY_BYTES];
    key[1..9].copy_from_slice(&id.to_be_bytes());
    key[9..].copy_from_slice(&end.to_be_bytes());
    key
}

pub(in crate::transaction) fn mark_key(id: u64) -> MarkKey {
    let mut key = [MARK; MARK_KEY_BYTES];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

/// The value that a row with this key is of.
fn id_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*key.get(1..9)?.first_chunk()?))
}

/// The value and the end of the piece with this key; `None` if it is no piece's.
fn parse_piece_key(key: &[u8]) -> Option<(u64, u32)> {
    let key: &PieceKey = key.try_into().ok()?;
    let (id, end) = key[1..].split_first_chunk::<8>()?;
    (key[0] == PIECE).then_some((u64::from_be_bytes(*id), u32::from_be_bytes(end.try_into().ok()?)))
}

/// That a value may have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    /// While this staging table is there, the value stays; 0 for a value that no row names any more.
    pub owner: TableId,
    /// As in the [`Reference`].
    pub born: u64,
}

impl Mark {
    pub const BYTES: usize = 4 + 8;

    pub fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..4].copy_from_slice(&self.owner.0.to_le_bytes());
        bytes[4..].copy_from_slice(&self.born.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (owner, born) = bytes.split_first_chunk::<4>()?;
        Some(Self { owner: TableId(u32::from_le_bytes(*owner)), born: u64::from_le_bytes(born.try_into().ok()?) })
    }
}

/// The tree with the large values of a table.
pub(crate) struct ValueTree {
    tree: Tree,
    /// The next value's number, once it was asked for or a value was deleted.
    next_id: Mutex<Option<u64>>,
}

impl fmt::Debug for ValueTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValueTree").field("id", &self.tree.owner()).finish_non_exhaustive()
    }
}

/// What came of a look at one leaf.
enum Look {
    Done,
    /// It goes on in the leaf of this key.
    On(Vec<u8>),
    Gone,
}

impl ValueTree {
    pub fn new(tree: Tree) -> Self {
        Self { tree: tree.with_large_rows(&[PIECE]), next_id: Mutex::new(None) }
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The largest piece, which fills a leaf.
    fn piece_bytes(&self) -> usize {
        self.tree.row_limit(PIECE_KEY_BYTES)
    }

    /// How large a piece may be that fits in the last leaf beside what is there, and worth it; else a whole one.
    fn first_piece_bytes(&self) -> Result<usize> {
        let free = self.tree.read_leaf(LeafPosition::Last, |leaf| leaf.free_bytes())?;
        Ok(self.room_beside(free))
    }

    /// The same for a leaf with so many free bytes.
    fn room_beside(&self, free: usize) -> usize {
        let whole = self.piece_bytes();
        // The piece's key and slot, and a leaf's upper fence, once the next leaf is there.
        let others = self.tree.free_bytes_of_empty() - whole;
        let room = free.saturating_sub(others).min(whole);
        if room >= whole / WORTHY_PART { room } else { whole }
    }

    /// A number that no large value of the table has had since the database was opened, nor has now. An operation is under way.
    fn new_id(&self) -> Result<u64> {
        let mut next = self.next_id.lock();
        let id = match *next {
            Some(id) => id,
            None => {
                // As long as it is empty, so that marks have leaves of their own: values can be deleted when the device is full.
                self.tree.divide(&[PIECE])?;
                self.next_id()?
            }
        };
        *next = Some(id + 1);
        Ok(id)
    }

    /// Keeps in mind which numbers were given. Before anything of a value is deleted, since the tree shows no more then that its number
    /// was given: a task that has read the row, and now reads the value, would take another with that number for it.
    fn note_ids(&self) -> Result<()> {
        let mut next = self.next_id.lock();
        if next.is_none() {
            *next = Some(self.next_id()?);
        }
        Ok(())
    }

    /// A number that is above those of all values of which anything is there.
    fn next_id(&self) -> Result<u64> {
        Ok(self.last_id()?.map_or(1, |last| last + 1))
    }

    /// The largest number of a value of which anything is there.
    fn last_id(&self) -> Result<Option<u64>> {
        Ok(self.last_before(None)?.max(self.last_before(Some(vec![PIECE]))?))
    }

    /// The number of the value in the last row before a bound.
    fn last_before(&self, mut bound: Option<Vec<u8>>) -> Result<Option<u64>> {
        loop {
            let at = bound.as_deref().map_or(LeafPosition::Last, LeafPosition::Before);
            let (key, lower) = self.tree.read_leaf(at, |leaf| {
                let end = bound.as_deref().map_or(Ok(leaf.len()), |bound| leaf.lower_bound(bound))?;
                let key = end.checked_sub(1).map(|last| leaf.key(last)).transpose()?;
                Ok::<_, Error>((key, leaf.lower().to_vec()))
            })??;
            // Leaves may be empty.
            match key {
                Some(key) => return Ok(id_of(&key)),
                None if lower.is_empty() => return Ok(None),
                None => bound = Some(lower),
            }
        }
    }

    /// Shows the bytes of a part of a value, which is not empty. False if the value has gone, or a part of it: what was shown does
    /// not count then. The caller holds no latch.
    pub fn read(&self, id: u64, part: Range<u32>, show: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let mut at = part.start;
        let mut from = piece_key(id, at + 1).to_vec();
        loop {
            let look = self.tree.read_leaf(LeafPosition::Containing(&from), |leaf| {
                for index in leaf.lower_bound(&from)?..leaf.len() {
                    let bytes = leaf.bytes(index)?;
                    let Some((_, end)) = parse_piece_key(&leaf.key(index)?).filter(|(found, _)| *found == id) else {
                        return Ok(Look::Gone);
                    };
                    let Some(begin) = end.checked_sub(bytes.len() as u32).filter(|begin| *begin <= at) else {
                        return Ok(Look::Gone);
                    };
                    show(&bytes[(at - begin) as usize..(end.min(part.end) - begin) as usize]);
                    at = end;
                    if at >= part.end {
                        return Ok(Look::Done);
                    }
                }
                Ok::<_, Error>(leaf.upper().map_or(Look::Gone, |upper| Look::On(upper.to_vec())))
            });
            match look?? {
                Look::Done => return Ok(true),
                Look::Gone => return Ok(false),
                Look::On(upper) => from = upper,
            }
        }
    }

    /// The whole value; `None` if it has gone.
    pub fn load(&self, reference: Reference) -> Result<Option<Value>> {
        let mut at = 0;
        let mut is_there = Ok(false);
        let value = Value::filled(reference.length as usize, |bytes| {
            is_there = self.read(reference.id, 0..reference.length, &mut |part| {
                bytes[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            });
        });
        Ok(is_there?.then_some(value))
    }

    /// The mark of a value.
    pub fn mark(&self, id: u64) -> Result<Option<Mark>> {
        self.tree.read_bytes(&mark_key(id), |row| row.and_then(Mark::decode))
    }

    /// Shows marks in the order of their values, from that of value `from` on, until `show` returns false.
    pub fn marks(&self, from: u64, show: &mut dyn FnMut(u64, Mark) -> bool) -> Result<()> {
        self.rows(&mark_key(from), &[PIECE], &mut |key, row| {
            id_of(key).zip(Mark::decode(row)).is_none_or(|(id, mark)| show(id, mark))
        })
    }

    pub(crate) fn rows(&self, from: &[u8], to: &[u8], show: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let mut next = Some(from.to_vec());
        while let Some(from) = next.take().filter(|from| from[..] < *to) {
            next = self.tree.read_leaf(LeafPosition::Containing(&from), |leaf| {
                for index in leaf.lower_bound(&from)?..leaf.len() {
                    let key = leaf.key(index)?;
                    if key[..] >= *to || !show(&key, leaf.bytes(index)?) {
                        return Ok(None);
                    }
                }
                Ok::<_, Error>(leaf.upper().map(<[u8]>::to_vec))
            })??;
        }
        Ok(())
    }
}

/// The value of a row that is locked, or that a view sees.
pub(in crate::transaction) fn load(content: Content, table: &Table, view: Option<&View>) -> Result<Value> {
    let reference = match content {
        Content::Bytes(value) => return Ok(value),
        Content::Large(reference) => reference,
    };
    let loaded = table.values().map(|values| values.load(reference)).transpose()?.flatten();
    match loaded {
        Some(value) => Ok(value),
        // If the view was given up, that is why.
        None => view.map_or(Ok(()), View::check).and(Err(lost(reference))),
    }
}

/// The value of a key as it is committed now, and how far the log must be durable before a caller gets it. A large value may be
/// replaced while it is read: then the row is read again.
pub(crate) fn read_present_value(table: &Table, key: &[u8]) -> Result<(Option<Value>, Lsn)> {
    let mut missing = None;
    loop {
        let (content, lsn) = read_present(table, key)?;
        let reference = match content {
            None => return Ok((None, lsn)),
            Some(Content::Bytes(value)) => return Ok((Some(value), lsn)),
            Some(Content::Large(reference)) => reference,
        };
        let loaded = table.values().map(|values| values.load(reference)).transpose()?.flatten();
        match loaded {
            Some(value) => return Ok((Some(value), lsn)),
            None if missing == Some(reference) => return Err(lost(reference)),
            None => missing = Some(reference),
        }
    }
}

/// A row names a large value that is not there.
#[cold]
pub(in crate::transaction) fn lost(reference: Reference) -> Error {
    let Reference { id, length, .. } = reference;
    let what = format!("large value {id} of {length} bytes is not whole; restore the database from a backup");
    Error::new(ErrorKind::Corrupt, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_marks_before_pieces_and_pieces_by_value_and_place() {
        let keys =
            [mark_key(1).to_vec(), mark_key(u64::MAX).to_vec(), piece_key(1, 5).to_vec(), piece_key(1, 300).to_vec()];
        assert!(keys.is_sorted() && keys[3] < piece_key(2, 1).to_vec());
        assert_eq!(parse_piece_key(&keys[3]), Some((1, 300)));
        assert_eq!((parse_piece_key(&keys[0]), parse_piece_key(b"")), (None, None));
        let mark = Mark { owner: TableId(7), born: 9 };
        assert_eq!(Mark::decode(&mark.encode()), Some(mark));
        assert_eq!(Mark::decode(b""), None);
    }

    #[test]
    fn a_number_is_given_once_while_the_database_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let open = || crate::Db::builder().log_bytes(8 << 20).open(dir.path().join("db")).unwrap();
        let db = open();
        let table = db.create_table("t").unwrap();
        db.put(&table, "key", [7; 50_000]).unwrap();
        drop((db, table));

        let db = open();
        let table = db.table("t").unwrap();
        let values = table.values().expect("it has a large value");
        let given = values.last_id().unwrap().expect("the value's number");
        db.delete(&table, "key").unwrap();
        while values.last_id().unwrap().is_some() {
            tantalum_rt::yield_now();
        }
        assert!(values.new_id().unwrap() > given);
    }
}
