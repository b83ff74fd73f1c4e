//! Cursors: the rows of a range, in the order of their keys, from either end.

use std::{ffi::c_int, mem::MaybeUninit, ops::Bound, rc::Rc};

use tantalum::RangeIter;

use crate::{
    bytes::{give, give_handle, tantalum_slice},
    database::tantalum_table,
    status::{Stop, end, guarded, needed, tantalum_code},
    transaction::{CursorRows, tantalum_transaction},
};

/// The ends of a range.
type Bounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// Where a range ends, at either end: for tantalum_bound.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum tantalum_bound_kind {
    /// With the first or last row of the table. The key means nothing.
    TANTALUM_UNBOUNDED = 0,
    /// At this key, which belongs to the range.
    TANTALUM_INCLUDED = 1,
    /// At this key, which does not belong to the range.
    TANTALUM_EXCLUDED = 2,
}

/// An end of a range.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tantalum_bound {
    /// One of tantalum_bound_kind.
    pub kind: c_int,
    /// The key.
    pub key: tantalum_slice,
}

/// A range of keys, which are ordered byte by byte. A variable of zeros is the range of all keys.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct tantalum_range {
    /// Where it begins.
    pub lower: tantalum_bound,
    /// Where it ends.
    pub upper: tantalum_bound,
}

/// The rows of a range. Ended by tantalum_cursor_free(). Used by one thread at a time; one over a transaction together with it.
pub struct tantalum_cursor {
    rows: Rows,
}

pub(crate) enum Rows {
    OfSnapshot(Box<RangeIter<'static>>),
    /// None any more once the transaction has ended.
    OfTransaction(Rc<CursorRows>),
}

impl tantalum_bound {
    fn bound(&self) -> Result<Bound<Vec<u8>>, Stop> {
        use tantalum_bound_kind::{TANTALUM_EXCLUDED, TANTALUM_INCLUDED, TANTALUM_UNBOUNDED};
        match self.kind {
            kind if kind == TANTALUM_UNBOUNDED as c_int => Ok(Bound::Unbounded),
            kind if kind == TANTALUM_INCLUDED as c_int => Ok(Bound::Included(self.key.bytes()?.to_vec())),
            kind if kind == TANTALUM_EXCLUDED as c_int => Ok(Bound::Excluded(self.key.bytes()?.to_vec())),
            _ => Err(Stop::Misuse("a bound's kind is none of tantalum_bound_kind")),
        }
    }
}

impl tantalum_range {
    pub(crate) fn bounds(range: Option<&Self>) -> Result<Bounds, Stop> {
        let Some(range) = range else { return Ok((Bound::Unbounded, Bound::Unbounded)) };
        Ok((range.lower.bound()?, range.upper.bound()?))
    }
}

impl tantalum_cursor {
    pub(crate) fn over(rows: Rows) -> Self {
        Self { rows }
    }

    fn step(
        &mut self,
        from_the_end: bool,
        key: &mut MaybeUninit<tantalum_slice>,
        value: &mut MaybeUninit<tantalum_slice>,
    ) -> Result<(), Stop> {
        let mut step = |rows: &mut RangeIter<'static>| {
            let row = if from_the_end { rows.next_back_borrowed() } else { rows.next_borrowed() };
            let (found, content) = row.ok_or(Stop::With(tantalum_code::TANTALUM_NO_ROW))??;
            give(key, tantalum_slice::of(found));
            give(value, tantalum_slice::of(content));
            Ok(())
        };
        match &mut self.rows {
            Rows::OfSnapshot(rows) => step(rows),
            Rows::OfTransaction(rows) => match &mut *rows.borrow_mut() {
                Some(rows) => step(rows),
                None => Err(Stop::Misuse("the cursor's transaction has ended: free the cursor")),
            },
        }
    }
}

/// Opens a cursor over the rows of a range that a transaction sees, its own writes among them, or over all rows if `range` is NULL. The
/// range is locked as far as it is read. While the cursor is open, the transaction reads, but does not write.
///
/// Returns TANTALUM_MISMATCH for a table of another database; TANTALUM_CLOSED; TANTALUM_MISUSE.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_transaction_cursor(
    transaction: Option<&tantalum_transaction>,
    table: Option<&tantalum_table>,
    range: Option<&tantalum_range>,
    cursor: Option<&mut MaybeUninit<*mut tantalum_cursor>>,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        let (cursor, range) = (needed(cursor, "cursor is null")?, tantalum_range::bounds(range)?);
        let rows = transaction.open_cursor(|transaction| transaction.range(&table.table, range))?;
        give_handle(cursor, tantalum_cursor::over(Rows::OfTransaction(rows)));
        Ok(())
    })
}

/// As tantalum_transaction_cursor(), over the rows whose keys begin with `prefix`.
///
/// Returns what tantalum_transaction_cursor() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_transaction_prefix(
    transaction: Option<&tantalum_transaction>,
    table: Option<&tantalum_table>,
    prefix: tantalum_slice,
    cursor: Option<&mut MaybeUninit<*mut tantalum_cursor>>,
) -> tantalum_code {
    guarded(|| {
        let (transaction, table) = (needed(transaction, "transaction is null")?, needed(table, "table is null")?);
        let (cursor, prefix) = (needed(cursor, "cursor is null")?, prefix.bytes()?);
        let rows = transaction.open_cursor(|transaction| transaction.prefix(&table.table, prefix))?;
        give_handle(cursor, tantalum_cursor::over(Rows::OfTransaction(rows)));
        Ok(())
    })
}

/// The next row from the beginning of what is left of the range, in `key` and `value`. They belong to the cursor, and are valid until it
/// is used again or freed, or its transaction is used.
///
/// Returns TANTALUM_NO_ROW when there are no more; TANTALUM_SNAPSHOT_TOO_OLD, or what tantalum_get() returns; TANTALUM_MISUSE, also after the
/// transaction has ended. After a failure there are no more rows.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_cursor_next(
    cursor: Option<&mut tantalum_cursor>,
    key: Option<&mut MaybeUninit<tantalum_slice>>,
    value: Option<&mut MaybeUninit<tantalum_slice>>,
) -> tantalum_code {
    guarded(|| {
        let (key, value) = (needed(key, "key is null")?, needed(value, "value is null")?);
        needed(cursor, "cursor is null")?.step(false, key, value)
    })
}

/// As tantalum_cursor_next(), from the end of what is left of the range: each row is returned once, from one end or the other.
///
/// Returns what tantalum_cursor_next() returns.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_cursor_next_back(
    cursor: Option<&mut tantalum_cursor>,
    key: Option<&mut MaybeUninit<tantalum_slice>>,
    value: Option<&mut MaybeUninit<tantalum_slice>>,
) -> tantalum_code {
    guarded(|| {
        let (key, value) = (needed(key, "key is null")?, needed(value, "value is null")?);
        needed(cursor, "cursor is null")?.step(true, key, value)
    })
}

/// Ends a cursor, before or after its transaction or snapshot. Never fails.
#[unsafe(no_mangle)]
pub extern "C" fn tantalum_cursor_free(cursor: Option<Box<tantalum_cursor>>) {
    end(cursor);
}
