//! Ranges of keys: what callers write (`a..b`), and the half-open interval between two cuts that the engine works on.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use super::Value;

/// A range of keys, for [`Transaction::range`](crate::Transaction::range) and
/// [`Snapshot::range`](crate::Snapshot::range).
///
/// Every standard range of anything that is bytes: `..`, `a..`, `a..b`, `a..=b`, `..b`, `..=b`, and a pair of
/// [`Bound`]s. (`RangeBounds<[u8]>` itself is not implemented for ranges of byte slices.)
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path())?;
/// let letters = db.table("letters")?;
/// let mut tx = db.begin()?;
/// for letter in ["a", "b", "c"] {
///     tx.put(&letters, letter, "")?;
/// }
/// assert_eq!(tx.range(&letters, ..)?.count(), 3);
/// assert_eq!(tx.range(&letters, "b"..)?.count(), 2);
/// assert_eq!(tx.range(&letters, b"a".as_slice()..=b"b".as_slice())?.count(), 2);
/// assert_eq!(tx.range(&letters, "c".to_owned().."b".to_owned())?.count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait KeyRange {
    /// Where the range starts and ends.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

/// The range of all keys that begin with these bytes.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path())?;
/// use tantalum::Prefix;
///
/// let files = db.table("files")?;
/// for path in ["bin/ls", "etc/hosts", "etc/motd"] {
///     db.put(&files, path, "")?;
/// }
/// assert_eq!(db.delete_range(&files, Prefix("etc/"))?, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Prefix<P>(pub P);

impl<P: AsRef<[u8]>> KeyRange for Prefix<P> {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let prefix = self.0.as_ref();
        // The lowest key above all of them: that with the last byte that can be raised raised, and the bytes behind cut off.
        let raised = prefix.iter().rposition(|&byte| byte < u8::MAX).map(|last| {
            let mut above = prefix[..=last].to_vec();
            above[last] += 1;
            above
        });
        (Bound::Included(prefix.to_vec()), raised.map_or(Bound::Unbounded, Bound::Excluded))
    }
}

impl KeyRange for RangeFull {
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

macro_rules! key_range_for {
    ($($range:ty),*) => {
        $(impl<K: AsRef<[u8]>> KeyRange for $range {
            fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
                let owned = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
                (owned(self.start_bound()), owned(self.end_bound()))
            }
        })*
    };
}

key_range_for!(Range<K>, RangeFrom<K>, RangeTo<K>, RangeInclusive<K>, RangeToInclusive<K>, (Bound<K>, Bound<K>));

/// A place between keys. Cuts have a total order, so ranges made of them split and join without cases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cut {
    /// Before every key.
    Min,
    /// Just before the key (`false`) or just after it (`true`).
    At(Value, bool),
    /// After every key.
    Max,
}

impl Cut {
    pub fn before(key: impl Into<Value>) -> Self {
        Self::At(key.into(), false)
    }

    pub fn after(key: impl Into<Value>) -> Self {
        Self::At(key.into(), true)
    }

    /// Whether this cut is that before `key`, or lies after it.
    pub fn is_at_or_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Min => false,
            Self::At(at, _) => key <= &**at,
            Self::Max => true,
        }
    }

    /// Whether `key` lies before this cut.
    pub fn is_after(&self, key: &[u8]) -> bool {
        match self {
            Self::Min => false,
            Self::Max => true,
            Self::At(at, after) => {
                if *after {
                    key <= &**at
                } else {
                    key < &**at
                }
            }
        }
    }
}

/// The keys between two cuts. Empty when the lower cut is not below the upper one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub lower: Cut,
    pub upper: Cut,
}

impl Interval {
    pub fn new(lower: Cut, upper: Cut) -> Self {
        Self { lower, upper }
    }

    /// What a caller's range means.
    pub fn of(range: impl KeyRange) -> Self {
        let (lower, upper) = range.into_bounds();
        let lower = match lower {
            Bound::Included(key) => Cut::before(key),
            Bound::Excluded(key) => Cut::after(key),
            Bound::Unbounded => Cut::Min,
        };
        let upper = match upper {
            Bound::Included(key) => Cut::after(key),
            Bound::Excluded(key) => Cut::before(key),
            Bound::Unbounded => Cut::Max,
        };
        Self { lower, upper }
    }

    pub fn is_empty(&self) -> bool {
        self.lower >= self.upper
    }

    pub fn contains(&self, key: &[u8]) -> bool {
        !self.lower.is_after(key) && self.upper.is_after(key)
    }

    /// Whether the two overlap or meet, so that together they are one interval.
    pub fn touches(&self, other: &Self) -> bool {
        self.lower <= other.upper && other.lower <= self.upper
    }

    /// The smallest interval that holds both.
    pub fn union(&self, other: &Self) -> Self {
        Self { lower: self.lower.clone().min(other.lower.clone()), upper: self.upper.clone().max(other.upper.clone()) }
    }

    /// For the ordered maps of the standard library. Only for an interval that is not empty: they panic otherwise.
    pub fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        debug_assert!(!self.is_empty());
        let lower = match &self.lower {
            Cut::Min => Bound::Unbounded,
            Cut::At(key, false) => Bound::Included(&**key),
            Cut::At(key, true) => Bound::Excluded(&**key),
            Cut::Max => Bound::Unbounded,
        };
        let upper = match &self.upper {
            Cut::Max => Bound::Unbounded,
            Cut::At(key, false) => Bound::Excluded(&**key),
            Cut::At(key, true) => Bound::Included(&**key),
            Cut::Min => Bound::Unbounded,
        };
        (lower, upper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(range: impl KeyRange) -> Interval {
        Interval::of(range)
    }

    #[test]
    fn contains_agrees_with_the_standard_ranges() {
        let keys = ["", "a", "a\0", "b", "c"];
        for low in keys {
            for high in keys {
                for key in keys {
                    assert_eq!(interval(low..high).contains(key.as_bytes()), (low..high).contains(&key));
                    assert_eq!(interval(low..=high).contains(key.as_bytes()), (low..=high).contains(&key));
                    assert_eq!(interval(low..).contains(key.as_bytes()), (low..).contains(&key));
                    assert_eq!(interval(..high).contains(key.as_bytes()), (..high).contains(&key));
                }
            }
        }
        assert!(interval(..).contains(b""));
    }

    #[test]
    fn a_prefix_selects_what_begins_with_it() {
        let keys: [&[u8]; 9] = [b"", b"a", b"a\0", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xfe", b"\xff\xff\0"];
        for prefix in keys {
            let range = interval(Prefix(prefix));
            for key in keys {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }

    #[test]
    fn a_cut_before_a_key_is_at_it() {
        let cuts = [Cut::Min, Cut::before(&b"a"[..]), Cut::after(&b"a"[..]), Cut::before(&b"b"[..]), Cut::Max];
        for cut in cuts {
            assert_eq!(cut.is_at_or_after(b"a"), cut >= Cut::before(&b"a"[..]), "{cut:?}");
        }
    }

    #[test]
    fn neighbours_touch() {
        let (left, right) = (interval("a".."b"), interval("b".."c"));
        assert!(left.touches(&right) && right.touches(&left));
        assert_eq!(left.union(&right), interval("a".."c"));
        let apart = interval((Bound::Excluded("b"), Bound::Unbounded));
        assert!(!left.touches(&apart), "the key b lies between");
        assert!(interval("b".."a").is_empty() && interval("a".."a").is_empty() && !interval("a"..="a").is_empty());
    }

    #[test]
    fn bounds_select_what_contains_accepts() {
        let map: std::collections::BTreeMap<Value, ()> =
            ["a", "b", "c", "d"].map(|k| (Value::from(k.as_bytes()), ())).into();
        for range in
            [interval("a".."c"), interval("b"..="c"), interval(..), interval((Bound::Excluded("a"), Bound::Unbounded))]
        {
            let selected: Vec<_> = map.range::<[u8], _>(range.bounds()).map(|(k, ())| k.clone()).collect();
            let expected: Vec<_> = map.keys().filter(|k| range.contains(k)).cloned().collect();
            assert_eq!(selected, expected);
        }
    }
}
