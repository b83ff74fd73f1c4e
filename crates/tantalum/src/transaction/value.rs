//! Bytes that callers keep: keys and values handed out by reads.

use std::{
    borrow::Borrow,
    cmp::Ordering,
    fmt::{self, Debug},
    hash::{Hash, Hasher},
    ops::Deref,
    sync::Arc,
};

/// A key or value read from a table. Cheap to clone, and independent of the transaction it came from.
///
/// The key and the value of a row may share their memory: while one is kept, both are.
///
/// ```
/// use tantalum::Value;
///
/// let value = Value::from(b"100".to_vec());
/// assert_eq!(*value, *b"100");
/// assert_eq!(value.len(), 3);
/// assert!(value.clone() == value);
/// ```
#[derive(Clone)]
pub struct Value {
    shared: Arc<[u8]>,
    start: u32,
    /// [`TO_THE_END`] if the rest of `shared` belongs to it, however much that is.
    end: u32,
}

const TO_THE_END: u32 = u32::MAX;

impl Value {
    /// The first `split` bytes, and the others: a row, whose key and value then share their memory.
    ///
    /// # Panics
    /// If there are fewer, or they do not fit a page.
    pub(crate) fn pair(bytes: &[u8], split: usize) -> (Self, Self) {
        Self::divided(bytes.into(), split)
    }

    /// Copies of a key and a value that are to be written, which share their memory.
    pub(crate) fn row(key: &[u8], value: &[u8]) -> (Self, Self) {
        // Zeros first, as one allocation without unsafe code asks for; both are known to be well below 4 GiB by now.
        let mut shared: Arc<[u8]> = std::iter::repeat_n(0, key.len() + value.len()).collect();
        let bytes = Arc::get_mut(&mut shared).expect("a new value has one reference");
        bytes[..key.len()].copy_from_slice(key);
        bytes[key.len()..].copy_from_slice(value);
        Self::divided(shared, key.len())
    }

    /// Of so many bytes, which `fill` fills.
    pub(crate) fn filled(bytes: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut shared: Arc<[u8]> = std::iter::repeat_n(0, bytes).collect();
        fill(Arc::get_mut(&mut shared).expect("a new value has one reference"));
        Self::whole(shared)
    }

    /// The rest of it, behind its first byte, which must be there.
    pub(crate) fn without_first(self) -> Self {
        assert!(!self.is_empty(), "there is a first byte");
        Self { start: self.start + 1, ..self }
    }

    fn divided(shared: Arc<[u8]>, split: usize) -> (Self, Self) {
        assert!(
            split <= shared.len() && shared.len() < TO_THE_END as usize,
            "a row has a key and a value, of limited sizes"
        );
        let split = split as u32;
        (Self { shared: Arc::clone(&shared), start: 0, end: split }, Self { shared, start: split, end: TO_THE_END })
    }

    fn whole(shared: Arc<[u8]>) -> Self {
        Self { shared, start: 0, end: TO_THE_END }
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self.end {
            TO_THE_END => &self.shared[self.start as usize..],
            end => &self.shared[self.start as usize..end as usize],
        }
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Value {}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Lets maps with `Value` keys be searched by plain bytes: order and hash are those of the bytes.
impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::whole(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::whole(bytes.into())
    }
}

impl From<Value> for Vec<u8> {
    fn from(value: Value) -> Self {
        value.to_vec()
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

impl PartialEq<&[u8]> for Value {
    fn eq(&self, other: &&[u8]) -> bool {
        **self == **other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Value {
    fn eq(&self, other: &[u8; N]) -> bool {
        **self == *other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Value {
    fn eq(&self, other: &&[u8; N]) -> bool {
        **self == **other
    }
}

/// The bytes as text, as in `b"..."`.
impl Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, HashMap};

    use super::*;

    #[test]
    fn a_part_is_what_a_whole_with_its_bytes_is() {
        let (alice, bob) = Value::pair(b"alicebob", 5);
        assert!(alice == b"alice" && bob == b"bob" && alice < bob);
        assert_eq!(bob, Value::from(b"bob".to_vec()));
        let (ordered, hashed) = (BTreeMap::from([(alice.clone(), 1)]), HashMap::from([(alice, 1)]));
        assert_eq!((ordered.get(&b"alice"[..]), hashed.get(&b"alice"[..])), (Some(&1), Some(&1)));
        let (key, nothing) = Value::pair(b"alice", 5);
        assert!(key == b"alice" && nothing.is_empty());
        assert_eq!(Value::row(b"alice", b"bob"), Value::pair(b"alicebob", 5));
        assert_eq!(Value::row(b"", b""), Value::pair(b"", 0));
    }
}
