//! Redo: the changes that the log has and the stored pages may lack, in the order of the log.
//!
//! A page's LSN says which changes it holds; those are skipped, so redo can be interrupted and started over at will.
//!
//! What happens to one page does not depend on another, so several tasks apply changes at a time, each to pages of its own: most
//! of the time a task waits for a page to be read. Meanwhile the next piece of the log is read.

use std::ops::Range;

use tantalum_log::{Lsn, Record, Recovery};
use tantalum_rt::{JoinHandle, spawn};
use tantalum_store::{
    PageId,
    page::{
        change, header,
        record::{Changes, GroupRecord},
    },
};

use crate::{
    buffer::BufferPool,
    error::{self, Error, Result},
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RecoveryStats {
    /// Where the log ended; where the store keeps the changes, the position before the session's first.
    pub end_lsn: Lsn,
    /// Log records read.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
    /// The highest commit sequence number; 0 if there was no commit.
    #[serde(skip)]
    pub(crate) last_commit: u64,
    /// Pages that lacked changes, each counted once per record.
    pub pages_changed: u64,
    /// Pages that had the changes of a record already.
    pub pages_skipped: u64,
    /// Torn pages put back from the double-write area.
    pub torn_pages: u64,
}

impl RecoveryStats {
    /// Whether there were changes of pages, which a later redo need not look at again if a checkpoint follows.
    pub(crate) fn has_applied(&self) -> bool {
        self.pages_changed + self.pages_skipped > 0
    }
}

/// The most tasks that apply changes at a time.
const APPLIERS: usize = 8;
/// Frames for each of them at least: it holds one, and needs others to make room for the next.
const FRAMES_FOR_EACH: usize = 4;
/// Bytes of the log that they are given at a time.
const PIECE_BYTES: u64 = 4 << 20;

/// Applies all records that `log` still has.
pub(super) fn run(
    pool: &BufferPool,
    log: &mut Recovery,
    progress: &mut dyn FnMut(RedoProgress),
) -> Result<RecoveryStats> {
    let (start, end) = (log.checkpoint_lsn(), log.end_lsn());
    let total_bytes = end.bytes_since(start);
    let appliers = APPLIERS.min(pool.frames() / FRAMES_FOR_EACH).max(1);
    let mut replay = Replay {
        redo: RecoveryStats { end_lsn: end, ..RecoveryStats::default() },
        newest: end,
        may_grow: false,
        shares: (0..appliers).map(|_| Share::default()).collect(),
    };
    let (mut applying, mut applying_to, mut taken_to) = (Appliers::default(), start, start);
    loop {
        let record = log.next_record()?;
        if let Some(record) = &record {
            replay.take(pool, record)?;
            taken_to = record.end;
        }
        if record.is_none() || taken_to.bytes_since(applying_to) >= PIECE_BYTES {
            replay.count(applying.join()?);
            progress(RedoProgress { done_bytes: applying_to.bytes_since(start), total_bytes });
            applying = Appliers::start(pool, &mut replay.shares);
            applying_to = taken_to;
        }
        if record.is_none() {
            break;
        }
    }
    replay.count(applying.join()?);
    progress(RedoProgress { done_bytes: total_bytes, total_bytes });
    Ok(replay.done())
}

/// Redo, record by record.
#[derive(Debug)]
pub struct Replay {
    redo: RecoveryStats,
    /// No page was changed at or past it before its changes are applied here.
    newest: Lsn,
    /// Whether there may be pages that the store has no room for yet; otherwise the store was truncated.
    may_grow: bool,
    /// What was taken and is to be applied, each by one task.
    shares: Vec<Share>,
}

impl Replay {
    /// Redo on copies of pages, none of which was changed at or past `newest`, and of which there may be too few.
    pub fn onto_copies(newest: Lsn) -> Self {
        Self { redo: RecoveryStats::default(), newest, may_grow: true, shares: vec![Share::default()] }
    }

    /// Applies one record, which follows the one before.
    ///
    /// # Errors
    /// When a page cannot be read, or it or the record is damaged.
    pub fn apply(&mut self, pool: &BufferPool, record: &Record) -> Result<()> {
        self.take(pool, record)?;
        let shares = self.shares.iter_mut().map(std::mem::take);
        let applied = shares.map(|share| share.apply(pool)).reduce(Applied::and).expect("there is a share");
        self.count(applied.result()?);
        Ok(())
    }

    /// Distributes the changes of a record, which follows the one before.
    fn take(&mut self, pool: &BufferPool, record: &Record) -> Result<()> {
        let corrupt = |what: &str| error::corrupt_record(record.start, what);
        let group = GroupRecord::decode(&record.bytes).map_err(corrupt)?;
        let redo = &mut self.redo;
        redo.end_lsn = redo.end_lsn.max(record.end);
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
            let share = id.0 as usize % self.shares.len();
            self.shares[share].push(id, changes, record, self.newest);
        }
        Ok(())
    }

    fn count(&mut self, pages: Pages) {
        self.redo.pages_changed += pages.changed;
        self.redo.pages_skipped += pages.skipped;
    }

    /// What was done.
    pub fn done(self) -> RecoveryStats {
        self.redo
    }
}

/// The changes of some pages, in the order of the log.
#[derive(Debug, Default)]
struct Share {
    /// Of all changes.
    bytes: Vec<u8>,
    groups: Vec<PageGroup>,
}

/// What one record changes in one page.
#[derive(Debug)]
struct PageGroup {
    page: PageId,
    /// Where the changes are.
    changes: Range<usize>,
    /// Of the record.
    start: Lsn,
    end: Lsn,
    /// The page was not changed beyond this.
    newest: Lsn,
}

#[derive(Clone, Copy, Debug, Default)]
struct Pages {
    changed: u64,
    skipped: u64,
}

/// How applying ended, and if it failed, at which record.
struct Applied(std::result::Result<Pages, (Lsn, Error)>);

impl Applied {
    /// Both; of two failures that at the earlier record.
    fn and(self, other: Self) -> Self {
        Self(match (self.0, other.0) {
            (Ok(a), Ok(b)) => Ok(Pages { changed: a.changed + b.changed, skipped: a.skipped + b.skipped }),
            (Err(a), Err(b)) => Err(if b.0 < a.0 { b } else { a }),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        })
    }

    fn result(self) -> Result<Pages> {
        self.0.map_err(|(_, error)| error)
    }
}

impl Share {
    fn push(&mut self, page: PageId, changes: Changes<'_>, record: &Record, newest: Lsn) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(changes.bytes());
        let changes = start..self.bytes.len();
        self.groups.push(PageGroup { page, changes, start: record.start, end: record.end, newest });
    }

    fn apply(self, pool: &BufferPool) -> Applied {
        let mut pages = Pages::default();
        for group in &self.groups {
            match group.apply(pool, Changes::checked(&self.bytes[group.changes.clone()])) {
                Ok(true) => pages.changed += 1,
                Ok(false) => pages.skipped += 1,
                Err(error) => return Applied(Err((group.start, error))),
            }
        }
        Applied(Ok(pages))
    }
}

impl PageGroup {
    /// False if the page had the changes already.
    fn apply(&self, pool: &BufferPool, changes: Changes<'_>) -> Result<bool> {
        let id = self.page;
        let rebuilt = { changes }.next().is_some_and(|first| first.rebuilds());
        let page = if rebuilt { pool.pin_to_rebuild(id)? } else { pool.pin_or_blank(id)? };
        let mut page = page.write();
        if page.lsn() > self.newest {
            let (lsn, newest) = (page.lsn(), self.newest);
            return Err(error::corrupt_page(
                &page,
                format!("it was changed at LSN {lsn}, beyond the end of the log at {newest}"),
            ));
        }
        if page.lsn() >= self.end {
            return Ok(false);
        }
        let bytes = page.redo(self.start);
        for change in changes {
            change::apply(bytes, &change).map_err(|error| {
                let what = format!("page {id} cannot take one of its changes: {error}");
                error::corrupt_record(self.start, what)
            })?;
        }
        header::set_lsn(bytes, self.end);
        Ok(true)
    }
}

/// The tasks that apply a piece of the log.
#[derive(Default)]
struct Appliers(Vec<JoinHandle<Applied>>);

impl Appliers {
    /// Has the shares applied, and leaves empty ones.
    fn start(pool: &BufferPool, shares: &mut [Share]) -> Self {
        let start = |(number, share): (usize, &mut Share)| {
            let (share, pool) = (std::mem::take(share), pool.clone());
            spawn(format!("redo-{number}"), move || share.apply(&pool))
        };
        let with_work = shares.iter_mut().enumerate().filter(|(_, share)| !share.groups.is_empty());
        Self(with_work.map(start).collect())
    }

    /// Waits until all is applied.
    fn join(mut self) -> Result<Pages> {
        let applied = std::mem::take(&mut self.0).into_iter().map(JoinHandle::join_or_panic);
        applied.reduce(Applied::and).map_or(Ok(Pages::default()), Applied::result)
    }
}

impl Drop for Appliers {
    /// Waits for the tasks: none of them stores pages of a database whose opening has failed.
    fn drop(&mut self) {
        self.0.drain(..).for_each(|task| drop(task.join()));
    }
}
