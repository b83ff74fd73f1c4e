//! A node's log.
//!
//! Invariants:
//! - a snapshot is durable in the database before the log gives up the entries that it replaces; if a crash comes between the two,
//!   opening makes the log begin behind the snapshot;
//! - the hard state is written before the entries of the same ready, so no entry has a term that the hard state does not know; it never
//!   counts as committed what the log does not have.

use std::fmt;

use raft::eraftpb::{Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, Ready, Storage, StorageError};

use super::{StateMachine, decode, encode};
use crate::state_tables::unreadable;
use crate::{Error, ErrorKind, Group, Lsn, Result, StateSnapshot};

/// The log of a node, for raft-rs, in a [`Group`], with the node's [`StateMachine`] for snapshots and the configuration.
///
/// - What [`persist`](Self::persist) keeps can be read at once; its return value says when it is durable. So the next ready need not wait
///   for the devices ([`RawNode::advance_append_async`](raft::RawNode::advance_append_async)).
/// - The newest entries are in memory. raft-rs reads others, for a follower that lags behind, from the devices, which blocks.
/// - A snapshot has all rows of the state machine in its data, so it takes as much memory as they do.
/// - A ready with a snapshot is durable when it is persisted. Before anything else is asked of raft-rs,
///   [`on_persist_ready`](raft::RawNode::on_persist_ready) and [`advance_apply_to`](raft::RawNode::advance_apply_to) must tell it so: until
///   then it may ask for entries that the snapshot replaced, and panics.
///
/// ```
/// use std::sync::{Arc, mpsc};
/// use raft::{Config, RawNode, eraftpb::ConfState};
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_raft::raft_rs_storage::{NodeLog, StateMachine};
/// use tantalum_raft::{RaftLog, RaftLogOptions};
///
/// # let directory = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path().join("db"))?;
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// let machine = StateMachine::new(db, 1, &["words"])?;
/// machine.initialize(&ConfState::from((vec![1], vec![])))?; // a cluster of this node
/// let config = Config { applied: machine.applied()?.index, ..Config::new(1) };
/// let storage = NodeLog::open(log.group(1), machine.clone())?;
/// # let logger = slog::Logger::root(slog::Discard, slog::o!());
/// let mut node = RawNode::new(&config, storage, &logger)?;
/// node.campaign()?;
///
/// let (durable, outcomes) = mpsc::channel();
/// let mut has_proposed = false;
/// while machine.db().get(&machine.tables()[0], "hello")?.is_none() {
///     if !node.has_ready() {
///         let (number, messages, outcome) = outcomes.recv()?;
///         outcome?; // nothing must be sent or counted if the log failed
///         node.on_persist_ready(number);
/// #       let _: Vec<raft::eraftpb::Message> = messages;
///         // Send `messages` to the other nodes now.
///         continue;
///     }
///     let mut ready = node.ready();
///     // Send `ready.take_messages()` to the other nodes.
///     let committed = ready.take_committed_entries();
///     machine.apply(&committed, None, |transaction, tables, entry| transaction.put(&tables[0], &entry.data, "is said"))?;
///     let (number, messages) = (ready.number(), ready.take_persisted_messages());
///     let end = node.mut_store().persist(&ready)?;
///     node.advance_append_async(ready);
///     node.advance_apply_to(machine.applied()?.index);
///     let durable = durable.clone();
///     log.on_durable(end, move |outcome| durable.send((number, messages, outcome)).unwrap_or_default());
///     if !has_proposed && node.raft.state == raft::StateRole::Leader {
///         node.propose(vec![], "hello".into())?;
///         has_proposed = true;
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NodeLog {
    group: Group,
    machine: StateMachine,
    /// Up to here the log must be durable for what was persisted to count.
    must_be_durable: Lsn,
}

impl NodeLog {
    /// The log that this group has, of a node with this state machine.
    ///
    /// # Errors
    /// Those of the log and of the database; [`Corrupt`](ErrorKind::Corrupt) if they do not belong together: the log lacks entries that
    /// the state machine needs, or that are committed.
    pub fn open(group: Group, machine: StateMachine) -> Result<NodeLog> {
        let log = NodeLog { group, machine, must_be_durable: Lsn::ZERO };
        let applied = log.machine.applied()?;
        if applied.index + 1 < log.first() {
            let what = format!(
                "begins with entry {}, its state machine has come to entry {} only",
                log.first(),
                applied.index
            );
            return Err(log.corrupt(&what));
        }
        if applied.index > 0 && log.group.term(applied.index) != Some(applied.term) {
            // A crash came before the log had begun behind a snapshot.
            let end = log.begin_behind(applied.index, applied.term)?;
            log.group.log().flush(end)?;
        }
        if log.hard_state()?.commit > log.last() {
            let what =
                format!("ends with entry {}, although entry {} is committed", log.last(), log.hard_state()?.commit);
            return Err(log.corrupt(&what));
        }
        Ok(log)
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The state machine.
    pub fn machine(&self) -> &StateMachine {
        &self.machine
    }

    /// Keeps what a ready says: its snapshot, which also replaces the state machine's rows, its hard state and its entries, which
    /// replace those with their indexes and all behind. Returns the position up to which the log must be durable before
    /// [`on_persist_ready`](raft::RawNode::on_persist_ready) is called and
    /// [`persisted_messages`](raft::Ready::persisted_messages) are sent, for this ready and those before.
    ///
    /// A new committed index alone is kept too, and need not be durable. A ready with a snapshot is durable when this returns.
    ///
    /// # Errors
    /// - [`LogFull`](ErrorKind::LogFull) if too much of the log is needed. It may be called again with the same ready when
    ///   [`compact`](Self::compact) or other groups made space.
    /// - A snapshot that is damaged or has other tables; otherwise those of [`Group::append`] and of the database. Then the node must
    ///   not go on.
    pub fn persist(&mut self, ready: &Ready) -> Result<Lsn> {
        let mut end = self.must_be_durable;
        if !ready.snapshot().is_empty() {
            end = self.install(ready.snapshot())?;
        }
        if let Some(hard_state) = ready.hs() {
            let commit = hard_state.commit.min(self.last());
            end = self.group.set_vote(&encode(&HardState { commit, ..hard_state.clone() })?)?;
        }
        if !ready.entries().is_empty() {
            end = self.append(ready.entries())?;
        }
        if ready.must_sync() {
            self.must_be_durable = end;
        }
        if !ready.snapshot().is_empty() {
            self.group.log().flush(end)?;
        }
        Ok(self.must_be_durable)
    }

    /// Removes the entries up to `index`, as far as what they did to the state machine is durable. A follower that needs them gets a
    /// snapshot.
    ///
    /// # Errors
    /// As [`Group::purge`], and those of the database.
    pub fn compact(&self, index: u64) -> Result<()> {
        let index = index.min(self.machine.applied()?.index);
        match self.group.term(index) {
            Some(term) if index >= self.first() => self.group.purge(index, term, b"").map(drop),
            _ => Ok(()),
        }
    }

    fn append(&self, entries: &[Entry]) -> Result<Lsn> {
        let first = entries[0].index;
        if first < self.first() {
            let (id, begin) = (self.group.id(), self.first());
            let what = format!("entry {first} cannot be appended to raft group {id}, whose log begins with {begin}");
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        if first <= self.last() {
            self.group.truncate_after(Some(first - 1))?;
        }
        let encoded = entries.iter().map(|entry| {
            let bytes = encode(&Entry { index: 0, term: 0, ..entry.clone() })?;
            Ok(crate::Entry::new(entry.index, entry.term, bytes))
        });
        self.group.append(&encoded.collect::<Result<Vec<_>>>()?)
    }

    fn install(&self, snapshot: &Snapshot) -> Result<Lsn> {
        let metadata = snapshot.get_metadata();
        if self.machine.applied()?.index < metadata.index {
            let rows = StateSnapshot::read_from(&snapshot.data[..]).map_err(unreadable)?;
            self.machine.install(metadata, &rows)?;
        }
        self.begin_behind(metadata.index, metadata.term)
    }

    /// Removes all entries, so that the next one follows this one.
    fn begin_behind(&self, index: u64, term: u64) -> Result<Lsn> {
        self.group.truncate_after(None)?;
        self.group.purge(index, term, b"")
    }

    /// The index of the first entry, or of the one that will be.
    fn first(&self) -> u64 {
        self.group.bounds().purged.map_or(1, |(purged, _)| purged + 1)
    }

    /// The index of the last entry; of the one before the first, if there is none.
    fn last(&self) -> u64 {
        self.group.bounds().last.map_or(0, |(last, _)| last)
    }

    fn hard_state(&self) -> Result<HardState> {
        let what = format_args!("the hard state of raft group {}", self.group.id());
        self.group.vote().map_or_else(|| Ok(HardState::default()), |vote| decode(&vote, what))
    }

    fn corrupt(&self, what: &str) -> Error {
        let what = format!(
            "the log of raft group {} {what}; if log and database belong to this node, replace it by a new one",
            self.group.id()
        );
        Error::new(ErrorKind::Corrupt, what)
    }
}

impl Storage for NodeLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let applied = self.machine.applied().map_err(refuse)?;
        let mut hard_state = self.hard_state().map_err(refuse)?;
        // It need not have been durable when entries were applied.
        hard_state.commit = hard_state.commit.max(applied.index);
        Ok(RaftState { hard_state, conf_state: applied.conf_state.unwrap_or_default() })
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low < self.first() {
            return Err(StorageError::Compacted.into());
        }
        if high > self.last() + 1 {
            return Err(StorageError::Unavailable.into());
        }
        let max_bytes = max_size.into().map_or(usize::MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let found = self.group.entries(low..high, max_bytes).map_err(refuse)?;
        let entry = |found: &crate::Entry| {
            let what = format_args!("entry {} of raft group {}", found.index, self.group.id());
            let mut entry: Entry = decode(&found.bytes, what)?;
            (entry.index, entry.term) = (found.index, found.term);
            Ok(entry)
        };
        let entries = found.iter().map(entry).collect::<Result<Vec<_>>>().map_err(refuse)?;
        if low < high && entries.first().is_none_or(|entry| entry.index != low) {
            // It was compacted meanwhile.
            return Err(StorageError::Compacted.into());
        }
        Ok(entries)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        match self.group.term(index) {
            Some(term) => Ok(term),
            None if index == 0 && self.first() == 1 => Ok(0),
            None if index < self.first() => Err(StorageError::Compacted.into()),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.first())
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        let (metadata, rows) = self.machine.snapshot().map_err(refuse)?;
        if metadata.index == 0 || metadata.index < request_index {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let mut data = Vec::new();
        rows.write_to(&mut data)?;
        Ok(Snapshot { metadata: Some(metadata).into(), data: data.into(), ..Snapshot::default() })
    }
}

fn refuse(error: Error) -> raft::Error {
    StorageError::Other(Box::new(error)).into()
}

impl fmt::Debug for NodeLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeLog").field("group", &self.group).field("machine", &self.machine).finish_non_exhaustive()
    }
}
