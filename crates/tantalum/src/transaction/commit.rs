//! The commit of a [`Transaction`]: its writes become part of the database in one change group, and so one record of the log.
//!
//! Leaves are found and room is made in them first. Then they are latched in ascending page order, each looked at again as
//! soon as it is latched: one that is no longer right must not be held while another is waited for. If anything has changed,
//! or something is lacking that must not be waited for under latches, everything is let go and found anew; after some tries in vain
//! while no other commit is under way ([`precedence`](super::precedence)).

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_rt::interleave;
use tantalum_store::{TableId, page::record};

use super::{Manager, Transaction, Value, precedence::Tries, write_set::WriteSet};
use crate::{
    buffer::{ChangeGroup, PinnedPage, Pins, Reservation},
    db::Core,
    error::{self, Error, ErrorKind, GroupError, GroupResult, Lack, Result},
    table::Table,
    tree::{Chains, LeafWrite, Place},
};

/// A commit that is durable; see [`Transaction::commit`].
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

/// A commit on its way to the devices; see [`Transaction::commit_async`].
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
#[derive(Debug)]
pub struct Ticket {
    ticket: tantalum_log::Ticket,
    position: Option<u64>,
    /// Keeps the directory locked until the outcome is known, should a panic end the database meanwhile.
    _manager: Arc<Manager>,
}

impl Ticket {
    /// Blocks until the commit is durable.
    ///
    /// # Errors
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the log failed.
    pub fn wait(self) -> Result<Commit> {
        self.ticket.wait().map_err(error::outcome_unknown)?;
        Ok(Commit { position: self.position })
    }

    /// As [`Commit::position`]; known before the commit is durable.
    pub fn position(&self) -> Option<u64> {
        self.position
    }

    /// What [`wait`](Self::wait) would return at once; `None` while the commit is on its way.
    pub fn is_done(&self) -> Option<Result<()>> {
        Some(self.ticket.is_done()?.map_err(error::outcome_unknown))
    }
}

/// A commit that is in the log's order, and perhaps not durable.
struct Appended {
    position: Option<u64>,
    /// The log must be durable up to here before the commit is acknowledged.
    lsn: Lsn,
}

impl Transaction {
    /// Commits. When it returns, everything that the transaction wrote, and everything that it read, survives a power cut.
    ///
    /// # Errors
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the log fails meanwhile, or the changes cannot be stored: after the
    /// next open the transaction is there whole or not at all. After any other error it is not.
    /// [`TransactionTooLarge`](ErrorKind::TransactionTooLarge) when the buffer pool has too few frames for the pages that it
    /// writes, or the log takes no such record.
    pub fn commit(mut self) -> Result<Commit> {
        let early = self.core().settings.early_lock_release();
        let Appended { position, lsn } = self.append_writes()?;
        if early {
            self.release_locks();
        }
        // What is still locked is released when the transaction is dropped, at the end. After a failure it is unknown what the
        // devices hold.
        self.core().pool.flush(lsn).map_err(error::outcome_unknown)?;
        Ok(Commit { position })
    }

    /// Commits without waiting for durability, which the ticket tells: many commits can be on their way from one thread.
    /// Without early lock release it waits all the same, since the locks must be held until then.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_async(mut self) -> Result<Ticket> {
        let Appended { position, lsn } = self.append_writes()?;
        if !self.core().settings.early_lock_release() {
            self.core().pool.flush(lsn).map_err(error::outcome_unknown)?;
        }
        self.release_locks();
        let ticket = self.core().pool.ticket(lsn).map_err(error::outcome_unknown)?;
        Ok(Ticket { ticket, position, _manager: Arc::clone(self.manager()) })
    }

    /// Logs and applies the writes. From here until the transaction is dropped, closing waits for it.
    fn append_writes(&mut self) -> Result<Appended> {
        self.check_running()?;
        self.core().operations.enter()?;
        self.is_committing = true;
        let appended = if self.writes.is_empty() {
            Appended { position: None, lsn: self.read_lsn }
        } else {
            let touched = &self.touched;
            let table_of = |id| touched.get(&id).expect("a written table was touched").table.table().clone();
            let end = self.manager().append_commit(&self.writes, table_of)?;
            Appended { position: Some(end.get()), lsn: end.max(self.read_lsn) }
        };
        self.is_over = true;
        self.manager().counters.commits.fetch_add(1, Ordering::Relaxed);
        Ok(appended)
    }
}

/// Writes that go to one leaf.
struct LeafPlan<'a> {
    table: &'a Table,
    page: PinnedPage,
    /// The page's LSN when the writes' places were found.
    found_at: Lsn,
    writes: &'a [LeafWrite<'a>],
    /// Which of all places are theirs.
    places: Range<usize>,
}

/// The versions that a commit overwrites.
type OldVersions<'a> = Vec<(TableId, &'a [u8], Option<Value>)>;

/// What became of one try.
enum Try<'a> {
    Done {
        end: Lsn,
        sparse: Vec<(&'a Table, &'a [u8])>,
    },
    Again,
    /// Others hold too many frames.
    NoFrames,
    /// The old versions have no room in memory yet.
    NoVersionRoom,
}

impl Manager {
    /// Logs and applies the writes, atomically; no other task sees a part of them. Returns the end of their record, which
    /// is not durable yet.
    ///
    /// # Errors
    /// The database is then as before.
    pub(super) fn append_commit(&self, writes: &WriteSet, table_of: impl Fn(TableId) -> Table) -> Result<Lsn> {
        let tables: Vec<(Table, Vec<LeafWrite<'_>>)> = writes
            .tables()
            .map(|(id, rows)| {
                let mut writes = Vec::with_capacity(rows.len());
                writes.extend(rows.iter().map(|(key, value)| LeafWrite { key, value: value.as_deref() }));
                (table_of(id), writes)
            })
            .collect();
        let Core { pool, space, .. } = self.core();
        let reservation = Reservation::new(pool);
        let mut pins = pool.pins().begin();
        let mut tries = Tries::new(&self.precedence);
        loop {
            if tries.must_wait() {
                // The commit that goes first may need all that this one has.
                drop(pins);
                reservation.clear();
                tries.wait();
                pins = pool.pins().begin();
            }
            match self.try_append(&tables, &mut pins, &reservation, &tries) {
                Ok(Try::Done { end, sparse }) => {
                    drop((pins, tries));
                    self.versions.spill(self.core());
                    self.rebalance(sparse);
                    return Ok(end);
                }
                Ok(Try::Again) => tries.failed(),
                Ok(Try::NoVersionRoom) => {
                    drop(pins);
                    reservation.clear();
                    self.core().check_open()?;
                    self.versions.spill(self.core());
                    self.versions.wait_for_room();
                    pins = pool.pins().begin();
                }
                Ok(Try::NoFrames) => {
                    drop(pins);
                    // The tasks that have the frames may wait for space in the log.
                    reservation.clear();
                    // As if each write went to a leaf of its own.
                    let pages = |(table, writes): &(Table, Vec<LeafWrite<'_>>)| {
                        writes.iter().map(|write| table.tree().pages_pinned(&[*write])).sum::<usize>()
                    };
                    pins = pool.pins().wait_for(tables.iter().map(pages).sum());
                }
                Err(GroupError::Lacks(lack @ (Lack::LogSpace(_) | Lack::LogSize(_)))) => {
                    drop(pins);
                    space.supply(&reservation, lack)?;
                    pins = pool.pins().begin();
                }
                // What was supplied is kept, but for a page or a latch that another task may have taken before the next try.
                Err(GroupError::Lacks(lack @ Lack::Frames(_))) => space.supply(&reservation, lack)?,
                Err(GroupError::Lacks(lack)) => {
                    tries.failed();
                    if let Err(error) = space.supply(&reservation, lack) {
                        drop(pins);
                        reservation.clear();
                        self.take_scratch_room(error)?;
                        pins = pool.pins().begin();
                    }
                }
                Err(GroupError::Failed(error)) => {
                    drop(pins);
                    reservation.clear();
                    self.take_scratch_room(error)?;
                    pins = pool.pins().begin();
                }
            }
        }
    }

    fn try_append<'a>(
        &self,
        tables: &'a [(Table, Vec<LeafWrite<'a>>)],
        pins: &mut Pins<'_>,
        reservation: &Arc<Reservation>,
        tries: &Tries<'_>,
    ) -> GroupResult<Try<'a>> {
        pins.restart();
        let (mut plans, mut places, mut chains) = (Vec::new(), Vec::new(), Chains::default());
        for (table, writes) in tables {
            let mut rest = &writes[..];
            while !rest.is_empty() {
                let first = places.len();
                let (page, found_at) = table.tree().prepare(rest, &mut places, reservation)?;
                let (writes, later) = rest.split_at(places.len() - first);
                if !pins.try_add(table.tree().pages_pinned(writes))? {
                    return Ok(Try::NoFrames);
                }
                table.tree().find_chains(&places[first..], &mut chains)?;
                plans.push(LeafPlan { table, page, found_at, writes, places: first..places.len() });
                rest = later;
            }
        }
        plans.sort_by_key(|plan| plan.page.id());
        // A merge between two preparations can make two leaves one.
        if plans.windows(2).any(|pair| pair[0].page.id() == pair[1].page.id()) {
            return Ok(Try::Again);
        }
        // Before anything is latched: an old version may have to be read. The keys are locked, so it stays what it is. A commit
        // that has failed before reads it in any case, so that it does not fail again because a snapshot began meanwhile.
        let keeps_versions = self.versions.gate().has_snapshots() || tries.have_failed();
        let old = keeps_versions.then(|| old_versions(tables)).transpose()?;
        let reserved = match old.as_deref().map(|rows| self.versions.reserve(rows)) {
            Some(None) => return Ok(Try::NoVersionRoom),
            Some(reserved) => reserved,
            None => None,
        };
        interleave();
        let mut group = ChangeGroup::with(&self.core().pool, Some(reservation));
        for plan in &plans {
            let guard = plan.page.write_further_leaf()?;
            let places = &mut places[plan.places.clone()];
            if !plan.table.tree().accepts(&guard, plan.writes, plan.found_at, places)? {
                return Ok(Try::Again);
            }
            group.add(guard);
        }
        let done = self.append_plans(group, &plans, &places, &chains, old);
        drop(reserved);
        done
    }

    /// Stages the writes of latched leaves, which stand in the group in the order of the plans, and appends the group.
    fn append_plans<'a>(
        &self,
        mut group: ChangeGroup,
        plans: &[LeafPlan<'a>],
        places: &[Place],
        chains: &Chains,
        mut old: Option<OldVersions<'a>>,
    ) -> GroupResult<Try<'a>> {
        let mut sparse = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let places = &places[plan.places.clone()];
            let is_sparse = plan.table.tree().stage(&mut group, index, plan.writes, places, chains)?;
            if is_sparse {
                sparse.push((plan.table, plan.writes[0].key));
            }
        }
        interleave();
        let gate = self.versions.gate();
        if gate.has_snapshots() && old.is_none() {
            return Ok(Try::Again);
        }
        let number = self.commit_count.fetch_add(1, Ordering::Relaxed) + 1;
        let end = group.append_with(record::COMMIT, number, |end| {
            for (table, key, value) in old.take().into_iter().flatten() {
                gate.keep(table, key, end.get(), value);
            }
        })?;
        drop(gate);
        Ok(Try::Done { end, sparse })
    }

    /// What `f` returns, which is run again when the device is full and scratch pages have room. No latch may be held.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn retry_with_scratch_room<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match f() {
                Err(error) => self.take_scratch_room(error)?,
                done => return done,
            }
        }
    }

    /// If the device is full, frees the scratch pages at the cost of the snapshots that need them. Where there are none, or it is
    /// not, that is the error.
    fn take_scratch_room(&self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::StoreFull {
            return Err(error);
        }
        if self.versions.give_up_scratch_pages(&error) { Ok(()) } else { Err(error) }
    }

    /// Merges leaves that the commit has nearly emptied. The commit stands, whatever comes of it.
    fn rebalance(&self, sparse: Vec<(&Table, &[u8])>) {
        for (table, key) in sparse {
            if let Err(error) = table.tree().rebalance(key) {
                tracing::warn!(table = table.name(), %error, "a leaf with few rows could not be merged");
            }
        }
    }
}

/// What the keys that are about to be written stand for, before.
fn old_versions<'a>(tables: &'a [(Table, Vec<LeafWrite<'a>>)]) -> Result<OldVersions<'a>> {
    let mut old = Vec::new();
    for (table, writes) in tables {
        for write in writes {
            let value = table.tree().read(write.key, |value, _| value.map(Value::from))?;
            old.push((table.id(), write.key, value));
        }
    }
    Ok(old)
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
