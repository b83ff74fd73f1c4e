//! What a probe found. Everything is measured or claimed; what follows from it is [`Advice`](super::Advice).
//!
//! A part that is `None`, or an empty list, was not measured: [`Found::left_out`] says why.

use serde::Serialize;
use tantalum_device::{Capabilities, Device};

use crate::micro::{Latency, Outliers};

/// What a probe found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Found {
    /// What the device and the kernel say.
    pub claims: Claims,
    /// Bytes of the device that were used, from which on.
    pub range: std::ops::Range<u64>,
    /// Bytes that were written, of those that might be.
    pub written_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Bytes a second when everything was written once, in order.
    pub fill_bytes_per_second: Option<f64>,
    /// Flushes, and the write cache.
    pub cache: Option<Cache>,
    /// Whether the device had come to a steady state before rates were measured.
    pub steady: Option<Steady>,
    /// Rates by request size: Figures 3 and 4 of "Early Experience and Evaluation of File Systems on SSD".
    pub sizes: Vec<SizeRow>,
    /// Response times of small random requests: its Figures 5 and 6.
    pub responses: Vec<Responses>,
    /// Durable sequential writes by size, ascending.
    pub durable: Vec<Durable>,
    /// The ways to make a small write durable.
    pub ways: Option<Ways>,
    /// Two sequential streams of durable writes.
    pub two_streams: Option<TwoStreams>,
    /// What is erased at once.
    pub erase_unit: EraseUnit,
    /// Places that can be written to in turn.
    pub open_units: OpenUnits,
    /// Small requests by many tasks at once.
    pub tasks: Vec<Tasks>,
    /// What page stores would write.
    pub stores: Option<StoreTimes>,
    /// What was not measured, and why.
    pub left_out: Vec<String>,
}

/// What the device says of itself, or the kernel of it. Sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Claims {
    /// The device's name.
    pub name: String,
    /// Its size.
    pub capacity_bytes: u64,
    /// The smallest request.
    pub logical_block_bytes: u32,
    /// The smallest write that costs no read.
    pub physical_block_bytes: u32,
    /// The largest write that a power cut leaves whole or absent; 0: none is known.
    pub atomic_write_bytes: u32,
    /// What must be erased before it is written again: raw flash; else 0.
    pub erase_block_bytes: u32,
    /// Bytes of a zone, which is written in order and reset as a whole; 0 where it has none.
    pub zone_bytes: u64,
    /// Zones that may be partly written at a time.
    pub active_zones: u32,
    /// Handles by which it is told what data belongs together; 1 where it has no say.
    pub placement_handles: u32,
    /// `none`, `volatile` or `unknown`.
    pub write_cache: &'static str,
    /// Whether a write can be forced by itself.
    pub fua: Option<bool>,
    /// Whether it spins.
    pub rotational: Option<bool>,
    /// Whether requests pass by the page cache.
    pub direct_io: bool,
}

/// Where requests went, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// Reads one after the other.
    SequentialRead,
    /// Reads anywhere.
    RandomRead,
    /// Writes one after the other, cached.
    SequentialWrite,
    /// Writes anywhere, cached.
    RandomWrite,
    /// Half reads and half cached writes, anywhere.
    RandomMixed,
}

/// A rate, of the second half of the requests.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Throughput {
    /// Which requests.
    pub pattern: Pattern,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// Requests that were measured.
    pub operations: u64,
    /// Their mean response time.
    pub mean_ns: f64,
    /// What 99 in 100 do not exceed.
    pub p99_ns: u64,
}

/// All rates at a request size.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SizeRow {
    /// Bytes of a request.
    pub bytes: u32,
    /// Those that were measured.
    pub rates: Vec<Throughput>,
}

/// Sequential over random throughput at a size (the paper, section III-B).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gap {
    /// Bytes of a request.
    pub bytes: u32,
    /// The ratio.
    pub ratio: f64,
}

/// Response times of small random requests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Responses {
    /// Which.
    pub pattern: Pattern,
    /// Bytes of each.
    pub bytes: u32,
    /// In a few numbers.
    pub latency: Latency,
    /// What 0, 1, ... 100 percent do not exceed.
    pub percentiles_ns: Vec<u64>,
    /// The first of them, in order.
    pub each_ns: Vec<u64>,
}

/// Durable sequential writes of one size: a log's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Durable {
    /// Bytes of each.
    pub bytes: u32,
    /// Their response times.
    pub latency: Latency,
    /// What stands out.
    pub outliers: Outliers,
}

/// The ways to make small sequential writes durable, and what it costs not to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ways {
    /// Bytes of each write.
    pub bytes: u32,
    /// Cached writes: not durable.
    pub cached: Latency,
    /// A cached write and a flush (`fdatasync`).
    pub write_and_flush: Latency,
    /// One durable write (`O_DSYNC`), which the kernel serves by FUA where the device has it.
    pub durable: Latency,
}

/// A flush after so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Flushed {
    /// Bytes written before it.
    pub dirty_bytes: u64,
    /// What writing them took.
    pub write_ns: u64,
    /// What the flush took.
    pub flush_ns: u64,
}

/// Flushes and the write cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cache {
    /// Flushes when nothing was written before.
    pub empty_flush: Latency,
    /// Flushes against what was written before, ascending.
    pub flushed: Vec<Flushed>,
    /// A flush after small random writes.
    pub scattered: Option<Flushed>,
    /// Small random writes in a burst: bytes written so far, and the mean response time of a step.
    pub burst: Vec<(u64, f64)>,
    /// Where the burst became slow: what the cache takes of it; `None` if it did not.
    pub knee_bytes: Option<u64>,
}

/// Random writes until their rate no longer changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Steady {
    /// Rounds of as many bytes each: bytes in a second.
    pub rounds: Vec<f64>,
    /// Bytes of a round.
    pub round_bytes: u64,
    /// Whether the last five rounds lie within a tenth of their mean.
    pub is_reached: bool,
}

/// Chunks that begin at multiples of their size against chunks that begin half a chunk later.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Align {
    /// Bytes of a chunk.
    pub bytes: u64,
    /// Bytes a second at multiples.
    pub aligned: f64,
    /// Bytes a second half a chunk later.
    pub shifted: f64,
    /// The smaller ratio of the two over both rounds.
    pub ratio: f64,
}

/// What the device erases at once, as far as that shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EraseUnit {
    /// Its bytes.
    pub bytes: Option<u64>,
    /// Why one thinks so, or why it cannot be seen.
    pub why: String,
    /// What was measured, from the largest chunks on.
    pub aligns: Vec<Align>,
}

/// How many units can be written to in turn.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenUnits {
    /// The largest number at which writes are not slow; `None` if no limit was seen.
    pub limit: Option<u32>,
    /// Why one thinks so, or why it cannot be seen.
    pub why: String,
    /// Units in turn, and bytes a second.
    pub rates: Vec<(u32, f64)>,
}

/// Durable sequential writes in one stream, and in two.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TwoStreams {
    /// Bytes of each write.
    pub bytes: u32,
    /// All in one stream.
    pub one: Latency,
    /// 99 % of them in one stream and 1 % in another: all of them.
    pub both: Latency,
    /// Those of the second stream.
    pub second: Latency,
}

/// So many tasks at once.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Tasks {
    /// How many.
    pub tasks: u32,
    /// Small random reads in a second.
    pub reads_per_second: f64,
    /// Small durable writes in a second, each task in a partition of its own, in order.
    pub streams: Option<Streams>,
}

/// Durable sequential streams in partitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Streams {
    /// Writes in a second, all streams together.
    pub per_second: f64,
    /// Mean response time of a write.
    pub mean_ns: f64,
}

/// What page stores would write, and how long that takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreTimes {
    /// Pages of a batch.
    pub batch_pages: u32,
    /// By page size, ascending.
    pub pages: Vec<PageCost>,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// A segment read, anywhere.
    pub segment_read_ns: f64,
    /// Bytes of a log sector of in-page logging.
    pub sector_bytes: u32,
    /// A sector of a batch that is written anywhere, and its share of the flush.
    pub sector_write_ns: f64,
}

/// What a page of a size costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PageCost {
    /// Bytes of a page.
    pub bytes: u32,
    /// A page read anywhere.
    pub read_ns: f64,
    /// A page of a batch that is written anywhere, and its share of the flush.
    pub write_ns: f64,
    /// A page of a batch that is written behind the last one, and its share of the flush.
    pub append_ns: f64,
    /// Both: a page of a batch that is written twice, first in order.
    pub double_write_ns: f64,
}

impl Claims {
    /// What `device` says.
    pub(super) fn of(device: &dyn Device) -> Self {
        let said @ Capabilities { logical_block, physical_block, .. } = device.capabilities();
        Self {
            name: device.name().to_owned(),
            capacity_bytes: device.capacity_bytes(),
            logical_block_bytes: logical_block,
            physical_block_bytes: physical_block,
            atomic_write_bytes: said.atomic_write_bytes,
            erase_block_bytes: said.erase_block_bytes,
            zone_bytes: said.zones.map_or(0, |zones| zones.bytes),
            active_zones: said.zones.map_or(0, |zones| zones.max_active),
            placement_handles: said.placement_handles,
            write_cache: said.write_cache.name(),
            fua: said.fua,
            rotational: said.rotational,
            direct_io: said.direct,
        }
    }
}

impl Pattern {
    /// All, in the order of the figures.
    pub const ALL: [Self; 5] =
        [Self::SequentialRead, Self::SequentialWrite, Self::RandomRead, Self::RandomWrite, Self::RandomMixed];

    /// Its name in tables and plots.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SequentialRead => "sequential read",
            Self::RandomRead => "random read",
            Self::SequentialWrite => "sequential write",
            Self::RandomWrite => "random write",
            Self::RandomMixed => "random, half reads",
        }
    }

    /// Whether it writes.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::SequentialRead | Self::RandomRead)
    }
}

impl SizeRow {
    /// The rate of a pattern, if it was measured.
    pub fn rate(&self, pattern: Pattern) -> Option<&Throughput> {
        self.rates.iter().find(|rate| rate.pattern == pattern)
    }

    fn gap(&self, sequential: Pattern, random: Pattern) -> Option<Gap> {
        let ratio = self.rate(sequential)?.bytes_per_second / self.rate(random)?.bytes_per_second;
        Some(Gap { bytes: self.bytes, ratio })
    }
}

impl Found {
    /// Gap of reads by size.
    pub fn read_gaps(&self) -> Vec<Gap> {
        self.gaps(Pattern::SequentialRead, Pattern::RandomRead)
    }

    /// Gap of writes by size.
    pub fn write_gaps(&self) -> Vec<Gap> {
        self.gaps(Pattern::SequentialWrite, Pattern::RandomWrite)
    }

    fn gaps(&self, sequential: Pattern, random: Pattern) -> Vec<Gap> {
        self.sizes.iter().filter_map(|row| row.gap(sequential, random)).collect()
    }

    /// The best rate of writes that went on and on, in bytes a second; none of cached bursts.
    pub fn sustained_write(&self) -> Option<f64> {
        let rates = self.sizes.iter().flat_map(|row| &row.rates);
        let rates = rates.filter(|rate| rate.pattern.writes()).map(|rate| rate.bytes_per_second);
        rates.chain(self.fill_bytes_per_second).reduce(f64::max)
    }
}

impl Gap {
    /// The largest.
    pub fn max(gaps: &[Self]) -> Option<Self> {
        gaps.iter().copied().max_by(|one, other| one.ratio.total_cmp(&other.ratio))
    }
}
