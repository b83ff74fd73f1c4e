//! Waiting for space, and telling the owner that a checkpoint is due.

use std::time::Duration;

use tantalum_rt::{Parker, now};

use super::{Archiving, Scheduler, State};
use crate::Result;

impl Scheduler {
    /// Blocks until a record of `bytes` bytes would be admitted; see [`Log::wait_for_space`](crate::Log::wait_for_space).
    pub(crate) fn wait_for_space(&self, bytes: usize) -> Result<()> {
        let charge = self.charge(bytes)?;
        if self.has_room(charge) {
            return self.check_running();
        }
        let parker = Parker::new();
        self.space.begin_wait();
        let mut state = self.lock();
        let id = state.next_waiter;
        state.next_waiter += 1;
        state.space_waiters.push((id, parker.unparker()));
        let result = loop {
            if let Err(error) = state.check_running() {
                break Err(error);
            }
            self.check_archive_hung(&mut state);
            if self.has_room(charge) {
                break Ok(());
            }
            // Buffered data is charged for the worst packing: written data is not, so writing it may be all it takes.
            state.wanted = state.wanted.max(self.end());
            self.summon(&mut state);
            self.pressure.notify_all();
            let waits_for_archive = self.feed.is_behind(|| self.end());
            drop(state);
            match waits_for_archive {
                true => drop(parker.park_timeout(self.options.hang_timeout)),
                false => parker.park(),
            }
            state = self.lock();
        };
        state.space_waiters.retain(|(waiting, _)| *waiting != id);
        self.space.end_wait();
        result
    }

    fn has_room(&self, charge: u64) -> bool {
        self.space.has(charge) && !self.feed.is_behind(|| self.end())
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
