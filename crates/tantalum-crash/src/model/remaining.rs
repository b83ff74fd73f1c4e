//! What the writers that are not placed yet can still bring back: a recovered version that was overwritten is there again only after
//! a writer that writes it.

use std::collections::HashMap;

use super::{Contents, state::State};
use crate::{
    content::{Key, Version},
    history::Transaction,
};

/// The writers that are not placed, as far as they write what was recovered.
#[derive(Debug)]
pub(super) struct Remaining<'a> {
    recovered: &'a Contents,
    /// How many of them give a key its recovered version.
    writers: HashMap<Key, usize, foldhash::quality::FixedState>,
    /// For each number of placed writers, how many keys have another version than the recovered one, which none of these brings.
    lost: Vec<usize>,
}

impl<'a> Remaining<'a> {
    /// Of writers of which each is placed once at most; none is yet.
    pub fn new<'t>(
        initial: &Contents,
        recovered: &'a Contents,
        writers: impl Iterator<Item = &'t Transaction>,
    ) -> Self {
        let mut remaining = Self { recovered, writers: HashMap::default(), lost: Vec::new() };
        for (key, version) in writers.flat_map(|writer| &writer.writes) {
            remaining.count(*key, *version, |count| count + 1);
        }
        let keys = initial.keys().chain(recovered.keys().filter(|key| !initial.contains_key(key)));
        let differs = |key: &&Key| initial.get(key) != recovered.get(key);
        remaining.lost.push(keys.filter(differs).filter(|key| remaining.is_missing(key)).count());
        remaining
    }

    /// Steps forward by a writer.
    pub fn place(&mut self, state: &mut State<'_>, writer: &Transaction) {
        let elsewhere = self.lost() - self.lost_of(state, writer);
        state.apply(writer);
        writer.writes.iter().for_each(|(&key, &version)| self.count(key, version, |count| count - 1));
        self.lost.push(elsewhere + self.lost_of(state, writer));
    }

    /// Steps back by the writer that was placed last.
    pub fn take_back(&mut self, state: &mut State<'_>, writer: &Transaction) {
        state.undo();
        writer.writes.iter().for_each(|(&key, &version)| self.count(key, version, |count| count + 1));
        self.lost.pop();
    }

    /// How many keys have another version than the recovered one, and always will.
    pub fn lost(&self) -> usize {
        *self.lost.last().expect("there is one for no writers")
    }

    fn lost_of(&self, state: &State<'_>, writer: &Transaction) -> usize {
        writer.writes.keys().filter(|key| !state.is_as_recovered(key) && self.is_missing(key)).count()
    }

    fn is_missing(&self, key: &Key) -> bool {
        self.writers.get(key).is_none_or(|count| *count == 0)
    }

    /// Counts a writer of the recovered version.
    fn count(&mut self, key: Key, version: Option<Version>, change: impl FnOnce(usize) -> usize) {
        if version.as_ref() == self.recovered.get(&key) {
            let count = self.writers.entry(key).or_default();
            *count = change(*count);
        }
    }
}
