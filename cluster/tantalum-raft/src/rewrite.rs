//! Rewriting: what is needed of the log's beginning is appended again at its end, so that a checkpoint can pass it, and an idle group
//! does not keep the log from going round.
//!
//! A pass picks a target, collects what lies before it, and appends it again in the order of its positions. Now and then, and at the
//! end, it waits until that is durable and sets the checkpoint to the first record that is still needed.
//!
//! - Usually the target is the middle of what the log holds: so what is purged soon is not rewritten. It takes space as other appends
//!   do, and ends where there is none.
//! - If that did not suffice, everything that is needed is rewritten, in the space that other appends leave for it
//!   ([`Log::keep_for_relief`]). What is needed is bounded such that it fits there; so after such a pass there is space again.
//!   Interrupted at any point, by a crash too, the next one has less to do, since each checkpoint that it sets stays.
//!
//! Invariants:
//! - a checkpoint is set only to a position before which nothing is needed, when everything is durable that was appended until that was
//!   found: the copies, and also the records by which something stopped to be needed, or a crash would bring it back;
//! - a record is needed if the state in memory names its position; both change under the group's lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum_log::{Error, ErrorKind, Log, Lsn, LsnRange, Result};
use tantalum_rt::{Condvar, Mutex};

use crate::group::GroupCell;
use crate::log::Shared;
use crate::record::EntryHead;
use crate::state::{Place, state_record_bytes};

/// After a pass that made no space, the next one waits for so long; those that wait for space look so often whether it failed.
pub(crate) const RETRY: Duration = Duration::from_millis(100);
/// Without pressure, the task looks so often whether it is to end.
const IDLE: Duration = Duration::from_secs(3600);
/// After so many bytes, and a quarter of what may be needed at most, a checkpoint is set.
const CHUNK_BYTES: u64 = 1 << 20;

#[derive(Default)]
pub(crate) struct Rewriter {
    state: Mutex<State>,
    changed: Condvar,
    records: AtomicU64,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    is_ending: bool,
    /// Why the last pass failed.
    failure: Option<Error>,
}

/// In which space a pass appends, and how far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Half,
    All,
}

/// A record that is to be rewritten.
struct Old {
    start: Lsn,
    cell: Arc<GroupCell>,
    /// `None` for the group's state.
    entry: Option<(u64, Place)>,
}

impl Rewriter {
    pub(crate) fn end(&self, log: &Log) {
        self.state.lock().is_ending = true;
        self.changed.notify_all();
        log.end_pressure_waits();
    }

    /// The error of the last pass, if it failed.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.state.lock().failure {
            Some(failure) => Err(Error::new(
                failure.kind(),
                format!("the raft log is full, and what is needed of its beginning cannot be rewritten: {failure}"),
            )
            .with_source(failure.clone())),
            None => Ok(()),
        }
    }

    /// Records and their bytes that were rewritten.
    pub(crate) fn rewritten(&self) -> (u64, u64) {
        (self.records.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn is_ending(&self) -> bool {
        self.state.lock().is_ending
    }
}

impl Shared {
    /// What the task does.
    pub(crate) fn run_rewriter(&self) {
        while !self.rewriter.is_ending() {
            if !self.log.wait_for_pressure(Duration::ZERO) {
                self.rewriter.state.lock().failure = None;
                if !self.log.wait_for_pressure(IDLE) {
                    continue;
                }
            }
            self.divide_space();
            let passed = self.rewrite(Extent::Half).and_then(|()| {
                let suffices = !self.log.wait_for_pressure(Duration::ZERO);
                if suffices { Ok(()) } else { self.rewrite(Extent::All) }
            });
            let is_stuck = passed.is_err() || self.log.wait_for_pressure(Duration::ZERO);
            if let Err(error) = &passed {
                self.log.report_failed_checkpoint(error.clone());
            }
            let mut state = self.rewriter.state.lock();
            state.failure = passed.err();
            if is_stuck && !state.is_ending {
                self.rewriter.changed.wait_for(&mut state, RETRY);
            }
        }
    }

    /// One pass.
    fn rewrite(&self, extent: Extent) -> Result<()> {
        if extent == Extent::All {
            // What is buffered is charged for the worst packing; what is written is not.
            self.log.flush(self.log.end_lsn())?;
        }
        let (checkpoint, durable) = (self.log.checkpoint_lsn(), self.log.durable_lsn());
        let target = match extent {
            Extent::Half => Lsn::new(checkpoint.get() + durable.bytes_since(checkpoint) / 2),
            Extent::All => durable,
        };
        let (old, next) = self.needed_before(target, durable);
        let chunk = CHUNK_BYTES.min(self.log.capacity() / 16);
        let mut bytes = 0;
        for old in &old {
            if self.rewriter.is_ending() {
                return Ok(());
            }
            if bytes >= chunk {
                self.pass_with_checkpoint(old.start)?;
                bytes = 0;
            }
            let mut rewritten = self.rewrite_one(old, extent);
            if rewritten.as_ref().is_err_and(|error| error.kind() == ErrorKind::LogFull) {
                // What was rewritten so far may make space.
                self.pass_with_checkpoint(old.start)?;
                if extent == Extent::Half {
                    return Ok(());
                }
                rewritten = self.rewrite_one(old, extent);
                bytes = 0;
            }
            if let Some(range) = rewritten? {
                bytes += range.end.bytes_since(range.start);
                self.rewriter.records.fetch_add(1, Ordering::Relaxed);
                self.rewriter.bytes.fetch_add(range.end.bytes_since(range.start), Ordering::Relaxed);
            }
        }
        self.pass_with_checkpoint(next)
    }

    /// Sets the checkpoint to a position before which nothing is needed according to the state in memory.
    fn pass_with_checkpoint(&self, position: Lsn) -> Result<()> {
        self.log.flush(self.log.end_lsn())?;
        self.log.set_checkpoint(position)
    }

    /// What is needed of the records before `target`, in their order, and the first position behind that is needed, or `durable`.
    ///
    /// A group that is not seen here, and an entry that is appended meanwhile, lie behind `durable`, which was looked up before.
    fn needed_before(&self, target: Lsn, durable: Lsn) -> (Vec<Old>, Lsn) {
        let cells: Vec<_> = self.groups.lock().values().cloned().collect();
        let (mut old, mut next) = (Vec::new(), durable);
        for cell in cells {
            let state = cell.state.lock();
            let entries = state.places().map(|(index, place)| (place.start, Some((index, place))));
            for (start, entry) in entries.chain(state.state_start().map(|start| (start, None))) {
                if start < target {
                    old.push(Old { start, cell: Arc::clone(&cell), entry });
                } else {
                    next = next.min(start);
                }
            }
        }
        old.sort_by_key(|old| old.start);
        (old, next)
    }

    /// Appends a record again, if it is still needed.
    fn rewrite_one(&self, old: &Old, extent: Extent) -> Result<Option<LsnRange>> {
        let append = |parts: &[&[u8]]| match extent {
            Extent::Half => self.log.append(parts),
            Extent::All => self.log.append_to_relieve(parts),
        };
        let id = old.cell.id;
        let Some((index, place)) = old.entry else {
            let mut state = old.cell.state.lock();
            if state.state_start() != Some(old.start) {
                return Ok(None);
            }
            let encoded = state.state().encode(id);
            let range = append(&[&encoded])?;
            let same = state.state().clone();
            let before = state.state_bytes();
            state.set(same, (range.start, state_record_bytes(&encoded)));
            assert_eq!(state.state_bytes(), before, "a state that did not change takes as much as before");
            return Ok(Some(range));
        };
        let is_there = || old.cell.state.lock().place(index).is_some_and(|now| now.start == old.start);
        let cached = old.cell.state.lock().cached(index).cloned();
        let bytes = match cached.map_or_else(|| self.read_entry(id, index, &place), Ok) {
            Ok(bytes) => bytes,
            Err(_) if !is_there() => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut state = old.cell.state.lock();
        if state.place(index).is_none_or(|now| now.start != old.start) {
            return Ok(None);
        }
        let head = EntryHead { group: id, index, term: place.term, is_moved: true };
        let range = append(&[&head.encode(), &bytes])?;
        state.move_to(index, range.start);
        Ok(Some(range))
    }
}
