//! Changes of several pages that happen together or not at all.
//!
//! Plan, append, apply. Every change is applied to a private copy of its page at once, or found to suit the page, so
//! whatever can go wrong goes wrong before the log has heard of it. The append hands the group to the pool's
//! [change sink](super::change_sink), usually as one log record; the copies then become the pages.
//! A group that is dropped before, or whose append fails, leaves no trace.

use std::{
    cell::OnceCell,
    sync::{Arc, atomic::Ordering},
};

use tantalum_log::Lsn;
use tantalum_store::{
    Change, PageId,
    page::{change, header, record},
};

use super::{BufferPool, PageCopy, PageWriteGuard, Reservation, change_sink::Group};
use crate::error::{self, Error, ErrorKind, GroupError, GroupResult, Lack, Result};

/// Collects the changes of latched pages and makes them one record of the log.
#[derive(Debug)]
pub struct ChangeGroup {
    pool: BufferPool,
    pages: Vec<GroupPage>,
    /// What was got for it before its pages were latched.
    reservation: Option<Arc<Reservation>>,
    /// Fresh pages that it has got frames for.
    fresh: usize,
    /// Cells that are replaced and of which only the differences are logged.
    patched: u64,
}

#[derive(Debug)]
pub(super) struct GroupPage {
    pub guard: PageWriteGuard,
    /// The page after the changes. Not there while there is one at most, which is known to suit the page: most pages of a
    /// commit get one, and copying a page back and forth costs more than to change it.
    planned: OnceCell<PageCopy>,
    /// The changes, encoded.
    pub changes: Vec<u8>,
    /// How many they are.
    pub count: usize,
    /// The changes give the same page whatever it was before.
    pub rebuilt: bool,
}

impl GroupPage {
    /// The page after the changes planned so far.
    fn planned(&self) -> &[u8] {
        self.planned.get_or_init(|| {
            let mut planned = PageCopy::of(&self.guard);
            apply_checked(&mut planned, &self.changes);
            planned
        })
    }
}

/// Applies changes that are known to suit the page.
fn apply_checked(page: &mut [u8], changes: &[u8]) {
    for change in record::Changes::checked(changes) {
        change::apply(page, &change).expect("the page is latched, and as it was when the change was found to suit it");
    }
}

impl ChangeGroup {
    /// An empty group.
    pub fn new(pool: &BufferPool) -> Self {
        Self { pool: pool.clone(), pages: Vec::new(), reservation: None, fresh: 0, patched: 0 }
    }

    /// An empty group that can take what was reserved.
    pub fn with(pool: &BufferPool, reservation: Option<&Arc<Reservation>>) -> Self {
        Self { reservation: reservation.cloned(), ..Self::new(pool) }
    }

    /// Makes room for so many more pages.
    pub fn reserve(&mut self, pages: usize) {
        self.pages.reserve_exact(pages);
    }

    /// Adds a page that was allocated in the group and that is about to be formatted: it is not read.
    ///
    /// # Errors
    /// [`Lack::Frames`], [`Lack::Latch`].
    pub fn add_new(&mut self, id: PageId) -> GroupResult<usize> {
        let page = self.pool.pin_new(id, self.reservation.as_deref()).map_err(|error| match error {
            // As many again: the next attempt finds those that this one had, or frees them for others.
            GroupError::Lacks(Lack::Frames(_)) => Lack::Frames(self.fresh + 1).into(),
            error => error,
        })?;
        self.fresh += 1;
        Ok(self.add(page.write_new()?))
    }

    /// Adds a page and returns its index in the group. The latch is held until the group has been appended or dropped.
    pub fn add(&mut self, guard: PageWriteGuard) -> usize {
        debug_assert!(self.find(guard.id()).is_none(), "a page is latched once");
        self.pages.push(GroupPage { guard, planned: OnceCell::new(), changes: Vec::new(), count: 0, rebuilt: false });
        self.pages.len() - 1
    }

    /// Releases the page that was added last, unless it is another one than that of this index, or a change of it is planned.
    pub fn let_go_if_unchanged(&mut self, index: usize) {
        if index + 1 == self.pages.len() {
            self.pages.pop_if(|page| page.count == 0);
        }
    }

    /// The index of a page that was added.
    pub fn find(&self, id: PageId) -> Option<usize> {
        self.pages.iter().position(|page| page.guard.id() == id)
    }

    /// The numbers of the pages that were added, in that order.
    pub fn ids(&self) -> impl Iterator<Item = PageId> {
        self.pages.iter().map(|page| page.guard.id())
    }

    /// A page as it is before the group.
    pub fn page(&self, index: usize) -> &[u8] {
        &self.pages[index].guard
    }

    /// A page as it is with the changes planned so far.
    pub fn planned(&self, index: usize) -> &[u8] {
        let page = &self.pages[index];
        if page.count == 0 { &page.guard } else { page.planned() }
    }

    /// Plans a change of a page. Of a cell that is replaced, the group has what differs from the page as planned so far, if that is
    /// shorter: the page has that cell whenever the change is repeated, because all changes before it have been.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when the page, as planned so far, cannot take it; the plan is then as it was.
    pub fn change(&mut self, index: usize, change: Change<'_>) -> Result<()> {
        let page = &mut self.pages[index];
        let known = page.changes.len();
        let is_patch;
        if page.count > 0 || !change::suits_as_it_is(&page.guard, &change) {
            page.planned();
            let planned = page.planned.get_mut().expect("it was planned just now");
            is_patch = change.encode_for(planned, &mut page.changes);
            change::apply(planned, &change).map_err(|source| {
                page.changes.truncate(known);
                Error::new(
                    ErrorKind::Corrupt,
                    format!("page {page} cannot take a change: {source}", page = page.guard.id()),
                )
                .with_source(source)
            })?;
        } else {
            is_patch = change.encode_for(&page.guard, &mut page.changes);
        }
        page.rebuilt |= page.count == 0 && change.rebuilds();
        page.count += 1;
        self.patched += u64::from(is_patch);
        Ok(())
    }

    /// Logs the group, changes the pages, and releases them. Returns the end of the record: the LSN to flush the log to.
    ///
    /// # Errors
    /// As [`append_with`](Self::append_with).
    pub fn append(self, flags: u8, sequence: u64) -> GroupResult<Lsn> {
        self.append_with(flags, sequence, &[], |_| ())
    }

    /// As [`append`](Self::append); the record has `feed` for readers of the change feed. Calls `after_append` with the end of the record when nothing can fail any more and
    /// the pages are still as before and latched.
    ///
    /// # Errors
    /// [`Lack::LogSpace`]: let go of all latches, reserve it, start over. Others when the log is poisoned or the record too
    /// large. No page was changed, and all are released. [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) when the page observer
    /// panicked: the record is in the log, and memory, which is as before, is poisoned.
    pub fn append_with(
        mut self,
        flags: u8,
        sequence: u64,
        feed: &[u8],
        after_append: impl FnOnce(Lsn),
    ) -> GroupResult<Lsn> {
        self.pages.retain(|page| page.count > 0);
        let (shared, reservation) = (&*self.pool.shared, self.reservation.as_deref());
        let group = Group { pages: &self.pages, reservation, flags, sequence, feed };
        let (end, guard) = shared.sink.append(shared, group)?;
        after_append(end);
        if self.patched > 0 {
            shared.patched_rows.0.fetch_add(self.patched, Ordering::Relaxed);
        }
        if let Some(observer) = shared.observer.get() {
            // While the pages are latched, so that the observer learns of their changes in their order.
            let told = self.pages.iter().try_for_each(|page| observer.changed(page.guard.id(), &page.changes));
            told.map_err(|panic| error::outcome_unknown(shared.poison(panic)))?;
        }
        tantalum_rt::interleave();
        for page in &mut self.pages {
            assert!(page.guard.lsn() < end, "a page is never newer than the log");
            let bytes = page.guard.bytes_mut();
            match page.planned.get() {
                Some(planned) => bytes.copy_from_slice(planned),
                None => apply_checked(bytes, &page.changes),
            }
            header::set_lsn(bytes, end);
        }
        guard.end();
        Ok(end)
    }
}
