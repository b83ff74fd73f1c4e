//! The arm's schedule: which transfers it makes, and when.
//!
//! A request is served on the way to another one if it fits there without delaying any that has been promised, else
//! after the last: what command queuing gains, without ever taking back a time of completion. Transfers never overlap,
//! and between two of them lies the movement and the rotation that the second one needs.

use std::collections::VecDeque;

use super::geometry::{Geometry, Track};
use crate::Nanos;

/// Sectors to transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub sector: u64,
    pub count: u64,
    pub is_write: bool,
}

/// A transfer as it was or will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visit {
    /// When the arm leaves where it was before.
    pub depart: Nanos,
    pub begin: Nanos,
    pub end: Nanos,
    pub span: Span,
    first: Track,
    last: Track,
}

#[derive(Debug)]
pub(super) struct Arm {
    /// By time; the first is the latest that may have ended, and tells where the arm is.
    visits: VecDeque<Visit>,
    queue_depth: usize,
    pub seeks: u64,
}

impl Arm {
    pub fn new(geometry: &Geometry, queue_depth: u32) -> Self {
        let track = geometry.locate(0).track;
        let span = Span { sector: 0, count: 0, is_write: false };
        let parked = Visit { depart: 0, begin: 0, end: 0, span, first: track, last: track };
        Self { visits: VecDeque::from([parked]), queue_depth: queue_depth as usize, seeks: 0 }
    }

    /// When the arm has nothing more to do.
    pub fn free_at(&self) -> Nanos {
        self.last().end
    }

    /// The last transfer of the schedule.
    pub fn last(&self) -> &Visit {
        self.visits.back().expect("the schedule holds at least the latest transfer")
    }

    /// Schedules a transfer that the disk may begin to move for at `ready`. With `in_order` it comes after all others.
    pub fn schedule(&mut self, geometry: &Geometry, ready: Nanos, span: Span, in_order: bool) -> Visit {
        while self.visits.len() > 1 && self.visits[1].end <= ready {
            self.visits.pop_front();
        }
        // A request beyond the queue's depth is unknown to the disk until the queue has room.
        let known_at = match self.visits.len().checked_sub(self.queue_depth + 1) {
            Some(beyond) => ready.max(self.visits[beyond + 1].end),
            None => ready,
        };
        if !in_order {
            for next in 1..self.visits.len() {
                let (before, after) = (self.visits[next - 1], self.visits[next]);
                if after.depart < known_at {
                    continue; // the arm is on its way already
                }
                let visit = plan(geometry, &before, before.end.max(known_at), span);
                if visit.end + geometry.movement(visit.last, after.first, after.span.is_write) <= after.begin {
                    self.visits[next].depart = visit.end;
                    self.visits.insert(next, visit);
                    self.seeks += 1;
                    return visit;
                }
            }
        }
        let before = *self.last();
        let visit = plan(geometry, &before, before.end.max(known_at), span);
        self.seeks += u64::from(visit.first != before.last);
        self.visits.push_back(visit);
        visit
    }

    /// Forgets everything that has not ended; the arm is where it was last.
    pub fn stop(&mut self, now: Nanos) {
        while self.visits.len() > 1 && self.last().end > now {
            self.visits.pop_back();
        }
        self.visits.drain(..self.visits.len() - 1);
        let last = self.visits.back_mut().expect("the schedule holds at least the latest transfer");
        last.end = last.end.min(now);
    }
}

fn plan(geometry: &Geometry, before: &Visit, depart: Nanos, span: Span) -> Visit {
    let place = geometry.locate(span.sector);
    let ready = depart + geometry.movement(before.last, place.track, span.is_write);
    let begin = geometry.next_pass(ready, place);
    let last = geometry.passes(begin, span.sector, span.count, span.is_write).last();
    let (end, track) = last.map_or((begin, place.track), |pass| (pass.end, pass.track));
    Visit { depart, begin, end, span, first: place.track, last: track }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Random;

    use super::*;
    use crate::disk::DiskParameters;

    fn run(depth: u32, outstanding: usize) -> f64 {
        let geometry = Geometry::new(&DiskParameters::example());
        let mut arm = Arm::new(&geometry, depth);
        let mut random = Random::with_seed(7);
        let mut clients = vec![0; outstanding];
        let requests = 4000;
        let mut latest = 0;
        for _ in 0..requests {
            let client = (0..outstanding).min_by_key(|&client| clients[client]).unwrap();
            let span = Span { sector: random.u64(..geometry.sectors() - 8), count: 8, is_write: false };
            clients[client] = arm.schedule(&geometry, clients[client] + 200_000, span, false).end;
            latest = latest.max(clients[client]);
            let (left, right) = arm.visits.as_slices();
            assert!(left.iter().chain(right).is_sorted_by(|a, b| a.end <= b.depart && b.depart <= b.begin));
        }
        latest as f64 / f64::from(requests) / 1e6
    }

    #[test]
    fn one_random_read_takes_the_average_seek_and_half_a_turn() {
        let alone = run(64, 1);
        assert!((6.9..7.5).contains(&alone), "{alone} ms");
    }

    #[test]
    fn a_deep_queue_serves_requests_on_the_way() {
        let (fifo, queued) = (run(1, 64), run(64, 64));
        println!("random reads, 64 outstanding: {fifo:.2} ms one after the other, {queued:.2} ms queued");
        assert!((6.7..7.3).contains(&fifo), "{fifo} ms");
        assert!(queued < 0.6 * fifo, "{queued} ms against {fifo} ms");
    }
}
