//! Change groups whose changes the store keeps: the log gets only how far they are committed ("Design of Flash-Based DBMS: An
//! In-Page Logging Approach", section 5).
//!
//! A group is *added* when its changes stand in the in-memory log sectors of its pages. A *round* stores what pages
//! have gathered, of all groups added before it, and then appends one status record: all of them are committed once
//! the log is durable up to it. Rounds follow each other; the log's writes of their records do not hold them up.
//!
//! Invariants:
//! - what no status record covers is never more than the store has room for while it is active
//! - a status record is appended only after the changes of every group that it covers are durable in the store
//! - the newest status record is always in the log: a checkpoint is its start
//! - a page with changes that are not stored is in the list of dirty pages, or with the task that stores it

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_log::{Log, Lsn, LsnRange, SpaceRequest};
use tantalum_rt::{Condvar, Mutex, MutexGuard, RwLock};
use tantalum_store::{
    Horizon, PageBatch, PageChanges, PageId, Watermarks,
    page::{record, status_record},
    position,
};

use super::{
    BufferPool,
    admission::{self, Admission, Sums},
    change_group::GroupPage,
    change_sink::{ChangeSink, Group},
    frame::FrameState,
    free_list::WritePermit,
    poison::PoisonGuard,
    pool::Shared,
};
use crate::{
    error::{ErrorKind, GroupError, GroupResult, Lack, Result},
    limits::GroupLimit,
};

/// Restart reads at most about so many bytes of status records.
const CHECKPOINT_BYTES: u64 = 1 << 20;

/// A page whose changes are not stored, and its frame's state.
type DirtyPage = (PageId, Arc<FrameState>);

/// The groups of this session, and how far they are committed.
pub struct CommitStatusLog {
    log: Log,
    past: Mutex<Watermarks>,
    /// Held shared while a group is added, and for a moment exclusively when a round begins, which so covers groups whole.
    adding: RwLock<()>,
    admission: Admission,
    /// The position of the last group that was added.
    last: AtomicU64,
    /// The highest number of a commit.
    last_commit: AtomicU64,
    dirty: Mutex<Vec<DirtyPage>>,
    /// Held while changes are taken from their pages and stored, so that a page's are stored in their order.
    storing: Mutex<()>,
    memory: ChangeMemory,
    rounds: Mutex<Rounds>,
    round_ended: Condvar,
}

#[derive(Default)]
struct Rounds {
    is_running: bool,
    /// Every group up to here is stored, and a status record says so.
    covered: Lsn,
    /// The part of it that is durable in the log.
    durable: Lsn,
    /// Status records that are not known to be durable: how far they go, and where they are.
    records: VecDeque<(Lsn, LsnRange)>,
    /// The newest status record.
    newest: Option<LsnRange>,
}

/// What a round is for.
enum Purpose<'s> {
    /// A commit, perhaps with space that was waited for.
    Commit(Option<&'s mut SpaceRequest>),
    /// The log needs room, and gets it when a newer status record takes the place of the newest one.
    Relief,
}

/// What a round has covered.
struct Round {
    through: Lsn,
    admitted: Sums,
    record: LsnRange,
}

impl CommitStatusLog {
    /// Begins a session in a log that was just started, whose newest status record is that of a past session.
    pub fn new(log: Log, past: Watermarks, last_commit: u64, newest: Option<LsnRange>) -> Self {
        let start = position::start_of(log.stats().epoch);
        Self {
            log,
            past: Mutex::new(past),
            adding: RwLock::new(()),
            admission: Admission::default(),
            last: AtomicU64::new(start.get()),
            last_commit: AtomicU64::new(last_commit),
            dirty: Mutex::default(),
            storing: Mutex::default(),
            memory: ChangeMemory::default(),
            rounds: Mutex::new(Rounds { covered: start, durable: start, newest, ..Rounds::default() }),
            round_ended: Condvar::new(),
        }
    }

    /// The store needs the statuses of no session before this one any more.
    pub fn forget_before(&self, epoch: u64) {
        self.past.lock().forget_before(epoch);
    }

    /// The position of the last group.
    pub fn last_position(&self) -> Lsn {
        Lsn::new(self.last.load(Ordering::SeqCst))
    }

    /// Adds a group of so many bytes: calls `add` with its position, which adds its changes to its latched pages and
    /// returns those that had none that were not stored. All that is not covered may have `limit` bytes.
    ///
    /// # Errors
    /// [`Lack::LogSpace`] when a round must make room first; nothing was done.
    fn add_group(
        &self,
        commit: u64,
        (bytes, limit): (usize, usize),
        add: impl FnOnce(Lsn) -> Vec<DirtyPage>,
    ) -> GroupResult<Lsn> {
        let _adding = self.adding.read();
        if !self.admission.admit(bytes, limit) {
            return Err(Lack::LogSpace(bytes).into());
        }
        let position = position::next(Lsn::new(self.last.fetch_add(1, Ordering::SeqCst)));
        self.last_commit.fetch_max(commit, Ordering::SeqCst);
        tantalum_rt::interleave();
        let mut fresh = add(position);
        self.dirty.lock().append(&mut fresh);
        Ok(position)
    }

    /// Pages whose changes could not be stored: the next round tries again.
    fn put_back(&self, pages: impl Iterator<Item = DirtyPage>) {
        self.dirty.lock().extend(pages);
    }

    fn append_status(&self, through: Lsn, purpose: Purpose<'_>) -> GroupResult<LsnRange> {
        let mut record = Vec::with_capacity(64);
        {
            let past = self.past.lock();
            let last_commit = self.last_commit.load(Ordering::SeqCst);
            status_record::encode(&mut record, through, last_commit, (past.oldest(), past.iter()));
        }
        let appended = match purpose {
            Purpose::Commit(None) => self.log.append(&[&record]),
            Purpose::Commit(Some(space)) => self.log.append_requested(&[&record], space),
            Purpose::Relief => self.log.append_to_relieve(&[&record]),
        };
        match appended {
            // A round waits for no space: the task that frees the log may need one.
            Err(error) => Err(GroupError::of_log(error)),
            Ok(range) => Ok(range),
        }
    }

    /// Waits until all that status records cover is committed. False if they cover nothing yet.
    fn settle(&self) -> Result<bool> {
        let newest = self.rounds.lock().newest;
        newest.map_or(Ok(false), |newest| self.log.flush(newest.end).map(|()| true))
    }

    /// Frees the log before the newest status record, which says all that the others do.
    pub fn trim_log(&self) -> Result<Lsn> {
        let Some(newest) = self.rounds.lock().newest else { return Ok(self.log.checkpoint_lsn()) };
        self.log.flush(newest.end)?;
        self.log.set_checkpoint(newest.start)?;
        Ok(newest.start)
    }
}

/// Bytes of memory for changes that are not stored.
#[derive(Debug, Default)]
pub(super) struct ChangeMemory {
    bytes: AtomicU64,
    peak: AtomicU64,
}

impl ChangeMemory {
    pub fn grow(&self, bytes: usize) {
        let now = self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    pub fn shrink(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// The bytes now.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The most bytes that there were at a time.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Rounds {
    /// Notes which records the log has made durable.
    fn trim(&mut self, durable: Lsn) {
        while let Some((through, record)) = self.records.front()
            && record.end <= durable
        {
            self.durable = *through;
            self.records.pop_front();
        }
    }
}

impl ChangeSink for CommitStatusLog {
    fn end(&self, _pool: &Shared) -> Option<Lsn> {
        Some(self.last_position())
    }

    fn group_limit(&self, pool: &Shared) -> GroupLimit {
        let bytes = admission::largest_group(pool.store.max_active_bytes());
        GroupLimit { bytes, remedy: Some("use a larger data device") }
    }

    fn space_limit(&self, _pool: &Shared) -> GroupLimit {
        // It only needs a record of a few bytes.
        GroupLimit { bytes: usize::MAX, remedy: None }
    }

    fn append<'p>(&self, pool: &'p Shared, group: Group<'_>) -> GroupResult<(Lsn, PoisonGuard<'p>)> {
        let Group { pages, flags, sequence, feed, .. } = group;
        assert!(feed.is_empty(), "no table has a change feed where the log has no changes");
        let bytes = pages.iter().map(|page| page.changes.len() + PageChanges::OVERHEAD_BYTES).sum();
        let limit = self.group_limit(pool);
        if bytes > limit.bytes {
            return Err(limit.refuse(bytes).into());
        }
        let mut guard = None;
        let commit = if flags & record::COMMIT != 0 { sequence } else { 0 };
        let position = self.add_group(commit, (bytes, pool.store.max_active_bytes()), |position| {
            // Here, and not before: a round may begin as soon as this returns, or panics.
            let here = pool.poison_unless_ended("a change group was between the log sectors and its pages");
            let add = |page: &GroupPage| {
                let state = page.guard.shared_state();
                let is_first = state.add_changes(position, &page.changes, &self.memory);
                is_first.then(|| (page.guard.id(), Arc::clone(state)))
            };
            let dirty = pages.iter().filter_map(add).collect();
            guard = Some(here);
            dirty
        })?;
        Ok((position, guard.expect("the group was added to its pages")))
    }

    fn force(&self, pool: &Shared, position: Lsn) -> Result<Lsn> {
        self.run_rounds(pool, position)
    }

    fn flush(&self, pool: &Shared, position: Lsn) -> Result<()> {
        self.log.flush(self.run_rounds(pool, position)?)?;
        self.trim_log_if_long()
    }

    fn write_back(&self, pool: &Shared, _permit: &mut WritePermit<'_>, pages: &mut [(PageId, usize)]) -> Result<usize> {
        pages.sort_unstable();
        self.store_changes_of(
            pool,
            pages.iter().map(|&(id, frame)| (id, Arc::clone(&pool.frames[frame].state))).collect(),
        )
    }

    fn checkpoint(&self, pool: &BufferPool) -> Result<Lsn> {
        pool.flush(self.last_position())?;
        self.renew(&pool.shared)
    }

    fn relieve_log(&self, pool: &BufferPool) -> Result<Lsn> {
        self.renew(&pool.shared)
    }

    /// Changes are not in the log: what has no room is what no status record covers, and a round covers it.
    fn wait_for_space(&self, pool: &BufferPool, _needed: usize) -> Result<Option<SpaceRequest>> {
        self.run_rounds(&pool.shared, self.last_position()).map(|_| None)
    }

    fn wake_for_poison(&self) {
        drop(self.rounds.lock());
        self.round_ended.notify_all();
    }

    fn end_stores(&self) {
        drop(self.storing.lock());
    }

    fn memory_bytes(&self) -> (u64, u64) {
        (self.memory.bytes(), self.memory.peak())
    }
}

impl Horizon for CommitStatusLog {
    fn committed_through(&self) -> Lsn {
        let durable = self.log.durable_lsn();
        let mut rounds = self.rounds.lock();
        rounds.trim(durable);
        rounds.durable
    }
}

impl fmt::Debug for CommitStatusLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CommitStatusLog").field("last", &self.last_position()).finish_non_exhaustive()
    }
}

impl CommitStatusLog {
    /// Stores the changes of every group up to `position`, and logs their status. Returns where the log must be durable for
    /// them to be committed. No latch may be held.
    ///
    /// # Errors
    /// When the store or the log refuses. What is not stored is stored by a later round.
    fn run_rounds(&self, pool: &Shared, position: Lsn) -> Result<Lsn> {
        tantalum_rt::may_wait("a round of statuses");
        let mut space = None;
        let mut rounds = self.rounds.lock();
        while position > rounds.covered {
            if rounds.is_running {
                pool.check_poison()?;
                self.round_ended.wait(&mut rounds);
                continue;
            }
            let result;
            (rounds, result) = self.take_round(pool, rounds, Purpose::Commit(space.as_mut()));
            match result {
                Ok(()) => {}
                Err(GroupError::Lacks(lack)) => {
                    drop(rounds);
                    drop(space.take());
                    self.trim_log()?;
                    let Lack::LogSpace(needed) = lack else { unreachable!("a round appends to the log only") };
                    let request = self.log.request_space(needed as u64)?;
                    while !request.wait(Duration::MAX)? {}
                    space = Some(request);
                    rounds = self.rounds.lock();
                }
                Err(GroupError::Failed(error)) => return Err(error),
            }
        }
        let record = rounds.records.iter().find(|(through, _)| position <= *through);
        // Where there is none any more it is durable.
        Ok(record.map_or(Lsn::ZERO, |(_, record)| record.end))
    }

    /// Frees the log but for one record, which is written anew: the device that holds the newest one may be about to leave the log.
    /// Waits for no space, since the task that frees the log calls this; if there is none, it frees what it can.
    fn renew(&self, pool: &Shared) -> Result<Lsn> {
        self.trim_log()?;
        let mut rounds = self.rounds.lock();
        while rounds.is_running {
            pool.check_poison()?;
            self.round_ended.wait(&mut rounds);
        }
        let (rounds, result) = self.take_round(pool, rounds, Purpose::Relief);
        drop(rounds);
        match result {
            Ok(()) | Err(GroupError::Lacks(_)) => self.trim_log(),
            Err(GroupError::Failed(error)) => Err(error),
        }
    }

    /// Runs a round, when none is running.
    fn take_round<'s>(
        &'s self,
        pool: &Shared,
        mut rounds: MutexGuard<'s, Rounds>,
        purpose: Purpose<'_>,
    ) -> (MutexGuard<'s, Rounds>, GroupResult<()>) {
        rounds.is_running = true;
        drop(rounds);
        let guard = pool.poison_unless_ended("changes were being stored");
        let result = self.run_round(pool, purpose);
        guard.end();
        let mut rounds = self.rounds.lock();
        rounds.is_running = false;
        self.round_ended.notify_all();
        let ended = result.map(|Round { through, admitted, record }| {
            assert!(through >= rounds.covered, "rounds cover more and more");
            self.admission.cover(admitted);
            rounds.covered = through;
            rounds.newest = Some(record);
            rounds.records.push_back((through, record));
            rounds.trim(self.log.durable_lsn());
        });
        (rounds, ended)
    }

    fn run_round(&self, pool: &Shared, purpose: Purpose<'_>) -> GroupResult<Round> {
        let (through, admitted, mut dirty) = {
            let _adding = self.adding.write();
            (self.last_position(), self.admission.admitted(), std::mem::take(&mut *self.dirty.lock()))
        };
        tantalum_rt::interleave();
        // A page may be there twice, also with a frame that it has left: what that frame holds is not taken in its name.
        dirty.sort_unstable_by_key(|(id, _)| *id);
        self.store_changes_of(pool, dirty)?;
        Ok(Round { through, admitted, record: self.append_status(through, purpose)? })
    }

    /// Frees the log's older part if there is much of it.
    fn trim_log_if_long(&self) -> Result<()> {
        let used = self.log.durable_lsn().bytes_since(self.log.checkpoint_lsn());
        if used > CHECKPOINT_BYTES { self.trim_log().map(drop) } else { Ok(()) }
    }

    /// Stores the changes of pages, in ascending order of the pages, to a store that keeps changes. Needs no latches: a page's
    /// changes stand beside it. Returns how many pages had some.
    fn store_changes_of(&self, pool: &Shared, pages: Vec<DirtyPage>) -> Result<usize> {
        let mut stored = 0;
        let mut pages = pages.into_iter().peekable();
        while pages.peek().is_some() {
            // Held while changes are taken from their pages, so that a page's are stored in their order.
            let _writing = self.storing.lock();
            pool.check_poison()?;
            let guard = pool.poison_unless_ended("changes were being stored");
            let (mut states, mut changes): (Vec<DirtyPage>, Vec<(PageId, PageChanges)>) = Default::default();
            for (id, state) in pages.by_ref().take(PageBatch::MAX_PAGES) {
                // A page that is there twice may have been changed since its first time: the task that did so has listed it again.
                if states.last().is_none_or(|(last, _)| *last != id)
                    && let Some(taken) = state.take_changes(id)
                {
                    changes.push((id, taken));
                    states.push((id, state));
                }
            }
            let result = if changes.is_empty() { Ok(()) } else { self.store_changes(pool, &changes) };
            let is_stored = result.is_ok();
            for ((_, state), (_, changes)) in states.iter().zip(changes) {
                state.end_store_of_changes(changes, is_stored, &self.memory);
            }
            guard.end();
            if let Err(error) = result {
                pool.counters.failed_write_backs.fetch_add(1, Ordering::Relaxed);
                tantalum_rt::tracing::error!(pages = states.len(), %error, "changes could not be stored; they stay in memory");
                self.put_back(states.into_iter().chain(pages));
                return Err(error);
            }
            stored += states.len();
        }
        Ok(stored)
    }

    fn store_changes(&self, pool: &Shared, changes: &[(PageId, PageChanges)]) -> Result<()> {
        pool.check_stores()?;
        match pool.store.store_changes(changes) {
            // What is active fills the store: what the log has meanwhile made durable need not be carried any more.
            Err(error) if error.kind() == ErrorKind::StoreFull && self.settle()? => pool.store.store_changes(changes),
            result => result,
        }
    }
}
