//! Keys as bytes, whose order is the order of the keys.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::transaction::Value;

/// A type of keys of a [`TypedTable`](super::TypedTable): its bytes, made by [`AsKey`], are in the order of its values, and can be
/// read back.
///
/// | type | bytes | looked up by |
/// |---|---|---|
/// | `u8` to `u128` | the highest first | a number |
/// | `i8` to `i128` | the same, with the highest bit turned | a number |
/// | `bool` | 0, 1 | |
/// | `String`, `Vec<u8>` | as they are at a key's end; in front of others, 0 becomes 0 255, and 0 1 follows | `&str`; `&[u8]`, `[u8; N]`, [`Value`] |
/// | `[K; N]`, so `[u8; 16]` for a UUID | one after the other | an array of what looks up `K` |
/// | tuples of up to six | one after the other | a tuple of what looks up each |
/// | [`SystemTime`] | seconds since 1970 as `i64`, nanoseconds as `u32` | |
///
/// So a `String` alone has the bytes that [`Db::put`](crate::Db::put) writes for it. The types that `K` is looked up by may be borrowed
/// as often as one likes.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{AsKey, Key, KeyEnd, TypedTable};
///
/// #[derive(Debug, PartialEq)]
/// struct UserId(u64);
///
/// impl AsKey<UserId> for UserId {
///     fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
///         self.0.encode(end, bytes);
///     }
/// }
///
/// impl Key for UserId {
///     fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
///         Key::decode(end, bytes).map(UserId)
///     }
/// }
///
/// let users: TypedTable<UserId, String> = db.table("users")?.typed();
/// db.transact(|tx| users.put(tx, UserId(7), "Ada"))?;
/// assert_eq!(users.first(&db)?, Some((UserId(7), "Ada".into())));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key: AsKey<Self> + Sized {
    /// Takes the key from the beginning of `bytes`, if they begin with one. It must not panic, whatever the bytes are.
    fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self>;

    /// The key that has exactly these bytes.
    fn of_bytes(mut bytes: &[u8]) -> Option<Self> {
        let key = Self::decode(KeyEnd::OfBytes, &mut bytes)?;
        bytes.is_empty().then_some(key)
    }
}

/// Where a key ends, which a component of a tuple has to know.
///
/// ```
/// use tantalum::{AsKey, KeyEnd};
///
/// let mut bytes = Vec::new();
/// AsKey::<String>::encode("ab", KeyEnd::Marked, &mut bytes);
/// AsKey::<String>::encode("ab", KeyEnd::OfBytes, &mut bytes);
/// assert_eq!(bytes, b"ab\0\x01ab");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyEnd {
    /// At the end of the bytes.
    OfBytes,
    /// Where its bytes say so: others follow.
    Marked,
}

/// What a key of the type `K` can be looked up by: the key, what it is borrowed as, and references to these.
///
/// ```
/// use tantalum::AsKey;
///
/// assert_eq!(AsKey::<(u16, String)>::to_bytes(&(1, "a")), AsKey::<(u16, String)>::to_bytes(&(1, String::from("a"))));
/// assert!(AsKey::<i32>::to_bytes(&-5) < AsKey::<i32>::to_bytes(&3));
/// ```
pub trait AsKey<K> {
    /// Appends the key's bytes.
    fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>);

    /// The key's bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        self.encode(KeyEnd::OfBytes, &mut bytes);
        bytes
    }
}

/// What keys of the type `K` can begin with: the first characters of a text, the first bytes of bytes, or the first components of a tuple.
///
/// ```
/// use tantalum::{AsKey, PrefixOf};
///
/// let prefix = PrefixOf::<(String, u32)>::to_prefix(&("ab",));
/// assert!(AsKey::<(String, u32)>::to_bytes(&("ab", 7)).starts_with(&prefix));
/// assert!(!AsKey::<(String, u32)>::to_bytes(&("abc", 7)).starts_with(&prefix));
/// ```
pub trait PrefixOf<K> {
    /// The bytes with which the bytes of these keys begin, and those of no others.
    fn to_prefix(&self) -> Vec<u8>;
}

impl<K, Q: AsKey<K> + ?Sized> AsKey<K> for &Q {
    fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
        (**self).encode(end, bytes);
    }
}

/// Takes so many bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}

macro_rules! numbers {
    ($($type:ty),+) => {
        $(
            impl AsKey<$type> for $type {
                fn encode(&self, _end: KeyEnd, bytes: &mut Vec<u8>) {
                    bytes.extend_from_slice(&(*self ^ Self::MIN).to_be_bytes());
                }
            }

            impl Key for $type {
                fn decode(_end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
                    Some(Self::from_be_bytes(take(bytes)?) ^ Self::MIN)
                }
            }
        )+
    };
}

// The lowest number is that with only the highest bit set, or zero, which turns nothing.
numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl AsKey<bool> for bool {
    fn encode(&self, _end: KeyEnd, bytes: &mut Vec<u8>) {
        bytes.push((*self).into());
    }
}

impl Key for bool {
    fn decode(_end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
        match take(bytes)? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// Bytes in front of others: a zero is followed by [`ESCAPED`], and the end by a zero and [`END`], so a text comes before those that go
/// on where it ends.
fn encode_bytes(of: &[u8], end: KeyEnd, bytes: &mut Vec<u8>) {
    match end {
        KeyEnd::OfBytes => bytes.extend_from_slice(of),
        KeyEnd::Marked => {
            for (number, part) in of.split(|&byte| byte == 0).enumerate() {
                if number > 0 {
                    bytes.extend_from_slice(&[0, ESCAPED]);
                }
                bytes.extend_from_slice(part);
            }
            bytes.extend_from_slice(&[0, END]);
        }
    }
}

const ESCAPED: u8 = 255;
const END: u8 = 1;

fn decode_bytes(end: KeyEnd, bytes: &mut &[u8]) -> Option<Vec<u8>> {
    match end {
        KeyEnd::OfBytes => Some(std::mem::take(bytes).into()),
        KeyEnd::Marked => {
            let mut decoded = Vec::new();
            loop {
                let zero = bytes.iter().position(|&byte| byte == 0)?;
                decoded.extend_from_slice(&bytes[..zero]);
                let mark = *bytes.get(zero + 1)?;
                *bytes = &bytes[zero + 2..];
                match mark {
                    END => return Some(decoded),
                    ESCAPED => decoded.push(0),
                    _ => return None,
                }
            }
        }
    }
}

/// Types that are looked up by others, whose bytes these are.
macro_rules! as_bytes {
    ($([$($generics:tt)*] $type:ty => $key:ty;)+) => {
        $(
            impl<$($generics)*> AsKey<$key> for $type {
                fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
                    encode_bytes(self.as_ref(), end, bytes);
                }
            }

            impl<$($generics)*> PrefixOf<$key> for &$type {
                fn to_prefix(&self) -> Vec<u8> {
                    AsRef::<[u8]>::as_ref(self).into()
                }
            }
        )+
    };
}

as_bytes! {
    [] String => String;
    [] str => String;
    [] Vec<u8> => Vec<u8>;
    [] [u8] => Vec<u8>;
    [const N: usize] [u8; N] => Vec<u8>;
    [] Value => Vec<u8>;
}

impl Key for String {
    fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
        Self::from_utf8(decode_bytes(end, bytes)?).ok()
    }
}

impl Key for Vec<u8> {
    fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
        decode_bytes(end, bytes)
    }
}

/// Where the component before the last of so many ends.
fn end_of(number: usize, count: usize, end: KeyEnd) -> KeyEnd {
    if number + 1 == count { end } else { KeyEnd::Marked }
}

impl<K, Q: AsKey<K>, const N: usize> AsKey<[K; N]> for [Q; N] {
    fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
        for (number, key) in self.iter().enumerate() {
            key.encode(end_of(number, N, end), bytes);
        }
    }
}

impl<K: Key, const N: usize> Key for [K; N] {
    fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
        let keys: Option<Vec<K>> = (0..N).map(|number| K::decode(end_of(number, N, end), bytes)).collect();
        keys?.try_into().ok()
    }
}

/// Tuples: the components but the last, and the last.
macro_rules! tuples {
    ($($(($key:ident, $query:ident, $number:tt))*, ($last_key:ident, $last_query:ident, $last_number:tt);)+) => {
        $(
            impl<$($key, $query: AsKey<$key>,)* $last_key, $last_query: AsKey<$last_key>>
                AsKey<($($key,)* $last_key,)> for ($($query,)* $last_query,)
            {
                fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
                    $(self.$number.encode(KeyEnd::Marked, bytes);)*
                    self.$last_number.encode(end, bytes);
                }
            }

            impl<$($key: Key,)* $last_key: Key> Key for ($($key,)* $last_key,) {
                fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
                    Some(($($key::decode(KeyEnd::Marked, bytes)?,)* $last_key::decode(end, bytes)?,))
                }
            }
        )+
    };
}

tuples! {
    , (A, P, 0);
    (A, P, 0), (B, Q, 1);
    (A, P, 0) (B, Q, 1), (C, R, 2);
    (A, P, 0) (B, Q, 1) (C, R, 2), (D, S, 3);
    (A, P, 0) (B, Q, 1) (C, R, 2) (D, S, 3), (E, T, 4);
    (A, P, 0) (B, Q, 1) (C, R, 2) (D, S, 3) (E, T, 4), (F, U, 5);
}

/// The first components of tuples: they end before others.
macro_rules! prefixes {
    ($([$($key:ident $query:ident $number:tt)+] of $([$($rest:ident)+])+;)+) => {
        $(prefixes!(@each [$($key $query $number)+] $([$($rest)+])+);)+
    };
    (@each $first:tt $($rest:tt)+) => {
        $(prefixes!(@one $first $rest);)+
    };
    (@one [$($key:ident $query:ident $number:tt)+] [$($rest:ident)+]) => {
        impl<$($key, $query: AsKey<$key>,)+ $($rest),+> PrefixOf<($($key,)+ $($rest,)+)> for ($($query,)+) {
            fn to_prefix(&self) -> Vec<u8> {
                let mut bytes = Vec::new();
                $(self.$number.encode(KeyEnd::Marked, &mut bytes);)+
                bytes
            }
        }
    };
}

prefixes! {
    [A P 0] of [B] [B C] [B C D] [B C D E] [B C D E F];
    [A P 0 B Q 1] of [C] [C D] [C D E] [C D E F];
    [A P 0 B Q 1 C R 2] of [D] [D E] [D E F];
    [A P 0 B Q 1 C R 2 D S 3] of [E] [E F];
    [A P 0 B Q 1 C R 2 D S 3 E T 4] of [F];
}

impl AsKey<SystemTime> for SystemTime {
    fn encode(&self, end: KeyEnd, bytes: &mut Vec<u8>) {
        let (seconds, nanos) = match self.duration_since(UNIX_EPOCH) {
            Ok(since) => (i128::from(since.as_secs()), since.subsec_nanos()),
            // The second that it is in began before it.
            Err(before) => match before.duration() {
                before if before.subsec_nanos() == 0 => (-i128::from(before.as_secs()), 0),
                before => (-i128::from(before.as_secs()) - 1, NANOS_PER_SECOND - before.subsec_nanos()),
            },
        };
        let seconds = i64::try_from(seconds).expect("the system counts the seconds of a time in 64 bits");
        (seconds, nanos).encode(end, bytes);
    }
}

const NANOS_PER_SECOND: u32 = 1_000_000_000;

impl Key for SystemTime {
    fn decode(end: KeyEnd, bytes: &mut &[u8]) -> Option<Self> {
        let (seconds, nanos) = <(i64, u32)>::decode(end, bytes)?;
        let whole = Duration::from_secs(seconds.unsigned_abs());
        let second = if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        (nanos < NANOS_PER_SECOND).then(|| second?.checked_add(Duration::new(0, nanos))).flatten()
    }
}

#[cfg(test)]
mod tests;
