//! Redo: the changes that the log has and the stored pages may lack, in the order of the log.
//!
//! A page's LSN says which changes it holds; those are skipped, so redo can be interrupted and started over at will.
//!
//! What happens to one page does not depend on another. So opening a database only reads the log and notes what it changes in which
//! page; the pool applies that when it reads the page ([`RedoIndex`]).

use std::ops::Range;

use tantalum_log::{Lsn, Record, Recovery};
use tantalum_store::{
    PageId,
    page::record::{Changes, GroupRecord},
};

use crate::{
    buffer::{BufferPool, RedoIndex, redo_page},
    error::{self, Result},
};

/// How far redo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoProgress {
    /// Bytes of the log that are done.
    pub done_bytes: u64,
    /// Bytes of the log from the checkpoint to its end.
    pub total_bytes: u64,
}

/// What opening a database had to do.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RecoveryStats {
    /// Where the log ended; where the store keeps the changes, the position before the session's first.
    pub end_lsn: Lsn,
    /// Log records read.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
    /// The highest commit sequence number; 0 if there was no commit.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub(crate) last_commit: u64,
    /// Pages that lacked changes, each counted once per record.
    pub pages_changed: u64,
    /// Pages that had the changes of a record already.
    pub pages_skipped: u64,
    /// Pages of which that is not known yet: they get the changes when they are used, or in the background.
    pub pages_waiting: u64,
    /// Torn pages put back from the double-write area.
    pub torn_pages: u64,
}

impl RecoveryStats {
    /// Whether there were changes of pages, which a later redo need not look at again if a checkpoint follows.
    pub(crate) fn has_applied(&self) -> bool {
        self.pages_changed + self.pages_skipped + self.pages_waiting > 0
    }

    /// What a pool says now of the pages.
    pub(crate) fn updated(self, pool: &BufferPool) -> Self {
        let (pages_waiting, pages_changed, pages_skipped) = pool.redo_counts();
        Self { pages_changed, pages_skipped, pages_waiting, ..self }
    }
}

/// So large a part of the pool's memory, at most, is taken by changes that are to be applied later.
const MEMORY_PART: usize = 2;
/// But so many bytes at least, and at most.
const MEMORY_BYTES: (usize, usize) = (4 << 20, 1 << 30);
/// How often progress is reported.
const PIECE_BYTES: u64 = 4 << 20;

/// Reads all records that `log` still has. The pool applies them when it reads their pages; those that would take too much memory
/// until then are applied here.
pub(super) fn run(
    pool: &BufferPool,
    log: &mut Recovery,
    progress: &mut dyn FnMut(RedoProgress),
) -> Result<RecoveryStats> {
    let (start, end) = (log.checkpoint_lsn(), log.end_lsn());
    let total_bytes = end.bytes_since(start);
    let mut redo = RecoveryStats { end_lsn: end, ..RecoveryStats::default() };
    let memory_bytes = (pool.frames() * pool.page_size() / MEMORY_PART).clamp(MEMORY_BYTES.0, MEMORY_BYTES.1);
    let mut index = RedoIndex::new(end);
    let (mut at, mut reported) = (start, start);
    while let Some(mut records) = log.next_records()? {
        while let Some(record) = records.next_record()? {
            let bytes = &records.bytes()[record.bytes.clone()];
            let group = redo.take(record.start..record.end, bytes)?;
            for (id, changes) in group.pages() {
                if id.0 >= pool.store().capacity_pages() {
                    // Says that there is no such page.
                    pool.pin_or_blank(id)?;
                }
                let from = record.bytes.start + offset_in(bytes, changes.bytes());
                index.add(id, from..from + changes.bytes().len(), record.start..record.end);
            }
            at = record.end;
        }
        index.add_piece(records.into_bytes());
        if index.memory_bytes() > memory_bytes {
            pool.await_redo(std::mem::replace(&mut index, RedoIndex::new(end)))?;
            pool.finish_redo()?;
        }
        if at.bytes_since(reported) >= PIECE_BYTES {
            reported = at;
            progress(RedoProgress { done_bytes: at.bytes_since(start), total_bytes });
        }
    }
    pool.await_redo(index)?;
    progress(RedoProgress { done_bytes: total_bytes, total_bytes });
    Ok(redo.updated(pool))
}

/// Where in some bytes a part of them begins.
fn offset_in(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - bytes.as_ptr() as usize
}

impl RecoveryStats {
    /// Counts a record, which follows the one before.
    fn take<'r>(&mut self, record: Range<Lsn>, bytes: &'r [u8]) -> Result<GroupRecord<'r>> {
        let group = GroupRecord::decode(bytes).map_err(|what| error::corrupt_record(record.start, what))?;
        self.end_lsn = self.end_lsn.max(record.end);
        self.records += 1;
        if group.is_commit() {
            self.commits += 1;
            self.last_commit = self.last_commit.max(group.sequence());
        }
        Ok(group)
    }
}

/// Redo on copies of pages, record by record. There may be too few pages.
#[derive(Debug)]
pub struct Replay {
    redo: RecoveryStats,
    /// No page was changed at or past it before its changes are applied here.
    newest: Lsn,
}

impl Replay {
    /// On pages none of which was changed at or past `newest`.
    pub fn onto_copies(newest: Lsn) -> Self {
        Self { redo: RecoveryStats::default(), newest }
    }

    /// Applies one record, which follows the one before.
    ///
    /// # Errors
    /// When a page cannot be read, or it or the record is damaged.
    pub fn apply(&mut self, pool: &BufferPool, record: &Record) -> Result<()> {
        let group = self.redo.take(record.start..record.end, &record.bytes)?;
        self.newest = self.newest.max(record.end);
        for (id, changes) in group.pages() {
            while id.0 >= pool.store().capacity_pages() {
                pool.store().grow()?;
            }
            match self.apply_to(pool, id, record, changes)? {
                true => self.redo.pages_changed += 1,
                false => self.redo.pages_skipped += 1,
            }
        }
        Ok(())
    }

    /// False if the page had the changes already.
    fn apply_to(&self, pool: &BufferPool, id: PageId, record: &Record, changes: Changes<'_>) -> Result<bool> {
        let rebuilt = { changes }.next().is_some_and(|first| first.rebuilds());
        let page = if rebuilt { pool.pin_to_rebuild(id)? } else { pool.pin_or_blank(id)? };
        let mut page = page.write();
        let (lsn, newest) = (page.lsn(), self.newest);
        if lsn > newest {
            let what = format!("it was changed at LSN {lsn}, beyond the end of the log at {newest}");
            return Err(error::corrupt_page(&page, what));
        }
        if lsn >= record.end {
            return Ok(false);
        }
        redo_page(page.redo(record.start), record.start..record.end, changes)
    }

    /// What was done.
    pub fn done(self) -> RecoveryStats {
        self.redo
    }
}
