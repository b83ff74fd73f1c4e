//! Which faults really happened: counts for reports, the latest ones for messages.
//!
//! Invariant: nothing here locks. Faults happen under the device's lock, under which no task may be switched, and they are
//! asked for when a simulation has ended in the middle of anything.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::FaultKind;
use super::kind::KINDS;
use crate::Nanos;

/// Slots for events. The one that is written next is not shown.
const SLOTS: u64 = 64;

/// A fault that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: FaultKind,
    /// When, in device time.
    pub at: Nanos,
    /// First byte concerned.
    pub offset: u64,
    /// Bytes concerned; 0 if it is the whole device.
    pub len: u64,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {:.6} s", self.kind, self.at as f64 / 1e9)?;
        match self.len {
            0 => Ok(()),
            len => write!(f, ", byte {} for {len} bytes", self.offset),
        }
    }
}

/// The faults that happened to one device. Shared with the device; may be asked at any time.
#[derive(Debug)]
pub struct FaultLog {
    counts: [AtomicU64; KINDS],
    /// Events so far: number `n` is in slot `n % SLOTS`.
    total: AtomicU64,
    slots: [Slot; SLOTS as usize],
}

/// An [`Event`], field by field.
#[derive(Debug, Default)]
struct Slot {
    kind: AtomicU64,
    at: AtomicU64,
    offset: AtomicU64,
    len: AtomicU64,
}

impl Default for FaultLog {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; KINDS],
            total: AtomicU64::new(0),
            slots: std::array::from_fn(|_| Slot::default()),
        }
    }
}

impl FaultLog {
    /// How often a fault of this kind happened.
    pub fn count(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize].load(Ordering::Relaxed)
    }

    /// The kinds that happened, and how often.
    pub fn counts(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        FaultKind::ALL.into_iter().map(|kind| (kind, self.count(kind))).filter(|&(_, count)| count > 0)
    }

    /// How many faults happened.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// The latest faults, up to 63, the oldest of them first.
    pub fn events(&self) -> Vec<Event> {
        let end = self.total.load(Ordering::Acquire);
        let first = end.saturating_sub(SLOTS);
        let events: Vec<Event> = (first..end).map(|number| self.slot(number).event()).collect();
        // A reader that has read anything of event `n` sees a total of at least `n` here: those that it overwrites are left out.
        fence(Ordering::Acquire);
        let overwritten = (self.total.load(Ordering::Relaxed) + 1).saturating_sub(SLOTS);
        events.into_iter().skip(overwritten.saturating_sub(first) as usize).collect()
    }

    /// Called by the model alone, so by one at a time.
    pub(super) fn note(&self, event: &Event) {
        self.counts[event.kind as usize].fetch_add(1, Ordering::Relaxed);
        let number = self.total.load(Ordering::Relaxed);
        // Before the slot changes, the total is known that tells which event this overwrites.
        fence(Ordering::Release);
        self.slot(number).set(event);
        self.total.store(number + 1, Ordering::Release);
    }

    fn slot(&self, number: u64) -> &Slot {
        &self.slots[(number % SLOTS) as usize]
    }
}

impl Slot {
    fn set(&self, event: &Event) {
        self.kind.store(event.kind as u64, Ordering::Relaxed);
        self.at.store(event.at, Ordering::Relaxed);
        self.offset.store(event.offset, Ordering::Relaxed);
        self.len.store(event.len, Ordering::Relaxed);
    }

    fn event(&self) -> Event {
        Event {
            kind: FaultKind::ALL[self.kind.load(Ordering::Relaxed) as usize],
            at: self.at.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
            len: self.len.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_events_are_kept_in_order() {
        let log = FaultLog::default();
        for total in 0..200 {
            let numbers: Vec<u64> = log.events().iter().map(|event| event.offset).collect();
            assert_eq!(numbers, (total - total.min(SLOTS - 1)..total).collect::<Vec<_>>());
            log.note(&Event { kind: FaultKind::Slow, at: 7 * total, offset: total, len: 1 });
        }
        let last = Event { kind: FaultKind::Slow, at: 7 * 199, offset: 199, len: 1 };
        assert_eq!((log.events().pop(), log.total()), (Some(last), 200));
    }
}
