//! The model's database: contents that can be stepped forward and back, compared with the recovered ones as it goes.

use std::hash::{BuildHasher, Hash};

use super::Contents;
use crate::{
    content::{Key, Version},
    history::{Read, Transaction},
};

/// Contents, with how far they are from the recovered ones.
#[derive(Debug)]
pub(super) struct State<'a> {
    contents: Contents,
    recovered: &'a Contents,
    /// Keys whose version is not the recovered one.
    differing: usize,
    /// A hash of the contents, whatever way led to them.
    fingerprint: u64,
    /// The overwritten versions of every step, newest last.
    undo: Vec<Vec<(Key, Option<Version>)>>,
    hasher: foldhash::quality::FixedState,
}

impl<'a> State<'a> {
    pub fn new(initial: &Contents, recovered: &'a Contents) -> Self {
        let mut state = Self {
            contents: Contents::new(),
            recovered,
            differing: recovered.len(),
            fingerprint: 0,
            undo: Vec::new(),
            hasher: foldhash::quality::FixedState::with_seed(0),
        };
        for (&key, &version) in initial {
            state.set(key, Some(version));
        }
        state
    }

    /// Steps forward by a transaction's writes.
    pub fn apply(&mut self, transaction: &Transaction) {
        let overwritten = transaction.writes.iter().map(|(&key, &version)| (key, self.set(key, version))).collect();
        self.undo.push(overwritten);
    }

    /// Steps back.
    pub fn undo(&mut self) {
        for (key, version) in self.undo.pop().expect("as many steps back as forward") {
            self.set(key, version);
        }
    }

    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub fn equals_recovered(&self) -> bool {
        self.differing == 0
    }

    pub fn differing(&self) -> usize {
        self.differing
    }

    /// Whether a key's version is the recovered one.
    pub fn is_as_recovered(&self, key: &Key) -> bool {
        self.contents.get(key) == self.recovered.get(key)
    }

    /// Some keys whose version is not the recovered one.
    pub fn differences(&self) -> String {
        let mut keys: Vec<_> = self.contents.keys().chain(self.recovered.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        let differing = keys.into_iter().filter(|key| self.contents.get(key) != self.recovered.get(key)).take(6);
        let show = |key| {
            let (expected, found) = (super::show(self.contents.get(&key)), super::show(self.recovered.get(&key)));
            format!("{key} holds {found}, not {expected}")
        };
        differing.map(show).collect::<Vec<_>>().join("; ")
    }

    /// What the first of `reads` that is not so here should have seen; `None`: all are so.
    pub fn contradiction(&self, reads: &[Read]) -> Option<String> {
        reads.iter().find_map(|read| self.contradicts(read))
    }

    /// Whether all of `reads` are so here.
    pub fn agrees(&self, reads: &[Read]) -> bool {
        reads.iter().all(|read| self.is_so(read))
    }

    fn is_so(&self, read: &Read) -> bool {
        match read {
            Read::Is(key, version) => self.contents.get(key) == version.as_ref(),
            Read::IsPresent(key) => self.contents.contains_key(key),
            Read::Range { rows, .. } => self.rows(read).eq(rows.iter().copied()),
        }
    }

    /// The rows here that a range read should have seen.
    fn rows(&self, read: &Read) -> impl Iterator<Item = (u32, Version)> {
        let (table, low, high, hidden) = match read {
            Read::Range { table, low, high, hidden, .. } => (*table, *low, *high, hidden.as_slice()),
            Read::Is(key, _) | Read::IsPresent(key) => (key.table, key.number, key.number, &[][..]),
        };
        let bounds = Key { table, number: low }..=Key { table, number: high.max(low) };
        let rows = self.contents.range(bounds).map(|(key, &version)| (key.number, version));
        rows.filter(move |(number, _)| !hidden.contains(number))
    }

    fn contradicts(&self, read: &Read) -> Option<String> {
        if self.is_so(read) {
            return None;
        }
        Some(match read {
            Read::Is(key, version) => {
                let expected = super::show(self.contents.get(key));
                format!("key {key}: saw {}, expected {expected}", super::show(version.as_ref()))
            }
            Read::IsPresent(key) => format!("key {key}: saw that it was there, expected nothing"),
            Read::Range { table, low, high, rows, .. } => {
                let expected: Vec<_> = self.rows(read).collect();
                let odd = rows.iter().filter(|row| !expected.contains(row)).map(|row| format!("+{}={}", row.0, row.1));
                let missing =
                    expected.iter().filter(|row| !rows.contains(row)).map(|row| format!("-{}={}", row.0, row.1));
                let differences: Vec<_> = odd.chain(missing).take(6).collect();
                format!("range {table}/{low}..={high}: saw (+) or missed (-) {}", differences.join(" "))
            }
        })
    }

    /// Sets a key's version; returns the one before.
    fn set(&mut self, key: Key, version: Option<Version>) -> Option<Version> {
        let recovered = self.recovered.get(&key).copied();
        let before = match version {
            Some(version) => self.contents.insert(key, version),
            None => self.contents.remove(&key),
        };
        self.differing = self.differing + usize::from(version != recovered) - usize::from(before != recovered);
        self.fingerprint ^= self.hash(key, before) ^ self.hash(key, version);
        before
    }

    fn hash(&self, key: Key, version: Option<Version>) -> u64 {
        version.map_or(0, |version| {
            let mut hasher = self.hasher.build_hasher();
            (key, version).hash(&mut hasher);
            std::hash::Hasher::finish(&hasher)
        })
    }
}
