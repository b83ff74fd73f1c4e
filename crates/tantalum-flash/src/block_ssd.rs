//! An early SATA SSD: a block-mapped translation layer behind a memory divided into segments, one for each unit.
//!
//! Promises: what was flushed survives a power cut; what is in memory then is lost. Pages are whole, old or new.
//!
//! Writes end in memory. When it is full, the segment with the most pages goes to the flash, which costs a merge of its
//! unit: a few writes in memory, then one that waits for tens of milliseconds ("Early Experience and
//! Evaluation of File Systems on SSD with Database Applications", section III-C, conjectures this of the Mtron PRO 7500 from Figure 6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::Deserialize;
use tantalum_device::WriteCache;
use tantalum_device::sparse::{PIECE_BYTES, Part, parts};
use tantalum_rt::Random;

use crate::disk::SECTOR_BYTES;
use crate::ftl::hybrid::{Hybrid, HybridParameters};
use crate::link::{Link, nanos};
use crate::profile::{Problem, check_ranges};
use crate::writeback::Dirty;
use crate::{Contents, Counters, MediaError, Model, Nanos, Outcome, Shape};

/// A SATA SSD with block mapping. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockSsdParameters {
    /// The translation layer and the flash behind it.
    pub ftl: HybridParameters,
    /// What a command takes in the interface and the controller.
    pub command_us: f64,
    /// What the interface carries, in MB/s.
    pub interface_mb_per_s: f64,
    /// Memory for writes, in KiB.
    pub buffer_kib: u32,
    /// From power on to when the controller begins to look at its flash.
    pub boot_us: f64,
}

impl BlockSsdParameters {
    /// Whether the drive is possible, with so many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        check_ranges(&[
            ("command_us", self.command_us, 0.001, 1e6),
            ("interface_mb_per_s", self.interface_mb_per_s, 0.01, 1e5),
            ("buffer_kib", f64::from(self.buffer_kib), 64.0, 1e7),
            ("boot_us", self.boot_us, 0.0, 1e9),
        ])?;
        self.ftl.check(capacity_bytes)
    }
}

/// A SATA SSD with block mapping.
#[derive(Debug)]
pub struct BlockSsd {
    parameters: BlockSsdParameters,
    ftl: Hybrid,
    dirty: Dirty,
    segments: BTreeMap<u64, Segment>,
    /// The segments by how worthwhile it is to send them.
    ranking: BTreeSet<Rank>,
    /// Segments on their way to the flash, by their ends.
    leaving: VecDeque<(Nanos, u64)>,
    leaving_bytes: u64,
    /// When everything sent to the flash is there.
    flushed_at: Nanos,
    link: Link,
    counters: Counters,
}

/// What is in memory of a unit.
#[derive(Debug, Default)]
struct Segment {
    bytes: u64,
    /// The number of the host's last write to it.
    used: u64,
}

/// Bytes, how long ago the last use was, and the unit.
type Rank = (u64, u64, u64);

impl Segment {
    fn rank(&self, unit: u64) -> Rank {
        (self.bytes, u64::MAX - self.used, unit)
    }
}

impl BlockSsd {
    /// An empty drive of so many bytes; `contents` makes what holds its flash's bytes.
    pub fn new(parameters: BlockSsdParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the drive is possible");
        Self {
            ftl: Hybrid::new(parameters.ftl.clone(), capacity_bytes, contents),
            link: Link::new(parameters.command_us, parameters.interface_mb_per_s),
            parameters,
            dirty: Dirty::default(),
            segments: BTreeMap::new(),
            ranking: BTreeSet::new(),
            leaving: VecDeque::new(),
            leaving_bytes: 0,
            flushed_at: 0,
            counters: Counters::default(),
        }
    }

    /// Holds a part of a write that lies in one page, when there is room for it. Returns when there was.
    fn hold(&mut self, at: Nanos, offset: u64, data: &[u8]) -> Nanos {
        let capacity = u64::from(self.parameters.buffer_kib) * 1024;
        let mut at = at;
        // A segment leaves while as many bytes come in: the flash and the host both go on.
        let fullest = self.ranking.last().map_or(0, |&(bytes, ..)| bytes);
        if self.leaving.is_empty() && self.dirty.bytes() + data.len() as u64 + fullest > capacity {
            self.evict(at);
        }
        while self.dirty.bytes() + self.leaving_bytes + data.len() as u64 > capacity && !self.ftl.is_read_only() {
            match self.leaving.front() {
                Some(&(end, _)) => at = at.max(end),
                None => self.evict(at),
            }
            self.advance(at);
        }
        self.insert(offset, data);
        at
    }

    fn insert(&mut self, offset: u64, data: &[u8]) {
        let unit = offset / self.ftl.unit_bytes();
        let before = self.dirty.bytes();
        self.counters.coalesced += u64::from(self.dirty.insert(offset, data.to_vec()));
        let segment = self.segments.entry(unit).or_default();
        self.ranking.remove(&segment.rank(unit));
        segment.bytes += self.dirty.bytes() - before;
        segment.used = self.counters.host_writes;
        self.ranking.insert(segment.rank(unit));
    }

    /// Sends the segment with the most bytes to the flash, of several the one that was not used for longest.
    fn evict(&mut self, at: Nanos) {
        if let Some(&(_, _, unit)) = self.ranking.last() {
            self.send(at, unit);
        }
    }

    /// Sends a segment to the flash. Its memory is free when all of it is there.
    fn send(&mut self, at: Nanos, unit: u64) {
        let Some(segment) = self.segments.remove(&unit) else {
            return;
        };
        self.ranking.remove(&segment.rank(unit));
        let (from, to) = (unit * self.ftl.unit_bytes(), (unit + 1) * self.ftl.unit_bytes());
        while let Some((offset, run)) = self.dirty.take_within(from, to) {
            self.flushed_at = self.flushed_at.max(self.ftl.write(at, offset, &run));
            if self.ftl.is_read_only() {
                // It stays in memory, perhaps for nothing.
                self.insert(offset, &run);
                return;
            }
        }
        self.leaving.push_back((self.flushed_at, segment.bytes));
        self.leaving_bytes += segment.bytes;
    }

    fn flush_all(&mut self, at: Nanos) -> Nanos {
        while let Some(&unit) = self.segments.keys().next()
            && !self.ftl.is_read_only()
        {
            self.send(at, unit);
        }
        self.flushed_at.max(at)
    }

    fn advance(&mut self, now: Nanos) {
        while let Some((_, bytes)) = self.leaving.pop_front_if(|&mut (end, _)| end <= now) {
            self.leaving_bytes -= bytes;
        }
    }

    /// A flush that leaves something in memory has failed.
    fn end_flush(&self, done: Nanos) -> Outcome {
        if self.segments.is_empty() { self.end(done) } else { Outcome::failed(done, MediaError::WornOut) }
    }

    fn end(&self, done: Nanos) -> Outcome {
        Outcome::at(done, self.ftl.failure())
    }
}

impl Model for BlockSsd {
    fn describe(&self) -> Shape {
        let plain = Shape::plain(self.ftl.capacity_bytes(), SECTOR_BYTES as u32, PIECE_BYTES as u32);
        Shape { write_cache: WriteCache::Volatile, ..plain }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        self.counters.read(buffer.len());
        let ready = now + self.link.command;
        let held = self.dirty.read(offset, buffer);
        let mut on_flash = ready;
        if held < buffer.len() {
            on_flash = self.ftl.read(ready, offset, buffer);
            self.dirty.read(offset, buffer);
        } else {
            self.counters.cache_hits += 1;
        }
        // Pages cross the interface as they come; the last one is left.
        let carried = self.link.carry(ready, buffer.len());
        self.end(carried.max(on_flash + self.link.transfer(buffer.len().min(PIECE_BYTES))))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.advance(now);
        if self.ftl.is_read_only() {
            return Outcome::failed(now, MediaError::WornOut);
        }
        self.counters.write(data.len());
        let mut done = now + self.link.command;
        for Part { range, .. } in parts(offset, data.len(), PIECE_BYTES) {
            let carried = self.link.carry(done, range.len());
            done = self.hold(carried, offset + range.start as u64, &data[range]);
        }
        if durable {
            done = self.flush_all(done);
            return self.end_flush(done);
        }
        self.end(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.advance(now);
        self.counters.flushes += 1;
        let done = self.flush_all(now + self.link.command);
        self.end_flush(done)
    }

    fn discard(&mut self, now: Nanos, offset: u64, _len: u64) -> Outcome {
        self.counters.discards += 1;
        Outcome::failed(now, MediaError::Unsupported { offset, reason: "drives of this time know no discard" })
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.ftl.peek(offset, buffer);
        self.dirty.read(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.ftl.power_cut(now, random);
        self.dirty = Dirty::default();
        self.segments.clear();
        self.ranking.clear();
        self.leaving.clear();
        self.leaving_bytes = 0;
        self.flushed_at = now;
        self.link.reset(now);
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        self.ftl.power_on(now + nanos(self.parameters.boot_us))
    }

    fn counters(&self) -> Counters {
        self.ftl.counters() + self.counters
    }
}
