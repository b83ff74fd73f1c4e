//! The disk's memory for writes: runs of bytes that are not on the platters yet.
//!
//! Promises: a byte is held at most once, the newest; a run remembers the oldest write that a flush may wait for it for,
//! even if later writes have replaced its bytes.

use std::collections::BTreeMap;

use crate::Nanos;
use crate::writeback::overlay;

/// Bytes that follow each other, written to the platters in one movement.
#[derive(Debug)]
pub(super) struct Run {
    pub data: Vec<u8>,
    /// The number of the oldest write that it stands for.
    pub oldest: u64,
    /// From when on it is in memory.
    pub ready: Nanos,
}

/// Runs by offset.
#[derive(Debug, Default)]
pub(super) struct WriteCache {
    runs: BTreeMap<u64, Run>,
    bytes: u64,
    /// Writes that were ever taken in.
    writes: u64,
}

/// What one movement of the arm writes at most.
const RUN_BYTES: usize = 512 << 10;

impl WriteCache {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many runs there are: each takes a segment of the disk's memory.
    pub fn segments(&self) -> usize {
        self.runs.len()
    }

    /// The number of the latest write.
    pub fn latest(&self) -> u64 {
        self.writes
    }

    pub fn runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs.iter().map(|(&offset, run)| (offset, run))
    }

    /// The number of the oldest write that is held; [`u64::MAX`] if none is.
    pub fn oldest(&self) -> u64 {
        self.runs.values().map(|run| run.oldest).min().unwrap_or(u64::MAX)
    }

    /// Whether a write of the range needs no segment of its own.
    pub fn has_segment_for(&self, offset: u64, len: u64) -> bool {
        self.runs.range(..offset + len).next_back().is_some_and(|(start, run)| start + run.data.len() as u64 >= offset)
    }

    /// Holds `data`, which is there at `ready`; tells whether it replaces some that was held.
    pub fn insert(&mut self, offset: u64, data: Vec<u8>, ready: Nanos) -> bool {
        self.writes += 1;
        let replaced = self.remove(offset, data.len() as u64);
        let oldest = replaced.unwrap_or(self.writes);
        self.bytes += data.len() as u64;
        self.runs.insert(offset, Run { data, oldest, ready });
        self.join(offset);
        if let Some((&before, _)) = self.runs.range(..offset).next_back() {
            self.join(before);
        }
        replaced.is_some()
    }

    /// Makes one run of this one and what follows it without a gap.
    fn join(&mut self, offset: u64) {
        let Some(run) = self.runs.get(&offset) else { return };
        let (len, end) = (run.data.len(), offset + run.data.len() as u64);
        if self.runs.get(&end).is_none_or(|next| len + next.data.len() > RUN_BYTES) {
            return;
        }
        if let (Some(next), Some(run)) = (self.runs.remove(&end), self.runs.get_mut(&offset)) {
            run.data.extend(next.data);
            run.oldest = run.oldest.min(next.oldest);
            run.ready = run.ready.min(next.ready);
        }
    }

    /// Forgets a range; gives the number of the oldest write that lay there.
    pub fn remove(&mut self, offset: u64, len: u64) -> Option<u64> {
        let end = offset + len;
        let mut found: Option<u64> = None;
        while let Some((&start, run)) = self.runs.range(..end).next_back() {
            let run_end = start + run.data.len() as u64;
            if run_end <= offset {
                break;
            }
            let Run { mut data, oldest, ready } = self.take(start)?;
            found = Some(found.map_or(oldest, |other| other.min(oldest)));
            if run_end > end {
                let tail = data.split_off((end - start) as usize);
                self.bytes += tail.len() as u64;
                self.runs.insert(end, Run { data: tail, oldest, ready });
            }
            if start < offset {
                data.truncate((offset - start) as usize);
                self.bytes += data.len() as u64;
                self.runs.insert(start, Run { data, oldest, ready });
            }
        }
        found
    }

    /// Takes the run at `offset`.
    pub fn take(&mut self, offset: u64) -> Option<Run> {
        let run = self.runs.remove(&offset)?;
        self.bytes -= run.data.len() as u64;
        Some(run)
    }

    /// Copies what is held of the range over `buffer`, and tells how many bytes that was.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let end = offset + buffer.len() as u64;
        let first = self.runs.range(..=offset).next_back().map_or(offset, |(&start, _)| start);
        self.runs.range(first..end).map(|(&start, run)| overlay(start, &run.data, offset, buffer)).sum()
    }

    /// Takes everything.
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.bytes = 0;
        std::mem::take(&mut self.runs).into_iter().map(|(offset, run)| (offset, run.data))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_a_sparse_array_that_remembers_its_oldest_writes(
            operations in prop::collection::vec((0u8..4, 0u64..100, 1u64..30), 1..60),
        ) {
            let mut cache = WriteCache::default();
            // Value and oldest number of each byte.
            let mut model = [None::<(u8, u64)>; 200];
            for (kind, offset, len) in operations {
                let range = offset as usize..(offset + len) as usize;
                match kind {
                    0 | 1 => {
                        let value = (cache.latest() + 1) as u8;
                        let inherited = model[range.clone()].iter().flatten().map(|held| held.1).min();
                        prop_assert_eq!(cache.insert(offset, vec![value; len as usize], 0), inherited.is_some());
                        model[range].fill(Some((value, inherited.unwrap_or(cache.latest()))));
                    }
                    2 => {
                        cache.remove(offset, len);
                        model[range].fill(None);
                    }
                    _ => {
                        let first = cache.runs().next().map(|(start, _)| start);
                        if let Some((start, run)) = first.and_then(|start| Some((start, cache.take(start)?))) {
                            for (i, byte) in run.data.into_iter().enumerate() {
                                let held = model[start as usize + i].take();
                                prop_assert!(held.is_some_and(|(value, oldest)| value == byte && oldest >= run.oldest));
                            }
                        }
                    }
                }
                prop_assert_eq!(cache.bytes(), model.iter().flatten().count() as u64);
                prop_assert!(cache.oldest() <= model.iter().flatten().map(|held| held.1).min().unwrap_or(u64::MAX));
                let mut read = [255; 200];
                cache.read(0, &mut read);
                let expected: Vec<u8> = model.iter().map(|held| held.map_or(255, |held| held.0)).collect();
                prop_assert_eq!(&read[..], &expected[..]);
            }
        }
    }
}
