//! Deadlocks: circles of transactions that wait for each other.
//!
//! The wait-for graph is not stored: the lock tables give its edges when a wait begins. A circle closes only with the
//! beginning of a wait: a transaction that gets a lock that others queue for is not waiting then. All waits begin under the
//! lock of `waits`, so the search that the last of a circle's members makes sees the whole circle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{
    TransactionId,
    table::{TableLocks, Waiter},
};
use crate::transaction::Value;

/// What a transaction waits for.
#[derive(Debug)]
pub(super) struct Wait {
    pub table: Arc<TableLocks>,
    pub key: Value,
    pub waiter: Arc<Waiter>,
}

impl Wait {
    pub fn blockers(&self) -> Vec<TransactionId> {
        self.table.blockers(&self.key, &self.waiter)
    }
}

/// The transactions that wait, and for what.
pub(super) type Waits = BTreeMap<TransactionId, Wait>;

/// The youngest transaction of a circle through `start`, if there is one.
pub(super) fn find_victim(waits: &Waits, start: TransactionId) -> Option<TransactionId> {
    let blockers = |id: &TransactionId| waits.get(id).map_or_else(Vec::new, Wait::blockers);
    let mut seen = BTreeSet::from([start]);
    // The way from `start` to here: each transaction with those of its blockers that are still to be looked at.
    let mut path = vec![(start, blockers(&start))];
    while let Some((_, next)) = path.last_mut() {
        match next.pop() {
            None => drop(path.pop()),
            Some(id) if id == start => return path.iter().map(|(id, _)| *id).max(),
            Some(id) if seen.insert(id) => {
                let blockers = blockers(&id);
                path.push((id, blockers));
            }
            Some(_) => {}
        }
    }
    None
}
