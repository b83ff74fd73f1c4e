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
    let mut redo = Redo::default();
    let (start, end) = (log.checkpoint_lsn(), log.end_lsn());
    let total_bytes = end.bytes_since(start);
    while let Some(record) = log.next_record()? {
        apply_record(pool, &record, end, &mut redo)?;
        progress(RedoProgress { done_bytes: record.end.bytes_since(start), total_bytes });
    }
    Ok(redo)
}

fn apply_record(pool: &BufferPool, record: &Record, log_end: Lsn, redo: &mut Redo) -> Result<()> {
    let corrupt = |what: String| Error::CorruptRecord { lsn: record.start, what };
    let group = GroupRecord::decode(&record.bytes).map_err(|what| corrupt(what.into()))?;
    redo.records += 1;
    if group.is_commit() {
        redo.commits += 1;
        redo.last_commit = redo.last_commit.max(group.sequence());
    }
    for (id, changes) in group.pages() {
        let rebuilt = { changes }.next().is_some_and(|first| first.rebuilds());
        let page = if rebuilt { pool.pin_to_rebuild(id)? } else { pool.pin_or_blank(id)? };
        let mut page = page.write();
        if page.lsn() > log_end {
            return Err(Error::corrupt_page(
                &page,
                format!("it was changed at LSN {}, beyond the end of the log at {log_end}", page.lsn()),
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

fn apply_changes(page: &mut PageWriteGuard, id: PageId, changes: Changes<'_>, record: &Record) -> Result<(), String> {
    let bytes = page.redo(record.start);
    for change in changes {
        change::apply(bytes, &change).map_err(|error| format!("page {id} cannot take one of its changes: {error}"))?;
    }
    header::set_lsn(bytes, record.end);
    Ok(())
}
