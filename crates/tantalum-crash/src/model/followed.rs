//! Transactions that write nothing and read as of one moment, followed while writers are placed: an order that leaves one of them no
//! moment is abandoned at once.
//!
//! A reader's moment comes after each writer of the chain that ended before it began, and before the first that began after
//! it had ended. Only between these places is it followed, so one bit serves many readers, one after the other. Where more overlap than
//! there are bits, the last check of an order is for all.

use super::{readers, state::State};
use crate::history::Transaction;

/// The readers that are followed, by the number of chain writers that are placed.
pub(super) struct Followed<'a> {
    at: Vec<Vec<(u128, &'a Transaction)>>,
    /// Those of them that are not followed before that.
    beginning: Vec<u128>,
}

/// What has become of the readers that are followed now, by their bits.
#[derive(Clone, Copy)]
pub(super) struct Moments {
    /// Chain writers that are placed.
    place: usize,
    /// A moment was found at which all its reads are so, behind all that it must have seen.
    pub settled: u128,
    /// A writer was placed that began after it had ended: no later moment counts.
    closed: u128,
}

impl<'a> Followed<'a> {
    /// Of the `readers`, those go first that come first, should there be too many.
    pub fn new(transactions: &'a [Transaction], chain: &[usize], readers: impl Iterator<Item = usize>) -> Self {
        let mut followed = Self { at: vec![Vec::new(); chain.len() + 1], beginning: vec![0; chain.len() + 1] };
        let mut taken = vec![0u128; chain.len() + 1];
        let writers: Vec<_> = chain.iter().map(|&n| &transactions[n]).collect();
        for reader in readers.map(|n| &transactions[n]) {
            let first = writers.iter().rposition(|writer| readers::must_be_seen(reader, writer)).map_or(0, |n| n + 1);
            let last = writers.iter().position(|writer| is_closed_by(reader, writer)).unwrap_or(writers.len());
            let places = first..=last.max(first);
            let used = taken[places.clone()].iter().fold(0, |used, bits| used | bits);
            let bit = 1u128.checked_shl(used.trailing_ones()).unwrap_or(0);
            if bit != 0 {
                followed.beginning[first] |= bit;
                taken[places.clone()].iter_mut().for_each(|bits| *bits |= bit);
                followed.at[places].iter_mut().for_each(|readers| readers.push((bit, reader)));
            }
        }
        followed
    }

    /// Before any writer is placed.
    pub fn start(&self, state: &State<'_>) -> Moments {
        self.settle(Moments { place: 0, settled: 0, closed: 0 }, state)
    }

    /// How many are followed now.
    pub fn count(&self, now: Moments) -> usize {
        self.at[now.place].len()
    }

    /// Whether a moment was found for all that are followed now.
    pub fn are_settled(&self, now: Moments) -> bool {
        self.at[now.place].iter().all(|(bit, _)| now.settled & bit != 0)
    }

    /// A reader for which no moment would be left if this writer were the next.
    pub fn stranded_by(&self, now: Moments, writer: &Transaction) -> Option<&'a Transaction> {
        let then = self.with(now, writer);
        let stranded = then.closed & !then.settled;
        self.at[now.place].iter().find(|(bit, _)| stranded & bit != 0).map(|(_, reader)| *reader)
    }

    /// The same after a writer was placed, and `state` has its writes.
    pub fn step(&self, now: Moments, writer: &Transaction, is_of_chain: bool, state: &State<'_>) -> Moments {
        let mut then = self.with(now, writer);
        if is_of_chain {
            then.place += 1;
            let going_on =
                self.at[then.place].iter().fold(0, |bits, (bit, _)| bits | bit) & !self.beginning[then.place];
            then.settled &= going_on;
            then.closed &= going_on;
        }
        self.settle(then, state)
    }

    /// What a writer does to the readers that are followed now, but for the moment behind it.
    fn with(&self, now: Moments, writer: &Transaction) -> Moments {
        let mut then = now;
        for (bit, reader) in &self.at[now.place] {
            if readers::must_be_seen(reader, writer) {
                then.settled &= !bit;
            }
            if is_closed_by(reader, writer) {
                then.closed |= bit;
            }
        }
        then
    }

    /// Finds the readers for which the present moment is one.
    fn settle(&self, moments: Moments, state: &State<'_>) -> Moments {
        let mut settled = moments.settled;
        for (bit, reader) in &self.at[moments.place] {
            if (moments.settled | moments.closed) & bit == 0 && state.agrees(&reader.reads) {
                settled |= bit;
            }
        }
        Moments { settled, ..moments }
    }
}

fn is_closed_by(reader: &Transaction, writer: &Transaction) -> bool {
    reader.ended.is_some_and(|end| writer.begun > end)
}
