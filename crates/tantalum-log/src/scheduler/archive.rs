//! The archival worker ("FlashLogging", section 3.7, Figure 10): the whole log once more, a little behind its end, and
//! what its writes complete.
//!
//! Whoever takes a sealed group's bytes first, a device's writer or the worker, leaves a copy here; the worker joins what
//! follows its last write into the next. A group's own buffer is sized for the largest group, so small ones are copied
//! rather than held.
//!
//! An archive that is slow holds up checkpoints, and appends once so much is not archived that memory is at stake, or that
//! the archive might find no room for it before the next checkpoint. One that fails or hangs is set aside: then it holds up
//! nobody.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use tantalum_device::{Access, Device};
use tantalum_rt::{Condvar, Instant, Mutex, Parker, Unparker, now};

use super::turn::Waiter;
use super::{Scheduler, State, write_slots};
use crate::archive::{Archive, Archived, Batch, JOINED_US, Resume, Writer, device_bytes, prune};
use crate::group::{PREFIX_BYTES, Source};
use crate::stats::ArchiveStats;
use crate::time::wall_clock_us;
use crate::{ArchiveOptions, DeviceState, Error, Lsn, Result};

/// So much that is not archived makes a write worth its while, on a disk as well ("FlashLogging", section 3.7).
const EAGER_BYTES: u64 = 32 << 10;

/// An archive to be written to.
#[derive(Debug)]
pub(crate) struct StartArchive {
    pub(crate) writer: Writer,
    pub(crate) options: ArchiveOptions,
    /// Records below it may be in the archive only.
    pub(crate) only_here: Lsn,
    /// Why it cannot be used in this session.
    pub(crate) failure: Option<Error>,
}

/// What appends and writers share with the worker without the state's lock.
#[derive(Debug)]
pub(super) struct Feed {
    /// An append that reaches this LSN wakes the worker.
    trigger: AtomicU64,
    /// An append at or past this LSN finds the log full.
    limit: AtomicU64,
    pieces: Mutex<Pieces>,
    worker: Mutex<Option<Unparker>>,
    /// Notified when the archive got further, or was set aside.
    progress: Condvar,
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

/// The archive's part of the state.
#[derive(Debug)]
pub(super) struct Archiving {
    name: String,
    control: Arc<dyn Device>,
    state: DeviceState,
    options: ArchiveOptions,
    run_start: Lsn,
    /// The run is durable in the archive up to here.
    archived: Lsn,
    /// Somebody waits until it is.
    wanted: Lsn,
    /// No record at or past it is in the archive only.
    only_here: Lsn,
    /// Since when the worker is at a write.
    busy_since: Option<Instant>,
    /// Requests that were sealed and are not archived: their ends, and the bytes that each takes in the archive if it is
    /// written alone.
    behind: VecDeque<(Lsn, u64)>,
    /// The sum of those bytes.
    behind_bytes: u64,
    /// So many bytes of requests find room in the archive without a checkpoint.
    room_bytes: u64,
    /// What the largest request takes there.
    largest_bytes: u64,
    /// Percent of the segments that hold something behind the checkpoint; 0 in a directory, which has as many as needed.
    fill_percent: u64,
    writes: u64,
    bytes: u64,
    busy: Duration,
    completed: u64,
}

impl Default for Feed {
    fn default() -> Self {
        Feed {
            trigger: AtomicU64::new(u64::MAX),
            limit: AtomicU64::new(u64::MAX),
            pieces: Mutex::default(),
            worker: Mutex::default(),
            progress: Condvar::new(),
        }
    }
}

impl Feed {
    /// Wakes the worker if a record that ends at `end` makes a write due.
    pub(super) fn appended(&self, end: Lsn) {
        if self.limit.load(Ordering::Relaxed) == u64::MAX {
            return; // no archive; one that is attached right now looks for itself
        }
        // The append's bytes must be seen by a worker whose trigger is not seen here.
        fence(Ordering::SeqCst);
        if end.get() >= self.trigger.load(Ordering::Relaxed)
            && self.trigger.swap(u64::MAX, Ordering::Relaxed) != u64::MAX
        {
            self.wake();
        }
    }

    /// Whether too much is not archived to append more at the log's end, which is asked for only if there is an archive.
    pub(super) fn is_behind(&self, end: impl FnOnce() -> Lsn) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        limit != u64::MAX && end().get() >= limit
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

    fn wake(&self) {
        if let Some(worker) = &*self.worker.lock() {
            worker.unpark();
        }
    }

    /// Takes what follows what was taken before, of about the same time, up to where `until` says and so many bytes as `limit`
    /// says of those of the first piece, and returns the time of the last with it. Empty if a writer is about to leave the next
    /// piece, or the end moves; whoever does it wakes the worker then.
    fn take(&self, limit: impl Fn(usize) -> usize, until: impl Fn() -> Lsn) -> (Vec<Box<[u8]>>, u64) {
        let mut pieces = self.pieces.lock();
        // Read with the lock held: whoever moves it looks for the worker afterwards.
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

    /// What the worker may take has grown.
    pub(super) fn durable_moved(&self) {
        let is_awaited = std::mem::take(&mut self.pieces.lock().is_awaited);
        if is_awaited {
            self.wake();
        }
    }

    /// Wants nothing any more, and holds up nobody.
    fn end(&self) {
        *self.pieces.lock() = Pieces::default();
        self.trigger.store(u64::MAX, Ordering::SeqCst);
        self.limit.store(u64::MAX, Ordering::SeqCst);
        self.wake();
        self.progress.notify_all();
    }
}

impl Archiving {
    /// Of a log whose requests have `max_payload_bytes` of records at most.
    pub(super) fn new(start: &StartArchive, feed: &Feed, max_payload_bytes: usize, checkpoint: Lsn) -> Archiving {
        let archived = start.writer.end();
        let state = match &start.failure {
            None => DeviceState::Healthy,
            Some(error) => DeviceState::SetAside { cause: error.clone() },
        };
        let largest_bytes = device_bytes(max_payload_bytes);
        let archiving = Archiving {
            name: start.writer.store().name().into(),
            control: Arc::clone(start.writer.store().control()),
            state,
            options: start.options.clone(),
            run_start: start.writer.run_start(),
            archived,
            wanted: archived,
            only_here: start.only_here,
            busy_since: None,
            behind: VecDeque::new(),
            behind_bytes: 0,
            room_bytes: start.writer.room_bytes(checkpoint, largest_bytes),
            largest_bytes,
            fill_percent: start.writer.fill_percent(checkpoint),
            writes: 0,
            bytes: 0,
            busy: Duration::ZERO,
            completed: 0,
        };
        if archiving.is_healthy() {
            feed.pieces.lock().from = Some(archived);
            feed.limit.store(archiving.limit(), Ordering::SeqCst);
        }
        archiving
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.state.is_healthy()
    }

    /// Whether a checkpoint should make room.
    pub(super) fn is_pressed(&self) -> bool {
        self.is_healthy() && (self.fill_percent > 50 || !self.has_room())
    }

    /// Whether the active group may be filled. What is appended must find room without a checkpoint, which itself waits for the
    /// archive; and in the next session, too.
    fn has_room(&self) -> bool {
        self.behind_bytes + self.largest_bytes <= self.room_bytes
    }

    /// Where appends must stop.
    fn limit(&self) -> u64 {
        match self.has_room() {
            true => self.archived.get().saturating_add(self.options.lag_bytes),
            false => self.archived.get(),
        }
    }

    /// Takes note that the archive has everything before `end`.
    fn advance(&mut self, end: Lsn) {
        self.archived = end;
        while let Some(&(_, bytes)) = self.behind.front().filter(|(behind, _)| *behind <= end) {
            self.behind_bytes -= bytes;
            self.behind.pop_front();
        }
    }

    /// Whether the log could not be opened without the archive once `checkpoint` is durable.
    pub(super) fn is_needed(&self, checkpoint: Lsn, completes: bool) -> bool {
        self.only_here > checkpoint || self.is_healthy() && completes
    }

    /// Where the run starts.
    pub(super) fn run_start(&self) -> Lsn {
        self.run_start
    }

    fn stats(&self, end: Lsn) -> ArchiveStats {
        ArchiveStats {
            name: self.name.clone(),
            state: self.state.clone(),
            run_start_lsn: self.run_start,
            archived_lsn: self.archived,
            behind_bytes: end.bytes_since(self.archived),
            writes: self.writes,
            bytes: self.bytes,
            busy: self.busy,
            completed: self.completed,
        }
    }
}

/// What the worker does next.
enum Step {
    Write,
    Sleep(Option<Duration>),
    End,
}

impl Scheduler {
    /// Whether the archive takes only what is durable without it, so that it never has what the devices may not have. As none
    /// of two copies it must, that a loss of it costs nothing; and with an array, of which nothing behind a torn request is
    /// read: were that request durable in the archive only, what follows it would be lost.
    pub(super) fn archive_follows(&self) -> bool {
        self.is_mirrored() || self.is_striped()
    }

    /// The archival worker. Ends with the log, or when the archive is set aside.
    pub(crate) fn run_archive(&self, mut writer: Writer) {
        let parker = Parker::new();
        *self.feed.worker.lock() = Some(parker.unparker());
        // A run begins where the log is durable: so its writes make durable what follows, without a gap.
        if self.flush(writer.end()).is_err() {
            return;
        }
        let mut waiting_since = None;
        loop {
            match self.next_step(&writer, &mut waiting_since) {
                Step::End => return,
                Step::Sleep(None) => parker.park(),
                Step::Sleep(Some(rest)) => drop(parker.park_timeout(rest)),
                Step::Write => {
                    let until = || if self.archive_follows() { self.durable() } else { Lsn::new(u64::MAX) };
                    let (pieces, time_us) = self.feed.take(|first| writer.payload_limit(first), until);
                    if pieces.is_empty() {
                        parker.park();
                        continue;
                    }
                    if !self.archive(&mut writer, &pieces, time_us) {
                        return;
                    }
                    waiting_since = None;
                }
            }
        }
    }

    /// Archives from now on; what was appended before is not in the archive. Returns what [`run_archive`](Self::run_archive)
    /// needs.
    pub(crate) fn attach_archive(&self, options: &ArchiveOptions) -> Result<Writer> {
        let archive = match Archive::find(options, Access::ReadWrite)? {
            Some(archive) if archive.log_id() != self.log_id => return Err(archive.foreign(self.log_id)),
            Some(archive) => {
                // From an earlier session, which must not look like what it has come to when its new run is known.
                let control = Arc::clone(archive.store.control());
                let outcomes = write_slots(&[control], self.slots.lock().current(), self.options.hang_timeout);
                outcomes.into_iter().try_for_each(|outcome| outcome.result)?;
                archive
            }
            None => Archive::create(options, self.log_id)?,
        };
        let next_number = archive.next_number()?;
        let mut state = self.lock();
        state.check_running()?;
        let checkpoint = state.checkpoint;
        match &state.archive {
            Some(archive) if archive.is_healthy() => return Err(Error::ArchiveInUse { archive: archive.name.clone() }),
            Some(archive) if archive.only_here > checkpoint => {
                return Err(Error::ArchiveNeeded { archive: archive.name.clone(), until: archive.only_here });
            }
            _ => {}
        }
        self.seal(&mut state);
        let end = state.sealed_end;
        let used = Default::default();
        let resume = Resume { epoch: self.epoch, next_number, next_sequence: 0, end, run_start: end, used };
        let start = StartArchive {
            writer: Writer::new(archive.store, resume),
            options: options.clone(),
            only_here: Lsn::ZERO,
            failure: None,
        };
        start.writer.check_takes(self.max_payload_bytes)?;
        state.archive = Some(Archiving::new(&start, &self.feed, self.max_payload_bytes, checkpoint));
        self.summon(&mut state);
        drop(state);
        // Before it completes anything: a log that is opened must know that it needs the archive.
        self.refresh_slot()?;
        match &self.lock().archive {
            Some(Archiving { state: DeviceState::SetAside { cause }, .. }) => Err(cause.clone()),
            _ => Ok(start.writer),
        }
    }

    /// Decides whether something is to be archived now, and then seals it.
    fn next_step(&self, writer: &Writer, waiting_since: &mut Option<Instant>) -> Step {
        let mut state = self.lock();
        self.update_archive(&mut state, writer);
        let Some(archive) = self.running_archive(&mut state) else { return Step::End };
        let (archived, wanted, delay) = (archive.archived, archive.wanted, archive.options.delay);
        let behind = self.end().bytes_since(archived);
        let since = *waiting_since.get_or_insert_with(now);
        let is_late = behind > 0 && since.elapsed() >= delay;
        if behind >= EAGER_BYTES || wanted > archived || is_late {
            self.seal(&mut state);
            self.feed_queue(&mut state);
            self.summon(&mut state);
            return Step::Write;
        }
        drop(state);
        let wake_at = archived.get() + if behind == 0 { 1 } else { EAGER_BYTES };
        self.feed.trigger.store(wake_at, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if self.end().get() >= wake_at {
            return Step::Sleep(Some(Duration::ZERO));
        }
        if behind == 0 {
            *waiting_since = None;
            return Step::Sleep(None);
        }
        Step::Sleep(Some(delay - since.elapsed().min(delay)))
    }

    /// Copies what no device's writer has taken. Waits for appends that are copying their bytes, microseconds at most.
    fn feed_queue(&self, state: &mut State) {
        for request in &mut state.queue {
            if let Source::Sealed(group) = &request.source {
                let bytes = request.end.bytes_since(request.start) as usize;
                let buffer = group.records.take();
                self.feed.give(request.start, &buffer[PREFIX_BYTES..PREFIX_BYTES + bytes], wall_clock_us());
                request.source = Source::Taken(buffer);
            }
        }
    }

    /// Writes pieces to the archive. False if it is set aside, or the log ended.
    fn archive(&self, writer: &mut Writer, pieces: &[Box<[u8]>], time_us: u64) -> bool {
        let payload_bytes: usize = pieces.iter().map(|piece| piece.len()).sum();
        let started = now();
        let mut state = self.lock();
        let checkpoint = state.checkpoint;
        let Some(archive) = self.running_archive(&mut state) else { return false };
        archive.busy_since = Some(started);
        let options = archive.options.clone();
        drop(state);
        let batch = Batch { pieces, durable: self.durable(), time_us };
        let number = writer.next_number();
        let mut result = writer.append(&batch, checkpoint, self.options.hang_timeout);
        if writer.next_number() > number {
            // An archive that cannot be kept within its bounds would fill the disk.
            result = result.and_then(|archived| prune(&**writer.store(), &options, checkpoint).map(|()| archived));
        }
        let mut state = self.lock();
        let Some(archive) = self.running_archive(&mut state) else { return false };
        archive.busy_since = None;
        archive.busy += started.elapsed();
        match result {
            Ok(archived) => {
                archive.writes += 1;
                archive.bytes += payload_bytes as u64;
                let woken = self.complete_range(&mut state, &archived);
                self.update_archive(&mut state, writer);
                self.summon(&mut state);
                drop(state);
                woken.iter().for_each(|waiter| waiter.wake_done());
                true
            }
            Err(error) => {
                self.set_archive_aside(&mut state, error);
                self.summon(&mut state);
                false
            }
        }
    }

    /// Takes note that the archive has the log up to `archived`: unless two devices are to have them, the requests before need
    /// no device any more. Returns those who waited for what this made durable.
    fn complete_range(&self, state: &mut State, archived: &Archived) -> Vec<Arc<Waiter>> {
        let end = archived.end();
        let durable = self.durable();
        let archive = state.archive.as_mut().expect("only an archive archives");
        assert!(archive.archived < end && end <= state.sealed_end, "the archive follows what was sealed");
        assert!(archive.archived <= durable, "a run starts where the log is durable, and its writes make it so");
        archive.advance(end);
        if self.archive_follows() {
            assert!(end <= durable, "what is mirrored is archived when it is durable");
            self.feed.progress.notify_all();
            return Vec::new();
        }
        let mut released = 0;
        while state.queue.front().is_some_and(|request| request.end <= end) {
            let request = state.queue.pop_front().expect("the queue has a front");
            assert!(request.start >= archive.run_start, "what is older is durable on the devices");
            released += request.charge();
            archive.completed += 1;
        }
        if end > durable {
            // What devices are still writing counts too: a power cut may take it.
            archive.only_here = end;
        }
        assert!(state.queue.front().is_none_or(|request| request.start >= end), "a request is archived as a whole");
        self.rebalance(state, released);
        self.feed.progress.notify_all();
        self.advance_durable(state, end)
    }

    /// Takes note of how full the archive is, and moves the bound on appends.
    fn update_archive(&self, state: &mut State, writer: &Writer) {
        let checkpoint = state.checkpoint;
        let Some(archive) = self.running_archive(state) else { return };
        archive.fill_percent = writer.fill_percent(checkpoint);
        archive.room_bytes = writer.room_bytes(checkpoint, archive.largest_bytes);
        let (is_pressed, limit) = (archive.is_pressed(), archive.limit());
        if self.feed.limit.swap(limit, Ordering::SeqCst) < limit {
            self.serve_space(state);
        }
        if is_pressed {
            self.pressure.notify_all();
        }
    }

    /// Takes note of a request that the archive is to get, before the next group is there to be filled.
    pub(super) fn request_sealed(&self, state: &mut State, end: Lsn, payload_bytes: usize) {
        let Some(archive) = self.running_archive(state) else { return };
        let bytes = device_bytes(payload_bytes);
        assert!(bytes <= archive.largest_bytes, "no request is larger than the largest");
        archive.behind.push_back((end, bytes));
        archive.behind_bytes += bytes;
        let is_pressed = archive.is_pressed();
        self.feed.limit.store(archive.limit(), Ordering::SeqCst);
        if is_pressed {
            self.pressure.notify_all();
        }
    }

    /// The archive, while it and the log go on.
    fn running_archive<'a>(&self, state: &'a mut State) -> Option<&'a mut Archiving> {
        let ends = state.stopping || state.failure.is_some();
        state.archive.as_mut().filter(|archive| archive.is_healthy() && !ends)
    }

    /// Archives nothing more in this session, because the archive failed or hung.
    pub(super) fn set_archive_aside(&self, state: &mut State, error: Error) {
        let checkpoint = state.checkpoint;
        let Some(archive) = &mut state.archive else { return };
        if !archive.is_healthy() {
            return;
        }
        archive.state = DeviceState::SetAside { cause: error };
        if archive.only_here > checkpoint {
            state.aside_is_needed = true;
        }
        self.feed.end();
        self.serve_space(state);
        self.pressure.notify_all();
    }

    /// Blocks until the archive has everything before `lsn`, if there is one that works. What is asked for must be
    /// appended.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Closed`]: the log ended before a working archive had it, and the worker with the log.
    pub(crate) fn wait_archived(&self, lsn: Lsn) -> Result<()> {
        let mut state = self.lock();
        loop {
            let lacks_it = |archive: &Archiving| archive.is_healthy() && archive.archived < lsn;
            if !state.archive.as_ref().is_some_and(lacks_it) {
                return Ok(());
            }
            state.check_failure()?;
            if state.stopping {
                return Err(Error::Closed);
            }
            self.check_archive_hung(&mut state);
            let Some(archive) = self.running_archive(&mut state) else { continue };
            if archive.wanted < lsn {
                archive.wanted = lsn;
                self.feed.wake();
            }
            self.feed.progress.wait_for(&mut state, self.options.hang_timeout);
        }
    }

    /// Sets the archive aside if the worker does not come back from it: making files and removing them has no time-out of its
    /// own.
    pub(super) fn check_archive_hung(&self, state: &mut State) {
        let timeout = 2 * self.options.hang_timeout;
        let Some(archive) = &state.archive else { return };
        if archive.is_healthy() && archive.busy_since.is_some_and(|since| since.elapsed() > timeout) {
            let (device, bytes) = (archive.name.clone(), 0);
            self.set_archive_aside(state, Error::DeviceHung { device, offset: 0, bytes, timeout });
        }
    }

    /// Everything before it is durable in the archive; `None` without one that works.
    pub(crate) fn archived(&self) -> Option<Lsn> {
        self.lock().archive.as_ref().filter(|archive| archive.is_healthy()).map(|archive| archive.archived)
    }

    pub(super) fn wake_archive(&self) {
        self.feed.wake();
        self.feed.progress.notify_all();
    }
}

impl State {
    /// Whether there is an archive that works.
    pub(super) fn has_archive(&self) -> bool {
        self.archive.as_ref().is_some_and(Archiving::is_healthy)
    }

    /// Where a slot is to be written beside the log's devices.
    pub(super) fn archive_control(&self) -> Option<Arc<dyn Device>> {
        self.archive.as_ref().filter(|archive| archive.is_healthy()).map(|archive| Arc::clone(&archive.control))
    }

    pub(super) fn archive_stats(&self, end: Lsn) -> Option<ArchiveStats> {
        self.archive.as_ref().map(|archive| archive.stats(end))
    }
}
