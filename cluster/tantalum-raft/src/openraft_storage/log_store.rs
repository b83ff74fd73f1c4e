//! A node's log.

use std::fmt::{self, Debug};
use std::io;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};

use openraft::alias::{LogIdOf, VoteOf};
use openraft::entry::RaftEntry;
use openraft::storage::{IOFlushed, LogState, RaftLogReader, RaftLogStorage};
use openraft::{OptionalSend, RaftTypeConfig};

use super::{blocking, decode, encode, io_error};
use crate::group::Appended;
use crate::{Entry, Group};

/// What one read for replication returns at most, unless one entry has more.
const READ_BYTES: usize = 4 << 20;

/// The log of a node, for openraft, in a [`Group`]. Clones are handles to the same log.
///
/// - An append returns at once, and openraft is told when the log's ticket says that it is durable: by one task for all groups.
/// - A vote is durable when it is saved. A truncation or a purge is durable with the next vote or append that is.
/// - What openraft knows to be committed is appended, and durable with what follows it.
/// - Beside openraft's, an entry has no term ([`Entry::term`](crate::Entry::term) is 0): its log id is part of its bytes.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_raft::{RaftLog, RaftLogOptions};
/// use tantalum_raft::openraft_storage::LogStore;
///
/// openraft::declare_raft_types!(pub Config: D = String, R = String);
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// let store = LogStore::<Config>::new(log.group(1));
/// # drop(store);
/// # Ok::<(), tantalum_raft::Error>(())
/// ```
pub struct LogStore<C> {
    group: Group,
    config: PhantomData<fn() -> C>,
}

impl<C: RaftTypeConfig> LogStore<C> {
    /// The log that this group has.
    pub fn new(group: Group) -> LogStore<C> {
        LogStore { group, config: PhantomData }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Entries from memory if all are there, and else from the devices.
    async fn read(&self, indexes: Range<u64>, max_bytes: usize) -> io::Result<Vec<C::Entry>> {
        let entries = match self.group.entries_in_memory(indexes.clone(), max_bytes).map_err(io_error)? {
            Some(entries) => entries,
            None => {
                let group = self.group.clone();
                blocking(move || group.entries(indexes, max_bytes)).await?
            }
        };
        let id = self.group.id();
        let decode = |entry: &Entry| decode(&entry.bytes, format_args!("entry {} of raft group {id}", entry.index));
        entries.iter().map(decode).collect::<crate::Result<_>>().map_err(io_error)
    }

    /// Makes a change of the group that may wait for space.
    async fn change(&self, change: impl FnOnce(&Group) -> crate::Result<()> + Send + 'static) -> io::Result<()> {
        let group = self.group.clone();
        blocking(move || change(&group)).await
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStore<C> {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> io::Result<Vec<C::Entry>> {
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.saturating_add(1),
            Bound::Excluded(end) => *end,
            Bound::Unbounded => u64::MAX,
        };
        self.read(start..end, usize::MAX).await
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> io::Result<Vec<C::Entry>> {
        self.read(start..end, READ_BYTES).await
    }

    async fn read_vote(&mut self) -> io::Result<Option<VoteOf<C>>> {
        let vote = self.group.vote();
        vote.map(|vote| decode(&vote, format_args!("the vote of raft group {}", self.group.id())))
            .transpose()
            .map_err(io_error)
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStore<C> {
    type LogReader = LogStore<C>;

    async fn get_log_state(&mut self) -> io::Result<LogState<C>> {
        let bounds = self.group.bounds();
        let id = self.group.id();
        let purged = bounds.purged_note.map(|note| decode(&note, format_args!("the purge of raft group {id}")));
        let last_purged_log_id = purged.transpose().map_err(io_error)?;
        let last = match bounds.indexes.end.checked_sub(1) {
            Some(last) if !bounds.indexes.is_empty() => self.read(last..last + 1, usize::MAX).await?.pop(),
            _ => None,
        };
        let last_log_id = last.map(|last| last.log_id()).or_else(|| last_purged_log_id.clone());
        Ok(LogState { last_purged_log_id, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogStore<C> {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<C>) -> io::Result<()> {
        let vote = encode(vote).map_err(io_error)?;
        self.change(move |group| group.log().flush(group.set_vote(&vote)?)).await
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<C>>) -> io::Result<()> {
        let committed = committed.map(|committed| encode(&committed)).transpose().map_err(io_error)?;
        if self.group.try_set_committed(committed.as_deref()).map_err(io_error)?.is_none() {
            self.change(move |group| group.set_committed(committed.as_deref()).map(drop)).await?;
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> io::Result<Option<LogIdOf<C>>> {
        let committed = self.group.committed();
        let what = format_args!("what raft group {} has committed", self.group.id()).to_string();
        committed.map(|committed| decode(&committed, what)).transpose().map_err(io_error)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<C>) -> io::Result<()>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let encoded = entries.into_iter().map(|entry| Ok(Entry::new(entry.index(), 0, encode(&entry)?)));
        let mut entries = encoded.collect::<crate::Result<Vec<_>>>().map_err(io_error)?;
        let end = match self.group.try_append(&entries).map_err(io_error)? {
            Appended::All(end) => end,
            Appended::Some(count) => {
                let (group, rest) = (self.group.clone(), entries.split_off(count));
                blocking(move || group.append(&rest)).await?
            }
        };
        self.group.log().on_durable(end, move |durable| callback.io_completed(durable.map_err(io_error)));
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<C>>) -> io::Result<()> {
        let last = last_log_id.map(|last| last.index);
        self.change(move |group| group.truncate_after(last).map(drop)).await
    }

    async fn purge(&mut self, log_id: LogIdOf<C>) -> io::Result<()> {
        let note = encode(&log_id).map_err(io_error)?;
        self.change(move |group| group.purge(log_id.index, 0, &note).map(drop)).await
    }
}

impl<C> Clone for LogStore<C> {
    fn clone(&self) -> LogStore<C> {
        LogStore { group: self.group.clone(), config: PhantomData }
    }
}

impl<C> fmt::Debug for LogStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogStore").field("group", &self.group).finish()
    }
}
