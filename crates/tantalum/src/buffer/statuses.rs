//! Change groups whose changes the store keeps: the log gets only how far they are committed ("Design of Flash-Based DBMS: An
//! In-Page Logging Approach", section 5).
//!
//! A group is *published* when its changes stand in the in-memory log sectors of its pages. A *round* stores what pages
//! have gathered, of all groups published before it, and then appends one status record: all of them are committed once
//! the log is durable up to it. Rounds follow each other; the log's writes of their records do not hold them up.
//!
//! Invariants:
//! - what no status record covers is never more than the store has room for while it is active
//! - a status record is appended only after the changes of every group that it covers are durable in the store
//! - the newest status record is always in the log: a checkpoint is its start
//! - a page with changes that are not stored is in the list of dirty pages, or in the hands of whoever stores it

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
use tantalum_store::{Horizon, PageId, Watermarks, page::status_record, position};

use super::{
    admission::{Admission, Sums},
    frame::FrameState,
    pool::Shared,
};
use crate::error::{Error, Result};

/// Restart reads at most about so many bytes of status records.
const CHECKPOINT_BYTES: u64 = 1 << 20;

/// A page whose changes are not stored, and its frame's state.
pub(super) type DirtyPage = (PageId, Arc<FrameState>);

/// The groups of this session, and how far they are committed.
pub struct Statuses {
    log: Log,
    past: Mutex<Watermarks>,
    /// Held shared by whoever publishes a group, and for a moment exclusively by whoever begins a round, which so covers
    /// groups whole.
    publishing: RwLock<()>,
    admission: Admission,
    /// The position of the last group that was published.
    last: AtomicU64,
    /// The highest number of a commit.
    last_commit: AtomicU64,
    dirty: Mutex<Vec<DirtyPage>>,
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
    /// Somebody commits, perhaps with space that was waited for.
    Commit(Option<&'s mut SpaceRequest>),
    /// The log needs room, and gets it when a newer status record takes the place of the newest one.
    Relief,
}

/// What a round has covered.
struct Round {
    through: Lsn,
    published: Sums,
    record: LsnRange,
}

impl Statuses {
    /// Begins a session in a log that was just started, whose newest status record is that of a past session.
    pub fn new(log: Log, past: Watermarks, last_commit: u64, newest: Option<LsnRange>) -> Self {
        let start = position::start_of(log.stats().epoch);
        Self {
            log,
            past: Mutex::new(past),
            publishing: RwLock::new(()),
            admission: Admission::default(),
            last: AtomicU64::new(start.get()),
            last_commit: AtomicU64::new(last_commit),
            dirty: Mutex::default(),
            memory: ChangeMemory::default(),
            rounds: Mutex::new(Rounds { covered: start, durable: start, newest, ..Rounds::default() }),
            round_ended: Condvar::new(),
        }
    }

    /// The store needs the statuses of no session before this one any more.
    pub fn forget_before(&self, epoch: u64) {
        self.past.lock().forget_before(epoch);
    }

    /// The memory that changes take which are not stored.
    pub(super) fn memory(&self) -> &ChangeMemory {
        &self.memory
    }

    /// The position of the last group.
    pub fn end(&self) -> Lsn {
        Lsn::new(self.last.load(Ordering::SeqCst))
    }

    /// Publishes a group of so many bytes: calls `add` with its position, which adds its changes to its latched pages and
    /// returns those that had none that were not stored. All that is not covered may have `limit` bytes.
    ///
    /// # Errors
    /// [`Error::LogFull`] when a round must make room first; nothing was done.
    pub(super) fn publish(
        &self,
        commit: u64,
        (bytes, limit): (usize, usize),
        add: impl FnOnce(Lsn) -> Vec<DirtyPage>,
    ) -> Result<Lsn> {
        let _publishing = self.publishing.read();
        if !self.admission.admit(bytes, limit) {
            return Err(Error::LogFull { needed: bytes });
        }
        let position = position::next(Lsn::new(self.last.fetch_add(1, Ordering::SeqCst)));
        self.last_commit.fetch_max(commit, Ordering::SeqCst);
        tantalum_rt::interleave();
        let mut fresh = add(position);
        self.dirty.lock().append(&mut fresh);
        Ok(position)
    }

    /// Lets those go on who wait for a round that a panic has ended.
    pub(super) fn wake_for_poison(&self) {
        drop(self.rounds.lock());
        self.round_ended.notify_all();
    }

    /// Pages whose changes could not be stored: the next round tries again.
    pub(super) fn put_back(&self, pages: impl Iterator<Item = DirtyPage>) {
        self.dirty.lock().extend(pages);
    }

    fn append_status(&self, through: Lsn, purpose: Purpose<'_>) -> Result<LsnRange> {
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
            // Nobody waits for space in a round: whoever frees the log may need one.
            Err(tantalum_log::Error::Full { needed }) => Err(Error::LogFull { needed: needed as usize }),
            range => Ok(range?),
        }
    }

    /// Waits until all that status records cover is committed. False if they cover nothing yet.
    pub(super) fn settle(&self) -> Result<bool> {
        let newest = self.rounds.lock().newest;
        newest.map_or(Ok(false), |newest| Ok(self.log.flush(newest.end).map(|()| true)?))
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

impl Horizon for Statuses {
    fn committed_through(&self) -> Lsn {
        let durable = self.log.durable_lsn();
        let mut rounds = self.rounds.lock();
        rounds.trim(durable);
        rounds.durable
    }
}

impl fmt::Debug for Statuses {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Statuses").field("end", &self.end()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Stores the changes of every group up to `position`, and logs their status. Returns where the log must be durable for
    /// them to be committed. No latch may be held.
    ///
    /// # Errors
    /// When the store or the log refuses. What is not stored is stored by a later round.
    pub(super) fn force(&self, statuses: &Statuses, position: Lsn) -> Result<Lsn> {
        tantalum_rt::may_wait("a round of statuses");
        let mut space = None;
        let mut rounds = statuses.rounds.lock();
        while position > rounds.covered {
            if rounds.is_running {
                self.check_poison()?;
                statuses.round_ended.wait(&mut rounds);
                continue;
            }
            let result;
            (rounds, result) = self.take_round(statuses, rounds, Purpose::Commit(space.as_mut()));
            if let Err(Error::LogFull { needed }) = result {
                drop(rounds);
                drop(space.take());
                statuses.trim_log()?;
                let request = statuses.log.request_space(needed as u64)?;
                while !request.wait(Duration::MAX)? {}
                space = Some(request);
                rounds = statuses.rounds.lock();
            } else {
                result?;
            }
        }
        let record = rounds.records.iter().find(|(through, _)| position <= *through);
        // Where there is none any more it is durable.
        Ok(record.map_or(Lsn::ZERO, |(_, record)| record.end))
    }

    /// Frees the log but for one record, which is written anew: whatever holds the newest one may be about to leave the log.
    /// Waits for no space, so that it can be had from whoever frees the log; if there is none, it frees what it can.
    pub(super) fn renew_status(&self, statuses: &Statuses) -> Result<Lsn> {
        statuses.trim_log()?;
        let mut rounds = statuses.rounds.lock();
        while rounds.is_running {
            self.check_poison()?;
            statuses.round_ended.wait(&mut rounds);
        }
        let (rounds, result) = self.take_round(statuses, rounds, Purpose::Relief);
        drop(rounds);
        match result {
            Ok(()) | Err(Error::LogFull { .. }) => statuses.trim_log(),
            Err(error) => Err(error),
        }
    }

    /// Runs a round, when none is running.
    fn take_round<'s>(
        &self,
        statuses: &'s Statuses,
        mut rounds: MutexGuard<'s, Rounds>,
        purpose: Purpose<'_>,
    ) -> (MutexGuard<'s, Rounds>, Result<()>) {
        rounds.is_running = true;
        drop(rounds);
        let guard = self.poison_unless_ended("changes were being stored");
        let result = self.run_round(statuses, purpose);
        guard.end();
        let mut rounds = statuses.rounds.lock();
        rounds.is_running = false;
        statuses.round_ended.notify_all();
        let ended = result.map(|Round { through, published, record }| {
            assert!(through >= rounds.covered, "rounds cover more and more");
            statuses.admission.cover(published);
            rounds.covered = through;
            rounds.newest = Some(record);
            rounds.records.push_back((through, record));
            rounds.trim(statuses.log.durable_lsn());
        });
        (rounds, ended)
    }

    fn run_round(&self, statuses: &Statuses, purpose: Purpose<'_>) -> Result<Round> {
        let (through, published, mut dirty) = {
            let _publishing = statuses.publishing.write();
            (statuses.end(), statuses.admission.published(), std::mem::take(&mut *statuses.dirty.lock()))
        };
        tantalum_rt::interleave();
        // A page may be there twice, also with a frame that it has left: what that frame holds is not taken in its name.
        dirty.sort_unstable_by_key(|(id, _)| *id);
        self.write_changes_back(statuses, dirty)?;
        Ok(Round { through, published, record: statuses.append_status(through, purpose)? })
    }

    /// Frees the log's older part if there is much of it.
    pub(super) fn trim_log_if_long(&self, statuses: &Statuses) -> Result<()> {
        let used = statuses.log.durable_lsn().bytes_since(statuses.log.checkpoint_lsn());
        if used > CHECKPOINT_BYTES { statuses.trim_log().map(drop) } else { Ok(()) }
    }
}
