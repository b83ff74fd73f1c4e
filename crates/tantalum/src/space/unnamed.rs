//! Pages of a [`Space`] that are filled before any tree names them: a bulk load writes them around the buffer pool, and then one change
//! group says that they are in use.
//!
//! Until that group they are lent as [scratch](super::scratch) pages are: in memory only, so that a crash leaves them free. Each is
//! written once, as it is to stay, and is durable before the group is appended; so redo needs nothing of what was written, and the
//! log has none of it.
//!
//! Invariants, beside those of scratch pages:
//! - A page bears an LSN before the point where redo would start: its first change after the group logs an image where images are
//!   logged. It is one less than that point, at which no record ends, so no page that a record has changed bears it.
//! - Before the group is appended, the pool knows that the log cannot make these pages anew: none of them is stored so that it may
//!   tear.

use std::{
    collections::{BTreeMap, VecDeque, btree_map::Entry},
    sync::atomic::Ordering,
};

use tantalum_log::Lsn;
use tantalum_rt::may_wait;
use tantalum_store::{Change, PageBatch, PageId, PageSet, page::header};

use super::{
    Space,
    page_writer::{InOperation, PageWriter},
    scratch::TRIES_BEFORE_GROWTH,
};
use crate::{
    buffer::ChangeGroup,
    error::{self, Error, ErrorKind, GroupError, GroupResult, Lack, Result},
};

/// So many pages are lent at a time, at first and at most: other tasks need some too.
const LENT_AT_A_TIME: (u64, u64) = (16, 1024);
/// In between, this part of what was taken, by which the store grows too: little of it is left over.
const LENT_PART: u64 = 2;
/// The store grows by at most so many pages at a time.
const GROWN_AT_A_TIME: u64 = 1 << 14;
/// The roots of a table's tree and its value tree are in the same record.
const ROOTS: usize = 2;
/// What stands in the record before each page's changes, at most.
const HEADS_BYTES: usize = 64;
/// The maps that say that the pages are in use are in memory together: so large a part of the pool at most.
const MAPS_PART: usize = 4;

/// Free pages that a task fills. Dropping it leaves them free.
#[derive(Debug)]
pub struct UnnamedPages {
    space: Space,
    /// What the pages bear.
    lsn: Lsn,
    /// Lent, and not taken yet.
    ready: VecDeque<PageId>,
    taken: PageSet,
    /// Of each extent with pages that were taken, the first and the last.
    extents: BTreeMap<u64, (u64, u64)>,
    /// Bytes of the maps between those.
    map_bytes: usize,
    /// How large the record can be.
    record_bytes: usize,
    /// No free page was found, so the store grows.
    is_full: bool,
    batch: PageBatch,
    /// None at the end.
    writer: Option<PageWriter>,
}

impl UnnamedPages {
    /// None yet. They are taken, grown and written in operations.
    pub fn new(space: &Space, in_operation: InOperation) -> Self {
        Self {
            space: space.clone(),
            lsn: space.pool.lsn_before_redo(),
            ready: VecDeque::new(),
            taken: PageSet::default(),
            extents: BTreeMap::new(),
            map_bytes: 0,
            record_bytes: space.pool.group_limit().bytes,
            is_full: false,
            batch: PageBatch::new(space.pool.page_size()),
            writer: Some(PageWriter::start(&space.pool, in_operation)),
        }
    }

    /// Whether the log's records are large enough to say that a load's pages are in use, if these are not very many.
    pub fn can_be_named(space: &Space) -> bool {
        space.pool.group_limit().bytes >= (ROOTS + 1) * space.pool.page_size()
    }

    /// What all of the pages bear as their LSN.
    pub fn lsn(&self) -> Lsn {
        self.lsn
    }

    /// How many were taken.
    pub fn count(&self) -> u64 {
        self.taken.count()
    }

    /// Takes a free page, which is to be [written](Self::write) next. No latch may be held.
    ///
    /// # Errors
    /// [`StoreFull`](ErrorKind::StoreFull); [`TooLarge`](ErrorKind::TooLarge) when the pages are more than one change group can say to be
    /// in use; what a device or the log reports.
    pub fn take(&mut self) -> Result<PageId> {
        if self.ready.is_empty() {
            let writer = self.writer.take().expect("it is there until the end");
            let lent = writer.in_operation(&mut || self.lend_more());
            self.writer = Some(writer);
            lent?;
        }
        let id = self.ready.pop_front().expect("pages were lent");
        self.taken.insert(id);
        let extent = self.extents.entry(id.0 / self.space.extent_pages());
        let is_new = matches!(extent, Entry::Vacant(_));
        let span = extent.or_insert((id.0, id.0));
        let bytes_of = |span: (u64, u64)| (span.1 / 8 - span.0 / 8 + 1) as usize;
        let before = if is_new { 0 } else { bytes_of(*span) };
        *span = (span.0.min(id.0), span.1.max(id.0));
        self.map_bytes += bytes_of(*span) - before;
        self.check_maps()?;
        Ok(id)
    }

    /// Writes the page that was taken last. It is durable when [`finish`](Self::finish) returns.
    ///
    /// # Errors
    /// What a device reports, also of pages written before.
    pub fn write(&mut self, page: &[u8]) -> Result<()> {
        let id = header::page_id(page);
        let ascends = self.batch.ids().last().is_none_or(|last| *last < id);
        if self.batch.is_full() || !ascends {
            self.write_batch()?;
        }
        self.batch.push(id, page);
        Ok(())
    }

    /// Makes durable what was written.
    ///
    /// # Errors
    /// What a device reports.
    pub fn finish(&mut self) -> Result<()> {
        self.write_batch()?;
        self.writer().finish()
    }

    /// Plans, in a group, that the pages are in use. They are written, and durable.
    ///
    /// # Errors
    /// [`Lack::Page`] of a map; [`Corrupt`](ErrorKind::Corrupt) when a page is in use already.
    pub fn allocate(&self, group: &mut ChangeGroup) -> GroupResult<()> {
        assert!(self.batch.ids().is_empty(), "what is not durable is not named");
        let space = &self.space;
        let extent_pages = space.extent_pages();
        let mut pages = self.taken.iter().peekable();
        let mut mask = vec![0u8; (extent_pages / 8) as usize];
        while let Some(first) = pages.peek() {
            let extent = first.0 / extent_pages;
            mask.fill(0);
            let (mut low, mut high) = (usize::MAX, 0);
            while let Some(page) = pages.next_if(|page| page.0 / extent_pages == extent) {
                let bit = page.0 % extent_pages;
                let at = (bit / 8) as usize;
                mask[at] |= 1 << (bit % 8);
                (low, high) = (low.min(at), at + 1);
                space.beside.lock().note(page);
            }
            let map = space.latch_map(group, extent, true).map_err(|error| match error {
                GroupError::Lacks(Lack::Map(map)) => Lack::Page(map).into(),
                error => error,
            })?;
            let map = map.expect("it was waited for");
            let bytes = low..high;
            let now = &header::body(group.planned(map))[bytes.clone()];
            if now.iter().zip(&mask[bytes.clone()]).any(|(now, mask)| now & mask != 0) {
                return Err(error::corrupt_page(group.page(map), "a page that was lent is in use").into());
            }
            let then: Vec<u8> = now.iter().zip(&mask[bytes.clone()]).map(|(now, mask)| now | mask).collect();
            let offset = u16::try_from(low).expect("a page's body is shorter than 16 KiB");
            group.change(map, Change::WriteBytes { offset, bytes: &then })?;
        }
        Ok(())
    }

    /// The pool stores none of the pages from now on so that it may tear: called before the group is appended.
    pub fn end_tearing(&self) {
        if let Some(last) = self.taken.last() {
            self.space.pool.log_lacks_pages_before(PageId(last.0 + 1));
        }
    }

    /// The group was appended: the pages are in use, and what was left over is free.
    pub fn keep(mut self) {
        self.end_loan();
    }

    fn end_loan(&mut self) {
        let (taken, extent_pages) = (std::mem::take(&mut self.taken), self.space.extent_pages());
        let lent = self.ready.drain(..).chain(taken.iter());
        self.space.scratch.lock().end_unnamed(lent, extent_pages);
    }

    fn writer(&self) -> &PageWriter {
        self.writer.as_ref().expect("it is there until the end")
    }

    /// Refuses more pages than one change group can say to be in use.
    fn check_maps(&self) -> Result<()> {
        let pool = &self.space.pool;
        let record = ROOTS * pool.page_size() + self.map_bytes + self.extents.len() * HEADS_BYTES + HEADS_BYTES;
        let setting = match self.extents.len() > pool.frames() / MAPS_PART {
            true => "buffer_pool_bytes",
            false if record > self.record_bytes => "log_bytes",
            false => return Ok(()),
        };
        let mib = (self.taken.count() * pool.page_size() as u64) >> 20;
        let what = format!(
            "a load of more than {mib} MiB is too large for this database: {setting} bounds what one record of the log can say to be in \
             use; load into several tables, or raise {setting}"
        );
        Err(Error::new(ErrorKind::TooLarge, what))
    }

    fn lend_more(&mut self) -> Result<()> {
        let wanted = (self.taken.count() / LENT_PART).max(LENT_AT_A_TIME.0);
        if !self.is_full {
            self.lend_free(wanted, TRIES_BEFORE_GROWTH)?;
            self.is_full = self.ready.is_empty();
        }
        while self.ready.is_empty() {
            match self.space.lend_new_pages(wanted.min(GROWN_AT_A_TIME)) {
                Ok(found) => self.ready.extend(found),
                Err(error) => {
                    self.lend_free(wanted, usize::MAX)?;
                    if self.ready.is_empty() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Lends free pages that are there.
    fn lend_free(&mut self, wanted: u64, tries: usize) -> Result<()> {
        let found = self.space.lend_free_pages(wanted.min(LENT_AT_A_TIME.1) as usize, tries)?;
        self.space.scratch.lock().unnamed += found.len() as u64;
        self.ready.extend(found);
        Ok(())
    }

    fn write_batch(&mut self) -> Result<()> {
        if self.batch.ids().is_empty() {
            return Ok(());
        }
        let none = PageBatch::with_room(self.space.pool.page_size(), 0);
        let batch = std::mem::replace(&mut self.batch, none);
        self.batch = self.writer().write(batch)?;
        Ok(())
    }
}

impl Drop for UnnamedPages {
    fn drop(&mut self) {
        // No write may be under way when the pages are free.
        self.writer = None;
        self.end_loan();
    }
}

impl Space {
    /// Lets the store grow by about so many pages, and lends what it has grown by: pages that the log knows nothing of.
    fn lend_new_pages(&self, wanted: u64) -> Result<Vec<PageId>> {
        let (store, extent_pages) = (&**self.pool.store(), self.extent_pages());
        may_wait("the store to grow");
        let _growing = self.growth.growing.lock();
        self.growth.taken_below.store(0, Ordering::SeqCst);
        let old = store.capacity_pages();
        let pages = || (old..old + wanted).map(PageId).filter(|page| !self.is_reserved(*page));
        // Before they are there: other tasks would take them as soon as they are.
        self.scratch.lock().begin_unnamed(pages(), extent_pages);
        let grown = store.grow_to_fill(wanted * self.pool.page_size() as u64);
        let limit = if grown.is_ok() { store.capacity_pages() } else { old };
        self.scratch.lock().end_unnamed(pages().filter(|page| page.0 >= limit), extent_pages);
        grown.map(|()| pages().filter(|page| page.0 < limit).collect())
    }
}
