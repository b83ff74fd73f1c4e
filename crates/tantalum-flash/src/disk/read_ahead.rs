//! The track buffer: after a read the disk reads on until its arm is needed elsewhere.
//!
//! Promises: sectors are in the buffer when they have passed under the head, not earlier.

use super::geometry::Geometry;
use crate::Nanos;

/// What the disk has read, and goes on reading, beyond what was asked for.
#[derive(Debug)]
pub(super) struct ReadAhead {
    /// First sector that is held.
    first: u64,
    /// This sector begins to pass at `begin`; those before it are held.
    next: u64,
    begin: Nanos,
    /// Where the buffer is full.
    limit: u64,
    /// When the arm left.
    left_at: Option<Nanos>,
}

impl ReadAhead {
    /// After a read of `count` sectors from `first` that ended at `end`, into a buffer of `room` sectors.
    pub fn after(geometry: &Geometry, first: u64, count: u64, end: Nanos, room: u64) -> Self {
        let next = first + count;
        Self { first, next, begin: end, limit: (next + room).min(geometry.sectors()), left_at: None }
    }

    /// The arm moves at `depart`.
    pub fn leave(&mut self, depart: Nanos) {
        self.left_at = Some(self.left_at.map_or(depart, |earlier| earlier.min(depart)));
    }

    /// When the sectors will be held, if they are or will be. The disk then reads on into the room behind them.
    pub fn hit(&mut self, geometry: &Geometry, now: Nanos, sector: u64, count: u64, room: u64) -> Option<Nanos> {
        let end_sector = sector + count;
        if sector < self.first || sector > self.limit {
            return None;
        }
        if let Some(left_at) = self.left_at {
            let held_at = self.passed_at(geometry, end_sector);
            return (end_sector <= self.limit && held_at <= left_at).then_some(now.max(held_at));
        }
        let full_at = self.passed_at(geometry, self.limit);
        if full_at <= now && self.limit < geometry.sectors() {
            // It stood still with a full buffer, and now waits until the next sector comes round again.
            self.next = self.limit;
            self.begin = geometry.next_pass(now, geometry.locate(self.limit));
        }
        // What does not fit goes out by the interface as more comes in.
        let held_at = now.max(self.passed_at(geometry, end_sector));
        if end_sector > self.next {
            self.next = end_sector;
            self.begin = held_at;
        }
        self.limit = self.limit.max(end_sector + room).min(geometry.sectors());
        self.first = self.first.max(sector.saturating_sub(room));
        Some(held_at)
    }

    /// When everything before `end_sector` has passed.
    fn passed_at(&self, geometry: &Geometry, end_sector: u64) -> Nanos {
        let more = end_sector.saturating_sub(self.next);
        geometry.passes(self.begin, self.next, more, false).last().map_or(0, |pass| pass.end)
    }
}
