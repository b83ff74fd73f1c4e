//! Bytes that callers keep: keys and values handed out by reads.

use std::{
    borrow::Borrow,
    fmt::{self, Debug},
    ops::Deref,
    sync::Arc,
};

/// A key or value read from a table. Cheap to clone, and independent of the transaction it came from.
///
/// ```
/// use tantalum::Value;
///
/// let value = Value::from(b"100".to_vec());
/// assert_eq!(*value, *b"100");
/// assert_eq!(value.len(), 3);
/// assert!(value.clone() == value);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Value(Arc<[u8]>);

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Lets maps with `Value` keys be searched by plain bytes: order and hash are those of the bytes.
impl Borrow<[u8]> for Value {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
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
