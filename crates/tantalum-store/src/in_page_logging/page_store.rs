//! The store behind the trait that the engine knows.

use super::InPageStore;
use crate::{Load, Logging, PageBatch, PageChanges, PageId, PageStore, Result, Session, StoreStats, UnitInspection};

impl PageStore for InPageStore {
    fn name(&self) -> &str {
        self.medium.device.name()
    }

    fn page_size(&self) -> usize {
        self.medium.geometry.page_bytes
    }

    fn capacity_pages(&self) -> u64 {
        self.pages()
    }

    fn load(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        self.load_page(id, page)
    }

    fn store(&self, batch: &PageBatch) -> Result<()> {
        self.store_scratch(batch)
    }

    fn scratch_group_pages(&self) -> u64 {
        self.medium.geometry.pages() as u64
    }

    fn take_scratch(&self, first: PageId) -> bool {
        self.take_scratch_unit(first)
    }

    fn free_scratch(&self, first: PageId) {
        self.free_scratch_unit(first);
    }

    fn max_batches(&self) -> usize {
        1
    }

    fn logging(&self) -> Logging {
        Logging::Statuses
    }

    fn store_changes(&self, changes: &[(PageId, PageChanges)]) -> Result<()> {
        self.store_all(changes)
    }

    fn begin_session(&self, session: Session) -> Result<u64> {
        self.begin(session)
    }

    fn max_active_bytes(&self) -> usize {
        self.active_bytes()
    }

    fn grow(&self) -> Result<()> {
        self.add_units()
    }

    fn recover(&self) -> Result<u64> {
        Ok(0)
    }

    fn sessions(&self) -> Result<Vec<(String, u64)>> {
        Ok(self.medium.session()?.map(|session| (self.name().to_owned(), session)).into_iter().collect())
    }

    fn stamp(&self, session: u64) -> Result<()> {
        self.medium.stamp(session)
    }

    fn close(&self) {
        self.write_tallies();
    }

    fn check(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        self.check_units(found)
    }

    fn inspect_unit(&self, unit: u32) -> Result<Option<UnitInspection>> {
        self.inspect(unit).map(Some)
    }

    fn stats(&self) -> StoreStats {
        let in_page = self.counts();
        StoreStats {
            pages_loaded: in_page.pages_loaded,
            capacity_bytes: self.medium.device.capacity_bytes(),
            in_page: Some(in_page),
            ..StoreStats::default()
        }
    }
}
