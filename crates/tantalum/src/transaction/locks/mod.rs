//! Locks on keys and on ranges of keys: strict two-phase locking, deadlocks found at once.
//!
//! Granting a free lock touches one shard of one table. Only a wait takes a lock that all share, to look for deadlocks.
//!
//! Invariants:
//! - of two transactions that hold conflicting locks on a key, there are never two; a range conflicts with writers of
//!   every key in it
//! - waiters for a key are served first come, first served, except those that hold a weaker lock on it already
//! - every circle of waits loses its youngest member before that member's wait has begun, or while it waits

mod deadlock;
mod ranges;
mod table;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Mutex, Parker};

pub(crate) use table::TableLocks;

use self::{
    deadlock::{Wait, Waits},
    table::{Acquired, Outcome, Waiter},
};
use super::{Value, key_range::Interval};

/// A transaction's number, in order of beginning: the youngest has the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TransactionId(pub u64);

impl fmt::Display for TransactionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How a key is locked. A later mode includes the earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Not locked at all: a scan whose range covers the key already only waits until no other transaction writes it.
    Probe,
    /// For reading.
    Shared,
    /// For writing.
    Exclusive,
}

impl Mode {
    fn conflicts_with(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }
}

/// Why a lock was not granted. The transaction must be aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is the youngest of a deadlock's members.
    Deadlock,
    /// It waited for too long, for these transactions.
    TimedOut(Vec<TransactionId>),
}

/// A lock that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    /// The owner had to wait.
    pub has_waited: bool,
    /// The owner held nothing on the key before, and has to release it from now on.
    pub is_first: bool,
}

/// Grants locks, and lets transactions wait for them.
#[derive(Debug)]
pub(crate) struct LockManager {
    timeout: Duration,
    waits: Mutex<Waits>,
    pub lock_waits: AtomicU64,
    pub deadlocks: AtomicU64,
    pub timeouts: AtomicU64,
}

impl LockManager {
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            waits: Mutex::default(),
            lock_waits: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
        }
    }

    /// How long a lock is waited for.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Locks a key, for as long as the transaction lives.
    pub fn lock(
        &self,
        table: &Arc<TableLocks>,
        owner: TransactionId,
        key: &Value,
        mode: Mode,
    ) -> Result<Granted, Refusal> {
        let mut parker = None;
        let unparker = || parker.insert(Parker::new()).unparker();
        match table.acquire(owner, key, mode, unparker) {
            Acquired::Already => Ok(Granted { has_waited: false, is_first: false }),
            Acquired::Granted { is_first } => Ok(Granted { has_waited: false, is_first }),
            Acquired::Waits { waiter, is_first } => {
                let parker = parker.expect("a waiter was made with this parker's unparker");
                self.wait(table, key, waiter, &parker)?;
                Ok(Granted { has_waited: true, is_first: is_first && mode != Mode::Probe })
            }
        }
    }

    /// As [`lock`](Self::lock), but `None` instead of waiting.
    pub fn try_lock(&self, table: &Arc<TableLocks>, owner: TransactionId, key: &Value, mode: Mode) -> Option<Granted> {
        match table.acquire(owner, key, mode, || Parker::new().unparker()) {
            Acquired::Already => Some(Granted { has_waited: false, is_first: false }),
            Acquired::Granted { is_first } => Some(Granted { has_waited: false, is_first }),
            Acquired::Waits { waiter, is_first } => {
                if waiter.decide(Outcome::TimedOut) {
                    table.withdraw(key, &waiter);
                    return None;
                }
                // It has become free in between.
                Some(Granted { has_waited: true, is_first })
            }
        }
    }

    /// Locks a range, which grows what the transaction has locked in the table. When it returns, no other
    /// transaction writes in it. Returns whether it had to wait.
    pub fn lock_range(
        &self,
        table: &Arc<TableLocks>,
        owner: TransactionId,
        interval: &Interval,
    ) -> Result<bool, Refusal> {
        let written = table.extend_range(owner, interval);
        let mut waited = false;
        for key in written {
            waited |= self.lock(table, owner, &key, Mode::Probe)?.has_waited;
        }
        Ok(waited)
    }

    #[cold]
    fn wait(&self, table: &Arc<TableLocks>, key: &Value, waiter: Arc<Waiter>, parker: &Parker) -> Result<(), Refusal> {
        tantalum_rt::may_wait("a lock");
        self.lock_waits.fetch_add(1, Ordering::Relaxed);
        tantalum_rt::interleave();
        let owner = waiter.owner;
        self.begin_wait(Wait { table: Arc::clone(table), key: key.clone(), waiter: Arc::clone(&waiter) });
        let deadline = tantalum_rt::now() + self.timeout;
        let mut holders = Vec::new();
        while waiter.is_waiting() {
            let left = deadline - tantalum_rt::now();
            if left.is_zero() {
                holders = table.blockers(key, &waiter);
                waiter.decide(Outcome::TimedOut);
            } else {
                parker.park_timeout(left);
            }
        }
        let ended = self.waits.lock().remove(&owner);
        assert!(ended.is_some(), "a wait that began is known until it has ended");
        match waiter.outcome() {
            Outcome::Granted => return Ok(()),
            Outcome::Victim => drop(self.deadlocks.fetch_add(1, Ordering::Relaxed)),
            _ => drop(self.timeouts.fetch_add(1, Ordering::Relaxed)),
        }
        table.withdraw(key, &waiter);
        match waiter.outcome() {
            Outcome::Victim => Err(Refusal::Deadlock),
            _ => Err(Refusal::TimedOut(holders)),
        }
    }

    /// Makes the wait known, and ends every deadlock that it closes.
    fn begin_wait(&self, wait: Wait) {
        let owner = wait.waiter.owner;
        let mut waits = self.waits.lock();
        let known = waits.insert(owner, wait);
        assert!(known.is_none(), "a transaction waits for one lock at a time");
        // A victim waits for no lock any more, so each round takes a circle away.
        while let Some(victim) = deadlock::find_victim(&waits, owner) {
            tantalum_rt::tracing::debug!(victim = victim.0, "deadlock");
            waits[&victim].waiter.decide(Outcome::Victim);
        }
    }
}
