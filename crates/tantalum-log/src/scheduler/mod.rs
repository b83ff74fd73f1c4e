//! The scheduler: which records become a request, which device takes it, and which tasks wait for it ("FlashLogging",
//! section 3.5).
//!
//! A commit appends ([`mod@append`]), then flushes: its task writes a request itself if a device is idle, and otherwise
//! sleeps until its records are durable or it is woken to write ([`mod@flush`], [`mod@write`]). One lock guards the state,
//! whose parts keep their own invariants:
//!
//! - [`GroupCommit`]: the requests, how far they are complete, and the tasks that wait for them;
//! - [`Placement`]: the devices and what is under way on them; [`Mirror`] where two copies are kept;
//! - [`Outliers`]: the late writes;
//! - [`Membership`]: which devices belong to the log;
//! - [`Admission`]: what appends may take, and when a checkpoint is due;
//! - [`Growth`]: whether the log is too small;
//! - [`ArchiveProgress`]: how far the log is archived.
//!
//! Invariant: the state's lock is never held during I/O, and no lock is taken while it is held but the active group's and the
//! pool's.

mod adaptive;
mod admission;
mod append;
mod archive_feed;
mod archiver;
mod flush;
mod follow;
mod group_commit;
mod group_delay;
mod growth;
mod hiding;
mod membership;
mod mirror;
mod placement;
mod shrinking;
mod slots;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tantalum_rt::{Condvar, Mutex, MutexGuard, RwLock};

use admission::Admission;
pub use admission::SpaceRequest;
use archive_feed::ArchiveFeed;
use archiver::ArchiveProgress;
pub(crate) use archiver::StartArchive;
use group_commit::GroupCommit;
use group_delay::GroupDelay;
use growth::Growth;
use hiding::Outliers;
use membership::Membership;
pub(crate) use mirror::COPIES;
use mirror::Mirror;
use placement::Placement;
pub(crate) use slots::{SlotWriter, write_slots};

use crate::format::request::FRAME_BYTES;
use crate::group::{Group, Pool};
use crate::layout::Layout;
use crate::log_device::LogDevice;
use crate::space::{self, Space};
use crate::{Error, Hiding, LogLayout, LogOptions, LogStats, Lsn, Result, error};

/// A running log: what its handles, tickets and workers share.
pub(crate) struct Scheduler {
    pub(crate) log_id: u128,
    pub(crate) epoch: u64,
    options: LogOptions,
    max_payload_bytes: usize,
    /// Record bytes that the largest request has at present. Written only under the state's lock, and lowered only when the log shrinks.
    request_payload: AtomicUsize,
    /// Whether it is the devices that allow no more.
    devices_bound_records: bool,
    /// Whether the devices stand on more than one piece of hardware, so that a write can move to another.
    can_give_up: AtomicBool,
    layout: LogLayout,
    /// The group that appends add to. Replaced only under the state's lock.
    active: RwLock<Arc<Group>>,
    /// The durable end of the log. Written only under the state's lock.
    durable: AtomicU64,
    /// Set once the log is poisoned or closed, so that appends need no lock to know.
    stopped: AtomicBool,
    records: AtomicU64,
    pub(crate) space: Space,
    pool: Pool,
    delay: GroupDelay,
    state: Mutex<State>,
    /// Notified when the owner should checkpoint.
    pressure: Condvar,
    feed: ArchiveFeed,
    /// Serializes slot writes, which take long; never wanted while the state is locked.
    slots: Mutex<SlotWriter>,
    /// Held while devices join or leave.
    change: Mutex<()>,
    /// Notified when devices that leave may have come nearer to it.
    leaving: Condvar,
    /// Notified when the log should grow, has grown, or could not.
    growing: Condvar,
    /// Notified when more is durable, if readers wait for it.
    followed: Condvar,
}

/// What the state's lock guards.
struct State {
    commits: GroupCommit,
    placement: Placement,
    outliers: Outliers,
    membership: Membership,
    admission: Admission,
    growth: Growth,
    archive: Option<ArchiveProgress>,
    checkpoint: Lsn,
    /// Readers that wait until more is durable.
    followers: usize,
    /// Why the log is poisoned.
    failure: Option<Error>,
    closed: bool,
    /// The workers are to end.
    stopping: bool,
}

/// What recovery hands over to start a log.
pub(crate) struct Start {
    pub(crate) log_id: u128,
    pub(crate) layout: LogLayout,
    pub(crate) epoch: u64,
    pub(crate) end: Lsn,
    pub(crate) devices: Vec<LogDevice>,
    pub(crate) slots: SlotWriter,
    pub(crate) options: LogOptions,
}

impl Scheduler {
    /// A log that appends at `start.end`, where everything before is durable.
    pub(crate) fn new(start: Start, archive: Option<&StartArchive>) -> Scheduler {
        let of_devices = start.devices.iter().map(|device| device.main.layout.max_payload_bytes()).min().unwrap_or(0);
        let of_archive = archive.map_or(usize::MAX, |archive| archive.writer.max_payload_bytes());
        // A record must be admitted to an empty log, whatever the options say.
        let of_buffer = start.options.buffer_bytes.min(space::MAX_BUFFERED_BYTES as usize / 4);
        let grown = |device: &LogDevice| {
            let bytes = start.options.grown_bytes.get(device.device().name()).copied();
            device.main.layout.max_payload_bytes().max(bytes.map_or(0, Layout::default_payload_bytes))
        };
        let of_grown = start.devices.iter().map(grown).min().unwrap_or(0);
        let max_payload_bytes = of_buffer.min(of_grown).min(of_archive);
        let request_payload = max_payload_bytes.min(of_devices);
        let depth: usize = start.devices.iter().map(|device| device.main.layout.depth).sum();
        let pool = Pool::new(max_payload_bytes, 2 * depth * usize::from(start.options.copies) + 2);
        let active = pool.group(start.end, request_payload);
        let feed = ArchiveFeed::default();
        // The devices of an array are one device here; the slots list them all, and go on to.
        let listed = match start.layout {
            LogLayout::FlashLogging | LogLayout::Single => start.slots.members(),
            LogLayout::Striped { .. } => start.devices.iter().map(LogDevice::listed).collect(),
        };
        let mut devices = start.devices;
        devices.iter_mut().for_each(|device| device.main.reserve = mirror::reserve(&start.options));
        // Otherwise commits share the next request until a device is free.
        if start.options.request_per_flush {
            devices.iter_mut().for_each(LogDevice::look_ahead);
        }
        let mirror = (start.options.copies > 1).then(|| Mirror::new(start.slots.mirrored_from()));
        let placement = Placement::new(devices, mirror);
        let checkpoint = start.slots.checkpoint();
        let archive = archive.map(|archive| ArchiveProgress::new(archive, &feed, max_payload_bytes, checkpoint));
        let state = State {
            commits: GroupCommit::new(start.end),
            outliers: Outliers::new(),
            membership: Membership::new(listed, placement.set_aside > 0),
            placement,
            admission: Admission::default(),
            growth: Growth::new(!start.options.grown_bytes.is_empty()),
            archive,
            checkpoint,
            followers: 0,
            failure: None,
            closed: false,
            stopping: false,
        };
        let scheduler = Scheduler {
            log_id: start.log_id,
            epoch: start.epoch,
            options: start.options,
            max_payload_bytes,
            request_payload: AtomicUsize::new(request_payload),
            devices_bound_records: of_grown < of_buffer.min(of_archive),
            can_give_up: AtomicBool::new(state.placement.has_other_hardware()),
            layout: start.layout,
            active: RwLock::new(active),
            durable: AtomicU64::new(start.end.get()),
            stopped: AtomicBool::new(false),
            records: AtomicU64::new(0),
            space: Space::default(),
            pool,
            delay: GroupDelay::default(),
            state: Mutex::new(state),
            pressure: Condvar::new(),
            feed,
            slots: Mutex::new(start.slots),
            change: Mutex::new(()),
            leaving: Condvar::new(),
            growing: Condvar::new(),
            followed: Condvar::new(),
        };
        let mut state = scheduler.state.lock();
        scheduler.settle_pairs(&mut state);
        scheduler.rebalance(&mut state, 0);
        drop(state);
        scheduler
    }

    pub(crate) fn layout(&self) -> LogLayout {
        self.layout
    }

    pub(crate) fn max_record_bytes(&self) -> usize {
        self.max_payload_bytes - FRAME_BYTES
    }

    pub(crate) fn devices_bound_records(&self) -> bool {
        self.devices_bound_records
    }

    pub(crate) fn durable(&self) -> Lsn {
        Lsn::new(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn end(&self) -> Lsn {
        self.active.read().end()
    }

    pub(crate) fn checkpoint(&self) -> Lsn {
        self.lock().checkpoint
    }

    /// Ends the workers. Records that no task waits for are no longer written.
    pub(crate) fn stop_workers(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.wake_followers(&state);
        self.wake_archive();
        state.commits.wake_workers();
    }

    /// Refuses appends from now on and makes durable what was appended. False if the log was closed before.
    pub(crate) fn close(&self) -> Result<bool> {
        let mut state = self.lock();
        state.check_failure()?;
        if state.closed {
            return Ok(false);
        }
        state.closed = true;
        self.stopped.store(true, Ordering::Release);
        self.wake_followers(&state);
        // With `closed` set no new group follows: an append finds the old one sealed, and the log closed.
        self.seal(&mut state);
        let end = state.commits.sealed_end;
        assert_eq!(end, self.active.read().end(), "a closed log has one end");
        self.wake_writers(&mut state);
        self.leaving.notify_all();
        self.growing.notify_all();
        drop(state);
        self.flush(end)?;
        Ok(true)
    }

    /// Guards work that a panic must not leave half done; `what` completes "a panic while ...".
    pub(crate) fn poison_unless_ended(&self, what: &'static str) -> PoisonGuard<'_> {
        PoisonGuard { scheduler: self, what }
    }

    /// Stops the log; see [`Log::poison`](crate::Log::poison).
    pub(crate) fn stop(&self, what: String) {
        self.poison(&mut self.lock(), error::interrupted(what));
    }

    /// Stops the log for good: every waiter and every later call gets the first cause.
    fn poison(&self, state: &mut State, cause: Error) {
        if state.failure.is_some() {
            return;
        }
        state.failure = Some(error::poisoned(cause));
        self.stopped.store(true, Ordering::Release);
        state.commits.wake_waiters();
        state.admission.wake_all();
        self.wake_followers(state);
        self.pressure.notify_all();
        self.wake_archive();
        self.leaving.notify_all();
        self.growing.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn stats(&self) -> LogStats {
        let end_lsn = self.end();
        let records = self.records.load(Ordering::Relaxed);
        let mut state = self.lock();
        let State { membership, placement, .. } = &mut *state;
        let devices = membership.stats(placement);
        let healthy = state.placement.devices.iter().filter(|device| device.is_healthy());
        let capacity = |device: &LogDevice| device.main.layout.section_bytes * device.main.layout.section_count;
        let mut hiding = state.membership.hidden_by_departed;
        state.placement.devices.iter().for_each(|device| hiding.add(&device.hidden));
        let mirror = state.placement.mirror.as_ref();
        let mirrored_from_lsn = mirror.and_then(Mirror::from);
        let GroupCommit { requests, request_bytes, flush_waits, .. } = state.commits;
        LogStats {
            devices,
            hiding,
            hides: self.can_give_up() && self.options.hiding != Hiding::Off && state.outliers.adaptive.is_on(),
            hiding_breaks: state.outliers.adaptive.breaks,
            requests,
            request_bytes,
            mean_group_bytes: request_bytes.checked_div(requests).unwrap_or(0),
            records,
            flush_waits,
            reissued: state.placement.reissued,
            copies: self.options.copies,
            keeps_copies: mirror.is_none() || mirrored_from_lsn.is_some(),
            may_lose_a_device: mirrored_from_lsn.is_some_and(|from| from <= state.checkpoint),
            single_copies: mirror.map_or(0, Mirror::single),
            mirrored_from_lsn,
            used_bytes: healthy.clone().map(|device| device.main.used_bytes()).sum(),
            capacity_bytes: healthy.map(capacity).sum(),
            checkpoint_lsn: state.checkpoint,
            durable_lsn: self.durable(),
            end_lsn,
            epoch: self.epoch,
            archive: state.archive_stats(end_lsn),
        }
    }
}

impl State {
    fn check_running(&self) -> Result<()> {
        match &self.failure {
            Some(failure) => Err(failure.clone()),
            None if self.closed => Err(error::closed()),
            None => Ok(()),
        }
    }

    fn check_failure(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.clone()))
    }
}

/// Work that a panic must not leave half done: then the log is poisoned.
///
/// There are such guards around an append, whose reserved range and charge belong together; around the slow path of a flush,
/// which seals requests, gives them to devices and takes note of their ends; and around all that workers and the archiver do.
#[must_use = "dropping it poisons the log"]
pub(crate) struct PoisonGuard<'s> {
    scheduler: &'s Scheduler,
    what: &'static str,
}

impl PoisonGuard<'_> {
    /// The work has come to its end.
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for PoisonGuard<'_> {
    fn drop(&mut self) {
        self.scheduler.stop(format!("a panic while {}", self.what));
    }
}
