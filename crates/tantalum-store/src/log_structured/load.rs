//! Reading pages.

use super::{Shared, counters::Counters, layout::Place};
use crate::{Load, PageId, Result, page::header};

/// Pages one behind the other.
struct Run {
    start: Place,
    generation: u64,
    pages: usize,
}

impl Shared {
    /// The pages that there is room for.
    pub(super) fn capacity_pages(&self) -> u64 {
        self.layout.capacity_pages(self.layout.segments(self.device.capacity_bytes()))
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When the device cannot read.
    pub(super) fn load_page(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        if id.0 >= self.capacity_pages() {
            return Ok(Load::Damaged(format!(
                "it lies beyond the end of the store, which has room for {} pages; perhaps the file was truncated",
                self.capacity_pages()
            )));
        }
        loop {
            let found = self.table.read().find(id, &self.layout);
            let Some((place, generation)) = found else {
                page.fill(0);
                return Ok(Load::NeverWritten);
            };
            let read = self.device.read(place.offset(), page);
            // Else the page has moved, and something else may have been written there.
            if self.table.read().generation(place, &self.layout) == generation {
                read?;
                Counters::add(&self.counters.pages_loaded, 1);
                return Ok(header::verify(page, id).map_or_else(Load::Damaged, |()| Load::Page));
            }
        }
    }

    /// Reads pages that follow each other; those that lie so, too, at once.
    ///
    /// # Errors
    /// When the device cannot read one of them.
    pub(super) fn load_pages(&self, first: PageId, pages: &mut [u8]) -> Result<Vec<Load>> {
        let page_bytes = self.layout.page_bytes();
        let count = pages.len() / page_bytes;
        let mut loads = Vec::with_capacity(count);
        while loads.len() < count {
            let id = PageId(first.0 + loads.len() as u64);
            let rest = &mut pages[loads.len() * page_bytes..];
            let run = self.run_at(id, count - loads.len());
            let read = run.and_then(|run| self.read_run(run, id, rest).transpose()).transpose();
            match read {
                Ok(Some(run)) => loads.extend(run),
                // It moved meanwhile, or one of them cannot be read, or there is nothing.
                Ok(None) | Err(_) => loads.push(self.load_page(id, &mut rest[..page_bytes])?),
            }
        }
        Ok(loads)
    }

    /// Where pages, `count` at most, lie one behind the other.
    fn run_at(&self, id: PageId, count: usize) -> Option<Run> {
        let table = self.table.read();
        let (start, generation) = table.find(id, &self.layout)?;
        let place = |page: u64| Place(start.0 + page * u64::from(self.layout.page_blocks()));
        let is_next = |page: &u64| table.map.get(PageId(id.0 + page)) == Some(place(*page));
        // Never beyond a segment's end: each begins with a summary.
        Some(Run { start, generation, pages: (0..count as u64).take_while(is_next).count() })
    }

    /// `None` if something else may have been written there meanwhile.
    fn read_run(&self, run: Run, first: PageId, pages: &mut [u8]) -> Result<Option<Vec<Load>>> {
        let pages = &mut pages[..run.pages * self.layout.page_bytes()];
        self.device.read(run.start.offset(), pages)?;
        if self.table.read().generation(run.start, &self.layout) != run.generation {
            return Ok(None);
        }
        Counters::add(&self.counters.pages_loaded, run.pages as u64);
        let pages = (first.0..).zip(pages.chunks_exact(self.layout.page_bytes()));
        let found = |(id, page)| header::verify(page, PageId(id)).map_or_else(Load::Damaged, |()| Load::Page);
        Ok(Some(pages.map(found).collect()))
    }
}
