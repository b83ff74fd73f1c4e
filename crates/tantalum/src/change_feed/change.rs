//! What readers of the change feed get of a transaction, row by row.

use std::{fmt, ops::Range, sync::Arc};

use tantalum_log::{LogReader, Lsn, Record};
use tantalum_store::page::record;

use super::section::{self, Fault, Kind, Row, Write};
use crate::{
    error::{Error, ErrorKind, Result},
    transaction::{Manager, Value, read_present},
    tree::Reference,
};

/// What a transaction did to a row, or to a table. From [`CommittedChanges::changes`](crate::CommittedChanges::changes).
///
/// ```
/// use tantalum::Change;
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let notes = db.table("notes")?;
/// let mut feed = db.changes(&db.start_change_feed(&notes)?)?;
/// db.put(&notes, "a", "1")?;
/// db.delete(&notes, "b")?; // whether it was there or not
/// while let Some(transaction) = feed.try_next()? {
///     for change in transaction.changes() {
///         match change? {
///             Change::Put { key, value, .. } => assert!(key == b"a" && value.read()?.unwrap() == b"1"),
///             Change::Delete { key, .. } => assert_eq!(key, b"b"),
///             other => println!("{other:?}"),
///         }
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Change {
    /// A row has this value now.
    Put {
        /// The table's name.
        table: Arc<str>,
        /// The row's key.
        key: Value,
        /// Its new value.
        value: ChangedValue,
    },
    /// There is no row with this key any more; perhaps there was none before.
    Delete {
        /// The table's name.
        table: Arc<str>,
        /// The key.
        key: Value,
    },
    /// The table was dropped, with all its rows.
    DropTable {
        /// The table's name.
        table: Arc<str>,
    },
    /// The table's change feed was [ended](crate::Db::end_change_feed): what is committed to it from here on is not in the feed. If the
    /// feed has later changes of the table, it was started again, and what was committed in between is missing.
    EndFeed {
        /// The table's name.
        table: Arc<str>,
    },
}

impl Change {
    /// The table's name.
    pub fn table(&self) -> &str {
        match self {
            Self::Put { table, .. }
            | Self::Delete { table, .. }
            | Self::DropTable { table }
            | Self::EndFeed { table } => table,
        }
    }
}

/// The new value of a row in the change feed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let films = db.table("films")?;
/// let mut feed = db.changes(&db.start_change_feed(&films)?)?;
/// db.put(&films, "a", vec![0; 1 << 20])?;
/// db.put(&films, "a", "cut")?;
/// let mut changes = Vec::new();
/// while let Some(transaction) = feed.try_next()? {
///     changes.extend(transaction.changes().collect::<Result<Vec<_>, _>>()?);
/// }
/// let [tantalum::Change::Put { value: first, .. }, tantalum::Change::Put { value: second, .. }] = &changes[..] else {
///     panic!("two rows were put");
/// };
/// assert_eq!(first.len(), 1 << 20);
/// assert_eq!(first.read()?, None, "a later change has its successor");
/// assert_eq!(second.read()?.unwrap(), b"cut");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub enum ChangedValue {
    /// All of it.
    Bytes(Value),
    /// One of more than 64 KiB, or of less where the log is small: the feed has only where it is.
    Large(LargeValue),
}

/// A large value in the change feed, which can be read until its row is written again. Does not keep the database open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{Change, ChangedValue};
///
/// let films = db.table("films")?;
/// let mut feed = db.changes(&db.start_change_feed(&films)?)?;
/// db.put(&films, "a", vec![7; 1 << 20])?;
/// let transaction = feed.try_next()?.ok_or("it is durable")?;
/// for change in transaction.changes() {
///     let Change::Put { value: ChangedValue::Large(film), .. } = change? else { panic!("it is large") };
///     assert_eq!(film.len(), 1 << 20);
///     assert!(film.read()?.unwrap().iter().all(|byte| *byte == 7));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LargeValue {
    manager: Arc<Manager>,
    table: Arc<str>,
    key: Value,
    reference: Reference,
}

impl ChangedValue {
    /// Bytes of the value.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(value) => value.len() as u64,
            Self::Large(value) => value.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The value; `None` if it is large and its row was written again: then a later change of the feed has what became of it.
    ///
    /// # Errors
    /// As [`LargeValue::read`].
    pub fn read(&self) -> Result<Option<Value>> {
        match self {
            Self::Bytes(value) => Ok(Some(value.clone())),
            Self::Large(value) => value.read(),
        }
    }
}

impl LargeValue {
    /// Bytes of the value, at most 1 GiB.
    pub fn len(&self) -> u64 {
        self.reference.length.into()
    }

    /// Never: a large value has bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The whole value, in memory; `None` if its row was written or deleted since, or the table dropped: then a later change of the
    /// feed says so.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed); what a device or the log reports.
    pub fn read(&self) -> Result<Option<Value>> {
        let core = self.manager.core();
        core.check_open()?;
        let Some(table) = core.catalog.opened(&self.table) else { return Ok(None) };
        let is_usable = || table.check_usable(core.log().log_id()).is_ok();
        let read = || {
            let (content, lsn) = read_present(&table, &self.key)?;
            // Numbers may be used again after a restart, but not with the place in the log where the value was begun.
            let is_same = content.and_then(|content| content.reference()) == Some(self.reference);
            let values = table.values().filter(|_| is_same);
            Ok::<_, Error>((values.map(|values| values.load(self.reference)).transpose()?.flatten(), lsn))
        };
        let read = read();
        if !is_usable() {
            return Ok(None);
        }
        let (value, lsn) = core.if_open(read)?;
        core.pool.flush(lsn)?;
        Ok(value)
    }
}

impl fmt::Debug for LargeValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LargeValue").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

/// The changes of one transaction, by table and key: at most one for each row, what the transaction has left of it.
///
/// It reads the log as it goes, so a transaction of any size needs little memory. It does not keep the database open.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let notes = db.table("notes")?;
/// let mut feed = db.changes(&db.start_change_feed(&notes)?)?;
/// db.transact(|tx| (0..10u8).try_for_each(|n| tx.put(&notes, [n], "")))?;
/// let transaction = feed.try_next()?.ok_or("it is durable")?;
/// let changes: tantalum::Changes = transaction.changes();
/// assert_eq!(changes.count(), 10);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Changes {
    manager: Arc<Manager>,
    section: Bytes,
    /// That a table was dropped, or its feed ended: that is all then.
    end: Option<Change>,
    table: Arc<str>,
    /// Rows of the table that follow.
    rows: u64,
    parts: Option<Parts>,
    is_over: bool,
}

/// A section of a record, and how much of it was read.
#[derive(Clone)]
struct Bytes {
    record: Arc<[u8]>,
    at: usize,
    end: usize,
    /// Where the record starts.
    lsn: Lsn,
}

/// What a record has for the feed.
#[derive(Clone)]
pub(super) struct Found {
    kind: FoundKind,
    /// The tables and their rows.
    section: Bytes,
    /// The end of the record.
    end: Lsn,
}

#[derive(Clone)]
enum FoundKind {
    Whole,
    Part {
        number: u64,
    },
    CommitOfParts {
        number: u64,
        start: Lsn,
        rows: u64,
    },
    /// The end of a table's feed, which this says.
    End(Change),
}

/// The parts of a large transaction.
struct Parts {
    number: u64,
    /// Where in the log they begin, and the end of the commit's record.
    range: Range<Lsn>,
    reader: Option<LogReader>,
    /// Rows that are still to come.
    rows: u64,
}

impl Found {
    /// What this record has; `None` if nothing.
    pub fn of(record: Record) -> Result<Option<Self>> {
        let Record { start: lsn, end, bytes } = record;
        let Some(section) = record::feed_of(&bytes).map_err(|what| damaged(lsn, what))? else { return Ok(None) };
        let at = section.as_ptr() as usize - bytes.as_ptr() as usize;
        let mut section = Bytes { at, end: at + section.len(), record: bytes.into(), lsn };
        let kind = match section.take(section::take_kind)? {
            Kind::Whole => FoundKind::Whole,
            Kind::Part(number) => FoundKind::Part { number },
            Kind::CommitOfParts { number, start, rows } => {
                FoundKind::CommitOfParts { number, start: Lsn::new(start), rows }
            }
            Kind::Dropped(table) => FoundKind::End(Change::DropTable { table: table.into() }),
            Kind::Ended(table) => FoundKind::End(Change::EndFeed { table: table.into() }),
        };
        Ok(Some(Self { kind, section, end }))
    }

    /// Whether it is a commit, or as good as one.
    pub fn is_commit(&self) -> bool {
        !matches!(self.kind, FoundKind::Part { .. })
    }
}

impl Bytes {
    /// Takes something from the front.
    fn take<'b, T>(&'b mut self, take: impl FnOnce(&mut &'b [u8]) -> Result<T, Fault>) -> Result<T> {
        let mut rest = &self.record[self.at..self.end];
        let taken = take(&mut rest).map_err(|what| damaged(self.lsn, what))?;
        self.at = self.end - rest.len();
        Ok(taken)
    }
}

fn damaged(lsn: Lsn, what: Fault) -> Error {
    let what = format!(
        "the record at LSN {lsn} of the log cannot be read for the change feed: {what}; read the tables once more"
    );
    Error::new(ErrorKind::Corrupt, what)
}

impl Changes {
    /// Of a commit.
    pub(super) fn of(manager: &Arc<Manager>, found: &Found) -> Self {
        let Found { kind, section, end: behind } = found.clone();
        let (mut end, mut parts) = (None, None);
        match kind {
            FoundKind::Whole | FoundKind::Part { .. } => {}
            FoundKind::End(change) => end = Some(change),
            FoundKind::CommitOfParts { number, start, rows } => {
                parts = Some(Parts { number, range: start..behind, reader: None, rows });
            }
        }
        Self { manager: Arc::clone(manager), section, end, table: Arc::from(""), rows: 0, parts, is_over: false }
    }

    fn read_next(&mut self) -> Result<Option<Change>> {
        if let Some(change) = self.end.take() {
            return Ok(Some(change));
        }
        while self.rows == 0 {
            let table =
                self.section.take(|rest| Ok(section::take_table(rest)?.map(|(name, rows)| (Arc::from(name), rows))))?;
            match table {
                Some((name, rows)) => (self.table, self.rows) = (name, rows),
                None => match self.next_part()? {
                    Some(section) => self.section = section,
                    None => return Ok(None),
                },
            }
        }
        self.rows -= 1;
        let (manager, table) = (&self.manager, &self.table);
        let change = self.section.take(|rest| {
            let Row { key, write } = section::take_row(rest)?;
            let table = Arc::clone(table);
            Ok(match write {
                Write::Delete => Change::Delete { table, key: key.into() },
                Write::Put(value) => {
                    let (key, value) = Value::row(key, value);
                    Change::Put { table, key, value: ChangedValue::Bytes(value) }
                }
                Write::PutLarge(reference) => {
                    let (manager, key) = (Arc::clone(manager), Value::from(key));
                    let value = LargeValue { manager, table: Arc::clone(&table), key: key.clone(), reference };
                    Change::Put { table, key, value: ChangedValue::Large(value) }
                }
            })
        })?;
        if let Some(parts) = &mut self.parts {
            parts.rows =
                parts.rows.checked_sub(1).ok_or_else(|| damaged(self.section.lsn, "more rows than it says"))?;
        }
        Ok(Some(change))
    }

    /// The section of the next part, behind its kind.
    fn next_part(&mut self) -> Result<Option<Bytes>> {
        let Some(parts) = &mut self.parts else { return Ok(None) };
        let core = self.manager.core();
        let reader = match &mut parts.reader {
            Some(reader) => reader,
            none => none.insert(core.log().reader(parts.range.start)?),
        };
        while reader.position() < parts.range.end {
            core.check_open()?;
            let Some(record) = core.if_open(super::read(reader, core))? else { break };
            if let Some(Found { kind: FoundKind::Part { number }, section, .. }) = Found::of(record)?
                && number == parts.number
            {
                return Ok(Some(section));
            }
        }
        let (end, missing) = (parts.range.end, parts.rows);
        self.parts = None;
        if missing > 0 { Err(damaged(end, "rows of its transaction are missing")) } else { Ok(None) }
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        if self.is_over {
            return None;
        }
        let next = self.read_next().transpose();
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("table", &self.table).finish_non_exhaustive()
    }
}
