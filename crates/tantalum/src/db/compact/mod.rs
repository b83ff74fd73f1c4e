//! Giving space back while the database is in use. In the data file, pages move from the end to free ones in front ([`mover`]), and
//! the file is cut off behind the last page in use, or behind the last segment or erase unit in use of the stores that have such, which
//! move what is in them for it. The log gets a smaller file ([`Core::shrink_log`]).
//!
//! Each page moves in a change group of its own, so commits and readers wait for it as for a split. A value in overflow pages, as earlier
//! versions wrote them, is written anew to the value tree of its table. What cannot be moved keeps what lies before it in the file,
//! and the report names it ([`kept`]).

mod kept;
mod mover;

use tantalum_store::PackProgress;

use self::mover::Mover;
use super::{Core, Db};
use crate::{
    error::{ErrorKind, Result},
    space::Shrunk,
};

/// How far [`Db::compact`] is.
///
/// ```
/// use tantalum::{CompactProgress, CompactStep};
/// let progress = CompactProgress { step: CompactStep::MovePages, done: 1, total: 2 };
/// assert!(progress.done <= progress.total);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompactProgress {
    /// What is being done; the counts begin anew with each step.
    pub step: CompactStep,
    /// What was done of it: pages that were looked at, most of which have moved; in the first step, staging tables and values.
    pub done: u64,
    /// What there is to do. Writers make it more or less, but for the pages that move.
    pub total: u64,
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
    /// Rows of large transactions that are committed go to their tables, and large values that no row has are deleted.
    FinishTransactions,
    /// Pages move to free ones further in front.
    MovePages,
    /// Large values that an earlier version wrote into overflow pages at the end of the file are written anew.
    ConvertValues,
    /// A log-structured store moves pages out of segments that are mostly dead, or lie at the end; in-page logging moves erase units from
    /// the end, which are counted instead.
    EmptySegments,
}

/// So often, the end of the file is tried to be cut off that transactions take pages of meanwhile.
const SHRINK_TRIES: u32 = 4;

/// Pages that keep the end of the data file, and what they are; see [`CompactReport::end_kept`].
///
/// ```
/// let kept = tantalum::KeptPages { pages: 3, by: "a large transaction that is open; compact again when it has ended".into() };
/// assert!(kept.by.contains("compact again"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KeptPages {
    /// How many pages.
    pub pages: u64,
    /// What has them, and what to do.
    pub by: String,
}

/// What [`Db::compact`] did.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let report = db.compact(&mut |_| {})?;
/// assert!(report.data_bytes_after <= report.data_bytes_before && report.data_kept.is_none());
/// assert_eq!(report.end_kept, []);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CompactReport {
    /// Pages that moved to the front of the data file.
    pub pages_moved: u64,
    /// Large values that earlier versions wrote into overflow pages, and that were written anew.
    pub values_converted: u64,
    /// Bytes of the data file before.
    pub data_bytes_before: u64,
    /// Bytes of the data file now.
    pub data_bytes_after: u64,
    /// Of them, those that take no space on disk: free segments of a log-structured store.
    pub data_bytes_unallocated: u64,
    /// Why the data file keeps its size, if it cannot be cut off: null for one that can.
    pub data_kept: Option<String>,
    /// What keeps the data file longer than its pages need: empty if nothing does.
    pub end_kept: Vec<KeptPages>,
    /// Bytes of the log's files that were given back; 0 for a log that has not grown, or is needed as it is.
    pub log_bytes_given_back: u64,
}

/// Gives back what the database does not need.
fn run(db: &Db, report: &mut dyn FnMut(CompactProgress)) -> Result<CompactReport> {
    let core = db.core();
    let data_bytes = || core.pool.store().stats().capacity_bytes;
    let mut done = CompactReport {
        pages_moved: 0,
        values_converted: 0,
        data_bytes_before: data_bytes(),
        data_bytes_after: 0,
        data_bytes_unallocated: 0,
        data_kept: None,
        end_kept: Vec::new(),
        log_bytes_given_back: 0,
    };
    match compact_data(db, &mut done, report) {
        Err(error) if error.kind() == ErrorKind::Unsupported => done.data_kept = Some(error.to_string()),
        compacted => compacted?,
    }
    done.data_bytes_after = data_bytes();
    // Last: what was moved has filled it.
    done.log_bytes_given_back = core.shrink_log()?;
    Ok(done)
}

fn compact_data(db: &Db, done: &mut CompactReport, report: &mut dyn FnMut(CompactProgress)) -> Result<()> {
    let core = db.core();
    // One at a time; nor is the database checked meanwhile, which would find roots in other places than it saw them named.
    let _alone = core.checks.lock();
    core.space.check_gives_space_back()?;
    // What is free at the end already is given back first: if it cannot be, no page is moved.
    shrink(core)?;
    let mut mover = Mover::new(db, &mut *report);
    mover.run()?;
    let skipped = mover.finish(done);
    let mut shrunk = shrink(core)?;
    if pack(core, report)? {
        // If that is wanted again, what was given back before stays so.
        let again = shrink(core)?;
        shrunk.is_wanted = again.is_wanted;
        shrunk.unallocated_bytes = if again.unallocated_bytes > 0 { again } else { shrunk }.unallocated_bytes;
    }
    done.data_bytes_unallocated = shrunk.unallocated_bytes;
    done.end_kept = kept::at_the_end(core, shrunk.is_wanted, &skipped)?;
    Ok(())
}

/// Tried again if transactions need the pages meanwhile: each time, the checkpoint takes less time.
fn shrink(core: &Core) -> Result<Shrunk> {
    let mut tries = 0;
    loop {
        tries += 1;
        let _operation = core.begin_operation()?;
        let shrunk = core.space.shrink()?;
        if !shrunk.is_wanted || tries == SHRINK_TRIES {
            return Ok(shrunk);
        }
    }
}

/// Closing waits for one piece of the work only.
fn pack(core: &Core, report: &mut dyn FnMut(CompactProgress)) -> Result<bool> {
    let mut operation = Some(core.begin_operation()?);
    core.space.pack(&mut |PackProgress { moved_blocks, left_blocks }| {
        let total = moved_blocks + left_blocks;
        report(CompactProgress { step: CompactStep::EmptySegments, done: moved_blocks, total });
        drop(operation.take());
        operation = Some(core.begin_operation()?);
        Ok(())
    })
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
    /// Large values that versions before value trees wrote into overflow pages at the end of the file are written anew, each by a
    /// transaction of its own, whose write is none to the change feed; one whose row is locked stays. The report says what keeps the end
    /// of the file, and what to do then: what a large transaction that is open needs for its savepoints, a table that is being dropped,
    /// row versions of snapshots. The data file keeps its size where it is a device of a fixed size; the report says so.
    /// With in-page logging, erase units move to the front; what may be active of a file that was large keeps up to a 32nd of that size
    /// until the database is opened again.
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
        self.open.manager.settle(&mut |done, total| {
            report(CompactProgress { step: CompactStep::FinishTransactions, done, total });
        });
        run(self, report)
    }
}
