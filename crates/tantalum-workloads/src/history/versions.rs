//! The versions of each key, the transactions that wrote them, and what is known of their order.

use std::collections::BTreeMap;

use super::{History, Operation, Outcome, TransactionIndex, Version};

/// The state of a key that one transaction left behind; place 0 of a key is the state before all transactions.
pub(super) struct State {
    /// `None` for the initial state.
    pub(super) writer: Option<TransactionIndex>,
    /// `None`: the key was absent.
    pub(super) version: Option<Version>,
    /// Places of states known to come later; together with their own, all that are known.
    pub(super) successors: Vec<usize>,
}

/// All states that counted transactions gave to one key.
pub(super) struct KeyVersions {
    pub(super) states: Vec<State>,
}

impl KeyVersions {
    fn new(initial: Option<Version>) -> Self {
        Self { states: vec![State { writer: None, version: initial, successors: Vec::new() }] }
    }

    pub(super) fn place_of_version(&self, version: Version) -> Option<usize> {
        self.states.iter().position(|state| state.version == Some(version))
    }

    pub(super) fn place_of_writer(&self, writer: TransactionIndex) -> Option<usize> {
        self.states.iter().position(|state| state.writer == Some(writer))
    }

    /// The places in order, if all are ordered against each other.
    pub(super) fn total_order(&self) -> Option<Vec<usize>> {
        let mut waiting_for = vec![0; self.states.len()];
        for state in &self.states {
            state.successors.iter().for_each(|&later| waiting_for[later] += 1);
        }
        let mut ready: Vec<usize> = (0..self.states.len()).filter(|&place| waiting_for[place] == 0).collect();
        let mut order = Vec::new();
        while let [place] = ready[..] {
            ready.clear();
            order.push(place);
            for &later in &self.states[place].successors {
                waiting_for[later] -= 1;
                if waiting_for[later] == 0 {
                    ready.push(later);
                }
            }
        }
        (order.len() == self.states.len()).then_some(order)
    }

    fn order_by_sequence<K>(&mut self, history: &History<K>) {
        let sequence = |state: &State| match history.transactions[state.writer?].outcome {
            Outcome::Committed(sequence) => sequence,
            _ => None,
        };
        let mut known: Vec<(u64, usize)> =
            self.states.iter().enumerate().filter_map(|(place, state)| Some((sequence(state)?, place))).collect();
        known.sort_unstable();
        for pair in known.windows(2) {
            self.states[pair[0].1].successors.push(pair[1].1);
        }
    }

    fn order_after_initial(&mut self) {
        let mut has_predecessor = vec![false; self.states.len()];
        for state in &self.states {
            state.successors.iter().for_each(|&later| has_predecessor[later] = true);
        }
        let first = (1..self.states.len()).filter(|&place| !has_predecessor[place]);
        self.states[0].successors.extend(first);
    }
}

/// The writer of a version, and whether the version is what the writer left behind.
pub(super) struct Write<'h, K> {
    pub(super) writer: Option<TransactionIndex>,
    pub(super) key: &'h K,
    pub(super) is_final: bool,
}

/// What every transaction wrote, and which versions were given out twice.
pub(super) struct Writes<'h, K> {
    pub(super) by_version: BTreeMap<Version, Write<'h, K>>,
    /// For each transaction, the state in which it leaves each key that it writes.
    pub(super) left_behind: Vec<BTreeMap<&'h K, Option<Version>>>,
    pub(super) duplicates: Vec<Version>,
}

impl<'h, K: Ord> Writes<'h, K> {
    pub(super) fn of(history: &'h History<K>) -> Self {
        let mut writes = Self { by_version: BTreeMap::new(), left_behind: Vec::new(), duplicates: Vec::new() };
        for (key, version) in &history.initial {
            writes.add(*version, Write { writer: None, key, is_final: true });
        }
        for (writer, record) in history.transactions.iter().enumerate() {
            let mut left_behind: BTreeMap<&K, Option<Version>> = BTreeMap::new();
            for operation in &record.operations {
                match operation {
                    Operation::Write(key, version) => {
                        left_behind.insert(key, Some(*version));
                        writes.add(*version, Write { writer: Some(writer), key, is_final: false });
                    }
                    Operation::Delete(key) => {
                        left_behind.insert(key, None);
                    }
                    Operation::Read(..) | Operation::ReadRange(..) => {}
                }
            }
            for version in left_behind.values().flatten() {
                if let Some(write) = writes.by_version.get_mut(version) {
                    write.is_final = true;
                }
            }
            writes.left_behind.push(left_behind);
        }
        writes
    }

    fn add(&mut self, version: Version, write: Write<'h, K>) {
        if self.by_version.insert(version, write).is_some() {
            self.duplicates.push(version);
        }
    }

    /// Which transactions count: the committed, and the unknown that one of these observed.
    pub(super) fn counted(&self, history: &History<K>) -> Vec<bool> {
        let transactions = &history.transactions;
        let mut counted: Vec<bool> =
            transactions.iter().map(|record| matches!(record.outcome, Outcome::Committed(_))).collect();
        let mut unexplored: Vec<usize> = (0..counted.len()).filter(|&reader| counted[reader]).collect();
        while let Some(reader) = unexplored.pop() {
            for version in observed_versions(&transactions[reader].operations) {
                let Some(writer) = self.by_version.get(&version).and_then(|write| write.writer) else { continue };
                if !counted[writer] && transactions[writer].outcome == Outcome::Unknown {
                    counted[writer] = true;
                    unexplored.push(writer);
                }
            }
        }
        counted
    }
}

fn observed_versions<K>(operations: &[Operation<K>]) -> Vec<Version> {
    let mut versions = Vec::new();
    for operation in operations {
        match operation {
            Operation::Read(_, observed) => versions.extend(observed),
            Operation::ReadRange(_, _, rows) => versions.extend(rows.iter().map(|(_, version)| version)),
            Operation::Write(..) | Operation::Delete(_) => {}
        }
    }
    versions
}

/// The states of every key of the history, without any order yet.
pub(super) fn collect<'h, K: Ord>(
    history: &'h History<K>,
    writes: &Writes<'h, K>,
    counted: &[bool],
) -> BTreeMap<&'h K, KeyVersions> {
    let mut keys: BTreeMap<&K, KeyVersions> = BTreeMap::new();
    for (key, version) in &history.initial {
        keys.insert(key, KeyVersions::new(Some(*version)));
    }
    for (writer, left_behind) in writes.left_behind.iter().enumerate() {
        for (key, version) in left_behind {
            let versions = keys.entry(key).or_insert_with(|| KeyVersions::new(None));
            if counted[writer] {
                let state = State { writer: Some(writer), version: *version, successors: Vec::new() };
                versions.states.push(state);
            }
        }
    }
    keys
}

/// Orders the states of each key: by commit sequence, after what their writers read, and all after the initial one.
/// `read_before_write` lists (writer, key, version read).
pub(super) fn order<'h, K: Ord>(
    history: &'h History<K>,
    keys: &mut BTreeMap<&'h K, KeyVersions>,
    read_before_write: &[(TransactionIndex, &'h K, Version)],
) {
    keys.values_mut().for_each(|versions| versions.order_by_sequence(history));
    for (writer, key, version) in read_before_write {
        let Some(versions) = keys.get_mut(key) else { continue };
        let places = (versions.place_of_version(*version), versions.place_of_writer(*writer));
        if let (Some(earlier), Some(own)) = places
            && earlier != own
            && !versions.states[earlier].successors.contains(&own)
        {
            versions.states[earlier].successors.push(own);
        }
    }
    keys.values_mut().for_each(KeyVersions::order_after_initial);
}
