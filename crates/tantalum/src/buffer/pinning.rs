//! How pages of the [`BufferPool`] are found and pinned, and read from the store on a miss.
//!
//! A hit takes the lock of one shard of the page table and counts one reference, or latches the page; nothing else is shared.
//! Where a [hint](super::hints) names the frame, it takes the latch only. A miss takes a clean frame, which the
//! [`Cleaner`](super::Cleaner) keeps ready, and reads the page under the frame's exclusive latch, so that other tasks that want the
//! same page wait for it there.

use std::sync::{Arc, atomic::Ordering};

use tantalum_device::{AlignedBuffer, HUGE_PAGE_BYTES};
use tantalum_rt::{ArcRwLockWriteGuard, may_wait};
use tantalum_store::{Load, PageId, page::header};

use super::{
    BufferPool,
    eviction::Taken,
    frame::{Content, FrameState, PageView, PinnedPage},
    pending_redo::PageRedo,
    poison::PoisonGuard,
    pool::Shared,
    reservation::Reservation,
};
use crate::error::{self, GroupResult, Lack, Result};

/// Memory for frames is taken in pieces of so many bytes, a multiple of every page size.
const MEMORY_BYTES: usize = 256 << 10;
/// Pools of so many bytes and more take it in huge pages.
const HUGE_PAGES_FROM: usize = 16 << 20;

/// Where a page comes from that is not in memory.
#[derive(Clone, Copy)]
pub(super) enum Source {
    /// The store, which must have it.
    Store,
    /// Nowhere: it is about to be formatted.
    Nothing,
    /// The store; if it was never written it is blank, and if `rebuilt`, also if it is damaged.
    StoreOrBlank { rebuilt: bool },
}

/// A page that is being brought into its frame, which is latched meanwhile.
pub(super) struct Loading<'p> {
    // Dropped before the latch: see `poison.rs`.
    guard: PoisonGuard<'p>,
    index: usize,
    pub content: ArcRwLockWriteGuard<Content>,
    /// No task has come to need it.
    pub is_ahead: bool,
}

impl BufferPool {
    /// Keeps a page in memory, reading it if it is not there.
    ///
    /// # Errors
    /// [`Corrupt`](crate::ErrorKind::Corrupt) when the page is damaged or was never written,
    /// [`PoolExhausted`](crate::ErrorKind::PoolExhausted), and what the device reports.
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
    /// [`Lack::Frames`] without a frame; [`Lack::Latch`] while another task reads the page, as it was before.
    pub(super) fn pin_new(&self, id: PageId, reservation: Option<&Reservation>) -> GroupResult<PinnedPage> {
        let shared = &*self.shared;
        loop {
            if let Some(page) = self.pin_in_memory(id) {
                return Ok(page);
            }
            if shared.table.find(id).is_some() {
                return Err(Lack::Latch(id).into());
            }
            let reserved = reservation.and_then(Reservation::take_frame);
            let Some(frame) = reserved.or_else(|| shared.take_frame_at_hand()) else {
                return Err(Lack::Frames(1).into());
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

    /// Drops a clean page from memory. False if a task uses it, or it is dirty, or would be if it were read, since redo is to change
    /// it; otherwise true if it is not in memory.
    pub fn discard_clean(&self, id: PageId) -> bool {
        // Asked first: what is applied meanwhile makes a page dirty that is in memory.
        !self.shared.pending.awaits(id) && self.shared.drop_clean(id)
    }
}

impl Shared {
    /// Drops a clean page from memory. False if a task uses it, or it is dirty; true if it is not in memory.
    pub(super) fn drop_clean(&self, id: PageId) -> bool {
        let Some(index) = self.table.find(id) else { return true };
        let is_gone = self.table.remove_if(id, index, || self.frames[index].vacate());
        if is_gone {
            self.free_list.give([index]);
        }
        is_gone
    }

    pub(super) fn pin(&self, id: PageId, source: Source) -> Result<PinnedPage> {
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
        let Some(mut loading) = self.begin_load(taken.frame, id) else { return Ok(None) };
        self.counters.misses.fetch_add(1, Ordering::Relaxed);
        if !matches!(source, Source::Nothing) {
            self.counters.fault_reads.fetch_add(1, Ordering::Relaxed);
            self.counters.blocked_reads.fetch_add(u64::from(taken.has_waited), Ordering::Relaxed);
        }
        let filled = self.fill(&mut loading.content, source);
        self.end_load(loading, filled).map(Some)
    }

    /// Names a frame that was taken in the page table, as one that is being filled. `None` when another task did so first; the frame is
    /// given back then.
    pub(super) fn begin_load(&self, index: usize, id: PageId) -> Option<Loading<'_>> {
        let frame = &self.frames[index];
        // Held through an `Arc`, and so pinned. Only a task that waited for a failed load, or followed an old hint, can hold it,
        // for a moment.
        let mut content = frame.latch.write_arc();
        debug_assert!(frame.state.rec_lsn().is_none() && !content.is_present(), "a frame without a page is clean");
        frame.state.set_page(Some(id));
        content.id = id;
        if content.bytes.is_empty() {
            content.bytes = self.page_memory();
            frame.bytes_at.store(content.bytes.as_mut_ptr(), Ordering::Relaxed);
        }
        let guard = self.poison_unless_ended("a page was being read");
        if !self.table.insert(id, index) {
            guard.end();
            frame.state.set_page(None);
            drop(content);
            self.free_list.give([index]);
            return None;
        }
        Some(Loading { guard, index, content, is_ahead: false })
    }

    /// The page is in its frame, or could not be brought there.
    pub(super) fn end_load(&self, loading: Loading<'_>, filled: Result<()>) -> Result<(usize, PinnedPage)> {
        let Loading { guard, index, mut content, is_ahead } = loading;
        let (frame, id) = (&self.frames[index], content.id);
        guard.end();
        match filled {
            Ok(()) => {
                content.set_present(true);
                match is_ahead {
                    true => frame.note_read_ahead(),
                    false => frame.touch(),
                }
                Ok((index, PinnedPage { id, frame: index as u32, latch: Arc::clone(&frame.latch) }))
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
        if matches!(source, Source::Nothing) {
            header::clear(&mut content.bytes, id);
            return Ok(());
        }
        may_wait("a page of the store");
        let load = self.store.load(id, &mut content.bytes)?;
        self.complete(content, load, source)
    }

    /// Makes what was loaded the page as it must be: applies the changes that await it, and checks it as far as it can be seen that it
    /// is that page.
    pub(super) fn complete(&self, content: &mut Content, load: Load, source: Source) -> Result<()> {
        let id = content.id;
        let corrupt =
            |what: String| error::corrupt(self.store.name(), id, id.0.saturating_mul(self.page_size as u64), what);
        let redo = self.pending.of(id);
        let rebuilt = match (&redo, source) {
            (Some(redo), _) => redo.rebuilds(),
            (None, source) => matches!(source, Source::StoreOrBlank { rebuilt: true }),
        };
        match (load, source) {
            (Load::Page, _) => {}
            (Load::NeverWritten, Source::Store) if redo.is_none() => {
                return Err(corrupt("it was never written".into()));
            }
            (Load::NeverWritten, _) => header::clear(&mut content.bytes, id),
            (Load::Damaged(_), _) if rebuilt => header::clear(&mut content.bytes, id),
            (Load::Damaged(what), _) => return Err(corrupt(what)),
        }
        let lsn = header::lsn(&content.bytes);
        if let Some(end) = self.sink.end(self).or_else(|| redo.as_ref().map(PageRedo::end))
            && lsn > end
        {
            let what = "so the log is not the one that belongs to it";
            return Err(corrupt(format!("it was changed at LSN {lsn}, beyond the end of the log at {end}, {what}")));
        }
        if let Some(redo) = redo {
            let applied = redo.apply(&mut content.bytes)?;
            if let Some((first, _)) = applied {
                content.state.mark_dirty(first);
            }
            self.pending.applied(id, &redo, applied.map_or(0, |(_, count)| count));
        }
        Ok(())
    }
}

/// Whether a pinned frame holds the page `id`, ready for use.
fn holds(state: &FrameState, id: PageId) -> bool {
    state.is_loaded() && state.page() == Some(id)
}
