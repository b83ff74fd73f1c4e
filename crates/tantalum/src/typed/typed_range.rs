//! The rows of a range of a [`TypedTable`].

use std::fmt;

use super::{Key, RowValue, TypedTable};
use crate::{error::Result, transaction::RangeIter};

/// The rows of a range of a typed table, from [`TypedTable::range`]. After an error it ends.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let heights: tantalum::TypedTable<i32, f64> = db.table("heights")?.typed();
/// db.transact(|tx| [-5, 3, 12].iter().try_for_each(|&at| heights.put(tx, at, &(f64::from(at) / 2.0))))?;
/// let mut rows = heights.range(&db, -10..=3)?;
/// assert_eq!(rows.next_back().transpose()?, Some((3, 1.5)));
/// assert_eq!(rows.next().transpose()?, Some((-5, -2.5)));
/// assert!(rows.next().is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedRange<'s, K, V> {
    rows: RangeIter<'s>,
    table: TypedTable<K, V>,
    /// A row was none of the table's types, after which there are no rows.
    has_failed: bool,
}

impl<'s, K: Key, V: RowValue> TypedRange<'s, K, V> {
    pub(super) fn new(rows: RangeIter<'s>, table: TypedTable<K, V>) -> Self {
        Self { rows, table, has_failed: false }
    }

    /// The next row, as `next` lends it.
    fn decode<'r>(&'r mut self, next: impl FnOnce(&'r mut RangeIter<'s>) -> Lent<'r>) -> Option<Row<K, V>> {
        if self.has_failed {
            return None;
        }
        let (table, row) = (&self.table, next(&mut self.rows)?);
        let decoded = row.and_then(|(key, value)| Ok((table.decode_key(key)?, table.decode_value(key, value)?)));
        self.has_failed = decoded.is_err();
        Some(decoded)
    }
}

type Lent<'r> = Option<Result<(&'r [u8], &'r [u8])>>;

type Row<K, V> = Result<(K, <V as RowValue>::Owned)>;

impl<K: Key, V: RowValue> Iterator for TypedRange<'_, K, V> {
    type Item = Row<K, V>;

    fn next(&mut self) -> Option<Self::Item> {
        self.decode(RangeIter::next_borrowed)
    }
}

impl<K: Key, V: RowValue> DoubleEndedIterator for TypedRange<'_, K, V> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.decode(RangeIter::next_back_borrowed)
    }
}

impl<K, V> fmt::Debug for TypedRange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedRange").field("table", &self.table).field("has_failed", &self.has_failed).finish()
    }
}
