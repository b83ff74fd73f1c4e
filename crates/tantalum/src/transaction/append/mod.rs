//! Appends writes to the rows of trees as one change group, and so one record of the log: a commit, and what leads to and follows from
//! one that is too large for that.
//!
//! Leaves are found and room is made in them first. Then they are latched in ascending page order, each looked at again as
//! soon as it is latched: one that is no longer right must not be held while another is waited for. If anything has changed,
//! or something is lacking that must not be waited for under latches, everything is let go and found anew; after some tries in vain
//! while no other commit is under way ([`precedence`](super::precedence)).

mod overwritten;
mod planning;

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_rt::interleave;
use tantalum_store::{PageId, page::header, page::record};

pub(super) use self::overwritten::OldVersion;
use self::{
    overwritten::{Removal, moved_over, overwritten, staged_rows},
    planning::{Deferred, LeafPlan, Planned, Planning, Replaced, marks_of, references_at, value_parts},
};
use super::{
    Manager, ValueTree,
    precedence::Tries,
    staging::{StagingTree, TableStaging},
};
use crate::{
    buffer::{ChangeGroup, Pins, Reservation},
    db::Core,
    error::{Error, ErrorKind, GroupError, GroupResult, Lack, Result},
    table::Table,
    tree::{Chains, LeafWrite, Place, Tree},
};

/// Writes to one tree, in key order.
pub(super) struct Part<'a> {
    pub tree: PartTree,
    pub writes: Vec<LeafWrite<'a>>,
}

impl Part<'_> {
    /// The most pages that are pinned at a time: as if each write went to a leaf of its own, and so did the mark of the value that it
    /// replaces.
    fn pages_pinned(&self) -> usize {
        let marks = if self.tree.values().is_some() { self.writes.len() } else { 0 };
        self.writes.len() + marks
    }
}

/// What tree it is.
pub(super) enum PartTree {
    /// A table's; the keys are locked.
    Table {
        table: Table,
        /// The transaction has read rows of it, most likely those that it writes too.
        was_read: bool,
    },
    /// A table's, into which the applier moves rows.
    Target(Table),
    /// A staging table, from which rows go that are written to their table.
    Staging(Arc<StagingTree>),
    /// A change buffer, to which rows go whose keys are locked.
    Buffer(Arc<StagingTree>),
    /// One that no other task changes there.
    Own(Tree),
    /// The large values of a table.
    Values(Arc<ValueTree>),
}

impl PartTree {
    fn tree(&self) -> &Tree {
        match self {
            Self::Table { table, .. } | Self::Target(table) => table.tree(),
            Self::Staging(staged) | Self::Buffer(staged) => staged.tree(),
            Self::Own(tree) => tree,
            Self::Values(values) => values.tree(),
        }
    }

    /// The tree with the large values that its rows name, which are marked when they are replaced.
    fn values(&self) -> Option<Arc<ValueTree>> {
        match self {
            Self::Table { table, .. } | Self::Target(table) => table.values(),
            Self::Staging(_) | Self::Buffer(_) | Self::Own(_) | Self::Values(_) => None,
        }
    }

    /// The table's staging tables, if rows of those go with what is written here.
    fn staging(&self) -> Option<&TableStaging> {
        match self {
            Self::Table { table, .. } => Some(table.staging()).filter(|staging| staging.has_any()),
            _ => None,
        }
    }
}

/// What a group is.
pub(super) enum Purpose<'a> {
    /// A commit, with what its record says to readers of the change feed. Old versions of what it overwrites are kept.
    Commit(&'a [u8]),
    /// The commit of staged rows; the function is called when it is in the log's order, and no snapshot begins meanwhile.
    CommitOfStaged(&'a dyn Fn(Lsn), &'a [u8]),
    /// What no other transaction sees yet.
    Staging,
    /// What the applier's task changes beside that: no other task sees it.
    Applier,
    /// Staged rows of the transaction that committed at this position go to their table. The number is set to how many leaves of that
    /// are changed.
    Move { position: u64, read: &'a [ReadLeaf], leaves: &'a Cell<u64> },
}

/// A leaf of a staging table, as it was when rows were read from it.
pub(super) type ReadLeaf = (PageId, Lsn);

/// Leaves that a group leaves nearly empty: a key of each.
type Sparse = Vec<(Tree, Vec<u8>)>;

/// What became of one try.
enum Try {
    Done {
        end: Lsn,
        sparse: Sparse,
        replaced: Replaced,
        /// Tables whose change buffers are full, and these.
        full: Vec<(Table, Arc<StagingTree>)>,
    },
    Again,
    /// A table has no change buffer yet.
    NoBuffer(Table),
    /// The staged rows that are to be moved have changed.
    Stale,
    /// Others hold too many frames; as many are needed at most.
    NoFrames(usize),
    /// The old versions have no room in memory yet.
    NoVersionRoom,
}

impl Manager {
    /// Logs and applies the writes, atomically; no other task sees a part of them. Returns the end of their record, which
    /// is not durable yet; `None` if rows that were to be moved are not what they were any more.
    ///
    /// # Errors
    /// The database is then as before. [`TransactionTooLarge`](ErrorKind::TransactionTooLarge) also when the log does not give the space
    /// for the record and for images of its pages at once: the writes are then to be staged, or appended in several groups. A group of
    /// one or two rows is not refused for that, as it needs a few images, nor is a commit of staged rows.
    pub(super) fn append(&self, parts: &[Part<'_>], purpose: &Purpose<'_>) -> Result<Option<Lsn>> {
        let Core { pool, space, .. } = self.core();
        let reservation = Reservation::new(pool);
        let mut pins = pool.pins().begin();
        let mut tries = Tries::new(&self.precedence);
        let mut may_defer = self.buffers.are_in_use() && matches!(purpose, Purpose::Commit(_));
        loop {
            if tries.must_wait() {
                // The commit that goes first may need all that this one has.
                drop(pins);
                reservation.clear();
                tries.wait();
                pins = pool.pins().begin();
            }
            let freed = self.times_freed();
            let defers = may_defer && !tries.have_failed();
            match self.try_append(parts, purpose, &mut pins, &reservation, &tries, defers) {
                Ok(Try::Done { end, sparse, replaced, full }) => {
                    drop((pins, tries));
                    let dead = replaced.len() as u64;
                    if dead > 0 {
                        self.reaper.add(replaced, end.get());
                        self.wake_applier();
                    }
                    self.versions.spill(self.core());
                    rebalance(sparse);
                    full.iter().for_each(|(table, buffer)| self.seal_change_buffer(table, buffer));
                    if dead > 0 && matches!(purpose, Purpose::Commit(_)) {
                        reservation.clear();
                        self.wait_for_reaper(dead);
                    }
                    return Ok(Some(end));
                }
                Ok(Try::Again) => tries.failed(),
                Ok(Try::Stale) => return Ok(None),
                Ok(Try::NoBuffer(table)) => {
                    drop(pins);
                    reservation.clear();
                    may_defer = self.make_change_buffer(&table)?;
                    pins = pool.pins().begin();
                }
                Ok(Try::NoVersionRoom) => {
                    drop(pins);
                    reservation.clear();
                    self.core().check_open()?;
                    self.versions.spill(self.core());
                    self.versions.wait_for_room();
                    pins = pool.pins().begin();
                }
                Ok(Try::NoFrames(needed)) => {
                    drop(pins);
                    // The tasks that have the frames may wait for space in the log.
                    reservation.clear();
                    pins = pool.pins().wait_for(needed);
                }
                Err(GroupError::Lacks(lack @ (Lack::LogSpace(_) | Lack::LogSize(_)))) => {
                    drop(pins);
                    if let Lack::LogSpace(needed) = lack
                        && needed > pool.space_limit().bytes
                        && can_be_cut(parts, purpose)
                    {
                        return Err(pool.space_limit().refuse(needed));
                    }
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
                        self.make_room(error, purpose, freed)?;
                        pins = pool.pins().begin();
                    }
                }
                Err(GroupError::Failed(error)) => {
                    drop(pins);
                    reservation.clear();
                    self.make_room(error, purpose, freed)?;
                    pins = pool.pins().begin();
                }
            }
        }
    }

    fn try_append(
        &self,
        parts: &[Part<'_>],
        purpose: &Purpose<'_>,
        pins: &mut Pins<'_>,
        reservation: &Arc<Reservation>,
        tries: &Tries<'_>,
        defers: bool,
    ) -> GroupResult<Try> {
        pins.restart();
        // What is staged is moved together with the leaf that it is in: it must not need more then than there ever is.
        let spare = usize::from(matches!(purpose, Purpose::Staging));
        let needed = |removals: &[Removal<'_>]| {
            // The rows, and the marks of the values that they name.
            let removed: usize = removals.iter().map(|removal| 2 * removal.part.writes.len()).sum();
            spare + removed + parts.iter().map(Part::pages_pinned).sum::<usize>()
        };
        if !pins.try_add(spare)? {
            return Ok(Try::NoFrames(needed(&staged_rows(parts, &[])?)));
        }
        let (deferred, buffer_parts, removals, marks, value_parts);
        let mut planning = Planning::of(parts.iter().map(|part| part.writes.len()).sum());
        // A snapshot must find in the leaf, or among the old versions, what it sees.
        let defers = defers && !self.versions.gate().has_snapshots();
        let buffers = defers.then_some(&*self.buffers);
        for part in parts.iter().filter(|part| !matches!(part.tree, PartTree::Values(_))) {
            match planning.add(part, buffers, pins, reservation)? {
                Planned::Done => {}
                Planned::NoFrames => return Ok(Try::NoFrames(needed(&staged_rows(parts, &[])?))),
                Planned::Changed => return Ok(self.changed(purpose)),
                Planned::NoBuffer(table) => return Ok(Try::NoBuffer(table)),
            }
        }
        deferred = std::mem::take(&mut planning.deferred);
        buffer_parts = deferred.iter().map(Deferred::part).collect::<Vec<_>>();
        // None where a table has no staging tables, which allocates nothing.
        removals = staged_rows(parts, &deferred)?;
        let no_frames = || Ok(Try::NoFrames(needed(&removals)));
        for part in buffer_parts.iter().chain(removals.iter().map(|removal| &removal.part)) {
            match planning.add(part, None, pins, reservation)? {
                Planned::Done => {}
                Planned::NoFrames => return no_frames(),
                Planned::Changed | Planned::NoBuffer(_) => return Ok(self.changed(purpose)),
            }
        }
        // Only now is it known which values are replaced.
        let replaced = planning.replaced(&removals);
        marks = marks_of(&replaced)?;
        value_parts = self::value_parts(parts, &marks);
        for part in &value_parts {
            match planning.add(part, None, pins, reservation)? {
                Planned::Done => {}
                Planned::NoFrames => return no_frames(),
                Planned::Changed | Planned::NoBuffer(_) => return Ok(self.changed(purpose)),
            }
        }
        let Planning { mut plans, mut places, chains, .. } = planning;
        plans.sort_by_key(|plan| plan.page.id());
        // A merge between two preparations can make two leaves one.
        if plans.windows(2).any(|pair| pair[0].page.id() == pair[1].page.id()) {
            return Ok(Try::Again);
        }
        // Before anything is latched: an old version may have to be read. The keys are locked, or it is looked at under the latches
        // whether the rows are still staged, so it stays what it is. A commit that has failed before reads it in any case, so that it
        // does not fail again because a snapshot began meanwhile.
        let old = match purpose {
            Purpose::Commit(_) if !defers && (self.versions.gate().has_snapshots() || tries.have_failed()) => {
                Some(overwritten(parts, &removals)?)
            }
            Purpose::Move { position, .. } if self.versions.gate().has_snapshots_before(*position) => {
                Some(moved_over(parts, *position)?)
            }
            _ => None,
        };
        let reserved = match old.as_deref().map(|rows| self.versions.reserve(rows)) {
            Some(None) => return Ok(Try::NoVersionRoom),
            Some(reserved) => reserved,
            None => None,
        };
        interleave();
        let mut group = ChangeGroup::with(&self.core().pool, Some(reservation));
        group.reserve(plans.len());
        for plan in &plans {
            let guard = plan.page.write_further_leaf()?;
            let places = &mut places[plan.places.clone()];
            if !plan.tree.tree().accepts(&guard, plan.writes, plan.found_at, places)? {
                return Ok(Try::Again);
            }
            // A row that was staged for a key, and committed, may have been moved there.
            if references_at(places) != plan.replaced {
                return Ok(self.changed(purpose));
            }
            if let PartTree::Buffer(buffer) = plan.tree {
                // The applier, which reads what is sealed, has latched the leaf before or will do so after this group.
                if buffer.is_sealed() {
                    return Ok(Try::Again);
                }
                plan.writes.iter().for_each(|write| buffer.expect_key(write.key));
            }
            if matches!(plan.tree, PartTree::Staging(_)) {
                let is_as_read = match purpose {
                    Purpose::Move { read, .. } => read.contains(&(plan.page.id(), header::lsn(&guard))),
                    _ => places.iter().all(|place| place.is_there()),
                };
                if !is_as_read {
                    return Ok(self.changed(purpose));
                }
            }
            group.add(guard);
        }
        let done = self.append_plans(group, &plans, &places, &chains, old, purpose);
        drop(reserved);
        Ok(match done? {
            Try::Done { end, sparse, .. } => {
                let full = self.note_writes(parts, &deferred);
                Try::Done { end, sparse, replaced, full }
            }
            other => other,
        })
    }

    /// Counts the writes to tables with staging tables, and what has been deferred. Returns the tables whose change buffers are full, and
    /// these.
    fn note_writes(&self, parts: &[Part<'_>], deferred: &[Deferred<'_>]) -> Vec<(Table, Arc<StagingTree>)> {
        for part in parts {
            let Some(staging) = part.tree.staging() else { continue };
            let of_table = deferred.iter().filter(|deferred| deferred.table.id() == part.tree.tree().owner());
            let deferred = of_table.map(|deferred| deferred.len() as u64).sum();
            staging.gain().note_writes(part.writes.len() as u64, deferred);
        }
        let mut full = Vec::new();
        for deferred in deferred {
            self.counters.deferred_writes.fetch_add(deferred.len() as u64, Ordering::Relaxed);
            if self.buffers.note_put(&deferred.to, deferred.bytes(), deferred.leaves()) {
                full.push((deferred.table.clone(), Arc::clone(&deferred.to)));
            }
        }
        full
    }

    /// What a try comes to when staged rows have been moved or overwritten meanwhile.
    fn changed(&self, purpose: &Purpose<'_>) -> Try {
        if matches!(purpose, Purpose::Move { .. }) { Try::Stale } else { Try::Again }
    }

    /// Stages the writes of latched leaves, which stand in the group in the order of the plans, and appends the group.
    fn append_plans(
        &self,
        mut group: ChangeGroup,
        plans: &[LeafPlan<'_>],
        places: &[Place],
        chains: &Chains,
        mut old: Option<Vec<OldVersion<'_>>>,
        purpose: &Purpose<'_>,
    ) -> GroupResult<Try> {
        let mut sparse = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let places = &places[plan.places.clone()];
            let is_sparse = plan.tree.tree().stage(&mut group, index, plan.writes, places, chains)?;
            // A staging table is dropped when it is empty; merging its leaves until then would log all rows once more.
            if is_sparse && !matches!(plan.tree, PartTree::Staging(_) | PartTree::Buffer(_)) {
                sparse.push((plan.tree.tree().clone(), plan.writes[0].key.to_vec()));
            }
        }
        interleave();
        let gate = self.versions.gate();
        let (flags, number, feed) = match purpose {
            Purpose::Commit(_) if gate.has_snapshots() && old.is_none() => return Ok(Try::Again),
            Purpose::Commit(feed) | Purpose::CommitOfStaged(_, feed) => {
                (record::COMMIT, self.commit_count.fetch_add(1, Ordering::Relaxed) + 1, *feed)
            }
            Purpose::Staging | Purpose::Applier | Purpose::Move { .. } => (0, 0, &[][..]),
        };
        if let Purpose::Move { leaves, .. } = purpose {
            leaves.set(plans.iter().filter(|plan| matches!(plan.tree, PartTree::Target(_))).count() as u64);
        }
        let end = group.append_with(flags, number, feed, |end| {
            for OldVersion { table, key, value, until } in old.take().into_iter().flatten() {
                gate.keep(table, key, until.unwrap_or(end.get()), value);
            }
            if let Purpose::CommitOfStaged(committed, _) = purpose {
                committed(end);
            }
        })?;
        drop(gate);
        Ok(Try::Done { end, sparse, replaced: Vec::new(), full: Vec::new() })
    }

    /// What `f` returns, which is run again when the device is full and pages can be freed. No latch may be held.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn retry_when_full<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        self.retry_when_full_for(&Purpose::Staging, f)
    }

    /// As [`retry_when_full`](Self::retry_when_full), which may run in the applier's task.
    pub(super) fn retry_when_full_for<T>(&self, purpose: &Purpose<'_>, f: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            let freed = self.times_freed();
            match f() {
                Err(error) => self.make_room(error, purpose, freed)?,
                done => return done,
            }
        }
    }

    /// If the device is full, waits for the applier to free pages of staging tables or dead values, whose task must not wait for
    /// itself, or frees scratch pages, or dead values, at the cost of the snapshots that need them. Where there are none, or it is not,
    /// that is the error. `freed` was asked before.
    fn make_room(&self, error: Error, purpose: &Purpose<'_>, freed: u64) -> Result<()> {
        if error.kind() != ErrorKind::StoreFull {
            return Err(error);
        }
        let is_applier = matches!(purpose, Purpose::Move { .. } | Purpose::Applier);
        if !is_applier {
            self.flush_change_buffers();
        }
        let has_room = (!is_applier && self.wait_for_freed_pages(freed))
            || self.versions.give_up_scratch_pages(&error)
            || (!is_applier && self.give_up_seers(&error));
        if has_room { Ok(()) } else { Err(error) }
    }
}

/// Whether the caller can do with several groups, or stages the writes.
fn can_be_cut(parts: &[Part<'_>], purpose: &Purpose<'_>) -> bool {
    match purpose {
        Purpose::Commit(_) => true,
        Purpose::CommitOfStaged(..) => false,
        // With fewer there is one row, and the mark of its value.
        Purpose::Staging | Purpose::Applier | Purpose::Move { .. } => parts.iter().any(|part| part.writes.len() > 2),
    }
}

/// Merges leaves that a group has nearly emptied. The group stands, whatever comes of it.
fn rebalance(sparse: Sparse) {
    for (tree, key) in sparse {
        if let Err(error) = tree.rebalance(&key) {
            tantalum_rt::tracing::warn!(table = tree.owner().0, %error, "a leaf with few rows could not be merged");
        }
    }
}
