//! The disk's memory for writes: runs of bytes that are not on the platters yet.
//!
//! Promises: a byte is held at most once, the newest; a run remembers the oldest write that a flush may wait for it for,
//! even if later writes have replaced its bytes.

use crate::Nanos;
use crate::writeback::{Dirty, Run};

/// What is noted of a run, which is written to the platters in one movement.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Note {
    /// The number of the oldest write that it stands for.
    pub oldest: u64,
    /// From when on it is in memory.
    pub ready: Nanos,
}

#[derive(Debug, Default)]
pub(super) struct WriteCache {
    pub runs: Dirty<Note>,
    /// Writes that were ever taken in.
    writes: u64,
}

/// What one movement of the arm writes at most.
const RUN_BYTES: usize = 512 << 10;

impl WriteCache {
    /// The number of the latest write.
    pub fn latest(&self) -> u64 {
        self.writes
    }

    /// The number of the oldest write that is held; [`u64::MAX`] if none is.
    pub fn oldest(&self) -> u64 {
        self.runs.runs().map(|(_, run)| run.note.oldest).min().unwrap_or(u64::MAX)
    }

    /// Whether a write of the range needs no segment of its own.
    pub fn has_segment_for(&self, offset: u64, len: u64) -> bool {
        self.runs.last_before(offset + len).is_some_and(|(start, run)| start + run.data.len() as u64 >= offset)
    }

    /// Holds `data`, which is there at `ready`; tells whether it replaces some that was held.
    pub fn insert(&mut self, offset: u64, data: Vec<u8>, ready: Nanos) -> bool {
        self.writes += 1;
        let replaced = self.remove(offset, data.len() as u64);
        self.runs.put(offset, Run { data, note: Note { oldest: replaced.unwrap_or(self.writes), ready } });
        self.join(offset);
        if let Some((before, _)) = self.runs.last_before(offset) {
            self.join(before);
        }
        replaced.is_some()
    }

    /// Makes one run of this one and what follows it without a gap.
    fn join(&mut self, offset: u64) {
        let Some(len) = self.runs.get(offset).map(|run| run.data.len()) else { return };
        let end = offset + len as u64;
        if self.runs.get(end).is_none_or(|next| len + next.data.len() > RUN_BYTES) {
            return;
        }
        if let (Some(mut run), Some(next)) = (self.runs.take(offset), self.runs.take(end)) {
            run.data.extend(next.data);
            let Note { oldest, ready } = next.note;
            run.note = Note { oldest: run.note.oldest.min(oldest), ready: run.note.ready.min(ready) };
            self.runs.put(offset, run);
        }
    }

    /// Forgets a range; gives the number of the oldest write that lay there.
    pub fn remove(&mut self, offset: u64, len: u64) -> Option<u64> {
        self.runs.remove(offset, len).into_iter().map(|note| note.oldest).min()
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
                        let first = cache.runs.runs().next().map(|(start, _)| start);
                        if let Some((start, run)) = first.and_then(|start| Some((start, cache.runs.take(start)?))) {
                            for (i, byte) in run.data.into_iter().enumerate() {
                                let held = model[start as usize + i].take();
                                prop_assert!(held.is_some_and(|(value, oldest)| value == byte && oldest >= run.note.oldest));
                            }
                        }
                    }
                }
                prop_assert_eq!(cache.runs.bytes(), model.iter().flatten().count() as u64);
                prop_assert!(cache.oldest() <= model.iter().flatten().map(|held| held.1).min().unwrap_or(u64::MAX));
                let mut read = [255; 200];
                cache.runs.read(0, &mut read);
                let expected: Vec<u8> = model.iter().map(|held| held.map_or(255, |held| held.0)).collect();
                prop_assert_eq!(&read[..], &expected[..]);
            }
        }
    }
}
