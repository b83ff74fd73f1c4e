//! Giving up history: at once for readers, and row by row for the tables.
//!
//! Invariant: of what lies before the compacted revision, a key has at most one revision that was swept, and that is a put. So sweeping
//! looks at each revision once, in their order, and deletes what the key had before it; a deletion goes itself, once it lies before
//! the compacted revision: at it, watchers may still ask for it.

use tantalum::{Result, Table, Transaction};

use super::rows::{
    COMPACTED, Event, HISTORY, META, REVISIONS, Revision, SWEPT, escape, history_key, split_history_key,
};
use super::view::View;
use crate::refusal::{Failed, Refusal};

/// Gives up what only revisions before this one see.
pub fn compact(transaction: &mut Transaction, tables: &[Table], revision: i64) -> Result<(), Failed> {
    let view = View { transaction, tables };
    let before = view.compacted()?;
    if revision <= before {
        return Err(Refusal::Compacted.into());
    }
    if revision > view.revision()? {
        return Err(Refusal::FutureRevision.into());
    }
    // Deletions at the revision that was compacted before lie before it now.
    let swept = view.swept()?.min(Revision::first_of(before.max(0)));
    transaction.put(&tables[META], SWEPT, swept.to_bytes())?;
    transaction.put(&tables[META], COMPACTED, revision.to_be_bytes())?;
    Ok(())
}

/// Looks at the next revisions, at most so many, and deletes what compaction gave up with them. Returns whether it came to the end.
pub fn sweep(transaction: &mut Transaction, tables: &[Table], revisions: usize) -> Result<bool> {
    let view = View { transaction, tables };
    let (compacted, swept) = (view.compacted()?, view.swept()?);
    let mut next = Revision::first_of(compacted + 1);
    if swept >= next {
        return Ok(true);
    }
    let mut given_up = Vec::new();
    let rows = transaction.range(&tables[REVISIONS], swept.to_bytes()..next.to_bytes())?;
    for (looked_at, row) in rows.enumerate() {
        let (row_key, row) = row?;
        let revision = Revision::from_bytes(&row_key)?;
        if looked_at == revisions {
            next = revision;
            break;
        }
        let event = Event::decode(revision, &row)?;
        let escaped = escape(&event.key_value.key);
        let earlier = history_key(&escaped, Revision::default())..history_key(&escaped, revision);
        for row in transaction.range(&tables[HISTORY], earlier)? {
            let (row_key, _) = row?;
            given_up.push((escaped.clone(), split_history_key(&row_key)?.1));
        }
        if event.is_delete && revision.main < compacted {
            given_up.push((escaped, revision));
        }
    }
    for (escaped, revision) in given_up {
        transaction.delete(&tables[HISTORY], history_key(&escaped, revision))?;
        transaction.delete(&tables[REVISIONS], revision.to_bytes())?;
    }
    transaction.put(&tables[META], SWEPT, next.to_bytes())?;
    Ok(next >= Revision::first_of(compacted + 1))
}
