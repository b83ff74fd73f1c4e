//! A hard disk: an arm that seeks, platters that turn, a track buffer, and a write cache that is on or off.
//!
//! Promises: a sector is whole, old or new, whenever the power fails. With the cache off a write that has ended is on
//! the platter; with it on, one that was flushed or went past the cache is, and any subset of the others may be. A write
//! that waits in the queue when the power fails is absent.
//!
//! What makes a disk slow for a log is its rotation: when a small write has ended, the sector behind it has just begun
//! to pass, and while the next command comes in it is gone; the disk waits for nearly a whole turn ("FlashLogging",
//! section 1.1).

mod arm;
mod arm_schedule;
mod cache;
mod disk_parameters;
mod geometry;
mod queue;

use tantalum_device::WriteCache as Promise;
use tantalum_rt::Random;

use self::arm::{Arm, ReadAhead, Span};
use self::arm_schedule::{Flush, Transfer};
use self::cache::WriteCache;
pub use self::disk_parameters::{CacheMode, DiskParameters, SECTOR_BYTES, SeekCurve};
use self::geometry::Geometry;
use self::queue::{Command, Queue, Work};
use crate::link::{Link, nanos};
use crate::writeback::{overlay, pieces};
use crate::{Contents, Counters, Model, Nanos, Outcome, Shape, Ticket};

/// A hard disk.
#[derive(Debug)]
pub(crate) struct HardDisk {
    parameters: DiskParameters,
    geometry: Geometry,
    arm: Arm,
    platters: Contents,
    queue: Queue,
    cache: WriteCache,
    flushes: Vec<Flush>,
    /// What the arm writes until it is free.
    writing: Option<Transfer>,
    /// Commands whose end is known, and lies ahead.
    ending: Vec<(Ticket, Nanos)>,
    next_ticket: u64,
    read_ahead: Option<ReadAhead>,
    link: Link,
    counters: Counters,
}

impl HardDisk {
    /// A disk of which the host may use the first `capacity_bytes`, from the outside; `contents` makes what holds them.
    pub fn new(parameters: DiskParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the disk is possible");
        let geometry = Geometry::new(&parameters);
        let platters = contents(capacity_bytes);
        assert_eq!(platters.len(), capacity_bytes, "the contents have the disk's size");
        Self {
            arm: Arm::new(&geometry),
            geometry,
            platters,
            queue: Queue::new(parameters.queue_depth),
            cache: WriteCache::default(),
            flushes: Vec::new(),
            writing: None,
            ending: Vec::new(),
            next_ticket: 0,
            read_ahead: None,
            link: Link::new(parameters.command_us, parameters.interface_mb_per_s),
            counters: Counters::default(),
            parameters,
        }
    }

    fn room(&self) -> u64 {
        u64::from(self.parameters.read_ahead_kib) * 1024 / SECTOR_BYTES
    }

    /// Whether memory can take in a write. What is being written keeps its memory until it is on the platters.
    fn has_room(&self, offset: u64, len: u64) -> bool {
        let leaving = self.writing.as_ref().filter(|transfer| transfer.is_acknowledged);
        let bytes = self.cache.runs.bytes() + leaving.map_or(0, |transfer| transfer.data.len() as u64);
        let segments = self.cache.runs.runs().len() + usize::from(leaving.is_some());
        let has_segment = segments < self.parameters.write_cache_segments as usize;
        bytes + len <= self.cache_bytes() && (has_segment || self.cache.has_segment_for(offset, len))
    }

    fn cache_bytes(&self) -> u64 {
        u64::from(self.parameters.write_cache_kib) * 1024
    }

    /// Takes a write into memory.
    fn hold(&mut self, offset: u64, data: Vec<u8>, ready: Nanos) {
        self.counters.coalesced += u64::from(self.cache.insert(offset, data, ready));
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Queues a command.
    fn enqueue(&mut self, now: Nanos, offset: u64, len: u64, work: Work) -> Outcome {
        let place = self.geometry.locate(offset / SECTOR_BYTES);
        let command = Command { ticket: self.ticket(), ready: now + self.link.command, offset, len, place, work };
        let queued = Outcome::queued(self.earliest(now, &command), command.ticket);
        self.queue.push(command);
        self.checked(queued)
    }

    /// Waits for everything that is in memory.
    fn flush_behind(&mut self, now: Nanos, ready: Nanos) -> Outcome {
        let through = self.cache.latest();
        if self.oldest_unwritten() > through {
            return self.end(ready);
        }
        let ticket = self.ticket();
        self.flushes.push(Flush { ticket, ready, through });
        self.checked(Outcome::queued(ready.max(self.arm.free_at()).max(now + 1), ticket))
    }

    /// Copies what is not on the platters over `buffer`; tells how many bytes of it the cache holds.
    fn read_memory(&self, offset: u64, buffer: &mut [u8]) -> usize {
        if let Some(transfer) = &self.writing {
            overlay(transfer.offset, &transfer.data, offset, buffer);
        }
        let held = self.cache.runs.read(offset, buffer);
        self.queue.read(offset, buffer);
        held
    }

    /// The disk reads on behind a read.
    fn read_on(&mut self, span: Span, end: Nanos) {
        let room = self.room();
        if room > 0 {
            self.read_ahead = Some(ReadAhead::after(&self.geometry, span.sector, span.count, end, room));
        }
    }

    fn checked(&self, outcome: Outcome) -> Outcome {
        match self.platters.failure() {
            Some(error) => Outcome { result: Err(error), ..outcome },
            None => outcome,
        }
    }

    fn end(&self, done: Nanos) -> Outcome {
        self.checked(Outcome::ok(done))
    }

    fn is_lazy(&self, durable: bool) -> bool {
        match self.parameters.write_cache {
            CacheMode::Off => false,
            CacheMode::On => !durable || !self.parameters.fua,
            CacheMode::NeverFlushed => true,
        }
    }
}

impl Model for HardDisk {
    fn describe(&self) -> Shape {
        let is_volatile = self.parameters.write_cache == CacheMode::On;
        let sector = SECTOR_BYTES as u32;
        Shape {
            atomic_write_bytes: sector,
            write_cache: if is_volatile { Promise::Volatile } else { Promise::None },
            fua: self.parameters.fua,
            rotational: true,
            ..Shape::plain(self.platters.len(), sector, sector)
        }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        self.counters.read(buffer.len());
        self.platters.read(offset, buffer);
        let held = self.read_memory(offset, buffer);
        let ready = now + self.link.command;
        let (sector, count) = (offset / SECTOR_BYTES, buffer.len() as u64 / SECTOR_BYTES);
        let room = self.room();
        let buffered = self.read_ahead.as_mut().and_then(|ahead| ahead.hit(&self.geometry, ready, sector, count, room));
        let available = match buffered {
            _ if held == buffer.len() => ready,
            Some(at) => {
                self.arm.stay(at);
                at
            }
            None => return self.enqueue(now, offset, buffer.len() as u64, Work::Read),
        };
        self.counters.cache_hits += 1;
        self.end(available.max(ready + self.link.transfer(buffer.len())))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.advance(now);
        let len = data.len() as u64;
        self.counters.write(data.len());
        let must_flush = durable && self.parameters.write_cache == CacheMode::On;
        if !self.is_lazy(durable) || len > self.cache_bytes() {
            return self.enqueue(now, offset, len, Work::Through(data.to_vec()));
        }
        if self.has_room(offset, len) && self.queue.lets_pass(offset, len) {
            let done = now + self.link.command + self.link.transfer(data.len());
            self.hold(offset, data.to_vec(), done);
            return if must_flush { self.flush_behind(now, done) } else { self.end(done) };
        }
        let work = if must_flush { Work::Flushed(data.to_vec()) } else { Work::Cached(data.to_vec()) };
        self.enqueue(now, offset, len, work)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.advance(now);
        self.counters.flushes += 1;
        let ready = now + self.link.command;
        match self.parameters.write_cache {
            CacheMode::NeverFlushed => self.end(ready),
            CacheMode::Off | CacheMode::On => self.flush_behind(now, ready),
        }
    }

    fn ask_again(&mut self, now: Nanos, ticket: Ticket) -> Option<Nanos> {
        self.advance(now);
        if let Some(&(_, end)) = self.ending.iter().find(|&&(ending, _)| ending == ticket) {
            return Some(end);
        }
        if let Some(flush) = self.flushes.iter().find(|flush| flush.ticket == ticket) {
            return Some(flush.ready.max(self.arm.free_at()).max(now + 1));
        }
        self.queue.find(ticket).map(|command| self.earliest(now, command))
    }

    fn discard(&mut self, now: Nanos, _offset: u64, _len: u64) -> Outcome {
        self.advance(now);
        self.counters.discards += 1;
        self.end(now + self.link.command)
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.platters.read(offset, buffer);
        self.read_memory(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.advance(now);
        self.counters.power_cuts += 1;
        // Firmware may destage in another order than ours: what was acknowledged survives sector by sector, run by run,
        // or only where the arm has been.
        let survives = random.u8(..3);
        if let Some(Transfer { begin, offset, data, is_acknowledged, .. }) = self.writing.take() {
            let first = offset / SECTOR_BYTES;
            let passes = self.geometry.passes(begin, first, data.len() as u64 / SECTOR_BYTES, true);
            let written = passes.map(|pass| {
                let time = now.clamp(pass.begin, pass.end) - pass.begin;
                u64::from(pass.sectors) * time / (pass.end - pass.begin)
            });
            // The head finishes the sector it is in, or never began it.
            let written = written.sum::<u64>() + u64::from(begin < now && random.bool());
            for (number, (at, sector)) in pieces(offset, &data, SECTOR_BYTES as usize).enumerate() {
                if (number as u64) < written || (is_acknowledged && survives == 0 && random.bool()) {
                    self.platters.write(at, sector);
                }
            }
        }
        for (offset, run) in self.cache.runs.drain() {
            let whole = survives == 1 && random.bool();
            for (at, sector) in pieces(offset, &run.data, SECTOR_BYTES as usize) {
                if whole || (survives == 0 && random.bool()) {
                    self.platters.write(at, sector);
                }
            }
        }
        // What waited was not begun.
        self.queue.clear();
        self.flushes.clear();
        self.ending.clear();
        self.arm.stop(now);
        self.read_ahead = None;
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        now + nanos(self.parameters.spin_up_us)
    }

    fn catch_up(&mut self, now: Nanos) {
        self.advance(now);
    }

    fn shut_down(&mut self, now: Nanos) -> Nanos {
        self.advance(Nanos::MAX);
        self.arm.free_at().max(now)
    }

    fn counters(&self) -> Counters {
        Counters { seeks: self.arm.seeks, ..self.counters }
    }
}

#[cfg(test)]
mod tests;
