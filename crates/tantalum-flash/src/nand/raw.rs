//! Flash without a translation layer: what in-page logging asks for. Erase and partial programs are the host's.
//!
//! A write programs parts of pages, which must be erased; a discard of whole blocks erases them. Erased bytes read as
//! 0xFF. Writes are on the medium when they complete.

use tantalum_device::WriteCache;
use tantalum_rt::Random;

use super::{Nand, PageState};
use crate::{Counters, MediaError, Model, Nanos, Outcome, Shape};

/// A flash chip as a block device.
#[derive(Debug)]
pub struct RawNand {
    nand: Nand,
    /// Bytes of the smallest program.
    sector_bytes: u32,
    counters: Counters,
}

impl RawNand {
    /// The chip, all erased.
    ///
    /// # Panics
    /// If a page has more than 32 sectors.
    pub fn new(nand: Nand, sector_bytes: u32) -> Self {
        assert!(nand.geometry().page_bytes / sector_bytes <= 32, "a page's sectors fit a word");
        Self { nand, sector_bytes, counters: Counters::default() }
    }

    fn page_bytes(&self) -> u64 {
        u64::from(self.nand.geometry().page_bytes)
    }

    fn block_bytes(&self) -> u64 {
        self.page_bytes() * u64::from(self.nand.geometry().pages_per_block)
    }

    /// The parts of pages that a range covers: page, first byte within it, length.
    fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (u32, u32, u32)> + use<> {
        let page_bytes = self.page_bytes();
        let (mut at, end) = (offset, offset + len);
        std::iter::from_fn(move || {
            let part = (at < end).then(|| {
                let start = at % page_bytes;
                (((at / page_bytes) as u32), start as u32, (page_bytes - start).min(end - at) as u32)
            })?;
            at += u64::from(part.2);
            Some(part)
        })
    }

    /// Which sectors of a page are programmed, a bit each.
    fn programmed(&self, page: u32) -> u32 {
        !self.nand.spare(page).units[0]
    }

    fn mask(&self, start: u32, len: u32) -> u32 {
        let (first, count) = (start / self.sector_bytes, len / self.sector_bytes);
        (((1u64 << count) - 1) << first) as u32
    }

    /// Copies a part of a page; what is not programmed reads as ones.
    fn copy(&self, page: u32, start: u32, part: &mut [u8]) {
        self.nand.peek(u64::from(page) * self.page_bytes() + u64::from(start), part);
        let programmed = self.programmed(page);
        for (index, sector) in part.chunks_mut(self.sector_bytes as usize).enumerate() {
            if programmed >> (start / self.sector_bytes + index as u32) & 1 == 0 {
                sector.fill(0xff);
            }
        }
    }
}

impl Model for RawNand {
    fn describe(&self) -> Shape {
        Shape {
            capacity_bytes: self.nand.geometry().capacity_bytes(),
            logical_block: self.sector_bytes,
            physical_block: self.nand.geometry().page_bytes,
            atomic_write_bytes: 0,
            write_cache: WriteCache::None,
            fua: false,
            rotational: false,
        }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.counters.host_reads += 1;
        self.counters.host_read_bytes += buffer.len() as u64;
        let mut done = now;
        let mut filled = 0;
        let mut torn = None;
        for (page, start, len) in self.parts(offset, buffer.len() as u64) {
            done = done.max(self.nand.read(now, page, len));
            let place = u64::from(page) * self.page_bytes() + u64::from(start);
            self.copy(page, start, &mut buffer[filled..filled + len as usize]);
            if self.nand.spare(page).state == PageState::Torn {
                torn.get_or_insert(place);
            }
            filled += len as usize;
        }
        match torn {
            Some(offset) => Outcome::failed(done, MediaError::Unreadable { offset }),
            None => Outcome::ok(done),
        }
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], _durable: bool) -> Outcome {
        self.nand.settle(now);
        self.counters.host_writes += 1;
        self.counters.host_written_bytes += data.len() as u64;
        let mut done = now;
        let mut rest = data;
        for (page, start, len) in self.parts(offset, data.len() as u64) {
            let place = u64::from(page) * self.page_bytes() + u64::from(start);
            if self.nand.block(self.nand.geometry().block_of(page)).is_bad {
                return Outcome::failed(done, MediaError::WornBlock { offset: place });
            }
            let mask = self.mask(start, len);
            if self.programmed(page) & mask != 0 {
                let rule = "a byte is erased before it is programmed again";
                return Outcome::failed(done, MediaError::Rule { offset: place, rule });
            }
            let (part, after) = rest.split_at(len as usize);
            match self.nand.program_part(now, page, start, part, mask) {
                Ok(programmed) => done = done.max(programmed),
                Err(rule) => return Outcome::failed(done, MediaError::Rule { offset: place, rule }),
            }
            rest = after;
        }
        Outcome::ok(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.counters.flushes += 1;
        Outcome::ok(now)
    }

    fn discard(&mut self, now: Nanos, offset: u64, len: u64) -> Outcome {
        self.nand.settle(now);
        self.counters.discards += 1;
        let block_bytes = self.block_bytes();
        if !offset.is_multiple_of(block_bytes) || !len.is_multiple_of(block_bytes) {
            let reason = "raw flash erases whole blocks";
            return Outcome::failed(now, MediaError::Unsupported { offset, reason });
        }
        let mut done = now;
        for block in offset / block_bytes..(offset + len) / block_bytes {
            let first = block * block_bytes;
            if self.nand.block(block as u32).is_bad {
                return Outcome::failed(done, MediaError::WornBlock { offset: first });
            }
            match self.nand.erase(now, block as u32) {
                Ok(erased) => done = done.max(erased),
                Err(worn) => return Outcome::failed(worn.done, MediaError::WornBlock { offset: first }),
            }
        }
        Outcome::ok(done)
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        let mut rest = buffer;
        for (page, start, len) in self.parts(offset, rest.len() as u64) {
            let (part, after) = rest.split_at_mut(len as usize);
            self.copy(page, start, part);
            rest = after;
        }
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.counters.power_cuts += 1;
        self.nand.power_cut(now, random);
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        now
    }

    fn counters(&self) -> Counters {
        let nand = self.nand.counters();
        Counters {
            media_reads: nand.reads,
            media_written_bytes: self.counters.host_written_bytes,
            programs: nand.programs,
            erases: nand.erases,
            torn_found: nand.torn_pages,
            bad_blocks: nand.bad_blocks,
            ..self.counters
        }
    }
}
