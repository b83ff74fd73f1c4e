//! What is known of one group: its state, where its entries lie in the log, and the newest of them.
//!
//! Invariants:
//! - there is a place for each entry from `first` up to `end`, and for no other;
//! - cached are the last entries, among them all that have only one record and are not durable yet.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use tantalum_log::{Error, ErrorKind, Lsn, Result};

use crate::record::{ENTRY_HEAD_BYTES, Purged, State};

/// Bytes of the log's framing of a record.
const FRAME_BYTES: u64 = 4;

/// Where an entry lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) start: Lsn,
    pub(crate) term: u64,
    /// Bytes of the entry.
    pub(crate) bytes: u32,
}

impl Place {
    /// What its record takes of the log.
    pub(crate) fn record_bytes(&self) -> u64 {
        entry_record_bytes(self.bytes as usize)
    }
}

/// What the record of an entry of so many bytes takes of the log.
pub(crate) fn entry_record_bytes(bytes: usize) -> u64 {
    (ENTRY_HEAD_BYTES + bytes) as u64 + FRAME_BYTES
}

/// One group.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    state: State,
    places: VecDeque<Place>,
    /// The bytes of the last entries.
    cached: VecDeque<Arc<[u8]>>,
    /// Where the record of the state starts, and what it takes of the log; `None` while there is none.
    written: Option<(Lsn, u64)>,
    is_removed: bool,
}

impl GroupState {
    /// As recovery found it.
    pub(crate) fn new(state: State, places: VecDeque<Place>, written: (Lsn, u64)) -> GroupState {
        assert_eq!(state.end - state.first, places.len() as u64, "each entry has a place");
        GroupState { state, places, written: Some(written), ..GroupState::default() }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Where the record of the state starts.
    pub(crate) fn state_start(&self) -> Option<Lsn> {
        self.written.map(|(start, _)| start)
    }

    /// What the record of the state takes of the log.
    pub(crate) fn state_bytes(&self) -> u64 {
        self.written.map_or(0, |(_, bytes)| bytes)
    }

    /// The entries that there are.
    pub(crate) fn indexes(&self) -> Range<u64> {
        self.state.first..self.state.end
    }

    pub(crate) fn place(&self, index: u64) -> Option<Place> {
        self.places.get(usize::try_from(index.checked_sub(self.state.first)?).ok()?).copied()
    }

    /// The entries with their indexes.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, Place)> {
        (self.state.first..).zip(self.places.iter().copied())
    }

    /// Index and term of the last entry, or of the last that was purged.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        match self.places.back() {
            Some(last) => Some((self.state.end - 1, last.term)),
            None => self.state.purged.as_ref().map(|purged| (purged.index, purged.term)),
        }
    }

    /// The state that a group must have, by a record, before an entry with this index is appended: `None` if it has it.
    pub(crate) fn state_before(&self, index: u64, group: u64) -> Result<Option<State>> {
        let may_begin = self.places.is_empty() && self.state.purged.is_none();
        if index != self.state.end && !may_begin {
            let what = format!(
                "group {group} of the raft log ends with index {}, so an entry with index {index} cannot follow; append the next one, or truncate first",
                self.state.end.wrapping_sub(1)
            );
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let begins = self.written.is_none() || index != self.state.end;
        Ok(begins.then(|| State { first: index, end: index, ..self.state.clone() }))
    }

    /// Adds the next entry, and caches it.
    pub(crate) fn push(&mut self, place: Place, bytes: Arc<[u8]>) {
        self.places.push_back(place);
        self.cached.push_back(bytes);
        self.state.end += 1;
    }

    /// The bytes of an entry, if they are cached.
    pub(crate) fn cached(&self, index: u64) -> Option<&Arc<[u8]>> {
        let first = self.state.end - self.cached.len() as u64;
        self.cached.get(usize::try_from(index.checked_sub(first)?).ok()?)
    }

    /// Evicts cached entries that lie before `target`, and those before them. Returns their bytes.
    ///
    /// Everything before `target` is durable. What is evicted beyond that was rewritten, and is made durable before it is read.
    pub(crate) fn evict_before(&mut self, target: Lsn) -> usize {
        let mut places = self.places.range(self.places.len() - self.cached.len()..);
        let evicted = places.rposition(|place| place.start < target).map_or(0, |last| last + 1);
        drop_first(&mut self.cached, evicted)
    }

    /// The group is gone, with all that it had.
    pub(crate) fn remove(&mut self) -> Gone {
        let before = std::mem::replace(self, GroupState { is_removed: true, ..GroupState::default() });
        Gone {
            record_bytes: before.places.iter().map(Place::record_bytes).sum(),
            cached_bytes: before.cached.iter().map(|bytes| bytes.len()).sum(),
        }
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// The entry has been appended again, at `start`.
    pub(crate) fn move_to(&mut self, index: u64, start: Lsn) {
        let at = (index - self.state.first) as usize;
        self.places[at].start = start;
    }

    /// The state has a new record. Returns what the entries took that are gone with it.
    pub(crate) fn set(&mut self, state: State, written: (Lsn, u64)) -> Gone {
        let old = self.indexes();
        let first = state.first.clamp(old.start, old.end);
        let kept = (state.end.clamp(first, old.end) - first) as usize;
        let (before, behind) = ((first - old.start) as usize, (old.end - first) as usize - kept);
        let gone = self.places.range(..before).chain(self.places.range(before + kept..));
        let record_bytes = gone.map(Place::record_bytes).sum();
        self.places.truncate(before + kept);
        self.places.drain(..before);
        let is_cached = self.cached.len().saturating_sub(behind);
        let cached_behind = self.cached.drain(is_cached..).map(|bytes| bytes.len()).sum::<usize>();
        let cached_before = drop_first(&mut self.cached, is_cached.saturating_sub(kept));
        give_back_memory(&mut self.places);
        give_back_memory(&mut self.cached);
        self.state = state;
        self.written = Some(written);
        assert_eq!(self.state.end - self.state.first, self.places.len() as u64, "each entry has a place");
        assert!(self.cached.len() <= self.places.len(), "only entries are cached");
        Gone { record_bytes, cached_bytes: cached_before + cached_behind }
    }

    /// The state without the entries behind `last`, all if that is `None`.
    pub(crate) fn truncated(&self, last: Option<u64>) -> State {
        let end = last.map_or(0, |last| last.saturating_add(1)).clamp(self.state.first, self.state.end);
        State { end, ..self.state.clone() }
    }

    /// The state without the entries up to `purged`.
    pub(crate) fn purged(&self, purged: Purged) -> State {
        if self.state.purged.as_ref().is_some_and(|before| before.index >= purged.index) {
            return self.state.clone();
        }
        let next = purged.index + 1;
        let (first, end) = match self.places.is_empty() {
            true => (next, next),
            false => (self.state.first.max(next), self.state.end.max(next)),
        };
        State { first, end, purged: Some(purged), ..self.state.clone() }
    }
}

/// What entries took that are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Of the log.
    pub(crate) record_bytes: u64,
    /// Of the memory of the cache.
    pub(crate) cached_bytes: usize,
}

/// Drops the first ones, and returns what they took.
fn drop_first(cached: &mut VecDeque<Arc<[u8]>>, count: usize) -> usize {
    cached.drain(..count).map(|bytes| bytes.len()).sum()
}

/// A group that had many entries does not keep the memory for them, and one that goes on has it at hand.
fn give_back_memory<T>(queue: &mut VecDeque<T>) {
    const KEPT: usize = 64;
    if queue.capacity() > KEPT.max(4 * queue.len()) {
        queue.shrink_to(2 * queue.len());
    }
}

/// What the record of a state takes of the log.
pub(crate) fn state_record_bytes(encoded: &[u8]) -> u64 {
    encoded.len() as u64 + FRAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(indexes: Range<u64>) -> GroupState {
        let mut group = GroupState::default();
        let begin = group.state_before(indexes.start, 1).expect("it may begin").expect("it has no state");
        group.set(begin, (Lsn::ZERO, 10));
        for index in indexes {
            assert_eq!(group.state_before(index, 1).expect("it is the next"), None);
            group.push(Place { start: Lsn::new(index * 100), term: 1, bytes: 8 }, [index as u8; 8].into());
        }
        group
    }

    fn purge(index: u64) -> Purged {
        Purged { index, term: 1, note: [].into() }
    }

    fn gone(entries: u64, cached: usize) -> Gone {
        Gone { record_bytes: entries * entry_record_bytes(8), cached_bytes: cached * 8 }
    }

    #[test]
    fn entries_follow_each_other() {
        let group = group(5..9);
        assert_eq!((group.indexes(), group.last()), (5..9, Some((8, 1))));
        assert_eq!(group.place(6).map(|place| place.start.get()), Some(600));
        assert!(group.place(4).is_none() && group.place(9).is_none());
        let error = group.state_before(10, 7).expect_err("9 is the next");
        assert!(error.to_string().contains("group 7 of the raft log ends with index 8"), "{error}");
    }

    #[test]
    fn truncation_and_purge_take_entries_from_either_end() {
        let mut group = group(5..15);
        let state = group.truncated(Some(11));
        assert_eq!(group.set(state, (Lsn::new(1), 10)), gone(3, 3));
        assert_eq!(group.evict_before(Lsn::new(601)), 2 * 8);
        let state = group.purged(purge(7));
        assert_eq!(group.set(state, (Lsn::new(2), 10)), gone(3, 1));
        assert_eq!(group.indexes(), 8..12);
        let cached: Vec<_> = (0..20).filter_map(|index| group.cached(index).map(|bytes| (index, bytes[0]))).collect();
        assert_eq!(cached, [(8, 8), (9, 9), (10, 10), (11, 11)]);
        assert_eq!(group.purged(purge(6)), *group.state(), "it was purged before");
        let state = group.truncated(None);
        assert_eq!(group.set(state, (Lsn::new(3), 10)), gone(4, 4));
        assert_eq!((group.indexes(), group.last()), (8..8, Some((7, 1))));
        // A snapshot that goes beyond the entries.
        let state = group.purged(purge(100));
        group.set(state, (Lsn::new(4), 10));
        assert_eq!((group.indexes(), group.last()), (101..101, Some((100, 1))));
        assert!(group.state_before(101, 1).expect("it is the next").is_none());
        assert!(group.state_before(8, 1).is_err());
    }

    #[test]
    fn a_purge_beyond_the_entries_takes_them_all() {
        let mut group = group(5..15);
        let state = group.purged(purge(40));
        assert_eq!(group.set(state, (Lsn::new(4), 10)), gone(10, 10));
        assert_eq!(group.indexes(), 41..41);
    }

    #[test]
    fn cached_stay_the_last_entries_whatever_goes() {
        let mut group = group(0..10);
        group.move_to(2, Lsn::new(5000));
        assert_eq!(group.evict_before(Lsn::new(0)), 0);
        assert_eq!(group.evict_before(Lsn::new(301)), 4 * 8, "a moved entry goes with those behind it");
        assert!(group.cached(3).is_none() && group.cached(4).is_some());
        let state = group.truncated(Some(1));
        assert_eq!(group.set(state, (Lsn::new(1), 10)), gone(8, 6));
        assert!((0..20).all(|index| group.cached(index).is_none()));
        group.push(Place { start: Lsn::new(9000), term: 2, bytes: 8 }, [77; 8].into());
        assert_eq!(group.cached(2).map(|bytes| bytes[0]), Some(77));
        assert_eq!(group.remove(), gone(3, 1));
    }
}
