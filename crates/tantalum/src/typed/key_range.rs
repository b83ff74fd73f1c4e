//! Ranges of typed keys, which become ranges of bytes.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::key::{AsKey, PrefixOf};
use crate::transaction::{KeyRange, Prefix};

/// A range of keys of the type `K`: every standard range of what `K` is borrowed as ([`AsKey`]), and a [`Prefix`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{Prefix, TypedTable};
///
/// let temperatures: TypedTable<(String, i64), f32> = db.table("temperatures")?.typed();
/// db.transact(|tx| (-3..3).try_for_each(|hour| temperatures.put(tx, ("Oslo", hour), &0.5)))?;
/// assert_eq!(temperatures.range(&db, ("Oslo", -1)..("Oslo", 2))?.count(), 3);
/// assert_eq!(db.transact(|tx| temperatures.delete_range(tx, Prefix(("Oslo",))))?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyRangeOf<K> {
    /// The range of the keys' bytes.
    fn into_bytes(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

impl<K> KeyRangeOf<K> for RangeFull {
    fn into_bytes(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K, P: PrefixOf<K>> KeyRangeOf<K> for Prefix<P> {
    fn into_bytes(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        Prefix(self.0.to_prefix()).into_bounds()
    }
}

macro_rules! key_range_of {
    ($($range:ty),*) => {
        $(impl<K, Q: AsKey<K>> KeyRangeOf<K> for $range {
            fn into_bytes(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                (self.start_bound().map(Q::to_bytes), self.end_bound().map(Q::to_bytes))
            }
        })*
    };
}

key_range_of!(Range<Q>, RangeFrom<Q>, RangeTo<Q>, RangeInclusive<Q>, RangeToInclusive<Q>, (Bound<Q>, Bound<Q>));

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<K>(range: impl KeyRangeOf<K>) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        range.into_bytes()
    }

    #[test]
    fn bounds_stay_what_they_are() {
        let (low, high) = (vec![0, 1], vec![0, 2]);
        assert_eq!(bytes::<u16>(1..2), (Bound::Included(low.clone()), Bound::Excluded(high.clone())));
        assert_eq!(bytes::<u16>(1..=2), (Bound::Included(low.clone()), Bound::Included(high.clone())));
        assert_eq!(bytes::<u16>(..=2), (Bound::Unbounded, Bound::Included(high.clone())));
        let above = (Bound::Excluded(1), Bound::Unbounded);
        assert_eq!(bytes::<u16>(above), (Bound::Excluded(low), Bound::Unbounded));
        assert_eq!(bytes::<u16>(..), (Bound::Unbounded, Bound::Unbounded));
    }
}
