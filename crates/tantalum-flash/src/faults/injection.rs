//! What happens around an operation of the model below: before it, after it, and instead of it.

use std::ops::Range;

use tantalum_device::WriteCache;
use tantalum_rt::Random;

use super::fault_log::Event;
use super::history::{Damage, Record};
use super::kind::Occasion;
use super::power_cut::Cut;
use super::schedule::{Hit, Operation, is_within};
use super::{FaultKind, FaultyModel, Parameters, Queued, Role};
use crate::{MediaError, Nanos, Outcome};

/// What a slow operation takes longer if the plan does not say.
const SLOW: Nanos = 200_000_000;

impl FaultyModel {
    pub(super) fn note(&self, kind: FaultKind, at: Nanos, (offset, len): (u64, u64)) {
        self.log.note(&Event { kind, at, offset, len });
    }

    /// Whether a fault happens to the operation at this place.
    pub(super) fn draw(&mut self, kind: FaultKind, now: Nanos, place: (u64, u64)) -> Option<Hit> {
        self.draw_if(kind, now, place, |_| true)
    }

    pub(super) fn draw_if(
        &mut self,
        kind: FaultKind,
        now: Nanos,
        place: (u64, u64),
        fits: impl Fn(&Parameters) -> bool,
    ) -> Option<Hit> {
        let (offset, len) = place;
        // A flush has no place: a range does not limit it.
        let is_here = |range: Option<&Range<u64>>| len == 0 || is_within(range, offset, len);
        let hit = self.schedule.draw(kind, |parameters, range| is_here(range) && fits(parameters))?;
        self.note(kind, now, place);
        Some(hit)
    }

    /// What comes before every operation. Returns the outcome if the device does not get to it.
    pub(super) fn begin(&mut self, operation: Operation, now: Nanos, place: (u64, u64)) -> Option<Outcome> {
        if let Some(cut) = self.aftermath.take() {
            cut.resolve(&*self.inner, &mut self.overlay);
        }
        self.history.prune(now);
        self.schedule.count(operation, now, place.0, place.1);
        self.decay(now, true);
        if self.is_dead {
            return Some(Outcome::failed(now, MediaError::Dead));
        }
        if self.stuck_until <= now
            && let Some(hit) = self.draw(FaultKind::Stuck, now, place)
        {
            self.stuck_until = hit.parameters.delay.map_or(Nanos::MAX, |delay| now.saturating_add(delay));
        }
        (self.stuck_until == Nanos::MAX).then(|| Outcome::ok(Nanos::MAX))
    }

    /// What comes after every operation: when does the host see its end?
    pub(super) fn finish(&mut self, now: Nanos, place: (u64, u64), role: Role, mut outcome: Outcome) -> Outcome {
        self.decay(now, false);
        let slow = self.draw(FaultKind::Slow, now, place);
        let delay = slow.map_or(0, |hit| hit.parameters.delay.unwrap_or(SLOW));
        match outcome.ticket {
            Some(ticket) => {
                if role != Role::Other || delay > 0 || self.stuck_until > now {
                    self.queued.insert(ticket, Queued { role, delay, not_before: self.stuck_until, end: None });
                }
            }
            None => {
                outcome.done = outcome.done.saturating_add(delay).max(self.stuck_until);
                self.complete(role, outcome.done);
            }
        }
        outcome
    }

    pub(super) fn complete(&mut self, role: Role, done: Nanos) {
        match role {
            Role::Other => {}
            Role::Write(number) => self.history.complete(number, done),
            Role::Flush(submitted) => self.history.flushed(submitted, done),
        }
    }

    /// Damage at rest whose place the plan names.
    pub(super) fn decay(&mut self, now: Nanos, is_early: bool) {
        for kind in [FaultKind::BitRot, FaultKind::UnreadableSector] {
            while self.schedule.is_possible(kind)
                && let Some(hit) = self.schedule.draw_at_rest(kind, is_early)
            {
                let block = hit.parameters.offset.expect("it names a place");
                self.damage(kind, block, &hit);
                self.note(kind, now, (block, u64::from(self.shape.logical_block)));
            }
        }
    }

    pub(super) fn damage(&mut self, kind: FaultKind, block: u64, hit: &Hit) {
        if kind == FaultKind::BitRot {
            let bits = hit.parameters.bits.unwrap_or(1);
            self.overlay.rot(&*self.inner, block, bits, &mut self.schedule.random);
        } else {
            self.overlay.insert(block, Damage::Unreadable);
        }
    }

    /// Damage at rest somewhere in what is read.
    pub(super) fn decay_within(&mut self, now: Nanos, (offset, len): (u64, u64)) {
        let block = u64::from(self.shape.logical_block);
        for kind in [FaultKind::BitRot, FaultKind::UnreadableSector] {
            let is_open = |parameters: &Parameters| parameters.offset.is_none() && len > 0;
            let draw = |parameters: &Parameters, range: Option<&Range<u64>>| {
                is_open(parameters) && is_within(range, offset, len)
            };
            let Some(hit) = self.schedule.draw(kind, draw) else { continue };
            let within = hit.range.clone().unwrap_or(0..u64::MAX);
            let from = offset.max(within.start / block * block);
            let to = (offset + len).min(within.end);
            let at = from + self.schedule.random.u64(..(to - from).div_ceil(block)) * block;
            self.damage(kind, at, &hit);
            self.note(kind, now, (at, block));
        }
    }

    /// Another place for an operation, if it goes astray.
    pub(super) fn astray(&mut self, kind: FaultKind, now: Nanos, (offset, len): (u64, u64)) -> Option<u64> {
        let (capacity, block) = (self.shape.capacity_bytes, u64::from(self.shape.logical_block));
        let others = capacity.checked_sub(len)? / block;
        let fits = |parameters: &Parameters| {
            let is_elsewhere = |to: u64| to != offset && to.checked_add(len).is_some_and(|end| end <= capacity);
            len > 0 && others > 0 && parameters.offset.is_none_or(is_elsewhere)
        };
        let hit = self.draw_if(kind, now, (offset, len), fits)?;
        Some(hit.parameters.offset.unwrap_or_else(|| {
            let other = self.schedule.random.u64(..others) * block;
            if other >= offset { other + block } else { other }
        }))
    }

    /// Whether a durable write still is one, and whether the flush within it fails.
    pub(super) fn bend(&mut self, now: Nanos, place: (u64, u64), durable: bool) -> (bool, bool) {
        if !durable || self.shape.write_cache == WriteCache::None {
            return (durable, false);
        }
        if self.shape.fua {
            return (self.draw(FaultKind::IgnoredFua, now, place).is_none(), false);
        }
        if self.draw(FaultKind::IgnoredFlush, now, place).is_some() {
            return (false, false);
        }
        let fails = self.draw(FaultKind::FlushFailsOnce, now, place).is_some();
        (!fails, fails)
    }

    /// Writes, and remembers what was there if that may matter.
    pub(super) fn write_at(
        &mut self,
        now: Nanos,
        offset: u64,
        data: &[u8],
        durable: bool,
        handle: u32,
    ) -> (Outcome, Role) {
        let len = data.len() as u64;
        let beneath = self.overlay.remove(offset, len);
        let old = (self.is_recording || !beneath.is_empty()).then(|| {
            let mut old = vec![0; data.len()];
            self.inner.peek(offset, &mut old);
            for (block, damage) in &beneath {
                if let Damage::Bytes(bytes) = damage {
                    old[(block - offset) as usize..][..bytes.len()].copy_from_slice(bytes);
                }
            }
            old
        });
        let outcome = self.inner.write_placed(now, offset, data, durable, handle);
        if outcome.result.is_err() {
            beneath.into_iter().for_each(|(block, damage)| self.overlay.insert(block, damage));
            return (outcome, Role::Other);
        }
        let Some(old) = old else { return (outcome, Role::Other) };
        let number = self.history.push(Record {
            offset,
            new: data.to_vec(),
            old,
            beneath,
            submitted: now,
            done: Nanos::MAX,
            secured: Nanos::MAX,
            is_durable: durable || self.shape.write_cache == WriteCache::None,
            is_dropped: false,
            void: Vec::new(),
        });
        (outcome, Role::Write(number))
    }

    /// The faults of a power cut at `now`, which the model below has just had.
    pub(super) fn cut(&mut self, now: Nanos, random: &mut Random) -> Cut {
        let mut cut = Cut::new(now, self.shape, self.history.take());
        for kind in FaultKind::ALL {
            if kind.traits().occasion != Occasion::Cut || kind == FaultKind::DeadAfterCut {
                continue;
            }
            let concerns = |p: &Parameters, range: Option<&Range<u64>>| !cut.concerned(kind, p, range).is_empty();
            if let Some(hit) = self.schedule.draw(kind, concerns) {
                let concerned = cut.concerned(kind, &hit.parameters, hit.range.as_ref());
                let place = cut.happen(kind, &hit, &concerned, random);
                self.note(kind, now, place);
            }
        }
        cut
    }
}
