//! Recording a history while clients run.
//!
//! Every operation goes straight into the shared record, so that a client that dies in the middle (a simulated power
//! cut runs no destructor) leaves behind all that it did. A transaction that has not asked for its commit counts as
//! aborted, one that asked and was not answered as unknown. No lock is held at a point where a task could be cut.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_rt::Mutex;

use super::{History, Operation, Outcome, TransactionIndex, TransactionRecord, Version};

/// Records the transactions of many clients; cheap to clone.
///
/// ```
/// use tantalum_workloads::history::{Outcome, Recorder};
///
/// let recorder = Recorder::new();
/// let transaction = recorder.begin();
/// let version = recorder.next_version();
/// transaction.write("x", version);
/// transaction.committing(); // then ask the engine, which never answers
/// assert_eq!(recorder.history().transactions[0].outcome, Outcome::Unknown);
/// ```
pub struct Recorder<K> {
    shared: Arc<Shared<K>>,
}

struct Shared<K> {
    clock: AtomicU64,
    versions: AtomicU64,
    initial: Mutex<Vec<(K, Version)>>,
    transactions: Mutex<Vec<TransactionRecord<K>>>,
}

impl<K> Clone for Recorder<K> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K: Clone> Default for Recorder<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Clone> Recorder<K> {
    /// An empty history.
    pub fn new() -> Self {
        let shared = Shared {
            clock: AtomicU64::new(0),
            versions: AtomicU64::new(1),
            initial: Mutex::new(Vec::new()),
            transactions: Mutex::new(Vec::new()),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Says that `key` had this version before the first transaction.
    pub fn initial(&self, key: K, version: Version) {
        self.shared.initial.lock().push((key, version));
    }

    /// A version number that was not given out before, starting at 1.
    pub fn next_version(&self) -> Version {
        self.shared.versions.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts the record of one transaction. Call it before the engine's `begin`.
    pub fn begin(&self) -> TransactionRecorder<K> {
        let mut transactions = self.shared.transactions.lock();
        transactions.push(TransactionRecord {
            began: self.shared.clock.fetch_add(1, Ordering::SeqCst),
            ended: None,
            outcome: Outcome::Aborted,
            operations: Vec::new(),
        });
        TransactionRecorder { recorder: self.clone(), index: transactions.len() - 1 }
    }

    /// A copy of what was recorded so far.
    pub fn history(&self) -> History<K> {
        History { initial: self.shared.initial.lock().clone(), transactions: self.shared.transactions.lock().clone() }
    }
}

/// Records one transaction; its calls follow the engine's.
pub struct TransactionRecorder<K> {
    recorder: Recorder<K>,
    index: TransactionIndex,
}

impl<K: Clone> TransactionRecorder<K> {
    /// The transaction's place in [`History::transactions`].
    pub fn index(&self) -> TransactionIndex {
        self.index
    }

    /// `key` was read and this version was seen (`None`: absent).
    pub fn read(&self, key: K, observed: Option<Version>) {
        self.push(Operation::Read(key, observed));
    }

    /// A range was read to its end, and these rows were all it held.
    pub fn read_range(&self, low: Bound<K>, high: Bound<K>, observed: Vec<(K, Version)>) {
        self.push(Operation::ReadRange(low, high, observed));
    }

    /// `key` was written with the value that bears `version`.
    pub fn write(&self, key: K, version: Version) {
        self.push(Operation::Write(key, version));
    }

    /// `key` was deleted.
    pub fn delete(&self, key: K) {
        self.push(Operation::Delete(key));
    }

    /// The commit is about to be asked for: from now on the outcome is unknown until one of the following calls.
    pub fn committing(&self) {
        self.update(|record| record.outcome = Outcome::Unknown);
    }

    /// The commit was acknowledged, with the engine's commit sequence where it is known.
    pub fn committed(self, sequence: Option<u64>) {
        self.end(Outcome::Committed(sequence));
    }

    /// It was rolled back, or its commit failed with an error that promises so.
    pub fn aborted(self) {
        self.end(Outcome::Aborted);
    }

    /// The commit failed with an error that leaves the outcome open.
    pub fn unknown(self) {
        // Its effects may appear later than this moment, so it has no end in time.
        self.update(|record| record.outcome = Outcome::Unknown);
    }

    fn end(&self, outcome: Outcome) {
        let now = self.recorder.shared.clock.fetch_add(1, Ordering::SeqCst);
        self.update(|record| {
            record.outcome = outcome;
            record.ended = Some(now);
        });
    }

    fn push(&self, operation: Operation<K>) {
        self.update(|record| record.operations.push(operation));
    }

    fn update(&self, change: impl FnOnce(&mut TransactionRecord<K>)) {
        change(&mut self.recorder.shared.transactions.lock()[self.index]);
    }
}
