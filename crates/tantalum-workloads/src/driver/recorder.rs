//! What one client saw: how its transactions ended and how long they took.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use tantalum_rt::{Instant, Random, now};

use super::{Options, Shared};
use crate::error::{Error, Result};

/// How a transaction ended, if not by an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Durable.
    Committed,
    /// Rolled back, as it was meant to be.
    RolledBack,
}

/// Latencies are kept up to this one; it bounds the memory of a histogram.
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

/// Counts and latencies of one client.
pub struct Recorder {
    shared: Arc<Shared>,
    client: usize,
    random: Random,
    cpu_per_attempt: Duration,
    round_trip: Duration,
    pub(super) kinds: Vec<KindCounts>,
    /// Transactions that ended, counted or not.
    pub(super) ended: u64,
}

pub(super) struct KindCounts {
    pub(super) committed: u64,
    pub(super) rolled_back: u64,
    pub(super) aborted: u64,
    pub(super) retried: u64,
    /// From the first attempt to the acknowledgement, in nanoseconds.
    pub(super) latency_ns: Histogram<u64>,
}

impl KindCounts {
    pub(super) fn new() -> Self {
        let latency_ns = Histogram::new(2).expect("two significant digits are possible");
        Self { committed: 0, rolled_back: 0, aborted: 0, retried: 0, latency_ns }
    }
}

impl Recorder {
    pub(super) fn new(kinds: usize, shared: Arc<Shared>, options: &Options, client: usize) -> Self {
        let kinds = (0..kinds).map(|_| KindCounts::new()).collect();
        let random = Random::with_seed(options.seed.wrapping_add(client as u64));
        let Options { cpu_per_attempt, round_trip, .. } = *options;
        Self { shared, client, random, cpu_per_attempt, round_trip, kinds, ended: 0 }
    }

    /// Charges an attempt's time of a core, when its request has come over the network.
    fn charge_attempt(&self) {
        if !self.round_trip.is_zero() {
            tantalum_rt::sleep(self.round_trip);
        }
        tantalum_rt::work(self.cpu_per_attempt);
    }

    /// Makes attempts at one transaction until one ends with something else than an error that says to try again.
    /// `None`: the run was stopped in between.
    pub fn run(&mut self, kind: usize, attempt: impl FnMut() -> Result<Completed>) -> Result<Option<Completed>> {
        let started = now();
        let completed = self.attempt(kind, attempt)?;
        if let Some(completed) = completed {
            self.completed(kind, started, completed);
        }
        Ok(completed)
    }

    /// As [`run`](Self::run), of something that is not complete when its attempt succeeds: it is not counted.
    pub(super) fn attempt<T>(&mut self, kind: usize, mut attempt: impl FnMut() -> Result<T>) -> Result<Option<T>> {
        let mut tries = 0;
        loop {
            self.charge_attempt();
            match attempt() {
                Ok(done) => return Ok(Some(done)),
                Err(error) => {
                    self.aborted(kind, error)?;
                    if self.is_stopping() {
                        return Ok(None);
                    }
                    self.back_off(tries);
                    tries += 1;
                    self.retried(kind);
                }
            }
        }
    }

    /// Whether the run is to end: a client then finishes what it has begun.
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Relaxed)
    }

    /// Counts a transaction whose first attempt began at `started`.
    pub fn completed(&mut self, kind: usize, started: Instant, completed: Completed) {
        self.ended += 1;
        if !self.is_counting() {
            return;
        }
        let counts = &mut self.kinds[kind];
        match completed {
            Completed::Committed => {
                counts.committed += 1;
                self.shared.clients[self.client].committed[kind].store(counts.committed, Ordering::Relaxed);
            }
            Completed::RolledBack => counts.rolled_back += 1,
        }
        let latency_ns = started.elapsed().min(LONGEST_LATENCY).as_nanos() as u64;
        counts.latency_ns.record(latency_ns).expect("a histogram that resizes itself takes an hour");
    }

    /// Counts an attempt that the engine aborted; any other error is given back.
    fn aborted(&mut self, kind: usize, error: Error) -> Result<()> {
        if !error.is_retryable() {
            return Err(error);
        }
        if self.is_counting() {
            self.kinds[kind].aborted += 1;
            self.shared.clients[self.client].aborted.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn retried(&mut self, kind: usize) {
        if self.is_counting() {
            self.kinds[kind].retried += 1;
        }
    }

    /// Lets the winner of a conflict go first: at once after the first abort, then longer and at random.
    fn back_off(&mut self, tries: u32) {
        const LONGEST_US: u64 = 10_000;
        match tries {
            0 => tantalum_rt::yield_now(),
            _ => {
                let limit_us = (50 << tries.min(10)).min(LONGEST_US);
                tantalum_rt::sleep(Duration::from_micros(self.random.u64(1..=limit_us)));
            }
        }
    }

    fn is_counting(&self) -> bool {
        self.shared.is_counting.load(Ordering::Relaxed)
    }
}
