//! What the rows of a group overwrite: in their leaves, and in staging tables, whose rows go then.

use tantalum_store::TableId;

use super::{Part, PartTree, planning::Deferred};
use crate::{
    error::Result,
    table::Table,
    transaction::{Content, staging::StagedWrite},
    tree::LeafWrite,
};

/// A version of a row that a group overwrites.
pub(in crate::transaction) struct OldVersion<'a> {
    pub table: TableId,
    pub key: &'a [u8],
    pub value: Option<Content>,
    /// Which commit overwrote it; `None` for that of the group.
    pub until: Option<u64>,
}

/// Rows of a staging table that are overwritten in their table.
pub(super) struct Removal<'a> {
    pub table: Table,
    pub position: u64,
    pub part: Part<'a>,
    /// What the rows are, as many as the writes.
    pub rows: Vec<StagedWrite>,
}

/// What is staged, and committed, for keys that are to be written, but for what change buffers have for those that are deferred: that
/// is replaced by what is put into one, or is older than that.
pub(super) fn staged_rows<'a>(parts: &'a [Part<'_>], deferred: &[Deferred<'_>]) -> Result<Vec<Removal<'a>>> {
    let mut removals = Vec::new();
    for part in parts {
        let Some(staging) = part.tree.staging() else { continue };
        if !part.writes.iter().any(|write| staging.may_have(write.key)) {
            continue;
        }
        for (position, staged) in staging.committed(u64::MAX) {
            let (mut writes, mut rows) = (Vec::new(), Vec::new());
            for write in &part.writes {
                if staged.is_change_buffer() && deferred.iter().any(|to| to.has(part.tree.tree().owner(), write.key)) {
                    continue;
                }
                if let Some(row) = staged.get(write.key)? {
                    writes.push(LeafWrite { key: write.key, value: None });
                    rows.push(row);
                }
            }
            if !writes.is_empty() {
                let PartTree::Table { table, .. } = &part.tree else { unreachable!("only rows of tables are staged") };
                removals.push(Removal {
                    table: table.clone(),
                    position,
                    part: Part { tree: PartTree::Staging(staged), writes },
                    rows,
                });
            }
        }
    }
    // The oldest first.
    removals.sort_by_key(|removal| removal.position);
    Ok(removals)
}

/// What the keys that a commit is about to write stand for, before: in their leaves, and as far as anything is staged for them, since
/// its commit.
pub(super) fn overwritten<'a>(parts: &'a [Part<'_>], removals: &[Removal<'_>]) -> Result<Vec<OldVersion<'a>>> {
    let mut old = Vec::new();
    for Part { tree, writes } in parts.iter().filter(|part| matches!(part.tree, PartTree::Table { .. })) {
        let table = tree.tree().owner();
        for LeafWrite { key, .. } in writes {
            let mut value = tree.tree().read(key, |value, _| value.map(Content::of))?;
            for (position, row) in rows_for(removals, table, key) {
                if let Some(made) = row.clone().made() {
                    old.push(OldVersion { table, key, value, until: Some(position) });
                    value = made;
                }
            }
            old.push(OldVersion { table, key, value, until: None });
        }
    }
    Ok(old)
}

/// What is staged for a key of a table, the oldest first.
fn rows_for<'r>(
    removals: &'r [Removal<'_>],
    table: TableId,
    key: &'r [u8],
) -> impl Iterator<Item = (u64, &'r StagedWrite)> {
    removals.iter().filter(move |removal| removal.table.id() == table).filter_map(move |removal| {
        let at = removal.part.writes.binary_search_by_key(&key, |write| write.key).ok()?;
        Some((removal.position, &removal.rows[at]))
    })
}

/// What the leaves have for keys whose staged rows are moved there: snapshots that began before their commit see it.
pub(super) fn moved_over<'a>(parts: &'a [Part<'_>], position: u64) -> Result<Vec<OldVersion<'a>>> {
    let mut old = Vec::new();
    for Part { tree, writes } in parts {
        if let PartTree::Target(table) = tree {
            for LeafWrite { key, .. } in writes {
                let value = table.tree().read(key, |value, _| value.map(Content::of))?;
                old.push(OldVersion { table: table.id(), key, value, until: Some(position) });
            }
        }
    }
    Ok(old)
}
