//! Space in raft's log: entries are purged before there are too many bytes of them, and what would not fit waits.
//!
//! Invariant: what is needed of the log, and what is on its way there, is three quarters of what may be needed at most, and an eighth more
//! where another member leads; an append that finds the log full would stop the node.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::alias::LogIdOf;
use tantalum_raft::Group;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;
use tonic::Status;

use crate::command::{Config, Raft};

/// Bytes that a permit stands for.
const UNIT_BYTES: usize = 1024;
/// Bytes that an entry takes beyond its command, at most.
pub(crate) const ENTRY_OVERHEAD_BYTES: usize = 256;
/// So often it is looked whether openraft has purged what it was asked to.
const PURGE_POLL: Duration = Duration::from_millis(2);

pub(crate) struct LogSpace {
    group: Group,
    on_its_way: Arc<Semaphore>,
    /// As `on_its_way`, of what a leader sent. Requests of this member's own clients, from when it led, may wait for that.
    replicated: Arc<Semaphore>,
    units: usize,
    purged: Notify,
}

impl LogSpace {
    pub fn new(group: Group) -> LogSpace {
        let units = (group.log().stats().live_limit_bytes as usize / 4 / UNIT_BYTES).max(1);
        let (on_its_way, replicated) = (Semaphore::new(units), Semaphore::new(units.div_ceil(2)));
        let (on_its_way, replicated) = (Arc::new(on_its_way), Arc::new(replicated));
        LogSpace { group, on_its_way, replicated, units, purged: Notify::new() }
    }

    /// The largest command that an entry has space for.
    pub fn max_command_bytes(&self) -> usize {
        self.group.log().max_entry_bytes().saturating_sub(ENTRY_OVERHEAD_BYTES)
    }

    fn is_beyond(&self, quarters: u64) -> bool {
        let stats = self.group.log().stats();
        stats.live_bytes > stats.live_limit_bytes / 4 * quarters
    }

    fn has_purged(&self, index: u64) -> bool {
        self.group.bounds().purged.is_some_and(|(purged, _)| purged >= index)
    }

    /// Waits until there is space for an entry with a command of so many bytes, which is kept while the permit lives.
    pub async fn admit(&self, bytes: usize) -> io::Result<OwnedSemaphorePermit> {
        let units = (bytes + ENTRY_OVERHEAD_BYTES).div_ceil(UNIT_BYTES).min(self.units);
        let permit = Arc::clone(&self.on_its_way).acquire_many_owned(units as u32).await.map_err(io::Error::other)?;
        loop {
            let purged = self.purged.notified();
            if !self.is_beyond(2) {
                return Ok(permit);
            }
            purged.await;
        }
    }

    /// Waits until there is space for the first of some encoded entries, which a leader sent. Returns how many there is space for, and
    /// keeps it while the permit lives. An eighth may be on its way: the leader's own limit is lower than this one, so that a member
    /// that follows never holds it up for long.
    pub async fn admit_replicated(&self, entries: &[Vec<u8>]) -> Result<(usize, Option<OwnedSemaphorePermit>), Status> {
        if entries.is_empty() {
            return Ok((0, None));
        }
        let limit = self.group.log().max_entry_bytes();
        if let Some(entry) = entries.iter().find(|entry| entry.len() > limit) {
            let what = format!(
                "an entry of {} bytes is too large for the raft log of this member, which takes {limit}; give all members \
                 the same --raft-log-bytes",
                entry.len()
            );
            tracing::error!("{what}");
            return Err(Status::failed_precondition(what));
        }
        let (mut taken, mut units) = (0, 0);
        for entry in entries {
            let more = (entry.len() + ENTRY_OVERHEAD_BYTES).div_ceil(UNIT_BYTES);
            if taken > 0 && units + more > self.units / 2 {
                break;
            }
            (taken, units) = (taken + 1, units + more);
        }
        let units = units.min(self.units.div_ceil(2)) as u32;
        let permit = Arc::clone(&self.replicated).acquire_many_owned(units).await;
        let permit = permit.map_err(|error| Status::internal(error.to_string()))?;
        loop {
            let purged = self.purged.notified();
            if !self.is_beyond(3) {
                return Ok((taken, Some(permit)));
            }
            purged.await;
        }
    }

    /// Purges whenever a quarter is needed, until the node stops.
    pub async fn keep_purged(self: Arc<Self>, raft: Raft) {
        let mut applied = raft.watch_apply_progress();
        loop {
            let is_purged = applied.get().is_none_or(|applied| self.has_purged(applied.index));
            if is_purged || !self.is_beyond(1) {
                if applied.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let Some(up_to) = applied.get() else { continue };
            // The newer half stays, for members that are a little behind; what is lacking after all is made up for by a snapshot.
            let purged = self.group.bounds().purged.map_or(0, |(purged, _)| purged);
            let index = up_to.index - up_to.index.saturating_sub(purged) / 2;
            if self.purge(&raft, up_to, index).await.is_err() {
                return;
            }
        }
    }

    /// Purges what was applied, unless entries were purged before. The only member of a cluster does so before there are others: these get
    /// its store then, which may have begun with rows of a snapshot that no entry has.
    pub async fn begin_purged(&self, raft: &Raft) -> io::Result<()> {
        let applied = raft.watch_apply_progress().get();
        match applied.filter(|_| self.group.bounds().purged.is_none()) {
            Some(applied) => self.purge(raft, applied, applied.index).await,
            None => Ok(()),
        }
    }

    /// Purges entries up to an index.
    async fn purge(&self, raft: &Raft, applied: LogIdOf<Config>, up_to: u64) -> io::Result<()> {
        raft.trigger().snapshot().await.map_err(io::Error::other)?;
        raft.watch_snapshot_progress().wait_until_ge(&Some(applied)).await.map_err(io::Error::other)?;
        raft.trigger().purge_log(up_to).await.map_err(io::Error::other)?;
        while !self.has_purged(up_to) {
            sleep(PURGE_POLL).await;
            // Does it still run?
            raft.with_raft_state(|_| ()).await.map_err(io::Error::other)?;
        }
        self.purged.notify_waiters();
        Ok(())
    }
}
