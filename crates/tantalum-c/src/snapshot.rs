//! Snapshots: reading the state of one moment.

use std::mem::MaybeUninit;

use tantalum::Snapshot;

use crate::{
    bytes::{give_handle, tantalum_buffer, tantalum_slice},
    cursor::{Rows, tantalum_cursor, tantalum_range},
    database::{tantalum_db, tantalum_table},
    status::{end, guarded, needed, tantalum_code},
    transaction::give_value,
};

/// What was committed at one moment, read without locks. Ended by tantalum_snapshot_free(), before or after its database is
/// closed. It may be used by many threads at once. While it lives, the row versions that it sees take space.
pub struct tantalum_snapshot {
    snapshot: Snapshot,
}

/// Makes a snapshot of now.
///
/// Returns TANTALUM_CLOSED; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_snapshot_new(
    db: Option<&tantalum_db>,
    snapshot: Option<&mut MaybeUninit<*mut tantalum_snapshot>>,
) -> tantalum_code {
    guarded(|| {
        let (db, snapshot) = (needed(db, "db is null")?, needed(snapshot, "snapshot is null")?);
        give_handle(snapshot, tantalum_snapshot { snapshot: db.db.snapshot()? });
        Ok(())
    })
}

/// Ends a snapshot. Its cursors go on, and keep what it sees until they are freed. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_snapshot_free(snapshot: Option<Box<tantalum_snapshot>>) {
    end(snapshot);
}

/// The value that a key had, in `value`, which the caller ends.
///
/// Returns TANTALUM_NO_ROW if it had none; TANTALUM_SNAPSHOT_TOO_OLD: read again from a new snapshot; TANTALUM_NOT_FOUND for a table that was
/// dropped; TANTALUM_MISMATCH; TANTALUM_CLOSED; TANTALUM_MISUSE; what a device reports.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_snapshot_get(
    snapshot: Option<&tantalum_snapshot>,
    table: Option<&tantalum_table>,
    key: tantalum_slice,
    value: Option<&mut MaybeUninit<tantalum_buffer>>,
) -> tantalum_code {
    guarded(|| {
        let (snapshot, table) = (needed(snapshot, "snapshot is null")?, needed(table, "table is null")?);
        give_value(snapshot.snapshot.get(&table.table, key.bytes()?)?, needed(value, "value is null")?)
    })
}

/// Opens a cursor over the rows of a range, or of all keys if `range` is NULL.
///
/// Returns what tantalum_snapshot_get() returns, without TANTALUM_NO_ROW.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_snapshot_cursor(
    snapshot: Option<&tantalum_snapshot>,
    table: Option<&tantalum_table>,
    range: Option<&tantalum_range>,
    cursor: Option<&mut MaybeUninit<*mut tantalum_cursor>>,
) -> tantalum_code {
    guarded(|| {
        let (snapshot, table) = (needed(snapshot, "snapshot is null")?, needed(table, "table is null")?);
        let cursor = needed(cursor, "cursor is null")?;
        let rows = snapshot.snapshot.range(&table.table, tantalum_range::bounds(range)?)?;
        give_handle(cursor, tantalum_cursor::over(Rows::OfSnapshot(Box::new(rows))));
        Ok(())
    })
}

/// Opens a cursor over the rows whose keys begin with `prefix`.
///
/// Returns what tantalum_snapshot_cursor() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_snapshot_prefix(
    snapshot: Option<&tantalum_snapshot>,
    table: Option<&tantalum_table>,
    prefix: tantalum_slice,
    cursor: Option<&mut MaybeUninit<*mut tantalum_cursor>>,
) -> tantalum_code {
    guarded(|| {
        let (snapshot, table) = (needed(snapshot, "snapshot is null")?, needed(table, "table is null")?);
        let cursor = needed(cursor, "cursor is null")?;
        let rows = snapshot.snapshot.prefix(&table.table, prefix.bytes()?)?;
        give_handle(cursor, tantalum_cursor::over(Rows::OfSnapshot(Box::new(rows))));
        Ok(())
    })
}
