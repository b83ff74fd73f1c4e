//! Old versions of rows in memory: for each table, for each key, a chain in the order of the commits that overwrote them.

use std::{collections::BTreeMap, ops::RangeInclusive};

use tantalum_store::TableId;

use super::super::{Content, Value, key_range::Interval};

/// What a key's entry takes beside key and values: its place in the tree, and the chain's and the key's allocations.
const CHAIN_OVERHEAD_BYTES: usize = 128;
/// What a version takes beside its value: its place in the chain, and the value's allocation.
const VERSION_OVERHEAD_BYTES: usize = 64;

/// What a row was before a commit; `None` if it was not there.
#[derive(Clone, Debug)]
pub struct Version {
    /// The number of that commit.
    pub overwritten_by: u64,
    pub value: Option<Content>,
}

/// The versions of one key, oldest first.
type Chain = Vec<Version>;

/// Old versions by table and key.
#[derive(Debug, Default)]
pub struct VersionTable {
    tables: BTreeMap<TableId, BTreeMap<Value, Chain>>,
    bytes: usize,
    versions: u64,
}

/// The most bytes of memory that a version takes.
pub fn bytes_of(key: &[u8], value: Option<&Content>) -> usize {
    CHAIN_OVERHEAD_BYTES + VERSION_OVERHEAD_BYTES + key.len() + value.map_or(0, Content::memory_bytes)
}

impl VersionTable {
    pub fn is_empty(&self) -> bool {
        self.versions == 0
    }

    /// Memory that the versions take, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn versions(&self) -> u64 {
        self.versions
    }

    fn chain(&self, table: TableId, key: &[u8]) -> Option<&Chain> {
        self.tables.get(&table)?.get(key)
    }

    /// The newest commit that is known to have overwritten a key.
    pub fn last_overwrite(&self, table: TableId, key: &[u8]) -> Option<u64> {
        self.chain(table, key)?.last().map(|version| version.overwritten_by)
    }

    /// Adds what a commit overwrites. Of a chain that has doubled since, the versions that no snapshot `sees` go: it is told since
    /// which commit each was there, as far as that is known, and which overwrote it.
    pub fn push(&mut self, table: TableId, key: &[u8], version: Version, sees: impl Fn(u64, u64) -> bool) {
        let rows = self.tables.entry(table).or_default();
        let value_bytes = |version: &Version| version.value.as_ref().map_or(0, Content::memory_bytes);
        let chain = match rows.get_mut(key) {
            Some(chain) => chain,
            None => {
                self.bytes += CHAIN_OVERHEAD_BYTES + key.len();
                rows.entry(Value::from(key)).or_insert_with(|| Vec::with_capacity(1))
            }
        };
        let number = version.overwritten_by;
        assert!(chain.last().is_none_or(|last| last.overwritten_by < number), "versions are kept in commit order");
        self.bytes += VERSION_OVERHEAD_BYTES + value_bytes(&version);
        self.versions += 1;
        chain.push(version);
        if chain.len() > 4 && chain.len().is_power_of_two() {
            let mut since = 0;
            let (bytes, versions) = (&mut self.bytes, &mut self.versions);
            chain.retain(|version| {
                let is_seen = sees(since, version.overwritten_by);
                since = version.overwritten_by;
                if !is_seen {
                    *bytes -= VERSION_OVERHEAD_BYTES + value_bytes(version);
                    *versions -= 1;
                }
                is_seen
            });
        }
    }

    /// The oldest version of a key that was overwritten since the beginning of `overwritten_by`, if one of those commits did.
    pub fn find(&self, table: TableId, key: &[u8], overwritten_by: &RangeInclusive<u64>) -> Option<&Option<Content>> {
        visible(self.chain(table, key)?, overwritten_by)
    }

    /// As [`find`](Self::find), for all keys of an interval that is not empty.
    pub fn find_range(
        &self,
        table: TableId,
        interval: &Interval,
        overwritten_by: RangeInclusive<u64>,
    ) -> impl Iterator<Item = (&Value, &Option<Content>)> {
        let rows = self.tables.get(&table).into_iter().flat_map(|rows| rows.range::<[u8], _>(interval.bounds()));
        rows.filter_map(move |(key, chain)| Some((key, visible(chain, &overwritten_by)?)))
    }

    /// All versions, by table, key and commit.
    pub fn iter(&self) -> impl Iterator<Item = (TableId, &Value, &Version)> {
        let rows = self.tables.iter().flat_map(|(table, rows)| rows.iter().map(|(key, chain)| (*table, key, chain)));
        rows.flat_map(|(table, key, chain)| chain.iter().map(move |version| (table, key, version)))
    }
}

fn visible<'c>(chain: &'c Chain, overwritten_by: &RangeInclusive<u64>) -> Option<&'c Option<Content>> {
    let first = chain.partition_point(|version| version.overwritten_by < *overwritten_by.start());
    let found = chain.get(first).filter(|version| version.overwritten_by <= *overwritten_by.end());
    found.map(|version| &version.value)
}
