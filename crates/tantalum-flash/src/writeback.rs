//! Writes that are not on the medium yet: those in a device's memory, and those that are on their way.
//!
//! Promises: a byte is dirty at most once, the newest; transfers are held by the order in which they end, which is
//! the order of submission where they overlap.

use std::collections::{BTreeMap, VecDeque};

use crate::Nanos;

/// Dirty bytes by offset, in runs that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    runs: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
}

impl Dirty {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Holds `data`; tells whether it replaces some that was held.
    pub fn insert(&mut self, offset: u64, data: Vec<u8>) -> bool {
        let replaced = self.remove(offset, data.len() as u64);
        self.bytes += data.len() as u64;
        self.runs.insert(offset, data);
        replaced
    }

    /// Forgets a range; tells whether there was anything.
    pub fn remove(&mut self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut found = false;
        while let Some((&start, run)) = self.runs.range(..end).next_back() {
            let run_end = start + run.len() as u64;
            if run_end <= offset {
                break;
            }
            found = true;
            let mut head = self.runs.remove(&start).expect("it was just found");
            self.bytes -= run_end - start;
            if run_end > end {
                self.bytes += run_end - end;
                self.runs.insert(end, head.split_off((end - start) as usize));
            }
            if start < offset {
                head.truncate((offset - start) as usize);
                self.bytes += offset - start;
                self.runs.insert(start, head);
            }
        }
        found
    }

    /// Whether anything of the range is held.
    pub fn overlaps(&self, offset: u64, len: u64) -> bool {
        let last = self.runs.range(..offset + len).next_back();
        last.is_some_and(|(&start, run)| start + run.len() as u64 > offset)
    }

    /// Copies what is held of the range over `buffer`, and tells how many bytes that was.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let end = offset + buffer.len() as u64;
        let first = self.runs.range(..=offset).next_back().map_or(offset, |(&start, _)| start);
        self.runs.range(first..end).map(|(&start, run)| overlay(start, run, offset, buffer)).sum()
    }

    /// Takes the run at or after `from`, or else the first one, with those that follow it without a gap: at most
    /// `most_bytes`, but at least one run.
    pub fn take_next(&mut self, from: u64, most_bytes: usize) -> Option<(u64, Vec<u8>)> {
        let start = *self.runs.range(from..).next().or_else(|| self.runs.iter().next())?.0;
        let mut data = self.runs.remove(&start)?;
        loop {
            let end = start + data.len() as u64;
            match self.runs.get(&end) {
                Some(next) if data.len() + next.len() <= most_bytes => data.extend(next),
                _ => break,
            }
            self.runs.remove(&end);
        }
        self.bytes -= data.len() as u64;
        Some((start, data))
    }

    /// Takes the first run within the range, with those that follow it without a gap, up to the range's end.
    pub fn take_within(&mut self, from: u64, to: u64) -> Option<(u64, Vec<u8>)> {
        let (&start, _) = self.runs.range(from..to).next()?;
        self.take_next(start, (to - start) as usize)
    }

    /// Takes everything.
    pub fn drain(&mut self) -> BTreeMap<u64, Vec<u8>> {
        self.bytes = 0;
        std::mem::take(&mut self.runs)
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
                        if let Some((start, data)) = dirty.take_next(offset, len as usize) {
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
