//! The log-structured page store (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System").
//!
//! Pages are appended to segments in large writes, never written over, and so need no other protection against torn writes.
//! A map says where each is. Segments of which little is still live are cleaned: what is live moves on, and when a checkpoint
//! of the map that knows so is durable, the segment can be written again.
//!
//! Invariants:
//! - what is acknowledged is in the newest durable checkpoint of the map, or in an append behind it that recovery finds by
//!   following its stream
//! - a segment is written again only when a durable checkpoint, and so no append behind it either, leaves nothing in it
//! - a page that cleaning moved replaces only the very copy that was read, now and when recovery repeats it
//! - of a stream, one append is under way at a time
//! - of a device with zones, one is reset when its segment is free, and finished when a stream leaves it: so few are partly written
//!
//! Parts:
//! - [`SegmentIo`]: the device, cut into segments ([`layout`]), and what stands there: [`root`], [`map`] blocks, a [`summary`] before
//!   each append
//! - [`Table`], the state in memory: the [`map`], the [`segments`], the [`streams`] that appends go to; [`free_space`] is computed from it
//! - what is stored of a page, which may be compressed ([`compression`])
//! - [`BatchQueue`] and appends ([`append`]), [`Maintenance`] with its checkpoints, the [`cleaner`], [`compaction`], and [`recovery`]
//!
//! Locks, in this order: the queue of batches (not held while a task writes them); maintenance, held by the task that checkpoints,
//! cleans, compacts, or begins the streams; the turn to append, where there is one stream; the table, never held while a device works. Under those of [`SpaceSignal`] and of
//! [`SegmentIo`], which reads share, no other is taken.

mod append;
mod cleaner;
mod compaction;
#[cfg(test)]
mod compaction_tests;
mod compression;
mod free_space;
pub mod layout;
mod lifetimes;
mod maintenance;
pub mod map;
mod nilfs2;
mod recovery;
pub mod root;
mod segment_counters;
mod segment_inspection;
mod segment_io;
mod segments;
mod streams;
pub mod summary;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod zone_tests;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Condvar, Mutex, RwLock, Unparker};

use append::BatchQueue;
use cleaner::CleanerTask;
pub use compression::PageCompression;
use layout::{Extent, Layout, UNIT_BYTES};
use maintenance::{Maintenance, RootState};
pub use nilfs2::MetadataWrites;
use root::{FIRST_STREAMS, Root};
use segment_counters::Counters;
pub use segment_counters::LogStructuredStats;
use segment_io::SegmentIo;
use segments::State;
pub use streams::PageStreams;
use table::Table;

use crate::{
    Error, ErrorKind, Load, PackProgress, PageBatch, PageId, PageStore, Result, SegmentInspection, SegmentSizes,
    StoreOptions, StoreStats, Superblock, error, page::header,
};

/// Pages in segments.
#[derive(Debug)]
pub struct LogStructuredStore {
    shared: Arc<Shared>,
    cleaning: Mutex<Cleaning>,
}

/// The cleaner in the background.
#[derive(Debug)]
enum Cleaning {
    /// None, until something is stored.
    NotYet,
    By(#[expect(dead_code, reason = "the task ends when this is dropped")] CleanerTask),
    /// None any more: the store is closed and takes no pages.
    Ended,
}

/// What the store's tasks share.
#[derive(Debug)]
struct Shared {
    io: SegmentIo,
    metadata_writes: MetadataWrites,
    compression: PageCompression,
    page_streams: PageStreams,
    table: RwLock<Table>,
    batches: BatchQueue,
    /// See [`turn_to_append`](Self::turn_to_append).
    turn: Mutex<()>,
    /// Held through a [`Maintenance`].
    maintenance: Mutex<RootState>,
    /// The streams must begin anew before anything is appended: at first, and after an append that failed.
    must_begin: AtomicBool,
    space: SpaceSignal,
}

impl Shared {
    fn must_begin(&self) -> bool {
        self.must_begin.load(Ordering::Acquire)
    }

    /// The streams of pages that there should be, and the free segments that those beyond the first leave.
    fn page_streams(&self, table: &Table) -> (usize, u32) {
        let (layout, count) = (self.io.layout, table.segments.count());
        // What is packed is to take little space.
        let has_more = self.page_streams == PageStreams::ByLifetime && !table.segments.opens_first();
        let streams = if has_more { layout.page_streams(count) } else { FIRST_STREAMS };
        (streams, layout.cleaning_reserve(count))
    }
}

/// How the tasks that wait for free space and the cleaner, which makes it, wake each other.
#[derive(Debug, Default)]
struct SpaceSignal {
    /// Signalled under `waiting` when segments have become free, or will not.
    freed: Condvar,
    waiting: Mutex<()>,
    cleaner: OnceLock<Unparker>,
}

impl SpaceSignal {
    /// Lets the cleaner look whether there is something to do.
    fn wake_cleaner(&self) {
        if let Some(cleaner) = self.cleaner.get() {
            cleaner.unpark();
        }
    }

    /// Wakes the tasks that wait for a free segment.
    fn announce(&self) {
        let _waiting = self.waiting.lock();
        self.freed.notify_all();
    }

    fn wait(&self, timeout: Duration) {
        self.freed.wait_for(&mut self.waiting.lock(), timeout);
    }
}

impl LogStructuredStore {
    /// A store on a device; nothing is read before it is recovered.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when the device cannot be cut so.
    pub fn new(
        device: Arc<dyn Device>,
        page_bytes: usize,
        sizes: SegmentSizes,
        database: u128,
        options: StoreOptions,
    ) -> Result<Self> {
        let layout = Self::layout(&*device, page_bytes, sizes)?;
        let io = SegmentIo::new(device, layout, database, options.discards);
        let shared = Shared {
            table: RwLock::new(Table::new(layout, io.segments())),
            io,
            metadata_writes: options.metadata_writes,
            compression: options.compression,
            page_streams: options.page_streams,
            batches: BatchQueue::default(),
            turn: Mutex::default(),
            maintenance: Mutex::default(),
            must_begin: AtomicBool::new(true),
            space: SpaceSignal::default(),
        };
        Ok(Self { shared: Arc::new(shared), cleaning: Mutex::new(Cleaning::NotYet) })
    }

    /// Makes a device that of an empty store, over what a creation that did not end may have left. Where the superblock will be
    /// is left alone.
    ///
    /// # Errors
    /// When the device cannot be cut so, or cannot write.
    pub fn format(device: &dyn Device, page_bytes: usize, sizes: SegmentSizes, database: u128) -> Result<()> {
        let layout = Self::layout(device, page_bytes, sizes)?;
        let blank = AlignedBuffer::zeroed(layout.slot_at(0) as usize - Superblock::BYTES);
        device.write(Superblock::BYTES as u64, &[&blank], Durability::Durable)?;
        // None is whole; whichever comes first.
        Root::empty().write(device, layout, database, &mut 0)
    }

    fn layout(device: &dyn Device, page_bytes: usize, sizes: SegmentSizes) -> Result<Layout> {
        Layout::new(device, page_bytes, sizes)
            .map_err(|what| error::option(format!("page_store: {}: {what}", device.name())))
    }
}

/// Segments by which a file grows at least, and at most.
const GROWTH_SEGMENTS: (u32, u32) = (16, 512);

impl PageStore for LogStructuredStore {
    fn name(&self) -> &str {
        self.shared.io.device.name()
    }

    fn page_size(&self) -> usize {
        self.shared.io.layout.page_bytes()
    }

    fn capacity_pages(&self) -> u64 {
        self.shared.io.capacity_pages()
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
                Cleaning::Ended => return Err(error::closed()),
            }
        }
        self.shared.store_batch(batch)
    }

    fn grow(&self) -> Result<()> {
        let io = &self.shared.io;
        let (device, layout, before) = (&io.device, io.layout, io.segments());
        let file = device.name().to_owned();
        // Until there is room for another page: what the map and cleaning need grows too.
        let mut segments = before + (before / 8).clamp(GROWTH_SEGMENTS.0, GROWTH_SEGMENTS.1);
        while layout.capacity_pages(segments) <= layout.capacity_pages(before) && segments < 2 * before {
            segments += GROWTH_SEGMENTS.0;
        }
        if layout.capacity_pages(segments) <= layout.capacity_pages(before) {
            return Err(io.full());
        }
        while let Err(source) = device.grow(layout.device_bytes(segments)) {
            // Where the disk is nearly full, a few segments are a step too, if pages have room in them.
            let fewer = before + (segments - before) / 2;
            if source.kind() != ErrorKind::NoSpace || layout.capacity_pages(fewer) <= layout.capacity_pages(before) {
                return Err(error::disk_full(&file, source));
            }
            segments = fewer;
        }
        let after = io.segments();
        if after == before {
            let source = Error::unsupported(file.as_str(), "grow");
            return Err(error::disk_full(file, source));
        }
        let mut table = self.shared.table.write();
        table.segments.grow(after);
        table.forget_exhausted();
        if table.streams.pages.len() > self.shared.page_streams(&table).0 {
            // A root with so many streams has no place for the map of so many pages.
            self.shared.must_begin.store(true, Ordering::Release);
        }
        drop(table);
        self.shared.space.announce();
        Ok(())
    }

    fn gives_space_back(&self) -> Result<()> {
        Ok(())
    }

    fn shrink(&self, pages: u64) -> Result<u64> {
        self.shared.shrink(pages)
    }

    fn pack(&self, pages: u64, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        self.shared.pack(pages, go_on)
    }

    fn recover(&self) -> Result<u64> {
        let (table, root) = recovery::recover(&self.shared.io)?;
        *self.shared.maintenance.lock() = root;
        *self.shared.table.write() = table;
        Ok(0)
    }

    fn close(&self) {
        let cleaning = std::mem::replace(&mut *self.cleaning.lock(), Cleaning::Ended);
        drop(cleaning);
        let mut maintenance = Maintenance::begin(&self.shared);
        // What was never begun has nothing to save; what failed has to be found by its appends.
        if !self.shared.must_begin()
            && let Err(error) = maintenance.checkpoint()
        {
            tantalum_rt::tracing::warn!(%error, "the page map could not be written at the end; opening will follow the appends instead");
        }
    }

    fn check(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        self.shared.check(found);
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
            capacity_bytes: self.shared.io.device.capacity_bytes(),
            log_structured: Some(counts),
            ..StoreStats::default()
        }
    }
}

impl LogStructuredStore {
    fn counts(&self) -> LogStructuredStats {
        let mut counts = self.shared.io.counters.read();
        let table = self.shared.table.read();
        let (unit, segment_units) = (UNIT_BYTES as u64, self.shared.io.layout.segment_units());
        counts.segments = table.segments.count().into();
        counts.free_segments = table.segments.free().into();
        counts.page_streams = match self.shared.page_streams {
            PageStreams::One => table.streams.durable.min(1),
            PageStreams::Two | PageStreams::ByLifetime => table.streams.durable,
        } as u64;
        counts.empty_segments = table.segments.empty().into();
        for (_, segment) in table.segments.iter() {
            counts.live_bytes += u64::from(segment.live_units()) * unit;
            match segment.state() {
                State::Open => counts.open_segments += 1,
                State::Closed => counts.dead_bytes += u64::from(segment_units - segment.live_units()) * unit,
                State::Free | State::Discarding => {}
            }
            counts.stuck_segments += u64::from(segment.is_stuck);
        }
        counts
    }
}

/// Pages that are stored one behind the other.
struct Run {
    extents: Vec<Extent>,
    generation: u64,
}

/// Reads pages. They may move meanwhile: then it looks again.
impl Shared {
    /// Reads a page.
    ///
    /// # Errors
    /// When the device cannot read.
    fn load_page(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        let capacity = self.io.capacity_pages();
        if id.0 >= capacity {
            // A task that looks for a page by an old name finds a free one.
            if self.io.had_room_for(id) {
                page.fill(0);
                return Ok(Load::NeverWritten);
            }
            return Ok(Load::Damaged(format!(
                "it lies beyond the end of the store, which has room for {capacity} pages; perhaps the file was truncated"
            )));
        }
        loop {
            let found = self.table.read().find(id);
            let Some((extent, generation)) = found else {
                page.fill(0);
                return Ok(Load::NeverWritten);
            };
            let read = self.io.read_page(extent, page);
            // Else the page has moved, and something else may have been written there.
            if self.table.read().generation(extent) == generation {
                let is_page = read?.and_then(|bytes| {
                    self.count_loads(1, bytes);
                    header::verify(page, id)
                });
                return Ok(is_page.map_or_else(Load::Damaged, |()| Load::Page));
            }
        }
    }

    /// Reads pages that follow each other; those that lie so, too, at once.
    ///
    /// # Errors
    /// When the device cannot read one of them.
    fn load_pages(&self, first: PageId, pages: &mut [u8]) -> Result<Vec<Load>> {
        let page_bytes = self.io.layout.page_bytes();
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
        let (first, generation) = table.find(id)?;
        let mut end = first.offset();
        let next = |page: u64| {
            // Never beyond an append's end: each begins with a summary.
            let found = table.map.get(PageId(id.0 + page)).filter(|extent| extent.offset() == end)?;
            end = found.end();
            Some(found)
        };
        Some(Run { extents: (0..count as u64).map_while(next).collect(), generation })
    }

    /// `None` if something else may have been written there meanwhile.
    fn read_run(&self, run: Run, first: PageId, pages: &mut [u8]) -> Result<Option<Vec<Load>>> {
        let (page_bytes, extents) = (self.io.layout.page_bytes(), run.extents);
        let (start, end) = (extents[0].offset(), extents[extents.len() - 1].end());
        let pages = &mut pages[..extents.len() * page_bytes];
        let (bytes, made) = if (end - start) as usize == pages.len() {
            self.io.read(start, pages)?;
            (end - start, vec![Ok(()); extents.len()])
        } else {
            let images = self.io.read_images(start..end)?;
            let pages = extents.iter().zip(pages.chunks_exact_mut(page_bytes));
            let made = pages.map(|(extent, page)| compression::page_of(images.of(*extent), page)).collect();
            (images.bytes.len() as u64, made)
        };
        if self.table.read().generation(extents[0]) != run.generation {
            return Ok(None);
        }
        self.count_loads(extents.len(), bytes);
        let pages = (first.0..).zip(pages.chunks_exact(page_bytes));
        let found = |(made, (id, page)): (std::result::Result<(), String>, (u64, &[u8]))| {
            made.and_then(|()| header::verify(page, PageId(id))).map_or_else(Load::Damaged, |()| Load::Page)
        };
        Ok(Some(made.into_iter().zip(pages).map(found).collect()))
    }

    fn count_loads(&self, pages: usize, bytes: u64) {
        Counters::add(&self.io.counters.pages_loaded, pages as u64);
        Counters::add(&self.io.counters.bytes_loaded, bytes);
    }
}
