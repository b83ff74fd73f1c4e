//! Which faults really happened: counts for reports, the latest ones for messages.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_rt::Mutex;

use super::FaultKind;
use super::kind::KINDS;
use crate::Nanos;

/// How many events are kept.
const EVENTS: usize = 64;

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
    events: Mutex<VecDeque<Event>>,
}

impl Default for FaultLog {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; KINDS], events: Mutex::new(VecDeque::new()) }
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
        self.counts().map(|(_, count)| count).sum()
    }

    /// The latest faults, the oldest of them first.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().iter().cloned().collect()
    }

    pub(super) fn note(&self, event: Event) {
        self.counts[event.kind as usize].fetch_add(1, Ordering::Relaxed);
        let mut events = self.events.lock();
        if events.len() == EVENTS {
            events.pop_front();
        }
        events.push_back(event);
    }
}
