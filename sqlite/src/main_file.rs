//! A SQLite database as one connection sees it: what SQLite's pager takes for the database file. The order of the pager's calls, for each
//! way in which a transaction can end, is in decision 101.
//!
//! Invariants:
//! - between `SHARED` and the end of the lock, the connection reads one view; it changes only with the connection's own commit
//! - there are writes only while the write lock is held, and then the view is the last commit
//! - a commit is durable when `SQLITE_FCNTL_COMMIT_PHASETWO` returns, but with `synchronous=OFF`

use std::{ffi::c_int, sync::Arc};

use libsqlite3_sys as ffi;

use crate::{
    api::log,
    client::Epoch,
    database::Database,
    failure::{Failure, Result},
    fragments::{SIZE_KEY, key_of, parts, size_of},
    protocol::{Condition, Step},
    super_journal::{Member, Outcome, SuperJournal},
    view::{View, copy_part},
    write_lock::{ConnectionId, Place, Refusal, forget_refusal, note_refusal},
    writes::Writes,
};

/// The first page has at least so many bytes; no page begins before, and what SQLite reads of the header alone ends before.
const FIRST_PAGE_BYTES: u64 = 512;

/// A connection's open database.
pub(crate) struct MainFile {
    connection: ConnectionId,
    /// The lock that SQLite has: one of `SQLITE_LOCK_*`.
    lock: c_int,
    view: Option<View>,
    /// How many commits the view shows.
    seen: u64,
    /// SQLite has read from the view.
    has_read: bool,
    holds_write_lock: bool,
    place: Option<Place>,
    writes: Option<Writes>,
    super_journal: Option<Arc<SuperJournal>>,
    /// The write lock is kept between transactions, as under `locking_mode=EXCLUSIVE`.
    is_exclusive: bool,
    /// There was such a pragma.
    was_told_exclusive: bool,
    /// What SQLite was shown, and may have in its page cache, may not be durable yet.
    may_be_lost: bool,
    /// What was read may be lost, since the log has failed, and SQLite may have it in its page cache.
    is_unconfirmed: bool,
    /// Whether the transaction was synchronized, which it is not with `synchronous=OFF`. `None` before its end.
    is_synced: Option<bool>,
    database: Arc<Database>,
}

impl MainFile {
    pub fn new(database: Arc<Database>) -> Self {
        Self {
            connection: database.new_connection(),
            lock: ffi::SQLITE_LOCK_NONE,
            view: None,
            seen: 0,
            has_read: false,
            holds_write_lock: false,
            place: None,
            writes: None,
            super_journal: None,
            is_exclusive: false,
            was_told_exclusive: false,
            may_be_lost: false,
            is_unconfirmed: false,
            is_synced: None,
            database,
        }
    }

    /// How this process found the database.
    pub fn epoch(&self) -> Epoch {
        Epoch { opening: self.database.store.opening(), change_counter: self.database.counter_at_opening }
    }

    pub fn condition(&self) -> Condition {
        Condition { may_be_lost: self.may_be_lost, has_write_lock: self.holds_write_lock }
    }

    /// Takes a step, but for those that concern other connections.
    pub fn run(&mut self, step: Step<'_>) -> Result<()> {
        match step {
            Step::Lock(lock) => self.lock(lock),
            Step::Unlock(lock) => self.unlock(lock),
            Step::Write { offset, bytes } => self.write(offset, bytes),
            Step::SetSize(size) => self.set_size(size),
            Step::EndOfWrites => self.end_of_writes(None),
            Step::AwaitTurn(_) | Step::HandOver(_) => Err(Failure::io(
                "waiting for a turn and handing over are the server's, which has more than one connection",
            )),
            Step::Sync => {
                self.is_synced = Some(true);
                Ok(())
            }
            Step::Commit => self.commit(),
            Step::BeginBatch => self.begin_batch(),
            Step::RollBackBatch => {
                self.writes = None;
                Ok(())
            }
            Step::SetExclusive(is_exclusive) => self.set_exclusive(is_exclusive),
        }
    }

    /// Reads bytes, and returns how many of them the database has. Where a reader gets what was committed a moment ago, it waits until
    /// that is durable: all but the first page, which a writer reads before SQLite says that it will write.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.settle()?;
        let read =
            usize::try_from(self.size()?.saturating_sub(offset)).map_or(bytes.len(), |rest| rest.min(bytes.len()));
        let bytes = &mut bytes[..read];
        if self.view.is_none() {
            for part in parts(self.database.fragment_bytes, offset, read) {
                let fragment = self.database.store.db().get(&self.database.table, key_of(part.fragment))?;
                copy_part(&self.database, fragment.as_deref(), part.begin, &mut bytes[part.bytes])?;
            }
            return Ok(read);
        }
        if let Err(failure) = self.read_view(offset, bytes) {
            if !self.holds_write_lock {
                return Err(failure);
            }
            self.renew_view().map_err(|_| failure)?;
            self.read_view(offset, bytes)?;
        }
        // What a writer reads is confirmed by its commit. One that keeps its lock may have one behind it, which failed.
        let may_be_shown = !self.holds_write_lock || self.is_exclusive;
        if let Some(view) = &self.view
            && offset >= FIRST_PAGE_BYTES
            && may_be_shown
        {
            view.confirm()?;
            self.may_be_lost = false;
        }
        Ok(read)
    }

    /// Reads bytes below the size from what is written and the view.
    fn read_view(&mut self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.has_read = true;
        self.may_be_lost = true;
        match (&self.writes, &self.view) {
            (Some(writes), Some(view)) => writes.read(&self.database, view, offset, bytes),
            (None, Some(view)) => view.read(&self.database, offset, bytes),
            (_, None) => Err(Failure::io("SQLite reads from a database that it has not locked")),
        }
    }

    /// Size in bytes.
    pub fn size(&mut self) -> Result<u64> {
        self.settle()?;
        if self.view.is_none() {
            self.renew_view()?;
        }
        match (&self.writes, &self.view) {
            (Some(writes), _) => Ok(writes.size),
            (None, Some(view)) => Ok(view.size()),
            // What is read now may be later than what SQLite has in its page cache.
            (None, None) if self.lock > ffi::SQLITE_LOCK_NONE => Err(Failure::io(
                "the state behind the last commit, which counts, could not be read; begin a new transaction",
            )),
            (None, None) => size_of(self.database.store.db().get(&self.database.table, SIZE_KEY)?),
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.change(|database, view, writes| writes.write(database, view, offset, bytes))
    }

    fn set_size(&mut self, size: u64) -> Result<()> {
        self.change(|database, view, writes| writes.set_size(database, view, size))
    }

    /// Changes what is written. If that fails, all of it is forgotten: SQLite goes on with no transaction of which a write failed, but not
    /// in all cases undoes it, nor says by `xUnlock` that it is over (decision 114).
    fn change(&mut self, change: impl FnOnce(&Database, &View, &mut Writes) -> Result<()>) -> Result<()> {
        let changed = self.writes().and_then(|(database, view, writes)| change(database, view, writes));
        if changed.is_err() {
            self.writes = None;
            // If that fails too, so does the next call, which comes here again.
            let _ = self.renew_view();
        }
        changed
    }

    /// What is written, and what it is written over.
    fn writes(&mut self) -> Result<(&Database, &View, &mut Writes)> {
        self.settle()?;
        self.keep_write_lock()?;
        if self.view.is_none() {
            self.renew_view()?;
        }
        let database = &*self.database;
        let Some(view) = &self.view else {
            return Err(Failure::io("SQLite writes to a database that it has not locked"));
        };
        let writes = match &mut self.writes {
            Some(writes) => writes,
            none => none.insert(Writes::begin(database, view)?),
        };
        Ok((database, view, writes))
    }

    /// Has the write lock for a write. A commit gives it back before SQLite lets go of its own lock, and under `locking_mode=EXCLUSIVE`,
    /// of which the VFS hears only for the main database, SQLite does not: it then writes again with the lock that it believes it has. If
    /// others have committed meanwhile, its page cache is out of date for good, and it writes no more; what it would roll back with its
    /// journal is out of date too.
    fn keep_write_lock(&mut self) -> Result<()> {
        if self.holds_write_lock {
            return Ok(());
        }
        if self.lock < ffi::SQLITE_LOCK_RESERVED {
            return Err(Failure::io("SQLite writes to a database that it has not locked"));
        }
        self.acquire(Some(self.seen)).map_err(|_| {
            Failure::io(
                "another connection wrote to an attached database that this one uses with locking_mode=EXCLUSIVE; close this one, and \
                 open the database as main database, or set the mode for it by name",
            )
        })?;
        self.is_exclusive = true;
        Ok(())
    }

    fn acquire(&mut self, seen: Option<u64>) -> std::result::Result<(), Refusal> {
        self.database.write_lock.try_acquire(self.connection, seen, &mut self.place)?;
        self.holds_write_lock = true;
        Ok(())
    }

    fn release(&mut self) {
        if std::mem::take(&mut self.holds_write_lock) {
            self.database.write_lock.release(self.connection);
        }
    }

    /// The present state is what the connection reads from now on.
    fn begin_view(&mut self) -> Result<()> {
        self.view = None;
        self.has_read = false;
        // Before the view: what is committed in between makes the view seem older than it is, which costs a repetition.
        self.seen = self.database.write_lock.commits();
        self.view = Some(View::begin(&self.database)?);
        Ok(())
    }

    /// Begins the view anew, where it could not be begun after a commit or has failed, as one does that the engine could not keep for so
    /// long. While the connection has the write lock, the present state is the one that SQLite may have in its page cache.
    fn renew_view(&mut self) -> Result<()> {
        if self.holds_write_lock {
            self.view = Some(View::begin_anew(&self.database)?);
        }
        Ok(())
    }

    /// `xLock`. Never waits.
    fn lock(&mut self, lock: c_int) -> Result<()> {
        if lock <= self.lock {
            return Ok(());
        }
        if self.is_unconfirmed && lock == ffi::SQLITE_LOCK_SHARED {
            return Err(Failure::io(
                "the log failed before what this connection has read was durable; close all connections, and open the database again",
            ));
        }
        let refused = if lock == ffi::SQLITE_LOCK_SHARED {
            // Under locking_mode=EXCLUSIVE a connection never gives up what it reads, so no other may write from then on.
            let refused = if self.is_exclusive { self.acquire(None).err() } else { None };
            if refused.is_none() {
                self.begin_view().inspect_err(|_| self.release())?;
            }
            refused
        } else if self.holds_write_lock {
            None
        } else {
            self.acquire(Some(self.seen)).err()
        };
        let Some(refusal) = refused else {
            forget_refusal();
            self.lock = lock;
            return Ok(());
        };
        note_refusal(&self.database, self.connection, self.place);
        Err(Failure::code(match refusal {
            Refusal::Busy => ffi::SQLITE_BUSY,
            Refusal::Stale => ffi::SQLITE_BUSY_SNAPSHOT,
        }))
    }

    /// `xUnlock`. What was written and not committed is forgotten. What was read stays in SQLite's page cache, so it is confirmed now: by
    /// the end of a rollback, where SQLite heeds a failure, and else when it gives up the lock, where it does not.
    fn unlock(&mut self, lock: c_int) -> Result<()> {
        if lock >= self.lock {
            return Ok(());
        }
        let settled = self.settle();
        let confirms = self.has_read && (self.holds_write_lock || lock == ffi::SQLITE_LOCK_NONE);
        self.writes = None;
        self.is_synced = None;
        self.is_exclusive = self.was_told_exclusive;
        self.release();
        self.lock = lock;
        let confirmed = match &self.view {
            // A view that has failed, as one does that the engine could not keep for so long, confirms nothing.
            Some(view) if confirms => view.confirm().or_else(|_| View::confirm_anew(&self.database)),
            _ => Ok(()),
        };
        self.is_unconfirmed |= confirmed.is_err();
        if confirms && confirmed.is_ok() {
            self.may_be_lost = false;
        }
        if lock == ffi::SQLITE_LOCK_NONE {
            self.view = None;
        }
        confirmed.and(settled)
    }

    /// Whether a connection has the write lock.
    pub fn is_reserved(&self) -> bool {
        self.database.write_lock.is_held()
    }

    /// `SQLITE_FCNTL_SYNC`: the transaction is written, and commits next. One over several databases has a super-journal.
    pub fn end_of_writes(&mut self, super_journal: Option<&Arc<SuperJournal>>) -> Result<()> {
        self.settle()?;
        self.is_synced = Some(false);
        let Some(found) = super_journal else { return Ok(()) };
        self.prepare_commit()?;
        if let Some(writes) = self.writes.take() {
            let database = Arc::clone(&self.database);
            // SQLite has journals, and so a super-journal, only for databases that are not synchronous=OFF.
            found.enlist(Member { database, writes, is_durable: true })?;
            self.super_journal = Some(Arc::clone(found));
        }
        Ok(())
    }

    fn prepare_commit(&mut self) -> Result<()> {
        let prepared = match (&mut self.writes, &self.view) {
            (Some(writes), Some(view)) => writes.prepare_commit(&self.database, view),
            _ => Ok(()),
        };
        if prepared.is_err() {
            self.writes = None;
        }
        prepared
    }

    /// If the writes were handed over to a super-journal: the first call after its deletion sees what was committed, and any call before
    /// means that SQLite is rolling back.
    fn settle(&mut self) -> Result<()> {
        match self.super_journal.take().map(|handed_over| handed_over.end()) {
            Some(Outcome::Committed) => {
                self.may_be_lost = false;
                self.begin_view()
            }
            Some(Outcome::RolledBack) | None => Ok(()),
        }
    }

    /// `SQLITE_FCNTL_COMMIT_PHASETWO`: commits what was written, and waits until it is durable. The next writer need not wait for that.
    fn commit(&mut self) -> Result<()> {
        self.settle()?;
        let is_synced = self.is_synced.take();
        self.prepare_commit()?;
        let Some(writes) = self.writes.take() else { return Ok(()) };
        // What the commit overwrites is not kept for this view.
        self.view = None;
        let mut begun = None;
        let committed = if is_synced == Some(false) {
            writes.transaction.commit_async().map(drop)
        } else {
            writes.transaction.commit_then(|| begun = Some(self.give_way(true))).map(drop)
        };
        // Here for a commit that does not wait, and for one that failed before it was visible.
        let begun = begun.unwrap_or_else(|| self.give_way(committed.is_ok()));
        committed?;
        self.may_be_lost = is_synced == Some(false);
        if let Err(failure) = begun {
            // What is committed is not reported as failed. Reads are, until SQLite locks the database anew.
            log(&failure.context("after a commit, which counts"));
        }
        Ok(())
    }

    /// What follows a commit, or its failure: the connection sees the present state, and the next one may write.
    fn give_way(&mut self, has_committed: bool) -> Result<()> {
        if has_committed {
            self.database.write_lock.count_commit();
        }
        let begun = self.begin_view();
        if !self.is_exclusive {
            self.release();
        }
        begun
    }

    /// `SQLITE_FCNTL_BEGIN_ATOMIC_WRITE`, for what SQLite takes back if it fails.
    fn begin_batch(&mut self) -> Result<()> {
        self.settle()?;
        match self.writes {
            None => Ok(()),
            // SQLite then uses its journal.
            Some(_) => Err(Failure::io("a batch of writes follows other writes")),
        }
    }

    /// `PRAGMA locking_mode`. From within a transaction that only reads, it fails if others write or have written: SQLite would never give
    /// up what it has read.
    fn set_exclusive(&mut self, is_exclusive: bool) -> Result<()> {
        if is_exclusive && self.lock == ffi::SQLITE_LOCK_SHARED && !self.holds_write_lock {
            self.acquire(Some(self.seen)).map_err(|_| Failure::code(ffi::SQLITE_BUSY))?;
        }
        self.was_told_exclusive = is_exclusive;
        self.is_exclusive = is_exclusive;
        Ok(())
    }

    /// The lock that SQLite has.
    pub fn lock_state(&self) -> c_int {
        self.lock
    }
}

impl Drop for MainFile {
    fn drop(&mut self) {
        self.writes = None;
        if let Some(handed_over) = self.super_journal.take() {
            handed_over.end();
        }
        self.release();
    }
}
