//! A memory device's state under its lock: contents, operations under way, faults.
//!
//! An operation completes by the clock: a task that takes the lock lets everything whose time has come take effect
//! first, in the order of those times. No task of the device's own is needed, on either clock.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tantalum_rt::{Instant, Random};

use super::MemoryProfile;
use super::contents::{Change, Contents, Effect};
use crate::{AlignedBuffer, Durability, Error, Result};

pub(super) struct State {
    pub(super) contents: Contents,
    pub(super) in_flight: BTreeMap<u64, InFlight>,
    /// Results that a caller will ask for.
    pub(super) results: BTreeMap<u64, Result<()>>,
    next_id: u64,
    pub(super) faults: Faults,
    pub(super) poison: Option<Error>,
    /// Counts power cuts.
    pub(super) generation: u64,
    pub(super) random: Random,
}

/// A write or discard under way.
#[derive(Clone)]
pub(super) struct InFlight {
    pub(super) effect: Effect,
    durability: Durability,
    /// `None` if it hangs.
    pub(super) done_at: Option<Instant>,
    error: Option<Error>,
    /// Whether a caller will ask for the result.
    pub(super) is_watched: bool,
    /// The memory that a submitted write borrows until it is done.
    borrowed: Option<Borrowed>,
}

/// Memory that must not change before the write is done: real hardware may read it at any time until then.
pub(super) type Borrowed = (Arc<AlignedBuffer>, Range<usize>);

impl State {
    pub(super) fn new(contents: Contents, random: Random) -> Self {
        Self {
            contents,
            in_flight: BTreeMap::new(),
            results: BTreeMap::new(),
            next_id: 0,
            faults: Faults::default(),
            poison: None,
            generation: 0,
            random,
        }
    }

    /// The same medium with the same operations under way, for a new device: no caller waits for them, nothing is broken.
    pub(super) fn fork(&self) -> Self {
        let mut fork = Self::new(self.contents.clone(), self.random.clone());
        fork.in_flight = self.in_flight.clone();
        for operation in fork.in_flight.values_mut() {
            operation.is_watched = false;
            operation.borrowed = None;
        }
        fork.next_id = self.next_id;
        fork
    }

    /// Lets everything take effect whose time has come.
    pub(super) fn settle(&mut self) {
        if self.in_flight.is_empty() {
            return;
        }
        let now = tantalum_rt::now();
        let mut due: Vec<(Instant, u64)> = Vec::new();
        for (&id, operation) in &self.in_flight {
            due.extend(operation.done_at.filter(|&at| at <= now).map(|at| (at, id)));
        }
        due.sort_unstable();
        for (_, id) in due {
            if let Some(operation) = self.in_flight.remove(&id) {
                self.complete(id, operation);
            }
        }
    }

    fn complete(&mut self, id: u64, operation: InFlight) {
        if let (Some((buffer, range)), Change::Write(bytes)) = (operation.borrowed, &operation.effect.change) {
            assert!(buffer[range] == bytes[..], "a buffer stays as it is until the write that reads it is done");
        }
        let result = match operation.error {
            None => {
                self.contents.complete(operation.effect, operation.durability);
                Ok(())
            }
            Some(error) => {
                self.contents.fail(&operation.effect, &mut self.random);
                if operation.durability == Durability::Durable {
                    self.poison.get_or_insert_with(|| error.clone());
                }
                Err(error)
            }
        };
        if operation.is_watched {
            self.results.insert(id, result);
        }
    }

    /// Begins a write or discard, and returns its number.
    pub(super) fn begin(
        &mut self,
        name: &Arc<str>,
        profile: &MemoryProfile,
        effect: Effect,
        len: u64,
        durability: Durability,
        borrowed: Option<Borrowed>,
    ) -> u64 {
        let error = self.faults.fail_write().then(|| io_error(name, "write", effect.offset, len));
        let latency = pick(&profile.write_latency, &mut self.random) + self.faults.slow_writes_by;
        let done_at = (!self.faults.hang_writes).then(|| tantalum_rt::now() + latency);
        let id = self.next_id;
        self.next_id += 1;
        self.in_flight.insert(id, InFlight { effect, durability, done_at, error, is_watched: true, borrowed });
        id
    }

    /// Whether writes may still be tried.
    pub(super) fn check_poison(&self, name: &Arc<str>) -> Result<()> {
        match &self.poison {
            Some(cause) => Err(Error::writes_lost(name, cause)),
            None => Ok(()),
        }
    }
}

/// The error of an injected fault.
pub(super) fn io_error(name: &Arc<str>, operation: &'static str, offset: u64, len: u64) -> Error {
    Error::io(name, operation, offset, len, io::Error::from(Errno::IO))
}

/// A duration from `range`, or its start if it is empty.
pub(super) fn pick(range: &Range<Duration>, random: &mut Random) -> Duration {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    if range.is_empty() { range.start } else { Duration::from_nanos(random.u64(nanos(range.start)..nanos(range.end))) }
}

/// What goes wrong, from now on until [`crate::MemoryDevice::clear_faults`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// After so many more writes, every write fails; what it leaves behind is unknown.
    FailWrites {
        /// Writes that still succeed.
        after: u64,
    },
    /// After so many more reads, every read fails.
    FailReads {
        /// Reads that still succeed.
        after: u64,
    },
    /// After so many more flushes, every flush fails, the first one finally.
    FailFlushes {
        /// Flushes that still succeed.
        after: u64,
    },
    /// Writes never complete. Clearing the faults completes them.
    HangWrites,
    /// Every write takes this much longer.
    SlowWrites {
        /// The delay.
        by: Duration,
    },
    /// Growing fails for lack of space.
    NoSpaceOnGrow,
}

/// The faults in force.
#[derive(Default)]
pub(super) struct Faults {
    writes_left: Option<u64>,
    reads_left: Option<u64>,
    flushes_left: Option<u64>,
    pub(super) hang_writes: bool,
    pub(super) slow_writes_by: Duration,
    pub(super) no_space_on_grow: bool,
}

impl Faults {
    pub(super) fn inject(&mut self, fault: Fault) {
        match fault {
            Fault::FailWrites { after } => self.writes_left = Some(after),
            Fault::FailReads { after } => self.reads_left = Some(after),
            Fault::FailFlushes { after } => self.flushes_left = Some(after),
            Fault::HangWrites => self.hang_writes = true,
            Fault::SlowWrites { by } => self.slow_writes_by = by,
            Fault::NoSpaceOnGrow => self.no_space_on_grow = true,
        }
    }

    /// Whether the write that begins now is to fail; the others likewise.
    pub(super) fn fail_write(&mut self) -> bool {
        count_down(&mut self.writes_left)
    }

    pub(super) fn fail_read(&mut self) -> bool {
        count_down(&mut self.reads_left)
    }

    pub(super) fn fail_flush(&mut self) -> bool {
        count_down(&mut self.flushes_left)
    }
}

fn count_down(left: &mut Option<u64>) -> bool {
    match left {
        None => false,
        Some(0) => true,
        Some(left) => {
            *left -= 1;
            false
        }
    }
}
