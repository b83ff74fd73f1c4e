//! Dirty pages on their way back to the store. The write-ahead rule lives here.
//!
//! A page is copied under its read latch and stored without it. It is clean afterwards only if nobody has begun to
//! change it since it was copied. A page that could not be stored stays dirty.

use std::sync::{Arc, atomic::Ordering};

use tantalum_log::Lsn;

use super::{
    frame::Content,
    pool::Shared,
    statuses::{DirtyPage, Statuses},
};
use crate::{
    error::{Error, Result},
    page::{PageId, header},
    store::{PageBatch, PageChanges},
};

/// The frames whose pages are in a batch, and the LSNs that the pages had when they were copied.
type Copied = Vec<(usize, Lsn)>;

impl Shared {
    /// Stores those of the pages (at most a batch) that are still dirty and that nobody is changing right now. Never
    /// waits for a latch, so callers may hold some. Returns how many were stored.
    pub(super) fn write_pages_back(&self, pages: &mut [(PageId, usize)]) -> Result<usize> {
        pages.sort_unstable();
        if let Some(statuses) = self.statuses() {
            let dirty = pages.iter().map(|&(id, frame)| (id, Arc::clone(&self.frames[frame].state))).collect();
            return self.write_changes_back(statuses, dirty);
        }
        let mut batch = self.write_back.lock();
        batch.clear();
        let mut copied = Copied::with_capacity(pages.len());
        for &(id, frame) in &*pages {
            if let Some(content) = self.frames[frame].latch.try_read()
                && content.id == id
            {
                copy(&mut batch, &mut copied, frame, &content);
            }
        }
        self.store_batch(&mut batch, &copied)
    }

    /// As [`write_pages_back`](Self::write_pages_back) for one page, but waits for its latch; callers hold none.
    pub(super) fn write_page_back(&self, id: PageId, frame: usize) -> Result<usize> {
        let content = self.frames[frame].latch.read();
        // Whoever holds this lock waits for no latch.
        let mut batch = self.write_back.lock();
        batch.clear();
        let mut copied = Copied::new();
        if content.id == id {
            copy(&mut batch, &mut copied, frame, &content);
        }
        drop(content);
        self.store_batch(&mut batch, &copied)
    }

    /// Stores the pages of all frames with changes logged before `lsn`.
    pub(super) fn write_back_all_before(&self, lsn: Lsn) -> Result<()> {
        let old_pages = || {
            let is_old = |frame: usize| self.frames[frame].state.rec_lsn().is_some_and(|rec_lsn| rec_lsn < lsn);
            let mut pages: Vec<_> = (0..self.frames.len())
                .filter(|frame| is_old(*frame))
                .filter_map(|frame| Some((self.frames[frame].state.page()?, frame)))
                .collect();
            pages.sort_unstable();
            pages
        };
        for pages in old_pages().chunks_mut(PageBatch::MAX_PAGES) {
            self.write_pages_back(pages)?;
        }
        // What was latched meanwhile, or changed again and so counts from the LSN that was stored.
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

    /// Stores the changes of pages, in ascending order of the pages, to a store that keeps changes. Needs no latches: a page's
    /// changes stand beside it. Returns how many pages had some.
    pub(super) fn write_changes_back(&self, statuses: &Statuses, pages: Vec<DirtyPage>) -> Result<usize> {
        let mut stored = 0;
        let mut pages = pages.into_iter().peekable();
        while pages.peek().is_some() {
            // Held by whoever has taken changes, so that a page's are stored in their order.
            let _writing = self.write_back.lock();
            let (mut states, mut changes): (Vec<DirtyPage>, Vec<(PageId, PageChanges)>) = Default::default();
            for (id, state) in pages.by_ref().take(PageBatch::MAX_PAGES) {
                if let Some(taken) = state.take_changes(id) {
                    changes.push((id, taken));
                    states.push((id, state));
                }
            }
            let result = if changes.is_empty() { Ok(()) } else { self.store_changes(statuses, &changes) };
            let is_stored = result.is_ok();
            for ((_, state), (_, changes)) in states.iter().zip(changes) {
                state.end_store(changes, is_stored, statuses.memory());
            }
            if let Err(error) = result {
                self.counters.failed_write_backs.fetch_add(1, Ordering::Relaxed);
                tracing::error!(pages = states.len(), %error, "changes could not be stored; they stay in memory");
                statuses.put_back(states.into_iter().chain(pages));
                return Err(error);
            }
            stored += states.len();
        }
        Ok(stored)
    }

    fn store_changes(&self, statuses: &Statuses, changes: &[(PageId, PageChanges)]) -> Result<()> {
        match self.store.store_changes(changes) {
            // What is active fills the store: what the log has meanwhile made durable need not be carried any more.
            Err(Error::DiskFull { .. }) if statuses.settle()? => self.store.store_changes(changes),
            result => result,
        }
    }

    fn store_batch(&self, batch: &mut PageBatch, copied: &Copied) -> Result<usize> {
        let Some(newest) = copied.iter().map(|(_, lsn)| *lsn).max() else { return Ok(0) };
        batch.seal();
        let stored = self.make_log_durable(newest).and_then(|()| self.store.store(batch));
        if let Err(error) = stored {
            self.counters.failed_write_backs.fetch_add(1, Ordering::Relaxed);
            tracing::error!(pages = copied.len(), %error, "pages could not be stored; they stay in memory");
            return Err(error);
        }
        if let Some(observer) = self.observer.get() {
            batch.ids().iter().for_each(|&id| observer.0.written(id));
        }
        for &(frame, lsn) in copied {
            let mut dirt = self.frames[frame].state.dirt.lock();
            dirt.rec_lsn = dirt.changed_since_copy.then_some(lsn);
        }
        Ok(copied.len())
    }

    /// The write-ahead rule: no page is stored before the log is durable up to the page's last change, or a power cut
    /// could leave a page that recovery knows nothing of. In redo there is no log yet, since what redo applies it has
    /// read from the devices.
    fn make_log_durable(&self, newest: Lsn) -> Result<()> {
        match self.log.get() {
            // In the archive too: then the pages suit a log that is made anew from it.
            Some(log) => Ok(log.flush_archived(newest)?),
            None => Ok(()),
        }
    }
}

fn copy(batch: &mut PageBatch, copied: &mut Copied, frame: usize, content: &Content) {
    {
        let mut dirt = content.state.dirt.lock();
        if dirt.rec_lsn.is_none() {
            return;
        }
        // Who changes a page latches it exclusively first, so this cannot hide a change that is under way.
        dirt.changed_since_copy = false;
    }
    batch.push(content.id, &content.bytes);
    copied.push((frame, header::lsn(&content.bytes)));
}
