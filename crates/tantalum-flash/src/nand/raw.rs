//! Flash without a translation layer: what in-page logging asks for. Erase and partial programs are the host's.
//!
//! A write programs parts of pages, which must be erased; a discard of whole blocks erases them. Erased bytes read as
//! 0xFF. Writes are on the medium when they complete.

use tantalum_device::sparse::{Part, parts};
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

    /// The parts of pages that a range covers.
    fn pages(&self, offset: u64, len: usize) -> impl Iterator<Item = (u32, Part)> + use<> {
        parts(offset, len, self.page_bytes() as usize).map(|part| (part.unit as u32, part))
    }

    /// Which sectors of a page are programmed, a bit each.
    fn programmed(&self, page: u32) -> u32 {
        !self.nand.spare(page).units[0]
    }

    /// Which sectors of a page are torn, a bit each.
    fn torn(&self, page: u32) -> u32 {
        let spare = self.nand.spare(page);
        if spare.state == PageState::Torn { u32::MAX } else { !spare.units[1] }
    }

    fn mask(&self, start: usize, len: usize) -> u32 {
        let (first, count) = (start / self.sector_bytes as usize, len / self.sector_bytes as usize);
        (((1u64 << count) - 1) << first) as u32
    }

    /// Copies a part of a page; what is not programmed reads as ones.
    fn copy(&self, page: u32, start: usize, part: &mut [u8]) {
        self.nand.peek(u64::from(page) * self.page_bytes() + start as u64, part);
        let programmed = self.programmed(page);
        let sector_bytes = self.sector_bytes as usize;
        for (index, sector) in part.chunks_mut(sector_bytes).enumerate() {
            if programmed >> (start / sector_bytes + index) & 1 == 0 {
                sector.fill(0xff);
            }
        }
    }
}

impl Model for RawNand {
    fn describe(&self) -> Shape {
        let geometry = self.nand.geometry();
        let plain = Shape::plain(geometry.capacity_bytes(), self.sector_bytes, geometry.page_bytes);
        Shape { erase_block_bytes: self.block_bytes() as u32, ..plain }
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.counters.read(buffer.len());
        let mut done = now;
        let mut torn = None;
        for (page, Part { start, range, .. }) in self.pages(offset, buffer.len()) {
            done = done.max(self.nand.read(now, page, range.len() as u32));
            if self.torn(page) & self.mask(start, range.len()) != 0 {
                torn.get_or_insert(offset + range.start as u64);
            }
            self.copy(page, start, &mut buffer[range]);
        }
        Outcome::at(done, torn.map(|offset| MediaError::Unreadable { offset }))
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], _durable: bool) -> Outcome {
        self.nand.settle(now);
        self.counters.write(data.len());
        let mut done = now;
        for (page, Part { start, range, .. }) in self.pages(offset, data.len()) {
            let place = offset + range.start as u64;
            if self.nand.block(self.nand.geometry().block_of(page)).is_bad {
                return Outcome::failed(done, MediaError::WornBlock { offset: place });
            }
            let mask = self.mask(start, range.len());
            if self.programmed(page) & mask != 0 {
                let rule = "a byte is erased before it is programmed again";
                return Outcome::failed(done, MediaError::Rule { offset: place, rule });
            }
            match self.nand.program_part(now, page, start as u32, &data[range], mask) {
                Ok(programmed) => done = done.max(programmed),
                Err(rule) => return Outcome::failed(done, MediaError::Rule { offset: place, rule }),
            }
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
        for (page, Part { start, range, .. }) in self.pages(offset, buffer.len()) {
            self.copy(page, start, &mut buffer[range]);
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
        Counters {
            media_written_bytes: self.counters.host_written_bytes,
            torn_found: self.nand.torn_pages(),
            ..self.nand.counters() + self.counters
        }
    }
}
