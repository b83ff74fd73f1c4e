//! What clients saw, what nodes applied, which of them led: and what must hold of it.

use std::collections::{BTreeMap, BTreeSet};

/// A request of a client: each key has a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Appends a value, which no other request appends.
    Append {
        key: u8,
        value: u64,
    },
    Read {
        key: u8,
    },
}

impl Request {
    fn key(self) -> u8 {
        match self {
            Request::Append { key, .. } | Request::Read { key } => key,
        }
    }
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The list has so many values since.
    Appended(usize),
    /// The list.
    Found(Vec<u64>),
    /// Nothing was done.
    Refused,
}

#[derive(Debug)]
struct Operation {
    request: Request,
    invoked: u64,
    /// Without one, it may have been done or not.
    answered: Option<(u64, Answer)>,
}

/// An entry as a node applied it, with a digest of all before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    pub term: u64,
    pub digest: u64,
}

/// All that was observed.
#[derive(Debug, Default)]
pub struct History {
    now: u64,
    operations: Vec<Operation>,
    leaders: BTreeMap<u64, u64>,
    applied: BTreeMap<u64, Applied>,
    /// How far each node has come.
    nodes: BTreeMap<u64, u64>,
    pub snapshots_installed: u64,
    /// By the raft logs, so that they could go round, since the nodes were started last.
    pub entries_rewritten: u64,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// A client asks. Returns the number of the request.
    pub fn invoke(&mut self, request: Request) -> usize {
        let invoked = self.tick();
        self.operations.push(Operation { request, invoked, answered: None });
        self.operations.len() - 1
    }

    /// The client gets its answer.
    pub fn answer(&mut self, operation: usize, answer: Answer) {
        let now = self.tick();
        self.operations[operation].answered = Some((now, answer));
    }

    /// A node leads.
    pub fn lead(&mut self, node: u64, term: u64) {
        let leader = *self.leaders.entry(term).or_insert(node);
        assert_eq!(leader, node, "nodes {leader} and {node} both lead in term {term}");
    }

    /// A node applied an entry.
    pub fn apply(&mut self, node: u64, index: u64, applied: Applied) {
        let known = self.applied.entry(index).or_insert_with(|| applied.clone());
        assert_eq!(*known, applied, "node {node} applied another entry {index} than was applied before");
        self.nodes.insert(node, index);
    }

    /// Whether all nodes have come to the entry that was applied last.
    pub fn is_at_rest(&self) -> bool {
        self.nodes.values().all(|index| *index == self.last_applied())
    }

    /// A node has this state, which came to this entry.
    pub fn check_state(&mut self, node: u64, index: u64, digest: u64) {
        let known = self.applied.get(&index).map_or(0, |applied| applied.digest);
        assert_eq!(digest, known, "the rows of node {node} are not those that entry {index} led to");
        self.nodes.insert(node, index);
    }

    /// The entry that was applied last by any node.
    pub fn last_applied(&self) -> u64 {
        self.applied.last_key_value().map_or(0, |(index, _)| *index)
    }

    /// How far each node has come, and the last term with a leader.
    pub fn progress(&self) -> (&BTreeMap<u64, u64>, Option<(&u64, &u64)>) {
        (&self.nodes, self.leaders.last_key_value())
    }

    pub fn leaders(&self) -> usize {
        self.leaders.len()
    }

    /// Requests that were answered, and those whose outcome stayed unknown.
    pub fn counts(&self) -> (usize, usize) {
        let is_done =
            |operation: &&Operation| operation.answered.as_ref().is_some_and(|(_, answer)| *answer != Answer::Refused);
        let unknown = self.operations.iter().filter(|operation| operation.answered.is_none()).count();
        (self.operations.iter().filter(is_done).count(), unknown)
    }

    /// Whether the answers are those of one list for each key, which changes at one moment between a request and its answer, and ends
    /// as these.
    pub fn check(&self, lists: &BTreeMap<u8, Vec<u64>>) {
        let mut appended = BTreeSet::new();
        for (key, list) in lists {
            for value in list {
                assert!(appended.insert((*key, *value)), "value {value} was appended twice");
            }
        }
        let empty = Vec::new();
        // Each request with the length of the list that it led to or found.
        let mut versions = Vec::new();
        for operation in &self.operations {
            let list = lists.get(&operation.request.key()).unwrap_or(&empty);
            let answer = operation.answered.as_ref().map(|(_, answer)| answer);
            let version = match (operation.request, answer) {
                (Request::Append { key, value }, answer) => {
                    let was_there = appended.remove(&(key, value));
                    let place = list.iter().position(|found| *found == value).map(|at| at + 1);
                    match answer {
                        Some(Answer::Appended(version)) => {
                            assert_eq!(place, Some(*version), "{operation:?} in {list:?}")
                        }
                        Some(_) => assert!(!was_there, "{operation:?} in {list:?}"),
                        None => {}
                    }
                    place
                }
                (Request::Read { .. }, Some(Answer::Found(found))) => {
                    assert!(list.starts_with(found), "{operation:?} in {list:?}");
                    Some(found.len())
                }
                (Request::Read { .. }, _) => None,
            };
            versions.extend(version.map(|version| (operation, version)));
        }
        assert!(appended.is_empty(), "{appended:?} was never appended");
        for (later, version) in &versions {
            let is_append = matches!(later.request, Request::Append { .. });
            for (earlier, before) in &versions {
                let is_before = earlier.answered.as_ref().is_some_and(|(answered, _)| *answered < later.invoked)
                    && earlier.request.key() == later.request.key();
                assert!(
                    !is_before || before + usize::from(is_append) <= *version,
                    "{later:?} saw version {version}, although {earlier:?} with version {before} was over"
                );
            }
        }
    }
}
