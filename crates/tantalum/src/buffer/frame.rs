//! A frame: a place in memory for a page, its latch, and what is known about it.
//!
//! A frame's latch is shared by reference count: the pool holds one reference, and every pin and every guard another.
//! The count is thus the pin count, and a page is evicted only when the pool's reference is the last one. It is evicted under
//! its exclusive latch, so a task that holds the latch ([`PageView`]) needs no pin.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;
use tantalum_rt::{ArcRwLockReadGuard, ArcRwLockWriteGuard, Held, Mutex, RwLock, RwLockReadGuard, write_arc_within};
use tantalum_store::{PageChanges, PageId, page::header};

use super::{commit_status_log::ChangeMemory, dirty_frames::DirtyFrames, latches};
use crate::error::{GroupResult, Lack};

/// How long a task waits for a latch out of the order of latches. Far longer than anything keeps one.
const LATCH_TIMEOUT: Duration = Duration::from_millis(10);

/// The number of no page: that of a frame without a page.
const NO_PAGE: u64 = u64::MAX;

/// A place in memory for a page.
#[derive(Debug)]
pub(super) struct Frame {
    pub latch: Arc<RwLock<Content>>,
    pub state: Arc<FrameState>,
    /// Where the page's bytes are, once the frame has memory: only for the processor to fetch them.
    pub bytes_at: AtomicPtr<u8>,
    /// A [`Use`].
    used: AtomicU8,
}

/// Whether a page is in use, as the clock sees it.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Use {
    /// It was not used since the hand passed.
    No,
    /// It was.
    SinceHand,
    /// It was read ahead, and not used yet.
    Ahead,
    /// The same, and the hand has passed since.
    AheadOfHand,
}

/// What the latch protects.
pub(super) struct Content {
    /// The page that `bytes` belong to, also when they could not be loaded.
    pub id: PageId,
    /// `bytes` are the page as it is now: it was loaded, and not evicted since. The state says the same to those without the latch;
    /// those that have it are spared the state's cache line.
    is_present: bool,
    /// Empty until the frame is first used.
    pub bytes: AlignedBuffer,
    pub state: Arc<FrameState>,
}

impl Content {
    pub fn is_present(&self) -> bool {
        self.is_present
    }

    pub fn set_present(&mut self, is_present: bool) {
        self.is_present = is_present;
        self.state.loaded.store(is_present, Ordering::Release);
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Content").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is known about a frame without its latch.
#[derive(Debug)]
pub(super) struct FrameState {
    page: AtomicU64,
    /// The page was loaded and may be used: as [`Content::is_present`], which it is set together with.
    loaded: AtomicBool,
    pub dirt: Mutex<Dirt>,
    /// The frame's place in the pool.
    index: usize,
    /// Those of the pool: this frame among them while `dirt` has a `rec_lsn`.
    dirty_frames: Arc<DirtyFrames>,
}

/// What eviction can do about a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Evict it.
    Clean,
    /// Store it first.
    Dirty,
    /// Wait: another stores it.
    BeingStored,
}

/// How the page in memory differs from the stored one.
#[derive(Debug, Default)]
pub(super) struct Dirt {
    /// No change that is not stored was logged before this. `None` when everything is stored.
    rec_lsn: Option<Lsn>,
    /// A task has begun to change the page since it was last copied to be stored.
    pub changed_since_copy: bool,
    /// A copy of the page is in a batch that is being stored: no other batch may have one, since nothing orders two writes of
    /// the same place.
    pub is_being_stored: bool,
    /// What was changed and is not stored, where the store keeps changes: the in-memory log sector.
    pub changes: PageChanges,
}

impl Frame {
    /// A frame without a page, and without memory for one, in this place of the pool.
    pub fn vacant(index: usize, dirty_frames: &Arc<DirtyFrames>) -> Self {
        let state = Arc::new(FrameState {
            page: AtomicU64::new(NO_PAGE),
            loaded: AtomicBool::new(false),
            dirt: Mutex::new(Dirt::default()),
            index,
            dirty_frames: Arc::clone(dirty_frames),
        });
        let content = Content {
            id: PageId(NO_PAGE),
            is_present: false,
            bytes: AlignedBuffer::zeroed(0),
            state: Arc::clone(&state),
        };
        Self {
            latch: Arc::new(RwLock::new(content)),
            state,
            bytes_at: AtomicPtr::default(),
            used: AtomicU8::new(Use::No as u8),
        }
    }

    /// Whether a task besides the pool holds on to the page. Certain only under the lock of the page's table shard, where
    /// new pins are made.
    pub fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.latch) > 1
    }

    /// Takes the page out of the frame if it is neither in use nor dirty. Called under the lock of the page's table shard.
    pub fn vacate(&self) -> bool {
        // A task that uses the page has pinned or latched it, and one that has latched it may pin it: so the latch comes first.
        let Some(mut content) = self.latch.try_write() else { return false };
        let is_free = !self.is_pinned() && self.state.rec_lsn().is_none();
        if is_free {
            content.set_present(false);
            self.state.set_page(None);
        }
        is_free
    }

    /// Notes that the page is in use. Reads first, so that a page used by all does not wander between caches.
    pub fn touch(&self) {
        if self.used.load(Ordering::Relaxed) != Use::SinceHand as u8 {
            self.used.store(Use::SinceHand as u8, Ordering::Relaxed);
        }
    }

    /// Notes that the page was read ahead: it stays as long as one in use, and [`is_unused`](Self::is_unused) until it is.
    pub fn note_read_ahead(&self) {
        self.used.store(Use::Ahead as u8, Ordering::Relaxed);
    }

    /// Whether the page was touched, or read ahead, since the last call.
    pub fn take_reference(&self) -> bool {
        [(Use::SinceHand, Use::No), (Use::Ahead, Use::AheadOfHand)].into_iter().any(|(before, after)| {
            self.used.load(Ordering::Relaxed) == before as u8
                && self.used.compare_exchange(before as u8, after as u8, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// Whether the page was read ahead and not touched since.
    pub fn is_unused(&self) -> bool {
        [Use::Ahead as u8, Use::AheadOfHand as u8].contains(&self.used.load(Ordering::Relaxed))
    }
}

impl FrameState {
    pub fn page(&self) -> Option<PageId> {
        Some(self.page.load(Ordering::Acquire)).filter(|id| *id != NO_PAGE).map(PageId)
    }

    pub fn set_page(&self, id: Option<PageId>) {
        self.page.store(id.map_or(NO_PAGE, |id| id.0), Ordering::Release);
    }

    pub fn is_loaded(&self) -> bool {
        self.loaded.load(Ordering::Acquire)
    }

    pub fn rec_lsn(&self) -> Option<Lsn> {
        self.dirt.lock().rec_lsn
    }

    pub fn stage(&self) -> Stage {
        let dirt = self.dirt.lock();
        match dirt.rec_lsn {
            None => Stage::Clean,
            Some(_) if dirt.is_being_stored => Stage::BeingStored,
            Some(_) => Stage::Dirty,
        }
    }

    /// Notes, under the latch, that the page is copied to be stored. False when there is no need, or another stores it.
    pub fn begin_store(&self) -> bool {
        let mut dirt = self.dirt.lock();
        if dirt.rec_lsn.is_none() || dirt.is_being_stored {
            return false;
        }
        // A task that changes a page latches it exclusively first, so this cannot hide a change that is under way.
        dirt.changed_since_copy = false;
        dirt.is_being_stored = true;
        true
    }

    /// Notes that the copy of the page, which had this LSN, is stored; without one, that it could not be.
    pub fn end_store(&self, stored: Option<Lsn>) {
        let mut dirt = self.dirt.lock();
        assert!(dirt.is_being_stored && dirt.rec_lsn.is_some(), "a page that is being stored stays dirty");
        dirt.is_being_stored = false;
        if let Some(lsn) = stored {
            let rec_lsn = dirt.changed_since_copy.then_some(lsn);
            self.set_rec_lsn(&mut dirt, rec_lsn);
        }
    }

    /// Notes, under the exclusive latch, that a change logged at or after `lsn` is about to be made. True when the page
    /// was clean.
    pub fn mark_dirty(&self, lsn: Lsn) -> bool {
        let mut dirt = self.dirt.lock();
        dirt.changed_since_copy = true;
        let was_clean = dirt.rec_lsn.is_none();
        if was_clean {
            self.set_rec_lsn(&mut dirt, Some(lsn));
        }
        was_clean
    }

    /// Adds what a group changes in the page, under the exclusive latch, and the memory that it takes. True when there was
    /// nothing that was not stored.
    pub fn add_changes(&self, position: Lsn, changes: &[u8], memory: &ChangeMemory) -> bool {
        let mut dirt = self.dirt.lock();
        let (was_empty, before) = (dirt.changes.is_empty(), dirt.changes.memory_bytes());
        if dirt.rec_lsn.is_none() {
            self.set_rec_lsn(&mut dirt, Some(position));
        }
        dirt.changes.push(position, changes);
        memory.grow(dirt.changes.memory_bytes() - before);
        was_empty
    }

    /// Takes the changes of the page `id` that are not stored, if this is still its frame. It stays dirty.
    pub fn take_changes(&self, id: PageId) -> Option<PageChanges> {
        let mut dirt = self.dirt.lock();
        // While there are changes, the frame keeps its page.
        let is_its = self.page() == Some(id) && !dirt.changes.is_empty();
        is_its.then(|| std::mem::take(&mut dirt.changes))
    }

    /// The changes that were taken are stored, or must be taken again.
    pub fn end_store_of_changes(&self, taken: PageChanges, is_stored: bool, memory: &ChangeMemory) {
        let mut dirt = self.dirt.lock();
        let before = taken.memory_bytes();
        if !is_stored {
            let beside = dirt.changes.memory_bytes();
            dirt.changes.put_back(taken);
            memory.grow(dirt.changes.memory_bytes());
            memory.shrink(beside);
        }
        memory.shrink(before);
        let rec_lsn = dirt.changes.first();
        self.set_rec_lsn(&mut dirt, rec_lsn);
    }

    /// Takes back a [`mark_dirty`](Self::mark_dirty) that returned true, under the same latch: nothing was changed.
    pub fn unmark_dirty(&self) {
        self.set_rec_lsn(&mut self.dirt.lock(), None);
    }

    fn set_rec_lsn(&self, dirt: &mut Dirt, rec_lsn: Option<Lsn>) {
        if dirt.rec_lsn.is_some() != rec_lsn.is_some() {
            self.dirty_frames.set(self.index, rec_lsn.is_some());
        }
        dirt.rec_lsn = rec_lsn;
    }
}

/// A page that stays in memory while this lives. Clones pin it once more.
#[derive(Clone)]
pub struct PinnedPage {
    pub(super) id: PageId,
    /// The frame's place in the pool.
    pub(super) frame: u32,
    pub(super) latch: Arc<RwLock<Content>>,
}

impl fmt::Debug for PinnedPage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PinnedPage").field(&self.id).finish()
    }
}

impl PinnedPage {
    /// The page's number.
    pub fn id(&self) -> PageId {
        self.id
    }

    /// Latches the page for reading; waits while another task writes or waits to write.
    pub fn read(&self) -> PageReadGuard {
        let content = self.latch.read_arc();
        PageReadGuard { _held: latches::latched(&content.bytes), content }
    }

    /// Latches the page for writing; waits while others hold it.
    pub fn write(&self) -> PageWriteGuard {
        let content = self.latch.write_arc();
        PageWriteGuard { _held: latches::latched(&content.bytes), content }
    }

    /// As [`write`](Self::write), for a page that was a leaf when it was pinned, while other leaves are held. It may be an inner page
    /// by now, and a task that goes down through it may wait for one of those leaves: so this waits for a short time only.
    ///
    /// # Errors
    /// [`Lack::Latch`].
    pub fn write_further_leaf(&self) -> GroupResult<PageWriteGuard> {
        let content = write_arc_within(&self.latch, LATCH_TIMEOUT).ok_or(Lack::Latch(self.id))?;
        Ok(PageWriteGuard { _held: latches::latched_further_leaf(&content.bytes), content })
    }

    /// As [`write`](Self::write), for a page that was allocated just now: whatever it was before, no task has it latched for long. Should the
    /// device have lost that it is in use, this waits for a short time only.
    ///
    /// # Errors
    /// [`Lack::Latch`].
    pub(super) fn write_new(&self) -> GroupResult<PageWriteGuard> {
        let content = write_arc_within(&self.latch, LATCH_TIMEOUT).ok_or(Lack::Latch(self.id))?;
        Ok(PageWriteGuard { content, _held: latches::latched_new() })
    }

    /// As [`write`](Self::write), but `None` instead of waiting.
    pub fn try_write(&self) -> Option<PageWriteGuard> {
        let content = self.latch.try_write_arc()?;
        Some(PageWriteGuard { _held: latches::latched_at_once(&content.bytes), content })
    }
}

/// A page latched for reading, and pinned. Derefs to the page's bytes.
pub struct PageReadGuard {
    content: ArcRwLockReadGuard<Content>,
    _held: Held,
}

/// A page latched for reading, which keeps it in memory without a pin. Derefs to the page's bytes.
pub struct PageView<'p> {
    pub(super) frame: &'p Frame,
    /// The frame's place in the pool.
    pub(super) index: u32,
    pub(super) content: RwLockReadGuard<'p, Content>,
    _held: Held,
}

/// A page latched for writing, and pinned. Derefs to the page's bytes; only a
/// [`ChangeGroup`](super::ChangeGroup) changes them.
pub struct PageWriteGuard {
    content: ArcRwLockWriteGuard<Content>,
    _held: Held,
}

impl PageReadGuard {
    /// The page's number.
    pub fn id(&self) -> PageId {
        self.content.id
    }
}

impl<'p> PageView<'p> {
    /// Of a page that was latched in the frame with this place.
    #[inline]
    pub(super) fn new(frame: &'p Frame, index: u32, content: RwLockReadGuard<'p, Content>) -> Self {
        PageView { _held: latches::latched(&content.bytes), frame, index, content }
    }

    /// The page's number.
    pub fn id(&self) -> PageId {
        self.content.id
    }

    /// The end of the log record that changed the page last.
    pub fn lsn(&self) -> Lsn {
        header::lsn(self)
    }

    /// Whether it has changes that are not stored.
    pub fn is_dirty(&self) -> bool {
        self.frame.state.dirty_frames.has(self.frame.state.index)
    }

    /// Pins the page, so that it stays in memory when it is no longer latched.
    pub fn pin(&self) -> PinnedPage {
        PinnedPage { id: self.id(), frame: self.index, latch: Arc::clone(&self.frame.latch) }
    }
}

impl PageWriteGuard {
    /// The page's number.
    pub fn id(&self) -> PageId {
        self.content.id
    }

    /// The end of the log record that changed the page last.
    pub fn lsn(&self) -> Lsn {
        header::lsn(self)
    }

    /// The page's bytes, for redo: to be changed as a durable record says that starts at `record_start`.
    pub fn redo(&mut self, record_start: Lsn) -> &mut [u8] {
        self.state().mark_dirty(record_start);
        self.bytes_mut()
    }

    pub(super) fn state(&self) -> &FrameState {
        &self.content.state
    }

    pub(super) fn shared_state(&self) -> &Arc<FrameState> {
        &self.content.state
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.content.bytes
    }
}

impl Deref for PageReadGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl Deref for PageView<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl Deref for PageWriteGuard {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl fmt::Debug for PageReadGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PageReadGuard").field(&self.id()).finish()
    }
}

impl fmt::Debug for PageView<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PageView").field(&self.id()).finish()
    }
}

impl fmt::Debug for PageWriteGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("PageWriteGuard").field(&self.id()).finish()
    }
}
