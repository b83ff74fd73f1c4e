//! Devices that fail: a wrapper over any model that does what a plan says, at the host's interface.
//!
//! Timing, contents and faults stay apart: the model below knows nothing of them. What it holds is pristine, and damage
//! lies over it as an overlay, so that an oracle is exact.
//!
//! Promises: a fault does what [`FaultKind::doc`] says, no more. None that is [`Survival::Survivable`] changes what the
//! device had promised to keep: it touches only writes at stake, and leaves whole what the device writes atomically. All
//! faults of a plan compose. What happened is in the [`FaultLog`].

mod fault_log;
mod history;
mod injection;
mod kind;
mod plan;
mod power_cut;
mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;

use tantalum_device::WriteCache;
use tantalum_rt::Random;

pub use fault_log::{Event, FaultLog};
pub use kind::{FaultKind, Survival};
pub use plan::{Parameters, Plan, Planned, When};

use crate::{Counters, MediaError, Model, Nanos, Outcome, Result, Shape, Ticket};
use history::{History, Overlay};
use kind::Occasion;
use power_cut::{Cut, DUMP, ROLLBACK};
use schedule::{Operation, Schedule};

/// How often the power fails again while a device starts.
const CUTS_MAX: u32 = 4;

/// A model under a plan of faults.
///
/// ```
/// use tantalum_flash::faults::{FaultKind, FaultyModel, Plan, Planned, When};
/// use tantalum_flash::{MediaError, Profile};
/// let model = Profile::named("ssd-a")?.with_capacity(16 << 20).build()?;
/// let plan = Plan::new(1).with_fault(Planned::new(When::Read(2), FaultKind::UnreadableSector));
/// let (mut model, log) = FaultyModel::wrap("my plan", model, plan)?;
/// let mut block = [0; 4096];
/// let first = model.read(0, 0, &mut block);
/// let second = model.read(first.done, 0, &mut block);
/// assert!(first.result.is_ok());
/// assert!(matches!(second.result, Err(MediaError::Unreadable { offset: 0..4096 })));
/// assert_eq!(log.count(FaultKind::UnreadableSector), 1);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Debug)]
pub struct FaultyModel {
    inner: Box<dyn Model>,
    shape: Shape,
    schedule: Schedule,
    log: Arc<FaultLog>,
    overlay: Overlay,
    history: History,
    /// Whether the plan may undo writes.
    is_recording: bool,
    /// A power cut whose traces are not laid over the model yet.
    aftermath: Option<Cut>,
    is_dead: bool,
    /// Nothing completes before.
    stuck_until: Nanos,
    /// How long the latest write took.
    write_took: Nanos,
    queued: BTreeMap<Ticket, Queued>,
}

/// An operation that the model has queued, and that matters when it ends.
#[derive(Debug)]
struct Queued {
    role: Role,
    delay: Nanos,
    not_before: Nanos,
    /// When it ends for the host, once it has ended below.
    end: Option<Nanos>,
}

/// What the end of an operation means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Nothing.
    Other,
    /// This record has completed.
    Write(u64),
    /// What had completed when it was submitted is durable.
    Flush(Nanos),
}

impl FaultyModel {
    /// The model with the plan's faults from now on, and the log of those that happen. `name` is used in messages. A
    /// plan without faults costs nothing.
    ///
    /// # Errors
    /// `InvalidInput` if a device of this shape cannot have them.
    pub fn wrap(name: &str, inner: Box<dyn Model>, plan: Plan) -> Result<(Box<dyn Model>, Arc<FaultLog>)> {
        let shape = inner.describe();
        plan.check(name, &shape)?;
        let log = Arc::new(FaultLog::default());
        if plan.is_empty() {
            return Ok((inner, log));
        }
        let schedule = Schedule::new(plan);
        let undoes = |kind: &FaultKind| kind.traits().occasion == Occasion::Cut && *kind != FaultKind::DeadAfterCut;
        let is_recording = FaultKind::ALL
            .iter()
            .any(|kind| schedule.is_possible(*kind) && (undoes(kind) || *kind == FaultKind::FlushFailsOnce));
        let keeps = [
            (FaultKind::MapRollback, ROLLBACK),
            (FaultKind::WeakCapacitor, DUMP),
            (FaultKind::FlushReorder, ROLLBACK),
            (FaultKind::NeighbourDamage, ROLLBACK),
        ];
        let keep = keeps.into_iter().filter(|&(kind, _)| schedule.is_possible(kind));
        let keep = keep.map(|(kind, default)| schedule.most_back(kind, default)).max().unwrap_or(0);
        let model = Self {
            overlay: Overlay::new(u64::from(shape.logical_block)),
            history: History::new(keep),
            is_recording,
            aftermath: None,
            is_dead: false,
            stuck_until: 0,
            write_took: 0,
            queued: BTreeMap::new(),
            log: Arc::clone(&log),
            inner,
            shape,
            schedule,
        };
        Ok((Box::new(model), log))
    }
}

impl Model for FaultyModel {
    fn describe(&self) -> Shape {
        self.shape
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        let place = (offset, buffer.len() as u64);
        if let Some(outcome) = self.begin(Operation::Read, now, place) {
            return outcome;
        }
        self.decay_within(now, place);
        let from = self.astray(FaultKind::MisdirectedRead, now, place).unwrap_or(offset);
        let mut outcome = self.inner.read(now, from, buffer);
        if let Some(offset) = self.overlay.patch(from, buffer) {
            outcome.result = Err(MediaError::Unreadable { offset });
        }
        let is_short = |parameters: &Parameters| parameters.bytes.is_none_or(|bytes| bytes < place.1) && place.1 > 0;
        if let Some(hit) = self.draw_if(FaultKind::ShortRead, now, place, is_short) {
            let found = hit.parameters.bytes.unwrap_or_else(|| self.schedule.random.u64(..place.1));
            buffer[found as usize..].fill(0);
            outcome.result = Err(MediaError::Short { offset, found });
        }
        self.finish(now, place, Role::Other, outcome)
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.write_placed(now, offset, data, durable, 0)
    }

    fn write_placed(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool, handle: u32) -> Outcome {
        let place = (offset, data.len() as u64);
        if let Some(outcome) = self.begin(Operation::Write, now, place) {
            return outcome;
        }
        if data.is_empty() {
            let outcome = self.inner.write(now, offset, data, durable);
            return self.finish(now, place, Role::Other, outcome);
        }
        if self.draw(FaultKind::NoSpace, now, place).is_some() {
            return self.finish(now, place, Role::Other, Outcome::failed(now, MediaError::NoSpace { offset }));
        }
        if self.draw(FaultKind::LostWrite, now, place).is_some() {
            return self.finish(now, place, Role::Other, Outcome::ok(now + self.write_took));
        }
        let to = self.astray(FaultKind::MisdirectedWrite, now, place).unwrap_or(offset);
        let (durable, fails) = self.bend(now, place, durable);
        let (outcome, role) = self.write_at(now, to, data, durable, handle);
        self.write_took = outcome.done - now;
        let mut outcome = self.finish(now, place, role, outcome);
        if fails {
            self.history.flush_failed(now);
            if let Role::Write(number) = role {
                self.history.drop_write(number);
            }
            outcome.result = Err(MediaError::FlushFailed);
        }
        outcome
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        let nowhere = (0, 0);
        if let Some(outcome) = self.begin(Operation::Flush, now, nowhere) {
            return outcome;
        }
        let is_volatile = self.shape.write_cache != WriteCache::None;
        let (role, outcome) = if is_volatile && self.draw(FaultKind::IgnoredFlush, now, nowhere).is_some() {
            (Role::Other, Outcome::ok(now))
        } else if self.draw(FaultKind::FlushFailsOnce, now, nowhere).is_some() {
            self.history.flush_failed(now);
            (Role::Other, Outcome::failed(now, MediaError::FlushFailed))
        } else {
            let outcome = self.inner.flush(now);
            (if outcome.result.is_ok() { Role::Flush(now) } else { Role::Other }, outcome)
        };
        self.finish(now, nowhere, role, outcome)
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        if let Some(outcome) = self.begin(Operation::Discard, now, (offset, len)) {
            return outcome;
        }
        let outcome = self.inner.discard(now, offset, len);
        if outcome.result.is_ok() {
            self.overlay.remove(offset, len);
            self.history.discard(offset, len);
        }
        self.finish(now, (offset, len), Role::Other, outcome)
    }

    fn reset_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        let place = (offset, self.shape.zones.map_or(0, |zones| zones.bytes));
        if let Some(outcome) = self.begin(Operation::Discard, now, place) {
            return outcome;
        }
        let outcome = self.inner.reset_zone(now, offset);
        if outcome.result.is_ok() {
            self.overlay.remove(place.0, place.1);
            self.history.discard(place.0, place.1);
        }
        self.finish(now, place, Role::Other, outcome)
    }

    fn finish_zone(&mut self, now: Nanos, offset: u64) -> Outcome {
        let place = (offset, self.shape.zones.map_or(0, |zones| zones.bytes));
        if let Some(outcome) = self.begin(Operation::Discard, now, place) {
            return outcome;
        }
        let outcome = self.inner.finish_zone(now, offset);
        self.finish(now, place, Role::Other, outcome)
    }

    fn active_zones(&self) -> Vec<u64> {
        self.inner.active_zones()
    }

    fn ask_again(&mut self, now: Nanos, ticket: Ticket) -> Option<Nanos> {
        let end = match self.queued.get(&ticket) {
            Some(Queued { end: Some(end), .. }) => *end,
            Some(queued) => match self.inner.ask_again(now, ticket) {
                Some(later) => return Some(later),
                None => now.saturating_add(queued.delay).max(queued.not_before),
            },
            None => return self.inner.ask_again(now, ticket),
        };
        if end > now {
            self.queued.entry(ticket).and_modify(|queued| queued.end = Some(end));
            return Some(end);
        }
        if let Some(queued) = self.queued.remove(&ticket) {
            self.complete(queued.role, now);
        }
        None
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.inner.peek(offset, buffer);
        match &self.aftermath {
            None => self.overlay.patch(offset, buffer),
            Some(cut) => {
                let mut overlay = self.overlay.clone();
                cut.resolve(&*self.inner, &mut overlay);
                overlay.patch(offset, buffer)
            }
        };
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        for ticket in self.queued.keys().copied().collect::<Vec<_>>() {
            let _ = self.ask_again(now, ticket);
        }
        self.queued.clear();
        self.stuck_until = 0;
        self.inner.power_cut(now, random);
        self.schedule.count(Operation::Cut, now, 0, self.shape.capacity_bytes);
        self.is_dead |= self.draw(FaultKind::DeadAfterCut, now, (0, 0)).is_some();
        // If nothing was asked for since the last cut, its traces are still to be laid, and there are no others.
        if self.aftermath.is_none() {
            let mut fates = Random::with_seed(random.u64(..));
            self.aftermath = Some(self.cut(now, &mut fates));
        }
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        let mut ready = self.inner.power_on(now);
        let mut from = now;
        for _ in 0..CUTS_MAX {
            if ready <= from || self.draw(FaultKind::CutDuringRecovery, from, (0, 0)).is_none() {
                break;
            }
            from = self.schedule.random.u64(from..ready);
            let mut random = self.schedule.random.fork();
            self.inner.power_cut(from, &mut random);
            ready = self.inner.power_on(from);
        }
        ready
    }

    fn catch_up(&mut self, now: Nanos) {
        self.inner.catch_up(now);
    }

    /// Damaged bytes go to the medium, so that they are there when the device is opened again. What cannot be read is
    /// then readable; only a file beside the medium could say that it is not.
    fn shut_down(&mut self, now: Nanos) -> Nanos {
        let mut now = now;
        if !self.is_dead {
            if let Some(cut) = self.aftermath.take() {
                cut.resolve(&*self.inner, &mut self.overlay);
            }
            Cut::new(now, self.shape, self.history.take()).resolve(&*self.inner, &mut self.overlay);
            for (block, bytes) in self.overlay.drain_bytes() {
                now = self.inner.write(now, block, &bytes, true).end(&mut *self.inner).max(now);
            }
        }
        self.inner.shut_down(now)
    }

    fn counters(&self) -> Counters {
        self.inner.counters()
    }
}
