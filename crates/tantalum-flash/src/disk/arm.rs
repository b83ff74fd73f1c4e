//! The arm: where it is, when it is free, and how long it takes to serve a request; and the track buffer, into which the disk
//! reads on after a read until its arm is needed elsewhere.
//!
//! Promises: sectors are in the buffer when they have passed under the head, not earlier.

use super::geometry::{Geometry, Place, Track};
use crate::Nanos;

/// Sectors to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub sector: u64,
    pub count: u64,
    pub is_write: bool,
}

/// A transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    pub begin: Nanos,
    pub end: Nanos,
    /// Where it ends.
    track: Track,
}

#[derive(Debug)]
pub(super) struct Arm {
    /// Where it is, or will be when it is free.
    track: Track,
    free_at: Nanos,
    pub seeks: u64,
}

impl Arm {
    pub fn new(geometry: &Geometry) -> Self {
        Self { track: geometry.locate(0).track, free_at: 0, seeks: 0 }
    }

    /// When it has nothing more to do.
    pub fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// It stays where it is until then.
    pub fn stay(&mut self, until: Nanos) {
        self.free_at = self.free_at.max(until);
    }

    /// When a transfer from `place` on would begin if the arm left at `depart`: the shorter, the better the choice.
    pub fn reach(&self, geometry: &Geometry, depart: Nanos, place: Place, is_write: bool) -> Nanos {
        geometry.next_pass(depart + geometry.movement(self.track, place.track, is_write), place)
    }

    /// What a transfer would be if the arm left at `depart`.
    pub fn plan(&self, geometry: &Geometry, depart: Nanos, span: Span) -> Visit {
        let place = geometry.locate(span.sector);
        let begin = self.reach(geometry, depart, place, span.is_write);
        let last = geometry.passes(begin, span.sector, span.count, span.is_write).last();
        let (end, track) = last.map_or((begin, place.track), |pass| (pass.end, pass.track));
        Visit { begin, end, track }
    }

    /// Leaves at `depart` for a transfer.
    pub fn go(&mut self, geometry: &Geometry, depart: Nanos, span: Span) -> Visit {
        debug_assert!(depart >= self.free_at, "it does one thing after the other");
        let visit = self.plan(geometry, depart, span);
        self.seeks += u64::from(geometry.locate(span.sector).track != self.track);
        (self.track, self.free_at) = (visit.track, visit.end);
        visit
    }

    /// Stands still: the power was cut.
    pub fn stop(&mut self, now: Nanos) {
        self.free_at = now;
    }
}

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
