//! Admission: how much appends may take, which tasks wait for space, and when the owner should checkpoint.
//!
//! Invariants:
//! - the bytes that appends may still take are the bound, [`Admission::bound`], less the charges of everything that was
//!   appended and not placed ([`space`](crate::space));
//! - space requests are granted in their order, each all at once, and while one waits, appends without a request are refused:
//!   an append that needs much is not overtaken for ever by appends that need little.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tantalum_rt::{Parker, Unparker, now};

use super::archiver::ArchiveProgress;
use super::{Scheduler, State};
use crate::log_device::LogDevice;
use crate::space::{GROUP_CHARGE, MAX_BUFFERED_BYTES};
use crate::{LsnRange, Result};

/// The part of an empty log's space that one request is granted at most, unless one record needs more.
const LARGEST_PART: i64 = 4;

/// Space of the log for appends that follow, from [`Log::request_space`](crate::Log::request_space). Dropping it gives back what
/// they left.
pub struct SpaceRequest {
    scheduler: Arc<Scheduler>,
    waiting: Arc<Waiting>,
    parker: Parker,
}

/// What appends may take, and the tasks that wait for it. Guarded by the state's lock.
#[derive(Default)]
pub(super) struct Admission {
    /// What the devices can take of what is not placed.
    bound: i64,
    waiting: VecDeque<Arc<Waiting>>,
    /// What appends leave of what the devices can take, for those that relieve the log.
    kept_for_relief: i64,
    /// An append that relieves the log has taken of what is kept for the loss of a device, and there is not as much again.
    pub(super) reserve_is_used: bool,
    /// The owner no longer checkpoints when it is due.
    owner_has_stopped: bool,
}

impl Admission {
    /// Wakes the tasks that wait for space, to look again.
    pub(super) fn wake_all(&self) {
        self.waiting.iter().for_each(|waiting| waiting.unparker.unpark());
    }
}

/// A space request that waits.
struct Waiting {
    /// What is asked for; once it is granted, what is left of it.
    bytes: AtomicU64,
    is_granted: AtomicBool,
    unparker: Unparker,
}

impl Scheduler {
    /// Asks for space; see [`Log::request_space`](crate::Log::request_space).
    pub(crate) fn request_space(self: &Arc<Self>, needed: u64) -> Result<SpaceRequest> {
        let parker = Parker::new();
        let mut state = self.lock();
        state.check_running()?;
        let bytes = AtomicU64::new(needed.min(self.largest_grant(&state)));
        let waiting = Arc::new(Waiting { bytes, is_granted: AtomicBool::new(false), unparker: parker.unparker() });
        self.space.begin_wait();
        state.admission.waiting.push_back(Arc::clone(&waiting));
        self.serve_space(&mut state);
        Ok(SpaceRequest { scheduler: Arc::clone(self), waiting, parker })
    }

    /// What one request is granted at most; see [`Log::largest_space_request`](crate::Log::largest_space_request).
    pub(crate) fn largest_space_request(&self) -> u64 {
        self.largest_grant(&self.lock())
    }

    /// See [`Log::capacity`](crate::Log::capacity).
    pub(crate) fn capacity(&self) -> u64 {
        u64::try_from(self.lock().placement.spare(LogDevice::share_when_empty)).unwrap_or(0)
    }

    /// See [`Log::keep_for_relief`](crate::Log::keep_for_relief).
    pub(crate) fn keep_for_relief(&self, bytes: u64) {
        let mut state = self.lock();
        state.admission.kept_for_relief = i64::try_from(bytes).unwrap_or(i64::MAX);
        self.rebalance(&mut state, 0);
    }

    /// What one request is granted at most.
    fn largest_grant(&self, state: &State) -> u64 {
        let all = state.placement.spare(LogDevice::share_when_empty) - state.admission.kept_for_relief;
        let largest_record = self.request_payload() as u64 + GROUP_CHARGE;
        // What may be buffered bounds it too.
        u64::try_from(all / LARGEST_PART).unwrap_or(0).min(MAX_BUFFERED_BYTES).max(largest_record)
    }

    /// Grants what there is to the space requests, in their order.
    pub(super) fn serve_space(&self, state: &mut State) {
        while let Some(first) = state.admission.waiting.front()
            && !(self.feed.is_attached() && self.feed.is_behind(self.end()))
        {
            let bytes = first.bytes.load(Ordering::Relaxed);
            if !self.space.take(bytes) {
                // The log may have shrunk since: then what was asked for may never be there at once.
                let most = self.largest_grant(state);
                if bytes <= most {
                    return;
                }
                first.bytes.store(most, Ordering::Relaxed);
                continue;
            }
            first.is_granted.store(true, Ordering::Release);
            first.unparker.unpark();
            state.admission.waiting.pop_front();
            self.space.end_wait();
        }
    }

    /// Adds one record, with the space of a request that was granted.
    pub(crate) fn append_requested(&self, parts: &[&[u8]], space: &mut SpaceRequest) -> Result<LsnRange> {
        let left = &space.waiting.bytes;
        let granted = if space.is_granted() { left.load(Ordering::Relaxed) } else { 0 };
        self.append_if(parts, |charge| {
            let beyond = charge.saturating_sub(granted);
            let takes = beyond == 0 || self.space.take(beyond);
            if takes {
                left.store(granted.saturating_sub(charge), Ordering::Relaxed);
            }
            takes
        })
    }

    /// Blocks until a checkpoint is due, at most for `timeout`; see [`Log::wait_for_pressure`](crate::Log::wait_for_pressure).
    pub(crate) fn wait_for_pressure(&self, timeout: Duration) -> bool {
        let deadline = now() + timeout;
        let mut state = self.lock();
        loop {
            if self.checkpoint_is_due(&state, state.placement.spare(LogDevice::share)) {
                return true;
            }
            let rest = deadline - now();
            if rest.is_zero() || state.admission.owner_has_stopped {
                return false;
            }
            self.pressure.wait_for(&mut state, rest);
        }
    }

    /// Ends every [`wait_for_pressure`](Self::wait_for_pressure), now and from now on.
    pub(crate) fn end_pressure_waits(&self) {
        self.lock().admission.owner_has_stopped = true;
        self.pressure.notify_all();
    }

    /// Recomputes the bound on appends after anything in it changed; `released` charges were given up as well.
    pub(super) fn rebalance(&self, state: &mut State, released: u64) {
        let spare = state.placement.spare(LogDevice::share);
        let bound = bound_of(state, spare.saturating_sub(state.admission.kept_for_relief));
        let delta = bound - std::mem::replace(&mut state.admission.bound, bound) + released as i64;
        self.space.shift(delta);
        state.admission.reserve_is_used &= self.space.available() < 0;
        if delta > 0 {
            self.serve_space(state);
        }
        if self.checkpoint_is_due(state, spare) {
            self.pressure.notify_all();
        }
        self.note_filling(state, spare);
        self.leaving.notify_all();
    }

    /// Takes space that is kept for relief, or for the loss of a device if all devices together have it.
    pub(crate) fn take_reserved(&self, charge: u64) -> bool {
        let mut state = self.lock();
        let not_placed = state.admission.bound - self.space.available();
        let fits = not_placed + charge as i64 <= state.placement.room();
        if fits {
            self.space.shift(-(charge as i64));
            state.admission.reserve_is_used |= self.space.available() < 0;
        }
        fits
    }

    /// Whether the owner should checkpoint, with `spare` bytes that the devices can still take: a space request waits, a device
    /// was set aside or is to leave that still holds needed records, the log is to shrink, two copies are kept only of newer
    /// records, a hiding area or the archive is full, or less than half of the space is left.
    fn checkpoint_is_due(&self, state: &State, spare: i64) -> bool {
        if state.failure.is_some() || state.closed {
            return false;
        }
        let checkpoint = state.checkpoint;
        self.space.has_waiters()
            || state.membership.aside_is_needed
            || state.outliers.areas_are_full
            || is_half_full(state, spare)
            || state.placement.leaving_awaits_checkpoint(checkpoint)
            || state.shrinking_awaits_checkpoint()
            || state.archive.as_ref().is_some_and(ArchiveProgress::is_pressed)
            || state.placement.mirror.as_ref().is_some_and(|mirror| mirror.awaits_checkpoint(checkpoint))
    }
}

/// The bound on appends where the devices may be asked to take `spare` bytes.
fn bound_of(state: &State, spare: i64) -> i64 {
    spare.min(MAX_BUFFERED_BYTES as i64).min(state.placement.room_for_leaving())
}

/// Whether less than half of the space is left.
pub(super) fn is_half_full(state: &State, spare: i64) -> bool {
    spare < state.placement.spare(LogDevice::share_when_empty) / 2
}

impl SpaceRequest {
    /// Whether the space is there for the caller.
    pub fn is_granted(&self) -> bool {
        self.waiting.is_granted.load(Ordering::Acquire)
    }

    /// Waits until the space is granted, at most for `timeout`. Meanwhile the owner of the log is under pressure to checkpoint. False
    /// when the time was over before.
    ///
    /// # Errors
    /// [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn wait(&self, timeout: Duration) -> Result<bool> {
        tantalum_rt::may_wait("space in the log");
        let (scheduler, deadline) = (&*self.scheduler, now() + timeout);
        loop {
            if self.is_granted() {
                return Ok(true);
            }
            let mut state = scheduler.lock();
            state.check_running()?;
            scheduler.check_archive_hung(&mut state);
            scheduler.serve_space(&mut state);
            if self.is_granted() {
                return Ok(true);
            }
            // Buffered data is charged for the worst packing: written data is not, so writing it may be all it takes.
            state.commits.want(scheduler.end());
            scheduler.wake_writers(&mut state);
            scheduler.pressure.notify_all();
            let waits_for_archive = scheduler.feed.is_attached() && scheduler.feed.is_behind(scheduler.end());
            drop(state);
            let left = deadline - now();
            if left.is_zero() {
                return Ok(self.is_granted());
            }
            let longest = if waits_for_archive { scheduler.options.hang_timeout } else { left };
            self.parker.park_timeout(left.min(longest));
        }
    }
}

impl Drop for SpaceRequest {
    fn drop(&mut self) {
        let mut state = self.scheduler.lock();
        if self.is_granted() {
            self.scheduler.space.shift(self.waiting.bytes.load(Ordering::Relaxed) as i64);
        } else {
            state.admission.waiting.retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
            self.scheduler.space.end_wait();
        }
        self.scheduler.serve_space(&mut state);
    }
}

impl fmt::Debug for SpaceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceRequest")
            .field("bytes", &self.waiting.bytes)
            .field("is_granted", &self.is_granted())
            .finish_non_exhaustive()
    }
}
