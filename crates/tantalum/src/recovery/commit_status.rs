//! Opening where the store keeps the changes: the log says which groups are committed, and nothing is repeated or undone
//! ("Design of Flash-Based DBMS: An In-Page Logging Approach", section 5.4).

use std::sync::Arc;

use tantalum_log::{LsnRange, Recovery};
use tantalum_store::{PageStore, Session, Watermarks, page::status_record::StatusRecord, position};

use super::{Opened, RecoveryStats, RedoProgress};
use crate::{
    buffer::{BufferPool, CommitStatusLog, PoolOptions},
    error::{self, Result},
    space::Space,
};

/// Reads the statuses, begins a session, and opens the store. The groups that were active at a crash are those beyond their
/// session's watermark: nothing needs to be written to abort them.
pub(super) fn open(
    store: Arc<dyn PageStore>,
    mut log: Recovery,
    options: &PoolOptions,
    stamp: &mut dyn FnMut(u64) -> Result<()>,
    progress: &mut dyn FnMut(RedoProgress),
) -> Result<Opened> {
    // A session's number must never be used again, once a change bears it.
    log.begin_epoch(stamp)?;
    let mut redo = RecoveryStats::default();
    let (past, newest) = read(&mut log, &mut redo, progress)?;
    let log = log.finish()?;
    let statuses = Arc::new(CommitStatusLog::new(log.clone(), past.clone(), redo.last_commit, newest));
    redo.end_lsn = statuses.last_position();
    let epoch = position::epoch_of(redo.end_lsn);
    let horizon: Arc<dyn tantalum_store::Horizon> = statuses.clone();
    let oldest = store.begin_session(Session { epoch, past, horizon })?;
    statuses.forget_before(oldest);
    let pool = BufferPool::with_commit_status_log(store, options, Arc::clone(&statuses));
    // What the newest record says twice must not fill the log: this session may begin with little room in it.
    if redo.records > 1 {
        statuses.trim_log()?;
    }
    pool.attach_log(log);
    tantalum_rt::tracing::info!(records = redo.records, epoch, "the database is recovered");
    let space = Space::new(&pool);
    Ok(Opened { pool, space, redo })
}

/// How far past sessions were committed: the newest record says it of all of them.
fn read(
    log: &mut Recovery,
    redo: &mut RecoveryStats,
    progress: &mut dyn FnMut(RedoProgress),
) -> Result<(Watermarks, Option<LsnRange>)> {
    let (start, end) = (log.checkpoint_lsn(), log.end_lsn());
    let (mut past, mut newest) = (Watermarks::default(), None);
    while let Some(record) = log.next_record()? {
        let corrupt = |what: &str| error::corrupt_record(record.start, what);
        let status = StatusRecord::decode(&record.bytes).map_err(corrupt)?;
        status.past.iter().for_each(|watermark| past.commit(*watermark));
        past.commit(status.through);
        past.forget_before(status.oldest);
        newest = Some(LsnRange { start: record.start, end: record.end });
        redo.records += 1;
        redo.last_commit = redo.last_commit.max(status.last_commit);
        progress(RedoProgress { done_bytes: record.end.bytes_since(start), total_bytes: end.bytes_since(start) });
    }
    Ok((past, newest))
}
