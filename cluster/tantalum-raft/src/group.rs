//! One group's log: appending, voting, truncating, purging.
//!
//! Invariants:
//! - the group's lock is held from the append of a record until the state in memory has it, so the records of a group lie in the log
//!   in the order of its changes;
//! - nothing waits with that lock held: what finds no space lets go of it, since space comes by rewriting, which needs it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tantalum_log::{Error, ErrorKind, LsnRange, Result, SpaceRequest};
use tantalum_rt::Mutex;

use crate::record::{EntryHead, Purged, State, encode_removed};
use crate::state::{GroupState, Place, entry_record_bytes, state_record_bytes};
use crate::{Lsn, RaftLog};

/// A vote, a committed position or the note of a purge is not longer.
const MAX_NOTE_BYTES: usize = 1024;

/// An entry of a group's log.
///
/// ```
/// let entry = tantalum_raft::Entry::new(3, 1, *b"set a to 1");
/// assert_eq!((entry.index, entry.term, &entry.bytes[..3]), (3, 1, &b"set"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place in the group's log, less than `u64::MAX`.
    pub index: u64,
    /// The term of the leader that made it.
    pub term: u64,
    /// What it says.
    pub bytes: Arc<[u8]>,
}

impl Entry {
    /// An entry of these bytes.
    pub fn new(index: u64, term: u64, bytes: impl Into<Arc<[u8]>>) -> Entry {
        Entry { index, term, bytes: bytes.into() }
    }
}

/// Which entries a group has, and how far it is purged.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_raft::{Entry, RaftLog, RaftLogOptions};
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// # let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// let group = log.group(1);
/// group.append(&[Entry::new(1, 1, *b"a"), Entry::new(2, 4, *b"b")])?;
/// group.purge(1, 1, b"")?;
/// let bounds = group.bounds();
/// assert_eq!((bounds.indexes, bounds.last), (2..3, Some((2, 4))));
/// # Ok::<(), tantalum_raft::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// The entries that can be read.
    pub indexes: Range<u64>,
    /// Index and term of the last entry; of the last purged one, if there are none behind it.
    pub last: Option<(u64, u64)>,
    /// Index and term of the last purged entry.
    pub purged: Option<(u64, u64)>,
    /// What was noted with it.
    pub purged_note: Option<Box<[u8]>>,
}

/// The log of one group. From [`RaftLog::group`]. Clones are handles to the same group.
///
/// A change is in the log's order when its call returns, and durable when the log is durable up to the position returned
/// ([`RaftLog::flush`], [`RaftLog::on_durable`]), with all that went before it. One task at a time appends to a group, as raft does:
/// the others get an error if their entries do not follow.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_raft::{Entry, RaftLog, RaftLogOptions};
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// # let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// let group = log.group(12);
/// log.flush(group.set_vote(b"term 2, for node 1")?)?;
/// group.append(&[Entry::new(1, 1, *b"a"), Entry::new(2, 1, *b"b"), Entry::new(3, 1, *b"c")])?;
/// group.truncate_after(Some(1))?; // another leader has others
/// log.flush(group.append(&[Entry::new(2, 2, *b"B")])?)?;
/// assert_eq!(group.entries(1..9, usize::MAX)?, [Entry::new(1, 1, *b"a"), Entry::new(2, 2, *b"B")]);
/// assert_eq!(group.vote().as_deref(), Some(&b"term 2, for node 1"[..]));
/// # Ok::<(), tantalum_raft::Error>(())
/// ```
#[derive(Clone)]
pub struct Group {
    pub(crate) log: RaftLog,
    pub(crate) cell: Arc<GroupCell>,
}

/// A group as the log has it.
pub(crate) struct GroupCell {
    pub(crate) id: u64,
    pub(crate) state: Mutex<GroupState>,
}

impl GroupCell {
    pub(crate) fn new(id: u64, state: GroupState) -> GroupCell {
        GroupCell { id, state: Mutex::new(state) }
    }

    /// Whether the log has anything of it.
    pub(crate) fn exists(&self) -> bool {
        self.state.lock().state_start().is_some()
    }
}

/// How far entries were appended.
pub(crate) enum Appended {
    /// All, up to this position.
    All(Lsn),
    /// So many, before the log had no more space.
    Some(usize),
}

impl Group {
    /// The group's number.
    pub fn id(&self) -> u64 {
        self.cell.id
    }

    /// The log that it is in.
    pub fn log(&self) -> &RaftLog {
        &self.log
    }

    /// Appends entries whose indexes follow each other and the last one; the first entries of a group may have any. They can be read
    /// when this returns. Returns the position up to which the log must be durable for them to be.
    ///
    /// Blocks while the log makes space, by rewriting what is needed and at its beginning. Then the first of the entries may be there
    /// before the others.
    ///
    /// # Errors
    /// - [`LogFull`](ErrorKind::LogFull) if too much of the log is needed; nothing is appended then.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if the indexes do not follow, [`TooLarge`](ErrorKind::TooLarge) beyond
    ///   [`RaftLog::max_entry_bytes`], [`NotFound`](ErrorKind::NotFound) if the group was removed.
    /// - [`Poisoned`](ErrorKind::Poisoned), [`Closed`](ErrorKind::Closed).
    pub fn append(&self, entries: &[Entry]) -> Result<Lsn> {
        let mut rest = entries;
        self.admit(rest)?;
        let mut space = None;
        loop {
            match self.append_admitted(rest, &mut space)? {
                Appended::All(end) => return Ok(end),
                Appended::Some(count) => {
                    rest = &rest[count..];
                    space = Some(self.wait_for_space_of(rest)?);
                }
            }
        }
    }

    /// As [`append`](Self::append), without waiting.
    #[cfg(feature = "openraft")]
    pub(crate) fn try_append(&self, entries: &[Entry]) -> Result<Appended> {
        self.admit(entries)?;
        match self.append_admitted(entries, &mut None)? {
            Appended::Some(count) => {
                let rest = entries[count..].iter().map(|entry| entry_record_bytes(entry.bytes.len())).sum();
                self.log.shared().live.sub(rest);
                Ok(Appended::Some(count))
            }
            all => Ok(all),
        }
    }

    /// Checks the entries, and counts them as needed.
    fn admit(&self, entries: &[Entry]) -> Result<()> {
        let max = self.log.max_entry_bytes();
        if let Some(large) = entries.iter().find(|entry| entry.bytes.len() > max) {
            let (index, bytes, group) = (large.index, large.bytes.len(), self.cell.id);
            let what = format!(
                "entry {index} of group {group} has {bytes} bytes, the raft log takes {max} at most; split it, or use larger devices and buffers"
            );
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        let follow = entries.windows(2).all(|pair| pair[0].index.checked_add(1) == Some(pair[1].index));
        if !follow || entries.last().is_some_and(|last| last.index == u64::MAX) {
            let what = format!("the indexes of entries for group {} must follow each other", self.cell.id);
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        self.log.shared().live.add_entries(entries.iter().map(|entry| entry_record_bytes(entry.bytes.len())).sum())
    }

    /// Appends entries that are counted as needed; those that it does not append for an error are not counted any more.
    fn append_admitted(&self, entries: &[Entry], space: &mut Option<SpaceRequest>) -> Result<Appended> {
        let shared = self.log.shared();
        let mut state = self.cell.state.lock();
        let mut done = 0;
        let appended = (|| {
            self.check_there(&state)?;
            let Some(first) = entries.first() else { return Ok(Appended::All(shared.log.end_lsn())) };
            if let Some(begin) = state.state_before(first.index, self.cell.id)?
                && self.write_state(&mut state, begin, space)?.is_none()
            {
                return Ok(Appended::Some(0));
            }
            let mut end = Lsn::ZERO;
            for entry in entries {
                let head = EntryHead { group: self.cell.id, index: entry.index, term: entry.term, is_moved: false };
                let Some(range) = self.write(&[&head.encode(), &entry.bytes], space)? else {
                    return Ok(Appended::Some(done));
                };
                let place = Place { start: range.start, term: entry.term, bytes: entry.bytes.len() as u32 };
                state.push(place, Arc::clone(&entry.bytes));
                shared.cache.add(entry.bytes.len());
                (done, end) = (done + 1, range.end);
            }
            Ok(Appended::All(end))
        })();
        drop(state);
        shared.evict();
        if appended.is_err() {
            let rest = entries[done..].iter().map(|entry| entry_record_bytes(entry.bytes.len())).sum();
            shared.live.sub(rest);
        }
        appended
    }

    /// Waits for the space of entries that are counted as needed; if that fails, they are not any more.
    fn wait_for_space_of(&self, entries: &[Entry]) -> Result<SpaceRequest> {
        let shared = self.log.shared();
        let bytes = |entry: &Entry| entry_record_bytes(entry.bytes.len());
        let needed = entries.iter().map(|entry| shared.log.space_needed(bytes(entry) as usize)).sum::<Result<u64>>();
        // The state that a group begins with.
        let needed = needed.and_then(|needed| Ok(needed + shared.log.space_needed(4 * MAX_NOTE_BYTES)?));
        let space = needed.and_then(|needed| shared.wait_for_space(needed));
        if space.is_err() {
            shared.live.sub(entries.iter().map(bytes).sum());
        }
        space
    }

    /// Keeps the vote, replacing the one before: at most 1 KiB. It counts only when it is durable.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn set_vote(&self, vote: &[u8]) -> Result<Lsn> {
        self.change(vote, |state| State { vote: Some(vote.into()), ..state.state().clone() })
    }

    /// The vote that was kept last.
    pub fn vote(&self) -> Option<Box<[u8]>> {
        self.cell.state.lock().state().vote.clone()
    }

    /// Keeps what the caller knows of the committed entries, replacing what was kept before: at most 1 KiB.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn set_committed(&self, committed: Option<&[u8]>) -> Result<Lsn> {
        let note = committed.unwrap_or_default();
        self.change(note, |state| State { committed: committed.map(Into::into), ..state.state().clone() })
    }

    /// As [`set_committed`](Self::set_committed), without waiting; `None` if there is no space.
    #[cfg(feature = "openraft")]
    pub(crate) fn try_set_committed(&self, committed: Option<&[u8]>) -> Result<Option<Lsn>> {
        let mut state = self.cell.state.lock();
        self.check_there(&state)?;
        let changed = State { committed: committed.map(Into::into), ..state.state().clone() };
        self.write_state(&mut state, changed, &mut None)
    }

    /// What [`set_committed`](Self::set_committed) kept last.
    pub fn committed(&self) -> Option<Box<[u8]>> {
        self.cell.state.lock().state().committed.clone()
    }

    /// Removes the entries behind index `last`, or all, so that others can be appended there.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn truncate_after(&self, last: Option<u64>) -> Result<Lsn> {
        self.change(&[], |state| state.truncated(last))
    }

    /// Removes the entries up to `index`, which have `term`, and keeps a note of at most 1 KiB with that. The index may lie behind the
    /// last entry, when a snapshot replaces them all: the next entry then follows it. An index that was purged before changes nothing.
    ///
    /// What a purge removes must be durable elsewhere.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn purge(&self, index: u64, term: u64, note: &[u8]) -> Result<Lsn> {
        if index == u64::MAX {
            let what = format!("no entry has the index {index}, up to which group {} is to be purged", self.cell.id);
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        self.change(note, |state| state.purged(Purged { index, term, note: note.into() }))
    }

    /// Which entries there are.
    pub fn bounds(&self) -> Bounds {
        let state = self.cell.state.lock();
        let purged = state.state().purged.as_ref();
        Bounds {
            indexes: state.indexes(),
            last: state.last(),
            purged: purged.map(|purged| (purged.index, purged.term)),
            purged_note: purged.map(|purged| purged.note.clone()),
        }
    }

    /// The term of an entry, or of the last one that was purged; `None` of all others. Reads no device.
    pub fn term(&self, index: u64) -> Option<u64> {
        let state = self.cell.state.lock();
        let purged = state.state().purged.as_ref().filter(|purged| purged.index == index).map(|purged| purged.term);
        state.place(index).map(|place| place.term).or(purged)
    }

    /// Removes the group with all that it has. Handles to it get [`NotFound`](ErrorKind::NotFound) from then on; one that is
    /// [asked for](RaftLog::group) anew begins empty.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn remove(&self) -> Result<Lsn> {
        let shared = self.log.shared();
        let end = self.until_there_is_space(|space| {
            let mut state = self.cell.state.lock();
            self.check_there(&state)?;
            let Some(range) = self.write(&[&encode_removed(self.cell.id)], space)? else { return Ok(None) };
            let state_bytes = state.state_bytes();
            let gone = state.remove();
            shared.cache.sub(gone.cached_bytes);
            shared.live.sub(gone.record_bytes + state_bytes);
            Ok(Some(range.end))
        })?;
        shared.groups.lock().remove(&self.cell.id);
        Ok(end)
    }

    /// Gives the group another state.
    fn change(&self, note: &[u8], change: impl Fn(&GroupState) -> State) -> Result<Lsn> {
        if note.len() > MAX_NOTE_BYTES {
            let (bytes, group) = (note.len(), self.cell.id);
            let what =
                format!("{bytes} bytes are too many to be noted for group {group}; at most {MAX_NOTE_BYTES} are");
            return Err(Error::new(ErrorKind::TooLarge, what));
        }
        self.until_there_is_space(|space| {
            let mut state = self.cell.state.lock();
            self.check_there(&state)?;
            let changed = change(&state);
            self.write_state(&mut state, changed, space)
        })
    }

    /// Writes and keeps a state; `None` if there is no space.
    fn write_state(&self, state: &mut GroupState, new: State, space: &mut Option<SpaceRequest>) -> Result<Option<Lsn>> {
        let shared = self.log.shared();
        let encoded = new.encode(self.cell.id);
        let (bytes, before) = (state_record_bytes(&encoded), state.state_bytes());
        let more = bytes.saturating_sub(before);
        shared.live.add_state(more)?;
        match self.write(&[&encoded], space) {
            Ok(Some(range)) => {
                let gone = state.set(new, (range.start, bytes));
                shared.cache.sub(gone.cached_bytes);
                shared.live.sub(gone.record_bytes + before.saturating_sub(bytes));
                Ok(Some(range.end))
            }
            refused => {
                shared.live.sub(more);
                refused.map(|_| None)
            }
        }
    }

    /// Tries again with space that was waited for.
    fn until_there_is_space(&self, attempt: impl Fn(&mut Option<SpaceRequest>) -> Result<Option<Lsn>>) -> Result<Lsn> {
        let (shared, mut space) = (self.log.shared(), None);
        loop {
            if let Some(end) = attempt(&mut space)? {
                return Ok(end);
            }
            space = Some(shared.wait_for_space(shared.log.space_needed(4 * MAX_NOTE_BYTES)?)?);
        }
    }

    /// Appends a record; `None` if there is no space.
    fn write(&self, parts: &[&[u8]], space: &mut Option<SpaceRequest>) -> Result<Option<LsnRange>> {
        let log = &self.log.shared().log;
        let appended = match space {
            Some(space) => log.append_requested(parts, space),
            None => log.append(parts),
        };
        match appended {
            Ok(range) => Ok(Some(range)),
            Err(error) if error.kind() == ErrorKind::LogFull => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn check_there(&self, state: &GroupState) -> Result<()> {
        if !state.is_removed() {
            return Ok(());
        }
        let what = format!("group {} was removed from the raft log; ask for it anew", self.cell.id);
        Err(Error::new(ErrorKind::NotFound, what))
    }
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group").field("id", &self.cell.id).field("bounds", &self.bounds()).finish_non_exhaustive()
    }
}
