//! The store behind the trait that the engine knows.

use super::{Cleaning, LogStructuredStore, cleaner::CleanerTask, counters::LogStructuredStats, segments::State};
use crate::{Error, Load, PageBatch, PageId, PageStore, Result, SegmentInspection, StoreStats};

/// Segments by which a file grows at least, and at most.
const GROWTH_SEGMENTS: (u32, u32) = (16, 512);

impl PageStore for LogStructuredStore {
    fn name(&self) -> &str {
        self.shared.device.name()
    }

    fn page_size(&self) -> usize {
        self.shared.layout.page_bytes()
    }

    fn capacity_pages(&self) -> u64 {
        self.shared.capacity_pages()
    }

    fn load(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        self.shared.load_page(id, page)
    }

    fn load_run(&self, first: PageId, pages: &mut [u8]) -> Result<Vec<Load>> {
        self.shared.load_pages(first, pages)
    }

    fn store(&self, batch: &PageBatch) -> Result<()> {
        if batch.ids().is_empty() {
            return Ok(());
        }
        {
            let mut cleaning = self.cleaning.lock();
            match *cleaning {
                Cleaning::NotYet => *cleaning = Cleaning::By(CleanerTask::start(&self.shared)),
                Cleaning::By(_) => {}
                Cleaning::Ended => return Err(Error::Closed),
            }
        }
        self.shared.store_batch(batch)
    }

    fn grow(&self) -> Result<()> {
        let (device, layout) = (&self.shared.device, self.shared.layout);
        let before = layout.segments(device.capacity_bytes());
        let file = device.name().to_owned();
        // Until there is room for another page: what the map and cleaning need grows too.
        let mut segments = before + (before / 8).clamp(GROWTH_SEGMENTS.0, GROWTH_SEGMENTS.1);
        while layout.capacity_pages(segments) <= layout.capacity_pages(before) && segments < 2 * before {
            segments += GROWTH_SEGMENTS.0;
        }
        if layout.capacity_pages(segments) <= layout.capacity_pages(before) {
            return Err(self.shared.full());
        }
        let grown = device.grow(layout.device_bytes(segments));
        grown.map_err(|source| Error::DiskFull { file: file.clone(), source })?;
        let after = layout.segments(device.capacity_bytes());
        if after == before {
            let source = tantalum_device::Error::Unsupported { device: file.as_str().into(), operation: "grow" };
            return Err(Error::DiskFull { file, source });
        }
        let mut table = self.shared.table.write();
        table.segments.grow(after);
        table.forget_exhausted();
        drop(table);
        self.shared.announce_room();
        Ok(())
    }

    fn recover(&self) -> Result<u64> {
        self.shared.recover()?;
        Ok(0)
    }

    fn close(&self) {
        let cleaning = std::mem::replace(&mut *self.cleaning.lock(), Cleaning::Ended);
        drop(cleaning);
        let shared = &self.shared;
        let _maintenance = shared.maintenance.lock();
        // What was never begun has nothing to save; what failed has to be found by its appends.
        if !shared.must_begin()
            && let Err(error) = shared.checkpoint()
        {
            tracing::warn!(%error, "the page map could not be written at the end; opening will follow the appends instead");
        }
    }

    fn check(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        self.shared.check_table(found);
        Ok(())
    }

    fn inspect_segment(&self, segment: u32) -> Result<Option<SegmentInspection>> {
        self.shared.inspect(segment).map(Some)
    }

    fn stats(&self) -> StoreStats {
        let counts = self.counts();
        StoreStats {
            pages_loaded: counts.pages_loaded,
            pages_stored: counts.pages_stored,
            batches: counts.appends,
            capacity_bytes: self.shared.device.capacity_bytes(),
            log_structured: Some(counts),
            ..StoreStats::default()
        }
    }
}

impl LogStructuredStore {
    fn counts(&self) -> LogStructuredStats {
        let mut counts = self.shared.counters.read();
        let table = self.shared.table.read();
        let block = super::layout::BLOCK_BYTES as u64;
        counts.segments = table.segments.count().into();
        counts.free_segments = table.segments.free().into();
        counts.empty_segments = table.segments.empty().into();
        for (_, segment) in table.segments.iter() {
            counts.live_bytes += u64::from(segment.live_blocks()) * block;
            match segment.state() {
                State::Open => counts.open_segments += 1,
                State::Closed => {
                    counts.dead_bytes += u64::from(self.shared.layout.segment_blocks() - segment.live_blocks()) * block;
                }
                State::Free | State::Discarding => {}
            }
            counts.stuck_segments += u64::from(segment.is_stuck);
        }
        counts
    }
}
