//! The in-place page store: page `n` lies at byte `n * page_size` of the data file, always.
//!
//! Writing a page over its predecessor can leave neither when the power fails. Which of three ways prevents that is the
//! store's [`Protection`]; only the double write is this store's own work.

pub mod double_write;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum_device::{Device, Durability, SharedFlushes};

use self::double_write::{Copies, DoubleWrite};
use super::{Load, PageBatch, PageStore, Protection, StoreStats, WritesUnderWay};
use crate::{Error, ErrorKind, PageId, Result, error, page::header, page_store::Counters};

/// The data file doubles until it grows by so much, ...
const SMALL_GROWTH_BYTES: u64 = 1 << 20;
/// ... and then grows by an eighth, up to so much.
const MAX_GROWTH_BYTES: u64 = 64 << 20;
/// Where the disk is nearly full, so much is a step too.
const LAST_GROWTH_BYTES: u64 = 64 << 10;

/// Pages in a file, each in its place.
#[derive(Debug)]
pub struct InPlaceStore {
    data: Arc<dyn Device>,
    page_size: usize,
    double_write: Option<DoubleWrite>,
    /// A write may hold only as many pages as the device writes at once.
    writes_runs: bool,
    /// Each page is made durable by its own write.
    writes_durably: bool,
    /// Pages up to this one were given back, or are there.
    was_beyond: AtomicU64,
    counters: Counters,
}

impl InPlaceStore {
    /// A store on `data` without a double-write area. `protection` says what prevents torn pages instead; that the
    /// device does is believed if it says so, or with `trust_device`.
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when the device tears pages, or the protection is the double write.
    pub fn new(data: Arc<dyn Device>, page_size: usize, protection: Protection, trust_device: bool) -> Result<Self> {
        let refuse = |what: String| Err(error::protection(data.name(), what));
        let atomic_bytes = data.capabilities().atomic_write_bytes as usize;
        match protection {
            Protection::FullPageImages => {}
            Protection::Device if trust_device || atomic_bytes >= page_size => {}
            Protection::Device => {
                return refuse(format!(
                    "the device writes {atomic_bytes} bytes atomically, a page has {page_size}; use double-write, or \
                     trust-device if you know better"
                ));
            }
            Protection::DoubleWrite => return refuse("a double-write area is needed".into()),
            Protection::Store => return refuse("this store writes over pages".into()),
        }
        let writes_runs = protection != Protection::Device;
        Ok(Self {
            data: SharedFlushes::of(data),
            page_size,
            double_write: None,
            writes_runs,
            writes_durably: false,
            was_beyond: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// A store on `data` that writes pages to `area` first. The area belongs to the database `database_id`, has so many slots
    /// and needs [`DoubleWrite::area_bytes`].
    ///
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) when the area is too small.
    pub fn with_double_write(
        data: Arc<dyn Device>,
        page_size: usize,
        area: Arc<dyn Device>,
        database_id: u128,
        slots: u32,
    ) -> Result<Self> {
        Ok(Self {
            data: SharedFlushes::of(data),
            page_size,
            double_write: Some(DoubleWrite::open(SharedFlushes::of(area), page_size, database_id, slots)?),
            writes_runs: true,
            writes_durably: false,
            was_beyond: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// The same store; with `durable`, each page is made durable by a write of its own instead of many by one flush.
    pub fn with_durable_writes(self, durable: bool) -> Self {
        Self { writes_runs: self.writes_runs && !durable, writes_durably: durable, ..self }
    }

    fn offset(&self, id: PageId) -> u64 {
        id.0.saturating_mul(self.page_size as u64)
    }

    /// Puts a batch in place, durably.
    fn write_in_place(&self, batch: &PageBatch) -> Result<()> {
        let durability = if self.writes_durably { Durability::Durable } else { Durability::Cached };
        let flush = SharedFlushes::announce(&*self.data);
        // All are waited for, also after an error: no write may be under way when the pages are written again.
        self.submit_runs(batch, self.writes_runs, durability).wait()?;
        match durability {
            Durability::Durable => Ok(()),
            _ => flush.wait(),
        }
    }

    /// Begins to write a batch, page by page or run by run.
    fn submit_runs(&self, batch: &PageBatch, writes_runs: bool, durability: Durability) -> WritesUnderWay {
        let mut writes = WritesUnderWay::default();
        let mut start = 0;
        for run in batch.ids().chunk_by(|a, b| writes_runs && a.0 + 1 == b.0) {
            let range = batch.range(start..start + run.len());
            start += run.len();
            writes.add(self.data.submit(self.offset(run[0]), Arc::clone(batch.buffer()), range, durability));
        }
        writes
    }

    /// How far the data file grows ahead of need.
    fn growth_bytes(&self) -> u64 {
        let now = self.data.capacity_bytes();
        (now / 8).max(now.min(SMALL_GROWTH_BYTES)).clamp(LAST_GROWTH_BYTES, MAX_GROWTH_BYTES)
    }

    /// Makes the data file larger by a step, or by smaller ones where the disk is nearly full.
    fn grow_by(&self, mut step: u64, grow: impl Fn(u64) -> Result<()>) -> Result<()> {
        let now = self.data.capacity_bytes();
        while let Err(source) = grow((now + step).next_multiple_of(self.page_size as u64)) {
            if source.kind() != ErrorKind::NoSpace || step == LAST_GROWTH_BYTES {
                return Err(error::disk_full(self.data.name(), source));
            }
            step = (step / 2).max(LAST_GROWTH_BYTES);
        }
        if self.data.capacity_bytes() > now {
            if let Some(area) = &self.double_write
                && let Err(error) = area.grow(self.data.capacity_bytes())
            {
                tantalum_rt::tracing::debug!(%error, "the double-write area did not grow with the data");
            }
            return Ok(());
        }
        let source = Error::unsupported(self.data.name(), "grow");
        Err(error::disk_full(self.data.name(), source))
    }

    fn store_guarded(&self, area: &DoubleWrite, batch: &PageBatch) -> Result<()> {
        let guard = loop {
            // First, since it may hold older versions of these pages.
            area.finish(|unfinished| self.write_in_place(unfinished))?;
            if let Some(guard) = area.guard(batch)? {
                break guard;
            }
        };
        self.counters.pages_double_written.fetch_add(batch.ids().len() as u64, Ordering::Relaxed);
        match self.write_in_place(batch) {
            Ok(()) => area.release(guard),
            Err(error) => {
                area.keep(guard, batch.clone());
                return Err(error);
            }
        }
        Ok(())
    }
}

/// What was read in the place of a page.
fn found(id: PageId, page: &[u8]) -> Load {
    match header::verify(page, id) {
        Ok(()) => Load::Page,
        Err(_) if is_zero(page) => Load::NeverWritten,
        Err(what) => Load::Damaged(what),
    }
}

fn is_zero(page: &[u8]) -> bool {
    let (parts, rest) = page.as_chunks::<64>();
    parts.iter().all(|part| *part == [0; 64]) && rest.iter().all(|byte| *byte == 0)
}

impl PageStore for InPlaceStore {
    fn name(&self) -> &str {
        self.data.name()
    }

    fn page_size(&self) -> usize {
        self.page_size
    }

    fn capacity_pages(&self) -> u64 {
        self.data.capacity_bytes() / self.page_size as u64
    }

    fn load(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        if id.0 >= self.capacity_pages() {
            // A task that looks for a page by an old name finds a free one.
            if id.0 < self.was_beyond.load(Ordering::Relaxed) {
                return Ok(Load::NeverWritten);
            }
            return Ok(Load::Damaged(format!(
                "it lies beyond the end of the file, which has {} pages; perhaps the file was truncated",
                self.capacity_pages()
            )));
        }
        self.data.read(self.offset(id), page)?;
        self.counters.pages_loaded.fetch_add(1, Ordering::Relaxed);
        Ok(found(id, page))
    }

    fn load_run(&self, first: PageId, pages: &mut [u8]) -> Result<Vec<Load>> {
        self.data.read(self.offset(first), pages)?;
        let pages = pages.chunks_exact(self.page_size);
        self.counters.pages_loaded.fetch_add(pages.len() as u64, Ordering::Relaxed);
        Ok((first.0..).zip(pages).map(|(id, page)| found(PageId(id), page)).collect())
    }

    fn load_many(&self, pages: &mut [(PageId, &mut [u8])]) -> Result<Vec<Load>> {
        let capacity = self.capacity_pages();
        if pages.iter().any(|(id, _)| id.0 >= capacity) {
            return pages.iter_mut().map(|(id, page)| self.load(*id, page)).collect();
        }
        let mut reads: Vec<_> = pages.iter_mut().map(|(id, page)| (self.offset(*id), &mut **page)).collect();
        self.data.read_many(&mut reads)?;
        self.counters.pages_loaded.fetch_add(pages.len() as u64, Ordering::Relaxed);
        Ok(pages.iter().map(|(id, page)| found(*id, page)).collect())
    }

    fn store(&self, batch: &PageBatch) -> Result<()> {
        match &self.double_write {
            Some(area) if !batch.may_tear() => self.store_guarded(area, batch)?,
            // No copy of theirs is in the area, so none can be put in the place of what is stored now.
            Some(_) => self.write_in_place(batch)?,
            None => self.write_in_place(batch)?,
        }
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.pages_stored.fetch_add(batch.ids().len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn grow(&self) -> Result<()> {
        self.grow_by(self.growth_bytes(), |capacity| self.data.grow(capacity))
    }

    fn grow_to_fill(&self, bytes: u64) -> Result<()> {
        let step = bytes.min(MAX_GROWTH_BYTES).max(self.growth_bytes());
        self.grow_by(step, |capacity| self.data.reserve(capacity))
    }

    fn write_unnamed(&self, batch: &PageBatch) -> Result<WritesUnderWay> {
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.pages_stored.fetch_add(batch.ids().len() as u64, Ordering::Relaxed);
        // No copy of theirs is in the double-write area, and they may be torn.
        Ok(self.submit_runs(batch, true, Durability::Cached))
    }

    fn flush(&self) -> Result<()> {
        self.data.flush()
    }

    fn gives_space_back(&self) -> Result<()> {
        Ok(())
    }

    fn shrink(&self, pages: u64) -> Result<u64> {
        let bytes = pages * self.page_size as u64;
        self.was_beyond.fetch_max(self.capacity_pages(), Ordering::Relaxed);
        self.data.shrink(bytes)?;
        self.double_write.as_ref().map_or(Ok(()), |area| area.shrink(bytes))?;
        Ok(0)
    }

    fn recover(&self) -> Result<u64> {
        let Some(area) = &self.double_write else { return Ok(0) };
        // Only the newest copy of a page is the page as it was stored last.
        let copies = area.read()?;
        let mut newest = BTreeMap::new();
        copies.iter().flat_map(Copies::pages).for_each(|(id, copy)| _ = newest.entry(id).or_insert(copy));
        let mut mended = 0;
        let mut torn = PageBatch::new(self.page_size);
        let mut page = tantalum_device::AlignedBuffer::zeroed(self.page_size);
        let mut newest = newest.into_iter().filter(|(id, _)| id.0 < self.capacity_pages()).peekable();
        while newest.peek().is_some() {
            torn.clear();
            for (id, copy) in newest.by_ref() {
                if matches!(self.load(id, &mut page)?, Load::Damaged(_)) {
                    tantalum_rt::tracing::warn!(
                        page = id.0,
                        file = self.name(),
                        "a torn page is put back from the double-write area"
                    );
                    torn.push(id, copy);
                }
                if torn.is_full() {
                    break;
                }
            }
            torn.seal();
            if !torn.ids().is_empty() {
                self.write_in_place(&torn)?;
                mended += torn.ids().len() as u64;
            }
        }
        Ok(mended)
    }

    fn sessions(&self) -> Result<Vec<(String, u64)>> {
        let Some(area) = &self.double_write else { return Ok(Vec::new()) };
        Ok(area.session()?.map(|session| (area.name().to_owned(), session)).into_iter().collect())
    }

    fn stamp(&self, session: u64) -> Result<()> {
        let Some(area) = &self.double_write else { return Ok(()) };
        // A page that was found whole may still be in a cache, and its copy in the area is given up now.
        self.data.flush()?;
        area.stamp(session)
    }

    fn stats(&self) -> StoreStats {
        StoreStats { capacity_bytes: self.data.capacity_bytes(), ..self.counters.read() }
    }
}
