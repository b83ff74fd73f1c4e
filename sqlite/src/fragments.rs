//! The bytes of a SQLite database as rows. A database is cut into *fragments* of equal length, a row each, small enough to stay in a
//! leaf: so a commit logs the bytes that differ within those that it changes. Where all bytes of a fragment are zero, there is no row;
//! where the last ones are, the row ends before them.
//! SQLite's pages may be larger than fragments or smaller, and change their size.

use std::collections::BTreeMap;

use tantalum::{Table, Transaction, Value};

use crate::failure::{Failure, Result};

/// The row with the size of the database in bytes, before all fragments.
pub(crate) const SIZE_KEY: [u8; 1] = [0];

/// Where the header of a SQLite database has its change counter.
pub(crate) const CHANGE_COUNTER: u64 = 24;

/// Fragments are numbered in 40 bits, which is more than SQLite's largest database has.
const NUMBERS: u64 = 1 << 40;

/// Fragments of a chunk of a [`FragmentSet`].
const CHUNK: u64 = 512;

/// The key of a fragment's row.
pub(crate) fn key_of(fragment: u64) -> [u8; 5] {
    debug_assert!(fragment < NUMBERS);
    let [_, _, _, key @ ..] = fragment.to_be_bytes();
    key
}

/// The fragment of a row, by its key.
pub(crate) fn fragment_of(key: &[u8]) -> Result<u64> {
    let key =
        <[u8; 5]>::try_from(key).map_err(|_| Failure::io("a row of the database has a wrong key; restore a backup"))?;
    Ok(key.iter().fold(0, |fragment, byte| fragment << 8 | u64::from(*byte)))
}

/// A part of a fragment that is read or written: which fragment, where in it, and where in the caller's bytes.
pub(crate) struct Part {
    pub fragment: u64,
    pub begin: usize,
    pub bytes: std::ops::Range<usize>,
}

/// The parts of fragments that `len` bytes at `offset` take.
pub(crate) fn parts(fragment_bytes: usize, offset: u64, len: usize) -> impl Iterator<Item = Part> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let position = offset + done as u64;
        let begin = (position % fragment_bytes as u64) as usize;
        let end = len.min(done + fragment_bytes - begin);
        let part = Part { fragment: position / fragment_bytes as u64, begin, bytes: done..end };
        done = end;
        (!part.bytes.is_empty()).then_some(part)
    })
}

/// Refuses what is beyond the largest database.
pub(crate) fn check_end(fragment_bytes: usize, end: u64) -> Result<()> {
    if end / (fragment_bytes as u64) < NUMBERS {
        return Ok(());
    }
    let most = NUMBERS * fragment_bytes as u64;
    Err(Failure::full(format!("the database cannot be larger than {most} bytes")))
}

/// The size that the row of it says; 0 if there is none, as of a new database.
pub(crate) fn read_size(transaction: &Transaction, table: &Table) -> Result<u64> {
    size_of(transaction.get(table, SIZE_KEY)?)
}

/// As [`read_size`], of the row's value.
pub(crate) fn size_of(row: Option<Value>) -> Result<u64> {
    let Some(row) = row else { return Ok(0) };
    let bytes = <[u8; 8]>::try_from(&*row);
    bytes
        .map(u64::from_le_bytes)
        .map_err(|_| Failure::io("the row with the size of the database is damaged; restore a backup"))
}

/// A set of fragments.
#[derive(Default)]
pub(crate) struct FragmentSet {
    chunks: BTreeMap<u64, [u64; (CHUNK / 64) as usize]>,
    len: u64,
}

impl FragmentSet {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn contains(&self, fragment: u64) -> bool {
        let (word, bit) = place(fragment);
        self.chunks.get(&(fragment / CHUNK)).is_some_and(|chunk| chunk[word] & bit != 0)
    }

    pub fn insert(&mut self, fragment: u64) {
        let (word, bit) = place(fragment);
        let word = &mut self.chunks.entry(fragment / CHUNK).or_default()[word];
        self.len += u64::from(*word & bit == 0);
        *word |= bit;
    }

    /// Removes all from this fragment on.
    pub fn truncate(&mut self, first: u64) {
        let mut rest = self.chunks.split_off(&(first / CHUNK));
        if let Some(chunk) = rest.remove(&(first / CHUNK)) {
            let kept = (first / CHUNK * CHUNK..first).filter(|fragment| {
                let (word, bit) = place(*fragment);
                chunk[word] & bit != 0
            });
            kept.collect::<Vec<_>>().into_iter().for_each(|fragment| self.insert(fragment));
        }
        self.len = self.chunks.values().flatten().map(|word| u64::from(word.count_ones())).sum();
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        self.chunks
            .keys()
            .flat_map(|chunk| chunk * CHUNK..(chunk + 1) * CHUNK)
            .filter(|fragment| self.contains(*fragment))
    }
}

/// Where in a chunk the bit of a fragment is.
fn place(fragment: u64) -> (usize, u64) {
    let in_chunk = fragment % CHUNK;
    ((in_chunk / 64) as usize, 1 << (in_chunk % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_set_has_what_was_put_into_it_and_not_cut_off(
            steps in prop::collection::vec((0..3000u64, prop::bool::weighted(0.02)), 0..300)
        ) {
            let (mut set, mut model) = (FragmentSet::default(), BTreeSet::new());
            for (fragment, cuts) in steps {
                if cuts {
                    set.truncate(fragment);
                    model.split_off(&fragment);
                } else {
                    set.insert(fragment);
                    model.insert(fragment);
                }
                prop_assert_eq!(set.len(), model.len() as u64);
            }
            prop_assert!(set.iter().eq(model.iter().copied()));
            prop_assert!((0..3000).all(|fragment| set.contains(fragment) == model.contains(&fragment)));
        }

        #[test]
        fn parts_cover_the_bytes_in_order(shift in 9..13u32, offset in 0..100_000u64, len in 0..70_000usize) {
            let bytes = 1usize << shift;
            let mut next = (offset, 0);
            for part in parts(bytes, offset, len) {
                prop_assert_eq!((part.fragment * bytes as u64 + part.begin as u64, part.bytes.start), next);
                prop_assert!(part.begin + part.bytes.len() <= bytes);
                next = (next.0 + part.bytes.len() as u64, part.bytes.end);
            }
            prop_assert_eq!(next.1, len);
        }
    }

    #[test]
    fn keys_are_ordered_as_fragments_are_and_follow_the_size() {
        let keys = [0, 1, 255, 256, 1 << 32, NUMBERS - 1].map(key_of);
        assert!(keys.is_sorted() && keys.iter().all(|key| key.as_slice() > SIZE_KEY.as_slice()));
        assert_eq!(keys.map(|key| fragment_of(&key).unwrap()), [0, 1, 255, 256, 1 << 32, NUMBERS - 1]);
        fragment_of(&SIZE_KEY).unwrap_err();
    }
}
