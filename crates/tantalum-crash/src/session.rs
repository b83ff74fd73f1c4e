//! One transaction as the model follows it: what it wrote so far, what it must therefore see, and what it saw.

use std::collections::BTreeMap;

use crate::{
    content::{Key, Version},
    history::Read,
};

/// A contradiction with the transaction's own writes.
pub(crate) type Contradiction = String;

/// The model of a running transaction.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub id: u32,
    /// What it saw of others.
    pub reads: Vec<Read>,
    /// What it wrote; `None` for a deletion.
    pub writes: BTreeMap<Key, Option<Version>>,
    /// All versions that it wrote, also those that it has replaced or taken back.
    pub versions: Vec<(Key, Version)>,
    operations: u16,
}

impl Session {
    pub fn new(id: u32) -> Self {
        Self { id, reads: Vec::new(), writes: BTreeMap::new(), versions: Vec::new(), operations: 0 }
    }

    /// The name of the next write.
    pub fn next_version(&mut self) -> Version {
        self.operations += 1;
        Version { transaction: self.id, operation: self.operations }
    }

    /// The key was written.
    pub fn wrote(&mut self, key: Key, version: Version) {
        self.writes.insert(key, Some(version));
        self.versions.push((key, version));
    }

    /// The key was read.
    pub fn saw(&mut self, key: Key, found: Option<Version>) -> Result<(), Contradiction> {
        match self.writes.get(&key) {
            Some(&own) if own == found => Ok(()),
            Some(&own) => Err(format!("T{} wrote {own:?} at key {key} and then read {found:?}", self.id)),
            None => {
                self.reads.push(Read::Is(key, found));
                Ok(())
            }
        }
    }

    /// The key was found to be there, or not, without being read.
    pub fn saw_presence(&mut self, key: Key, is_present: bool) -> Result<(), Contradiction> {
        match self.writes.get(&key) {
            Some(own) if own.is_some() == is_present => Ok(()),
            Some(own) => Err(format!("T{} wrote {own:?} at key {key}, but was told: present {is_present}", self.id)),
            None if is_present => {
                self.reads.push(Read::IsPresent(key));
                Ok(())
            }
            None => self.saw(key, None),
        }
    }

    /// `rows` were all rows from `low` to `high`, in ascending order.
    pub fn saw_range(
        &mut self,
        table: u8,
        low: u32,
        high: u32,
        rows: Vec<(u32, Version)>,
    ) -> Result<(), Contradiction> {
        if let Some(pair) = rows.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
            return Err(format!("T{} read a range out of order: {} before {}", self.id, pair[0].0, pair[1].0));
        }
        let bounds = Key { table, number: low }..=Key { table, number: high.max(low) };
        let own: BTreeMap<u32, _> = self.writes.range(bounds).map(|(key, &version)| (key.number, version)).collect();
        let seen: BTreeMap<u32, Version> = rows.into_iter().collect();
        if let Some((number, own)) = own.iter().find(|(number, own)| seen.get(number) != own.as_ref()) {
            let found = seen.get(number);
            return Err(format!("T{} wrote {own:?} at key {table}/{number}, and a range showed {found:?}", self.id));
        }
        let rows = seen.into_iter().filter(|(number, _)| !own.contains_key(number)).collect();
        self.reads.push(Read::Range { table, low, high, rows, hidden: own.into_keys().collect() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_writes_must_be_seen_and_are_not_counted_as_seen_of_others() {
        let (mine, theirs) = (Key { table: 0, number: 3 }, Key { table: 0, number: 5 });
        let mut session = Session::new(1);
        let own = session.next_version();
        session.writes.insert(mine, Some(own));
        let other = Version { transaction: 9, operation: 1 };
        assert!(session.saw(mine, Some(own)).is_ok());
        assert!(session.saw(mine, Some(other)).is_err());
        assert!(session.saw_presence(mine, false).is_err());
        assert!(session.saw_range(0, 0, 9, vec![(3, own), (5, other)]).is_ok());
        assert!(session.saw_range(0, 0, 9, vec![(5, other)]).is_err());
        assert!(session.saw_range(0, 0, 9, vec![(5, other), (3, own)]).is_err());
        assert!(session.saw(theirs, Some(other)).is_ok());
        let range = Read::Range { table: 0, low: 0, high: 9, rows: vec![(5, other)], hidden: vec![3] };
        assert_eq!(session.reads, [range, Read::Is(theirs, Some(other))]);
    }
}
