//! The arm: where it is, when it is free, and how long it takes to serve a request.

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
