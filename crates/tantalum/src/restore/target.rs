//! Where the pages of a base backup go.

use tantalum_device::{Device, Durability};
use tantalum_store::{PageBatch, PageId, PageStore, Superblock};

use crate::error::Result;

/// Takes the pages of a backup, in runs, in their order.
pub trait PageTarget {
    /// Makes room for so many pages, of so many bytes.
    fn make_room(&mut self, pages: u64, bytes: u64) -> Result<()>;

    /// Takes pages, the first of which begins at byte `offset` in the backup. Zeros are none.
    fn put(&mut self, offset: u64, pages: &[u8]) -> Result<()>;

    /// Makes all of them durable.
    fn end(&mut self) -> Result<()>;
}

/// Each in its place in the data file.
pub struct InPlace<'a> {
    data: &'a dyn Device,
}

impl<'a> InPlace<'a> {
    /// Into this file.
    pub fn new(data: &'a dyn Device) -> Self {
        Self { data }
    }
}

impl PageTarget for InPlace<'_> {
    fn make_room(&mut self, _pages: u64, bytes: u64) -> Result<()> {
        self.data.grow(bytes)
    }

    fn put(&mut self, offset: u64, pages: &[u8]) -> Result<()> {
        self.data.write(offset, &[pages], Durability::Cached)
    }

    fn end(&mut self) -> Result<()> {
        self.data.flush()
    }
}

/// Wherever a store keeps them.
pub struct Stored<'a> {
    store: &'a dyn PageStore,
    batch: PageBatch,
}

impl<'a> Stored<'a> {
    /// Into this store.
    pub fn new(store: &'a dyn PageStore) -> Self {
        Self { store, batch: PageBatch::new(store.page_size()) }
    }

    fn store(&mut self) -> Result<()> {
        self.batch.seal();
        self.store.store(&self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

impl PageTarget for Stored<'_> {
    fn make_room(&mut self, pages: u64, _bytes: u64) -> Result<()> {
        while self.store.capacity_pages() < pages {
            self.store.grow()?;
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, pages: &[u8]) -> Result<()> {
        let page_bytes = self.store.page_size();
        let first = offset / page_bytes as u64;
        let is_page = |id: u64, page: &[u8]| id >= Superblock::PAGES && page.iter().any(|byte| *byte != 0);
        for (id, page) in (first..).zip(pages.chunks_exact(page_bytes)).filter(|(id, page)| is_page(*id, page)) {
            if self.batch.ids().len() == PageBatch::MAX_PAGES {
                self.store()?;
            }
            self.batch.push(PageId(id), page);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.store()
    }
}
