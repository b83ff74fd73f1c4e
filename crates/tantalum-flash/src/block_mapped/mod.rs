//! The simplest solid-state disk: units of the flash mapped whole, behind a memory of segments.
//!
//! Promises: what was flushed survives a power cut; what is in memory then is lost. A unit is rewritten as a whole or not
//! at all.
//!
//! A write ends in the segment of its address. When no segment is free, the one that was not used for longest goes to the
//! flash: each of its units in which something was written is copied to an erased one, with what is new, and erased. How
//! many pages were collected until then decides what a write costs ("Design of Flash-Based DBMS: An In-Page Logging
//! Approach", section 4.1.3).

mod units;

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use tantalum_device::WriteCache;
use tantalum_device::sparse::{Part, parts};
use tantalum_rt::Random;

use self::units::Units;
use crate::disk::SECTOR_BYTES;
use crate::link::{Link, nanos};
use crate::nand::{Geometry, Timing, Wear};
use crate::profile::{Problem, check_ranges};
use crate::writeback::Dirty;
use crate::{Contents, Counters, MediaError, Model, Nanos, Outcome, Shape};

/// A solid-state disk with block mapping. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockMappedParameters {
    /// How the flash is divided; a block is a unit. `blocks_per_plane` is computed.
    pub geometry: Geometry,
    /// How fast it is.
    pub timing: Timing,
    /// Units of a segment. Its pages go round them: the first page of each unit, then the second of each, and so on.
    pub segment_units: u32,
    /// Memory for writes, in KiB.
    pub buffer_kib: u32,
    /// What a command takes in the interface and the controller.
    pub command_us: f64,
    /// What the interface carries, in MB/s.
    pub interface_mb_per_s: f64,
    /// From power on to when the controller begins to look at its flash.
    pub boot_us: f64,
    /// How much use the flash bears; without, it bears any.
    pub wear: Option<Wear>,
}

impl BlockMappedParameters {
    /// The profile of in-page logging's drive, which bears any use.
    #[cfg(test)]
    fn example() -> Self {
        let profile = crate::Profile::named("mtron-p35").expect("it comes with the crate");
        let crate::Kind::BlockMapped(parameters) = profile.device else { panic!("{profile:?}") };
        Self { wear: None, ..parameters }
    }

    /// Bytes of a segment.
    pub fn segment_bytes(&self) -> u64 {
        let unit = u64::from(self.geometry.pages_per_block) * u64::from(self.geometry.page_bytes);
        u64::from(self.segment_units) * unit
    }

    /// Units that the host can address.
    fn units(&self, capacity_bytes: u64) -> u32 {
        capacity_bytes.div_ceil(self.segment_bytes()) as u32 * self.segment_units
    }

    /// The geometry with as many blocks as the capacity takes, and what rewriting and wear need.
    pub(crate) fn whole_geometry(&self, capacity_bytes: u64) -> Geometry {
        // Beside the units: the target of a rewriting, and one that a cut left unfinished.
        let least = self.units(capacity_bytes).div_ceil(self.geometry.planes()) + 2;
        let blocks_per_plane = least + self.wear.map_or(0, |wear| wear.spare_blocks(least));
        Geometry { blocks_per_plane, ..self.geometry }
    }

    /// Segments that the memory holds.
    fn segments(&self) -> usize {
        (u64::from(self.buffer_kib) * 1024 / self.segment_bytes()) as usize
    }

    /// Whether the drive is possible, with so many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        self.geometry.check(&self.timing)?;
        let page_bytes = self.geometry.page_bytes;
        check_ranges(&[
            ("page_bytes", page_bytes.into(), 4096.0, 16384.0),
            ("segment_units", self.segment_units.into(), 1.0, 1024.0),
            ("buffer_kib", self.buffer_kib.into(), 64.0, 1e7),
            ("command_us", self.command_us, 0.001, 1e6),
            ("interface_mb_per_s", self.interface_mb_per_s, 0.01, 1e5),
            ("boot_us", self.boot_us, 0.0, 1e9),
            ("capacity_bytes", capacity_bytes as f64, 1.0, (1u64 << 40) as f64),
        ])?;
        self.wear.map_or(Ok(()), |wear| wear.check())?;
        if !page_bytes.is_multiple_of(4096) || !capacity_bytes.is_multiple_of(SECTOR_BYTES) {
            let key = if page_bytes.is_multiple_of(4096) { "capacity_bytes" } else { "page_bytes" };
            return Err((key, format!("expected whole sectors of {SECTOR_BYTES}, and pages of whole 4096 bytes")));
        }
        match self.segments() {
            0 | 1 => Err(("buffer_kib", format!("expected two segments of {} or more", self.segment_bytes()))),
            _ => Ok(()),
        }
    }
}

/// A solid-state disk with block mapping.
#[derive(Debug)]
pub struct BlockMapped {
    parameters: BlockMappedParameters,
    units: Units,
    capacity_bytes: u64,
    dirty: Dirty,
    /// Segments in memory, with the number of the last write to each.
    held: BTreeMap<u64, u64>,
    /// When segments on their way to the flash leave their memory to others.
    leaving: VecDeque<Nanos>,
    link: Link,
    counters: Counters,
}

impl BlockMapped {
    /// An empty drive of so many bytes; `contents` makes what holds its flash's bytes.
    pub fn new(parameters: BlockMappedParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the drive is possible");
        Self {
            units: Units::new(&parameters, capacity_bytes, contents),
            link: Link::new(parameters.command_us, parameters.interface_mb_per_s),
            parameters,
            capacity_bytes,
            dirty: Dirty::default(),
            held: BTreeMap::new(),
            leaving: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Holds a part of a write that lies in one segment, when there is memory for it. Returns when there was.
    fn hold(&mut self, at: Nanos, segment: u64, offset: u64, data: &[u8]) -> Nanos {
        let mut at = at;
        while !self.held.contains_key(&segment) && self.is_full() && !self.units.is_read_only() {
            match self.leaving.front() {
                Some(&end) => at = at.max(end),
                None => self.evict(at),
            }
            self.advance(at);
        }
        self.held.insert(segment, self.counters.host_writes);
        self.counters.coalesced += u64::from(self.dirty.insert(offset, data.to_vec()));
        if self.is_full() && self.leaving.is_empty() {
            // The next segment is wanted soon.
            self.evict(at);
        }
        at
    }

    fn is_full(&self) -> bool {
        self.held.len() + self.leaving.len() >= self.parameters.segments()
    }

    /// Sends the segment that was not used for longest to the flash.
    fn evict(&mut self, at: Nanos) {
        let oldest = self.held.iter().map(|(&segment, &used)| (used, segment)).min();
        if let Some((_, segment)) = oldest {
            self.send(at, segment);
        }
    }

    /// Sends a segment to the flash. Its memory is free when all of it is there; what the flash has no room for stays.
    fn send(&mut self, at: Nanos, segment: u64) {
        let end = self.units.rewrite(at, segment, &mut self.dirty);
        let bytes = self.parameters.segment_bytes();
        if !self.dirty.overlaps(segment * bytes, bytes) {
            self.held.remove(&segment);
            self.leaving.push_back(end);
        }
    }

    fn flush_all(&mut self, at: Nanos) -> Nanos {
        while let Some((&segment, _)) = self.held.first_key_value()
            && !self.units.is_read_only()
        {
            self.send(at, segment);
        }
        self.leaving.iter().fold(at, |done, &end| done.max(end))
    }

    /// A flush that leaves something in memory has failed.
    fn end_flush(&self, done: Nanos) -> Outcome {
        if self.held.is_empty() { self.end(done) } else { Outcome::failed(done, MediaError::WornOut) }
    }

    fn advance(&mut self, now: Nanos) {
        while self.leaving.pop_front_if(|end| *end <= now).is_some() {}
    }

    fn end(&self, done: Nanos) -> Outcome {
        Outcome::at(done, self.units.nand.failure())
    }
}

impl Model for BlockMapped {
    fn describe(&self) -> Shape {
        let plain = Shape::plain(self.capacity_bytes, SECTOR_BYTES as u32, self.parameters.geometry.page_bytes);
        Shape { write_cache: WriteCache::Volatile, ..plain }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        self.counters.read(buffer.len());
        let ready = now + self.link.command;
        if self.dirty.read(offset, buffer) == buffer.len() {
            self.counters.cache_hits += 1;
            let done = self.link.carry(ready, buffer.len());
            return self.end(done);
        }
        let (first, last) = self.units.read(ready, offset, buffer.len());
        self.peek(offset, buffer);
        // Sectors cross the interface as they come; the last one is left.
        let carried = self.link.carry(first, buffer.len());
        self.end(carried.max(last + self.link.transfer(SECTOR_BYTES as usize)))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.advance(now);
        if self.units.is_read_only() {
            return Outcome::failed(now, MediaError::WornOut);
        }
        self.counters.write(data.len());
        let mut done = now + self.link.command;
        for Part { unit: segment, range, .. } in parts(offset, data.len(), self.parameters.segment_bytes() as usize) {
            let carried = self.link.carry(done, range.len());
            done = self.hold(carried, segment, offset + range.start as u64, &data[range]);
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
        self.units.peek(offset, buffer);
        self.dirty.read(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.counters.power_cuts += 1;
        self.units.nand.power_cut(now, random);
        self.dirty = Dirty::default();
        self.held.clear();
        self.leaving.clear();
        self.link.reset(now);
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        self.units.power_on(now + nanos(self.parameters.boot_us))
    }

    fn counters(&self) -> Counters {
        self.units.counters() + self.counters
    }
}

#[cfg(test)]
mod tests;
