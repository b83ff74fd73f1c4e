//! Redo: the changes that the log has and the stored pages may lack, in the order of the log.
//!
//! A page's LSN says which changes it holds; those are skipped, so redo can be interrupted and started over at will.

use tantalum_log::{Lsn, Record, Recovery};

use crate::{
    buffer::{BufferPool, PageWriteGuard},
    error::{Error, Result},
    page::{PageId, change, header, record::Changes, record::GroupRecord},
};

/// How far redo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoProgress {
    /// Bytes of the log that are done.
    pub done_bytes: u64,
    /// Bytes of the log from the checkpoint to its end.
    pub total_bytes: u64,
}

/// What redo did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Redo {
    /// Where the records ended; where the store keeps the changes, the position before the session's first.
    pub end: Lsn,
    /// Records read.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
    /// The highest commit sequence number; 0 if there was no commit.
    pub last_commit: u64,
    /// Pages changed, each counted once per record.
    pub pages_changed: u64,
    /// Pages that had the changes of a record already.
    pub pages_skipped: u64,
    /// Torn pages that the store mended before.
    pub torn_pages: u64,
}

/// Applies all records that `log` still has.
pub(super) fn run(pool: &BufferPool, log: &mut Recovery, progress: &mut dyn FnMut(RedoProgress)) -> Result<Redo> {
    let (start, end) = (log.checkpoint_lsn(), log.end_lsn());
    let mut replay = Replay { redo: Redo { end, ..Redo::default() }, newest: end, may_grow: false };
    let total_bytes = end.bytes_since(start);
    while let Some(record) = log.next_record()? {
        replay.apply(pool, &record)?;
        progress(RedoProgress { done_bytes: record.end.bytes_since(start), total_bytes });
    }
    Ok(replay.done())
}

/// Redo, record by record.
#[derive(Debug)]
pub struct Replay {
    redo: Redo,
    /// No page was changed at or past it before its changes are applied here.
    newest: Lsn,
    /// Whether there may be pages that the store has no room for yet; otherwise the store was truncated.
    may_grow: bool,
}

impl Replay {
    /// Redo on copies of pages, none of which was changed at or past `newest`, and of which there may be too few.
    pub fn onto_copies(newest: Lsn) -> Self {
        Self { redo: Redo::default(), newest, may_grow: true }
    }

    /// Applies one record, which follows the one before.
    ///
    /// # Errors
    /// When a page cannot be read, or it or the record is damaged.
    pub fn apply(&mut self, pool: &BufferPool, record: &Record) -> Result<()> {
        let corrupt = |what: String| Error::CorruptRecord { lsn: record.start, what };
        let group = GroupRecord::decode(&record.bytes).map_err(|what| corrupt(what.into()))?;
        let redo = &mut self.redo;
        redo.end = redo.end.max(record.end);
        redo.records += 1;
        if group.is_commit() {
            redo.commits += 1;
            redo.last_commit = redo.last_commit.max(group.sequence());
        }
        self.newest = self.newest.max(record.end);
        for (id, changes) in group.pages() {
            while self.may_grow && id.0 >= pool.store().capacity_pages() {
                pool.store().grow()?;
            }
            let rebuilt = { changes }.next().is_some_and(|first| first.rebuilds());
            let page = if rebuilt { pool.pin_to_rebuild(id)? } else { pool.pin_or_blank(id)? };
            let mut page = page.write();
            if page.lsn() > self.newest {
                let (lsn, newest) = (page.lsn(), self.newest);
                return Err(Error::corrupt_page(
                    &page,
                    format!("it was changed at LSN {lsn}, beyond the end of the log at {newest}"),
                ));
            }
            if page.lsn() >= record.end {
                redo.pages_skipped += 1;
                continue;
            }
            apply_changes(&mut page, id, changes, record).map_err(corrupt)?;
            redo.pages_changed += 1;
        }
        Ok(())
    }

    /// What was done.
    pub fn done(self) -> Redo {
        self.redo
    }
}

fn apply_changes(page: &mut PageWriteGuard, id: PageId, changes: Changes<'_>, record: &Record) -> Result<(), String> {
    let bytes = page.redo(record.start);
    for change in changes {
        change::apply(bytes, &change).map_err(|error| format!("page {id} cannot take one of its changes: {error}"))?;
    }
    header::set_lsn(bytes, record.end);
    Ok(())
}
