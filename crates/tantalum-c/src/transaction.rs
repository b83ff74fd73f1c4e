//! Transactions and tickets.
//!
//! A cursor over a transaction borrows from it in a way that no compiler checks once C holds both. So a transaction knows its cursors:
//! while one is open, the transaction refuses to write, and when the transaction ends, its cursors end first
//! ([`tantalum_transaction::end_cursors`]).

use std::{
    cell::RefCell,
    ffi::{c_int, c_void},
    fmt,
    mem::MaybeUninit,
    rc::{Rc, Weak},
};

use tantalum::{Db, Error, Isolation, RangeIter, Ticket, Transaction, Value};

use crate::{
    bytes::{give, give_handle, tantalum_buffer, tantalum_slice},
    database::{tantalum_db, tantalum_table},
    status::{Stop, end, guarded, needed, tantalum_code},
};

/// The rows of a cursor over a transaction, until either of them ends.
pub(crate) type CursorRows = RefCell<Option<RangeIter<'static>>>;

/// How a transaction sees others: for tantalum_begin().
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tantalum_isolation {
    /// What the setting `isolation` says.
    TANTALUM_ISOLATION_DEFAULT = 0,
    /// As if transactions ran one after the other.
    TANTALUM_SERIALIZABLE = 1,
    /// Reads see the state at the beginning; of two transactions that write the same key, the second fails.
    TANTALUM_SNAPSHOT_ISOLATION = 2,
}

/// A transaction. Ended by tantalum_commit(), tantalum_commit_async() or tantalum_rollback(). Used by one thread at a time,
/// together with its cursors.
pub struct tantalum_transaction {
    held: Held,
    cursors: RefCell<Vec<Weak<CursorRows>>>,
}

/// Boxed, so that it stays in its place while cursors borrow from it.
enum Held {
    /// It belongs to C.
    Owned(Box<Transaction>),
    /// It belongs to `tantalum_transact`, on whose stack it is for longer than the handle.
    Lent(*mut Transaction),
}

/// A commit that is on its way to the log's devices. Ended by tantalum_ticket_wait() or tantalum_ticket_free(). Used by one
/// thread at a time.
#[derive(Debug)]
pub struct tantalum_ticket {
    ticket: Ticket,
}

impl tantalum_transaction {
    fn new(held: Held) -> Self {
        Self { held, cursors: RefCell::default() }
    }

    fn read(&self) -> &Transaction {
        match &self.held {
            Held::Owned(transaction) => transaction,
            // SAFETY: `tantalum_transact` lends it for the time of the callback, in which C uses the handle from one thread at a
            // time, and touches it only through the handle meanwhile.
            Held::Lent(transaction) => unsafe { &**transaction },
        }
    }

    fn write(&mut self) -> Result<&mut Transaction, Stop> {
        if self.cursors.get_mut().iter().any(|rows| rows.upgrade().is_some()) {
            return Err(Stop::Misuse("a cursor of this transaction is open: free it before the transaction writes"));
        }
        Ok(match &mut self.held {
            Held::Owned(transaction) => transaction,
            // SAFETY: as in `read`; no cursor borrows from it, as was checked.
            Held::Lent(transaction) => unsafe { &mut **transaction },
        })
    }

    /// The rows that `open` finds, for as long as the transaction lives.
    pub(crate) fn open_cursor(
        &self,
        open: impl FnOnce(&'static Transaction) -> tantalum::Result<RangeIter<'static>>,
    ) -> Result<Rc<CursorRows>, Stop> {
        // SAFETY: the reference is used by the rows alone. They are dropped before the transaction is (`end_cursors`), which is boxed
        // or on the stack of `tantalum_transact` and so does not move, and nothing borrows it mutably while there are any (`write`).
        let transaction: &'static Transaction = unsafe { &*std::ptr::from_ref(self.read()) };
        let rows = Rc::new(RefCell::new(Some(open(transaction)?)));
        let mut cursors = self.cursors.borrow_mut();
        cursors.retain(|rows| rows.strong_count() > 0);
        cursors.push(Rc::downgrade(&rows));
        Ok(rows)
    }

    /// Takes the rows from all cursors, which can then only be freed.
    fn end_cursors(&mut self) {
        for rows in self.cursors.get_mut().drain(..).filter_map(|rows| rows.upgrade()) {
            drop(rows.borrow_mut().take());
        }
    }

    /// Takes over the transaction, to end it.
    fn end(mut self: Box<Self>) -> Result<Transaction, Stop> {
        if matches!(self.held, Held::Lent(_)) {
            // It is not C's: the callback that was given it goes on, and so does its handle.
            let _stays = Box::into_raw(self);
            return Err(Stop::Misuse("the transaction is tantalum_transact's: return from the callback to end it"));
        }
        self.end_cursors();
        match self.held {
            Held::Owned(transaction) => Ok(*transaction),
            Held::Lent(_) => unreachable!("it was returned above"),
        }
    }
}

impl fmt::Debug for tantalum_transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("tantalum_transaction").field("transaction", self.read()).finish_non_exhaustive()
    }
}

/// Gives a copy of a value, or says that there is none.
pub(crate) fn give_value(found: Option<Value>, to: &mut MaybeUninit<tantalum_buffer>) -> Result<(), Stop> {
    let value = found.ok_or(Stop::With(tantalum_code::TANTALUM_NO_ROW))?;
    give(to, tantalum_buffer::of(&value));
    Ok(())
}

/// Begins a transaction. `isolation` is one of tantalum_isolation.
///
/// Returns TANTALUM_CLOSED; TANTALUM_READ_ONLY; TANTALUM_MISUSE, also for another isolation.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_begin(
    db: Option<&tantalum_db>,
    isolation: c_int,
    transaction: Option<&mut MaybeUninit<*mut tantalum_transaction>>,
) -> tantalum_code {
    guarded(|| {
        let (db, transaction) = (needed(db, "db is null")?, needed(transaction, "transaction is null")?);
        let begun = match isolation_of(isolation)? {
            None => db.db.begin()?,
            Some(isolation) => db.db.begin_with(isolation)?,
        };
        give_handle(transaction, tantalum_transaction::new(Held::Owned(Box::new(begun))));
        Ok(())
    })
}

fn isolation_of(isolation: c_int) -> Result<Option<Isolation>, Stop> {
    use tantalum_isolation::{TANTALUM_ISOLATION_DEFAULT, TANTALUM_SERIALIZABLE, TANTALUM_SNAPSHOT_ISOLATION};
    match isolation {
        _ if isolation == TANTALUM_ISOLATION_DEFAULT as c_int => Ok(None),
        _ if isolation == TANTALUM_SERIALIZABLE as c_int => Ok(Some(Isolation::Serializable)),
        _ if isolation == TANTALUM_SNAPSHOT_ISOLATION as c_int => Ok(Some(Isolation::SnapshotIsolation)),
        _ => Err(Stop::Misuse("isolation is none of tantalum_isolation")),
    }
}

/// The value of a key, in `value`, which the caller ends. Locks the key for reading.
///
/// Returns TANTALUM_NO_ROW if the key has no row; TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT: the transaction is aborted, roll it back
/// and run it again; TANTALUM_MISMATCH for a table of another database; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_get(
    transaction: Option<&tantalum_transaction>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
    value: Option<&mut MaybeUninit<tantalum_buffer>>,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        give_value(transaction.read().get(&table.table, key.bytes()?)?, needed(value, "value is null")?)
    })
}

/// As tantalum_get(), and locks the key for writing: for a row that is to be changed by what it says.
///
/// Returns what tantalum_get() returns; TANTALUM_WRITE_CONFLICT with snapshot isolation.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_get_for_update(
    transaction: Option<&tantalum_transaction>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
    value: Option<&mut MaybeUninit<tantalum_buffer>>,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        give_value(transaction.read().get_for_update(&table.table, key.bytes()?)?, needed(value, "value is null")?)
    })
}

/// Sets the value of a key, whether it has a row or not. Both are copied.
///
/// Returns TANTALUM_DEADLOCK, TANTALUM_LOCK_TIMEOUT, TANTALUM_WRITE_CONFLICT: the transaction is aborted, roll it back and run it
/// again; TANTALUM_TOO_LARGE; TANTALUM_MISMATCH; TANTALUM_CLOSED; TANTALUM_MISUSE, also while a cursor of the transaction is open; what
/// a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_put(
    transaction: Option<&mut tantalum_transaction>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
    value: tantalum_slice,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        Ok(transaction.write()?.put(&table.table, key.bytes()?, value.bytes()?)?)
    })
}

/// As tantalum_put(), for a key that has no row.
///
/// Returns TANTALUM_ALREADY_EXISTS if it has one: the transaction goes on; otherwise what tantalum_put() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_insert(
    transaction: Option<&mut tantalum_transaction>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
    value: tantalum_slice,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        Ok(transaction.write()?.insert(&table.table, key.bytes()?, value.bytes()?)?)
    })
}

/// Deletes the row of a key.
///
/// Returns TANTALUM_NO_ROW if it has none: the transaction goes on; otherwise what tantalum_put() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_delete(
    transaction: Option<&mut tantalum_transaction>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        match transaction.write()?.delete(&table.table, key.bytes()?)? {
            true => Ok(()),
            false => Err(Stop::With(tantalum_code::TANTALUM_NO_ROW)),
        }
    })
}

/// Commits a transaction, and ends its handle and the rows of its cursors, whatever is returned. When it returns TANTALUM_OK, what was
/// written and read survives a power cut.
///
/// Returns TANTALUM_OUTCOME_UNKNOWN when the log fails meanwhile: after the next open the transaction is there whole or not at all.
/// After any other error it is not there: TANTALUM_DEADLOCK and others if it was aborted before, TANTALUM_STORE_FULL, TANTALUM_CLOSED;
/// TANTALUM_MISUSE, also in a callback of tantalum_transact(), where the handle stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_commit(transaction: Option<Box<tantalum_transaction>>) -> tantalum_code {
    guarded(|| {
        needed(transaction, "transaction is null")?.end()?.commit()?;
        Ok(())
    })
}

/// As tantalum_commit(), but does not wait until the commit is durable, which `ticket` tells: many commits can be on their way from one
/// thread. If `ticket` is NULL, nothing tells.
///
/// Returns what tantalum_commit() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_commit_async(
    transaction: Option<Box<tantalum_transaction>>,
    ticket: Option<&mut MaybeUninit<*mut tantalum_ticket>>,
) -> tantalum_code {
    guarded(|| {
        let committed = needed(transaction, "transaction is null")?.end()?.commit_async()?;
        if let Some(ticket) = ticket {
            give_handle(ticket, tantalum_ticket { ticket: committed });
        }
        Ok(())
    })
}

/// Forgets what a transaction wrote, and ends its handle and the rows of its cursors. In a callback of tantalum_transact() it does
/// nothing.
///
/// Returns TANTALUM_MISUSE in a callback of tantalum_transact().
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_rollback(transaction: Option<Box<tantalum_transaction>>) -> tantalum_code {
    guarded(|| {
        if let Some(transaction) = transaction {
            transaction.end()?.rollback();
        }
        Ok(())
    })
}

/// Runs `run` in a transaction and commits it; runs it again, a bounded number of times and a little later each time, if it loses
/// against another transaction. `run` is given the transaction and `context`. It returns TANTALUM_OK to commit, anything else to roll
/// back, and should pass on what functions return. It must not end the transaction, and frees the cursors that it opens.
///
/// Returns what `run` returned last if it was not TANTALUM_OK and the transaction is not to be run again; the codes of tantalum_commit();
/// TANTALUM_MISUSE. `run` is called in the calling thread only.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_transact(
    db: Option<&tantalum_db>,
    run: Option<extern "C" fn(transaction: *mut tantalum_transaction, context: *mut c_void) -> c_int>,
    context: *mut c_void,
) -> c_int {
    let mut given_up = None;
    let code = guarded(|| {
        let (db, run) = (needed(db, "db is null")?, needed(run, "run is null")?);
        let done = transact(&db.db, |handle| {
            let code = run(handle, context);
            given_up = (code != tantalum_code::TANTALUM_OK as c_int).then_some(code);
            given_up.is_none()
        });
        match (done, given_up) {
            (Err(_), Some(_)) => Err(Stop::Callback),
            (done, _) => Ok(done?),
        }
    });
    match (code, given_up) {
        (tantalum_code::TANTALUM_APPLICATION, Some(code)) => code,
        (code, _) => code as c_int,
    }
}

/// Lends each try's transaction to `run`, which says whether it is to be committed.
fn transact(db: &Db, mut run: impl FnMut(*mut tantalum_transaction) -> bool) -> tantalum::Result<()> {
    db.transact(|transaction| {
        let lent = Box::into_raw(Box::new(tantalum_transaction::new(Held::Lent(transaction))));
        let commits = run(lent);
        // SAFETY: it was made of a box above, and `end` does not end it.
        unsafe { Box::from_raw(lent) }.end_cursors();
        if commits { Ok(()) } else { Err(Error::application(std::io::Error::other("the callback gave up"))) }
    })
}

/// Waits until a commit is durable, and ends its ticket, whatever is returned.
///
/// Returns TANTALUM_OUTCOME_UNKNOWN when the log failed; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_ticket_wait(ticket: Option<Box<tantalum_ticket>>) -> tantalum_code {
    guarded(|| {
        needed(ticket, "ticket is null")?.ticket.wait()?;
        Ok(())
    })
}

/// Whether a commit is durable: TANTALUM_OK if it is, TANTALUM_PENDING while it is on its way. Never waits. The ticket stays.
///
/// Returns TANTALUM_OUTCOME_UNKNOWN when the log failed; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_ticket_poll(ticket: Option<&tantalum_ticket>) -> tantalum_code {
    guarded(|| match needed(ticket, "ticket is null")?.ticket.try_wait() {
        None => Err(Stop::With(tantalum_code::TANTALUM_PENDING)),
        Some(outcome) => Ok(outcome.map(drop)?),
    })
}

/// Ends a ticket without waiting; the commit goes on. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_ticket_free(ticket: Option<Box<tantalum_ticket>>) {
    end(ticket);
}
