//! Waiting for space, and telling the owner that a checkpoint is due.
//!
//! Those who wait are served in the order in which they came, each with all that it asked for at once; meanwhile appends that ask
//! for nothing in advance are refused. So an append that needs much is not overtaken for ever by appends that need little.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tantalum_rt::{Parker, Unparker, now};

use super::{Archiving, Scheduler, State};
use crate::{LsnRange, Result};

/// The part of an empty log's space that one request is granted at most, unless one record needs more.
const LARGEST_PART: i64 = 4;

/// Space of the log for appends that follow, from [`Log::request_space`](crate::Log::request_space). Dropping it gives back what
/// they left.
pub struct SpaceRequest {
    scheduler: Arc<Scheduler>,
    waiting: Arc<Waiting>,
    parker: Parker,
    /// What is left of it, once it is granted.
    left: u64,
}

/// Somebody's place in the line.
pub(super) struct Waiting {
    charge: u64,
    is_granted: AtomicBool,
    unparker: Unparker,
}

impl Waiting {
    pub(super) fn unpark(&self) {
        self.unparker.unpark();
    }
}

impl Scheduler {
    /// Asks for space; see [`Log::request_space`](crate::Log::request_space).
    pub(crate) fn request_space(self: &Arc<Self>, needed: u64) -> Result<SpaceRequest> {
        let parker = Parker::new();
        let mut state = self.lock();
        state.check_running()?;
        let all = state.spare_of(state.serving().map(|stream| (stream.hardware, stream.share_when_empty())));
        let most = u64::try_from(all / LARGEST_PART).unwrap_or(0).max(self.charge(self.max_record_bytes())?);
        let charge = needed.min(most);
        let waiting = Arc::new(Waiting { charge, is_granted: AtomicBool::new(false), unparker: parker.unparker() });
        self.space.begin_wait();
        state.space_waiters.push_back(Arc::clone(&waiting));
        self.serve_space(&mut state);
        Ok(SpaceRequest { scheduler: Arc::clone(self), waiting, parker, left: charge })
    }

    /// Grants what there is to those who wait, in their order.
    pub(super) fn serve_space(&self, state: &mut State) {
        while let Some(first) = state.space_waiters.front()
            && !self.feed.is_behind(|| self.end())
            && self.space.take(first.charge)
        {
            first.is_granted.store(true, Ordering::Release);
            first.unpark();
            state.space_waiters.pop_front();
            self.space.end_wait();
        }
    }

    /// Adds one record, with the space of a request that was granted.
    pub(crate) fn append_requested(&self, parts: &[&[u8]], space: &mut SpaceRequest) -> Result<LsnRange> {
        let granted = if space.is_granted() { space.left } else { 0 };
        self.append_if(parts, |charge| {
            let beyond = charge.saturating_sub(granted);
            let takes = beyond == 0 || self.space.take(beyond);
            if takes {
                space.left = granted.saturating_sub(charge);
            }
            takes
        })
    }

    /// Blocks until a checkpoint is due, at most for `timeout`; see [`Log::wait_for_pressure`](crate::Log::wait_for_pressure).
    pub(crate) fn wait_for_pressure(&self, timeout: Duration) -> bool {
        let deadline = now() + timeout;
        let mut state = self.lock();
        loop {
            if self.is_pressed(&state) {
                return true;
            }
            let rest = deadline - now();
            if rest.is_zero() || state.pressure_waits_ended {
                return false;
            }
            self.pressure.wait_for(&mut state, rest);
        }
    }

    /// Lets whoever waits for pressure return, now and from now on.
    pub(crate) fn end_pressure_waits(&self) {
        self.lock().pressure_waits_ended = true;
        self.pressure.notify_all();
    }

    /// Whether the owner should checkpoint: somebody waits for space, a device was set aside or is to leave that still
    /// holds needed records, two copies are kept only of what is newer, a hiding area is full, or less than half of the space
    /// is left.
    pub(super) fn is_pressed(&self, state: &State) -> bool {
        if state.failure.is_some() || state.closed {
            return false;
        }
        let left = state.spare();
        let all = state.spare_of(state.serving().map(|stream| (stream.hardware, stream.share_when_empty())));
        let archive_is_pressed = state.archive.as_ref().is_some_and(Archiving::is_pressed);
        let is_full = archive_is_pressed || state.hiding_is_full || left < all / 2;
        let checkpoint = state.checkpoint;
        let is_half = state.mirror.as_ref().is_some_and(|mirror| mirror.awaits_checkpoint(checkpoint));
        self.space.has_waiters() || state.aside_is_needed || state.leaving_is_needed() || is_half || is_full
    }
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
    /// [`Error::Poisoned`](crate::Error::Poisoned), [`Error::Closed`](crate::Error::Closed).
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
            state.wanted = state.wanted.max(scheduler.end());
            scheduler.summon(&mut state);
            scheduler.pressure.notify_all();
            let waits_for_archive = scheduler.feed.is_behind(|| scheduler.end());
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
            self.scheduler.space.shift(self.left as i64);
        } else {
            state.space_waiters.retain(|waiting| !Arc::ptr_eq(waiting, &self.waiting));
            self.scheduler.space.end_wait();
        }
        self.scheduler.serve_space(&mut state);
    }
}

impl fmt::Debug for SpaceRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceRequest")
            .field("left", &self.left)
            .field("is_granted", &self.is_granted())
            .finish_non_exhaustive()
    }
}
