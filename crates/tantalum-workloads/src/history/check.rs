//! The check itself: reads one by one, then edges, then cycles.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Display};
use std::ops::Bound;

use super::anomaly::{Anomaly, Dependency, Step};
use super::graph::Graph;
use super::versions::{self, KeyVersions, Writes};
use super::{History, Operation, Outcome, TransactionIndex, Version};

/// What the history is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Some serial order of the transactions explains every read.
    Serializable,
    /// Such an order exists in which, too, a transaction that ended comes before all that began later.
    StrictSerializable,
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report<K> {
    /// Everything found; empty when the history is good.
    pub anomalies: Vec<Anomaly<K>>,
    /// Transactions that count: committed, or of unknown outcome and observed.
    pub transactions: usize,
    /// Edges between them.
    pub edges: usize,
    /// Reads of an absent key with several possible origins: placed less exactly, or not at all.
    pub ambiguous_reads: usize,
}

impl<K> Report<K> {
    /// Whether nothing was found.
    pub fn is_ok(&self) -> bool {
        self.anomalies.is_empty()
    }
}

impl<K: Debug> Display for Report<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} transactions, {} dependencies: ", self.transactions, self.edges)?;
        if self.is_ok() {
            return write!(f, "ok");
        }
        self.anomalies.iter().try_for_each(|anomaly| write!(f, "\n{anomaly}"))
    }
}

/// A read of a key that the reader had not written before.
struct ExternalRead<'h, K> {
    reader: TransactionIndex,
    key: &'h K,
    observed: Option<Version>,
}

struct Checker<'h, K> {
    history: &'h History<K>,
    writes: Writes<'h, K>,
    counted: Vec<bool>,
    anomalies: Vec<Anomaly<K>>,
    ambiguous_reads: usize,
    graph: Graph<Dependency<&'h K>>,
}

pub(super) fn check<K: Ord + Clone + Debug>(history: &History<K>, level: Level) -> Report<K> {
    let writes = Writes::of(history);
    let counted = writes.counted(history);
    let mut keys = versions::collect(history, &writes, &counted);
    let mut checker = Checker {
        history,
        anomalies: writes.duplicates.iter().map(|&version| Anomaly::DuplicateVersion { version }).collect(),
        writes,
        counted,
        ambiguous_reads: 0,
        graph: Graph::new(history.transactions.len()),
    };
    checker.check_sequences();
    let reads = checker.external_reads(&keys);
    let read_before_write: Vec<_> =
        reads.iter().filter_map(|read| Some((read.reader, read.key, read.observed?))).collect();
    versions::order(history, &mut keys, &read_before_write);
    checker.add_version_edges(&keys);
    reads.iter().for_each(|read| checker.add_read_edges(read, &keys));
    if level == Level::StrictSerializable {
        checker.add_real_time_edges();
    }
    checker.report()
}

impl<'h, K: Ord + Clone + Debug> Checker<'h, K> {
    fn counted_transactions(&self) -> impl Iterator<Item = TransactionIndex> + use<'h, K> {
        let counted = self.counted.clone();
        (0..counted.len()).filter(move |&index| counted[index])
    }

    fn check_sequences(&mut self) {
        let mut seen: BTreeMap<u64, TransactionIndex> = BTreeMap::new();
        for (second, record) in self.history.transactions.iter().enumerate() {
            let Outcome::Committed(Some(sequence)) = record.outcome else { continue };
            if let Some(first) = seen.insert(sequence, second) {
                self.anomalies.push(Anomaly::DuplicateSequence { first, second, sequence });
            }
        }
    }

    /// Checks reads of own writes on the way, and that each version read is one that may be read.
    fn external_reads(&mut self, keys: &BTreeMap<&'h K, KeyVersions>) -> Vec<ExternalRead<'h, K>> {
        let mut reads = Vec::new();
        for reader in self.counted_transactions() {
            let mut own: BTreeMap<&K, Option<Version>> = BTreeMap::new();
            for operation in &self.history.transactions[reader].operations {
                match operation {
                    Operation::Write(key, version) => {
                        own.insert(key, Some(*version));
                    }
                    Operation::Delete(key) => {
                        own.insert(key, None);
                    }
                    Operation::Read(key, observed) => self.read(&mut reads, &own, reader, key, *observed),
                    Operation::ReadRange(low, high, rows) => {
                        rows.iter().for_each(|(key, version)| self.read(&mut reads, &own, reader, key, Some(*version)));
                        let present: BTreeSet<&K> = rows.iter().map(|(key, _)| key).collect();
                        let absent = keys_in_range(keys, low, high).filter(|key| !present.contains(key));
                        absent.for_each(|key| self.read(&mut reads, &own, reader, key, None));
                    }
                }
            }
        }
        reads
    }

    fn read(
        &mut self,
        reads: &mut Vec<ExternalRead<'h, K>>,
        own: &BTreeMap<&K, Option<Version>>,
        reader: TransactionIndex,
        key: &'h K,
        observed: Option<Version>,
    ) {
        if let Some(written) = own.get(key) {
            if *written != observed {
                self.anomalies.push(Anomaly::OwnWriteUnseen { reader, key: key.clone() });
            }
            return;
        }
        if let Some(version) = observed
            && let Some(anomaly) = self.forbidden(reader, key, version)
        {
            self.anomalies.push(anomaly);
            return;
        }
        reads.push(ExternalRead { reader, key, observed });
    }

    fn forbidden(&self, reader: TransactionIndex, key: &K, version: Version) -> Option<Anomaly<K>> {
        let unwritten = || Anomaly::UnwrittenRead { reader, key: key.clone(), version };
        let Some(write) = self.writes.by_version.get(&version) else { return Some(unwritten()) };
        if write.key != key || write.writer == Some(reader) {
            return Some(unwritten());
        }
        let writer = write.writer?;
        if !self.counted[writer] {
            Some(Anomaly::DirtyRead { reader, writer, key: key.clone() })
        } else if !write.is_final {
            Some(Anomaly::IntermediateRead { reader, writer, key: key.clone() })
        } else {
            None
        }
    }

    fn add_version_edges(&mut self, keys: &BTreeMap<&'h K, KeyVersions>) {
        for (key, versions) in keys {
            for state in &versions.states {
                for &later in &state.successors {
                    if let (Some(from), Some(to)) = (state.writer, versions.states[later].writer) {
                        self.graph.add(from, to, Dependency::WriteWrite(*key));
                    }
                }
            }
        }
    }

    fn add_read_edges(&mut self, read: &ExternalRead<'h, K>, keys: &BTreeMap<&'h K, KeyVersions>) {
        // A key that was never written is absent for every reader.
        let Some(versions) = keys.get(read.key) else { return };
        if let Some(version) = read.observed {
            if let Some(place) = versions.place_of_version(version) {
                self.place_read(read, versions, place, place);
            }
            return;
        }
        let is_origin = |&place: &usize| {
            let state = &versions.states[place];
            state.version.is_none() && state.writer != Some(read.reader)
        };
        let origins: Vec<usize> = (0..versions.states.len()).filter(is_origin).collect();
        match origins[..] {
            [] => self.anomalies.push(Anomaly::ImpossibleAbsence { reader: read.reader, key: read.key.clone() }),
            [place] => self.place_read(read, versions, place, place),
            _ => {
                self.ambiguous_reads += 1;
                if let Some(order) = versions.total_order() {
                    let mut ordered = order.into_iter().filter(|place| origins.contains(place));
                    if let Some(first) = ordered.next() {
                        self.place_read(read, versions, first, ordered.next_back().unwrap_or(first));
                    }
                }
            }
        }
    }

    /// The reader comes after the writer of state `first` and before those that follow state `last`.
    fn place_read(&mut self, read: &ExternalRead<'h, K>, versions: &KeyVersions, first: usize, last: usize) {
        if let Some(writer) = versions.states[first].writer {
            self.graph.add(writer, read.reader, Dependency::WriteRead(read.key));
        }
        for &later in &versions.states[last].successors {
            if let Some(writer) = versions.states[later].writer {
                self.graph.add(read.reader, writer, Dependency::ReadWrite(read.key));
            }
        }
    }

    /// A chain of extra nodes, one for each end in order of time, stands for the quadratic number of edges.
    fn add_real_time_edges(&mut self) {
        let mut events: Vec<(u64, bool, TransactionIndex)> = Vec::new();
        for index in self.counted_transactions() {
            let record = &self.history.transactions[index];
            events.push((record.began, false, index));
            events.extend(record.ended.map(|ended| (ended, true, index)));
        }
        events.sort_unstable();
        let mut latest_end = None;
        for (_, is_end, index) in events {
            if is_end {
                let node = self.graph.add_node();
                if let Some(before) = latest_end.replace(node) {
                    self.graph.add(before, node, Dependency::RealTime);
                }
                self.graph.add(index, node, Dependency::RealTime);
            } else if let Some(end) = latest_end {
                self.graph.add(end, index, Dependency::RealTime);
            }
        }
    }

    fn report(mut self) -> Report<K> {
        let transactions = self.history.transactions.len();
        for cycle in self.graph.cycles() {
            self.anomalies.push(Anomaly::Cycle(steps(&cycle, transactions)));
        }
        Report {
            anomalies: self.anomalies,
            transactions: self.counted.iter().filter(|&&counted| counted).count(),
            edges: self.graph.edge_count(),
            ambiguous_reads: self.ambiguous_reads,
        }
    }
}

/// The keys of the history in a range, which may be empty or upside down.
fn keys_in_range<'a, 'h: 'a, K: Ord>(
    keys: &'a BTreeMap<&'h K, KeyVersions>,
    low: &'a Bound<K>,
    high: &'a Bound<K>,
) -> impl Iterator<Item = &'h K> + 'a {
    let is_below = move |key: &K| match low {
        Bound::Included(low) => key < low,
        Bound::Excluded(low) => key <= low,
        Bound::Unbounded => false,
    };
    let is_above = move |key: &K| match high {
        Bound::Included(high) => key > high,
        Bound::Excluded(high) => key >= high,
        Bound::Unbounded => false,
    };
    keys.keys().copied().skip_while(move |key| is_below(key)).take_while(move |key| !is_above(key))
}

/// The cycle between transactions only: a path over nodes of the chain of time becomes one real-time step.
fn steps<K: Clone>(cycle: &[(usize, usize, &Dependency<&K>)], transactions: usize) -> Vec<Step<K>> {
    let start = cycle.iter().position(|(from, _, _)| *from < transactions).unwrap_or(0);
    let mut steps: Vec<Step<K>> = Vec::new();
    let mut waiting = None;
    for i in 0..cycle.len() {
        let (from, to, label) = cycle[(start + i) % cycle.len()];
        let from = waiting.take().unwrap_or(from);
        if to >= transactions {
            waiting = Some(from);
            continue;
        }
        let dependency = match label {
            Dependency::WriteRead(key) => Dependency::WriteRead((*key).clone()),
            Dependency::WriteWrite(key) => Dependency::WriteWrite((*key).clone()),
            Dependency::ReadWrite(key) => Dependency::ReadWrite((*key).clone()),
            Dependency::RealTime => Dependency::RealTime,
        };
        steps.push(Step { from, to, dependency });
    }
    steps
}
