//! Where the changes of groups go, so that a crash does not lose what is committed: the one thing in which the pool depends on the
//! kind of its store ([`Logging`](tantalum_store::Logging)).
//!
//! - [`RedoLog`](super::redo_log::RedoLog): a group is a record of the log. Pages are stored whole, and redo follows a crash.
//! - [`CommitStatusLog`](super::CommitStatusLog): the store gets the changes, and the log only how far groups are committed.

use std::fmt::Debug;

use tantalum_log::{Lsn, SpaceRequest};
use tantalum_store::PageId;

use super::{
    BufferPool, Reservation, change_group::GroupPage, free_list::WritePermit, poison::PoisonGuard, pool::Shared,
};
use crate::{
    error::{GroupResult, Result},
    limits::GroupLimit,
};

/// A change group whose pages are latched and planned.
#[derive(Clone, Copy)]
pub(super) struct Group<'g> {
    pub pages: &'g [GroupPage],
    pub reservation: Option<&'g Reservation>,
    pub flags: u8,
    pub sequence: u64,
    /// What the record says to readers of the change feed. Nothing where the store keeps the changes.
    pub feed: &'g [u8],
}

/// Takes the changes of groups, and stores the pages that they change.
pub(super) trait ChangeSink: Send + Sync + Debug {
    /// The position of the last group, or as near to it as other tasks let it be known. `None` during redo.
    fn end(&self, pool: &Shared) -> Option<Lsn>;

    /// How much the changes of one group can be.
    fn group_limit(&self, pool: &Shared) -> GroupLimit;

    /// The log space that a group is given at once when it has waited for space: for more it may wait again and again.
    fn space_limit(&self, pool: &Shared) -> GroupLimit;

    /// Takes a group and marks its pages dirty. Returns its position, and a guard to be ended when the pages bear it.
    ///
    /// # Errors
    /// [`Lack::LogSpace`](crate::error::Lack::LogSpace) when space must be waited for. No page is dirty because of it then.
    fn append<'p>(&self, pool: &'p Shared, group: Group<'_>) -> GroupResult<(Lsn, PoisonGuard<'p>)>;

    /// Prepares that all groups up to `position` survive a power cut. They do when the log is durable up to what is returned. No
    /// latch may be held.
    fn force(&self, pool: &Shared, position: Lsn) -> Result<Lsn>;

    /// Waits until all groups up to `position` survive a power cut. No latch may be held.
    fn flush(&self, pool: &Shared, position: Lsn) -> Result<()>;

    /// Stores those of the pages (at most a batch) that are still dirty and that no task is changing or storing right now. Never
    /// waits for a latch, so callers may hold some. Returns how many were stored.
    fn write_back(&self, pool: &Shared, permit: &mut WritePermit<'_>, pages: &mut [(PageId, usize)]) -> Result<usize>;

    /// Stores everything that was appended before the call and frees the log up to there. Returns where the log begins then. One
    /// task at a time calls this.
    fn checkpoint(&self, pool: &BufferPool) -> Result<Lsn>;

    /// As [`checkpoint`](Self::checkpoint), but never waits for log space, and frees what can be freed without. Any task calls it.
    fn relieve_log(&self, pool: &BufferPool) -> Result<Lsn>;

    /// Waits until there is space for a group that was refused for want of so many bytes.
    fn wait_for_space(&self, pool: &BufferPool, needed: usize) -> Result<Option<SpaceRequest>>;

    /// Lets tasks go on that wait in here for a task that has panicked.
    fn wake_for_poison(&self) {}

    /// Returns when no changes are being stored apart from pages. No more will be: storing them is refused already.
    fn end_stores(&self) {}

    /// Bytes of memory for changes apart from their pages, now and at most.
    fn memory_bytes(&self) -> (u64, u64) {
        (0, 0)
    }
}
