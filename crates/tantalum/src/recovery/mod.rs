//! From what a crash left to a database that can be used; and what keeps that way short.
//!
//! [`open`] mends torn pages and reads the log from the last checkpoint on; what it changes in a page is applied when the page is first
//! used. [`Checkpointer`] runs a checkpoint after that, which applies the rest, while the database is in use already; so the next crash
//! starts from there; and further ones when the log asks for them.

mod checkpointer;
mod commit_status;
mod lost_log;
mod redo;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use tantalum_store::{Logging, PageStore};

pub use checkpointer::Checkpointer;
pub use lost_log::check_pages;
pub use redo::{RecoveryStats, RedoProgress, Replay};
pub(crate) use watch::remedy;

use crate::{
    buffer::{BufferPool, PoolOptions},
    error::Result,
    space::{Space, check_not_truncated},
};

/// What [`open`] made ready.
#[derive(Debug)]
pub struct Opened {
    /// The pool, with its log. Its [`Cleaner`](crate::buffer::Cleaner) and [`Checkpointer`] are the caller's to start.
    pub pool: BufferPool,
    /// The space of the pool's store.
    pub space: Space,
    /// What recovery did.
    pub redo: RecoveryStats,
}

/// Recovers a database; also the way to open one that was closed cleanly, or was just created and is empty. `stamp` notes the
/// session, which it is given, durably in the database's other files.
///
/// # Errors
/// When a device cannot read or write, or what is needed is damaged. Recovery can be tried again.
pub fn open(
    store: Arc<dyn PageStore>,
    mut log: tantalum_log::Recovery,
    options: &PoolOptions,
    stamp: &mut dyn FnMut(u64) -> Result<()>,
    progress: &mut dyn FnMut(RedoProgress),
) -> Result<Opened> {
    if store.logging() == Logging::CommitStatus {
        return commit_status::open(store, log, options, stamp, progress);
    }
    let torn_pages = store.recover()?;
    // The archive must have what redo reads before redo stores a page, and pages that are stored belong to a session that is noted.
    // Before anything bears the new session: the whole file can then be put back.
    check_not_truncated(&*store)?;
    log.begin_epoch(stamp)?;
    let pool = BufferPool::new(store, options);
    let mut redo = redo::run(&pool, &mut log, progress)?;
    redo.torn_pages = torn_pages;
    pool.attach_log(log.finish()?);
    tantalum_rt::tracing::info!(
        records = redo.records,
        pages = redo.pages_waiting,
        torn_pages,
        "the database is recovered"
    );
    let space = Space::new(&pool);
    Ok(Opened { pool, space, redo })
}
