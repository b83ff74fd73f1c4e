//! The change feed for other processes: which changes are asked for, how they are read, and how they look in JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tantalum_rt::{now, sleep};

use super::rows::{bytes, optional_bytes};
use crate::{
    Change, ChangeFeed, CommittedChanges, FeedPosition,
    db::Db,
    error::{Error, ErrorKind, Result},
    table::Table,
};

/// Bytes of keys and values that are given at a time, if a change has no more.
const BATCH_BYTES: usize = 32 << 10;
/// A position is given so often at least, also if nothing of concern is committed.
const POSITION_INTERVAL: Duration = Duration::from_secs(1);
/// A feed is started or ended at a moment when no transaction uses the table. Such a moment is looked for so often, and so long.
const UNUSED_INTERVAL: Duration = Duration::from_millis(1);
const UNUSED_TIMEOUT: Duration = Duration::from_secs(5);

/// Which changes of the [change feed](crate::ChangeFeed) are to be read: by [`Client::changes`](super::Client::changes) from a database
/// that another process has open, or by [`ChangeSelection::read`].
///
/// ```
/// use tantalum::control::{ChangeSelection, ChangesFrom, FedChange};
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?;
/// let fruit = db.table("fruit")?;
/// db.start_change_feed(&fruit)?;
/// db.put(&fruit, "apple", "3")?;
/// let (mut seen, mut stored) = (Vec::new(), None);
/// ChangeSelection::default().read(&db, &mut |changes, position| {
///     seen.extend(changes);
///     stored = position.or(stored); // all changes before it were given
///     Ok(())
/// })?;
/// let value = Some(b"3".to_vec());
/// assert_eq!(seen, [FedChange::Put { table: "fruit".into(), key: b"apple".to_vec(), value, omitted_bytes: None }]);
/// let later = ChangeSelection { from: ChangesFrom::Position(stored.unwrap()), ..ChangeSelection::default() };
/// later.read(&db, &mut |changes, _| { assert!(changes.is_empty()); Ok(()) })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSelection {
    /// Of these tables, each of which must have a feed; of all that have one, if none is given.
    #[serde(default)]
    pub tables: Vec<String>,
    /// From where on.
    #[serde(default)]
    pub from: ChangesFrom,
    /// At most so many transactions; absent for no bound.
    #[serde(default)]
    pub limit: Option<u64>,
    /// Waits for more at the end.
    #[serde(default)]
    pub follow: bool,
    /// Values of more bytes are left out; absent for no bound. A value is in memory as a whole, here and in the process that has the
    /// database open.
    #[serde(default)]
    pub largest_value: Option<u64>,
}

/// Where the reading of changes begins.
///
/// ```
/// use tantalum::control::ChangesFrom;
/// assert_eq!(ChangesFrom::default(), ChangesFrom::Start);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangesFrom {
    /// Where the first of the feeds that there are was started.
    #[default]
    Start,
    /// At the present end of the feed.
    Now,
    /// Behind what was handled before.
    Position(#[serde(with = "position")] FeedPosition),
}

/// A change of the feed, as another process gets it.
///
/// ```
/// let change = tantalum::control::FedChange::DropTable { table: "fruit".into() };
/// assert_eq!(serde_json::to_value(&change)?["change"], "drop-table");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum FedChange {
    /// A row has a new value.
    Put {
        /// The table.
        table: String,
        /// The row's key.
        #[serde(with = "bytes")]
        key: Vec<u8>,
        /// Its value; absent if it was left out, or if it is large and the row was written again before it was read: a later change
        /// says what became of it.
        #[serde(default, with = "optional_bytes", skip_serializing_if = "Option::is_none")]
        value: Option<Vec<u8>>,
        /// The bytes of a value that is [too large](ChangeSelection::largest_value) and was left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        omitted_bytes: Option<u64>,
    },
    /// There is no row with this key any more; perhaps there was none before.
    Delete {
        /// The table.
        table: String,
        /// The key.
        #[serde(with = "bytes")]
        key: Vec<u8>,
    },
    /// The table was dropped.
    DropTable {
        /// The table.
        table: String,
    },
    /// The table's feed was ended.
    EndFeed {
        /// The table.
        table: String,
    },
}

/// Takes changes of one transaction, some at a time; with the last of them the position behind the transaction. Also takes a position
/// alone, where nothing of concern was committed since the last one.
pub type ChangeSink<'a> = &'a mut dyn FnMut(Vec<FedChange>, Option<FeedPosition>) -> Result<()>;

impl ChangeSelection {
    /// Reads the changes and gives them to `sink`; with `follow`, until it fails, or the database is closed.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a table that is not there or has no feed; those of [`Db::changes`], of
    /// [`ChangeFeed::try_next`], of reading large values, and of `sink`.
    pub fn read(&self, db: &Db, sink: ChangeSink<'_>) -> Result<()> {
        self.begin(db)?.read(sink)
    }

    /// Finds where to begin. What is returned does not keep the database open.
    pub(super) fn begin(&self, db: &Db) -> Result<ChangeReader> {
        for name in &self.tables {
            if !db.open_table(name)?.has_change_feed() {
                let what = format!("table {name:?} has no change feed; start one, with `tantalum db feed start`");
                return Err(Error::new(ErrorKind::NotFound, what));
            }
        }
        let from = match self.from {
            ChangesFrom::Start => db.first_feed_position()?,
            ChangesFrom::Now => db.feed_position()?,
            ChangesFrom::Position(position) => position,
        };
        Ok(ChangeReader { selection: self.clone(), feed: db.changes(&from)? })
    }
}

/// The reading of a [`ChangeSelection`].
pub(super) struct ChangeReader {
    selection: ChangeSelection,
    feed: ChangeFeed,
}

impl ChangeReader {
    pub fn read(mut self, sink: ChangeSink<'_>) -> Result<()> {
        let (mut left, mut told) = (self.selection.limit.unwrap_or(u64::MAX), now());
        loop {
            if left == 0 {
                return sink(Vec::new(), Some(self.feed.position()));
            }
            let next = match self.selection.follow {
                true => self.feed.next_within(POSITION_INTERVAL)?,
                false => self.feed.try_next()?,
            };
            let is_end = next.is_none();
            if let Some(transaction) = next
                && self.give(&transaction, sink)?
            {
                (left, told) = (left - 1, now());
            } else if is_end || told.elapsed() >= POSITION_INTERVAL {
                told = now();
                sink(Vec::new(), Some(self.feed.position()))?;
            }
            if is_end && !self.selection.follow {
                return Ok(());
            }
        }
    }

    /// Gives a transaction; returns whether it has changes of these tables.
    fn give(&self, transaction: &CommittedChanges, sink: ChangeSink<'_>) -> Result<bool> {
        let tables = &self.selection.tables;
        let (mut batch, mut batch_bytes, mut is_some) = (Vec::new(), 0, false);
        for change in transaction.changes() {
            let change = change?;
            if !tables.is_empty() && !tables.iter().any(|name| name == change.table()) {
                continue;
            }
            // One at least is left for the position.
            if batch_bytes >= BATCH_BYTES {
                sink(std::mem::take(&mut batch), None)?;
                batch_bytes = 0;
            }
            let (change, bytes) = fed(change, self.selection.largest_value)?;
            batch.push(change);
            (batch_bytes, is_some) = (batch_bytes + bytes, true);
        }
        if is_some {
            sink(batch, Some(transaction.position()))?;
        }
        Ok(is_some)
    }
}

/// A change with its value, if that is not too large, and the bytes of both.
fn fed(change: Change, largest_value: Option<u64>) -> Result<(FedChange, usize)> {
    let table = change.table().to_owned();
    Ok(match change {
        Change::Put { key, value, .. } => {
            let omitted_bytes = Some(value.len()).filter(|len| largest_value.is_some_and(|largest| *len > largest));
            let value = match omitted_bytes {
                Some(_) => None,
                None => value.read()?.map(|value| value.to_vec()),
            };
            let bytes = key.len() + value.as_ref().map_or(0, Vec::len);
            (FedChange::Put { table, key: key.to_vec(), value, omitted_bytes }, bytes)
        }
        Change::Delete { key, .. } => (FedChange::Delete { table, key: key.to_vec() }, key.len()),
        Change::DropTable { .. } => (FedChange::DropTable { table }, 0),
        Change::EndFeed { .. } => (FedChange::EndFeed { table }, 0),
    })
}

/// Starts the feed of a table, or ends it, at a moment when no transaction uses the table, which is waited for.
pub(super) fn when_unused<T>(db: &Db, name: &str, change: impl Fn(&Db, &Table) -> Result<T>) -> Result<T> {
    let (table, begun) = (db.open_table(name)?, now());
    loop {
        match change(db, &table) {
            Err(error) if error.kind() == ErrorKind::InUse && begun.elapsed() < UNUSED_TIMEOUT => {
                sleep(UNUSED_INTERVAL);
            }
            done => return done,
        }
    }
}

/// A field with a position, as text.
mod position {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use crate::FeedPosition;

    pub fn serialize<S: Serializer>(position: &FeedPosition, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(position)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<FeedPosition, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A field with a position that may be absent, as text.
pub(super) mod optional_position {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use crate::FeedPosition;

    pub fn serialize<S: Serializer>(position: &Option<FeedPosition>, serializer: S) -> Result<S::Ok, S::Error> {
        position.map(|position| position.to_string()).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<FeedPosition>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
