//! Last check: transactions that read as of one moment. Given the order of the writers, such a moment must exist.

use super::{Contents, Rule, Violation, state::State};
use crate::history::{Fate, Kind, Read, Transaction};

/// A transaction whose reads must all be so at one moment between two writers.
struct Reader<'a> {
    transaction: &'a Transaction,
    /// The first and last moment that may be it: the number of writers before it.
    moments: std::ops::RangeInclusive<usize>,
    nearest: String,
}

/// Checks those of `readers` (numbers in the list of transactions) whose reads the order itself did not settle.
pub(super) fn check(
    initial: &Contents,
    transactions: &[Transaction],
    writers: &[usize],
    survivors: usize,
    readers: &[usize],
) -> Result<(), Violation> {
    let readers = readers.iter().filter_map(|&n| Reader::new(transactions, writers, survivors, n));
    let mut waiting: Vec<_> = readers.collect();
    let empty = Contents::new();
    let mut state = State::new(initial, &empty);
    for moment in 0..=writers.len() {
        waiting.retain_mut(|reader| !reader.moments.contains(&moment) || !reader.settles(&state));
        if let Some(reader) = waiting.iter().find(|reader| *reader.moments.end() <= moment) {
            return Err(reader.violation());
        }
        if let Some(&writer) = writers.get(moment) {
            state.apply(&transactions[writer]);
        }
    }
    match waiting.first() {
        Some(reader) => Err(reader.violation()),
        None => Ok(()),
    }
}

/// The first moment that transaction `n` may have read at, if it comes after `writers`: not before what was acknowledged
/// before it began, and, as the first committer wins, not before another write of its own keys.
pub(super) fn first_moment(transactions: &[Transaction], writers: &[usize], n: usize) -> usize {
    let must_be_seen = |&writer: &usize| must_be_seen(&transactions[n], &transactions[writer]);
    writers.iter().rposition(must_be_seen).map_or(0, |place| place + 1)
}

/// Whether the reader's moment cannot lie before the writer.
pub(super) fn must_be_seen(reader: &Transaction, writer: &Transaction) -> bool {
    let is_rival =
        reader.kind == Kind::SnapshotIsolation && writer.writes.keys().any(|key| reader.writes.contains_key(key));
    is_rival || writer.ended.is_some_and(|end| end < reader.begun)
}

/// Whether a transaction has no place among the writers, and has read something.
pub(super) fn only_reads(transaction: &Transaction) -> bool {
    let is_writer = transaction.fate != Fate::RolledBack && !transaction.writes.is_empty();
    !is_writer && !transaction.reads.is_empty()
}

impl<'a> Reader<'a> {
    fn new(transactions: &'a [Transaction], writers: &[usize], survivors: usize, n: usize) -> Option<Self> {
        let transaction = &transactions[n];
        let own_place = writers.iter().position(|&writer| writer == n);
        let settled_by_order = own_place.is_some() && transaction.kind == Kind::Serializable;
        // A commit that was cut off and left no trace may have been cut off before it was ordered at all.
        let unordered = own_place.is_none() && transaction.fate == Fate::Unknown && !transaction.writes.is_empty();
        let overwrites = own_place.is_some() && transaction.kind == Kind::SnapshotIsolation;
        if settled_by_order || unordered || (transaction.reads.is_empty() && !overwrites) {
            return None;
        }
        let before_it = &writers[..own_place.unwrap_or(writers.len())];
        let first = first_moment(transactions, before_it, n);
        let begun_after = |w: &usize| transaction.ended.is_some_and(|end| transactions[*w].begun > end);
        let mut last = writers.iter().position(begun_after).unwrap_or(writers.len());
        if transaction.fate == Fate::Acknowledged {
            // It was acknowledged, so all that it saw must have been durable.
            last = last.min(survivors);
        }
        if let Some(own_place) = own_place {
            last = last.min(own_place);
        }
        Some(Self { transaction, moments: first..=last, nearest: String::new() })
    }

    /// Whether this is a moment at which all its reads are so.
    fn settles(&mut self, state: &State<'_>) -> bool {
        match state.contradiction(&self.transaction.reads) {
            None => true,
            Some(contradiction) => {
                self.nearest = contradiction;
                false
            }
        }
    }

    fn violation(&self) -> Violation {
        let Transaction { id, kind, fate, .. } = self.transaction;
        let ranges = self.transaction.reads.iter().filter(|read| matches!(read, Read::Range { .. })).count();
        let detail = if self.moments.is_empty() {
            format!(
                "no moment is left for T{id} ({kind:?}, {fate:?}) between what it must and what it cannot have seen"
            )
        } else {
            format!(
                "at no moment of T{id} ({kind:?}, {fate:?}, {} reads of which {ranges} ranges) was everything so that \
                 it read; at the last one, {}",
                self.transaction.reads.len(),
                self.nearest
            )
        };
        Violation { rule: Rule::Isolation, detail }
    }
}
