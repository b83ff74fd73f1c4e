//! What appends and writers hand to the archival worker without the state's lock: copies of the records, and when there is
//! something to do.
//!
//! The first task that takes a sealed group's bytes, a device's writer or the worker, leaves a copy here; the worker joins the
//! copies that follow its last write into the next. A group's own buffer is sized for the largest group, so small groups are
//! copied rather than held.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use tantalum_rt::{Condvar, Mutex, Unparker};

use crate::Lsn;
use crate::archive::JOINED_US;

/// The value of a feed's trigger and limit without an archive.
const NONE: u64 = u64::MAX;

/// What appends and writers share with the worker without the state's lock.
#[derive(Debug)]
pub(super) struct ArchiveFeed {
    /// An append that reaches this LSN wakes the worker.
    trigger: AtomicU64,
    /// An append at or past this LSN finds the log full.
    limit: AtomicU64,
    pieces: Mutex<Pieces>,
    worker: Mutex<Option<Unparker>>,
    /// Notified when the archive got further, or was set aside.
    pub(super) progress: Condvar,
}

#[derive(Debug, Default)]
struct Pieces {
    /// Copied record bytes that are not archived, by start.
    by_start: BTreeMap<Lsn, Piece>,
    /// Bytes from here on are wanted; `None` if there is no archive, or it was set aside.
    from: Option<Lsn>,
    /// The worker waits for a piece that a writer is about to leave.
    is_awaited: bool,
}

/// Copied record bytes.
#[derive(Debug)]
struct Piece {
    records: Box<[u8]>,
    /// When they were taken for a write: none of them was durable before.
    time_us: u64,
}

impl Default for ArchiveFeed {
    fn default() -> Self {
        ArchiveFeed {
            trigger: AtomicU64::new(NONE),
            limit: AtomicU64::new(NONE),
            pieces: Mutex::default(),
            worker: Mutex::default(),
            progress: Condvar::new(),
        }
    }
}

impl ArchiveFeed {
    /// Whether there is an archive that works. One that is attached right now may not be seen yet.
    pub(super) fn is_attached(&self) -> bool {
        self.limit.load(Ordering::Relaxed) != NONE
    }

    /// Begins to take records from `from` on, with appends up to `limit`.
    pub(super) fn attach(&self, from: Lsn, limit: u64) {
        self.pieces.lock().from = Some(from);
        self.limit.store(limit.min(NONE - 1), Ordering::SeqCst);
    }

    /// Moves the bound on appends. True if it grew.
    pub(super) fn set_limit(&self, limit: u64) -> bool {
        self.limit.swap(limit.min(NONE - 1), Ordering::SeqCst) < limit
    }

    /// Has an append that reaches `end` wake the worker. The worker then looks whether one already did.
    pub(super) fn set_trigger(&self, end: u64) {
        self.trigger.store(end, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Registers the worker.
    pub(super) fn set_worker(&self, worker: Unparker) {
        *self.worker.lock() = Some(worker);
    }

    /// Wakes the worker if a record that ends at `end` makes a write due. An archive that is attached after the append looks
    /// for itself.
    pub(super) fn appended(&self, end: Lsn) {
        // The append's bytes must be seen by a worker whose trigger is not seen here.
        fence(Ordering::SeqCst);
        if end.get() >= self.trigger.load(Ordering::Relaxed) && self.trigger.swap(NONE, Ordering::Relaxed) != NONE {
            self.wake();
        }
    }

    /// Whether too much is not archived to append more at `end`, the log's end.
    pub(super) fn is_behind(&self, end: Lsn) -> bool {
        end.get() >= self.limit.load(Ordering::Relaxed)
    }

    /// Leaves a copy of the records that start at `start` and are taken now, unless they are archived or there already.
    pub(super) fn give(&self, start: Lsn, records: &[u8], time_us: u64) {
        let mut pieces = self.pieces.lock();
        if pieces.from.is_some_and(|from| start >= from) {
            pieces.by_start.entry(start).or_insert_with(|| Piece { records: records.into(), time_us });
            if std::mem::take(&mut pieces.is_awaited) {
                self.wake();
            }
        }
    }

    /// Wakes the worker.
    pub(super) fn wake(&self) {
        if let Some(worker) = &*self.worker.lock() {
            worker.unpark();
        }
    }

    /// Takes the pieces that follow the last ones taken, of about the same time, up to `until` and as many bytes as `limit` allows
    /// with the first piece. Returns them with the time of the last. None if a writer is about to leave the next piece, or the
    /// end moves; the worker is woken then.
    pub(super) fn take(&self, limit: impl Fn(usize) -> usize, until: impl Fn() -> Lsn) -> (Vec<Box<[u8]>>, u64) {
        let mut pieces = self.pieces.lock();
        // Read with the lock held: the task that moves it looks for the worker afterwards.
        let until = until().get();
        let (mut taken, mut bytes): (Vec<Box<[u8]>>, usize) = (Vec::new(), 0);
        let (mut first_us, mut last_us, mut bytes_max) = (0, 0, 0);
        while let Some(from) = pieces.from
            && let Some(next) = pieces.by_start.get(&from)
            && from.get() + next.records.len() as u64 <= until
            && (taken.is_empty()
                || bytes + next.records.len() <= bytes_max && next.time_us.abs_diff(first_us) <= JOINED_US)
        {
            let Some(Piece { records, time_us }) = pieces.by_start.remove(&from) else { break };
            if taken.is_empty() {
                (first_us, bytes_max) = (time_us, limit(records.len()));
            }
            last_us = time_us;
            bytes += records.len();
            pieces.from = Some(Lsn::new(from.get() + records.len() as u64));
            taken.push(records);
        }
        pieces.is_awaited = taken.is_empty();
        (taken, last_us)
    }

    /// The durable end, up to which the worker may take pieces, has moved.
    pub(super) fn durable_moved(&self) {
        let is_awaited = std::mem::take(&mut self.pieces.lock().is_awaited);
        if is_awaited {
            self.wake();
        }
    }

    /// Takes nothing any more, and holds up no append.
    pub(super) fn detach(&self) {
        *self.pieces.lock() = Pieces::default();
        self.trigger.store(NONE, Ordering::SeqCst);
        self.limit.store(NONE, Ordering::SeqCst);
        self.wake();
        self.progress.notify_all();
    }
}
