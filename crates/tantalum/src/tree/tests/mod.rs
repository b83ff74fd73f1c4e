//! The tree against an ordered map: alone, with many tasks at once, and across power cuts.

mod bed;
mod chains;
mod checks;
mod concurrent;
mod hints;
mod model;
mod nodes;
mod recovery;
mod runs;
mod slow_reads;
mod stale;

use super::{Chains, InsertRuns, LeafCopy, LeafPosition, LeafValue, LeafWrite, Tree};
use crate::buffer::{ChangeGroup, Reservation};
use crate::error::{GroupError, GroupResult, Result};
use bed::Bed;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use tantalum_log::Lsn;
use tantalum_store::PageId;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Write = (Vec<u8>, Option<Vec<u8>>);

/// A key of `bytes` bytes that sorts like `number`.
fn key(number: u32, bytes: usize) -> Vec<u8> {
    let mut key = format!("row/{number:06}/").into_bytes();
    key.resize(bytes.max(key.len()), b'.');
    key
}

/// Commits writes, sorted by key, as one group, in the way that transactions do. Returns the LSN up to which the log
/// must be flushed.
fn commit(bed: &Bed, writes: &[Write]) -> Result<Lsn> {
    let writes: Vec<LeafWrite<'_>> =
        writes.iter().map(|(key, value)| LeafWrite { key, value: value.as_deref().map(LeafValue::Bytes) }).collect();
    let reservation = Reservation::new(&bed.pool);
    loop {
        match try_commit(bed, &writes, &reservation) {
            Ok(None) => {}
            Ok(Some((end, sparse))) => {
                sparse.iter().try_for_each(|&first| bed.tree.rebalance(writes[first].key))?;
                return Ok(end);
            }
            Err(GroupError::Lacks(lack)) => bed.space.supply(&reservation, lack)?,
            Err(GroupError::Failed(error)) => return Err(error),
        }
        tantalum_rt::yield_now();
    }
}

/// `None` when it must be tried again; otherwise also the first writes of the leaves that have become sparse.
fn try_commit(
    bed: &Bed,
    writes: &[LeafWrite<'_>],
    reservation: &Arc<Reservation>,
) -> GroupResult<Option<(Lsn, Vec<usize>)>> {
    let (mut leaves, mut places, mut chains) = (Vec::new(), Vec::new(), Chains::default());
    while places.len() < writes.len() {
        let next = places.len();
        let (page, lsn) = bed.tree.prepare(&writes[next..], &mut places, reservation)?;
        if !bed.tree.find_chains(&writes[next..], &places[next..], &mut chains)? {
            return Ok(None);
        }
        assert!(places.len() > next, "a leaf always takes the first write");
        leaves.push((page, lsn, next..places.len()));
    }
    leaves.sort_by_key(|(page, ..)| page.id());
    if leaves.windows(2).any(|pair| pair[0].0.id() == pair[1].0.id()) {
        return Ok(None);
    }
    let mut group = ChangeGroup::with(&bed.pool, Some(reservation));
    let mut staged: Vec<(usize, Range<usize>)> = Vec::new();
    for (page, lsn, range) in leaves {
        tantalum_rt::interleave();
        let guard = page.write();
        if !bed.tree.accepts(&guard, &writes[range.clone()], lsn, &mut places[range.clone()])? {
            return Ok(None);
        }
        staged.push((group.add(guard), range));
    }
    let mut sparse = Vec::new();
    for (index, range) in staged {
        if bed.tree.stage(&mut group, index, &writes[range.clone()], &places[range.clone()], &chains)? {
            sparse.push(range.start);
        }
    }
    Ok(Some((group.append(0, 0)?, sparse)))
}

fn read(tree: &Tree, key: &[u8]) -> Option<Vec<u8>> {
    tree.read_bytes(key, |value| value.map(<[u8]>::to_vec)).expect("the tree is sound")
}

/// Rows of a leaf that is not latched any more, as they are there or, if a large value was replaced meanwhile, as they are now.
fn rows_of(tree: &Tree, mut copy: LeafCopy, entries: Range<usize>) -> Vec<(Vec<u8>, Vec<u8>)> {
    copy.read_large(tree).expect("the tree is sound");
    let row = |index| {
        let (key, value) = copy.entry(index).expect("the tree is sound");
        let (key, value) = (key.to_vec(), value.bytes().expect("no value tree here").to_vec());
        if value.is_empty() { read(tree, &key).map(|value| (key, value)) } else { Some((key, value)) }
    };
    entries.filter_map(row).collect()
}

/// All rows, leaf by leaf to the right.
fn rows_forwards(tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut at = Some(Vec::new());
    while let Some(from) = at {
        let mut copy = LeafCopy::default();
        let entries;
        (at, entries) = tree
            .read_leaf(LeafPosition::Containing(&from), |leaf| {
                // The tree may have changed since the last leaf: this one can begin before `from`.
                let entries = leaf.lower_bound(&from).expect("the tree is sound")..leaf.len();
                copy.fill(&leaf, entries.clone()).expect("the tree is sound");
                (leaf.upper().map(<[u8]>::to_vec), entries)
            })
            .expect("the tree is sound");
        rows.extend(rows_of(tree, copy, entries));
    }
    rows
}

/// All rows, leaf by leaf to the left.
fn rows_backwards(tree: &Tree) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut before: Option<Vec<u8>> = None;
    loop {
        let at = before.as_deref().map_or(LeafPosition::Last, LeafPosition::Before);
        let mut copy = LeafCopy::default();
        let (lower, end) = tree
            .read_leaf(at, |leaf| {
                let end =
                    before.as_deref().map_or(leaf.len(), |bound| leaf.lower_bound(bound).expect("the tree is sound"));
                copy.fill(&leaf, 0..end).expect("the tree is sound");
                (leaf.lower().to_vec(), end)
            })
            .expect("the tree is sound");
        let found = rows_of(tree, copy, 0..end);
        rows.extend(found.into_iter().rev());
        if lower.is_empty() {
            return rows;
        }
        before = Some(lower);
    }
}

/// Checks the tree, that it holds exactly `rows`, and that it uses exactly the pages that are marked as used.
fn assert_holds(bed: &Bed, rows: &Rows) {
    let expected: Vec<_> = rows.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    let mut found = rows_forwards(&bed.tree);
    assert!(found == expected, "forwards: {} rows found, {} expected", found.len(), expected.len());
    found = rows_backwards(&bed.tree);
    found.reverse();
    assert!(found == expected, "backwards: {} rows found, {} expected", found.len(), expected.len());
    let mut visited: BTreeSet<PageId> = BTreeSet::new();
    let report = bed
        .tree
        .check(&mut |page| {
            assert!(visited.insert(page), "page {page} is used twice");
            Ok(())
        })
        .expect("everything can be looked at")
        .unwrap_or_else(|problems| panic!("{}", problems[0]));
    assert_eq!(report.entries, rows.len() as u64);
    assert_eq!(report.pages, visited.len() as u64);
    assert_eq!(visited, bed.used_pages(), "every used page belongs to the tree, and the other way round");
}
