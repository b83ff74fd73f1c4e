//! How an erase unit is divided: data pages, then a log region, whose first sector is the unit's header.
//!
//! The region comes last because flash programs the pages of a block in order, and log sectors are written long after the
//! data pages ("Design of Flash-Based DBMS: An In-Page Logging Approach", section 3.2). The paper keeps what a header
//! says in the spare area, which block devices do not have.

use super::sector::Piece;
use crate::{PAGE_SIZES, PageChanges};

/// The physical units before those of the store: each holds a copy of the superblock.
pub const RESERVED_UNITS: u32 = 2;

const RESERVE_MIN: u32 = 8;

/// In every store so many bytes of changes can be active, and those of a few pages.
const ACTIVE_BYTES_MIN: usize = 64 << 10;

/// More pages than that do not fit in a unit's bitmap.
const MAX_PAGES: usize = 64;

/// Sizes in bytes, and what follows from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Of a data page.
    pub page_bytes: usize,
    /// Of an erase unit.
    pub unit_bytes: usize,
    /// Of the log region at a unit's end.
    pub region_bytes: usize,
    /// Of a log sector: the least that the device writes.
    pub sector_bytes: usize,
}

impl Geometry {
    /// Checks that the sizes go together.
    ///
    /// # Errors
    /// Says which do not, and what would.
    pub fn check(self) -> Result<Self, String> {
        let Self { page_bytes, unit_bytes, region_bytes, sector_bytes } = self;
        if !PAGE_SIZES.iter().any(|size| *size as usize == page_bytes) {
            return Err(format!("pages of {page_bytes} bytes are not possible"));
        }
        if !sector_bytes.is_power_of_two() || !(512..=16384).contains(&sector_bytes) {
            return Err(format!("log sectors of {sector_bytes} bytes are not possible: a power of two, 512 to 16384"));
        }
        if region_bytes < 4 * sector_bytes || !region_bytes.is_multiple_of(sector_bytes) {
            return Err(format!("a log region of {region_bytes} bytes is not at least four sectors of {sector_bytes}"));
        }
        if !unit_bytes.is_power_of_two() || unit_bytes > 4 << 20 {
            return Err(format!("an erase unit of {unit_bytes} bytes is not a power of two of at most 4 MiB"));
        }
        let pages_bytes = unit_bytes.saturating_sub(region_bytes);
        if pages_bytes == 0 || !pages_bytes.is_multiple_of(page_bytes) || pages_bytes / page_bytes > MAX_PAGES {
            return Err(format!(
                "a unit of {unit_bytes} bytes with a log region of {region_bytes} does not leave 1 to {MAX_PAGES} \
                 whole pages of {page_bytes}"
            ));
        }
        Ok(self)
    }

    /// Data pages in a unit.
    pub fn pages(&self) -> usize {
        (self.unit_bytes - self.region_bytes) / self.page_bytes
    }

    /// Log sectors in a unit's region, behind the header.
    pub fn sectors(&self) -> usize {
        self.region_bytes / self.sector_bytes - 1
    }

    /// Log sectors in an overflow unit, behind the header.
    pub fn overflow_sectors(&self) -> usize {
        self.unit_bytes / self.sector_bytes - 1
    }

    /// The most sectors that changes take.
    pub fn sectors_for(&self, pieces: &[Piece<'_>]) -> usize {
        let bytes = |piece: &Piece<'_>| piece.bytes.len() + PageChanges::OVERHEAD_BYTES;
        self.sectors_for_bytes(pieces.iter().map(bytes).sum())
    }

    /// The most sectors that changes take which count for so many bytes.
    pub fn sectors_for_bytes(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.sector_bytes - 64)
    }

    /// Bytes of changes that an overflow unit has room for, about.
    pub fn overflow_bytes(&self) -> usize {
        self.overflow_sectors() * (self.sector_bytes - 64)
    }

    /// The least units that are never given to pages: half of them take what is active, the others what merges need.
    pub fn reserve_min(&self) -> u32 {
        let active = ACTIVE_BYTES_MIN.max(4 * self.page_bytes);
        (2 * active.div_ceil(self.overflow_bytes()) as u32).max(RESERVE_MIN)
    }

    /// Where a physical unit starts.
    pub fn unit_at(&self, physical: u32) -> u64 {
        u64::from(physical) * self.unit_bytes as u64
    }

    /// Where a page of a unit starts.
    pub fn page_at(&self, physical: u32, page: usize) -> u64 {
        debug_assert!(page < self.pages());
        self.unit_at(physical) + (page * self.page_bytes) as u64
    }

    /// Where the header of a home unit stands.
    pub fn header_at(&self, physical: u32) -> u64 {
        self.unit_at(physical) + (self.unit_bytes - self.region_bytes) as u64
    }

    /// Where a log sector of a home unit stands, counted from 0 behind the header.
    pub fn sector_at(&self, physical: u32, sector: usize) -> u64 {
        debug_assert!(sector < self.sectors());
        self.header_at(physical) + ((sector + 1) * self.sector_bytes) as u64
    }

    /// Where a log sector of an overflow unit stands, counted from 0 behind the header at the unit's start.
    pub fn overflow_at(&self, physical: u32, sector: usize) -> u64 {
        debug_assert!(sector < self.overflow_sectors());
        self.unit_at(physical) + ((sector + 1) * self.sector_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Geometry = Geometry { page_bytes: 8192, unit_bytes: 128 << 10, region_bytes: 8192, sector_bytes: 512 };

    #[test]
    fn the_papers_unit_has_fifteen_pages_and_sixteen_sectors_one_of_them_the_header() {
        let unit = PAPER.check().unwrap();
        assert_eq!((unit.pages(), unit.sectors(), unit.overflow_sectors()), (15, 15, 255));
        assert_eq!(unit.header_at(3), 3 * (128 << 10) + 15 * 8192);
        assert_eq!(unit.sector_at(3, 14) + 512, unit.unit_at(4));
        assert_eq!(unit.overflow_at(3, 254) + 512, unit.unit_at(4));
    }

    #[test]
    fn sizes_that_do_not_go_together_are_refused() {
        let refused = |change: fn(&mut Geometry)| {
            let mut geometry = PAPER;
            change(&mut geometry);
            geometry.check().unwrap_err()
        };
        assert!(refused(|g| g.region_bytes = 4096 * 3).contains("whole pages"));
        assert!(refused(|g| g.sector_bytes = 4096).contains("four sectors"));
        assert!(refused(|g| g.unit_bytes = 100_000).contains("power of two"));
        assert!(refused(|g| g.page_bytes = 512).contains("pages of 512"));
        assert!(refused(|g| (g.unit_bytes, g.page_bytes) = (1 << 20, 4096)).contains("whole pages"));
    }
}
