//! Making a transaction's writes part of the database: one change group, and so one record of the log.
//!
//! Leaves are found and room is made in them first. Then they are latched in ascending page order, each looked at again as
//! soon as it is latched: one that is no longer right must not be held while another is waited for. If anything has changed,
//! everything is let go and found anew.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_rt::interleave;

use super::{Manager, Value, write_set::WriteSet};
use crate::{
    buffer::{ChangeGroup, PinnedPage, Pins},
    error::{Error, Result},
    limits::GroupLimit,
    page::{TableId, record},
    table::Table,
    tree::{LeafWrite, Place, Staged},
};

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
    /// Logs and applies the writes, atomically; nobody else sees a part of them. Returns the end of their record, which is
    /// not durable yet.
    ///
    /// # Errors
    /// The database is then as before.
    pub(super) fn publish(&self, writes: &WriteSet, table_of: impl Fn(TableId) -> Table) -> Result<Lsn> {
        let tables: Vec<(Table, Vec<LeafWrite<'_>>)> = writes
            .tables()
            .map(|(id, rows)| {
                let mut writes = Vec::with_capacity(rows.len());
                writes.extend(rows.iter().map(|(key, value)| LeafWrite { key, value: value.as_deref() }));
                (table_of(id), writes)
            })
            .collect();
        let pool = &self.core().pool;
        let mut pins = pool.pins().begin();
        loop {
            match self.try_publish(&tables, &mut pins) {
                Ok(Try::Done { end, sparse }) => {
                    self.spill_versions();
                    self.rebalance(sparse);
                    return Ok(end);
                }
                Ok(Try::NoVersionRoom) => {
                    drop(pins);
                    self.core().check_open()?;
                    self.spill_versions();
                    self.versions.wait_for_room();
                    pins = pool.pins().begin();
                }
                Err(error @ Error::DiskFull { .. }) => {
                    drop(pins);
                    self.take_scratch_room(error)?;
                    pins = pool.pins().begin();
                }
                Ok(Try::Again) => tantalum_rt::yield_now(),
                Ok(Try::NoFrames) => {
                    drop(pins);
                    // As if each write went to a leaf of its own.
                    let pages = |(table, writes): &(Table, Vec<LeafWrite<'_>>)| {
                        writes.iter().map(|write| table.tree().pages_pinned(&[*write])).sum::<usize>()
                    };
                    pins = pool.pins().wait_for(tables.iter().map(pages).sum());
                }
                Err(Error::LogFull { needed }) => {
                    drop(pins);
                    pool.wait_for_log_space(needed)?;
                    pins = pool.pins().begin();
                }
                // Large values need more than was reckoned with while they were written.
                Err(Error::Log(tantalum_log::Error::RecordTooLarge { bytes, limit })) => {
                    let bound = GroupLimit { bytes: limit as usize, ..pool.group_limit() };
                    return Err(bound.refuse(bytes as usize));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn try_publish<'a>(&self, tables: &'a [(Table, Vec<LeafWrite<'a>>)], pins: &mut Pins<'_>) -> Result<Try<'a>> {
        pins.restart();
        let (mut plans, mut places) = (Vec::new(), Vec::new());
        for (table, writes) in tables {
            let mut rest = &writes[..];
            while !rest.is_empty() {
                let first = places.len();
                let (page, found_at) = table.tree().prepare(rest, &mut places)?;
                let (writes, later) = rest.split_at(places.len() - first);
                if !pins.try_add(table.tree().pages_pinned(writes))? {
                    return Ok(Try::NoFrames);
                }
                plans.push(LeafPlan { table, page, found_at, writes, places: first..places.len() });
                rest = later;
            }
        }
        plans.sort_by_key(|plan| plan.page.id());
        // A merge between two preparations can make two leaves one.
        if plans.windows(2).any(|pair| pair[0].page.id() == pair[1].page.id()) {
            return Ok(Try::Again);
        }
        interleave();
        let mut group = ChangeGroup::new(&self.core().pool);
        for plan in &plans {
            let guard = plan.page.write();
            let places = &mut places[plan.places.clone()];
            if !plan.table.tree().accepts(&guard, plan.writes, plan.found_at, places)? {
                return Ok(Try::Again);
            }
            group.add(guard);
        }
        self.append_plans(group, &plans, &places)
    }

    /// Stages the writes of latched leaves, which stand in the group in the order of the plans, and appends the group.
    fn append_plans<'a>(&self, mut group: ChangeGroup, plans: &[LeafPlan<'a>], places: &[Place]) -> Result<Try<'a>> {
        // Before staging, which latches overflow pages that an old version may be in.
        let mut old = if self.versions.gate().has_snapshots() { Some(old_versions(&group, plans)?) } else { None };
        let reserved = match old.as_deref().map(|rows| self.versions.reserve(rows)) {
            Some(None) => return Ok(Try::NoVersionRoom),
            Some(reserved) => reserved,
            None => None,
        };
        let mut sparse = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            match plan.table.tree().stage(&mut group, index, plan.writes, &places[plan.places.clone()])? {
                Staged::Done { is_sparse: true } => sparse.push((plan.table, plan.writes[0].key)),
                Staged::Done { is_sparse: false } => {}
                Staged::Busy => return Ok(Try::Again),
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
        drop(reserved);
        Ok(Try::Done { end, sparse })
    }

    /// What `f` returns, which is run again when the device is full and scratch pages have room. No latch may be held.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn retry_with_scratch_room<T>(&self, f: impl Fn() -> Result<T>) -> Result<T> {
        loop {
            match f() {
                Err(error @ Error::DiskFull { .. }) => self.take_scratch_room(error)?,
                done => return done,
            }
        }
    }

    /// Frees the scratch pages at the cost of the snapshots that need them, since the device is full; if there are none, that is
    /// the error.
    fn take_scratch_room(&self, full: Error) -> Result<()> {
        let full = Arc::new(full);
        if self.versions.give_up_scratch_pages(&full) { Ok(()) } else { Err(Arc::unwrap_or_clone(full)) }
    }

    /// Has old versions written to scratch pages that exceed their memory.
    fn spill_versions(&self) {
        if let Some(stop) = self.versions.spill() {
            self.core().keep(stop);
        }
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

/// What the latched leaves hold for the keys that are about to be written.
fn old_versions<'a>(group: &ChangeGroup, plans: &[LeafPlan<'a>]) -> Result<OldVersions<'a>> {
    let mut old = Vec::new();
    for (index, plan) in plans.iter().enumerate() {
        for write in plan.writes {
            let value = plan.table.tree().old_value(group.page(index), write.key)?;
            old.push((plan.table.id(), write.key, value.map(Value::from)));
        }
    }
    Ok(old)
}
