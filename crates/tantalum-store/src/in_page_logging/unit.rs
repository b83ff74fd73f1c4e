//! What is known in memory of a logical unit, and the use of whole units for scratch pages.
//!
//! Scratch pages take logical units that were never written, each in an erase unit without a header. Such a unit is free to the next
//! session, so nothing has to be undone after a crash. The erase unit is one of those that the logical unit may ask for when it is
//! written the first time, so others find as much room as before.

use tantalum_device::Durability;

use super::{
    InPageStore,
    geometry::Geometry,
    medium::Medium,
    physical::Taken,
    sector::{Sector, Summary},
    unit_counters::Counters,
};
use crate::{Load, PageBatch, PageId, Result, page::header};

/// A logical unit: pages `logical * P` to `(logical + 1) * P - 1`.
#[derive(Debug)]
pub struct Unit {
    /// Its number.
    pub logical: u32,
    /// Its newest complete version; `None` if nothing of it was ever written.
    pub home: Option<Home>,
    /// Where its pages are while they are scratch pages, which only those of a unit that was never written can be. It bears no
    /// header, so it is free after a crash.
    pub scratch: Option<Taken>,
    /// While there is one, nothing may be added to the version: it is merged instead.
    pub in_doubt: Option<InDoubt>,
}

/// It is unknown which version of a unit the next opening would find: a header could not be written, or blanked, and may have been all
/// the same. What other versions have is kept until another one is written.
#[derive(Debug, Default)]
pub struct InDoubt {
    /// The versions that could not be written.
    pub sequences: Vec<u64>,
    /// Where they would be.
    pub units: Vec<Taken>,
}

/// A version of a logical unit.
#[derive(Debug)]
pub struct Home {
    /// Where it is.
    pub physical: u32,
    /// Which version.
    pub sequence: u64,
    /// How often it was tried to be written before.
    pub attempt: u16,
    /// The pages that it has, a bit each. Others may have changes only.
    pub pages: u64,
    /// Where its log sectors are; read when the unit is first used.
    pub index: Option<Index>,
    /// Those of its sectors that opening found in overflow units, until there is an index.
    pub overflow: Vec<SectorInfo>,
    /// So many sectors at least it had when the database was closed, as far as that is known.
    pub tallied: usize,
}

/// The log sectors of a version.
#[derive(Debug, Default)]
pub struct Index {
    /// Those that are whole, in no order.
    pub sectors: Vec<SectorInfo>,
    /// The first sector of the region that can be written.
    pub next: usize,
}

/// A log sector.
#[derive(Clone, Copy, Debug)]
pub struct SectorInfo {
    /// Where it is.
    pub at: u64,
    /// What it holds.
    pub summary: Summary,
    /// Sectors that its writer knew of.
    pub counted: u16,
}

impl Unit {
    /// A unit that was never written.
    pub fn unwritten(logical: u32) -> Self {
        Self { logical, home: None, scratch: None, in_doubt: None }
    }

    /// The erase unit that it lies in, if it lies anywhere.
    pub fn place(&self) -> Option<u32> {
        self.home.as_ref().map(|home| home.physical).or(self.scratch.map(|taken| taken.physical))
    }

    /// Whether its sectors are known.
    pub fn is_ready(&self) -> bool {
        self.home.as_ref().is_none_or(|home| home.index.is_some())
    }
}

impl Home {
    /// The sectors, which are known.
    ///
    /// # Panics
    /// When they are not.
    pub fn index(&self) -> &Index {
        self.index.as_ref().expect("a unit is made ready before it is used")
    }

    /// As [`index`](Self::index), to be changed.
    ///
    /// # Panics
    /// As [`index`](Self::index).
    pub fn index_mut(&mut self) -> &mut Index {
        self.index.as_mut().expect("a unit is made ready before it is used")
    }

    /// Reads the region and finds its sectors. Returns what is wrong, if it is.
    ///
    /// # Errors
    /// When the device cannot read.
    pub fn read_index(&mut self, medium: &Medium) -> Result<Result<(), String>> {
        let Geometry { sector_bytes, region_bytes, .. } = medium.geometry;
        let mut region = tantalum_device::AlignedBuffer::zeroed(region_bytes - sector_bytes);
        let is_whole = medium.read_sector(medium.geometry.sector_at(self.physical, 0), &mut region)?;
        let mut index = Index { sectors: self.overflow.clone(), next: 0 };
        for (number, sector) in region.chunks_exact_mut(sector_bytes).enumerate() {
            let at = medium.geometry.sector_at(self.physical, number);
            let is_whole = is_whole || medium.read_sector(at, sector)?;
            let found = if is_whole { Sector::decode(sector, medium.store) } else { None };
            let ours = found.filter(|found| found.head.sequence == self.sequence);
            if let Some(ours) = ours {
                index.sectors.push(SectorInfo { at, summary: ours.summary(), counted: ours.head.counted });
            }
            // What flash has tried to program is used up, whatever came of it.
            if ours.is_some() || (medium.erases() && !(is_whole && medium.is_blank(sector))) {
                index.next = number + 1;
            }
        }
        let checked = index.check(self.tallied);
        // The next reader must be told too.
        if checked.is_ok() {
            self.overflow.clear();
            self.index = Some(index);
        }
        Ok(checked)
    }
}

impl Index {
    /// Whether every sector is there that a later one has counted, and as many as there were when the database was closed.
    fn check(&mut self, tallied: usize) -> Result<(), String> {
        let whole = self.sectors.len();
        if whole < tallied {
            return Err(format!(
                "it had {tallied} log sectors when the database was closed, of which {whole} are whole"
            ));
        }
        self.sectors.sort_by_key(|sector| (sector.counted, sector.at));
        for sector in &self.sectors {
            let before = self.sectors.partition_point(|other| other.counted < sector.counted);
            if before < usize::from(sector.counted) {
                let (counted, at) = (sector.counted, sector.at);
                return Err(format!(
                    "the log sector at byte {at} was written after {counted} others, of which {before} are whole"
                ));
            }
        }
        Ok(())
    }
}

impl InPageStore {
    /// Takes an erase unit for the unit whose first page this is. False if that was written before, or none is free beside those
    /// that merges need.
    pub(super) fn take_scratch_unit(&self, first: PageId) -> bool {
        let _placing = self.placing.lock();
        let Some((logical, 0)) = self.place_of(first) else { return false };
        let unit = self.unit(logical);
        let mut unit = unit.write();
        assert!(unit.scratch.is_none(), "a unit is taken for scratch pages once");
        if unit.home.is_some() || self.physical.free() <= self.physical.reserve() {
            return false;
        }
        unit.scratch = self.take_unit(super::Physical::take).ok();
        unit.scratch.is_some()
    }

    /// Nothing in the unit whose first page this is is needed. It is erased when it is taken again.
    pub(super) fn free_scratch_unit(&self, first: PageId) {
        let (logical, _) = self.place_of(first).expect("a unit that was taken is one of the store's");
        let _placing = self.placing.lock();
        let taken = self.unit(logical).write().scratch.take().expect("a unit is freed once, by its taker");
        self.physical.give_back(Taken { is_erased: false, ..taken });
    }

    /// Writes scratch pages, of a unit in ascending order and each once, as raw flash asks for.
    pub(super) fn store_scratch(&self, batch: &PageBatch) -> Result<()> {
        for (id, bytes) in batch.pages() {
            let (logical, index) = self.place_of(id).expect("scratch pages are taken before they are written");
            let unit = self.unit(logical);
            let unit = unit.read();
            let taken = unit.scratch.expect("the only pages that are stored whole are scratch pages");
            self.medium.write(self.medium.geometry.page_at(taken.physical, index), bytes, Durability::Cached)?;
            Counters::add(&self.counters.bytes_written, bytes.len());
        }
        Ok(())
    }

    /// Reads a scratch page.
    pub(super) fn load_scratch(&self, scratch: &Taken, id: PageId, index: usize, page: &mut [u8]) -> Result<Load> {
        Counters::add(&self.counters.pages_loaded, 1);
        Counters::add(&self.counters.bytes_loaded, page.len());
        self.medium.read(self.medium.geometry.page_at(scratch.physical, index), page)?;
        Ok(header::verify(page, id).map_or_else(Load::Damaged, |()| Load::Page))
    }
}
