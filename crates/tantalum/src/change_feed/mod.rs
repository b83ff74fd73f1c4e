//! The change feed: which rows transactions wrote, in the order of the commits, read from the log.
//!
//! The log has the changes of pages, without keys. Of a table with a feed, which the catalog's row of it says, the record of a commit
//! has the rows as well, with keys and values, as a [section] before the changes of pages. A large transaction logs
//! its rows in sections of their own right before it commits (`transaction/staging/feed.rs`), and the record of the commit says where
//! they are. Rows that the applier moves, that change buffers defer and that recovery applies are none of the feed's concern: it has what commits say.
//!
//! Invariants:
//! - the feed has commits in the order of their records, each once, and none before it is durable;
//! - the section of a commit is in its record, so that a crash keeps both or none;
//! - while a table's feed is started, no transaction uses the table: all later records of commits to it have a section;
//! - nor while it is ended, in a record that says so: no later record has a section with rows of the table.

mod change;
mod position;
pub(crate) mod section;

use std::{fmt, sync::Arc, time::Duration};

use tantalum_log::{LogReader, Lsn, Record};
use tantalum_rt::now;
use tantalum_store::Logging;

use self::change::Found;
pub use self::{
    change::{Change, ChangedValue, Changes, LargeValue},
    position::FeedPosition,
};
use crate::{
    db::{Core, Db},
    error::{Error, ErrorKind, Result},
    table::Table,
    transaction::Manager,
};

/// A consumer's position in the change feed lies before what the log, and its archive, still have: the source of an error of kind
/// [`FellBehind`](ErrorKind::FellBehind). The consumer reads the tables once more, from a snapshot that begins after it has asked for
/// [the present position](Db::feed_position), and goes on from there.
///
/// ```
/// use tantalum::{Error, FellBehind};
///
/// fn oldest(error: &Error) -> Option<u64> {
///     error.cause::<FellBehind>().map(|behind| behind.oldest.lsn())
/// }
/// # let db_error = tantalum::Db::builder().read_only(true).open("/nonexistent").unwrap_err();
/// # assert_eq!(oldest(&db_error), None);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FellBehind {
    /// From here on, the feed could be read when the error was made.
    pub oldest: FeedPosition,
}

impl fmt::Display for FellBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the change feed begins at LSN {}", self.oldest.lsn)
    }
}

impl std::error::Error for FellBehind {}

/// Reads the transactions that wrote to tables with a change feed, in the order of their commits. From [`Db::changes`](crate::Db::changes).
///
/// It gives a transaction when that is durable, and none that a crash could take back. A consumer stores the position of what it has
/// handled and goes on from there after a restart: nothing is left out, and nothing comes twice. A feed holds nothing up: the log is
/// overwritten and commits go on, whether it reads or not. It takes no locks, reads the log's devices, and where they have a record no
/// more, the [archive](crate::Builder::log_archive). It does not keep the database open.
///
/// ```
/// use std::time::Duration;
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let notes = db.table("notes")?;
/// let start = db.start_change_feed(&notes)?;
/// db.put(&notes, "a", "1")?;
///
/// let mut feed = db.changes(&start)?;
/// let mut stored = start; // where the consumer keeps its position
/// while let Some(transaction) = feed.next_within(Duration::from_millis(10))? {
///     for change in transaction.changes() {
///         println!("{:?}", change?);
///     }
///     stored = transaction.position();
/// }
/// assert!(db.changes(&stored)?.try_next()?.is_none(), "all was handled");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ChangeFeed {
    manager: Arc<Manager>,
    reader: LogReader,
}

/// What one transaction did to tables with a change feed. From [`ChangeFeed`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let notes = db.table("notes")?;
/// let mut feed = db.changes(&db.start_change_feed(&notes)?)?;
/// let mut tx = db.begin()?;
/// tx.put(&notes, "a", "1")?;
/// let commit = tx.commit()?;
/// let transaction: tantalum::CommittedChanges = feed.try_next()?.ok_or("it is durable")?;
/// assert_eq!(Some(transaction.position().lsn()), commit.position());
/// assert_eq!(transaction.changes().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CommittedChanges {
    manager: Arc<Manager>,
    position: FeedPosition,
    found: Found,
}

impl ChangeFeed {
    pub(crate) fn begin(manager: &Arc<Manager>, from: &FeedPosition) -> Result<Self> {
        let core = manager.core();
        check_store(core)?;
        let log = core.log();
        if from.log_id != log.log_id() {
            let what = "the position is one of another database, or of what this one was restored from: read the tables once more";
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let (lsn, durable) = (from.lsn, log.durable_lsn());
        if lsn > durable || from.session > log.epoch() {
            let what = format!(
                "the position, LSN {lsn} of session {}, lies beyond what is durable, LSN {durable} of session {}: the database has lost \
                 what was read, or was replaced by an older copy; read the tables once more",
                from.session,
                log.epoch()
            );
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        if !log.has_kept(from.session, lsn) {
            let what = format!(
                "the position, LSN {lsn} of session {}, lies in a part of the log that was lost since: read the tables once more",
                from.session
            );
            return Err(Error::new(ErrorKind::Mismatch, what));
        }
        let start = first_start(core)?;
        if start > lsn {
            let what =
                format!("the position, LSN {lsn}, lies before the start of the change feed, LSN {start}; begin there");
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        Ok(Self { manager: Arc::clone(manager), reader: log.reader(lsn)? })
    }

    /// The next transaction, if one is durable. Waits for no commit; it reads what the log has since the last one.
    ///
    /// # Errors
    /// [`FellBehind`](ErrorKind::FellBehind), with the [`FellBehind`] as its source, if what follows was overwritten and is not archived;
    /// [`Closed`](ErrorKind::Closed); [`InvalidInput`](ErrorKind::InvalidInput) if the position is none where a record of the log starts;
    /// damage and read errors, with device and place. It can be called again.
    pub fn try_next(&mut self) -> Result<Option<CommittedChanges>> {
        let core = self.manager.core();
        loop {
            core.check_open()?;
            let Some(record) = core.if_open(read(&mut self.reader, core))? else { return Ok(None) };
            let position = position_at(core, record.end);
            if let Some(found) = Found::of(record)?.filter(Found::is_commit) {
                return Ok(Some(CommittedChanges { manager: Arc::clone(&self.manager), position, found }));
            }
        }
    }

    /// The next transaction; waits for one as long as `timeout`, and returns `None` if none was durable by then.
    ///
    /// # Errors
    /// As [`try_next`](Self::try_next).
    pub fn next_within(&mut self, timeout: Duration) -> Result<Option<CommittedChanges>> {
        let begun = now();
        loop {
            if let Some(next) = self.try_next()? {
                return Ok(Some(next));
            }
            let core = self.manager.core();
            let is_more = self.reader.wait(timeout.saturating_sub(begun.elapsed()));
            if !core.if_open(is_more)? {
                return Ok(None);
            }
        }
    }

    /// Where the feed stands: behind the last transaction that it gave, or further, where none followed that concerns it. A consumer
    /// that stores it now and then does not fall behind because other tables are written.
    pub fn position(&self) -> FeedPosition {
        position_at(self.manager.core(), self.reader.position())
    }
}

impl CommittedChanges {
    /// Where to go on when the changes were handled.
    pub fn position(&self) -> FeedPosition {
        self.position
    }

    /// The changes, from the first on.
    pub fn changes(&self) -> Changes {
        Changes::of(&self.manager, &self.found)
    }
}

impl fmt::Debug for ChangeFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeFeed").field("lsn", &self.reader.position()).finish_non_exhaustive()
    }
}

impl fmt::Debug for CommittedChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommittedChanges").field("lsn", &self.position.lsn).finish_non_exhaustive()
    }
}

/// The change feed: what transactions wrote, in the order of the commits.
impl Db {
    /// Has the log keep what transactions write to a table, with keys and values, for readers of the [change feed](ChangeFeed), from the
    /// returned position on. Durable when it returns; for a table that has a feed, it returns where that began. It ends [when a
    /// program ends it](Self::end_change_feed), and when the table is dropped.
    ///
    /// A commit then logs the bytes of its keys and values once more. A table that is [loaded in bulk](Self::bulk_load) is written by
    /// a transaction.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let notes = db.table("notes")?;
    /// assert!(!notes.has_change_feed());
    /// let start = db.start_change_feed(&notes)?;
    /// assert!(notes.has_change_feed());
    /// assert_eq!(db.start_change_feed(&notes)?.lsn(), start.lsn(), "it has one");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) with the store of in-page logging, where the log has no changes;
    /// [`InUse`](ErrorKind::InUse) while a transaction or snapshot that has used the table is alive; [`NotFound`](ErrorKind::NotFound)
    /// for a table that was dropped; [`ReadOnly`](ErrorKind::ReadOnly), [`Closed`](ErrorKind::Closed), and what a device reports.
    pub fn start_change_feed(&self, table: &Table) -> Result<FeedPosition> {
        let _operation = self.core().begin_operation()?;
        let core = self.core();
        check_store(core)?;
        table.check_usable(core.log().log_id())?;
        let start = self.manager().retry_when_full(|| core.catalog.start_feed(table))?;
        Ok(position_at(core, start))
    }

    /// Ends the [change feed](ChangeFeed) of a table, durably; without one, nothing is done. Commits to the table log their rows no more.
    ///
    /// Readers get what was committed until then, and then [`Change::EndFeed`](crate::Change::EndFeed). Later, one can begin to read only
    /// where the first of the other [feeds](Self::change_feeds) was started, or behind; readers that have begun read on in any
    /// case. A feed that is started again begins anew: a consumer of the table reads it once more.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let notes = db.table("notes")?;
    /// let mut feed = db.changes(&db.start_change_feed(&notes)?)?;
    /// db.end_change_feed(&notes)?;
    /// db.put(&notes, "a", "1")?;
    /// let end = feed.try_next()?.ok_or("it is durable")?;
    /// let changes = end.changes().collect::<Result<Vec<_>, _>>()?;
    /// assert!(matches!(&changes[..], [tantalum::Change::EndFeed { table }] if &**table == "notes"));
    /// assert!(feed.try_next()?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse) while a transaction or snapshot that has used the table is alive; [`NotFound`](ErrorKind::NotFound)
    /// for a table that was dropped; [`ReadOnly`](ErrorKind::ReadOnly), [`Closed`](ErrorKind::Closed), and what a device reports.
    pub fn end_change_feed(&self, table: &Table) -> Result<()> {
        let _operation = self.core().begin_operation()?;
        let core = self.core();
        table.check_usable(core.log().log_id())?;
        self.manager().retry_when_full(|| core.catalog.end_feed(table))
    }

    /// Reads the [change feed](ChangeFeed) from a position on. Any number of feeds may be read at a time.
    ///
    /// # Errors
    /// [`Mismatch`](ErrorKind::Mismatch) for a position of another database, or of a part of the log that was lost;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for one that lies beyond what is durable, or before the start of all feeds that there
    /// are; [`NotFound`](ErrorKind::NotFound) if no table has a feed; [`Unsupported`](ErrorKind::Unsupported) with the store of in-page
    /// logging; [`Closed`](ErrorKind::Closed). Whether the log still has what follows, the first read tells.
    pub fn changes(&self, from: &FeedPosition) -> Result<ChangeFeed> {
        self.core().check_open()?;
        ChangeFeed::begin(self.manager(), from)
    }

    /// The tables that have a [feed](Self::start_change_feed), in the order of their names, and where each was started: what the change
    /// feed can have begins at the first of these positions, if the log still has it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// db.table("drafts")?;
    /// let start = db.start_change_feed(&db.table("notes")?)?;
    /// assert_eq!(db.change_feeds()?, [("notes".to_owned(), start)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed).
    pub fn change_feeds(&self) -> Result<Vec<(String, FeedPosition)>> {
        let core = self.core();
        core.check_open()?;
        let start = |table: &Table| Some((table.name().to_owned(), position_at(core, table.feed_start()?)));
        Ok(core.catalog.tables().iter().filter_map(start).collect())
    }

    /// Where the first of the feeds was started.
    #[cfg(feature = "control")]
    pub(crate) fn first_feed_position(&self) -> Result<FeedPosition> {
        let core = self.core();
        core.check_open()?;
        first_start(core).map(|start| position_at(core, start))
    }

    /// The present end of the change feed: a transaction that is durable now lies before it, and one that is not lies behind.
    ///
    /// A consumer that begins with what is there asks for this first, then reads the tables from a snapshot, and then the changes from
    /// here on. Some of them the snapshot has shown already; as a change has the whole new value, it does no harm to apply it twice.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) with the store of in-page logging; [`Closed`](ErrorKind::Closed).
    pub fn feed_position(&self) -> Result<FeedPosition> {
        let core = self.core();
        core.check_open()?;
        check_store(core)?;
        Ok(position_at(core, core.log().durable_lsn()))
    }
}

/// A position of the present session.
fn position_at(core: &Core, lsn: Lsn) -> FeedPosition {
    FeedPosition { log_id: core.log().log_id(), session: core.log().epoch(), lsn }
}

/// Where the first of the tables' feeds begins.
fn first_start(core: &Core) -> Result<Lsn> {
    let starts = core.catalog.tables().into_iter().filter_map(|table| table.feed_start());
    starts.min().ok_or_else(|| {
        let what = "no table has a change feed; start one, with Db::start_change_feed or `tantalum db feed start`";
        Error::new(ErrorKind::NotFound, what)
    })
}

/// Refuses a store that keeps the changes itself.
fn check_store(core: &Core) -> Result<()> {
    if core.pool.store().logging() == Logging::Redo {
        return Ok(());
    }
    let what = "the page store in-page-logging keeps the changes itself, so that the log has none for a change feed; copy the database \
                into one with another page store";
    Err(Error::new(ErrorKind::Unsupported, what))
}

/// The next record. A reader that fell behind is told the position from which it can read.
fn read(reader: &mut LogReader, core: &Core) -> Result<Option<Record>> {
    reader.next_record().map_err(|error| match error.cause::<tantalum_log::FellBehind>() {
        Some(behind) => {
            let oldest = position_at(core, behind.oldest);
            let what = format!("{error}; the position there is {oldest}");
            Error::new(ErrorKind::FellBehind, what).with_source(FellBehind { oldest })
        }
        None => error,
    })
}
