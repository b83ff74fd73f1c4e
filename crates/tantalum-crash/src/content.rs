//! The keys and values that the search writes.
//!
//! Every value names the one operation that wrote it, and the rest of its bytes follow from that name. So a value read
//! back tells exactly which write it is, and a mixture of two values, or of a value and garbage, is told apart from both.
//!
//! Values are all different, or rows with fields: of those two differ in some fields, whose lengths may differ too.

use std::fmt;

use tantalum_rt::Random;

/// A key of the model: a table's number and a key's number in it. Ordered as the bytes are ordered in the database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    /// Which table, from 0.
    pub table: u8,
    /// Which key in the table, from 0.
    pub number: u32,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.table, self.number)
    }
}

/// One operation that wrote a value: the transaction and the operation's number within it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Version {
    /// The transaction's number, unique in a search.
    pub transaction: u32,
    /// The number of the operation in its transaction.
    pub operation: u16,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "T{}.{}", self.transaction, self.operation)
    }
}

/// What the bytes of a value are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filler {
    /// Random.
    Random,
    /// Fields, of which most are alike in any two values.
    Fields,
}

/// Bytes of a value that name its writer; the rest is filler.
pub const VALUE_LEN_MIN: usize = 6;
/// Set in the number of an operation that wrote a value with fields.
const FIELDS: u16 = 1 << 15;

/// The bytes of key `number`: equal to those of another number in nothing but what the numbers share, in the numbers'
/// order, and of `pad` to `2 * pad` bytes more than the number needs.
pub fn encode_key(number: u32, pad: u16) -> Vec<u8> {
    let mut bytes = format!("key-{number:06}").into_bytes();
    if pad > 0 {
        let mut random = Random::with_seed(u64::from(number));
        let filler = pad + random.u16(0..=pad);
        bytes.extend((0..filler).map(|_| random.alphanumeric() as u8));
    }
    bytes
}

/// Which key the bytes are, when they are those of a key.
pub fn decode_key(bytes: &[u8], pad: u16) -> Option<u32> {
    let digits = bytes.strip_prefix(b"key-")?.get(..6)?;
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    (encode_key(number, pad) == bytes).then_some(number)
}

/// The value of `len` bytes that `version` writes.
///
/// # Panics
/// When `len` is below [`VALUE_LEN_MIN`].
pub fn encode_value(version: Version, len: usize, filler: Filler) -> Vec<u8> {
    assert!(len >= VALUE_LEN_MIN, "a value of {len} bytes cannot name its writer");
    assert!(version.operation < FIELDS, "a transaction has fewer operations");
    let operation = version.operation | if filler == Filler::Fields { FIELDS } else { 0 };
    let mut bytes = version.transaction.to_le_bytes().to_vec();
    bytes.extend_from_slice(&operation.to_le_bytes());
    let seed = u64::from(version.transaction) << 16 | u64::from(version.operation) | (len as u64) << 48;
    let mut random = Random::with_seed(seed);
    match filler {
        Filler::Random => {
            bytes.resize(len, 0);
            random.fill(&mut bytes[VALUE_LEN_MIN..]);
        }
        Filler::Fields => {
            while bytes.len() < len {
                push_field(&mut bytes, &mut random);
            }
            bytes.truncate(len);
        }
    }
    bytes
}

/// Adds what two values have in common, and a field that has one of few contents: then a value often shares a field with a later
/// one, and not with one in between.
fn push_field(bytes: &mut Vec<u8>, random: &mut Random) {
    bytes.extend_from_slice(b"common bytes of all rows");
    match random.u8(0..8) {
        0 => bytes.extend_from_slice(b"a long field"),
        1 => {}
        n => bytes.extend_from_slice(&[n % 4; 4]),
    }
}

/// The operation that wrote the value, if all bytes of the value are that operation's.
pub fn decode_value(bytes: &[u8]) -> Option<Version> {
    let transaction = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let operation = u16::from_le_bytes(bytes.get(4..6)?.try_into().ok()?);
    let filler = if operation & FIELDS == 0 { Filler::Random } else { Filler::Fields };
    let version = Version { transaction, operation: operation & !FIELDS };
    (encode_value(version, bytes.len(), filler) == bytes).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_their_numbers_and_read_back() {
        for pad in [0, 40] {
            let keys: Vec<_> = (0..300).map(|number| encode_key(number, pad)).collect();
            assert!(keys.is_sorted());
            assert!((0..300).all(|number| decode_key(&keys[number as usize], pad) == Some(number)));
        }
        assert_eq!(decode_key(b"key-00000x", 0), None);
        assert_eq!(decode_key(b"key-0000001", 0), None);
    }

    #[test]
    fn a_value_names_its_writer_and_no_mixture_passes() {
        let (a, b) = (Version { transaction: 7, operation: 1 }, Version { transaction: 8, operation: 1 });
        for filler in [Filler::Random, Filler::Fields] {
            let (mut left, right) = (encode_value(a, 640, filler), encode_value(b, 640, filler));
            assert_eq!(decode_value(&left), Some(a));
            assert_eq!(decode_value(&encode_value(a, VALUE_LEN_MIN, filler)), Some(a));
            left[320..].copy_from_slice(&right[320..]);
            assert_eq!(decode_value(&left), None);
            assert_eq!(decode_value(b"short"), None);
        }
        assert_eq!(decode_value(&encode_value(a, 64, Filler::Random)[..60]), None);
    }
}
