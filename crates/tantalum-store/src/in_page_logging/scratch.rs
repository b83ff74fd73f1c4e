//! Scratch pages of an [`InPageStore`]: whole logical units that were never written, each in an erase unit without a header.
//!
//! A unit without a header is free to the next session, so nothing has to be undone after a crash. The erase unit is one of
//! those that the logical unit may ask for when it is written the first time, so others find as much room as before.

use tantalum_device::Durability;

use super::{InPageStore, counters::Counters, physical::Taken};
use crate::{Load, PageBatch, PageId, Result, page::header};

impl InPageStore {
    /// Takes an erase unit for the unit whose first page this is. False if that was written before, or none is free beside those
    /// that merges need.
    pub(super) fn take_scratch_unit(&self, first: PageId) -> bool {
        let Some((logical, 0)) = self.place_of(first) else { return false };
        let _placing = self.placing.lock();
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
