//! What happened in a run, in order.

use std::{
    fmt,
    hash::{BuildHasher, Hasher},
    time::Duration,
};

use crate::collections::FixedState;

/// Seed of the fingerprint, so that it is the same in every build.
const FINGERPRINT_SEED: u64 = 0;

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Virtual time since the clock's origin.
    pub at: Duration,
    /// The task it happened to: the root is 0, the others are numbered as they were spawned.
    pub task: usize,
    /// What happened.
    pub what: String,
}

/// All that happened in a run: equal traces mean equal runs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl Trace {
    /// The events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// A hash of all events, the same on every machine.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FixedState::with_seed(FINGERPRINT_SEED).build_hasher();
        for event in &self.events {
            hasher.write_u64(crate::clock::nanos(event.at));
            hasher.write_u64(event.task as u64);
            hasher.write_u64(event.what.len() as u64);
            hasher.write(event.what.as_bytes());
        }
        hasher.finish()
    }

    pub(super) fn push(&mut self, at_ns: u64, task: usize, what: String) {
        self.events.push(Event { at: Duration::from_nanos(at_ns), task, what });
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(formatter, "{:>15} ns  task {:<4} {}", event.at.as_nanos(), event.task, event.what)?;
        }
        Ok(())
    }
}
