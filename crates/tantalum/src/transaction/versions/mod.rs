//! Old versions of rows, kept for as long as a snapshot sees them: in memory, and beyond `version_bytes` on scratch pages.
//!
//! A commit's number is the end of its log record, so numbers order commits as the log does. A snapshot's number is the end of
//! the log when it began; it reads a row from its leaf unless a later commit has overwritten it, and then from here. A commit
//! leaves the old version here before it changes the leaf, and a snapshot looks here after it has looked at the leaf: what was
//! overwritten in between it finds in both, and the same.
//!
//! A version is kept if a snapshot began between the commit that wrote it and the one that overwrites it, as far as the first is
//! known: then the chain of a key that is overwritten again and again is no longer than there are snapshots.
//!
//! Half of `version_bytes` is for the table that commits add to. When it is full it is frozen, and the [`spiller`](spill) writes
//! what is still seen of it as a sorted [run](run). A commit whose old versions have no room waits before it appends its record,
//! without a latch. Where there is no room for runs, the oldest snapshot is given up: its reads fail, and no commit does.
//!
//! Invariants:
//! - for each key, versions are in the order of the commits that overwrote them: first those in runs, from the oldest run on,
//!   then the frozen table's, then the other's; and none is missing that a snapshot sees which was not given up
//! - no snapshot begins between a commit's question whether there are any and its append; so a commit that does not keep
//!   versions is in the past of every later snapshot, and what a snapshot sees is before its number in the log
//! - a snapshot is noted as given up before its versions go, and asks for that after it has looked for a version
//!
//! Locks, in this order: the snapshots, the versions. Neither is held while a device works.

mod memory;
mod run;
mod spill;
#[cfg(test)]
pub(in crate::transaction) mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tantalum_rt::{Condvar, Held, Mutex, RwLock, RwLockReadGuard, hold};
use tantalum_store::TableId;

use self::{
    memory::{Version, VersionTable, bytes_of},
    run::Run,
    spill::Spiller,
};
use super::{Content, Value, append::OldVersion, key_range::Interval};
use crate::{
    buffer::SNAPSHOT_GATE,
    db::Core,
    error::{Error, ErrorKind, Result},
    space::Space,
};

/// The snapshots that are alive, and the versions that they see.
#[derive(Debug)]
pub(crate) struct Versions {
    space: Space,
    /// `version_bytes`.
    limit_bytes: usize,
    /// Those that were not given up. Commits hold it for reading while they append.
    snapshots: RwLock<Snapshots>,
    /// Those that were, and why.
    given_up: Mutex<BTreeMap<SnapshotId, Error>>,
    /// Whether there are any: what each read of a snapshot asks.
    are_given_up: AtomicBool,
    /// Whether `kept` has any. Each read of a snapshot asks, and while no transaction writes, all of them only read this. A reader
    /// that has looked at a leaf knows of all that was kept before the leaf was changed.
    are_any: AtomicBool,
    /// Reads look here side by side.
    kept: RwLock<Kept>,
    /// A table was frozen, and the spiller does not know it yet.
    has_work: AtomicBool,
    /// Signalled, under its lock, when a frozen table is gone, and when there is one.
    changed: (Mutex<()>, Condvar),
    spiller: Mutex<Option<Spiller>>,
    next_run: AtomicU64,
    given_up_ever: AtomicU64,
    /// How many snapshots have ended, or been given up.
    ended: AtomicU64,
}

/// A snapshot: the end of the log when it began, and what tells it from others of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SnapshotId {
    pub number: u64,
    serial: u64,
}

#[derive(Debug, Default)]
struct Snapshots {
    alive: BTreeSet<SnapshotId>,
    begun: u64,
}

impl Snapshots {
    fn oldest(&self) -> Option<u64> {
        self.alive.first().map(|snapshot| snapshot.number)
    }

    /// Whether one sees a version that was written by the commit `since` and overwritten by `until`.
    fn see(&self, since: u64, until: u64) -> bool {
        self.seer(since, until).is_some()
    }

    fn seer(&self, since: u64, until: u64) -> Option<SnapshotId> {
        let at = |number| SnapshotId { number, serial: 0 };
        self.alive.range(at(since)..at(until.max(since))).next().copied()
    }
}

#[derive(Debug, Default)]
struct Kept {
    /// What commits add to.
    growing: VersionTable,
    /// What commits that have not appended yet may add, in bytes.
    reserved_bytes: usize,
    /// What the spiller writes to a run.
    frozen: Option<Arc<VersionTable>>,
    /// Oldest first.
    runs: Vec<Arc<Run>>,
}

/// Keeps snapshots from beginning.
pub(super) struct Gate<'a> {
    versions: &'a Versions,
    snapshots: RwLockReadGuard<'a, Snapshots>,
    _held: Held,
}

/// Room in memory for what a commit overwrites.
pub(super) struct Reserved<'a> {
    versions: &'a Versions,
    bytes: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.versions.kept.write().reserved_bytes -= self.bytes;
        }
    }
}

impl Gate<'_> {
    /// Whether a snapshot is alive, so that the versions which a commit overwrites may have to be kept.
    pub fn has_snapshots(&self) -> bool {
        !self.snapshots.alive.is_empty()
    }

    /// Whether a snapshot is alive that began before commit `number`.
    pub fn has_snapshots_before(&self, number: u64) -> bool {
        self.snapshots.oldest().is_some_and(|oldest| oldest < number)
    }

    /// Keeps what commit `number` overwrites, if a snapshot sees it. Called under the latch of the key's leaf, before it changes.
    pub fn keep(&self, table: TableId, key: &[u8], number: u64, value: Option<Content>) {
        let Some(newest) = self.snapshots.alive.last().filter(|_| self.has_snapshots_before(number)) else { return };
        let mut kept = self.versions.kept.write();
        let last = kept.growing.last_overwrite(table, key);
        let last = last.or_else(|| kept.frozen.as_ref()?.last_overwrite(table, key));
        if last.is_some_and(|last| last > newest.number) {
            return;
        }
        let version = Version { overwritten_by: number, value };
        kept.growing.push(table, key, version, |since, until| self.snapshots.see(since, until));
        self.versions.are_any.store(true, Ordering::Release);
    }
}

impl Versions {
    pub fn new(space: &Space, limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            space: space.clone(),
            limit_bytes: usize::try_from(limit_bytes).unwrap_or(usize::MAX),
            snapshots: RwLock::default(),
            given_up: Mutex::default(),
            are_given_up: AtomicBool::new(false),
            are_any: AtomicBool::new(false),
            kept: RwLock::default(),
            has_work: AtomicBool::new(false),
            changed: Default::default(),
            spiller: Mutex::new(None),
            // The log grows by far more than one with each run, so no other session has used these.
            next_run: AtomicU64::new(space.pool().end().get()),
            given_up_ever: AtomicU64::new(0),
            ended: AtomicU64::new(0),
        })
    }

    /// Lets no snapshot begin until the gate is dropped: for a commit whose leaves are all latched, until it is in the log.
    pub fn gate(&self) -> Gate<'_> {
        Gate { versions: self, snapshots: self.snapshots.read(), _held: hold(SNAPSHOT_GATE) }
    }

    /// Reserves memory for old versions, before a commit appends its record. `None` while there is no room: let go of all latches,
    /// and [wait](Self::wait_for_room).
    pub fn reserve(&self, rows: &[OldVersion<'_>]) -> Option<Reserved<'_>> {
        let bytes = rows.iter().map(|old| bytes_of(old.key, old.value.as_ref())).sum();
        let mut kept = self.kept.write();
        let taken = kept.growing.bytes() + kept.reserved_bytes;
        if taken > 0 && taken + bytes > self.limit_bytes / 2 {
            if kept.growing.is_empty() || kept.frozen.is_some() {
                return None;
            }
            kept.frozen = Some(Arc::new(std::mem::take(&mut kept.growing)));
            self.has_work.store(true, Ordering::Release);
        }
        kept.reserved_bytes += bytes;
        Some(Reserved { versions: self, bytes })
    }

    /// Has a table written that was frozen, if there is one. No latch may be held. The first time this starts the spiller, which
    /// ends with the database.
    pub fn spill(self: &Arc<Self>, core: &Core) {
        if !self.has_work.load(Ordering::Relaxed) || !self.has_work.swap(false, Ordering::AcqRel) {
            return;
        }
        let mut spiller = self.spiller.lock();
        let is_new = spiller.is_none();
        if is_new {
            *spiller = Some(Spiller::start(self));
        }
        drop(spiller);
        self.announce_change();
        if is_new {
            core.keep(StopSpiller(Arc::clone(self)));
        }
    }

    /// Waits for a frozen table to be gone, and room in memory with it. No latch may be held.
    pub fn wait_for_room(&self) {
        let (lock, signal) = &self.changed;
        let mut guard = lock.lock();
        if self.kept.read().frozen.is_some() {
            signal.wait_for(&mut guard, spill::WAIT_TIMEOUT);
        } else {
            // Other commits have reserved the room, and are about to use it.
            drop(guard);
            tantalum_rt::yield_now();
        }
    }

    fn announce_change(&self) {
        let (lock, signal) = &self.changed;
        let _guard = lock.lock();
        signal.notify_all();
    }

    /// Begins a snapshot at the end of the log, which is asked for while no commit appends.
    pub fn begin(&self, log_end: impl FnOnce() -> u64) -> SnapshotId {
        let mut snapshots = self.snapshots.write();
        snapshots.begun += 1;
        let snapshot = SnapshotId { number: log_end(), serial: snapshots.begun };
        snapshots.alive.insert(snapshot);
        snapshot
    }

    /// Ends a snapshot, and forgets what is now seen by none, as far as that is known without looking for it.
    pub fn end(&self, snapshot: SnapshotId) {
        let mut snapshots = self.snapshots.write();
        self.ended.fetch_add(1, Ordering::Release);
        if !snapshots.alive.remove(&snapshot) {
            drop(snapshots);
            let mut given_up = self.given_up.lock();
            given_up.remove(&snapshot).expect("a snapshot ends once");
            self.are_given_up.store(!given_up.is_empty(), Ordering::Release);
            return;
        }
        let unseen = self.take_unseen(&snapshots);
        drop(snapshots);
        self.forget(unseen);
    }

    /// How many snapshots are over, or about to be.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// A snapshot that sees what was there from one position in the log on to another.
    pub fn seer(&self, since: u64, until: u64) -> Option<SnapshotId> {
        self.snapshots.read().seer(since, until)
    }

    /// Whether a snapshot has neither ended nor been given up.
    pub fn is_alive(&self, snapshot: SnapshotId) -> bool {
        self.snapshots.read().alive.contains(&snapshot)
    }

    /// # Errors
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) if the snapshot was given up.
    pub fn check(&self, snapshot: SnapshotId) -> Result<()> {
        self.checked(snapshot, Ok(()))
    }

    /// Drops what was taken out, which may be much: no lock is held, so that commits need not wait for that.
    fn forget(&self, unseen: Kept) {
        if unseen.frozen.is_some() {
            self.announce_change();
        }
    }

    /// Takes out the runs that no snapshot sees; if there is none, everything.
    fn take_unseen(&self, snapshots: &Snapshots) -> Kept {
        let mut unseen = Kept::default();
        if !self.are_any.load(Ordering::Acquire) {
            return unseen;
        }
        let mut kept = self.kept.write();
        match snapshots.oldest() {
            None => {
                // What is reserved is for commits that are on their way.
                unseen = std::mem::take(&mut *kept);
                kept.reserved_bytes = std::mem::take(&mut unseen.reserved_bytes);
                self.are_any.store(false, Ordering::Release);
            }
            Some(oldest) => {
                unseen.runs = kept.runs.extract_if(.., |run| run.newest_overwrite() <= oldest).collect();
            }
        }
        unseen
    }

    /// Gives up the oldest snapshot; false if there is none. What only it saw goes.
    pub fn give_up_oldest(&self, cause: &Error) -> bool {
        let mut snapshots = self.snapshots.write();
        let Some(oldest) = snapshots.alive.pop_first() else { return false };
        self.ended.fetch_add(1, Ordering::Release);
        self.given_up.lock().insert(oldest, cause.clone());
        self.are_given_up.store(true, Ordering::Release);
        self.given_up_ever.fetch_add(1, Ordering::Relaxed);
        tantalum_rt::tracing::warn!(snapshot = oldest.number, error = %cause, "a snapshot is given up: there is no room for what it sees");
        let unseen = self.take_unseen(&snapshots);
        drop(snapshots);
        self.forget(unseen);
        true
    }

    /// Gives up the snapshots that see a run, for a commit that needs the room of the scratch pages, and waits until these are
    /// free. False if there are none.
    pub fn give_up_scratch_pages(&self, cause: &Error) -> bool {
        if self.space.scratch_pages() == 0 {
            return false;
        }
        while self.space.scratch_pages() > 0 && self.give_up_oldest(cause) {}
        // A reader or the spiller may still have one.
        while self.space.scratch_pages() > 0 {
            tantalum_rt::yield_now();
        }
        true
    }

    /// What a search for versions has come to. It may miss some that went when the snapshot was given up, so this is asked
    /// afterwards.
    ///
    /// # Errors
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) once the snapshot was given up; if that was because the database has
    /// stopped, what it stopped with: a new snapshot would not help.
    fn checked<T>(&self, snapshot: SnapshotId, outcome: Result<T>) -> Result<T> {
        if self.are_given_up.load(Ordering::Acquire)
            && let Some(cause) = self.given_up.lock().get(&snapshot)
        {
            if matches!(cause.kind(), ErrorKind::Poisoned | ErrorKind::Closed) {
                return Err(cause.clone());
            }
            let what = format!(
                "the snapshot is too old: the row versions that it sees exceed version_bytes, and could not be kept on the data \
                 device: {cause}; read again from a new snapshot, and make room on the device or raise version_bytes"
            );
            return Err(Error::new(ErrorKind::SnapshotTooOld, what).with_source(cause.clone()));
        }
        outcome
    }

    /// The value of a key as the snapshot sees it, if it was overwritten since, by a commit `until` at most; `None` if a leaf that was
    /// looked at before this has it. No latch may be held.
    ///
    /// # Errors
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld), and what a device reports.
    pub fn get(&self, table: TableId, key: &[u8], snapshot: SnapshotId, until: u64) -> Result<Option<Option<Content>>> {
        let overwritten_by = snapshot.number.saturating_add(1)..=until;
        if !self.are_any.load(Ordering::Acquire) {
            return self.checked(snapshot, Ok(None));
        }
        let (runs, in_memory) = {
            let kept = self.kept.read();
            let frozen = kept.frozen.as_ref().and_then(|frozen| frozen.find(table, key, &overwritten_by));
            let in_memory = frozen.or_else(|| kept.growing.find(table, key, &overwritten_by));
            let in_memory = in_memory.cloned();
            (kept.runs_for(snapshot), in_memory)
        };
        // What was overwritten earlier counts.
        let in_runs = runs.iter().map(|run| run.find(table, key, &overwritten_by).transpose());
        let found = in_runs.flatten().next().transpose().map(|found| found.or(in_memory));
        self.checked(snapshot, found)
    }

    /// As [`get`](Self::get), for all keys of an interval: those that were overwritten since.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn get_range(
        &self,
        table: TableId,
        interval: &Interval,
        snapshot: SnapshotId,
        until: u64,
    ) -> Result<Vec<(Value, Option<Content>)>> {
        if !self.are_any.load(Ordering::Acquire) || interval.is_empty() {
            return self.checked(snapshot, Ok(Vec::new()));
        }
        let overwritten_by = snapshot.number.saturating_add(1)..=until;
        let mut rows = BTreeMap::new();
        let runs = {
            let kept = self.kept.read();
            // What was overwritten earlier counts, and so comes last.
            for versions in [Some(&kept.growing), kept.frozen.as_deref()].into_iter().flatten() {
                let found = versions.find_range(table, interval, overwritten_by.clone());
                rows.extend(found.map(|(key, value)| (key.clone(), value.clone())));
            }
            kept.runs_for(snapshot)
        };
        let found = runs.iter().rev().try_for_each(|run| {
            run.find_range(table, interval, &overwritten_by, &mut |key, value| _ = rows.insert(key, value))
        });
        self.checked(snapshot, found)?;
        Ok(rows.into_iter().collect())
    }

    /// Counters.
    pub fn counts(&self) -> VersionCounts {
        let snapshots = self.snapshots.read().alive.len() as u64;
        let kept = self.kept.read();
        let frozen = kept.frozen.as_deref();
        VersionCounts {
            snapshots,
            given_up: self.given_up_ever.load(Ordering::Relaxed),
            versions: kept.growing.versions() + frozen.map_or(0, VersionTable::versions),
            bytes: (kept.growing.bytes() + frozen.map_or(0, VersionTable::bytes)) as u64,
            spilled_versions: kept.runs.iter().map(|run| run.entries()).sum(),
            scratch_pages: self.space.scratch_pages(),
        }
    }
}

/// Counters of [`Versions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VersionCounts {
    pub snapshots: u64,
    pub given_up: u64,
    /// In memory.
    pub versions: u64,
    pub bytes: u64,
    /// In runs.
    pub spilled_versions: u64,
    pub scratch_pages: u64,
}

impl Kept {
    /// The runs that have versions which the snapshot may see, oldest first.
    fn runs_for(&self, snapshot: SnapshotId) -> Vec<Arc<Run>> {
        self.runs.iter().filter(|run| run.newest_overwrite() > snapshot.number).cloned().collect()
    }
}

/// Stops the spiller when it is dropped.
struct StopSpiller(Arc<Versions>);

impl Drop for StopSpiller {
    fn drop(&mut self) {
        let spiller = self.0.spiller.lock().take();
        if let Some(spiller) = spiller {
            spiller.stop(&self.0);
        }
    }
}
