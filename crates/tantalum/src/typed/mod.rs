//! Tables whose keys and values are types of the program. A layer over [`Table`]: a key becomes bytes in the order of the keys
//! (`key.rs`), a value bytes in any order (`row_value.rs`), and the engine below sees nothing else.

mod expiring;
mod key;
mod key_range;
mod row_value;
mod typed_range;

use std::{any::type_name, fmt, marker::PhantomData};

#[cfg(feature = "postcard")]
pub use self::row_value::Postcard;
pub use self::{
    expiring::ExpiringTable,
    key::{AsKey, Key, KeyEnd, PrefixOf},
    key_range::KeyRangeOf,
    row_value::RowValue,
    typed_range::TypedRange,
};
use crate::{
    db::Db,
    error::{Error, ErrorKind, Result},
    table::Table,
    transaction::{KeyRange, RangeIter, Snapshot, Transaction, Value},
};

/// A table whose keys are of the type `K`, and whose values are what `V` says. Cheap to clone; made from a table by
/// [`Table::typed`].
///
/// Rows are in the order of the keys: numbers by size, tuples by their first component, then by the second. Reads take what they read
/// from, a [`Db`], a [`Snapshot`] or a [`Transaction`]; writes take a transaction. Lookups take what a key is borrowed as
/// ([`AsKey`]): `&str` for `String`, `(u64, &str)` for `(u64, String)`.
///
/// Bytes carry no type. A table that is opened with other types than those it was written with refuses the rows that are none of
/// theirs, by name, and shows what they are taken for where they are.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::TypedTable;
///
/// let names: TypedTable<u64, String> = db.table("names")?.typed();
/// let by_name: TypedTable<(String, u64), ()> = db.table("by-name")?.typed();
/// db.transact(|tx| {
///     for (id, name) in [(7, "Ada"), (300, "Grace")] {
///         names.insert(tx, id, name)?;
///         by_name.put(tx, (name, id), &())?;
///     }
///     Ok(())
/// })?;
/// assert_eq!(names.get(&db, 7)?.as_deref(), Some("Ada"));
/// let snapshot = db.snapshot()?;
/// let ids = names.range(&snapshot, 8..)?.map(|row| Ok(row?.0)).collect::<tantalum::Result<Vec<_>>>()?;
/// assert_eq!(ids, [300]);
/// assert_eq!(by_name.prefix(&snapshot, ("Ada",))?.count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TypedTable<K, V> {
    table: Table,
    types: PhantomData<fn() -> (K, V)>,
}

impl Table {
    /// The table with keys and values of these types.
    pub fn typed<K: Key, V: RowValue>(self) -> TypedTable<K, V> {
        TypedTable { table: self, types: PhantomData }
    }
}

/// What rows are read from: a [`Db`], a [`Snapshot`] or a [`Transaction`], each with the promises of its own methods.
///
/// ```
/// use tantalum::{Reader, Result, Table};
///
/// fn names(from: &impl Reader, names: &Table) -> Result<usize> {
///     Ok(from.rows(names, ..)?.count())
/// }
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let table = db.table("names")?;
/// assert_eq!(names(&db, &table)? + names(&db.snapshot()?, &table)? + names(&db.begin()?, &table)?, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Reader: sealed::Sealed {
    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// Those of [`Db::get`], [`Snapshot::get`] or [`Transaction::get`].
    fn value(&self, table: &Table, key: &[u8]) -> Result<Option<Value>>;

    /// Whether a key is there.
    ///
    /// # Errors
    /// As [`value`](Self::value).
    fn has(&self, table: &Table, key: &[u8]) -> Result<bool>;

    /// The rows of a range of keys, in key order from either end.
    ///
    /// # Errors
    /// Those of [`Db::range`], [`Snapshot::range`] or [`Transaction::range`].
    fn rows(&self, table: &Table, range: impl KeyRange) -> Result<RangeIter<'_>>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! readers {
    ($($reader:ty),+) => {
        $(
            impl sealed::Sealed for $reader {}

            impl Reader for $reader {
                fn value(&self, table: &Table, key: &[u8]) -> Result<Option<Value>> {
                    self.get(table, key)
                }

                fn has(&self, table: &Table, key: &[u8]) -> Result<bool> {
                    self.contains(table, key)
                }

                fn rows(&self, table: &Table, range: impl KeyRange) -> Result<RangeIter<'_>> {
                    self.range(table, range)
                }
            }
        )+
    };
}

readers!(Db, Snapshot, Transaction);

/// Reads fail with what the call of the same name of their reader fails with, and with
/// [`InvalidInput`](ErrorKind::InvalidInput) for a row that is none of the table's types.
impl<K: Key, V: RowValue> TypedTable<K, V> {
    /// The table without types, for calls that take bytes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The bytes of a key, for calls of a database or a transaction that take bytes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let visits: tantalum::TypedTable<(u32, String), i64> = db.table("visits")?.typed();
    /// assert_eq!(db.increment(visits.table(), visits.key((7, "home")), 3)?, 3);
    /// assert_eq!(visits.get(&db, (7, "home"))?, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self, key: impl AsKey<K>) -> Vec<u8> {
        key.to_bytes()
    }

    /// The value of a key, or `None`.
    ///
    /// # Errors
    /// Those of the reader; [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn get(&self, from: &impl Reader, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let key = key.to_bytes();
        self.decoded(&key, from.value(&self.table, &key)?)
    }

    /// Whether a key is there. Reads no large value.
    ///
    /// # Errors
    /// Those of the reader.
    pub fn contains(&self, from: &impl Reader, key: impl AsKey<K>) -> Result<bool> {
        from.has(&self.table, &key.to_bytes())
    }

    /// The rows of a range of keys, in key order from either end.
    ///
    /// # Errors
    /// Those of the reader, also of the iterator's items; of these, [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn range<'s>(&self, from: &'s impl Reader, range: impl KeyRangeOf<K>) -> Result<TypedRange<'s, K, V>> {
        Ok(TypedRange::new(from.rows(&self.table, range.into_bytes())?, self.clone()))
    }

    /// The rows whose keys begin so: with the first components of a tuple, or the first characters of a text.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let lines: tantalum::TypedTable<(u64, u32), String> = db.table("order-lines")?.typed();
    /// db.transact(|tx| {
    ///     lines.put(tx, (7, 1), "tea")?;
    ///     lines.put(tx, (7, 2), "milk")?;
    ///     lines.put(tx, (8, 1), "bread")
    /// })?;
    /// let of_order = lines.prefix(&db, (7,))?.map(|row| Ok(row?.1)).collect::<tantalum::Result<Vec<_>>>()?;
    /// assert_eq!(of_order, ["tea", "milk"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn prefix<'s>(&self, from: &'s impl Reader, prefix: impl PrefixOf<K>) -> Result<TypedRange<'s, K, V>> {
        self.range(from, crate::Prefix(prefix))
    }

    /// The row with the lowest key.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn first(&self, from: &impl Reader) -> Result<Option<(K, V::Owned)>> {
        self.range(from, ..)?.next().transpose()
    }

    /// The row with the highest key.
    ///
    /// # Errors
    /// As [`range`](Self::range).
    pub fn last(&self, from: &impl Reader) -> Result<Option<(K, V::Owned)>> {
        self.range(from, ..)?.next_back().transpose()
    }

    fn decoded(&self, key: &[u8], value: Option<Value>) -> Result<Option<V::Owned>> {
        value.map(|value| self.decode_value(key, &value)).transpose()
    }

    fn decode_value(&self, key: &[u8], value: &[u8]) -> Result<V::Owned> {
        V::decode(value).ok_or_else(|| {
            let what = format!("the value of the key \"{}\", of {} bytes,", key.escape_ascii(), value.len());
            self.mistyped(&what, type_name::<V>())
        })
    }

    fn decode_key(&self, key: &[u8]) -> Result<K> {
        K::of_bytes(key).ok_or_else(|| self.mistyped(&format!("the key \"{}\"", key.escape_ascii()), type_name::<K>()))
    }

    #[cold]
    fn mistyped(&self, what: &str, expected: &str) -> Error {
        let table = self.table.name();
        Error::new(
            ErrorKind::InvalidInput,
            format!("table {table:?}: {what} is no {expected}; use the table with the types that it was written with"),
        )
    }
}

/// Writes fail with what the transaction's call of the same name fails with, and with what the value's type refuses to write.
impl<K: Key, V: RowValue> TypedTable<K, V> {
    /// As [`get`](Self::get), but locks the key for writing.
    ///
    /// # Errors
    /// Those of [`Transaction::get_for_update`]; [`InvalidInput`](ErrorKind::InvalidInput).
    pub fn get_for_update(&self, tx: &Transaction, key: impl AsKey<K>) -> Result<Option<V::Owned>> {
        let key = key.to_bytes();
        self.decoded(&key, tx.get_for_update(&self.table, &key)?)
    }

    /// Sets the value of a key, whether it is there or not.
    ///
    /// # Errors
    /// Those of [`Transaction::put`].
    pub fn put(&self, tx: &mut Transaction, key: impl AsKey<K>, value: &V::Borrowed) -> Result<()> {
        tx.put(&self.table, key.to_bytes(), V::encode(value)?)
    }

    /// Sets the value of a key that is not there.
    ///
    /// # Errors
    /// Those of [`Transaction::insert`].
    pub fn insert(&self, tx: &mut Transaction, key: impl AsKey<K>, value: &V::Borrowed) -> Result<()> {
        tx.insert(&self.table, key.to_bytes(), V::encode(value)?)
    }

    /// Deletes a key. Returns whether it was there.
    ///
    /// # Errors
    /// Those of [`Transaction::delete`].
    pub fn delete(&self, tx: &mut Transaction, key: impl AsKey<K>) -> Result<bool> {
        tx.delete(&self.table, key.to_bytes())
    }

    /// Deletes the rows of a range, as many as there are; a [`Prefix`](crate::Prefix) is a range too. Returns how many there were.
    ///
    /// # Errors
    /// Those of [`Transaction::delete_range`].
    pub fn delete_range(&self, tx: &mut Transaction, range: impl KeyRangeOf<K>) -> Result<u64> {
        tx.delete_range(&self.table, range.into_bytes())
    }
}

impl<K, V> Clone for TypedTable<K, V> {
    fn clone(&self) -> Self {
        Self { table: self.table.clone(), types: PhantomData }
    }
}

impl<K, V> fmt::Debug for TypedTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, value) = (type_name::<K>(), type_name::<V>());
        f.debug_struct("TypedTable").field("table", &self.table).field("key", &key).field("value", &value).finish()
    }
}
