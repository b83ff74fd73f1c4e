//! The order of the bytes is the order of the keys, and they are read back.

use std::fmt::Debug;

use proptest::{collection::vec, prelude::*};

use super::*;

/// Bytes that are often those with a meaning, so that keys often begin alike.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![Just(0), Just(1), Just(255), any::<u8>()]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(byte(), 0..4)
}

fn text() -> impl Strategy<Value = String> {
    vec(prop_oneof![Just('\0'), Just('\x01'), Just('a'), Just('\u{ff}'), any::<char>()], 0..4)
        .prop_map(|characters| characters.into_iter().collect())
}

fn time() -> impl Strategy<Value = SystemTime> {
    let seconds = prop_oneof![-2i64..2, any::<i32>().prop_map(i64::from)];
    let nanos = prop_oneof![Just(0), Just(1), Just(999_999_999), 0..1_000_000_000u32];
    (seconds, nanos).prop_map(|(seconds, nanos)| {
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
        second + Duration::new(0, nanos)
    })
}

/// Two keys are in the order of their bytes, and each is what its bytes say.
fn check<K: Key + Ord + Clone + Debug>(a: K, b: K) -> Result<(), TestCaseError> {
    let (of_a, of_b) = (a.to_bytes(), b.to_bytes());
    prop_assert_eq!(of_a.cmp(&of_b), a.cmp(&b), "{:?} {:?}: {:?} {:?}", a, b, of_a, of_b);
    for (key, bytes) in [(&a, &of_a), (&b, &of_b)] {
        let read = K::of_bytes(bytes);
        prop_assert_eq!(read.as_ref(), Some(key));
    }
    // Also in front of others, whatever they are.
    for (first, second) in [(0u8, 255u8), (255, 0)] {
        let in_front = |key: &K, rest: u8| {
            let mut bytes = Vec::new();
            key.encode(KeyEnd::Marked, &mut bytes);
            bytes.push(rest);
            bytes
        };
        let (of_a, of_b) = (in_front(&a, first), in_front(&b, second));
        prop_assert_eq!(of_a.cmp(&of_b), a.cmp(&b).then(first.cmp(&second)), "{:?} {:?}", a, b);
        let mut rest = &of_a[..];
        prop_assert_eq!(K::decode(KeyEnd::Marked, &mut rest), Some(a.clone()));
        prop_assert_eq!(rest, [first]);
    }
    Ok(())
}

proptest! {
    #[test]
    fn numbers_keep_their_order(a: (u8, u16, u32, u64, u128), b: (u8, u16, u32, u64, u128)) {
        check(a.0, b.0)?;
        check(a.1, b.1)?;
        check(a.2, b.2)?;
        check(a.3, b.3)?;
        check(a.4, b.4)?;
    }

    #[test]
    fn signed_numbers_keep_their_order(a: (i8, i16, i32, i64, i128), b: (i8, i16, i32, i64, i128)) {
        check(a.0, b.0)?;
        check(a.1, b.1)?;
        check(a.2, b.2)?;
        check(a.3, b.3)?;
        check(a.4, b.4)?;
    }

    #[test]
    fn texts_and_bytes_keep_their_order(a in (text(), bytes()), b in (text(), bytes())) {
        check(a.0.clone(), b.0.clone())?;
        check(a.1.clone(), b.1.clone())?;
        check(a, b)?;
    }

    #[test]
    fn tuples_keep_their_order(a in (bytes(), any::<bool>(), text(), any::<i16>()), b in (bytes(), any::<bool>(), text(), any::<i16>())) {
        check(((a.0.clone(), a.1), a.2.clone()), ((b.0.clone(), b.1), b.2.clone()))?;
        check((a.2.clone(), (a.0.clone(),), a.3), (b.2.clone(), (b.0.clone(),), b.3))?;
        check((a.3, a.1, a.3, a.1, a.2.clone(), a.0.clone()), (b.3, b.1, b.3, b.1, b.2.clone(), b.0.clone()))?;
        check(a, b)?;
    }

    #[test]
    fn arrays_keep_their_order(a: ([u8; 16], [i16; 3]), b: ([u8; 16], [i16; 3]), c in [text(), text()], d in [text(), text()]) {
        check(a, b)?;
        check(c, d)?;
    }

    #[test]
    fn times_keep_their_order(a in time(), b in time()) {
        check(a, b)?;
        check((a, 1u8), (b, 0))?;
    }

    /// Whatever stands in a table: a key that is read back has the bytes that it was read from, or there is none.
    #[test]
    fn other_bytes_are_refused_or_are_a_key(bytes in vec(byte(), 0..20)) {
        fn check<K: Key>(bytes: &[u8]) -> Result<(), TestCaseError> {
            if let Some(key) = K::of_bytes(bytes) {
                prop_assert_eq!(key.to_bytes(), bytes);
            }
            Ok(())
        }
        check::<u64>(&bytes)?;
        check::<bool>(&bytes)?;
        check::<String>(&bytes)?;
        check::<(Vec<u8>, String)>(&bytes)?;
        check::<[bool; 2]>(&bytes)?;
        check::<SystemTime>(&bytes)?;
    }

    #[test]
    fn a_prefix_is_that_of_its_keys_alone(a in (bytes(), text(), any::<u8>()), b in (bytes(), text())) {
        let key = a.to_bytes();
        prop_assert_eq!(key.starts_with(&PrefixOf::<(Vec<u8>, String, u8)>::to_prefix(&(&b.0,))), a.0 == b.0);
        let of_two = PrefixOf::<(Vec<u8>, String, u8)>::to_prefix(&(&b.0, &b.1));
        prop_assert_eq!(key.starts_with(&of_two), (&a.0, &a.1) == (&b.0, &b.1));
        let of_text = PrefixOf::<String>::to_prefix(&&b.1);
        prop_assert_eq!(AsKey::<String>::to_bytes(&a.1).starts_with(&of_text), a.1.starts_with(&b.1));
    }
}

/// These bytes are on disk.
#[test]
fn the_bytes_are_those_that_the_documents_say() {
    assert_eq!((-2i16).to_bytes(), [0x7f, 0xfe]);
    assert_eq!(258u16.to_bytes(), [1, 2]);
    assert_eq!(AsKey::<(String, u8)>::to_bytes(&("a\0b", 7)), b"a\0\xffb\0\x01\x07");
    assert_eq!(AsKey::<(u8, String)>::to_bytes(&(7, "a\0b")), b"\x07a\0b");
    assert_eq!(
        (UNIX_EPOCH - Duration::from_nanos(1)).to_bytes(),
        [0x7f, 255, 255, 255, 255, 255, 255, 255, 0x3b, 0x9a, 0xc9, 255]
    );
    assert_eq!(UNIX_EPOCH.to_bytes(), [0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}
