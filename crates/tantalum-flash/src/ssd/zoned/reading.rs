//! How [`ZonedDrive`] finds what a sector holds, and reads it.

use tantalum_device::sparse::{PIECE_BYTES, Piece};

use super::ZonedDrive;
use super::zone::Zone;
use crate::Nanos;

impl ZonedDrive {
    /// A sector of a zone.
    fn piece(&self, zone: u32, sector: u32) -> Piece {
        let found = &self.zones[zone as usize];
        if sector >= found.written {
            return None;
        }
        match sector.checked_sub(found.programmed) {
            Some(waiting) => found.waiting[waiting as usize].piece.clone(),
            None => self.nand.piece(self.page_of(found, sector), (sector % self.page_sectors()) as usize),
        }
    }

    /// The page of flash that a sector of a zone is programmed on.
    fn page_of(&self, zone: &Zone, sector: u32) -> u32 {
        let page = sector / self.page_sectors();
        let (slot, index) = (page % self.zoning.blocks, page / self.zoning.blocks);
        let block = zone.blocks[slot as usize].expect("a zone that is written has its blocks");
        block * self.nand.geometry().pages_per_block + index
    }

    /// Fills a buffer with what a range of the zones holds, and calls `each` for its sectors: zone and sector in it.
    pub(super) fn copy(&self, offset: u64, buffer: &mut [u8], mut each: impl FnMut(u32, u32)) {
        let first = (offset - self.shape.start) / PIECE_BYTES as u64;
        for (unit, target) in (first..).zip(buffer.chunks_mut(PIECE_BYTES)) {
            let full = u64::from(self.zone_sectors());
            let (zone, sector) = ((unit / full) as u32, (unit % full) as u32);
            match self.piece(zone, sector) {
                Some(piece) => target.copy_from_slice(&piece[..target.len()]),
                None => target.fill(0),
            }
            each(zone, sector);
        }
    }

    pub(super) fn read_zones(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Nanos {
        self.counters.read(buffer.len());
        let start = self.host.admit(now);
        let begin = self.host.read(start);
        let mut sectors = Vec::new();
        self.copy(offset, buffer, |zone, sector| sectors.push((zone, sector)));
        // The programmed pages, each with its bytes.
        let mut pages: Vec<(u32, u32)> = Vec::new();
        for (zone, sector) in sectors {
            let found = &self.zones[zone as usize];
            if sector >= found.programmed {
                self.counters.cache_hits += u64::from(sector < found.written);
                continue;
            }
            let page = self.page_of(found, sector);
            match pages.last_mut().filter(|(last, _)| *last == page) {
                Some((_, bytes)) => *bytes += PIECE_BYTES as u32,
                None => pages.push((page, PIECE_BYTES as u32)),
            }
        }
        let read = pages.into_iter().map(|(page, bytes)| self.nand.read(begin, page, bytes)).max();
        let done = self.host.send(read.unwrap_or(begin), buffer.len() as u64);
        self.host.enqueue(done);
        done
    }
}
