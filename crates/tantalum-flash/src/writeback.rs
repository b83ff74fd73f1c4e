//! Writes that are not on the medium yet: those in a device's memory, and those that are on their way.
//!
//! Promises: a byte is dirty at most once, the newest; transfers are held by the order in which they end, which is
//! the order of submission where they overlap.

use std::collections::{BTreeMap, VecDeque};

use crate::Nanos;

/// Dirty bytes by offset, in runs that do not overlap. With each its owner may note something.
#[derive(Debug, Default)]
pub(crate) struct Dirty<N = ()> {
    runs: BTreeMap<u64, Run<N>>,
    bytes: u64,
}

/// Bytes that follow each other.
#[derive(Debug)]
pub(crate) struct Run<N> {
    pub data: Vec<u8>,
    pub note: N,
}

impl<N: Copy> Dirty<N> {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn runs(&self) -> impl ExactSizeIterator<Item = (u64, &Run<N>)> {
        self.runs.iter().map(|(&offset, run)| (offset, run))
    }

    /// The run that begins at `offset`.
    pub fn get(&self, offset: u64) -> Option<&Run<N>> {
        self.runs.get(&offset)
    }

    /// The last run that begins before `end`.
    pub fn last_before(&self, end: u64) -> Option<(u64, &Run<N>)> {
        self.runs.range(..end).next_back().map(|(&offset, run)| (offset, run))
    }

    /// Holds a run where nothing is held.
    pub fn put(&mut self, offset: u64, run: Run<N>) {
        self.bytes += run.data.len() as u64;
        self.runs.insert(offset, run);
    }

    /// Takes the run that begins at `offset`.
    pub fn take(&mut self, offset: u64) -> Option<Run<N>> {
        let run = self.runs.remove(&offset)?;
        self.bytes -= run.data.len() as u64;
        Some(run)
    }

    /// Forgets a range; returns the notes of what lay there.
    pub fn remove(&mut self, offset: u64, len: u64) -> Vec<N> {
        let end = offset + len;
        let mut notes = Vec::new();
        while let Some((start, run)) = self.last_before(end)
            && start + run.data.len() as u64 > offset
            && let Some(Run { mut data, note }) = self.take(start)
        {
            notes.push(note);
            if start + data.len() as u64 > end {
                let tail = data.split_off((end - start) as usize);
                self.put(end, Run { data: tail, note });
            }
            if start < offset {
                data.truncate((offset - start) as usize);
                self.put(start, Run { data, note });
            }
        }
        notes
    }

    /// Whether anything of the range is held.
    pub fn overlaps(&self, offset: u64, len: u64) -> bool {
        self.last_before(offset + len).is_some_and(|(start, run)| start + run.data.len() as u64 > offset)
    }

    /// Copies what is held of the range over `buffer`, and tells how many bytes that was.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let end = offset + buffer.len() as u64;
        let first = self.runs.range(..=offset).next_back().map_or(offset, |(&start, _)| start);
        self.runs.range(first..end).map(|(&start, run)| overlay(start, &run.data, offset, buffer)).sum()
    }

    /// Takes everything.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, Run<N>)> {
        self.bytes = 0;
        std::mem::take(&mut self.runs).into_iter()
    }
}

impl Dirty {
    /// Holds `data`; tells whether it replaces some that was held.
    pub fn insert(&mut self, offset: u64, data: Vec<u8>) -> bool {
        let replaced = !self.remove(offset, data.len() as u64).is_empty();
        self.put(offset, Run { data, note: () });
        replaced
    }

    /// Takes the first run within the range, with those that follow it without a gap, up to the range's end.
    pub fn take_within(&mut self, from: u64, to: u64) -> Option<(u64, Vec<u8>)> {
        let (&start, _) = self.runs.range(from..to).next()?;
        let mut data = self.take(start)?.data;
        loop {
            let end = start + data.len() as u64;
            match self.get(end) {
                Some(next) if end + next.data.len() as u64 <= to => data.extend(self.take(end)?.data),
                _ => return Some((start, data)),
            }
        }
    }
}

/// A write on its way to the medium.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub end: Nanos,
    pub offset: u64,
    pub data: Vec<u8>,
}

/// Transfers that have not ended, by their ends.
#[derive(Debug, Default)]
pub(crate) struct Transfers(VecDeque<Transfer>);

impl Transfers {
    pub fn push(&mut self, transfer: Transfer) {
        let position = self.0.partition_point(|held| held.end <= transfer.end);
        self.0.insert(position, transfer);
    }

    /// The end of the latest transfer that overlaps the range.
    pub fn end_of(&self, offset: u64, len: u64) -> Option<Nanos> {
        let overlaps = |held: &&Transfer| held.offset < offset + len && offset < held.offset + held.data.len() as u64;
        self.0.iter().rev().find(overlaps).map(|held| held.end)
    }

    /// Copies what is held of the range over `buffer`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        for held in &self.0 {
            overlay(held.offset, &held.data, offset, buffer);
        }
    }

    /// Takes a transfer that has ended by `now`.
    pub fn take_ended(&mut self, now: Nanos) -> Option<Transfer> {
        self.0.pop_front_if(|held| held.end <= now)
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Transfer> {
        self.0.drain(..)
    }
}

/// Copies the part of `run`, which lies at `start`, that falls into the buffer at `offset`; tells its length.
pub(crate) fn overlay(start: u64, run: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let from = start.max(offset);
    let to = (start + run.len() as u64).min(offset + buffer.len() as u64);
    if from >= to {
        return 0;
    }
    let part = &run[(from - start) as usize..(to - start) as usize];
    buffer[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
    part.len()
}

/// A run in pieces of `bytes`, by offset.
pub(crate) fn pieces(offset: u64, data: &[u8], bytes: usize) -> impl Iterator<Item = (u64, &[u8])> {
    data.chunks(bytes).enumerate().map(move |(number, piece)| (offset + (number * bytes) as u64, piece))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn dirty_runs_are_a_sparse_array(operations in prop::collection::vec((0u8..4, 0u64..100, 1u64..30), 1..60)) {
            let mut dirty = Dirty::default();
            let mut model = [None::<u8>; 200];
            for (number, (kind, offset, len)) in operations.into_iter().enumerate() {
                let range = offset as usize..(offset + len) as usize;
                match kind {
                    0 | 1 => {
                        let value = number as u8;
                        let replaces = model[range.clone()].iter().any(Option::is_some);
                        prop_assert_eq!(dirty.insert(offset, vec![value; len as usize]), replaces);
                        model[range].fill(Some(value));
                    }
                    2 => {
                        dirty.remove(offset, len);
                        model[range].fill(None);
                    }
                    _ => {
                        if let Some((start, data)) = dirty.take_within(offset, offset + len) {
                            for (i, byte) in data.into_iter().enumerate() {
                                prop_assert_eq!(model[start as usize + i].take(), Some(byte));
                            }
                        }
                    }
                }
                prop_assert_eq!(dirty.bytes(), model.iter().flatten().count() as u64);
                let mut read = [255; 200];
                dirty.read(0, &mut read);
                let expected: Vec<u8> = model.iter().map(|byte| byte.unwrap_or(255)).collect();
                prop_assert_eq!(&read[..], &expected[..]);
            }
        }
    }
}
