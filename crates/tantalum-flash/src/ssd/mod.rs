//! A solid-state drive: the interface, a buffer pool, the flusher, and a page-mapped translation layer.
//!
//! The cache is volatile, written through, or protected by capacitors (`durable_cache.rs`). A volatile cache loses at a
//! power cut what flash does not hold; since channels are flushed each at its own pace, that is no prefix of the
//! writes, and of a large write it may be any part. A flush writes all of it back, and the changes of the map.

mod durable_cache;
mod interface;
mod mirror;
mod pool;
mod zoned;

use serde::Deserialize;
use tantalum_device::WriteCache;
use tantalum_device::sparse::{PIECE_BYTES, Piece, piece_in, piece_of};
use tantalum_rt::Random;

pub use durable_cache::Capacitors;
pub(crate) use durable_cache::Protection;
pub use interface::Interface;
pub use zoned::Zoning;
pub(crate) use zoned::{Parts, ZonedDrive};

use crate::ftl::page_mapped::PageMapped;
use crate::{Counters, MediaError, Model, Nanos, Outcome, Shape};
use interface::Host;
use mirror::Mirror;
use pool::Pool;

/// What the drive does with writes before they are on flash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// A write is complete when the drive's memory has it.
    WriteBack,
    /// A write is complete when flash and the journal of the map have it.
    WriteThrough,
}

/// Parameters of the drive's memory, as a profile gives them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// What the drive does with writes.
    pub mode: CacheMode,
    /// Size of the buffer pool. Most of a drive's memory holds its map.
    pub pool_bytes: u64,
    /// Time of a flush beside its programs.
    pub flush_ns: Nanos,
    /// Whether a flush writes protected memory back all the same; volatile memory always is.
    pub flush_drains: bool,
    /// How long a sector waits for another one to share its page.
    pub pairing_wait_ns: Nanos,
    /// Whether single writes can pass the cache.
    pub fua: bool,
}

/// A solid-state drive.
///
/// Made from a [`Profile`](crate::Profile).
#[derive(Debug)]
pub(crate) struct SolidState {
    interface: Interface,
    cache: Cache,
    protection: Option<Protection>,
    ftl: PageMapped,
    host: Host,
    pool: Pool,
    batch: Vec<u32>,
    sectors: Vec<(u32, Piece)>,
    /// When the last sector of the host is on flash.
    drained: Nanos,
    counters: Counters,
}

impl SolidState {
    /// A drive over a translation layer. Without `protection` its memory is volatile.
    pub fn new(interface: Interface, cache: Cache, protection: Option<Protection>, ftl: PageMapped) -> Self {
        let limit = (cache.pool_bytes / PIECE_BYTES as u64) as usize;
        let area = protection.as_ref().and_then(|_| ftl.nand.beside(Mirror::bytes(limit)));
        let mirror = area.map(|area| Mirror::new(area, limit));
        let pool = Pool::new(ftl.layout.units, ftl.layout.geometry.channels, ftl.handles(), limit, mirror);
        let mut ftl = ftl;
        if interface.reads_pass {
            ftl.nand.let_reads_pass();
        }
        Self {
            host: Host::new(interface.clone()),
            pool,
            batch: Vec::new(),
            sectors: Vec::new(),
            drained: 0,
            counters: Counters::default(),
            interface,
            cache,
            protection,
            ftl,
        }
    }

    /// The pool's queues: those of all channels for the first placement handle, then those for the next.
    fn queues(&self) -> std::ops::Range<u32> {
        0..self.ftl.layout.geometry.channels * self.ftl.handles()
    }

    fn channel_of(&self, unit: u32) -> u32 {
        unit / self.ftl.layout.page_sectors % self.ftl.layout.geometry.channels
    }

    /// A sector's newest bytes.
    fn piece(&self, unit: u32) -> Piece {
        match self.pool.newest(unit) {
            Some(piece) => piece.clone(),
            None => self.ftl.piece(unit),
        }
    }

    /// Copies the part of a sector that falls into the buffer at `offset`.
    fn copy(&self, unit: u32, offset: u64, buffer: &mut [u8]) {
        let base = u64::from(unit) * PIECE_BYTES as u64;
        let (from, to) = (offset.max(base), (offset + buffer.len() as u64).min(base + PIECE_BYTES as u64));
        let target = &mut buffer[(from - offset) as usize..(to - offset) as usize];
        match self.piece(unit) {
            Some(piece) => target.copy_from_slice(&piece[(from - base) as usize..(to - base) as usize]),
            None => target.fill(0),
        }
    }

    /// One write command. Returns when it completes; `None` if it finds no room any more.
    fn write_command(&mut self, now: Nanos, offset: u64, data: &[u8], handle: u32) -> Option<Nanos> {
        let start = self.host.admit(now);
        let (first, last) = units(offset, data.len());
        let sectors = (last - first) as usize;
        let room = self.wait_for_room(sectors, start)?;
        // The rest of a sector written in part must be read before.
        let mut begin = room;
        for unit in [first, last - 1] {
            let base = u64::from(unit) * PIECE_BYTES as u64;
            let is_whole = base >= offset && base + PIECE_BYTES as u64 <= offset + data.len() as u64;
            if !is_whole && self.pool.newest(unit).is_none() {
                begin = begin.max(self.ftl.read(room, unit..unit + 1));
            }
        }
        let done = self.host.write(start, sectors as u64, data.len() as u64, begin);
        self.host.enqueue(done);
        // Protected memory rolls an incomplete command back; volatile memory passes its sectors on as they come.
        let is_atomic = self.protection.is_some();
        for unit in first..last {
            let piece = self.new_piece(unit, offset, data);
            let ready =
                if is_atomic { done } else { begin + (done - begin) * u64::from(unit - first + 1) / sectors as u64 };
            let queue = handle * self.ftl.layout.geometry.channels + self.channel_of(unit);
            let coalesced = self.pool.push(queue, unit, piece, ready);
            self.counters.coalesced += u64::from(coalesced);
        }
        self.pool.commit();
        Some(done)
    }

    /// The sector's bytes after a write.
    fn new_piece(&mut self, unit: u32, offset: u64, data: &[u8]) -> Piece {
        let base = u64::from(unit) * PIECE_BYTES as u64;
        if let Some(from) = base.checked_sub(offset)
            && let Some(whole) = data[from as usize..].first_chunk::<PIECE_BYTES>()
        {
            return piece_in(self.ftl.nand.take_used_piece(), whole);
        }
        let mut bytes = self.piece(unit).map_or([0; PIECE_BYTES], |piece| *piece);
        let (start, end) = (offset.max(base), (offset + data.len() as u64).min(base + PIECE_BYTES as u64));
        bytes[(start - base) as usize..(end - base) as usize]
            .copy_from_slice(&data[(start - offset) as usize..(end - offset) as usize]);
        piece_of(&bytes)
    }

    /// Everything that happens without the host up to `now`.
    fn advance(&mut self, now: Nanos) {
        self.ftl.settle(now);
        self.flush_until(now);
        self.pool.release(now);
    }

    fn outcome(&self, done: Nanos) -> Outcome {
        Outcome::at(done, self.ftl.nand.failure())
    }

    /// Programs everything that can begin until `now`.
    fn flush_until(&mut self, now: Nanos) {
        for queue in self.queues() {
            while !self.pool.is_idle(queue, now) && self.program_batch(queue, self.cache.pairing_wait_ns, now) {}
        }
    }

    /// Programs everything, without waiting for company.
    fn drain(&mut self) {
        for queue in self.queues() {
            while self.program_batch(queue, 0, Nanos::MAX) {}
            let is_drained = self.pool.is_drained(queue) || self.ftl.is_read_only;
            debug_assert!(is_drained, "nothing that waits is left behind");
        }
    }

    /// When the pool has taken in so many sectors, not before `at`: the command waits until others have left. `None` if
    /// they cannot, since the flash is worn out.
    fn wait_for_room(&mut self, sectors: usize, at: Nanos) -> Option<Nanos> {
        loop {
            if let Some(room) = self.pool.take_room(sectors, at) {
                return Some(room);
            }
            if self.ftl.is_read_only {
                return None;
            }
            // The frames whose end is known do not leave enough room: let the flusher go ahead.
            let before = self.drained;
            for queue in self.queues() {
                self.program_batch(queue, 0, Nanos::MAX);
            }
            debug_assert!(self.drained >= before, "time does not go back");
        }
    }

    /// Programs one page of what waits in a queue, if that can begin until `until`.
    fn program_batch(&mut self, queue: u32, patience: Nanos, until: Nanos) -> bool {
        let channels = self.ftl.layout.geometry.channels;
        let (channel, handle) = (queue % channels, queue / channels);
        if !self.ftl.has_room(channel, handle) {
            return false;
        }
        let limit = self.ftl.layout.page_sectors as usize;
        let free = self.ftl.channel_ready(channel);
        let Some(start) = self.pool.next_batch(queue, limit, free, patience, until, &mut self.batch) else {
            return false;
        };
        self.sectors.clear();
        for &frame in &self.batch {
            let frame = self.pool.frame(frame);
            self.sectors.push((frame.unit, frame.piece.clone()));
        }
        let done = self.ftl.program(start, channel, handle, &self.sectors);
        self.pool.programmed(queue, &self.batch, done);
        self.drained = self.drained.max(done);
        true
    }

    /// Writes back everything that was written, and the map's changes.
    fn write_back_all(&mut self, at: Nanos) -> Nanos {
        self.drain();
        self.ftl.sync(at.max(self.drained))
    }

    /// Empties the drive's memory.
    fn forget_memory(&mut self, now: Nanos) {
        self.host.reset(now);
        self.pool.clear();
        self.drained = now;
    }

    /// A flush that leaves something in memory has failed.
    fn flushed(&self, done: Nanos) -> Outcome {
        match self.ftl.is_read_only && !self.queues().all(|queue| self.pool.is_drained(queue)) {
            true => Outcome::failed(done, MediaError::WornOut),
            false => self.outcome(done),
        }
    }

    /// A flush that arrives at `now`.
    fn flush_after(&mut self, now: Nanos) -> Outcome {
        let start = self.host.begin_flush(now);
        if self.cache.mode == CacheMode::WriteThrough {
            let done = start + self.interface.command_ns; // what has ended is on flash, and in its map
            self.host.end_flush(done);
            return self.outcome(done);
        }
        let drains = self.cache.flush_drains || self.protection.is_none();
        let written_back = if drains { self.write_back_all(start) } else { start };
        let done = written_back + self.cache.flush_ns;
        self.host.end_flush(done);
        if drains { self.flushed(done) } else { self.outcome(done) }
    }
}

/// The sectors that a range touches.
fn units(offset: u64, len: usize) -> (u32, u32) {
    let piece = PIECE_BYTES as u64;
    ((offset / piece) as u32, (offset + len as u64).div_ceil(piece) as u32)
}

impl Model for SolidState {
    fn describe(&self) -> Shape {
        let is_safe = self.protection.is_some() || self.cache.mode == CacheMode::WriteThrough;
        Shape {
            atomic_write_bytes: if self.protection.is_some() { self.interface.max_command_bytes } else { 0 },
            write_cache: if is_safe { WriteCache::None } else { WriteCache::Volatile },
            fua: self.cache.fua,
            placement_handles: self.ftl.handles(),
            ..Shape::plain(self.ftl.layout.capacity_bytes(), self.interface.logical_block, PIECE_BYTES as u32)
        }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        self.counters.read(buffer.len());
        if buffer.is_empty() {
            return Outcome::ok(now);
        }
        let start = self.host.admit(now);
        let begin = self.host.read(start);
        let (first, last) = units(offset, buffer.len());
        let mut ready = begin;
        let mut run = first;
        for unit in first..last {
            self.copy(unit, offset, buffer);
            if self.pool.newest(unit).is_some() {
                self.counters.cache_hits += 1;
                ready = ready.max(self.ftl.read(begin, run..unit));
                run = unit + 1;
            }
        }
        ready = ready.max(self.ftl.read(begin, run..last));
        let done = self.host.send(ready, buffer.len() as u64);
        self.host.enqueue(done);
        self.outcome(done)
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.write_placed(now, offset, data, durable, 0)
    }

    fn write_placed(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool, handle: u32) -> Outcome {
        self.advance(now);
        let handle = if handle < self.ftl.handles() { handle } else { 0 };
        if self.ftl.is_read_only {
            return Outcome::failed(now, MediaError::WornOut);
        }
        let mut done = now;
        let mut offset = offset;
        for command in data.chunks(self.interface.max_command_bytes as usize) {
            self.counters.write(command.len());
            match self.write_command(now, offset, command, handle) {
                Some(completed) => done = done.max(completed),
                None => return Outcome::failed(done, MediaError::WornOut),
            }
            offset += command.len() as u64;
        }
        if self.cache.mode == CacheMode::WriteThrough {
            done = self.write_back_all(done);
            return self.flushed(done);
        } else if durable && self.protection.is_none() {
            done = self.write_back_all(done) + if self.cache.fua { 0 } else { self.cache.flush_ns };
            return self.flushed(done);
        } else if durable && self.cache.flush_drains && !self.cache.fua {
            // Asked for all the same, it is a write and a flush, as from a host that does not know the drive.
            return self.flush_after(done);
        }
        self.outcome(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.advance(now);
        self.counters.flushes += 1;
        self.flush_after(now)
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        self.advance(now);
        self.counters.discards += 1;
        let start = self.host.admit(now);
        let done = self.host.write(start, 0, 0, start);
        self.host.enqueue(done);
        let piece = PIECE_BYTES as u64;
        for unit in offset.div_ceil(piece)..(offset + len) / piece {
            self.pool.forget(self.channel_of(unit as u32), unit as u32);
            self.ftl.discard(unit as u32);
        }
        self.outcome(done)
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        let (first, last) = units(offset, buffer.len());
        for unit in first..last {
            self.copy(unit, offset, buffer);
        }
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.counters.power_cuts += 1;
        self.advance(now);
        if self.protection.is_some() {
            self.dump(now, random);
        } else {
            self.ftl.nand.power_cut(now, random);
        }
        self.forget_memory(now);
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        let ready = if self.protection.is_some() { self.recover_dump(now) } else { self.ftl.recover(now, &[]) };
        self.forget_memory(ready);
        ready
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        self.advance(now);
        let done = self.write_back_all(now);
        // Flash holds everything, if it still can: nothing of it need be kept for the next start.
        if !self.ftl.is_read_only {
            self.forget_memory(done);
        }
        done
    }

    fn counters(&self) -> Counters {
        self.ftl.counters() + self.counters
    }
}
