//! What lies between a host and a drive: so much time for a command, and an interface that carries its data.

use crate::Nanos;

/// Nanoseconds of microseconds.
pub(crate) fn nanos(micros: f64) -> Nanos {
    (micros * 1000.0).round() as Nanos
}

/// Carries one thing after the other.
#[derive(Debug)]
pub(crate) struct Link {
    /// What a command takes in the interface and the controller.
    pub command: Nanos,
    mb_per_s: f64,
    free: Nanos,
}

impl Link {
    pub fn new(command_us: f64, mb_per_s: f64) -> Self {
        Self { command: nanos(command_us), mb_per_s, free: 0 }
    }

    /// What so many bytes take.
    pub fn transfer(&self, bytes: usize) -> Nanos {
        nanos(bytes as f64 / self.mb_per_s)
    }

    /// Carries data, not before `ready`; returns when it has.
    pub fn carry(&mut self, ready: Nanos, bytes: usize) -> Nanos {
        self.free = ready.max(self.free) + self.transfer(bytes);
        self.free
    }

    /// Forgets what was under way.
    pub fn reset(&mut self, now: Nanos) {
        self.free = now;
    }
}
