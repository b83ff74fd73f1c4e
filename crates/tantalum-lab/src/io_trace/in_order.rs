//! Records in the order in which their requests began.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Record;

/// So many records are held back. A request that ends after more than so many others, which began later, comes out of its turn.
const WINDOW: usize = 1 << 16;

/// A trace has records as they end; out of this they come as they began, and of one moment by device and address, since those that
/// wait together are free to be served in any order.
#[derive(Default)]
pub(super) struct InOrder {
    held: BinaryHeap<Reverse<ByBegin>>,
}

impl InOrder {
    /// Takes a record, and gives one when there are too many.
    pub fn push(&mut self, record: Record) -> Option<Record> {
        self.held.push(Reverse(ByBegin(record)));
        if self.held.len() > WINDOW { self.pop() } else { None }
    }

    /// The one that began first.
    pub fn pop(&mut self) -> Option<Record> {
        self.held.pop().map(|Reverse(ByBegin(record))| record)
    }
}

struct ByBegin(Record);

impl ByBegin {
    fn key(&self) -> (u64, u16, u64, u64) {
        (self.0.began_ns, self.0.device, self.0.request.offset, self.0.request.len)
    }
}

impl PartialEq for ByBegin {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByBegin {}

impl PartialOrd for ByBegin {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByBegin {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
