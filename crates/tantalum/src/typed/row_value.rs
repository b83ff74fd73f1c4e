//! Values of typed tables, and their bytes.

use crate::{error::Result, transaction::Value};

/// What the values of a [`TypedTable`](super::TypedTable) are, and how they become bytes.
///
/// | type | what is written | bytes |
/// |---|---|---|
/// | `Vec<u8>`, [`Value`] | `&[u8]` | as they are |
/// | `[u8; N]` | `&[u8; N]` | as they are |
/// | `String` | `&str` | UTF-8 |
/// | `u8` to `u128`, `i8` to `i128`, `f32`, `f64` | a reference to one | the lowest first, as [`Transaction::increment`](crate::Transaction::increment) has them |
/// | `bool` | `&bool` | one, 0 or 1 |
/// | `()` | `&()` | none |
/// | `Postcard<T>`, with the feature `postcard` | `&T` | what [postcard](https://docs.rs/postcard) makes of it |
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{Result, RowValue, TypedTable};
///
/// /// A colour is three bytes.
/// struct Colour(u8, u8, u8);
///
/// impl RowValue for Colour {
///     type Owned = Self;
///     type Borrowed = Self;
///     type Bytes<'a> = [u8; 3];
///
///     fn encode(colour: &Self) -> Result<[u8; 3]> {
///         Ok([colour.0, colour.1, colour.2])
///     }
///
///     fn decode(bytes: &[u8]) -> Option<Self> {
///         let &[red, green, blue] = bytes else { return None };
///         Some(Self(red, green, blue))
///     }
/// }
///
/// let colours: TypedTable<String, Colour> = db.table("colours")?.typed();
/// db.transact(|tx| colours.put(tx, "orange", &Colour(255, 165, 0)))?;
/// assert_eq!(colours.get(&db, "orange")?.map(|colour| colour.1), Some(165));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait RowValue {
    /// What reads return.
    type Owned;
    /// What writes take a reference to.
    type Borrowed: ?Sized;
    /// The bytes of a value.
    type Bytes<'a>: AsRef<[u8]>
    where
        Self::Borrowed: 'a;

    /// The bytes of a value.
    ///
    /// # Errors
    /// Where the value cannot be written; what has the transaction go on is [`InvalidInput`](crate::ErrorKind::InvalidInput).
    fn encode(value: &Self::Borrowed) -> Result<Self::Bytes<'_>>;

    /// The value that has these bytes, if one has. It must not panic, whatever the bytes are.
    fn decode(bytes: &[u8]) -> Option<Self::Owned>;
}

/// Types whose bytes are those that they lend.
macro_rules! bytes {
    ($($type:ty),+) => {
        $(impl RowValue for $type {
            type Owned = Self;
            type Borrowed = [u8];
            type Bytes<'a> = &'a [u8];

            fn encode(value: &[u8]) -> Result<&[u8]> {
                Ok(value)
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(bytes.into())
            }
        })+
    };
}

bytes!(Vec<u8>, Value);

impl<const N: usize> RowValue for [u8; N] {
    type Owned = Self;
    type Borrowed = Self;
    type Bytes<'a> = &'a Self;

    fn encode(value: &Self) -> Result<&Self> {
        Ok(value)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}

impl RowValue for String {
    type Owned = Self;
    type Borrowed = str;
    type Bytes<'a> = &'a str;

    fn encode(value: &str) -> Result<&str> {
        Ok(value)
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Self::from_utf8(bytes.into()).ok()
    }
}

macro_rules! numbers {
    ($($type:ty),+) => {
        $(impl RowValue for $type {
            type Owned = Self;
            type Borrowed = Self;
            type Bytes<'a> = [u8; size_of::<$type>()];

            fn encode(value: &Self) -> Result<Self::Bytes<'_>> {
                Ok(value.to_le_bytes())
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
        })+
    };
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

impl RowValue for bool {
    type Owned = Self;
    type Borrowed = Self;
    type Bytes<'a> = [u8; 1];

    fn encode(value: &Self) -> Result<[u8; 1]> {
        Ok([(*value).into()])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

impl RowValue for () {
    type Owned = Self;
    type Borrowed = Self;
    type Bytes<'a> = [u8; 0];

    fn encode((): &()) -> Result<[u8; 0]> {
        Ok([])
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

/// Values of a type with serde's traits, in the compact format [postcard](https://docs.rs/postcard), whose version 1 is stable. It names
/// no fields: what is written is read with the same fields in the same order. A type that may change is an enum with a variant for
/// each version.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// use tantalum::{Postcard, TypedTable};
///
/// #[derive(serde::Serialize, serde::Deserialize, Debug, PartialEq)]
/// struct User {
///     name: String,
///     age: u8,
/// }
///
/// let users: TypedTable<u64, Postcard<User>> = db.table("users")?.typed();
/// let ada = User { name: "Ada".into(), age: 36 };
/// db.transact(|tx| users.put(tx, 7, &ada))?;
/// assert_eq!(users.get(&db, 7)?, Some(ada));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "postcard")]
#[derive(Debug)]
pub struct Postcard<T>(std::marker::PhantomData<T>);

#[cfg(feature = "postcard")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> RowValue for Postcard<T> {
    type Owned = T;
    type Borrowed = T;
    type Bytes<'a>
        = Vec<u8>
    where
        T: 'a;

    fn encode(value: &T) -> Result<Vec<u8>> {
        postcard::to_stdvec(value).map_err(|error| {
            let what = format!("a {} cannot be written as postcard: {error}", std::any::type_name::<T>());
            crate::Error::new(crate::ErrorKind::InvalidInput, what).with_source(error)
        })
    }

    fn decode(bytes: &[u8]) -> Option<T> {
        let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
        rest.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reread<V: RowValue>(value: &V::Borrowed) -> Option<V::Owned> {
        V::decode(V::encode(value).unwrap().as_ref())
    }

    #[test]
    fn values_are_read_as_they_were_written() {
        assert_eq!(reread::<i64>(&-2), Some(-2));
        assert_eq!(reread::<f64>(&-0.0).map(f64::to_bits), Some((-0.0f64).to_bits()));
        assert_eq!(reread::<String>("Grüße"), Some("Grüße".into()));
        assert_eq!((reread::<bool>(&true), reread::<bool>(&false)), (Some(true), Some(false)));
        assert_eq!(reread::<Vec<u8>>(&[0, 255]), Some(vec![0, 255]));
        assert_eq!(reread::<[u8; 2]>(&[0, 255]), Some([0, 255]));
        assert_eq!(reread::<()>(&()), Some(()));
    }

    #[test]
    fn bytes_of_another_type_are_refused() {
        assert_eq!(u64::decode(&[0; 7]), None);
        assert_eq!(bool::decode(&[2]), None);
        assert_eq!(String::decode(&[0xff]), None);
        assert_eq!(<[u8; 3]>::decode(&[1]), None);
        assert_eq!(<()>::decode(&[0]), None);
    }

    #[cfg(feature = "postcard")]
    #[test]
    fn postcard_reads_all_bytes_or_none() {
        let bytes = Postcard::<(u8, String)>::encode(&(7, "Ada".into())).unwrap();
        assert_eq!(bytes, [7, 3, b'A', b'd', b'a']);
        assert_eq!(Postcard::<(u8, String)>::decode(&bytes), Some((7, "Ada".into())));
        assert_eq!(Postcard::<(u8, String)>::decode(&bytes[..4]), None);
        assert_eq!(Postcard::<u8>::decode(&bytes), None, "bytes are left");
    }
}
