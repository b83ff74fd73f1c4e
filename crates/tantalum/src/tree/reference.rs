//! How a leaf's row names a large value, whose bytes lie in the value tree of its table.

/// Bytes of a reference in a leaf.
pub(crate) const REFERENCE_BYTES: usize = 8 + 4 + 8;

/// A large value: which one, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// Its number among the large values of the table, which no other has had since the database was opened.
    pub id: u64,
    /// Bytes, at most [`MAX_VALUE_BYTES`](crate::limits::MAX_VALUE_BYTES).
    pub length: u32,
    /// The log's end before any of it was written: no older snapshot sees it.
    pub born: u64,
}

impl Reference {
    pub fn encode(self) -> [u8; REFERENCE_BYTES] {
        let mut bytes = [0; REFERENCE_BYTES];
        bytes[..8].copy_from_slice(&self.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.born.to_le_bytes());
        bytes
    }

    /// `None` for bytes of another length, and for a value that is none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REFERENCE_BYTES] = bytes.try_into().ok()?;
        let (id, rest) = bytes.split_first_chunk::<8>()?;
        let (length, born) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length);
        let is_one = (1..=crate::limits::MAX_VALUE_BYTES as u32).contains(&length);
        is_one.then_some(Self { id: u64::from_le_bytes(*id), length, born: u64::from_le_bytes(born.try_into().ok()?) })
    }
}

/// A value as a leaf's row has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafValue<'a> {
    /// All of it.
    Bytes(&'a [u8]),
    /// Where it is.
    Reference(Reference),
}

impl<'a> From<&'a [u8]> for LeafValue<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_read_back_and_nonsense_is_refused() {
        let reference = Reference { id: 7, length: 1 << 30, born: 9 };
        assert_eq!(Reference::decode(&reference.encode()), Some(reference));
        for length in [0, (1 << 30) + 1, u32::MAX] {
            assert_eq!(Reference::decode(&Reference { length, ..reference }.encode()), None);
        }
        assert_eq!(Reference::decode(&reference.encode()[1..]), None);
    }
}
