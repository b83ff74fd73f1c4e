//! Dirty pages of the [`BufferPool`](super::BufferPool) on their way back to the store. The write-ahead rule lives here.
//!
//! A page is copied under its read latch and stored without it. It is clean afterwards only if no task has begun to
//! change it since it was copied. A page that could not be stored stays dirty.
//!
//! Several batches are under way at a time, each by a task with a [`WritePermit`]. A page is in one of them at most: its next version
//! is copied only when the store has returned from the last one.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_rt::{Mutex, spawn};
use tantalum_store::{PageBatch, PageId, page::header};

use super::{BufferPool, frame::Content, free_list::WritePermit, pool::Shared};
use crate::error::{self, Result};

/// So many tasks at most store pages for a checkpoint.
const CHECKPOINT_WRITERS: usize = 4;

/// Pages and their frames, by page.
type Pages = Vec<(PageId, usize)>;

/// A batch with copies of pages, and of each page the frame and the LSN that it had.
struct Copies {
    batch: PageBatch,
    of: Vec<(usize, Lsn)>,
}

impl BufferPool {
    /// Stores nothing from now on; what is dirty stays so. Returns when nothing is being stored any more. No latch may be held.
    pub fn end_stores(&self) {
        let shared = &self.shared;
        shared.stores_ended.store(true, Ordering::SeqCst);
        // All permits at once: no other task has one, and one that gets it later is refused.
        let permits: Vec<_> = (0..shared.free_list.most_batches()).map(|_| shared.free_list.write_permit()).collect();
        drop(permits);
        shared.sink.end_stores();
    }
}

impl Shared {
    /// Stores those of the pages (at most a batch) that are still dirty and that no task is changing or storing right now. Never
    /// waits for a latch, so callers may hold some. Returns how many were stored.
    pub(super) fn write_pages_back(
        &self,
        permit: &mut WritePermit<'_>,
        pages: &mut [(PageId, usize)],
    ) -> Result<usize> {
        pages.sort_unstable();
        let mut copies = self.copies(pages.len());
        let mut fresh = None;
        let redo_point = self.redo_point.read();
        for &(id, frame) in &*pages {
            if let Some(content) = self.frames[frame].latch.try_read()
                && content.id == id
            {
                match redo_point.is_fresh(id, header::lsn(&content.bytes)) {
                    true => fresh.get_or_insert_with(|| self.copies(pages.len())).add(frame, &content),
                    false => copies.add(frame, &content),
                }
            }
        }
        drop(redo_point);
        permit.expect(copies.of.len() + fresh.as_ref().map_or(0, |fresh| fresh.of.len()));
        let stored = self.store_copies(copies);
        let Some(mut fresh) = fresh else { return stored };
        fresh.batch.set_may_tear(true);
        // Also when the others could not be stored: they no longer are being stored then, and these must not seem to be.
        let stored_fresh = self.store_copies(fresh);
        Ok(stored? + stored_fresh?)
    }

    /// As [`write_pages_back`](Self::write_pages_back) for one page, but waits for its latch, then for a permit, and for the task that is
    /// storing it, and may return early if one was; callers hold no latch.
    pub(super) fn write_page_back(&self, id: PageId, frame: usize) -> Result<()> {
        let content = self.frames[frame].latch.read();
        let mut copies = self.copies(1);
        if content.id == id {
            copies.add(frame, &content);
            copies.batch.set_may_tear(self.redo_point.read().is_fresh(id, header::lsn(&content.bytes)));
        }
        // Copied, but not stored before there is a permit: a task that wants the page must not wait for the batches of others, and
        // one that has a permit waits for no latch.
        drop(content);
        let permit = self.free_list.write_permit();
        let was_added = !copies.of.is_empty();
        self.store_copies(copies)?;
        drop(permit);
        if !was_added {
            let mut ended = self.store_ended.0.lock();
            while self.frames[frame].state.dirt.lock().is_being_stored {
                self.check_poison()?;
                self.store_ended.1.wait(&mut ended);
            }
        }
        Ok(())
    }

    /// Stores the pages of all frames with changes logged before `lsn`, also those that others are storing.
    pub(super) fn write_back_all_before(self: &Arc<Self>, lsn: Lsn) -> Result<()> {
        let old_pages = || {
            let is_old = |frame: usize| self.frames[frame].state.rec_lsn().is_some_and(|rec_lsn| rec_lsn < lsn);
            let mut pages: Pages = self
                .dirty_frames
                .iter()
                .filter(|frame| is_old(*frame))
                .filter_map(|frame| Some((self.frames[frame].state.page()?, frame)))
                .collect();
            pages.sort_unstable();
            pages
        };
        let pieces = (self.frames.len() / 4 / CHECKPOINT_WRITERS).clamp(1, PageBatch::MAX_PAGES);
        let pieces: VecDeque<Pages> = old_pages().chunks(pieces).map(Pages::from).collect();
        let writers = self.free_list.most_batches().min(CHECKPOINT_WRITERS).min(pieces.len());
        let pieces = Arc::new(Mutex::new(pieces));
        let others: Vec<_> = (1..writers)
            .map(|number| {
                let (shared, pieces) = (Arc::clone(self), Arc::clone(&pieces));
                spawn(format!("tantalum-checkpoint-{number}"), move || shared.write_pieces_back(&pieces))
            })
            .collect();
        let mut result = self.write_pieces_back(&pieces);
        for other in others {
            result = result.and(other.join().expect("a task that stores pages does not panic"));
        }
        result?;
        // What was latched or stored by others meanwhile, or changed again and so counts from the LSN that was stored.
        loop {
            let pages = old_pages();
            if pages.is_empty() {
                return Ok(());
            }
            for (id, frame) in pages {
                self.write_page_back(id, frame)?;
            }
        }
    }

    /// Stores pieces until there are no more. After an error no task goes on.
    fn write_pieces_back(&self, pieces: &Mutex<VecDeque<Pages>>) -> Result<()> {
        loop {
            let Some(mut pages) = pieces.lock().pop_front() else { return Ok(()) };
            let mut permit = self.free_list.write_permit();
            if let Err(error) = self.write_pages_back(&mut permit, &mut pages) {
                pieces.lock().clear();
                return Err(error);
            }
        }
    }

    /// An empty batch with room for so many pages.
    fn copies(&self, pages: usize) -> Copies {
        let spare = self.spare_batches.lock().pop().filter(|batch| batch.room() >= pages);
        let mut batch = spare.unwrap_or_else(|| PageBatch::with_room(self.page_size, pages));
        batch.clear();
        Copies { batch, of: Vec::with_capacity(pages) }
    }

    fn store_copies(&self, mut copies: Copies) -> Result<usize> {
        let guard = self.poison_unless_ended("pages were being stored");
        let result = self.store_batch(&mut copies);
        guard.end();
        for &(frame, lsn) in &copies.of {
            self.frames[frame].state.end_store(result.is_ok().then_some(lsn));
        }
        if !copies.of.is_empty() {
            let _ended = self.store_ended.0.lock();
            self.store_ended.1.notify_all();
        }
        self.spare_batches.lock().push(copies.batch);
        result.map(|()| copies.of.len())
    }

    fn store_batch(&self, Copies { batch, of }: &mut Copies) -> Result<()> {
        let Some(newest) = of.iter().map(|(_, lsn)| *lsn).max() else { return Ok(()) };
        batch.seal();
        let stored = self
            .make_log_durable(newest)
            // Asked after the copies were made: of what a panic has left half changed, nothing is stored.
            .and_then(|()| self.check_poison())
            .and_then(|()| self.check_stores())
            .and_then(|()| self.store.store(batch));
        if let Err(error) = stored {
            self.counters.failed_write_backs.fetch_add(1, Ordering::Relaxed);
            tantalum_rt::tracing::error!(pages = of.len(), %error, "pages could not be stored; they stay in memory");
            return Err(error);
        }
        let told = self.observer.get().map_or(Ok(()), |observer| observer.written(batch.ids()));
        told.map_err(|panic| self.poison(panic))
    }

    /// Refuses to store once that has ended: the devices may be in use by another then.
    pub(super) fn check_stores(&self) -> Result<()> {
        if self.stores_ended.load(Ordering::SeqCst) { Err(error::closed()) } else { Ok(()) }
    }

    /// The write-ahead rule: no page is stored before the log is durable up to the page's last change, or a power cut
    /// could leave a page that recovery knows nothing of. In redo there is no log yet, since what redo applies it has
    /// read from the devices.
    fn make_log_durable(&self, newest: Lsn) -> Result<()> {
        match self.log.get() {
            // In the archive too: then the pages suit a log that is made anew from it.
            Some(log) => log.flush_archived(newest),
            None => Ok(()),
        }
    }
}

impl Copies {
    fn add(&mut self, frame: usize, content: &Content) {
        if content.state.begin_store() {
            self.batch.push(content.id, &content.bytes);
            self.of.push((frame, header::lsn(&content.bytes)));
        }
    }
}
