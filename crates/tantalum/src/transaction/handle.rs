//! [`Transaction`]: what callers hold. Its state is in a cell, so that rows can be read while others are iterated over; a transaction is
//! used by one thread at a time.

use std::{cell::RefCell, fmt, io::Read, ops::RangeBounds, sync::Arc};

use super::{
    Commit, Savepoint, Ticket, TransactionState, Value, ValueReader,
    key_range::{Cut, Interval, KeyRange, Prefix},
    range::RangeIter,
    snapshot::get_many,
};
use crate::{
    db::Open,
    error::{Error, ErrorKind, Result},
    options::Isolation,
    table::Table,
};

/// So many keys of a range that is deleted are in memory at a time.
const DELETED_AT_A_TIME: usize = 1024;

/// A read-write transaction. Rolled back when dropped without [`commit`](Self::commit). While it runs it keeps the database open,
/// unless that is closed by [`Db::close`](crate::Db::close): everything then fails with [`Closed`](ErrorKind::Closed).
///
/// A transaction is used by one thread at a time, but may move between them. After [`Error::is_retryable`] errors it has
/// been aborted and holds no locks any more: drop it and run it again.
///
/// What it reads is confirmed by its commit: until then, a read may show a commit that a power cut takes back.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let accounts = db.table("accounts")?;
/// let mut tx = db.begin()?;
/// tx.insert(&accounts, "alice", "100")?;
/// let before = tx.savepoint();
/// tx.put(&accounts, "alice", "0")?;
/// tx.rollback_to(&before)?;
/// assert_eq!(tx.get(&accounts, "alice")?.as_deref(), Some(&b"100"[..]));
/// tx.commit()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    state: RefCell<TransactionState>,
}

impl Transaction {
    pub(crate) fn begin(open: &Arc<Open>, isolation: Isolation) -> Self {
        Self { state: RefCell::new(TransactionState::begin(open, isolation)) }
    }

    /// The value of a key, or `None`. Locks the key for reading.
    ///
    /// # Errors
    /// [`Deadlock`](ErrorKind::Deadlock) and [`LockTimeout`](ErrorKind::LockTimeout): the transaction is aborted; run it again.
    /// What a device reports.
    pub fn get(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.state.borrow_mut().get(table, key.as_ref())
    }

    /// The values of keys, in the order of the keys, with `None` for each that is not there. Locks the keys for reading.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_many<K: AsRef<[u8]>>(
        &self,
        table: &Table,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Value>>> {
        get_many(keys, |keys| self.prefetch(table, keys), |key| self.get(table, key))
    }

    /// Says that keys will be read or written soon: the pages that they are on are read from the device at the same time, as far as
    /// they are not in memory, where one call after the other would read them one by one; and what is in memory is brought closer to
    /// the processor. Locks nothing, reads no value, and changes nothing but the time of later calls. Useful for up to some hundred keys
    /// at a time. [`get_many`](Self::get_many) does this by itself.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let stock = db.table("stock")?;
    /// let ordered = [["bolts", "nuts"], ["nails", "wire"]].concat();
    /// let mut tx = db.begin()?;
    /// tx.prefetch(&stock, &ordered)?;
    /// for item in &ordered {
    ///     let left = tx.get_for_update(&stock, item)?.map_or(99, |value| value[0] - 1);
    ///     tx.put(&stock, item, [left])?;
    /// }
    /// tx.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As those of [`get`](Self::get) that say that the table cannot be used, or the transaction; a page that cannot be read is no
    /// error here.
    pub fn prefetch<K: AsRef<[u8]>>(&self, table: &Table, keys: &[K]) -> Result<()> {
        self.state.borrow_mut().prefetch(table, keys)
    }

    /// Whether a key is there. Reads no large value. Locks the key for reading.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn contains(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.state.borrow_mut().contains(table, key.as_ref())
    }

    /// As [`get`](Self::get), but locks the key for writing, so that writing it later cannot deadlock with another
    /// transaction that does the same.
    ///
    /// # Errors
    /// As [`get`](Self::get), and [`WriteConflict`](ErrorKind::WriteConflict) under snapshot isolation.
    pub fn get_for_update(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<Value>> {
        self.state.borrow_mut().get_for_update(table, key.as_ref())
    }

    /// A part of the value of a key, as far as the value has these bytes: only the pages with them are read. `None` if the key is not
    /// there. Locks the key for reading.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_range(
        &self,
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
    pub fn reader(&self, table: &Table, key: impl AsRef<[u8]>) -> Result<Option<ValueReader>> {
        self.state.borrow_mut().reader(table, key.as_ref())
    }

    /// The rows of a range of keys, in key order from either end. Locks what it has handed out, and the gaps between, a
    /// few rows ahead: no other transaction can insert there until this one ends. Meanwhile the transaction can read other rows:
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let (users, cities) = (db.table("users")?, db.table("cities")?);
    /// db.transact(|tx| {
    ///     tx.put(&users, "alice", "paris")?;
    ///     tx.put(&cities, "paris", "France")
    /// })?;
    /// let tx = db.begin()?;
    /// for user in tx.range(&users, ..)? {
    ///     let (user, city) = user?;
    ///     let country = tx.get(&cities, &city)?;
    ///     assert_eq!((&*user, country.as_deref()), (&b"alice"[..], Some(&b"France"[..])));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Of the iterator's items: as [`get`](Self::get).
    pub fn range(&self, table: &Table, range: impl KeyRange) -> Result<RangeIter<'_>> {
        self.state.borrow_mut().enter_to_read(table)?;
        Ok(RangeIter::of_transaction(&self.state, table, Interval::of(range)))
    }

    /// The rows whose keys begin with these bytes; otherwise as [`range`](Self::range).
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix(&self, table: &Table, prefix: impl AsRef<[u8]>) -> Result<RangeIter<'_>> {
        self.range(table, Prefix(prefix))
    }

    /// The row with the lowest key. Locks it, and the gap before it.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn first(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.range(table, ..)?.next().transpose()
    }

    /// The row with the highest key. Locks it, and the gap behind it.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn last(&self, table: &Table) -> Result<Option<(Value, Value)>> {
        self.range(table, ..)?.next_back().transpose()
    }

    /// Sets the value of a key, whether it is there or not. A value of more than 1 MiB is written at once, in pieces; see
    /// [`put_from`](Self::put_from).
    ///
    /// # Errors
    /// As [`get_for_update`](Self::get_for_update), and [`TooLarge`](ErrorKind::TooLarge) for the key or the value,
    /// [`TransactionTooLarge`](ErrorKind::TransactionTooLarge), [`ReadOnly`](ErrorKind::ReadOnly), after which the transaction
    /// can go on; what a device reports.
    pub fn put(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.state.get_mut().put(table, key.as_ref(), value.as_ref())
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
        self.state.get_mut().put_from(table, key.as_ref(), &mut source)
    }

    /// Sets the value of a key that is not there.
    ///
    /// # Errors
    /// [`AlreadyExists`](ErrorKind::AlreadyExists) when it is, after which the transaction can go on; otherwise as
    /// [`put`](Self::put).
    pub fn insert(&mut self, table: &Table, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.state.get_mut().insert(table, key.as_ref(), value.as_ref())
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<bool> {
        self.state.get_mut().delete(table, key.as_ref())
    }

    /// Deletes a key, whether it is there or not. Does not tell which, and so need not read the row: of a table that is larger than the
    /// buffer pool, it is to [`delete`](Self::delete) as [`put`](Self::put) is to reading a row and writing it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let sessions = db.table("sessions")?;
    /// db.put(&sessions, "17", "alice")?;
    /// let mut tx = db.begin()?;
    /// tx.blind_delete(&sessions, "17")?;
    /// tx.blind_delete(&sessions, "18")?;
    /// tx.commit()?;
    /// assert_eq!(db.get(&sessions, "17")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn blind_delete(&mut self, table: &Table, key: impl AsRef<[u8]>) -> Result<()> {
        self.state.get_mut().blind_delete(table, key.as_ref())
    }

    /// Deletes the rows of a range, which may be many: their keys are in memory some at a time, and a [`Prefix`] is a range too. Returns
    /// how many rows there were. Locks the range.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete_range(&mut self, table: &Table, range: impl KeyRange) -> Result<u64> {
        let mut rest = Interval::of(range);
        self.state.get_mut().claim_range(table, &rest)?;
        let mut deleted = 0;
        loop {
            let mut rows = RangeIter::of_transaction(&self.state, table, rest.clone());
            let keys = std::iter::from_fn(|| rows.next_unread()).map(|row| Ok(row?.0)).take(DELETED_AT_A_TIME);
            let keys = keys.collect::<Result<Vec<_>>>()?;
            let Some(last) = keys.last() else { return Ok(deleted) };
            rest.lower = Cut::after(last.clone());
            for key in keys {
                deleted += u64::from(self.state.get_mut().delete(table, &key)?);
            }
        }
    }

    /// Sets the value of a key to `new` if it is `expected`, and returns whether it was; `None` stands for a key that is not there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let leases = db.table("leases")?;
    /// let mut tx = db.begin()?;
    /// assert!(tx.compare_and_swap(&leases, "printer", None, Some(b"alice"))?);
    /// assert!(!tx.compare_and_swap(&leases, "printer", None, Some(b"bob"))?, "alice has it");
    /// assert!(tx.compare_and_swap(&leases, "printer", Some(b"alice"), None)?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn compare_and_swap(
        &mut self,
        table: &Table,
        key: impl AsRef<[u8]>,
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<bool> {
        let (key, state) = (key.as_ref(), self.state.get_mut());
        state.writable(table, key, &[])?;
        if state.get_for_update(table, key)?.as_deref() != expected {
            return Ok(false);
        }
        match new {
            Some(value) => state.put(table, key, value)?,
            None => drop(state.delete(table, key)?),
        }
        Ok(true)
    }

    /// Adds to the number that a key has as its value, and returns the sum. A key that is not there counts as 0. The value has eight
    /// bytes, the lowest first: `i64::from_le_bytes` reads it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let visits = db.table("visits")?;
    /// let mut tx = db.begin()?;
    /// assert_eq!(tx.increment(&visits, "alice", 1)?, 1);
    /// assert_eq!(tx.increment(&visits, "alice", -3)?, -2);
    /// assert_eq!(tx.get(&visits, "alice")?.unwrap(), (-2i64).to_le_bytes());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) if the value has another length, or the sum is out of range, after which the transaction
    /// can go on; otherwise as [`put`](Self::put).
    pub fn increment(&mut self, table: &Table, key: impl AsRef<[u8]>, by: i64) -> Result<i64> {
        let (key, state) = (key.as_ref(), self.state.get_mut());
        state.writable(table, key, &[])?;
        let refuse = |what: &str| {
            let place = format!("the value of the key \"{}\" in table {:?}", key.escape_ascii(), table.name());
            Error::new(ErrorKind::InvalidInput, format!("{place} {what}"))
        };
        let before = state.get_for_update(table, key)?.map(|value| <[u8; 8]>::try_from(&*value)).transpose();
        let before =
            before.map_err(|_| refuse("is no number of eight bytes; increment only what increment has written"))?;
        let before = before.map_or(0, i64::from_le_bytes);
        let after =
            before.checked_add(by).ok_or_else(|| refuse(&format!("is {before}, and {by} more is out of range")))?;
        state.put(table, key, &after.to_le_bytes())?;
        Ok(after)
    }

    /// Waits until everything that the transaction has read so far survives a power cut, about one write of the log if it was committed
    /// a moment ago. For what is to be acted on before the commit, which waits for the same.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let letters = db.table("letters")?;
    /// let mut writer = db.begin()?;
    /// writer.put(&letters, "a", "to send")?;
    /// let ticket = writer.commit_async()?; // others see it from here on
    ///
    /// let reader = db.begin()?;
    /// assert!(reader.contains(&letters, "a")?);
    /// reader.confirm_reads()?;
    /// assert!(ticket.try_wait().is_some(), "it is durable, so it may be sent");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the log has failed: what was read may be gone after the next open.
    pub fn confirm_reads(&self) -> Result<()> {
        self.state.borrow().confirm_reads()
    }

    /// A place to come back to with [`rollback_to`](Self::rollback_to).
    pub fn savepoint(&mut self) -> Savepoint {
        self.state.get_mut().savepoint()
    }

    /// Takes back every write since the savepoint; it can be rolled back to again, later ones no longer. Locks are kept.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) when it belongs to another transaction or was taken back itself.
    pub fn rollback_to(&mut self, savepoint: &Savepoint) -> Result<()> {
        self.state.get_mut().rollback_to(savepoint)
    }

    /// Forgets everything that the transaction wrote, and ends it. Dropping it does the same.
    pub fn rollback(self) {}

    /// Commits. When it returns, everything that the transaction wrote, and everything that it read, survives a power cut.
    ///
    /// # Errors
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the log fails meanwhile, or the changes cannot be stored: after the
    /// next open the transaction is there whole or not at all. After any other error it is not.
    /// [`StoreFull`](ErrorKind::StoreFull) when there is no room on the data device.
    pub fn commit(self) -> Result<Commit> {
        self.commit_then(|| ())
    }

    /// As [`commit`](Self::commit). Calls `visible` in between: when other transactions see this one and its locks are released,
    /// and before it waits for durability. There a program lets go of locks of its own, so that the transactions behind them wait for the
    /// devices together with this one. Without early lock release it is called when the commit is durable. After an error it may not
    /// have been called.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let orders = db.table("orders")?;
    /// let next = std::sync::Mutex::new(1u64);
    ///
    /// let mut number = next.lock().unwrap();
    /// let mut tx = db.begin()?;
    /// tx.put(&orders, number.to_be_bytes(), "a book")?;
    /// tx.commit_then(|| {
    ///     *number += 1;
    ///     drop(number); // the next order need not wait for the devices
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_then(self, visible: impl FnOnce()) -> Result<Commit> {
        self.state.into_inner().commit_then(visible)
    }

    /// Commits without waiting for durability, which the ticket tells: many commits can be on their way from one thread.
    /// Without early lock release it waits all the same, since the locks must be held until then.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_async(self) -> Result<Ticket> {
        self.state.into_inner().commit_async()
    }

    /// Commits without having the log written (delayed durability): for state that can be made anew from elsewhere. The commit is durable
    /// with the first one behind it that is waited for or has a [`Ticket`], with a checkpoint, with the first read of a later
    /// [snapshot](crate::Db::snapshot), when the log's buffer is full, or when the database is closed. A crash before takes it, and all that
    /// came behind it. Without early lock release it waits as [`commit`](Self::commit) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let words = db.table("words")?;
    /// for word in ["many", "words"] {
    ///     let mut tx = db.begin()?;
    ///     tx.put(&words, word, "")?;
    ///     tx.commit_delayed()?; // others see it
    /// }
    /// let mut tx = db.begin()?;
    /// tx.put(&words, "last", "")?;
    /// tx.commit()?; // all three are durable
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_delayed(self) -> Result<Commit> {
        self.state.into_inner().commit_delayed()
    }

    /// See [`TransactionState::write_large_anew`].
    pub(crate) fn write_large_anew(&mut self, table: &Table, key: &[u8]) -> Result<bool> {
        self.state.get_mut().write_large_anew(table, key)
    }

    /// Whether it was ended by an error after which it may succeed when it is run again.
    pub(crate) fn is_to_be_run_again(&self) -> bool {
        self.state.borrow().is_to_be_run_again
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.borrow();
        f.debug_struct("Transaction").field("id", &state.id.0).field("is_over", &state.is_over).finish_non_exhaustive()
    }
}
