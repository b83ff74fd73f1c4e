//! Who writes what where, and who waits for it ("FlashLogging", section 3.5).
//!
//! There is no timer and no dedicated writer: a thread that needs its records durable takes a device that is free,
//! makes one request of all that gathered since the last, and writes it; if no device is free it waits, and is woken
//! when its records are durable or when it is its turn to write. Workers do the same for those who do not wait, and
//! hide what devices are late with ([`hiding`]).
//!
//! Invariants, asserted as they are kept:
//! - requests tile the log: each starts where the one before ended;
//! - the durable end only grows, and everything before it is in completed requests (the prefix rule, [`completion`]);
//! - the state's lock is never held during I/O, and no lock is taken while it is held but the active group's and the
//!   pool's;
//! - whoever releases the lock leaves no device idle that has work, unless somebody is on the way to do it ([`turn`]).

mod adaptive;
mod archive;
mod checkpoint;
mod completion;
mod flush;
mod gather;
mod hiding;
mod job;
mod members;
mod mirror;
mod poison;
mod space_wait;
mod turn;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tantalum_device::AppendRefused;
use tantalum_rt::{Condvar, Mutex, MutexGuard, RwLock};

use adaptive::Adaptive;
pub(crate) use archive::StartArchive;
use archive::{Archiving, Feed};
pub(crate) use checkpoint::{SlotWriter, write_slots};
use gather::Gather;
use hiding::Overdue;
use job::UnderWay;
pub(crate) use mirror::COPIES;
use mirror::Mirror;
pub use space_wait::SpaceRequest;
use space_wait::Waiting;
use turn::Waiter;

use crate::format::record;
use crate::format::slot::SlotMember;
use crate::group::{Group, Pool, Request, Source};
use crate::space::{self, GROUP_CHARGE, Space};
use crate::stream::Stream;
use crate::{Error, Hiding, HidingStats, LogLayout, LogOptions, LogStats, Lsn, LsnRange, Result};

/// A running log: what its handles, tickets and workers share.
pub(crate) struct Scheduler {
    pub(crate) log_id: u128,
    pub(crate) epoch: u64,
    options: LogOptions,
    max_payload_bytes: usize,
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
    space: Space,
    pool: Pool,
    gather: Gather,
    state: Mutex<State>,
    /// Notified when the owner should checkpoint.
    pressure: Condvar,
    feed: Feed,
    /// Serializes slot writes, which take long; never wanted while the state is locked.
    slots: Mutex<SlotWriter>,
    /// Held while devices join or leave.
    change: Mutex<()>,
    /// Notified when devices that leave may have come nearer to it.
    leaving: Condvar,
}

/// What the state's lock guards.
struct State {
    /// The devices that are here. Each keeps its place; that of one that has left is used again ([`members`]).
    streams: Vec<Stream>,
    /// The devices of the log as the slots list them, those that are not here included; of an array, itself.
    members: Vec<SlotMember>,
    /// Sealed requests without a device, by LSN.
    queue: VecDeque<Request>,
    /// The end of the newest sealed request.
    sealed_end: Lsn,
    /// Present if the log keeps two copies.
    mirror: Option<Mirror>,
    /// Completed requests behind the durable end: start to end.
    completed: BTreeMap<Lsn, Lsn>,
    /// Requests that devices are late with and that are not complete, by LSN.
    overdue: Vec<Overdue>,
    /// Late writes that wait for a worker to see them through.
    left_behind: Vec<UnderWay>,
    adaptive: Adaptive,
    /// A hiding area had no room for an overdue request since the last checkpoint.
    hiding_is_full: bool,
    /// What devices that have left did.
    hidden_by_departed: HidingStats,
    /// Tasks in `flush`, by what they wait for. A task that is woken was taken out.
    waiters: BTreeMap<(Lsn, u64), Arc<Waiter>>,
    next_waiter: u64,
    idle_workers: Vec<Arc<Waiter>>,
    /// Requests under way, and their record bytes.
    under_way: (u64, u64),
    /// Tasks woken to write that have not come to the lock yet.
    summoned: usize,
    /// Somebody who does not wait wants everything up to here durable.
    wanted: Lsn,
    space_waiters: VecDeque<Arc<Waiting>>,
    /// The part of the space's bound that is not charges.
    bound: i64,
    checkpoint: Lsn,
    /// Why the owner's last checkpoint failed, if devices waited for it to leave that have not been told yet.
    failed_checkpoint: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// A device was set aside and no checkpoint has made it superfluous yet.
    aside_is_needed: bool,
    /// The owner no longer checkpoints when it is due.
    pressure_waits_ended: bool,
    set_aside: usize,
    failure: Option<Error>,
    closed: bool,
    stopping: bool,
    requests: u64,
    request_bytes: u64,
    flush_waits: u64,
    reissued: u64,
    archive: Option<Archiving>,
}

/// What recovery hands over to start a log.
pub(crate) struct Start {
    pub(crate) log_id: u128,
    pub(crate) layout: LogLayout,
    pub(crate) epoch: u64,
    pub(crate) end: Lsn,
    pub(crate) streams: Vec<Stream>,
    pub(crate) slots: SlotWriter,
    pub(crate) options: LogOptions,
}

impl Scheduler {
    /// A log that appends at `start.end`, where everything before is durable.
    pub(crate) fn new(start: Start, archive: Option<&StartArchive>) -> Scheduler {
        let of_devices = start.streams.iter().map(|stream| stream.layout.max_payload_bytes()).min().unwrap_or(0);
        let of_archive = archive.map_or(usize::MAX, |archive| archive.writer.max_payload_bytes());
        // A record must be admitted to an empty log, whatever the options say.
        let of_buffer = start.options.buffer_bytes.min(space::MAX_BUFFERED_BYTES as usize / 4);
        let max_payload_bytes = of_buffer.min(of_devices).min(of_archive);
        let depth: usize = start.streams.iter().map(|stream| stream.layout.depth).sum();
        let pool = Pool::new(max_payload_bytes, 2 * depth * usize::from(start.options.copies) + 2);
        let active = pool.group(start.end);
        let feed = Feed::default();
        // An array's devices are one here; the slots list them all, and go on to.
        let members = match start.layout {
            LogLayout::FlashLogging | LogLayout::Single => start.slots.members(),
            LogLayout::Striped { .. } => start.streams.iter().map(Stream::listed).collect(),
        };
        let set_aside = start.streams.iter().filter(|stream| !stream.state.is_healthy()).count();
        let mut streams = start.streams;
        streams.iter_mut().for_each(|stream| stream.reserve = mirror::reserve(&start.options));
        let state = State {
            streams,
            members,
            queue: VecDeque::new(),
            mirror: (start.options.copies > 1).then(|| Mirror::new(start.slots.mirrored_from())),
            sealed_end: start.end,
            completed: BTreeMap::new(),
            overdue: Vec::new(),
            left_behind: Vec::new(),
            adaptive: Adaptive::new(),
            hiding_is_full: false,
            hidden_by_departed: HidingStats::default(),
            waiters: BTreeMap::new(),
            next_waiter: 0,
            idle_workers: Vec::new(),
            under_way: (0, 0),
            summoned: 0,
            wanted: start.end,
            space_waiters: VecDeque::new(),
            bound: 0,
            checkpoint: start.slots.checkpoint(),
            failed_checkpoint: None,
            aside_is_needed: set_aside > 0,
            pressure_waits_ended: false,
            set_aside,
            failure: None,
            closed: false,
            stopping: false,
            requests: 0,
            request_bytes: 0,
            flush_waits: 0,
            reissued: 0,
            archive: archive.map(|archive| Archiving::new(archive, &feed, max_payload_bytes, start.slots.checkpoint())),
        };
        let scheduler = Scheduler {
            log_id: start.log_id,
            epoch: start.epoch,
            options: start.options,
            max_payload_bytes,
            devices_bound_records: of_devices < of_buffer.min(of_archive),
            can_give_up: AtomicBool::new(state.has_other_hardware()),
            layout: start.layout,
            active: RwLock::new(active),
            durable: AtomicU64::new(start.end.get()),
            stopped: AtomicBool::new(false),
            records: AtomicU64::new(0),
            space: Space::default(),
            pool,
            gather: Gather::default(),
            state: Mutex::new(state),
            pressure: Condvar::new(),
            feed,
            slots: Mutex::new(start.slots),
            change: Mutex::new(()),
            leaving: Condvar::new(),
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
        self.max_payload_bytes - record::FRAME_BYTES
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

    /// Adds one record; see [`Log::append`](crate::Log::append).
    pub(crate) fn append(&self, parts: &[&[u8]]) -> Result<LsnRange> {
        self.append_if(parts, |charge| self.space.take_in_turn(charge))
    }

    /// Adds one record that lets a checkpoint go on; see [`Log::append_to_relieve`](crate::Log::append_to_relieve).
    pub(crate) fn append_to_relieve(&self, parts: &[&[u8]]) -> Result<LsnRange> {
        self.append_if(parts, |charge| self.space.take(charge) || self.take_what_is_kept(charge))
    }

    /// Takes space that is kept for the loss of a device, if all devices together have it.
    fn take_what_is_kept(&self, charge: u64) -> bool {
        let state = self.lock();
        let together: u64 = state.shares().map(|share| share.assured).sum();
        let not_placed = state.bound - self.space.available();
        let fits = state.mirror.is_none() && not_placed + charge as i64 <= together as i64;
        if fits {
            self.space.shift(-(charge as i64));
        }
        fits
    }

    fn append_if(&self, parts: &[&[u8]], takes: impl FnOnce(u64) -> bool) -> Result<LsnRange> {
        let bytes = parts.iter().map(|part| part.len()).fold(0, usize::saturating_add);
        let charge = self.charge(bytes)?;
        if !takes(charge) {
            self.check_running()?;
            return Err(Error::Full { needed: charge });
        }
        let frame = record::encode(bytes as u32);
        let guard = self.poison_unless_ended("a record was being appended");
        loop {
            // Looked up again each time: whoever replaces the group does so under the state's lock, which
            // `replace_group` waits for.
            let group = Arc::clone(&self.active.read());
            if let Err(stopped) = self.check_running() {
                self.give_back(charge);
                guard.end();
                return Err(stopped);
            }
            // The archive's bound is as it was when this group became the active one, or newer.
            if self.feed.is_behind(|| group.end()) {
                self.give_back(charge);
                guard.end();
                return Err(Error::Full { needed: charge });
            }
            match group.records.append(&frame, parts) {
                Ok(offset) => {
                    // The first record pays for the group, the others only for themselves.
                    if offset != 0 {
                        self.give_back(GROUP_CHARGE);
                    }
                    self.records.fetch_add(1, Ordering::Relaxed);
                    let start = Lsn::new(group.base.get() + offset as u64);
                    let end = Lsn::new(start.get() + (frame.len() + bytes) as u64);
                    self.feed.appended(end);
                    guard.end();
                    return Ok(LsnRange { start, end });
                }
                Err(refused) => self.replace_group(&group, refused),
            }
        }
    }

    /// The space that a record of `bytes` bytes takes at most.
    pub(crate) fn charge(&self, bytes: usize) -> Result<u64> {
        let limit = self.max_record_bytes();
        if bytes > limit {
            return Err(Error::RecordTooLarge { bytes: bytes as u64, limit: limit as u64 });
        }
        Ok((bytes + record::FRAME_BYTES) as u64 + GROUP_CHARGE)
    }

    fn give_back(&self, charge: u64) {
        if self.space.give_back(charge) {
            self.serve_space(&mut self.state.lock());
        }
    }

    /// The error that stops appends, if there is one.
    fn check_running(&self) -> Result<()> {
        if self.stopped.load(Ordering::Acquire) { self.state.lock().check_running() } else { Ok(()) }
    }

    /// After `group` refused an append: makes sure that it is no longer the active one, unless the log stopped.
    fn replace_group(&self, group: &Arc<Group>, refused: AppendRefused) {
        let mut state = self.state.lock();
        let is_active = Arc::ptr_eq(group, &self.active.read());
        if refused == AppendRefused::Full && is_active && !self.stopped.load(Ordering::Acquire) {
            self.seal(&mut state);
            self.summon(&mut state);
        }
    }

    /// Makes the active group, unless it is empty, a request, and gives appends a new group.
    fn seal(&self, state: &mut State) {
        let mut active = self.active.write();
        if active.records.is_empty() && !state.closed {
            return;
        }
        let Some(bytes) = active.records.seal() else {
            assert!(state.closed, "only a closed log keeps a sealed group active");
            return;
        };
        if bytes == 0 {
            return;
        }
        let end = Lsn::new(active.base.get() + bytes as u64);
        assert_eq!(active.base, state.sealed_end, "requests tile the log");
        state.queue.push_back(Request { start: active.base, end, source: Source::Sealed(Arc::clone(&active)) });
        state.sealed_end = end;
        state.requests += 1;
        state.request_bytes += bytes as u64;
        self.request_sealed(state, end, bytes);
        if !state.closed {
            *active = self.pool.group(end);
        }
    }

    /// Recomputes the bound on appends after anything in it changed; `released` charges were given up as well.
    fn rebalance(&self, state: &mut State, released: u64) {
        let bound = state.spare().min(space::MAX_BUFFERED_BYTES as i64).min(state.room_for_leaving());
        let delta = bound - state.bound + released as i64;
        state.bound = bound;
        self.space.shift(delta);
        if delta > 0 {
            self.serve_space(state);
        }
        if self.is_pressed(state) {
            self.pressure.notify_all();
        }
        self.leaving.notify_all();
    }

    /// Ends the workers. Nothing more is written for those who do not wait.
    pub(crate) fn stop_workers(&self) {
        let mut state = self.state.lock();
        state.stopping = true;
        self.wake_archive();
        for worker in std::mem::take(&mut state.idle_workers) {
            worker.wake_done();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn stats(&self) -> LogStats {
        let end_lsn = self.end();
        let records = self.records.load(Ordering::Relaxed);
        let mut state = self.lock();
        let devices = state.device_stats();
        let healthy = state.streams.iter().filter(|stream| stream.state.is_healthy());
        let capacity = |stream: &Stream| stream.layout.section_bytes * stream.layout.section_count;
        let mut hiding = state.hidden_by_departed;
        state.streams.iter().for_each(|stream| hiding.add(&stream.hidden));
        LogStats {
            devices,
            hiding,
            hides: self.can_give_up() && self.options.hiding != Hiding::Off && state.adaptive.is_on(),
            hiding_breaks: state.adaptive.breaks,
            requests: state.requests,
            request_bytes: state.request_bytes,
            records,
            flush_waits: state.flush_waits,
            reissued: state.reissued,
            copies: self.options.copies,
            keeps_copies: state.mirror.as_ref().is_none_or(|mirror| mirror.from().is_some()),
            single_copies: state.mirror.as_ref().map_or(0, Mirror::single),
            mirrored_from_lsn: state.mirror.as_ref().and_then(Mirror::from),
            used_bytes: healthy.clone().map(Stream::used_bytes).sum(),
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
            None if self.closed => Err(Error::Closed),
            None => Ok(()),
        }
    }

    fn check_failure(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |failure| Err(failure.clone()))
    }
}
