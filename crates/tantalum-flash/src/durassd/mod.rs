//! A durable cache: memory that capacitors keep alive for long enough to dump it ("Durable Write Cache in Flash Memory
//! SSD for Relational and NoSQL Databases", SIGMOD 2014, section 3).
//!
//! Promises: a write that has completed is there after a power cut, whole; one that has not is there whole or not at
//! all. That holds as long as the dump fits the energy of the capacitors. One that does not is counted
//! ([`Counters::dump_overruns`](crate::Counters)) and loses what was to be dumped last.
//!
//! - The buffer pool and its flusher are [`crate::ssd`]'s: queues by channel, coalescing, two sectors to a page.
//! - Atomic writer (section 3.2): a command counts from its completion on; a dump leaves incomplete ones out.
//! - Recovery manager (section 3.4): the dump, and its replay at the next start.

mod dump;

use serde::Deserialize;

use crate::Nanos;

/// The capacitors, and what they must feed, as a profile gives them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacitors {
    /// How many; 0 makes the memory volatile in truth, though the drive still claims that it is not.
    pub count: u32,
    /// Capacity of each, in microfarads.
    pub microfarads: f64,
    /// Voltage when charged.
    pub full_volts: f64,
    /// Voltage below which the drive stops.
    pub empty_volts: f64,
    /// What the drive draws while it dumps.
    pub dump_watts: f64,
    /// Time to charge them when power returns.
    pub recharge_ns: Nanos,
}

impl Capacitors {
    /// How long the drive goes on without power: half the capacity times the difference of the squares of the voltages,
    /// over the power.
    ///
    /// ```
    /// let capacitors = tantalum_flash::durassd::Capacitors {
    ///     count: 10, microfarads: 200.0, full_volts: 10.0, empty_volts: 5.0, dump_watts: 7.5, recharge_ns: 0,
    /// };
    /// assert_eq!(capacitors.hold_ns(), 10_000_000); // 0.002 F x 75 V² / 2 / 7.5 W
    /// ```
    pub fn hold_ns(&self) -> Nanos {
        let farads = f64::from(self.count) * self.microfarads * 1e-6;
        let joules = farads * (self.full_volts.powi(2) - self.empty_volts.powi(2)) / 2.0;
        (joules.max(0.0) / self.dump_watts * 1e9).round() as Nanos
    }
}

/// The state of a protected memory.
#[derive(Debug)]
pub struct Protection {
    hold_ns: Nanos,
    recharge_ns: Nanos,
    /// Memory is restored, and can be dumped, from then on.
    ready: Nanos,
}

impl Protection {
    /// Memory under charged capacitors.
    pub fn new(capacitors: &Capacitors) -> Self {
        Self { hold_ns: capacitors.hold_ns(), recharge_ns: capacitors.recharge_ns, ready: 0 }
    }
}

#[cfg(test)]
mod tests;
