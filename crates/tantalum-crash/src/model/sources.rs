//! First check: each version that was seen was written by a transaction that may have committed, as its last write of the key.

use std::collections::BTreeMap;

use super::{Contents, Rule, Violation};
use crate::{
    content::{Key, Version},
    history::{Fate, Read, Transaction},
};

/// Checks all versions that were read, and all that were recovered.
pub(super) fn check(initial: &Contents, transactions: &[Transaction], recovered: &Contents) -> Result<(), Violation> {
    let by_id: BTreeMap<u32, &Transaction> = transactions.iter().map(|t| (t.id, t)).collect();
    let sources = Sources { initial, by_id };
    for (&key, &version) in recovered {
        sources.check_one(key, version, "recovery found")?;
    }
    for reader in transactions {
        for (key, version) in reader.reads.iter().flat_map(versions) {
            sources.check_one(key, version, &format!("T{} read", reader.id))?;
        }
    }
    Ok(())
}

/// All versions that a read saw.
pub(super) fn versions(read: &Read) -> Vec<(Key, Version)> {
    match read {
        Read::Is(key, version) => version.iter().map(|&version| (*key, version)).collect(),
        Read::IsPresent(_) => Vec::new(),
        Read::Range { table, rows, .. } => {
            rows.iter().map(|&(number, version)| (Key { table: *table, number }, version)).collect()
        }
    }
}

/// Whether a read says anything of a key.
pub(super) fn covers(read: &Read, key: Key) -> bool {
    match read {
        Read::Is(other, _) | Read::IsPresent(other) => *other == key,
        Read::Range { table, low, high, .. } => *table == key.table && (*low..=*high).contains(&key.number),
    }
}

struct Sources<'a> {
    initial: &'a Contents,
    by_id: BTreeMap<u32, &'a Transaction>,
}

impl Sources<'_> {
    fn check_one(&self, key: Key, version: Version, found_by: &str) -> Result<(), Violation> {
        if self.initial.get(&key) == Some(&version) {
            return Ok(());
        }
        let detail = match self.by_id.get(&version.transaction) {
            None => "which was overwritten before the round began, or never written".to_owned(),
            Some(writer) if writer.fate == Fate::RolledBack => {
                format!("but T{} never called commit, or was rolled back", writer.id)
            }
            Some(writer) => match writer.writes.get(&key) {
                Some(Some(last)) if *last == version => return Ok(()),
                Some(last) => {
                    format!("but what T{} committed there is {}", writer.id, super::show(last.as_ref()))
                }
                None => format!("but T{} committed nothing there", writer.id),
            },
        };
        let detail = format!("{found_by} {version} at key {key}, {detail}");
        Err(Violation { rule: Rule::NoSuchVersion, detail })
    }
}
