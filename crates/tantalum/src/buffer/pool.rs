//! The buffer pool: pages by number, at the cost of a look-up when they are in memory.
//!
//! A hit takes the lock of one shard of the page table and counts one reference, or latches the page; nothing else is shared.
//! Where a hint says in which frame a question was answered ([`hints`](super::hints)), it takes the latch only. A miss
//! takes a clean frame, which the [`Cleaner`](super::Cleaner) keeps ready, and reads the page under the frame's exclusive latch,
//! so that other tasks that want the same page wait for it there.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tantalum_device::{AlignedBuffer, HUGE_PAGE_BYTES};
use tantalum_log::{Log, Lsn, SpaceRequest};
use tantalum_rt::{Condvar, Mutex, RwLock, SharedRun, may_wait};
use tantalum_store::{Load, Observer, PageBatch, PageId, PageObserver, PageStore, Protection, page::header};

use super::{
    CommitStatusLog,
    change_sink::ChangeSink,
    cleaner::PageCleaning,
    eviction::Taken,
    frame::{Content, Frame, FrameState, PageView, PinnedPage},
    free_list::FreeList,
    hints::Hints,
    page_table::PageTable,
    pin_budget::PinBudget,
    poison::Poison,
    redo_log::RedoLog,
    redo_point::RedoPoint,
    reservation::Reservation,
};
use crate::{
    error::{Error, Lack, Result},
    limits::GroupLimit,
};

/// Memory for frames is taken in pieces of so many bytes, a multiple of every page size.
const MEMORY_BYTES: usize = 256 << 10;
/// Pools of so many bytes and more take it in huge pages.
const HUGE_PAGES_FROM: usize = 16 << 20;

/// How large a pool is and what its pages need.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// The most pages in memory. Memory is taken when it is first needed. At least 16 are used.
    pub frames: usize,
    /// How torn pages are prevented; decides whether the log gets page images.
    pub protection: Protection,
    /// Whether dirty pages are written ahead of need or on demand.
    pub cleaning: PageCleaning,
    /// How many batches of pages are under way at a time, at most; the store may allow fewer.
    pub batches: usize,
}

/// A handle to the pool. Clones are handles to the same pool.
#[derive(Clone, Debug)]
pub struct BufferPool {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub store: Arc<dyn PageStore>,
    /// Absent during redo, when everything that is applied is durable already.
    pub log: OnceLock<Log>,
    /// Where the changes of groups go.
    pub sink: Arc<dyn ChangeSink>,
    pub protection: Protection,
    pub page_size: usize,
    pub table: PageTable,
    pub hints: Hints,
    pub frames: Box<[Frame]>,
    /// Memory that was taken for frames and has none yet.
    memory: Mutex<Vec<AlignedBuffer>>,
    /// Frames without a page, and the permits to write batches, which frees some.
    pub free_list: FreeList,
    /// The frames that commits may hold.
    pub pins: PinBudget,
    /// The most pages of a batch that makes room.
    pub batch_pages: usize,
    /// Where the clock stands that decides what is evicted.
    pub hand: AtomicUsize,
    /// Memory of batches that are not under way.
    pub spare_batches: Mutex<Vec<PageBatch>>,
    /// Tells that pages are no longer being stored.
    pub store_ended: (Mutex<()>, Condvar),
    /// Nothing is stored any more.
    pub stores_ended: AtomicBool,
    /// Asked by all readers, and written once at most: far from what often changes.
    pub poison: Poison,
    /// What redo would find after the checkpoint that runs, or ran last. Also the gate that keeps a checkpoint from
    /// beginning between the decision that a page needs no image and the append of its change.
    pub redo_point: RwLock<RedoPoint>,
    pub checkpoints: SharedRun<Result<Lsn>>,
    /// What is told of changed and written pages.
    pub observer: OnceLock<Observer>,
    pub counters: Counters,
}

tantalum_rt::statistics! {
    /// Counters of a pool.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
    pub struct PoolStats {
        counted by Counters {
            /// Pages that were wanted and not in memory.
            misses,
            /// Pages that were read because of that; others are new.
            fault_reads,
            /// Those of them that had to wait until another page was written to make room ("Durable Write Cache in Flash Memory
            /// SSD", section 2, Figure 1).
            blocked_reads,
            /// Pages dropped from memory to make room.
            evictions,
            /// Batches of pages that could not be written; they are written again later.
            failed_write_backs,
            /// Page images written to the log.
            page_images,
        }
        total {
            /// Pages that were wanted and in memory.
            hits: u64,
            /// How often commits, and drops of tables, had to wait because others held too many frames: if often, the pool is
            /// too small.
            pin_waits: u64,
        }
        now {
            /// Frames, used or not.
            frames: u64,
            /// Frames that hold no page.
            free_frames: u64,
            /// Memory for all frames.
            memory_bytes: u64,
            /// Pages that differ from the stored ones.
            dirty_pages: u64,
            /// Free frames that the cleaner aims at, as the device and the load need them; 0 without a cleaner.
            reserve_frames: u64,
            /// Batches of pages that may be on their way to the store at a time.
            batches: u64,
            /// The most that were.
            batches_peak: u64,
            /// Memory for changes that are not stored, where the store keeps them: the in-memory log sectors.
            change_bytes: u64,
            /// The most that this was.
            change_bytes_peak: u64,
        }
    }
}

/// Where a page comes from that is not in memory.
#[derive(Clone, Copy)]
enum Source {
    /// The store, which must have it.
    Store,
    /// Nowhere: it is about to be formatted.
    Nothing,
    /// The store; if it was never written it is blank, and if `rebuilt`, also if it is damaged.
    StoreOrBlank { rebuilt: bool },
}

impl BufferPool {
    /// A pool without pages, for redo. Before anything is changed, [`attach_log`](Self::attach_log) must be called.
    pub fn new(store: Arc<dyn PageStore>, options: &PoolOptions) -> Self {
        Self::with_sink(store, options, Arc::new(RedoLog))
    }

    /// A pool without pages on a store that keeps changes, before [`attach_log`](Self::attach_log) is called with the log of
    /// `statuses`.
    pub fn with_commit_status_log(
        store: Arc<dyn PageStore>,
        options: &PoolOptions,
        statuses: Arc<CommitStatusLog>,
    ) -> Self {
        Self::with_sink(store, options, statuses)
    }

    fn with_sink(store: Arc<dyn PageStore>, options: &PoolOptions, sink: Arc<dyn ChangeSink>) -> Self {
        let frames = options.frames.max(16);
        let page_size = store.page_size();
        let batches = options.batches.clamp(1, store.max_batches().max(1));
        let shared = Shared {
            log: OnceLock::new(),
            sink,
            protection: options.protection,
            page_size,
            table: PageTable::new(),
            hints: Hints::new(frames),
            frames: (0..frames).map(|_| Frame::vacant()).collect(),
            memory: Mutex::new(Vec::new()),
            free_list: FreeList::new(frames, batches),
            pins: PinBudget::new(frames, page_size),
            batch_pages: options.cleaning.batch_pages(frames, batches),
            hand: AtomicUsize::new(0),
            spare_batches: Mutex::default(),
            store_ended: Default::default(),
            stores_ended: AtomicBool::new(false),
            poison: Poison::default(),
            redo_point: RwLock::default(),
            checkpoints: SharedRun::default(),
            observer: OnceLock::new(),
            counters: Counters::default(),
            store,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Gives the pool its log, once, when redo is done.
    ///
    /// # Panics
    /// When it already has one.
    pub fn attach_log(&self, log: Log) {
        self.shared.redo_point.write().advance(&log, &*self.shared.store, self.shared.protection);
        assert!(self.shared.log.set(log).is_ok(), "a pool has one log");
    }

    /// Tells `observer` of pages that are changed and written from now on.
    ///
    /// # Panics
    /// When the pool has an observer already.
    pub fn observe(&self, observer: Arc<dyn PageObserver>) {
        assert!(self.shared.observer.set(Observer::new(observer)).is_ok(), "a pool has one observer");
    }

    /// The position of the last group, or as near to it as other tasks let it be known.
    ///
    /// # Panics
    /// During redo.
    pub fn end(&self) -> Lsn {
        self.shared.sink.end(&self.shared).expect("redo is done before positions are asked for")
    }

    /// Waits until all groups up to this position survive a power cut. No latch may be held.
    ///
    /// # Errors
    /// When the log is poisoned; where the store keeps the changes, also when it refuses them. When a panic has left memory and
    /// log apart, also if they survive: what was read of them may be wrong.
    pub fn flush(&self, position: Lsn) -> Result<()> {
        self.check_poison()?;
        self.shared.sink.flush(&self.shared, position)
    }

    /// As [`flush`](Self::flush), but the log is not waited for: the ticket tells when it has got so far.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn ticket(&self, position: Lsn) -> Result<tantalum_log::Ticket> {
        self.check_poison()?;
        Ok(self.log().ticket(self.shared.sink.force(&self.shared, position)?)?)
    }

    /// How much the changes of one group can be.
    pub fn group_limit(&self) -> GroupLimit {
        self.shared.sink.group_limit(&self.shared)
    }

    /// Stores everything that was logged before the call and frees the log up to there. Returns the LSN from which redo
    /// would start. Callers at the same time share a checkpoint. No latch may be held.
    ///
    /// # Errors
    /// When a page or the log's checkpoint cannot be written. Nothing is lost; the log stays longer.
    pub fn checkpoint(&self) -> Result<Lsn> {
        may_wait("a checkpoint");
        self.shared.checkpoints.run(|| self.run_checkpoint())
    }

    pub(super) fn run_checkpoint(&self) -> Result<Lsn> {
        self.check_poison()?;
        self.shared.sink.checkpoint(self)
    }

    /// Frees as much of the log as can be freed: a [`checkpoint`](Self::checkpoint), but it never waits for log space itself. No
    /// latch may be held.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn relieve_log(&self) -> Result<Lsn> {
        self.shared.sink.relieve_log(self)
    }

    /// Waits until the log has `needed` bytes, which were refused with [`Error::LogFull`], after all tasks that asked before; then
    /// try again with them. No latch may be held.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint): then there is no hope that the log gets room.
    pub fn wait_for_log_space(&self, needed: usize) -> Result<Option<SpaceRequest>> {
        may_wait("space in the log");
        self.shared.sink.wait_for_space(self, needed)
    }

    /// The frames that commits may hold together: a task that pins many pages one after the other asks for them.
    pub fn pins(&self) -> &PinBudget {
        &self.shared.pins
    }

    /// The log that pages are changed through.
    ///
    /// # Panics
    /// During redo.
    pub fn log(&self) -> &Log {
        self.shared.log()
    }

    /// The store below.
    pub fn store(&self) -> &Arc<dyn PageStore> {
        &self.shared.store
    }

    /// The most pages in memory.
    pub fn frames(&self) -> usize {
        self.shared.frames.len()
    }

    /// The size of a page in bytes.
    pub fn page_size(&self) -> usize {
        self.shared.page_size
    }

    /// Keeps a page in memory, reading it if it is not there.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the page is damaged or was never written, [`Error::PoolExhausted`], and what the device
    /// reports.
    pub fn pin(&self, id: PageId) -> Result<PinnedPage> {
        self.shared.pin(id, Source::Store)
    }

    /// Latches a page for reading, which keeps it in memory; reads it if it is not there. Waits while another task writes or
    /// waits to write.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn read(&self, id: PageId) -> Result<PageView<'_>> {
        let shared = &*self.shared;
        loop {
            // Pinned until it is latched, if it was loaded for this.
            let (index, _pin) = match shared.table.find(id) {
                Some(index) => (index, None),
                None => match shared.load_into(shared.take_frame()?, id, Source::Store)? {
                    Some((index, pin)) => (index, Some(pin)),
                    None => continue,
                },
            };
            let frame = &shared.frames[index];
            let content = frame.latch.read();
            // Meanwhile it may have been evicted, or the task that was reading it may have failed.
            if content.is_present() && content.id == id {
                frame.touch();
                return Ok(PageView::new(frame, index as u32, content));
            }
            shared.check_poison()?;
        }
    }

    /// As [`read`](Self::read), but `None` instead of waiting for the store: for a task that has latched other pages.
    pub fn read_in_memory(&self, id: PageId) -> Option<PageView<'_>> {
        let shared = &*self.shared;
        let mut index = shared.table.find(id)?;
        let content = match shared.frames[index].latch.try_read() {
            Some(content) => content,
            // A task that changes the page has the latch, or one that reads it from the store. While it is pinned, only the first.
            None => {
                let (pinned, _pin) = shared.pin_in_memory(id)?;
                index = pinned;
                shared.frames[index].latch.read()
            }
        };
        let is_it = content.is_present() && content.id == id;
        is_it.then(|| {
            let frame = &shared.frames[index];
            frame.touch();
            PageView::new(frame, index as u32, content)
        })
    }

    /// As [`pin`](Self::pin), but `None` instead of waiting for the store.
    pub fn pin_in_memory(&self, id: PageId) -> Option<PinnedPage> {
        self.shared.pin_in_memory(id).map(|(_, page)| page)
    }

    /// Latches a pinned page for reading.
    pub fn latch(&self, page: &PinnedPage) -> PageView<'_> {
        let frame = &self.shared.frames[page.frame as usize];
        PageView::new(frame, page.frame, frame.latch.read())
    }

    /// Waits until no task has the page latched, or is reading it. No latch may be held.
    pub(super) fn wait_for_latch(&self, id: PageId) {
        may_wait("a latch out of order");
        if let Some((_, page)) = self.shared.table.pin(id, &self.shared.frames) {
            drop(page.latch.write());
        }
    }

    /// As [`pin`](Self::pin), for a page that was just allocated: it is not read, and stands for nothing until its first change,
    /// which must be a format. Waits for no frame; one of the reservation's is taken if it has some.
    ///
    /// # Errors
    /// [`Error::Lacking`] without a frame; [`Error::Busy`] while another task reads the page, as it was before.
    pub(super) fn pin_new(&self, id: PageId, reservation: Option<&Reservation>) -> Result<PinnedPage> {
        let shared = &*self.shared;
        loop {
            if let Some(page) = self.pin_in_memory(id) {
                return Ok(page);
            }
            if shared.table.find(id).is_some() {
                return Err(Error::Busy { page: id });
            }
            let reserved = reservation.and_then(Reservation::take_frame);
            let Some(frame) = reserved.or_else(|| shared.take_frame_at_hand()) else {
                return Err(Error::Lacking { lack: Lack::Frames(1) });
            };
            if let Some((_, page)) = shared.load_into(Taken { frame, has_waited: false }, id, Source::Nothing)? {
                return Ok(page);
            }
        }
    }

    /// As [`pin`](Self::pin), but a page that was never written is blank: of kind
    /// [`Free`](tantalum_store::PageKind::Free).
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn pin_or_blank(&self, id: PageId) -> Result<PinnedPage> {
        self.shared.pin(id, Source::StoreOrBlank { rebuilt: false })
    }

    /// As [`pin_or_blank`](Self::pin_or_blank), for a page that redo is about to rebuild: it may be damaged too, and is
    /// then blank.
    ///
    /// # Errors
    /// As [`pin`](Self::pin), but no damage.
    pub fn pin_to_rebuild(&self, id: PageId) -> Result<PinnedPage> {
        self.shared.pin(id, Source::StoreOrBlank { rebuilt: true })
    }

    /// Drops a clean page from memory. False if a task uses it, or it is dirty; true if it is not in memory.
    pub fn discard_clean(&self, id: PageId) -> bool {
        let shared = &*self.shared;
        let Some(index) = shared.table.find(id) else { return true };
        let is_gone = shared.table.remove_if(id, index, || shared.frames[index].vacate());
        if is_gone {
            shared.free_list.give([index]);
        }
        is_gone
    }

    /// What the pool has done so far.
    pub fn stats(&self) -> PoolStats {
        let shared = &*self.shared;
        let (change_bytes, change_bytes_peak) = shared.sink.memory_bytes();
        PoolStats {
            frames: shared.frames.len() as u64,
            free_frames: shared.free_list.free() as u64,
            memory_bytes: (shared.frames.len() * shared.page_size) as u64,
            dirty_pages: shared.frames.iter().filter(|frame| frame.state.rec_lsn().is_some()).count() as u64,
            reserve_frames: match shared.free_list.has_cleaners() {
                true => shared.free_list.reserve.frames() as u64,
                false => 0,
            },
            batches: shared.free_list.most_batches() as u64,
            batches_peak: shared.free_list.batches_peak() as u64,
            change_bytes,
            change_bytes_peak,
            hits: shared.table.hits() + shared.hints.hits(),
            pin_waits: shared.pins.waits(),
            ..shared.counters.read()
        }
    }
}

impl Shared {
    /// The log that pages are changed through.
    ///
    /// # Panics
    /// During redo.
    pub fn log(&self) -> &Log {
        self.log.get().expect("redo is done and attached the log before anything else runs")
    }

    fn pin(&self, id: PageId, source: Source) -> Result<PinnedPage> {
        loop {
            let Some((frame, page)) = self.table.pin(id, &self.frames) else {
                match self.load_into(self.take_frame()?, id, source)? {
                    Some((_, page)) => return Ok(page),
                    None => continue,
                }
            };
            let state = &self.frames[frame].state;
            if holds(state, id) {
                self.frames[frame].touch();
                return Ok(page);
            }
            // Another task reads the page and holds the latch meanwhile. If its read fails, the frame may even get another
            // page before we see it.
            drop(page.latch.read());
            if holds(state, id) {
                return Ok(page);
            }
            self.check_poison()?;
        }
    }

    fn pin_in_memory(&self, id: PageId) -> Option<(usize, PinnedPage)> {
        let (index, page) = self.table.pin(id, &self.frames)?;
        let frame = &self.frames[index];
        holds(&frame.state, id).then(|| {
            frame.touch();
            (index, page)
        })
    }

    /// Brings a page into memory, into a frame that was taken and is returned. `None` when another task did so first.
    #[cold]
    fn load_into(&self, taken: Taken, id: PageId, source: Source) -> Result<Option<(usize, PinnedPage)>> {
        let Taken { frame: index, has_waited } = taken;
        let frame = &self.frames[index];
        // Held through an `Arc`, and so pinned. Only a task that waited for a failed load, or followed an old hint, can hold it,
        // for a moment.
        let mut content = frame.latch.write_arc();
        debug_assert!(frame.state.rec_lsn().is_none() && !content.is_present(), "a frame without a page is clean");
        frame.state.set_page(Some(id));
        content.id = id;
        if content.bytes.is_empty() {
            content.bytes = self.page_memory();
        }
        let guard = self.poison_unless_ended("a page was being read");
        if !self.table.insert(id, index) {
            guard.end();
            frame.state.set_page(None);
            drop(content);
            self.free_list.give([index]);
            return Ok(None);
        }
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        if !matches!(source, Source::Nothing) {
            self.counters.fault_reads.fetch_add(1, Ordering::Relaxed);
            self.counters.blocked_reads.fetch_add(u64::from(has_waited), Ordering::Relaxed);
        }
        let filled = self.fill(&mut content, source);
        guard.end();
        match filled {
            Ok(()) => {
                content.set_present(true);
                frame.touch();
                Ok(Some((index, PinnedPage { id, frame: index as u32, latch: Arc::clone(&frame.latch) })))
            }
            Err(error) => {
                self.table.remove_if(id, index, || true);
                frame.state.set_page(None);
                drop(content);
                self.free_list.give([index]);
                Err(error)
            }
        }
    }

    /// Memory for one more frame.
    fn page_memory(&self) -> AlignedBuffer {
        let mut memory = self.memory.lock();
        memory.pop().unwrap_or_else(|| {
            let is_large = self.frames.len() * self.page_size >= HUGE_PAGES_FROM;
            let bytes = if is_large { HUGE_PAGE_BYTES } else { MEMORY_BYTES };
            memory.extend(AlignedBuffer::zeroed(bytes).into_pieces(self.page_size));
            memory.pop().expect("a page is smaller than what is taken at once")
        })
    }

    fn fill(&self, content: &mut Content, source: Source) -> Result<()> {
        let id = content.id;
        let corrupt = |what: String| Error::Corrupt {
            file: self.store.name().into(),
            page: id,
            offset: id.0.saturating_mul(self.page_size as u64),
            what,
        };
        if matches!(source, Source::Nothing) {
            header::clear(&mut content.bytes, id);
            return Ok(());
        }
        may_wait("a page of the store");
        match (self.store.load(id, &mut content.bytes)?, source) {
            (Load::Page, _) => {}
            (Load::NeverWritten, Source::Store) => return Err(corrupt("it was never written".into())),
            (Load::Damaged(_), Source::StoreOrBlank { rebuilt: true }) | (Load::NeverWritten, _) => {
                header::clear(&mut content.bytes, id);
            }
            (Load::Damaged(what), _) => return Err(corrupt(what)),
        }
        match self.sink.end(self) {
            Some(end) if header::lsn(&content.bytes) > end => Err(corrupt(format!(
                "it was changed at LSN {}, beyond the end of the log, so the log is not the one that belongs to it",
                header::lsn(&content.bytes)
            ))),
            _ => Ok(()),
        }
    }
}

/// Whether a pinned frame holds the page `id`, ready for use.
fn holds(state: &FrameState, id: PageId) -> bool {
    state.is_loaded() && state.page() == Some(id)
}
