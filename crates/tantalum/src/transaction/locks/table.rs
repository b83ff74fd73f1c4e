//! The locks of one table: keys in shards, each key with its holders and a queue, and the ranges beside them.
//!
//! A writer is granted a key only when no other transaction's range covers it, and both are decided under the key's
//! shard lock. A scanner publishes its range first and then looks, shard by shard, for writers within. So of a writer and
//! a scanner that meet, at least one sees the other, and exactly one of them waits: no deadlock arises from the meeting.
//!
//! Lock order: a shard, then the ranges.

use std::{
    collections::{BTreeMap, btree_map},
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};

use tantalum_rt::{Mutex, Unparker, collections::FixedState};

use super::{Mode, TransactionId, ranges::RangeLocks};
use crate::transaction::{Value, key_range::Interval};

const SHARDS: usize = 16;

/// The locks of a table.
#[derive(Debug, Default)]
pub(crate) struct TableLocks {
    shards: [Mutex<Shard>; SHARDS],
    ranges: Mutex<RangeLocks>,
    /// Intervals in `ranges`: with none, writers need not look.
    range_count: AtomicUsize,
}

type Shard = BTreeMap<Value, Entry>;

/// The transactions that hold a key's lock, and those that wait for it. Entries without either do not exist.
#[derive(Debug, Default)]
struct Entry {
    holders: Holders,
    queue: Vec<Arc<Waiter>>,
}

/// The transactions that hold a key's lock, each once. Nearly always that is one, for which nothing is allocated.
#[derive(Debug, Default)]
struct Holders {
    /// `None` only if there are no `others`.
    first: Option<(TransactionId, Mode)>,
    others: Vec<(TransactionId, Mode)>,
}

impl Holders {
    fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn iter(&self) -> impl Iterator<Item = (TransactionId, Mode)> {
        self.first.iter().chain(&self.others).copied()
    }

    /// Notes how `owner` holds the lock from now on.
    fn set(&mut self, owner: TransactionId, mode: Mode) {
        if self.first.is_none() {
            self.first = Some((owner, mode));
            return;
        }
        match self.first.iter_mut().chain(&mut self.others).find(|(holder, _)| *holder == owner) {
            Some(held) => held.1 = mode,
            None => self.others.push((owner, mode)),
        }
    }

    /// Takes `owner` out, if it is one of them.
    fn remove(&mut self, owner: TransactionId) {
        if self.first.is_some_and(|(holder, _)| holder == owner) {
            self.first = self.others.pop();
        } else {
            self.others.retain(|(holder, _)| *holder != owner);
        }
    }
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(super) enum Acquired {
    /// There was no need of it: what the owner has locked includes it, or nothing is to be kept.
    Already,
    /// The owner has it, in the place of a weaker one if it is not the owner's first on the key.
    Granted { is_first: bool },
    /// The owner waits for it.
    Waits { waiter: Arc<Waiter>, is_first: bool },
}

/// A transaction that waits for a key.
#[derive(Debug)]
pub(super) struct Waiter {
    pub owner: TransactionId,
    pub mode: Mode,
    /// Waits for holders only, not for those before it in the queue: because it holds a weaker lock on the key, or a
    /// range that keeps them waiting.
    jumps_queue: bool,
    outcome: AtomicU8,
    unparker: Unparker,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Outcome {
    Waiting = 0,
    Granted = 1,
    Victim = 2,
    TimedOut = 3,
}

impl Waiter {
    /// Ends the wait, unless it has ended; tells whether it did. The first task that decides wakes the waiter.
    pub fn decide(&self, outcome: Outcome) -> bool {
        let decided = self
            .outcome
            .compare_exchange(Outcome::Waiting as u8, outcome as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if decided {
            self.unparker.unpark();
        }
        decided
    }

    pub fn outcome(&self) -> Outcome {
        match self.outcome.load(Ordering::Acquire) {
            0 => Outcome::Waiting,
            1 => Outcome::Granted,
            2 => Outcome::Victim,
            _ => Outcome::TimedOut,
        }
    }

    pub fn is_waiting(&self) -> bool {
        self.outcome() == Outcome::Waiting
    }
}

impl Entry {
    fn is_unused(&self) -> bool {
        self.holders.is_empty() && self.queue.is_empty()
    }

    fn mode_of(&self, owner: TransactionId) -> Option<Mode> {
        self.holders.iter().find(|(holder, _)| *holder == owner).map(|(_, mode)| mode)
    }

    fn grant(&mut self, owner: TransactionId, mode: Mode) {
        assert!(self.holders_against(owner, mode).next().is_none(), "a granted lock is compatible with all holders");
        if mode == Mode::Probe {
            return;
        }
        self.holders.set(owner, mode);
    }

    fn holders_against(&self, owner: TransactionId, mode: Mode) -> impl Iterator<Item = TransactionId> {
        self.holders
            .iter()
            .filter(move |(holder, held)| *holder != owner && held.conflicts_with(mode))
            .map(|(holder, _)| holder)
    }

    /// Those before place `place` of the queue that a waiter there waits for.
    fn queue_against(&self, place: usize, owner: TransactionId, mode: Mode) -> impl Iterator<Item = TransactionId> {
        self.queue[..place]
            .iter()
            .filter(move |ahead| ahead.owner != owner && ahead.mode.conflicts_with(mode) && ahead.is_waiting())
            .map(|ahead| ahead.owner)
    }
}

impl TableLocks {
    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[FixedState::with_seed(0).hash_one(key) as usize % SHARDS]
    }

    /// Locks `key`, or queues up and returns the waiter. `unparker` is asked for in that case.
    pub(super) fn acquire(
        &self,
        owner: TransactionId,
        key: &Value,
        mode: Mode,
        unparker: impl FnOnce() -> Unparker,
    ) -> Acquired {
        let mut shard = self.shard(key).lock();
        let entry = shard.entry(key.clone()).or_default();
        let held = entry.mode_of(owner);
        if held.is_some_and(|held| held >= mode) {
            return Acquired::Already;
        }
        let is_first = held.is_none();
        let has_range = self.has_range(owner, key);
        if mode == Mode::Shared && has_range {
            // The range keeps writers away already.
            if entry.is_unused() {
                shard.remove(key);
            }
            return Acquired::Already;
        }
        let jumps_queue = mode == Mode::Probe || held.is_some() || has_range;
        if !self.is_blocked(entry, entry.queue.len(), key, owner, mode, jumps_queue) {
            entry.grant(owner, mode);
            if entry.is_unused() {
                shard.remove(key);
                return Acquired::Already;
            }
            return Acquired::Granted { is_first };
        }
        let outcome = AtomicU8::new(Outcome::Waiting as u8);
        let waiter = Arc::new(Waiter { owner, mode, jumps_queue, outcome, unparker: unparker() });
        entry.queue.push(Arc::clone(&waiter));
        Acquired::Waits { waiter, is_first }
    }

    /// Publishes that `owner` has locked `interval`, and returns the keys in it that others are writing.
    pub(super) fn extend_range(&self, owner: TransactionId, interval: &Interval) -> Vec<Value> {
        {
            let mut ranges = self.ranges.lock();
            ranges.extend(owner, interval.clone());
            self.range_count.store(ranges.len(), Ordering::Release);
        }
        let mut written = Vec::new();
        for shard in &self.shards {
            tantalum_rt::interleave();
            for (key, entry) in shard.lock().range::<[u8], _>(interval.bounds()) {
                if entry.holders_against(owner, Mode::Probe).next().is_some() {
                    written.push(key.clone());
                }
            }
        }
        written.sort();
        written
    }

    /// Gives back the lock on `key`, and grants it to the next waiters.
    pub fn release(&self, owner: TransactionId, key: Value) {
        self.change_entry(key, |entry| entry.holders.remove(owner));
    }

    /// Forgets that `owner` has locked `key` for writing, if no other transaction waits for it: for a key that is locked by being
    /// staged from now on. Returns whether it did.
    pub fn forget(&self, owner: TransactionId, key: &Value) -> bool {
        let mut shard = self.shard(key).lock();
        let Some(entry) = shard.get(key) else { return true };
        let is_alone = entry.queue.is_empty() && entry.holders.iter().all(|(holder, _)| holder == owner);
        if is_alone {
            shard.remove(key);
        }
        is_alone
    }

    /// Takes the lock on `key` away from `from`, if it has it, and gives it to `to`, which has staged the key. Returns whether `to`
    /// had no lock on it before, and has to release it from now on.
    pub fn give(&self, from: TransactionId, to: TransactionId, key: &Value) -> bool {
        let mut shard = self.shard(key).lock();
        let entry = shard.entry(key.clone()).or_default();
        entry.holders.remove(from);
        let is_first = entry.mode_of(to).is_none();
        entry.holders.set(to, Mode::Exclusive);
        is_first
    }

    /// Whether a range is locked.
    pub fn has_ranges(&self) -> bool {
        self.range_count.load(Ordering::Acquire) > 0
    }

    /// Gives back all ranges, and lets the writers go on that waited for them.
    pub fn release_ranges(&self, owner: TransactionId) {
        let unblocked = {
            let mut ranges = self.ranges.lock();
            let unblocked = ranges.release(owner);
            self.range_count.store(ranges.len(), Ordering::Release);
            unblocked
        };
        for key in unblocked {
            self.change_entry(key, |_| ());
        }
    }

    /// Takes a waiter that gave up out of the queue.
    pub(super) fn withdraw(&self, key: &Value, waiter: &Arc<Waiter>) {
        self.change_entry(key.clone(), |entry| entry.queue.retain(|queued| !Arc::ptr_eq(queued, waiter)));
    }

    /// The transactions that a waiter waits for right now. Empty when it no longer waits.
    pub(super) fn blockers(&self, key: &Value, waiter: &Arc<Waiter>) -> Vec<TransactionId> {
        let shard = self.shard(key).lock();
        let Some(entry) = shard.get(key) else { return Vec::new() };
        let Some(place) = entry.queue.iter().position(|queued| Arc::ptr_eq(queued, waiter)) else { return Vec::new() };
        if !waiter.is_waiting() {
            return Vec::new();
        }
        let mut blockers: Vec<_> = entry.holders_against(waiter.owner, waiter.mode).collect();
        if !waiter.jumps_queue {
            blockers.extend(entry.queue_against(place, waiter.owner, waiter.mode));
        }
        if waiter.mode == Mode::Exclusive {
            blockers.extend(self.ranges.lock().against(waiter.owner, key));
        }
        blockers
    }

    /// Changes an entry, if it exists, and grants what can be granted then.
    fn change_entry(&self, key: Value, change: impl FnOnce(&mut Entry)) {
        let mut shard = self.shard(&key).lock();
        let btree_map::Entry::Occupied(mut occupied) = shard.entry(key) else { return };
        change(occupied.get_mut());
        if occupied.get().is_unused() {
            occupied.remove();
            return;
        }
        self.grant_waiters(occupied);
    }

    /// Grants a key to the waiters in its queue that need not wait any more. Under the shard's lock.
    fn grant_waiters(&self, mut occupied: btree_map::OccupiedEntry<'_, Value, Entry>) {
        let key = occupied.key().clone();
        let entry = occupied.get_mut();
        let mut place = 0;
        while place < entry.queue.len() {
            let waiter = Arc::clone(&entry.queue[place]);
            if waiter.is_waiting() && self.is_blocked(entry, place, &key, waiter.owner, waiter.mode, waiter.jumps_queue)
            {
                place += 1;
                continue;
            }
            entry.queue.remove(place);
            if waiter.decide(Outcome::Granted) {
                entry.grant(waiter.owner, waiter.mode);
            }
        }
        if entry.is_unused() {
            occupied.remove();
        }
    }

    /// Whether a request, at `place` in the queue, must wait. Under the shard's lock.
    fn is_blocked(
        &self,
        entry: &Entry,
        place: usize,
        key: &Value,
        owner: TransactionId,
        mode: Mode,
        jumps_queue: bool,
    ) -> bool {
        entry.holders_against(owner, mode).next().is_some()
            || (!jumps_queue && entry.queue_against(place, owner, mode).next().is_some())
            || (mode == Mode::Exclusive && self.is_blocked_by_range(owner, key))
    }

    fn is_blocked_by_range(&self, writer: TransactionId, key: &Value) -> bool {
        // A range published before this shard's lock was taken is seen through that lock: its owner probes every shard.
        if self.range_count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut ranges = self.ranges.lock();
        let blockers: Vec<_> = ranges.against(writer, key).collect();
        for blocker in &blockers {
            ranges.note_blocked(*blocker, key);
        }
        !blockers.is_empty()
    }

    fn has_range(&self, owner: TransactionId, key: &[u8]) -> bool {
        self.range_count.load(Ordering::Acquire) > 0 && self.ranges.lock().covers(owner, key)
    }

    /// Whether no transaction holds or waits for anything.
    #[cfg(test)]
    pub fn is_idle(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty()) && self.ranges.lock().len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_one_holder_goes_the_others_stay() {
        let all: Vec<_> = [1, 2, 3].map(TransactionId).into();
        for goes in all.clone() {
            let mut holders = Holders::default();
            assert!(holders.is_empty());
            all.iter().for_each(|owner| holders.set(*owner, Mode::Shared));
            holders.set(all[0], Mode::Exclusive);
            holders.remove(TransactionId(9));
            assert_eq!(holders.iter().count(), 3);
            holders.remove(goes);
            let mut left: Vec<_> = holders.iter().collect();
            left.sort();
            let mode = |owner| if owner == all[0] { Mode::Exclusive } else { Mode::Shared };
            let expected: Vec<_> = all.iter().filter(|o| **o != goes).map(|o| (*o, mode(*o))).collect();
            assert_eq!(left, expected);
            all.iter().for_each(|owner| holders.remove(*owner));
            assert!(holders.is_empty());
        }
    }
}
