//! A hard disk: an arm that seeks, platters that turn, a track buffer, and a write cache that is on or off.
//!
//! Promises: a sector is whole, old or new, whenever the power fails. With the cache off a write that has ended is on
//! the platter; with it on, one that was flushed or went past the cache is, and any subset of the others may be.
//!
//! What makes a disk slow for a log is its rotation: when a small write has ended, the sector behind it has just begun
//! to pass, and while the next command comes in it is gone; the disk waits for nearly a whole turn ("FlashLogging",
//! section 1.1).

mod arm;
mod geometry;
mod parameters;
mod read_ahead;

use tantalum_device::WriteCache;
use tantalum_rt::Random;

use self::arm::{Arm, Span, Visit};
use self::geometry::Geometry;
pub use self::parameters::{CacheMode, DiskParameters, SECTOR_BYTES, SeekCurve};
use self::read_ahead::ReadAhead;
use crate::writeback::{Dirty, Transfer, Transfers, pieces};
use crate::{Contents, Counters, Model, Nanos, Outcome, Shape};

/// The most that one movement of the arm destages.
const DESTAGE_BYTES: usize = 512 << 10;

/// A hard disk.
///
/// ```
/// use tantalum_flash::{Contents, Model};
/// use tantalum_flash::disk::{DiskParameters, HardDisk};
///
/// let mut disk = HardDisk::new(DiskParameters::example(), 1 << 30, Contents::in_memory);
/// let first = disk.write(0, 0, &[1; 4096], true).done;
/// let second = disk.write(first, 4096, &[2; 4096], true).done;
/// assert!((6_000_000..6_100_000).contains(&(second - first)), "a whole turn: {} ns", second - first);
/// ```
#[derive(Debug)]
pub struct HardDisk {
    parameters: DiskParameters,
    geometry: Geometry,
    arm: Arm,
    platters: Contents,
    transfers: Transfers,
    dirty: Dirty,
    /// Since when there is something to destage.
    dirty_since: Nanos,
    read_ahead: Option<ReadAhead>,
    counters: Counters,
}

impl HardDisk {
    /// A disk of which the host may use the first `capacity_bytes`, from the outside; `contents` makes what holds them.
    ///
    /// # Panics
    /// If the parameters do not pass [`DiskParameters::check`], or the contents have another size.
    pub fn new(parameters: DiskParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the disk is possible");
        let geometry = Geometry::new(&parameters);
        let platters = contents(capacity_bytes);
        assert_eq!(platters.len(), capacity_bytes, "the contents have the disk's size");
        Self {
            arm: Arm::new(&geometry, parameters.queue_depth),
            geometry,
            platters,
            transfers: Transfers::default(),
            dirty: Dirty::default(),
            dirty_since: 0,
            read_ahead: None,
            counters: Counters::default(),
            parameters,
        }
    }

    fn nanos(micros: f64) -> Nanos {
        (micros * 1000.0).round() as Nanos
    }

    fn command(&self) -> Nanos {
        Self::nanos(self.parameters.command_us)
    }

    /// Time of `bytes` on the interface.
    fn interface(&self, bytes: usize) -> Nanos {
        Self::nanos(bytes as f64 / self.parameters.interface_mb_per_s)
    }

    fn room(&self) -> u64 {
        u64::from(self.parameters.read_ahead_kib) * 1024 / SECTOR_BYTES
    }

    /// Destages what was begun before `now`, and puts on the platters what has ended by then.
    fn advance(&mut self, now: Nanos) {
        while !self.dirty.is_empty() && self.arm.free_at().max(self.dirty_since) < now {
            self.destage();
        }
        while let Some(ended) = self.transfers.take_ended(now) {
            self.platters.write(ended.offset, &ended.data);
        }
    }

    /// Begins to write what comes next on the way of the arm from the outside to the inside.
    fn destage(&mut self) {
        let last = self.arm.last().span;
        let from = (last.sector + last.count) * SECTOR_BYTES;
        if let Some((offset, data)) = self.dirty.take_next(from, DESTAGE_BYTES) {
            self.send(self.dirty_since, offset, data, true);
        }
    }

    fn visit(&mut self, ready: Nanos, span: Span, in_order: bool) -> Visit {
        let visit = self.arm.schedule(&self.geometry, ready, span, in_order);
        if let Some(read_ahead) = &mut self.read_ahead {
            read_ahead.leave(visit.depart);
        }
        visit
    }

    /// Sends the arm to write; returns when it has.
    fn send(&mut self, ready: Nanos, offset: u64, data: Vec<u8>, is_acknowledged: bool) -> Nanos {
        let span = Span { sector: offset / SECTOR_BYTES, count: data.len() as u64 / SECTOR_BYTES, is_write: true };
        // An earlier write of the same sectors comes first; destaging is in nobody's way.
        let in_order = is_acknowledged || self.transfers.end_of(offset, data.len() as u64).is_some();
        let visit = self.visit(ready, span, in_order);
        self.counters.media_written_bytes += data.len() as u64;
        self.transfers.push(Transfer { begin: visit.begin, end: visit.end, offset, data, is_acknowledged });
        visit.end
    }

    fn write_cached(&mut self, now: Nanos, offset: u64, data: &[u8]) -> Nanos {
        let capacity = u64::from(self.parameters.write_cache_kib) * 1024;
        let mut room_at = now;
        while !self.dirty.is_empty() && self.dirty.bytes() + data.len() as u64 > capacity {
            // What is being written keeps its memory until it is on the platter.
            self.destage();
            room_at = room_at.max(self.arm.free_at());
        }
        let done = room_at + self.command() + self.interface(data.len());
        if self.dirty.is_empty() {
            self.dirty_since = done;
        }
        self.counters.coalesced += u64::from(self.dirty.insert(offset, data.to_vec()));
        done
    }

    fn flush_all(&mut self, now: Nanos) -> Nanos {
        while !self.dirty.is_empty() {
            self.destage();
        }
        self.transfers.end().unwrap_or(now).max(now)
    }

    fn end(&self, done: Nanos) -> Outcome {
        match self.platters.failure() {
            Some(error) => Outcome::failed(done, error),
            None => Outcome::ok(done),
        }
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
        Shape {
            capacity_bytes: self.platters.len(),
            logical_block: SECTOR_BYTES as u32,
            physical_block: SECTOR_BYTES as u32,
            atomic_write_bytes: SECTOR_BYTES as u32,
            write_cache: if is_volatile { WriteCache::Volatile } else { WriteCache::None },
            fua: self.parameters.fua,
            rotational: true,
        }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.advance(now);
        self.counters.host_reads += 1;
        self.counters.host_read_bytes += buffer.len() as u64;
        self.platters.read(offset, buffer);
        self.transfers.read(offset, buffer);
        let held = self.dirty.read(offset, buffer);
        let ready = now + self.command();
        let (sector, count) = (offset / SECTOR_BYTES, buffer.len() as u64 / SECTOR_BYTES);
        let room = self.room();
        let buffered = self.read_ahead.as_mut().and_then(|ahead| ahead.hit(&self.geometry, ready, sector, count, room));
        let available = match buffered {
            _ if held == buffer.len() => ready,
            Some(at) => at,
            None => {
                self.counters.media_reads += 1;
                let visit = self.visit(ready, Span { sector, count, is_write: false }, false);
                if room > 0 && visit == *self.arm.last() {
                    self.read_ahead = Some(ReadAhead::after(&self.geometry, sector, count, visit.end, room));
                }
                // The interface carries sectors while others pass; the last one is left.
                return self.end(visit.end + self.interface(SECTOR_BYTES as usize));
            }
        };
        self.counters.cache_hits += 1;
        self.end(available.max(ready + self.interface(buffer.len())))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], durable: bool) -> Outcome {
        self.advance(now);
        self.counters.host_writes += 1;
        self.counters.host_written_bytes += data.len() as u64;
        if !self.is_lazy(durable) {
            self.dirty.remove(offset, data.len() as u64);
            let done = self.send(now + self.command(), offset, data.to_vec(), false);
            return self.end(done);
        }
        let done = self.write_cached(now, offset, data);
        let must_flush = durable && self.parameters.write_cache == CacheMode::On;
        let done = if must_flush { self.flush_all(done) } else { done };
        self.end(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.advance(now);
        self.counters.flushes += 1;
        let ready = now + self.command();
        let done = match self.parameters.write_cache {
            CacheMode::NeverFlushed => ready,
            CacheMode::Off | CacheMode::On => self.flush_all(ready),
        };
        self.end(done)
    }

    fn discard(&mut self, now: Nanos, _offset: u64, _len: u64) -> Outcome {
        self.advance(now);
        self.counters.discards += 1;
        self.end(now + self.command())
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.advance(now);
        self.counters.power_cuts += 1;
        // Firmware may destage in another order than ours: what the host was told of survives sector by sector, run
        // by run, or only where the arm has been.
        let survives = random.u8(..3);
        for Transfer { begin, offset, data, is_acknowledged, .. } in self.transfers.drain() {
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
        for (offset, run) in self.dirty.drain() {
            let whole = survives == 1 && random.bool();
            for (at, sector) in pieces(offset, &run, SECTOR_BYTES as usize) {
                if whole || (survives == 0 && random.bool()) {
                    self.platters.write(at, sector);
                }
            }
        }
        self.arm.stop(now);
        self.read_ahead = None;
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        now + Self::nanos(self.parameters.spin_up_us)
    }

    fn counters(&self) -> Counters {
        Counters { seeks: self.arm.seeks, ..self.counters }
    }
}

#[cfg(test)]
mod tests;
