//! The commit of a transaction: its writes become part of the database in one change group, and so one record of the log. Where
//! they are too many for that, they are [staged](super::staging), and the group says that what is staged counts.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use tantalum_log::Lsn;
use tantalum_rt::now;
use tantalum_store::TableId;

use super::{
    Content, Manager, Touched, TransactionState,
    append::{Part, PartTree, Purpose},
    large_values::{CutValues, Writer},
    notifier::{Awaited, Notice},
};
use crate::{
    change_feed::section::Section,
    error::{self, ErrorKind, Result},
    tree::{LeafValue, LeafWrite},
};

/// A commit that is durable; see [`Transaction::commit`](crate::Transaction::commit).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// assert_eq!(db.begin()?.commit()?.position(), None, "nothing was written");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    position: Option<u64>,
}

impl Commit {
    /// The commit's place in the log: of two transactions that wrote, the one with the lower place comes first in the
    /// serial order. `None` for one that wrote nothing.
    pub fn position(&self) -> Option<u64> {
        self.position
    }
}

/// A commit on its way to the devices; see [`Transaction::commit_async`](crate::Transaction::commit_async).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let letters = db.table("letters")?;
/// let mut tickets = Vec::new();
/// for letter in ["a", "b", "c"] {
///     let mut tx = db.begin()?;
///     tx.put(&letters, letter, "")?;
///     tickets.push(tx.commit_async()?);
/// }
/// for ticket in tickets {
///     ticket.wait()?; // durable now
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A ticket is also a [`Future`]: a task of an executor awaits durability without a thread. One task of the database wakes all that
/// await, and calls all that is to be called [`on_durable`](Self::on_durable); it is started with the first.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// async fn rename(db: tantalum::Db, name: &str) -> tantalum::Result<()> {
///     let names = db.table("names")?;
///     let mut tx = db.begin()?;
///     tx.put(&names, "1", name)?;
///     tx.commit_async()?.await?; // durable now
///     Ok(())
/// }
/// # let mut renamed = std::pin::pin!(rename(db, "Ada"));
/// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
/// # while renamed.as_mut().poll(&mut context).is_pending() {
/// #     std::thread::yield_now();
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Ticket {
    outcome: TicketOutcome,
    /// Keeps the directory locked until the outcome is known, should a panic end the database meanwhile.
    manager: Arc<Manager>,
    /// The waker of the task that awaits it.
    awaited: Option<Awaited>,
}

/// What a ticket tells.
#[derive(Clone, Debug)]
struct TicketOutcome {
    ticket: tantalum_log::Ticket,
    position: Option<u64>,
}

impl TicketOutcome {
    fn wait(self) -> Result<Commit> {
        self.ticket.wait().map_err(error::outcome_unknown)?;
        Ok(Commit { position: self.position })
    }
}

/// Of the same commit: each can be waited for, by threads and tasks of their own.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let mut tx = db.begin()?;
/// tx.put(&db.table("letters")?, "a", "")?;
/// let ticket = tx.commit_async()?;
/// let position = ticket.clone().wait()?.position();
/// assert_eq!(position, ticket.wait()?.position());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl Clone for Ticket {
    fn clone(&self) -> Self {
        Self { outcome: self.outcome.clone(), manager: Arc::clone(&self.manager), awaited: None }
    }
}

impl Ticket {
    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the log failed.
    pub fn wait(self) -> Result<Commit> {
        self.outcome.clone().wait()
    }

    /// As [`Commit::position`]; known before the commit is durable.
    pub fn position(&self) -> Option<u64> {
        self.outcome.position
    }

    /// What [`wait`](Self::wait) would return at once; `None` while the commit is on its way. Never blocks on a device.
    pub fn try_wait(&self) -> Option<Result<Commit>> {
        let outcome = self.outcome.ticket.is_done()?.map_err(error::outcome_unknown);
        Some(outcome.map(|()| Commit { position: self.outcome.position }))
    }

    /// Calls `call` once with what [`wait`](Self::wait) returns, when that is known: at once, or from a task of the database that does so
    /// for all commits, so it should not take long; the task catches a panic of it. Calls come in the order of the commits in the log, but for those that are
    /// made at once.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let letters = db.table("letters")?;
    /// let (durable, commits) = std::sync::mpsc::channel();
    /// for letter in ["a", "b"] {
    ///     let (mut tx, durable) = (db.begin()?, durable.clone());
    ///     tx.put(&letters, letter, "")?;
    ///     tx.commit_async()?.on_durable(move |commit| durable.send((letter, commit.is_ok())).unwrap_or_default());
    /// }
    /// drop(durable);
    /// assert_eq!(commits.iter().count(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_durable(self, call: impl FnOnce(Result<Commit>) + Send + 'static) {
        let (outcome, manager) = (self.outcome.clone(), Arc::clone(&self.manager));
        drop(self);
        let ticket = outcome.ticket.clone();
        let notice = Notice::Call(Box::new(move || call(outcome.wait())));
        if let Err(notice) = manager.notifier.add(&manager.core, &ticket, notice) {
            notice.give();
        }
    }
}

/// Is ready when the commit is durable, or the log has failed.
impl Future for Ticket {
    type Output = Result<Commit>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = self.try_wait() {
            return Poll::Ready(outcome);
        }
        if self.awaited.as_ref().is_some_and(|awaited| awaited.set_waker(context.waker())) {
            return Poll::Pending;
        }
        let notice = Notice::Wake(context.waker().clone());
        match self.manager.notifier.add(&self.manager.core, &self.outcome.ticket, notice) {
            Ok(awaited) => {
                self.awaited = Some(awaited);
                Poll::Pending
            }
            // It is known, or the database closes, which makes it durable.
            Err(_) => Poll::Ready(self.outcome.clone().wait()),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(awaited) = &self.awaited {
            drop(awaited.take());
        }
    }
}

/// A commit that is in the log's order, and perhaps not durable.
struct Appended {
    position: Option<u64>,
    /// The log must be durable up to here before the commit is acknowledged.
    lsn: Lsn,
}

impl TransactionState {
    /// See [`Transaction::commit_then`](super::Transaction::commit_then).
    pub fn commit_then(mut self, visible: impl FnOnce()) -> Result<Commit> {
        span!("commit");
        let began = now();
        let early = self.core().settings.early_lock_release();
        let Appended { position, lsn } = self.append_writes()?;
        // After a failure it is unknown what the devices hold.
        let flush = |transaction: &Self| transaction.core().pool.flush(lsn).map_err(error::outcome_unknown);
        if !early {
            flush(&self)?;
        }
        self.release_locks();
        visible();
        if early {
            flush(&self)?;
        }
        if position.is_some() {
            self.manager().commit_times.note(began);
        }
        Ok(Commit { position })
    }

    /// See [`Transaction::commit_async`](super::Transaction::commit_async).
    pub fn commit_async(mut self) -> Result<Ticket> {
        span!("commit");
        let Appended { position, lsn } = self.append_writes()?;
        if !self.core().settings.early_lock_release() {
            self.core().pool.flush(lsn).map_err(error::outcome_unknown)?;
        }
        self.release_locks();
        let ticket = self.core().pool.ticket(lsn).map_err(error::outcome_unknown)?;
        let outcome = TicketOutcome { ticket, position };
        Ok(Ticket { outcome, manager: Arc::clone(self.manager()), awaited: None })
    }

    /// See [`Transaction::commit_delayed`](super::Transaction::commit_delayed).
    pub fn commit_delayed(mut self) -> Result<Commit> {
        span!("commit");
        let Appended { position, lsn } = self.append_writes()?;
        if !self.core().settings.early_lock_release() {
            self.core().pool.flush(lsn).map_err(error::outcome_unknown)?;
        }
        self.release_locks();
        Ok(Commit { position })
    }

    /// See [`Transaction::confirm_reads`](super::Transaction::confirm_reads).
    pub fn confirm_reads(&self) -> Result<()> {
        self.check_running()?;
        self.core().pool.flush(self.read_lsn)?;
        Ok(())
    }

    /// Logs and applies the writes. From here until the transaction is dropped, closing waits for it.
    fn append_writes(&mut self) -> Result<Appended> {
        self.check_running()?;
        self.core().operations.enter()?;
        self.is_committing = true;
        let appended = match self.append_commit()? {
            None => Appended { position: None, lsn: self.read_lsn },
            Some(end) => Appended { position: Some(end.get()), lsn: end.max(self.read_lsn) },
        };
        self.is_over = true;
        self.manager().counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(appended)
    }

    /// Logs and applies the writes, in one record if that is possible. `None` if there are none.
    fn append_commit(&mut self) -> Result<Option<Lsn>> {
        if self.staged.is_some() || !self.writes.fits(self.manager().write_limit()) {
            return self.commit_staged().map(Some);
        }
        if self.writes.is_empty() {
            return Ok(None);
        }
        let cuts = self.cut_values()?;
        let parts = self.parts(&cuts);
        let feed = self.feed_section(&parts);
        match self.manager().append(&parts, &Purpose::Commit(&feed)) {
            // Too many pages for the pool, or large values that take more of the record than was reckoned with. Their numbers are not
            // used again.
            Err(error) if error.kind() == ErrorKind::TransactionTooLarge => self.commit_staged().map(Some),
            appended => appended,
        }
    }

    /// Cuts the values into pieces that are too large for their leaves.
    fn cut_values(&self) -> Result<BTreeMap<TableId, CutValues<'_>>> {
        let mut cuts = BTreeMap::new();
        for (id, rows) in self.writes.tables() {
            let table = self.touched[id].table.table();
            let limit = table.tree().inline_limit();
            for (_, content) in rows.iter() {
                let Some(Content::Bytes(value)) = content else { continue };
                if value.len() <= limit {
                    continue;
                }
                let cut = match cuts.entry(id) {
                    Entry::Occupied(cut) => cut.into_mut(),
                    Entry::Vacant(none) => {
                        none.insert(CutValues::new(self.manager().values_of(table, Writer::Committing)?))
                    }
                };
                cut.add(self.manager(), value, self.core().pool.end().get())?;
            }
        }
        Ok(cuts)
    }

    /// What the record says to readers of the change feed; nothing if no table has one. The first parts are those of the tables.
    fn feed_section(&self, parts: &[Part<'_>]) -> Vec<u8> {
        let has_feed = |id: TableId| self.touched[id].table.table().has_change_feed();
        if self.changes_no_rows || !self.writes.tables().any(|(id, _)| has_feed(id)) {
            return Vec::new();
        }
        let whole_bytes = self.manager().feed_value_bytes();
        let room = self.writes.tables().filter(|(id, _)| has_feed(*id)).map(|(id, rows)| {
            let rows = rows.iter().map(|(key, content)| Section::row_bytes(key, content.as_ref()));
            Section::table_bytes(self.touched[id].table.table().name()) + rows.sum::<usize>()
        });
        let mut section = Section::whole(room.sum());
        for ((id, rows), part) in self.writes.tables().zip(parts).filter(|((id, _), _)| has_feed(*id)) {
            section.table(self.touched[id].table.table().name(), rows.iter().count() as u64);
            for ((key, content), write) in rows.iter().zip(&part.writes) {
                let large = match (content, write.value) {
                    (Some(content), Some(LeafValue::Reference(reference))) if content.len() > whole_bytes as u64 => {
                        Some(Content::Large(reference))
                    }
                    _ => None,
                };
                section.row(key, large.as_ref().or(content.as_ref()));
            }
        }
        let (rows, section) = (section.rows(), section.into_bytes());
        self.manager().note_fed(rows, section.len());
        section
    }

    fn parts<'p>(&'p self, cuts: &'p BTreeMap<TableId, CutValues<'p>>) -> Vec<Part<'p>> {
        let mut parts = Vec::with_capacity(self.touched.len() + cuts.len());
        for (id, rows) in self.writes.tables() {
            let Touched { table, has_read, .. } = &self.touched[id];
            let table = table.table().clone();
            let limit = table.tree().inline_limit();
            let mut references = cuts.get(&id).map(CutValues::references).into_iter().flatten();
            let mut leaf_value = |content: &'p Content| match content {
                Content::Bytes(value) if value.len() > limit => {
                    LeafValue::Reference(*references.next().expect("every large value was cut"))
                }
                content => content.as_leaf(),
            };
            let mut writes = Vec::with_capacity(rows.len());
            writes.extend(rows.iter().map(|(key, content)| {
                let value = content.as_ref().map(&mut leaf_value);
                LeafWrite { key, value }
            }));
            parts.push(Part { tree: PartTree::Table { table, was_read: *has_read }, writes });
        }
        parts.extend(cuts.values().map(CutValues::part));
        parts
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_rt::{Simulation, sleep, spawn};

    use super::super::versions::tests::database;
    use crate::StoreKind;

    /// As when the second leaf has become an inner page, and a descent through it waits for the first.
    #[test]
    fn a_commit_that_waits_for_a_leaf_lets_go_of_those_that_it_has() {
        Simulation::new(1)
            .run(|| {
                let db = database(StoreKind::InPlace);
                let mut tables = [db.table("one").unwrap(), db.table("two").unwrap()];
                tables.sort_by_key(|table| table.tree().root());
                let [first, second] = tables.each_ref().map(|table| db.pool().pin(table.tree().root()).unwrap());
                let held = second.read();
                let commit = spawn("commit", {
                    let (db, tables) = (db.clone(), tables.clone());
                    move || {
                        let mut tx = db.begin().unwrap();
                        tables.iter().for_each(|table| tx.put(table, "key", "value").unwrap());
                        tx.commit().unwrap();
                    }
                });
                sleep(Duration::from_millis(1));
                assert!(first.try_write().is_none(), "the commit holds it and waits for the second");
                drop(first.read());
                assert!(!commit.is_finished());
                drop(held);
                commit.join().unwrap();
                assert!(tables.iter().all(|table| db.get(table, "key").unwrap().is_some()));
                db.close().unwrap();
            })
            .expect_finished();
    }
}
