//! What the store must do, as maps that are copied for each revision.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::mvccpb::KeyValue;
use crate::mvcc::{Keys, Revision};
use crate::refusal::Refusal;

/// The keys that are there.
pub type State = BTreeMap<Vec<u8>, KeyValue>;

/// A change: of which key, and whether it was deleted.
pub type Change = (Vec<u8>, bool);

#[derive(Clone)]
pub struct Model {
    pub revision: i64,
    pub compacted: i64,
    pub states: BTreeMap<i64, State>,
    pub changes: BTreeMap<i64, Vec<Change>>,
    pub leases: BTreeSet<i64>,
}

/// An operation on keys.
#[derive(Clone, Debug)]
pub enum Operation {
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
        lease: i64,
        ignore_value: bool,
        ignore_lease: bool,
    },
    Delete(Keys),
    Read(Keys),
    /// If the key has this version.
    Txn {
        key: Vec<u8>,
        version: i64,
        success: Vec<Operation>,
        failure: Vec<Operation>,
    },
}

/// What an operation returned.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Put(Option<KeyValue>),
    Deleted(Vec<KeyValue>),
    Read(Vec<KeyValue>),
    Txn(bool, Vec<Outcome>),
}

impl Model {
    pub fn new() -> Model {
        Model {
            revision: 1,
            compacted: -1,
            states: BTreeMap::from([(1, State::new())]),
            changes: BTreeMap::new(),
            leases: BTreeSet::new(),
        }
    }

    pub fn state(&self) -> &State {
        &self.states[&self.revision]
    }

    /// Runs an operation. Returns what it returns.
    pub fn run(&mut self, operation: &Operation) -> Result<Outcome, Refusal> {
        let before = self.state().clone();
        self.check(operation, &before, false)?;
        let (mut state, mut changes) = (before.clone(), Vec::new());
        let outcome = self.execute(operation, &before, &mut state, &mut changes);
        self.commit(state, changes);
        Ok(outcome)
    }

    fn commit(&mut self, state: State, changes: Vec<Change>) {
        if !changes.is_empty() {
            self.revision += 1;
            self.states.insert(self.revision, state);
            self.changes.insert(self.revision, changes);
        }
    }

    /// All refusals look at the state before. Of a put, the lease is looked at first; within a transaction, the key.
    fn check(&self, operation: &Operation, before: &State, is_within: bool) -> Result<(), Refusal> {
        match operation {
            Operation::Put { key, lease, ignore_value, ignore_lease, .. } => {
                let lacks_lease = *lease != 0 && !self.leases.contains(lease);
                let lacks_key = (*ignore_value || *ignore_lease) && !before.contains_key(key);
                match (lacks_lease, lacks_key) {
                    (true, true) if is_within => Err(Refusal::KeyNotFound),
                    (true, _) => Err(Refusal::LeaseNotFound),
                    (false, true) => Err(Refusal::KeyNotFound),
                    (false, false) => Ok(()),
                }
            }
            Operation::Txn { .. } => {
                self.side(operation, before).1.iter().try_for_each(|inner| self.check(inner, before, true))
            }
            Operation::Delete(_) | Operation::Read(_) => Ok(()),
        }
    }

    /// Whether a transaction succeeds, and what it then does.
    fn side<'o>(&self, operation: &'o Operation, before: &State) -> (bool, &'o [Operation]) {
        let Operation::Txn { key, version, success, failure } = operation else { return (true, &[]) };
        let succeeds = before.get(key).map_or(0, |key_value| key_value.version) == *version;
        (succeeds, if succeeds { success } else { failure })
    }

    fn execute(&self, operation: &Operation, before: &State, state: &mut State, changes: &mut Vec<Change>) -> Outcome {
        let within = |keys: &Keys, state: &State| -> Vec<KeyValue> {
            state.values().filter(|key_value| keys.contains(&key_value.key)).cloned().collect()
        };
        match operation {
            Operation::Put { key, value, lease, ignore_value, ignore_lease } => {
                let previous = state.get(key).cloned();
                let old = previous.clone().unwrap_or_default();
                let main = self.revision + 1;
                let new = KeyValue {
                    key: key.clone(),
                    create_revision: if old.version == 0 { main } else { old.create_revision },
                    mod_revision: main,
                    version: old.version + 1,
                    value: if *ignore_value { old.value } else { value.clone() },
                    lease: if *ignore_lease { old.lease } else { *lease },
                };
                state.insert(key.clone(), new);
                changes.push((key.clone(), false));
                Outcome::Put(previous)
            }
            Operation::Delete(keys) => {
                let deleted = within(keys, state);
                for key_value in &deleted {
                    state.remove(&key_value.key);
                    changes.push((key_value.key.clone(), true));
                }
                Outcome::Deleted(deleted)
            }
            Operation::Read(keys) => Outcome::Read(within(keys, state)),
            Operation::Txn { .. } => {
                let (succeeds, side) = self.side(operation, before);
                let outcomes = side.iter().map(|inner| self.execute(inner, before, state, changes)).collect();
                Outcome::Txn(succeeds, outcomes)
            }
        }
    }

    pub fn grant(&mut self, id: i64) -> Result<(), Refusal> {
        if self.leases.insert(id) { Ok(()) } else { Err(Refusal::LeaseExists) }
    }

    pub fn revoke(&mut self, id: i64) -> Result<(), Refusal> {
        if !self.leases.remove(&id) {
            return Err(Refusal::LeaseNotFound);
        }
        let (held, kept): (State, State) =
            self.state().clone().into_iter().partition(|(_, key_value)| key_value.lease == id);
        self.commit(kept, held.into_keys().map(|key| (key, true)).collect());
        Ok(())
    }

    pub fn compact(&mut self, revision: i64) -> Result<(), Refusal> {
        if revision <= self.compacted {
            return Err(Refusal::Compacted);
        }
        if revision > self.revision {
            return Err(Refusal::FutureRevision);
        }
        self.compacted = revision;
        Ok(())
    }

    /// What remains when compaction has done all its work.
    pub fn kept_revisions(&self) -> Vec<Revision> {
        let mut kept = BTreeSet::new();
        let mut last: BTreeMap<&[u8], (Revision, bool)> = BTreeMap::new();
        for (main, changes) in &self.changes {
            for (sub, (key, is_delete)) in (0..).zip(changes) {
                let revision = Revision { main: *main, sub };
                if *main > self.compacted {
                    kept.insert(revision);
                } else {
                    last.insert(key, (revision, *is_delete));
                }
            }
        }
        let stays = |(revision, is_delete): &(Revision, bool)| !is_delete || revision.main == self.compacted;
        kept.extend(last.into_values().filter(stays).map(|(revision, _)| revision));
        kept.into_iter().collect()
    }
}
