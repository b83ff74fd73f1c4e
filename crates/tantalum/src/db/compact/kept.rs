//! What keeps the data file longer than its pages need, for the report of a compaction.

use std::collections::BTreeMap;

use tantalum_store::{PageKind, TableId, page::header};

use super::{KeptPages, mover::Skipped};
use crate::{
    db::{Core, StagingState},
    error::Result,
};

/// What has a page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Holder {
    /// Overflow pages of a table.
    Chains(TableId, String),
    /// Savepoints of a transaction.
    Transaction,
    /// Rows that are being moved or freed.
    Freed,
    /// A tree whose pages could move.
    Tree,
}

/// What has pages behind as many as are in use, after what could be moved has moved. `is_wanted` if a task needed pages when the end of
/// the store was to be given back.
pub(super) fn at_the_end(core: &Core, is_wanted: bool, skipped: &BTreeMap<TableId, Skipped>) -> Result<Vec<KeptPages>> {
    let (end, pages) = core.space.behind_those_in_use()?;
    let mut holders = BTreeMap::<Holder, u64>::new();
    for page in pages {
        let _operation = core.begin_operation()?;
        let (kind, owner) = {
            let page = core.pool.pin_or_blank(page)?.read();
            (header::kind(&page)?, header::owner(&page))
        };
        if let Some(holder) = holder_of(core, kind, owner)? {
            *holders.entry(holder).or_default() += 1;
        }
    }
    let (lent, lent_end) = core.space.lent();
    let keep_lent = lent > 0 && (lent_end > end || holders.contains_key(&Holder::Tree));
    // Those lie before others, or there is no free page in front, or they came meanwhile.
    let has_others = keep_lent || holders.keys().any(|holder| *holder != Holder::Tree);
    holders.retain(|holder, _| !has_others || *holder != Holder::Tree);
    let mut kept: Vec<_> =
        holders.into_iter().map(|(holder, pages)| KeptPages { pages, by: holder.describe(skipped) }).collect();
    if keep_lent {
        let by = "old row versions that snapshots see, or a bulk load; compact again when these have ended".into();
        kept.push(KeptPages { pages: lent, by });
    }
    if kept.is_empty() && is_wanted {
        let by =
            "transactions that needed free pages while the file was to be cut off; compact again when less is written";
        kept.push(KeptPages { pages: 0, by: by.into() });
    }
    Ok(kept)
}

impl Holder {
    fn describe(&self, skipped: &BTreeMap<TableId, Skipped>) -> String {
        let what = match self {
            Self::Chains(table, name) => return chains(name, skipped.get(table).copied().unwrap_or_default()),
            Self::Transaction => "the savepoints of a large transaction; compact again when it has ended",
            Self::Freed => {
                "a large transaction that is over or a dropped table, whose pages are being freed; compact again in a while, or \
                 after the next open"
            }
            Self::Tree => "rows that were written while the database was compacted; compact again when less is written",
        };
        what.to_owned()
    }
}

fn chains(table: &str, Skipped { locked, has_no_space }: Skipped) -> String {
    let what = format!("large values of table {table:?} that an earlier version of Tantalum wrote");
    if has_no_space {
        return what + ", for whose copies the disk has no space; make some, and compact again";
    }
    let locked =
        if locked > 0 { format!("; {locked} of them in rows that transactions have locked") } else { String::new() };
    what + &locked + "; compact again when the transactions that run have ended"
}

/// What has a page of this kind and owner; `None` if it is free by now.
fn holder_of(core: &Core, kind: PageKind, owner: TableId) -> Result<Option<Holder>> {
    if kind == PageKind::Free {
        return Ok(None);
    }
    if core.catalog.has_tree(owner) {
        return Ok(Some(match (kind, core.catalog.tables().into_iter().find(|table| table.id() == owner)) {
            (PageKind::Overflow, Some(table)) => Holder::Chains(owner, table.name().to_owned()),
            _ => Holder::Tree,
        }));
    }
    let row = core.catalog.staging_row(owner)?;
    // An undo log belongs to no table.
    let is_undo_log = row.is_some_and(|row| row.state == StagingState::Uncommitted && row.target == TableId(0));
    Ok(Some(if is_undo_log { Holder::Transaction } else { Holder::Freed }))
}
