//! The archival worker ("FlashLogging", section 3.7, Figure 10): it writes the whole log once more, a little behind its end,
//! and its writes complete requests.
//!
//! A slow archive holds up checkpoints, and appends once so much is not archived that memory is at stake, or that the archive
//! might find no room for it before the next checkpoint. An archive that fails or hangs is set aside and holds up nothing.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Access, Device};
use tantalum_rt::{Instant, Parker, now};

use super::archive_feed::ArchiveFeed;
use super::group_commit::Waiter;
use super::{Scheduler, State, write_slots};
use crate::archive::{Archive, Archived, Batch, Resume, Writer, device_bytes, prune};
use crate::format::wall_clock_us;
use crate::group::{PREFIX_BYTES, Source};
use crate::stats::{ArchiveStats, micros};
use crate::{ArchiveOptions, ArchiveTarget, Error, ErrorKind, Lsn, Result, error};

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

/// How far the log is archived, and what the archive can take. Guarded by the state's lock.
///
/// Invariants: the archive has a run of the log without a gap, from `run_start` to `archived`; it is never ahead of what was
/// sealed; and what is not archived finds room in it without a checkpoint, which itself waits for the archive.
#[derive(Debug)]
pub(super) struct ArchiveProgress {
    name: String,
    control: Arc<dyn Device>,
    /// Why it gets nothing more in this session.
    set_aside: Option<Error>,
    options: ArchiveOptions,
    run_start: Lsn,
    /// The run is durable in the archive up to here.
    archived: Lsn,
    /// A task waits until the archive has the log up to here.
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

impl ArchiveProgress {
    /// Of a log whose requests have `max_payload_bytes` of records at most.
    pub(super) fn new(
        start: &StartArchive,
        feed: &ArchiveFeed,
        max_payload_bytes: usize,
        checkpoint: Lsn,
    ) -> ArchiveProgress {
        let archived = start.writer.end();
        let largest_bytes = device_bytes(max_payload_bytes);
        let archiving = ArchiveProgress {
            name: start.writer.store().name().into(),
            control: Arc::clone(start.writer.store().control()),
            set_aside: start.failure.clone(),
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
            feed.attach(archived, archiving.limit());
        }
        archiving
    }

    pub(super) fn is_healthy(&self) -> bool {
        self.set_aside.is_none()
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

    /// Where it lies.
    pub(super) fn target(&self) -> &ArchiveTarget {
        &self.options.target
    }

    /// Where the run starts.
    pub(super) fn run_start(&self) -> Lsn {
        self.run_start
    }

    fn stats(&self, end: Lsn) -> ArchiveStats {
        ArchiveStats {
            name: self.name.clone(),
            set_aside: self.set_aside.clone(),
            run_start_lsn: self.run_start,
            archived_lsn: self.archived,
            behind_bytes: end.bytes_since(self.archived),
            writes: self.writes,
            bytes: self.bytes,
            busy_us: micros(self.busy),
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
        self.feed.set_worker(parker.unparker());
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
            Some(archive) if archive.is_healthy() => {
                return Err(Error::new(
                    ErrorKind::InUse,
                    format!("the log is archived in {} already; a log has one archive at a time", archive.name),
                ));
            }
            Some(archive) if archive.only_here > checkpoint => {
                return Err(Error::new(
                    ErrorKind::InUse,
                    format!(
                        "{}: the archive was set aside and holds records up to LSN {} that are nowhere else; make a checkpoint first",
                        archive.name, archive.only_here
                    ),
                ));
            }
            _ => {}
        }
        self.seal(&mut state);
        let end = state.commits.sealed_end;
        let used = Default::default();
        let resume = Resume { epoch: self.epoch, next_number, next_sequence: 0, end, run_start: end, used };
        let start = StartArchive {
            writer: Writer::new(archive.store, resume),
            options: options.clone(),
            only_here: Lsn::ZERO,
            failure: None,
        };
        start.writer.check_takes(self.max_payload_bytes)?;
        state.archive = Some(ArchiveProgress::new(&start, &self.feed, self.max_payload_bytes, checkpoint));
        self.wake_writers(&mut state);
        drop(state);
        // Before it completes anything: a log that is opened must know that it needs the archive.
        self.refresh_slot()?;
        match &self.lock().archive {
            Some(ArchiveProgress { set_aside: Some(cause), .. }) => Err(cause.clone()),
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
            self.wake_writers(&mut state);
            return Step::Write;
        }
        drop(state);
        let wake_at = archived.get() + if behind == 0 { 1 } else { EAGER_BYTES };
        self.feed.set_trigger(wake_at);
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
        for request in &mut state.commits.queue {
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
                self.wake_writers(&mut state);
                drop(state);
                woken.iter().for_each(|waiter| waiter.wake_done());
                true
            }
            Err(error) => {
                self.set_archive_aside(&mut state, error);
                self.wake_writers(&mut state);
                false
            }
        }
    }

    /// Takes note that the archive has the log up to `archived`: unless two devices are to have them, the requests before need
    /// no device any more. Returns the tasks that waited for what this made durable.
    fn complete_range(&self, state: &mut State, archived: &Archived) -> Vec<Arc<Waiter>> {
        let end = archived.end();
        let durable = self.durable();
        let archive = state.archive.as_mut().expect("only an archive archives");
        assert!(archive.archived < end && end <= state.commits.sealed_end, "the archive follows what was sealed");
        assert!(archive.archived <= durable, "a run starts where the log is durable, and its writes make it so");
        archive.advance(end);
        if self.archive_follows() {
            assert!(end <= durable, "what is mirrored is archived when it is durable");
            self.feed.progress.notify_all();
            return Vec::new();
        }
        let mut released = 0;
        while state.commits.queue.front().is_some_and(|request| request.end <= end) {
            let request = state.commits.queue.pop_front().expect("the queue has a front");
            assert!(request.start >= archive.run_start, "what is older is durable on the devices");
            released += request.charge();
            archive.completed += 1;
        }
        if end > durable {
            // What devices are still writing counts too: a power cut may take it.
            archive.only_here = end;
        }
        assert!(
            state.commits.queue.front().is_none_or(|request| request.start >= end),
            "a request is archived as a whole"
        );
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
        if self.feed.set_limit(limit) {
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
        self.feed.set_limit(archive.limit());
        if is_pressed {
            self.pressure.notify_all();
        }
    }

    /// The archive, while it and the log go on.
    fn running_archive<'a>(&self, state: &'a mut State) -> Option<&'a mut ArchiveProgress> {
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
        archive.set_aside = Some(error);
        if archive.only_here > checkpoint {
            state.membership.aside_is_needed = true;
        }
        self.feed.detach();
        self.serve_space(state);
        self.pressure.notify_all();
    }

    /// Blocks until the archive has everything before `lsn`, if there is one that works. What is asked for must be
    /// appended.
    ///
    /// # Errors
    /// [`ErrorKind::Poisoned`], [`ErrorKind::Closed`]: the log ended before a working archive had it, and the worker with the
    /// log.
    pub(crate) fn wait_archived(&self, lsn: Lsn) -> Result<()> {
        let mut state = self.lock();
        loop {
            let lacks_it = |archive: &ArchiveProgress| archive.is_healthy() && archive.archived < lsn;
            if !state.archive.as_ref().is_some_and(lacks_it) {
                return Ok(());
            }
            state.check_failure()?;
            if state.stopping {
                return Err(error::closed());
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
            let hung = error::device_hung(&archive.name, 0, 0, timeout);
            self.set_archive_aside(state, hung);
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
        self.archive.as_ref().is_some_and(ArchiveProgress::is_healthy)
    }

    /// Where a slot is to be written beside the log's devices.
    pub(super) fn archive_control(&self) -> Option<Arc<dyn Device>> {
        self.archive.as_ref().filter(|archive| archive.is_healthy()).map(|archive| Arc::clone(&archive.control))
    }

    pub(super) fn archive_stats(&self, end: Lsn) -> Option<ArchiveStats> {
        self.archive.as_ref().map(|archive| archive.stats(end))
    }
}
