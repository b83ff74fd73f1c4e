//! The change sink of stores that are given whole pages: a group is one record of the log, and redo follows a crash.
//!
//! Checkpoints are fuzzy: pages are changed while one runs. Redo from the checkpoint finds every change that is not stored,
//! because a page is marked dirty before its change is appended, with an LSN at or before the record.

use std::time::Duration;

use tantalum_log::{Log, Lsn, SpaceRequest};
use tantalum_rt::RwLockReadGuard;
use tantalum_store::{
    PageId, Protection,
    page::{change, record},
};

use super::{
    BufferPool, PageWriteGuard, Reservation,
    change_sink::{ChangeSink, Group},
    free_list::WritePermit,
    poison::PoisonGuard,
    pool::Shared,
    redo_point::RedoPoint,
};
use crate::{
    error::{ErrorKind, GroupError, GroupResult, Lack, Result},
    limits::GroupLimit,
};

/// The backoff after a checkpoint that freed no log space.
const BACKOFF: Duration = Duration::from_millis(1);

/// Groups are logged whole, in the pool's log.
#[derive(Debug)]
pub(super) struct RedoLog;

impl ChangeSink for RedoLog {
    fn end(&self, pool: &Shared) -> Option<Lsn> {
        pool.log.get().map(Log::end_lsn)
    }

    fn group_limit(&self, pool: &Shared) -> GroupLimit {
        let remedy = "create the database with larger log_bytes";
        let is_of_devices = pool.log().devices_bound_records();
        GroupLimit { bytes: pool.log().max_record_bytes(), remedy: is_of_devices.then_some(remedy) }
    }

    fn space_limit(&self, pool: &Shared) -> GroupLimit {
        let bytes = usize::try_from(pool.log().largest_space_request()).unwrap_or(usize::MAX);
        GroupLimit { bytes, remedy: Some("create the database with larger log_bytes") }
    }

    fn append<'p>(&self, pool: &'p Shared, group: Group<'_>) -> GroupResult<(Lsn, PoisonGuard<'p>)> {
        let guard = pool.poison_unless_ended("a change group was between the log and its pages");
        // Marked before the append: a checkpoint that begins after the record finds the pages dirty, and one that
        // begins before it starts redo before the record.
        let rec_lsn = pool.log().end_lsn();
        let were_clean: Vec<bool> = group.pages.iter().map(|page| page.guard.state().mark_dirty(rec_lsn)).collect();
        tantalum_rt::interleave();
        match append_group(pool, group) {
            Ok(end) => Ok((end, guard)),
            Err(error) => {
                for (page, was_clean) in group.pages.iter().zip(were_clean) {
                    if was_clean {
                        page.guard.state().unmark_dirty();
                    }
                }
                guard.end();
                Err(error)
            }
        }
    }

    fn force(&self, _pool: &Shared, position: Lsn) -> Result<Lsn> {
        Ok(position)
    }

    fn flush(&self, pool: &Shared, position: Lsn) -> Result<()> {
        pool.log().flush(position)
    }

    fn write_back(&self, pool: &Shared, permit: &mut WritePermit<'_>, pages: &mut [(PageId, usize)]) -> Result<usize> {
        pool.write_pages_back(permit, pages)
    }

    fn checkpoint(&self, pool: &BufferPool) -> Result<Lsn> {
        let (log, shared) = (pool.log(), &pool.shared);
        // Redo from the new checkpoint would not see what is still to be applied.
        pool.finish_redo()?;
        let start = {
            let mut redo_point = shared.redo_point.write();
            redo_point.advance(log, &*shared.store, shared.protection);
            redo_point.lsn
        };
        tantalum_rt::interleave();
        shared.write_back_all_before(start)?;
        log.flush(start)?;
        log.set_checkpoint(start)?;
        tantalum_rt::tracing::debug!(lsn = start.get(), "checkpoint");
        Ok(start)
    }

    fn relieve_log(&self, pool: &BufferPool) -> Result<Lsn> {
        pool.checkpoint()
    }

    fn wait_for_space(&self, pool: &BufferPool, needed: usize) -> Result<Option<SpaceRequest>> {
        tantalum_rt::tracing::debug!(needed, "waiting for a checkpoint to make room in the log");
        let request = pool.log().request_space(needed as u64)?;
        let checkpoints = &pool.shared.checkpoints;
        loop {
            let before = checkpoints.last();
            // One that runs makes room too.
            let lsn = checkpoints.join_or_run(|| pool.run_checkpoint())?;
            // If it let go of nothing, room comes from elsewhere, such as a device that is joining. That takes time, which must
            // not be spent on checkpoints.
            let is_in_vain = matches!(before, Some(Ok(before)) if before == lsn);
            if request.wait(if is_in_vain { BACKOFF } else { Duration::ZERO })? {
                return Ok(Some(request));
            }
        }
    }
}

/// Appends a group's record, and before it the page images that are needed.
fn append_group(pool: &Shared, group: Group<'_>) -> GroupResult<Lsn> {
    let Group { pages, reservation, flags, sequence, feed } = group;
    let mut heads = Vec::with_capacity(16 * (pages.len() + 1));
    let mut ends = Vec::with_capacity(pages.len() + 1);
    record::encode_start(&mut heads, flags, sequence, feed.len());
    for page in pages {
        ends.push(heads.len());
        record::encode_page(&mut heads, page.guard.id(), page.count);
    }
    ends.push(heads.len());
    let mut parts = Vec::with_capacity(2 * pages.len() + 2);
    parts.push(&heads[..ends[0]]);
    parts.push(feed);
    for (index, page) in pages.iter().enumerate() {
        parts.push(&heads[ends[index]..ends[index + 1]]);
        parts.push(&page.changes);
    }
    let record = parts.iter().map(|part| part.len()).sum();
    if pool.log().must_grow_for(record) {
        return Err(Lack::LogSize(record).into());
    }
    // Redo makes the others anew.
    let imaged = || pages.iter().filter(|page| !page.rebuilt);
    // What the images and the record need together, where one of them found no space: after the wait all are appended.
    let all_of = |error: GroupError| {
        let needed = match error {
            GroupError::Lacks(Lack::LogSpace(needed)) => needed,
            // The log has shrunk since it was asked.
            GroupError::Failed(error) if error.kind() == ErrorKind::TooLarge && pool.log().must_grow_for(record) => {
                return Lack::LogSize(record).into();
            }
            // Large values need more than was reckoned with while they were written.
            GroupError::Failed(error) if error.kind() == ErrorKind::TooLarge && flags & record::COMMIT != 0 => {
                return pool.sink.group_limit(pool).refuse(record).into();
            }
            error => return error,
        };
        let of = |bytes: usize| pool.log().space_needed(bytes).map_or(0, |needed| needed as usize);
        let images = match pool.protection {
            Protection::FullPageImages => imaged().count() * of(pool.page_size + record::IMAGE_HEADS_BYTES),
            _ => 0,
        };
        Lack::LogSpace(needed.max(images + of(record))).into()
    };
    // Until the record is in the log, no checkpoint may begin that would make another page need an image.
    let images = imaged().map(|page| &page.guard);
    let mut space = reservation.and_then(Reservation::take_log_space);
    let _gate = append_page_images(pool, images, space.as_mut()).map_err(all_of)?;
    tantalum_rt::interleave();
    append_record(pool.log(), &parts, space.as_mut()).map_err(all_of)
}

/// Logs the images that `pages` need before their next change. No checkpoint begins while the returned gate is held.
fn append_page_images<'s, 'p>(
    pool: &'s Shared,
    pages: impl Iterator<Item = &'p PageWriteGuard>,
    mut space: Option<&mut SpaceRequest>,
) -> GroupResult<Option<RwLockReadGuard<'s, RedoPoint>>> {
    if pool.protection != Protection::FullPageImages {
        return Ok(None);
    }
    let redo_point = pool.redo_point.read();
    for page in pages.filter(|page| page.lsn() <= redo_point.lsn) {
        let mut head = Vec::with_capacity(record::IMAGE_HEADS_BYTES);
        record::encode_start(&mut head, 0, 0, 0);
        record::encode_page(&mut head, page.id(), 1);
        change::encode_image_head(&mut head, page.len());
        append_record(pool.log(), &[&head, page], space.as_deref_mut())?;
        pool.counters.page_images.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
    Ok(Some(redo_point))
}

/// Appends a record to the log, with space that was waited for if there is some.
fn append_record(log: &Log, parts: &[&[u8]], space: Option<&mut SpaceRequest>) -> GroupResult<Lsn> {
    let appended = match space {
        Some(space) => log.append_requested(parts, space),
        None => log.append(parts),
    };
    match appended {
        Ok(range) => Ok(range.end),
        Err(error) => Err(GroupError::of_log(error)),
    }
}
