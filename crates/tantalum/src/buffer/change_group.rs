//! Changes of several pages that happen together or not at all.
//!
//! Plan, append, publish. Every change is applied to a private copy of its page at once, or found to suit the page, so
//! whatever can go wrong goes wrong before the log has heard of it. The append makes the group one log record; the copies
//! then become the pages.
//! A group that is dropped before, or whose append fails, leaves no trace.

use std::{cell::OnceCell, sync::Arc};

use tantalum_log::Lsn;
use tantalum_store::{
    Change, PageChanges, PageId, Protection,
    page::{change, header, record},
};

use super::{BufferPool, PageWriteGuard, Reservation, planned::Planned, poison::PoisonGuard};
use crate::error::{Error, Lack, Result};

/// Collects the changes of latched pages and makes them one record of the log.
#[derive(Debug)]
pub struct ChangeGroup {
    pool: BufferPool,
    pages: Vec<GroupPage>,
    /// What was got for it before its pages were latched.
    reservation: Option<Arc<Reservation>>,
    /// Fresh pages that it has got frames for.
    fresh: usize,
}

#[derive(Debug)]
struct GroupPage {
    guard: PageWriteGuard,
    /// The page after the changes. Not there while there is one at most, which is known to suit the page: most pages of a
    /// commit get one, and copying a page back and forth costs more than to change it.
    planned: OnceCell<Planned>,
    /// The changes, encoded.
    changes: Vec<u8>,
    count: usize,
    /// The changes give the same page whatever it was before.
    rebuilt: bool,
}

impl GroupPage {
    /// The page after the changes planned so far.
    fn planned(&self) -> &[u8] {
        self.planned.get_or_init(|| {
            let mut planned = Planned::of(&self.guard);
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

/// What is logged, or published, up to `end` happens in memory.
fn apply(pool: &BufferPool, pages: &mut [GroupPage], end: Lsn, guard: PoisonGuard<'_>) -> Result<Lsn> {
    // While the pages are latched, so that it is told in its order.
    let observer = pool.shared.observer.get();
    let told = observer
        .map_or(Ok(()), |observer| pages.iter().try_for_each(|page| observer.changed(page.guard.id(), &page.changes)));
    if let Err(panic) = told {
        return Err(Error::outcome_unknown(pool.shared.poison(panic)));
    }
    tantalum_rt::interleave();
    stamp(pages, end);
    guard.end();
    Ok(end)
}

/// The planned pages become the pages.
fn stamp(pages: &mut [GroupPage], end: Lsn) {
    for page in pages {
        assert!(page.guard.lsn() < end, "a page is never newer than the log");
        let bytes = page.guard.bytes_mut();
        match page.planned.get() {
            Some(planned) => bytes.copy_from_slice(planned),
            None => apply_checked(bytes, &page.changes),
        }
        header::set_lsn(bytes, end);
    }
}

impl ChangeGroup {
    /// An empty group.
    pub fn new(pool: &BufferPool) -> Self {
        Self { pool: pool.clone(), pages: Vec::new(), reservation: None, fresh: 0 }
    }

    /// An empty group that can take what was reserved.
    pub fn with(pool: &BufferPool, reservation: Option<&Arc<Reservation>>) -> Self {
        Self { reservation: reservation.cloned(), ..Self::new(pool) }
    }

    /// Adds a page that was allocated in the group and that is about to be formatted: it is not read.
    ///
    /// # Errors
    /// [`Error::Lacking`], if there is no frame; [`Error::Busy`].
    pub fn add_new(&mut self, id: PageId) -> Result<usize> {
        let page = self.pool.pin_new(id, self.reservation.as_deref()).map_err(|error| match error {
            // As many again: whoever starts over finds those that it had, or frees them for others.
            Error::Lacking { lack: Lack::Frames(_) } => Error::Lacking { lack: Lack::Frames(self.fresh + 1) },
            error => error,
        })?;
        self.fresh += 1;
        Ok(self.add(page.write_new()))
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

    /// Plans a change of a page.
    ///
    /// # Errors
    /// [`Error::Change`] when the page, as planned so far, cannot take it; the plan is then as it was.
    pub fn change(&mut self, index: usize, change: Change<'_>) -> Result<()> {
        let page = &mut self.pages[index];
        if page.count > 0 || !change::suits_as_it_is(&page.guard, &change) {
            page.planned();
            let planned = page.planned.get_mut().expect("it was planned just now");
            change::apply(planned, &change).map_err(|source| Error::Change { page: page.guard.id(), source })?;
        }
        page.rebuilt |= page.count == 0 && change.rebuilds();
        page.count += 1;
        change.encode_into(&mut page.changes);
        Ok(())
    }

    /// Logs the group, changes the pages, and releases them. Returns the end of the record: the LSN to flush the log to.
    ///
    /// # Errors
    /// As [`append_with`](Self::append_with).
    pub fn append(self, flags: u8, sequence: u64) -> Result<Lsn> {
        self.append_with(flags, sequence, |_| ())
    }

    /// As [`append`](Self::append); calls `after_append` with the end of the record when nothing can fail any more and
    /// the pages are still as before and latched.
    ///
    /// # Errors
    /// [`Error::LogFull`]: let go of all latches, reserve what it says, start over. Others when the
    /// log is poisoned or the record too large. No page was changed, and all are released. [`Error::OutcomeUnknown`] when the page
    /// observer panicked: the record is in the log, and memory, which is as before, is poisoned.
    pub fn append_with(mut self, flags: u8, sequence: u64, after_append: impl FnOnce(Lsn)) -> Result<Lsn> {
        self.pages.retain(|page| page.count > 0);
        if self.pool.shared.statuses().is_some() {
            return self.publish(flags, sequence, after_append);
        }
        let log = self.pool.log();
        let guard = self.pool.poison_unless_ended("a change group was between the log and its pages");
        // Marked before the append: a checkpoint that begins after the record finds the pages dirty, and one that
        // begins before it starts redo before the record.
        let rec_lsn = log.end_lsn();
        let were_clean: Vec<bool> = self.pages.iter().map(|page| page.guard.state().mark_dirty(rec_lsn)).collect();
        tantalum_rt::interleave();
        let end = match self.log_record(flags, sequence) {
            Ok(end) => end,
            Err(error) => {
                for (page, was_clean) in self.pages.iter().zip(were_clean) {
                    if was_clean {
                        page.guard.state().unmark_dirty();
                    }
                }
                guard.end();
                return Err(error);
            }
        };
        after_append(end);
        apply(&self.pool, &mut self.pages, end, guard)
    }

    /// As [`append_with`](Self::append_with), where the store keeps the changes.
    fn publish(mut self, flags: u8, sequence: u64, after_append: impl FnOnce(Lsn)) -> Result<Lsn> {
        let bytes = self.pages.iter().map(|page| page.changes.len() + PageChanges::OVERHEAD_BYTES).sum();
        let limit = self.pool.group_limit();
        if bytes > limit.bytes {
            return Err(limit.refuse(bytes));
        }
        let pool = &self.pool;
        let statuses = pool.shared.statuses().expect("whoever calls this has seen it");
        let mut guard = None;
        let commit = if flags & record::COMMIT != 0 { sequence } else { 0 };
        let room = (bytes, self.pool.store().max_active_bytes());
        let position = statuses.publish(commit, room, |position| {
            // Here, and not before: a round may begin as soon as this returns, or panics.
            let here = pool.poison_unless_ended("a change group was between the log sectors and its pages");
            let add = |page: &GroupPage| {
                let state = page.guard.shared_state();
                state
                    .add_changes(position, &page.changes, statuses.memory())
                    .then(|| (page.guard.id(), Arc::clone(state)))
            };
            let dirty = self.pages.iter().filter_map(add).collect();
            guard = Some(here);
            dirty
        })?;
        let guard = guard.expect("what was published was added to its pages");
        after_append(position);
        apply(pool, &mut self.pages, position, guard)
    }

    /// Appends the group's record, and before it the page images that are needed.
    fn log_record(&self, flags: u8, sequence: u64) -> Result<Lsn> {
        let mut heads = Vec::with_capacity(16 * (self.pages.len() + 1));
        let mut ends = Vec::with_capacity(self.pages.len() + 1);
        record::encode_start(&mut heads, flags, sequence);
        for page in &self.pages {
            ends.push(heads.len());
            record::encode_page(&mut heads, page.guard.id(), page.count);
        }
        ends.push(heads.len());
        let mut parts = Vec::with_capacity(2 * self.pages.len() + 1);
        parts.push(&heads[..ends[0]]);
        for (index, page) in self.pages.iter().enumerate() {
            parts.push(&heads[ends[index]..ends[index + 1]]);
            parts.push(&page.changes);
        }
        // Until the record is in the log, no checkpoint may begin that would make another page need an image.
        let images = self.pages.iter().filter(|page| !page.rebuilt).map(|page| &page.guard);
        let mut space = self.reservation.as_ref().and_then(|reservation| reservation.take_log_space());
        let _gate = self.pool.append_page_images(images, space.as_mut()).map_err(|error| self.all_of(error, &parts))?;
        tantalum_rt::interleave();
        self.pool.append_record(&parts, space.as_mut()).map_err(|error| self.all_of(error, &parts))
    }

    /// What the images and the record need together, where one of them found no space: after the wait all are appended.
    fn all_of(&self, error: Error, parts: &[&[u8]]) -> Error {
        let Error::LogFull { needed } = error else { return error };
        let log = self.pool.log();
        let of = |bytes: usize| log.space_needed(bytes).map_or(0, |needed| needed as usize);
        let images = match self.pool.shared.protection {
            Protection::FullPageImages => self.pages.len() * of(self.pool.page_size() + record::IMAGE_HEADS_BYTES),
            _ => 0,
        };
        let record = parts.iter().map(|part| part.len()).sum();
        Error::LogFull { needed: needed.max(images + of(record)) }
    }
}
