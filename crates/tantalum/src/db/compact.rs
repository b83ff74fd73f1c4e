//! Giving space back while the database is in use. In the data file, pages move from the end to free ones in front, and the file is cut
//! off behind the last page in use, or behind the last segment in use of a log-structured store, which empties segments for it. The
//! log gets a smaller file ([`Core::shrink_log`]).
//!
//! Each page moves in a change group of its own, so commits and readers wait for it as for a split. Pages that a dropped table or a
//! large transaction still holds stay where they are, as do the overflow pages of earlier versions: what lies before the last of them
//! stays in the file.

use tantalum_store::{PackProgress, PageId, PageKind, page::header};

use super::{Core, Db};
use crate::{
    error::{ErrorKind, Result},
    tree::{Moved, lower_fence},
};

/// How far [`Db::compact`] is.
///
/// ```
/// use tantalum::{CompactProgress, CompactStep};
/// let progress = CompactProgress { step: CompactStep::MovePages, done_pages: 1, total_pages: 2 };
/// assert!(progress.done_pages <= progress.total_pages);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompactProgress {
    /// What is being done; the counts begin anew with each step.
    pub step: CompactStep,
    /// Pages that were looked at, most of which have moved.
    pub done_pages: u64,
    /// Pages to look at. While segments are emptied, writers make them more or fewer.
    pub total_pages: u64,
}

/// The step that a compaction is in.
///
/// ```
/// use tantalum::CompactStep;
/// assert_eq!(serde_json::to_value(CompactStep::EmptySegments).unwrap(), "empty-segments");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum CompactStep {
    /// Pages move to free ones further in front.
    MovePages,
    /// A log-structured store moves pages out of segments that are mostly dead, or lie at the end.
    EmptySegments,
}

/// What [`Db::compact`] did.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let report = db.compact(&mut |_| {})?;
/// assert!(report.data_bytes_after <= report.data_bytes_before && report.data_kept.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompactReport {
    /// Pages that moved to the front of the data file.
    pub pages_moved: u64,
    /// Bytes of the data file before.
    pub data_bytes_before: u64,
    /// Bytes of the data file now.
    pub data_bytes_after: u64,
    /// Of them, those that take no space on disk: free segments of a log-structured store.
    pub data_bytes_unallocated: u64,
    /// Why the data file keeps its size, if it cannot be cut off: null for one that can.
    pub data_kept: Option<String>,
    /// Bytes of the log's files that were given back; 0 for a log that has not grown, or is needed as it is.
    pub log_bytes_given_back: u64,
}

/// Gives back what the database does not need.
pub(super) fn run(core: &Core, report: &mut dyn FnMut(CompactProgress)) -> Result<CompactReport> {
    let data_bytes = || core.pool.store().stats().capacity_bytes;
    let mut done = CompactReport {
        pages_moved: 0,
        data_bytes_before: data_bytes(),
        data_bytes_after: 0,
        data_bytes_unallocated: 0,
        data_kept: None,
        log_bytes_given_back: 0,
    };
    match compact_data(core, &mut done.pages_moved, report) {
        Err(error) if error.kind() == ErrorKind::Unsupported => done.data_kept = Some(error.to_string()),
        compacted => done.data_bytes_unallocated = compacted?,
    }
    done.data_bytes_after = data_bytes();
    // Last: what was moved has filled it.
    done.log_bytes_given_back = core.shrink_log()?;
    Ok(done)
}

/// Returns the bytes of the data file that take no space on disk then.
fn compact_data(core: &Core, pages_moved: &mut u64, report: &mut dyn FnMut(CompactProgress)) -> Result<u64> {
    // One at a time; nor is the database checked meanwhile, which would find roots in other places than it saw them named.
    let _alone = core.checks.lock();
    core.space.check_gives_space_back()?;
    // What is free at the end already is given back first: if it cannot be, no page is moved.
    shrink(core)?;
    let to_move = pages_behind_those_in_use(core)?;
    let total_pages = to_move.len() as u64;
    for (done_pages, page) in (0..).zip(to_move) {
        report(CompactProgress { step: CompactStep::MovePages, done_pages, total_pages });
        let _operation = core.begin_operation()?;
        match move_page(core, page)? {
            Some(Moved::Forward) => *pages_moved += 1,
            Some(Moved::Gone) => {}
            Some(Moved::NoRoom | Moved::IsRoot) | None => break,
        }
    }
    report(CompactProgress { step: CompactStep::MovePages, done_pages: total_pages, total_pages });
    let unallocated_bytes = shrink(core)?;
    if !pack(core, report)? {
        return Ok(unallocated_bytes);
    }
    // If that is wanted again, what was given back before stays so.
    Ok(match shrink(core)? {
        0 => unallocated_bytes,
        more => more,
    })
}

fn shrink(core: &Core) -> Result<u64> {
    let _operation = core.begin_operation()?;
    core.space.shrink()
}

/// Closing waits for one piece of the work only.
fn pack(core: &Core, report: &mut dyn FnMut(CompactProgress)) -> Result<bool> {
    let mut operation = Some(core.begin_operation()?);
    core.space.pack(&mut |PackProgress { moved_blocks, left_blocks }| {
        let total_pages = moved_blocks + left_blocks;
        report(CompactProgress { step: CompactStep::EmptySegments, done_pages: moved_blocks, total_pages });
        drop(operation.take());
        operation = Some(core.begin_operation()?);
        Ok(())
    })
}

/// The pages that need not lie where they do, the last one first: they lie behind as many pages as are in use.
fn pages_behind_those_in_use(core: &Core) -> Result<Vec<PageId>> {
    let mut pages = Vec::new();
    core.space.for_each_allocated(&mut |page| pages.push(page))?;
    let end = core.space.end_if_packed(pages.len() as u64);
    Ok(pages.into_iter().rev().take_while(|page| page.0 >= end).collect())
}

/// Moves what is in a page; `None` if it cannot be moved.
fn move_page(core: &Core, id: PageId) -> Result<Option<Moved>> {
    let (owner, level, lower) = {
        let page = core.pool.pin_or_blank(id)?.read();
        match header::kind(&page)? {
            PageKind::Leaf | PageKind::Inner => {}
            PageKind::Free => return Ok(Some(Moved::Gone)),
            _ => return Ok(None),
        }
        (header::owner(&page), header::level(&page), lower_fence(&page)?.to_vec())
    };
    core.catalog.move_node(owner, id, &lower, level)
}

impl Db {
    /// Gives space back to the file system while transactions go on: pages move from the end of the data file to free pages further
    /// in front, and the file and its double-write area are cut off behind. A log-structured store moves what is live out of the segments
    /// at the end and out of those that are half dead, cuts the file off, and gives the space of the free segments that stay back where
    /// the file system can do that. First it waits until large transactions that are committed
    /// are in their tables, and dead large values are deleted. Each page that moves is written to the log; a commit
    /// waits for one as for a split. Takes a checkpoint at the end. Compactions and [checks](Self::check) are made one after the
    /// other.
    ///
    /// What a large transaction or a table that is being dropped holds at the end of the file stays there until the next time, and so
    /// do large values that versions before this one wrote. The data file keeps its size where it is a device of a fixed size, and with
    /// in-page logging; the report says so.
    ///
    /// A log that has grown gets a file of its initial size, unless a transaction waits for it that needs more, or its devices are
    /// named by [`log_devices`](crate::Builder::log_devices).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let rows = db.table("rows")?;
    /// for first in 0..40u32 {
    ///     let mut tx = db.begin()?;
    ///     (0..100u32).try_for_each(|key| tx.put(&rows, (100 * first + key).to_be_bytes(), [7; 500]))?;
    ///     tx.commit()?;
    /// }
    /// drop(rows);
    /// db.drop_table("rows")?;
    /// let report = db.compact(&mut |_| {})?;
    /// assert!(report.data_bytes_after < report.data_bytes_before / 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`InUse`](ErrorKind::InUse) while a base backup is being copied; [`NoSpace`](ErrorKind::NoSpace) where there is none for the
    /// smaller file of the log; [`ReadOnly`](ErrorKind::ReadOnly), [`Closed`](ErrorKind::Closed); what a device or the log reports.
    /// Pages that have moved stay where they are then.
    pub fn compact(&self, report: &mut dyn FnMut(CompactProgress)) -> Result<CompactReport> {
        self.core().check_writable()?;
        self.open.manager.settle();
        run(self.core(), report)
    }
}
