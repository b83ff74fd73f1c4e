//! Recovery: the groups, from all records behind the checkpoint.
//!
//! An entry or a state whose record would lie before the checkpoint was written again before that passed it, so it is found. While the
//! records are read, a group may lack entries that were rewritten later; at the end it must not.

use std::collections::{BTreeMap, VecDeque};

use tantalum_log::{Lsn, Recovery, Result};

use crate::record::{Decoded, EntryHead, State, corrupt, decode};
use crate::state::{GroupState, Place, state_record_bytes};

/// A group, as far as it was read.
#[derive(Default)]
struct Found {
    state: Option<(State, Lsn, u64)>,
    entries: BTreeMap<u64, Place>,
}

/// Reads the groups, and what of the log they need in bytes of records.
pub(crate) fn replay(recovery: &mut Recovery) -> Result<(BTreeMap<u64, GroupState>, u64)> {
    let mut groups = BTreeMap::<u64, Found>::new();
    while let Some(mut records) = recovery.next_records()? {
        while let Some(record) = records.next_record()? {
            let bytes = &records.bytes()[record.bytes];
            match decode(bytes, record.start)? {
                Decoded::Entry(head, entry) => {
                    let place = Place { start: record.start, term: head.term, bytes: entry.len() as u32 };
                    groups.entry(head.group).or_default().add(&head, place)?;
                }
                Decoded::State(group, state) => {
                    groups.entry(group).or_default().set(state, record.start, state_record_bytes(bytes));
                }
                Decoded::Removed(group) => {
                    groups.remove(&group);
                }
            }
        }
    }
    let mut bytes = 0;
    let mut finish = |(group, found): (u64, Found)| {
        let state = found.finish(group)?;
        bytes += state.state_bytes() + state.places().map(|(_, place)| place.record_bytes()).sum::<u64>();
        Ok((group, state))
    };
    let groups = groups.into_iter().map(&mut finish).collect::<Result<_>>()?;
    Ok((groups, bytes))
}

impl Found {
    fn add(&mut self, head: &EntryHead, place: Place) -> Result<()> {
        let EntryHead { group, index, term, is_moved } = *head;
        let last = self.entries.last_key_value().map(|(&last, _)| last);
        if !is_moved && last.is_some_and(|last| last >= index) {
            let last = last.unwrap_or_default();
            let what = format!("entry {index} of group {group} follows entry {last}, which was not truncated");
            return Err(corrupt(place.start, &what));
        }
        let before = self.entries.insert(index, place);
        if before.is_some_and(|before| before.term != term) {
            return Err(corrupt(
                place.start,
                &format!("it is a copy of entry {index} of group {group} with another term"),
            ));
        }
        Ok(())
    }

    fn set(&mut self, state: State, start: Lsn, bytes: u64) {
        self.entries.retain(|index, _| (state.first..state.end).contains(index));
        self.state = Some((state, start, bytes));
    }

    /// Refuses a group of which something is missing.
    fn finish(self, group: u64) -> Result<GroupState> {
        let Some((mut state, start, bytes)) = self.state else {
            let first = self.entries.first_key_value().map_or(Lsn::ZERO, |(_, place)| place.start);
            return Err(corrupt(first, &format!("group {group} has entries and no state")));
        };
        let missing = (state.first..).zip(self.entries.keys()).find(|(expected, index)| expected != *index);
        let end = state.first + self.entries.len() as u64;
        if let Some(index) = missing.map(|(expected, _)| expected).or_else(|| (end < state.end).then_some(end)) {
            return Err(corrupt(start, &format!("entry {index} of group {group}, which it counts on, is missing")));
        }
        state.end = end;
        let places: VecDeque<Place> = self.entries.into_values().collect();
        Ok(GroupState::new(state, places, (start, bytes)))
    }
}
