//! Faults that tests ask a memory device for.

use std::time::Duration;

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
