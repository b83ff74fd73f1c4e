//! The flusher: programs what waits in the pool, first in, first out, on each channel at its own pace.

use super::SolidState;
use crate::Nanos;

impl SolidState {
    /// Programs everything that can begin until `now`.
    pub(super) fn flush_until(&mut self, now: Nanos) {
        for channel in 0..self.ftl.layout().geometry.channels {
            while !self.pool.is_idle(channel, now) && self.program_batch(channel, self.cache.pairing_wait_ns, now) {}
        }
    }

    /// Programs everything, without waiting for company.
    pub(super) fn drain(&mut self) {
        for channel in 0..self.ftl.layout().geometry.channels {
            while self.program_batch(channel, 0, Nanos::MAX) {}
            let is_drained = self.pool.is_drained(channel) || self.ftl.is_read_only();
            debug_assert!(is_drained, "nothing that waits is left behind");
        }
    }

    /// When the pool has taken in so many sectors, not before `at`: the command waits until others have left. `None` if
    /// they cannot, since the flash is worn out.
    pub(super) fn wait_for_room(&mut self, sectors: usize, at: Nanos) -> Option<Nanos> {
        loop {
            if let Some(room) = self.pool.take_room(sectors, at) {
                return Some(room);
            }
            if self.ftl.is_read_only() {
                return None;
            }
            // The frames whose end is known do not leave enough room: let the flusher go ahead.
            let before = self.drained;
            for channel in 0..self.ftl.layout().geometry.channels {
                self.program_batch(channel, 0, Nanos::MAX);
            }
            debug_assert!(self.drained >= before, "time does not go back");
        }
    }

    /// Programs one page of a channel, if that can begin until `until`.
    fn program_batch(&mut self, channel: u32, patience: Nanos, until: Nanos) -> bool {
        if !self.ftl.has_room(channel) {
            return false;
        }
        let limit = self.ftl.layout().page_sectors as usize;
        let free = self.ftl.channel_ready(channel);
        let Some(start) = self.pool.next_batch(channel, limit, free, patience, until, &mut self.batch) else {
            return false;
        };
        self.sectors.clear();
        for &frame in &self.batch {
            let frame = self.pool.frame(frame);
            self.sectors.push((frame.unit, frame.piece.clone()));
        }
        let done = self.ftl.program(start, channel, &self.sectors);
        self.pool.programmed(channel, &self.batch, done);
        self.drained = self.drained.max(done);
        true
    }
}
