//! Decides whether a fault happens on an occasion: planned ones first, then by rate.

use std::ops::Range;

use tantalum_rt::Random;

use super::kind::KINDS;
use super::{FaultKind, Parameters, Plan, Planned, When};
use crate::Nanos;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Read,
    Write,
    Flush,
    Discard,
    Cut,
}

/// A planned fault, and how far it is.
#[derive(Debug)]
struct Waiting {
    fault: Planned,
    /// Operations that its trigger counted.
    seen: u64,
    is_armed: bool,
    /// Occasions on which it is still to happen.
    left: u64,
}

/// A fault that is to happen now.
#[derive(Debug, Default)]
pub(super) struct Hit {
    pub(super) parameters: Parameters,
    pub(super) range: Option<Range<u64>>,
}

#[derive(Debug)]
pub(super) struct Schedule {
    rates: [f64; KINDS],
    waiting: Vec<Waiting>,
    /// Kinds that may happen at all, a bit each.
    possible: u32,
    pub(super) random: Random,
}

/// Whether a range is not limited, or overlaps the place.
pub(super) fn is_within(range: Option<&Range<u64>>, offset: u64, len: u64) -> bool {
    range.is_none_or(|range| range.start < offset + len && offset < range.end)
}

impl Schedule {
    pub(super) fn new(plan: Plan) -> Self {
        let mut rates = [0.0; KINDS];
        for (&kind, &rate) in &plan.rates {
            rates[kind as usize] = rate;
        }
        let planned = plan.faults.into_iter();
        let waiting = planned.map(|fault| Waiting { left: fault.times, fault, seen: 0, is_armed: false }).collect();
        let mut schedule = Self { rates, waiting, possible: 0, random: Random::with_seed(plan.seed) };
        schedule.update();
        schedule
    }

    fn update(&mut self) {
        self.waiting.retain(|waiting| waiting.left > 0);
        let by_rate = FaultKind::ALL.into_iter().filter(|&kind| self.rates[kind as usize] > 0.0);
        let kinds = by_rate.chain(self.waiting.iter().map(|waiting| waiting.fault.kind));
        self.possible = kinds.fold(0, |bits, kind| bits | 1 << kind as u32);
    }

    /// Whether it may still happen.
    pub(super) fn is_possible(&self, kind: FaultKind) -> bool {
        self.possible >> kind as u32 & 1 != 0
    }

    /// How far back a fault of this kind may reach.
    pub(super) fn most_back(&self, kind: FaultKind, default: Nanos) -> Nanos {
        let planned = self.waiting.iter().filter(|waiting| waiting.fault.kind == kind);
        planned.filter_map(|waiting| waiting.fault.parameters.back).fold(default, Nanos::max)
    }

    /// Counts, and arms what waits for this.
    pub(super) fn count(&mut self, operation: Operation, now: Nanos, offset: u64, len: u64) {
        for waiting in self.waiting.iter_mut().filter(|waiting| !waiting.is_armed) {
            let is_within = is_within(waiting.fault.range.as_ref(), offset, len);
            let (counts, from) = match waiting.fault.when {
                When::At(at) => (now >= at, 1),
                When::Operation(n) => (operation != Operation::Cut, n),
                When::Write(n) => (operation == Operation::Write && is_within, n),
                When::Read(n) => (operation == Operation::Read && is_within, n),
                When::Flush(n) => (operation == Operation::Flush, n),
                When::Cut(n) => (operation == Operation::Cut, n),
            };
            waiting.seen += u64::from(counts);
            waiting.is_armed = waiting.seen >= from;
        }
    }

    /// Whether a fault of this kind happens now, if `is_occasion` for what it asks.
    pub(super) fn draw(
        &mut self,
        kind: FaultKind,
        is_occasion: impl Fn(&Parameters, Option<&Range<u64>>) -> bool,
    ) -> Option<Hit> {
        if !self.is_possible(kind) {
            return None;
        }
        let ready = self.waiting.iter_mut().find(|waiting| {
            let fault = &waiting.fault;
            waiting.is_armed && fault.kind == kind && is_occasion(&fault.parameters, fault.range.as_ref())
        });
        if let Some(waiting) = ready {
            waiting.left -= 1;
            let hit = Hit { parameters: waiting.fault.parameters, range: waiting.fault.range.clone() };
            if waiting.left == 0 {
                self.update();
            }
            return Some(hit);
        }
        let rate = self.rates[kind as usize];
        let happens = rate > 0.0 && is_occasion(&Parameters::default(), None) && self.random.f64() < rate;
        happens.then(Hit::default)
    }

    /// An armed fault of this kind that names the place at rest which it damages. What counts writes or flushes comes
    /// after the operation, else the operation would undo it; all others come before (`is_early`).
    pub(super) fn draw_at_rest(&mut self, kind: FaultKind, is_early: bool) -> Option<Hit> {
        let ready = self.waiting.iter().position(|waiting| {
            let fault = &waiting.fault;
            let comes_late = matches!(fault.when, When::Write(_) | When::Flush(_));
            waiting.is_armed && fault.kind == kind && fault.parameters.offset.is_some() && comes_late != is_early
        })?;
        self.waiting[ready].left -= 1;
        let hit = Hit { parameters: self.waiting[ready].fault.parameters, range: None };
        self.update();
        Some(hit)
    }
}
