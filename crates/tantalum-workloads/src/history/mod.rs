//! Recorded histories and a checker of serializability.
//!
//! Clients record what every transaction read (key and version observed), what it wrote (each write under a version
//! number that no other write uses) and how it ended. [`History::check`] builds the graph of dependencies between
//! transactions and looks for a cycle. Nothing is assumed about the engine but what was recorded.
//!
//! # What exactly is checked
//!
//! Transactions that count: those recorded as committed, and those of unknown outcome of which a counted transaction
//! observed a write (found by repetition until nothing is added). The others must be invisible.
//!
//! *Read by read*: no version of an aborted transaction is observed (dirty read, G1a); no version that its own writer
//! overwrote or deleted again (intermediate read, G1b); no version that was never written; absence only of keys that were
//! ever absent; after its own write of a key, a transaction observes that write.
//!
//! *Order of versions of one key*: two writers with a commit sequence are ordered by it; a transaction that reads a
//! version and then writes the same key puts its own version after that one; the initial state comes first. Where these
//! facts leave two versions unordered, no edge is drawn between them.
//!
//! *Edges*: `wr` from the writer of a version to each reader of it; `ww` along the order of versions; `rw` from the
//! reader of a version to the writer of each direct successor of it. A range read counts as one read of *every* key of
//! the history that lies in the range: those it returned with their versions, all others as absent. So a phantom is
//! an ordinary `rw` edge. With [`Level::StrictSerializable`], also an edge from each transaction that ended to
//! every one that began later.
//!
//! *Verdict*: a cycle is a violation. Every reported cycle is real, if the recorded commit sequences are the engine's
//! order of commits. The check is complete (no cycle means serializable) when every key's versions are totally ordered
//! and each observed absence has one possible origin.
//!
//! *Absence*: a delete's version cannot be observed, so absence may come from the initial state or from any delete. If
//! several are possible and the key's versions are totally ordered, the reader is placed after the first and
//! before the successor of the last; if not, that read draws no edge. [`Report::ambiguous_reads`] counts both.

mod anomaly;
mod check;
mod graph;
mod recorder;
mod versions;

#[cfg(test)]
mod tests;

pub use anomaly::{Anomaly, Dependency, Step};
pub use check::{Level, Report};
pub use recorder::{Recorder, TransactionRecorder};

use std::fmt::Debug;
use std::ops::Bound;

/// The number of one written value, unique in the history. Clients put it into the value that they write.
pub type Version = u64;

/// The place of a transaction in [`History::transactions`].
pub type TransactionIndex = usize;

/// How a transaction ended, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The commit was acknowledged. The engine's commit sequence number, where known, orders versions.
    Committed(Option<u64>),
    /// It was rolled back, or its commit was never asked for: no other transaction may see its writes.
    Aborted,
    /// The commit was asked for and never answered: its writes are visible whole or not at all.
    Unknown,
}

/// One operation of a transaction, in the order in which the client made them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation<K> {
    /// A key was read; `None`: it was absent.
    Read(K, Option<Version>),
    /// All keys in a range were read; those present are listed with their versions.
    ReadRange(Bound<K>, Bound<K>, Vec<(K, Version)>),
    /// A key was written with the value of this version.
    Write(K, Version),
    /// A key was deleted.
    Delete(K),
}

/// One recorded transaction.
#[derive(Clone, Debug)]
pub struct TransactionRecord<K> {
    /// A point of logical time before the first operation.
    pub began: u64,
    /// A point of logical time after the client learnt the outcome; `None` if it never did.
    pub ended: Option<u64>,
    /// How it ended.
    pub outcome: Outcome,
    /// What it did.
    pub operations: Vec<Operation<K>>,
}

/// A recorded history over keys of type `K`; with several tables, `K` is a pair of table and key.
///
/// ```
/// use tantalum_workloads::history::{Level, Recorder};
///
/// let recorder = Recorder::new();
/// // Both read the first version of x and then write it: an update is lost.
/// let (first, second) = (recorder.begin(), recorder.begin());
/// first.read("x", None);
/// second.read("x", None);
/// first.write("x", 1);
/// second.write("x", 2);
/// first.committed(None);
/// second.committed(None);
/// let report = recorder.history().check(Level::Serializable);
/// assert_eq!(report.anomalies.len(), 1);
/// ```
#[derive(Clone, Debug)]
pub struct History<K> {
    /// The state before the first transaction; keys not listed were absent.
    pub initial: Vec<(K, Version)>,
    /// All transactions, in the order in which they began.
    pub transactions: Vec<TransactionRecord<K>>,
}

impl<K: Ord + Clone + Debug> History<K> {
    /// Checks the history and reports every anomaly found; see the module for what is checked.
    pub fn check(&self, level: Level) -> Report<K> {
        check::check(self, level)
    }
}
