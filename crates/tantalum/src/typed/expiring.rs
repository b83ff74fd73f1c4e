//! [`ExpiringTable`]: rows with a time to live. A layer over two tables: the rows, each with its deadline before its value, and a queue
//! of deadlines.
//!
//! Invariant: for each row there is an entry of the queue with its key and deadline, as the transaction that writes the row adds it. An
//! entry whose row was replaced or deleted meanwhile stays until it is due; what removes rows compares deadlines.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use tantalum_rt::{Condvar, JoinHandle, Mutex, spawn, task_name, wall_clock};

use super::{AsKey, Key, KeyEnd, KeyRangeOf, Reader, RowValue, TypedRange, TypedTable};
use crate::{
    db::{Db, WeakDb},
    error::{ErrorKind, Result},
    transaction::Transaction,
};

/// So many due entries are removed by one transaction.
const REMOVED_AT_A_TIME: usize = 256;

/// Bytes of a deadline as a key.
const DEADLINE_BYTES: usize = 12;

/// A typed table whose rows have a time to live. Cheap to clone; made by [`Db::expiring_table`].
///
/// A row ends at its deadline, by the system's clock: no read shows it any more, at whatever moment its snapshot or transaction began, so
/// a row may also end within a transaction. It takes space until it is removed: by [`remove_expired`](Self::remove_expired), or
/// by a task in the background ([`remove_in_background`](Self::remove_in_background)).
///
/// Deadlines lie in a second table, whose name is this table's with `-deadlines` behind it. Write rows only through this type.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use std::time::Duration;
///
/// let sessions = db.expiring_table::<String, u64>("sessions")?;
/// sessions.remove_in_background(&db, Duration::from_secs(10));
/// db.transact(|tx| {
///     sessions.put(tx, "ada", &7, Duration::from_secs(3600))?;
///     sessions.put(tx, "grace", &8, Duration::ZERO)
/// })?;
/// assert_eq!(sessions.get(&db, "ada")?, Some(7));
/// assert_eq!(sessions.get(&db, "grace")?, None);
/// assert_eq!(sessions.remove_expired(&db)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ExpiringTable<K, V> {
    rows: TypedTable<K, WithDeadline<V>>,
    deadlines: TypedTable<(SystemTime, K), ()>,
}

/// A value behind the deadline of its row.
struct WithDeadline<V>(std::marker::PhantomData<V>);

impl<V: RowValue> RowValue for WithDeadline<V> {
    type Owned = (SystemTime, V::Owned);
    type Borrowed = [u8];
    type Bytes<'a> = &'a [u8];

    fn encode(bytes: &[u8]) -> Result<&[u8]> {
        Ok(bytes)
    }

    fn decode(bytes: &[u8]) -> Option<Self::Owned> {
        let (deadline, value) = bytes.split_at_checked(DEADLINE_BYTES)?;
        Some((SystemTime::of_bytes(deadline)?, V::decode(value)?))
    }
}

impl Db {
    /// The table of that name, whose rows have a time to live, created if there is none.
    ///
    /// # Errors
    /// As [`table`](Self::table).
    pub fn expiring_table<K: Key, V: RowValue>(&self, name: &str) -> Result<ExpiringTable<K, V>> {
        let deadlines = self.table(&format!("{name}-deadlines"))?.typed();
        Ok(ExpiringTable { rows: self.table(name)?.typed(), deadlines })
    }
}

impl<K: Key, V: RowValue> ExpiringTable<K, V> {
    /// Sets the value of a key, and how long it lives from now on.
    ///
    /// # Errors
    /// Those of [`Transaction::put`]; [`InvalidInput`](ErrorKind::InvalidInput) for a deadline beyond what the system's clock can tell.
    pub fn put(
        &self,
        tx: &mut Transaction,
        key: impl AsKey<K>,
        value: &V::Borrowed,
        lives_for: Duration,
    ) -> Result<()> {
        let deadline = wall_clock().checked_add(lives_for).ok_or_else(|| {
            let what = format!("table {:?}: a time to live of {lives_for:?} is too long", self.rows.table().name());
            crate::Error::new(ErrorKind::InvalidInput, what)
        })?;
        let mut bytes = Vec::with_capacity(64);
        deadline.encode(KeyEnd::OfBytes, &mut bytes);
        bytes.extend_from_slice(V::encode(value)?.as_ref());
        self.deadlines.put(tx, (deadline, &key), &())?;
        self.rows.put(tx, key, &bytes)
    }

    /// The value of a key, or `None` if it is not there or has ended.
    ///
    /// # Errors
    /// As [`TypedTable::get`].
    pub fn get(&self, from: &impl Reader, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let row = self.rows.get(from, key)?;
        Ok(row.and_then(|(deadline, value)| (deadline > wall_clock()).then_some(value)))
    }

    /// The rows of a range of keys that have not ended, in key order from either end.
    ///
    /// # Errors
    /// As [`TypedTable::range`].
    pub fn range(
        &self,
        from: &impl Reader,
        range: impl KeyRangeOf<K>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<(K, V::Owned)>>> {
        let rows = self.rows.range(from, range)?;
        Ok(rows.filter_map(|row| match row {
            Ok((key, (deadline, value))) => (deadline > wall_clock()).then_some(Ok((key, value))),
            Err(error) => Some(Err(error)),
        }))
    }

    /// Deletes a key. Returns whether it was there and had not ended.
    ///
    /// # Errors
    /// As [`TypedTable::delete`].
    pub fn delete(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<bool> {
        let row = self.rows.get_for_update(tx, &key)?;
        self.rows.delete(tx, key)?;
        Ok(row.is_some_and(|(deadline, _)| deadline > wall_clock()))
    }

    /// Removes the rows that have ended, in transactions of some hundred. Returns how many there were.
    ///
    /// # Errors
    /// Those of [`Db::transact`]. What is removed until then stays so.
    pub fn remove_expired(&self, db: &Db) -> Result<u64> {
        let mut removed = 0;
        loop {
            let (due, rows) = db.transact(|tx| self.remove_some(tx))?;
            removed += rows;
            if due < REMOVED_AT_A_TIME {
                return Ok(removed);
            }
        }
    }

    /// Removes some of what is due. Returns how many entries were, and how many rows had ended.
    fn remove_some(&self, tx: &mut Transaction) -> Result<(usize, u64)> {
        // Only what is due is read, and so locked: deadlines are ascending, and none lies between this moment and the next.
        let next = wall_clock() + Duration::from_nanos(1);
        let due = TypedRange::new(tx.range(self.deadlines.table(), ..next.to_bytes())?, self.deadlines.clone());
        let due = due.map(|entry| Ok(entry?.0)).take(REMOVED_AT_A_TIME).collect::<Result<Vec<_>>>()?;
        let mut rows = 0;
        for entry in &due {
            let (deadline, key) = entry;
            // A row that was written later has a deadline and an entry of its own.
            if self.rows.get_for_update(tx, key)?.is_some_and(|(of_row, _)| of_row == *deadline) {
                self.rows.delete(tx, key)?;
                rows += 1;
            }
            self.deadlines.delete(tx, entry)?;
        }
        Ok((due.len(), rows))
    }

    /// Has a task remove the rows that have ended, every so often, until the database is closed. Call it once after each open. A failure is
    /// reported as a warning, and tried again.
    pub fn remove_in_background(&self, db: &Db, every: Duration)
    where
        K: 'static,
        V: 'static,
    {
        db.keep(Remover::start(self.clone(), db.downgrade(), every));
    }
}

/// The task that removes rows, which the database ends when it closes.
struct Remover {
    end: Arc<End>,
    name: String,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct End {
    is_near: Mutex<bool>,
    changed: Condvar,
}

/// Tells the tasks apart.
static STARTED: AtomicU64 = AtomicU64::new(0);

impl Remover {
    fn start<K: Key + 'static, V: RowValue + 'static>(table: ExpiringTable<K, V>, db: WeakDb, every: Duration) -> Self {
        let name = format!("tantalum-expiry-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let end = Arc::new(End::default());
        let task = spawn(name.clone(), {
            let end = Arc::clone(&end);
            move || {
                while !end.comes_within(every) {
                    let Some(db) = db.upgrade() else { return };
                    if let Err(error) = table.remove_expired(&db)
                        && error.kind() != ErrorKind::Closed
                    {
                        let table = table.rows.table().name();
                        tantalum_rt::tracing::warn!(table, %error, "rows that have ended were not removed; this is tried again");
                    }
                }
            }
        });
        Self { end, name, task: Some(task) }
    }
}

impl End {
    /// Waits so long, or until the end.
    fn comes_within(&self, time: Duration) -> bool {
        let mut is_near = self.is_near.lock();
        if !*is_near {
            self.changed.wait_for(&mut is_near, time);
        }
        *is_near
    }
}

impl Drop for Remover {
    fn drop(&mut self) {
        *self.end.is_near.lock() = true;
        self.end.changed.notify_all();
        // The task may have let go of the last handle of the database: then it ends behind that.
        if task_name() != self.name
            && let Some(task) = self.task.take()
            && task.join().is_err()
        {
            tantalum_rt::tracing::error!(task = self.name, "the task that removes rows panicked");
        }
    }
}

impl<K, V> Clone for ExpiringTable<K, V> {
    fn clone(&self) -> Self {
        Self { rows: self.rows.clone(), deadlines: self.deadlines.clone() }
    }
}

impl<K, V> fmt::Debug for ExpiringTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpiringTable").field("rows", &self.rows).finish_non_exhaustive()
    }
}
