//! What a probe may do, said before it begins.

use std::{ops::Range, time::Duration};

use serde::Serialize;

use crate::micro::Data;

/// How thorough a probe is.
///
/// ```
/// use tantalum_lab::probe::Effort;
/// assert!(Effort::Quick.seconds() < 60 && Effort::Full.seconds() < 600);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effort {
    /// Less than a minute: six request sizes.
    Quick,
    /// Less than ten minutes: all request sizes.
    Full,
}

impl Effort {
    /// The time that it takes at most, in seconds, but for a request that is under way at the end.
    pub const fn seconds(self) -> u64 {
        match self {
            Self::Quick => 50,
            Self::Full => 540,
        }
    }

    /// Bytes of a device that are used unless a range is given.
    pub const fn range_bytes(self) -> u64 {
        match self {
            Self::Quick => 256 << 20,
            Self::Full => 1 << 30,
        }
    }

    /// How often the range may be written, filling it included.
    const fn turns(self) -> u64 {
        match self {
            Self::Quick => 8,
            Self::Full => 16,
        }
    }
}

/// What a probe may do: it stops in time, and writes no more bytes than it said.
///
/// ```
/// use tantalum_lab::probe::{Effort, Plan};
///
/// let plan = Plan::new(Effort::Quick, 0..256 << 20);
/// assert_eq!(plan.write_bytes, 2 << 30);
/// assert_eq!(plan.read_only().write_bytes, 0);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Which sizes are measured.
    pub effort: Effort,
    /// The bytes of the device to use.
    pub range: Range<u64>,
    /// Bytes that are written at most, in all.
    pub write_bytes: u64,
    /// No measurement begins later than this after the first.
    pub time: Duration,
    /// Requests of a measurement at most.
    pub operations: u64,
    /// What writes hold.
    pub data: Data,
    /// For addresses, mixes and data.
    pub seed: u64,
}

impl Plan {
    /// A plan that reads and writes in the range.
    pub fn new(effort: Effort, range: Range<u64>) -> Self {
        let write_bytes = effort.turns() * range.end.saturating_sub(range.start);
        let time = Duration::from_secs(effort.seconds());
        Self { effort, range, write_bytes, time, operations: 20_000, data: Data::Random, seed: 42 }
    }

    /// The same, without writes.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { write_bytes: 0, ..self }
    }

    /// Whether anything may be written.
    pub fn writes(&self) -> bool {
        self.write_bytes > 0
    }

    /// Bytes of the range.
    pub fn range_bytes(&self) -> u64 {
        self.range.end.saturating_sub(self.range.start)
    }

    /// The request sizes that are measured on a device with such blocks, ascending.
    pub(super) fn sizes(&self, block_bytes: u32) -> Vec<u32> {
        let step = match self.effort {
            Effort::Quick => 2,
            Effort::Full => 1,
        };
        // From 4 KiB up and down, so that both have the sizes of pages.
        let up = (12..=20).step_by(step);
        let down = [9, 10, 11].into_iter().filter(|shift| step == 1 || *shift == 9);
        let mut sizes: Vec<u32> = down.chain(up).map(|shift| 1u32 << shift).collect();
        sizes.retain(|&size| size >= block_bytes && 2 * u64::from(size) <= self.range_bytes());
        sizes
    }
}
