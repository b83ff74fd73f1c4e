//! The buffer pool: its options and statistics, what its parts share, and its handle. [`pinning`](super::pinning) finds pages,
//! and reads those that are not in memory.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tantalum_device::{AlignedBuffer, ask_for_huge_pages};
use tantalum_log::{Log, Lsn, SpaceRequest};
use tantalum_rt::{Condvar, Mutex, RwLock, SharedRun, may_wait};
use tantalum_store::{Observer, PageBatch, PageId, PageObserver, PageStore, Protection};

use super::{
    CommitStatusLog,
    change_sink::ChangeSink,
    cleaner::PageCleaning,
    dirty_frames::DirtyFrames,
    frame::Frame,
    free_list::FreeList,
    hints::{Counter, Hints},
    page_table::PageTable,
    pending_redo::PendingRedo,
    pin_budget::PinBudget,
    poison::Poison,
    read_ahead::ReadAhead,
    redo_log::RedoLog,
    redo_point::RedoPoint,
};
use crate::{error::Result, limits::GroupLimit};

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
    /// What the log has and stored pages may lack.
    pub pending: PendingRedo,
    /// Whether reading ahead pays.
    pub ahead: ReadAhead,
    pub hints: Hints,
    pub frames: Box<[Frame]>,
    pub dirty_frames: Arc<DirtyFrames>,
    /// Memory that was taken for frames and has none yet.
    pub memory: Mutex<Vec<AlignedBuffer>>,
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
    /// Hears of changed and written pages.
    pub observer: OnceLock<Observer>,
    pub counters: Counters,
    /// Counted by nearly every commit: what all readers ask must not be on the same cache line.
    pub patched_rows: Counter,
}

tantalum_rt::statistics! {
    /// Counters of a pool.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct PoolStats {
        counted by Counters {
            /// Pages that were wanted and not in memory.
            misses,
            /// Pages that were read because of that; others are new.
            fault_reads,
            /// Those of them that had to wait until another page was written to make room ("Durable Write Cache in Flash Memory
            /// SSD", section 2, Figure 1).
            blocked_reads,
            /// Pages that were read at the same time as others, before a task came to need them.
            read_ahead,
            /// Those of them that were evicted before a task came to need them. Few, since then less is read ahead.
            read_in_vain,
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
            /// Replaced rows of which the log, or the store that keeps changes, got only the bytes that differ.
            patched_rows: u64,
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
        let dirty_frames = Arc::new(DirtyFrames::new(frames));
        let mut vacant = Vec::with_capacity(frames);
        ask_for_huge_pages(vacant.spare_capacity_mut());
        vacant.extend((0..frames).map(|index| Frame::vacant(index, &dirty_frames)));
        let shared = Shared {
            log: OnceLock::new(),
            sink,
            protection: options.protection,
            page_size,
            table: PageTable::new(),
            pending: PendingRedo::default(),
            ahead: ReadAhead::default(),
            hints: Hints::new(frames),
            frames: vacant.into(),
            dirty_frames,
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
            patched_rows: Counter::default(),
            store,
        };
        Self { shared: Arc::new(shared) }
    }

    /// An LSN before the point where redo would start, and that no page bears which a record has changed.
    pub fn lsn_before_redo(&self) -> Lsn {
        Lsn::new(self.shared.redo_point.read().lsn.get().saturating_sub(1))
    }

    /// Says that the log does not have every change of pages before this one, so that none of them is stored where it may tear.
    pub fn log_lacks_pages_before(&self, end: PageId) {
        self.shared.redo_point.write().lacks_pages_before(end);
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
        span!("flush");
        self.check_poison()?;
        self.shared.sink.flush(&self.shared, position)
    }

    /// As [`flush`](Self::flush), but the log is not waited for: the ticket tells when it has got so far.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn ticket(&self, position: Lsn) -> Result<tantalum_log::Ticket> {
        self.check_poison()?;
        self.log().ticket(self.shared.sink.force(&self.shared, position)?)
    }

    /// How much the changes of one group can be.
    pub fn group_limit(&self) -> GroupLimit {
        self.shared.sink.group_limit(&self.shared)
    }

    /// The log space that a group is given at once when it has waited for space, its page images included.
    pub fn space_limit(&self) -> GroupLimit {
        self.shared.sink.space_limit(&self.shared)
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
        span!("checkpoint");
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

    /// Waits until the log has `needed` bytes, which an append was refused, after all tasks that asked before; then
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

    /// What the pool has done so far.
    pub fn stats(&self) -> PoolStats {
        let shared = &*self.shared;
        let (change_bytes, change_bytes_peak) = shared.sink.memory_bytes();
        PoolStats {
            frames: shared.frames.len() as u64,
            free_frames: shared.free_list.free() as u64,
            memory_bytes: (shared.frames.len() * shared.page_size) as u64,
            dirty_pages: shared.dirty_frames.count(),
            reserve_frames: match shared.free_list.has_cleaners() {
                true => shared.free_list.reserve.frames() as u64,
                false => 0,
            },
            batches: shared.free_list.most_batches() as u64,
            batches_peak: shared.free_list.batches_peak() as u64,
            change_bytes,
            change_bytes_peak,
            hits: shared.table.hits() + shared.hints.hits(),
            patched_rows: shared.patched_rows.0.load(Ordering::Relaxed),
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
}
