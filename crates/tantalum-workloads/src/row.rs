//! The encoding of rows: the fields in the order in which the schema declares them, with nothing between them.
//!
//! Integers take their full width, little-endian; money is in cents (`i64`); rates are in hundredths of a percent
//! (`u32`); points of time are milliseconds since 1970 (`u64`, 0 = null). A text is its length (`u16`) and its bytes.
//! Decoding borrows texts from the row, checks every bound and accepts no byte too many.

use crate::error::{self, Error, Result};

/// Reads the fields of one row.
pub(crate) struct Decoder<'a> {
    table: &'static str,
    row: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(table: &'static str, row: &'a [u8]) -> Self {
        Self { table, row, at: 0 }
    }

    fn take(&mut self, length: usize, expected: &'static str) -> Result<&'a [u8]> {
        let bytes = self.row[self.at..].get(..length).ok_or_else(|| self.damaged(expected))?;
        self.at += length;
        Ok(bytes)
    }

    /// What was not taken yet.
    pub(crate) fn rest(self) -> &'a [u8] {
        &self.row[self.at..]
    }

    pub(crate) fn finish(self) -> Result<()> {
        if self.at == self.row.len() { Ok(()) } else { Err(self.damaged("the end of the row")) }
    }

    fn damaged(&self, expected: &'static str) -> Error {
        error::row(self.table, self.row.len(), self.at, expected)
    }
}

/// A type of field.
pub(crate) trait Field<'a>: Sized {
    /// Bytes that it takes.
    fn bytes(&self) -> usize;
    fn put(&self, row: &mut Vec<u8>);
    fn take(decoder: &mut Decoder<'a>) -> Result<Self>;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Field<'_> for $integer {
            fn bytes(&self) -> usize {
                size_of::<$integer>()
            }

            fn put(&self, row: &mut Vec<u8>) {
                row.extend_from_slice(&self.to_le_bytes());
            }

            fn take(decoder: &mut Decoder<'_>) -> Result<Self> {
                let mut bytes = [0; size_of::<$integer>()];
                bytes.copy_from_slice(decoder.take(size_of::<$integer>(), "an integer")?);
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, i32, i64);

impl<'a> Field<'a> for &'a [u8] {
    fn bytes(&self) -> usize {
        size_of::<u16>() + self.len()
    }

    fn put(&self, row: &mut Vec<u8>) {
        let length = u16::try_from(self.len()).expect("no schema has texts of 64 KiB");
        length.put(row);
        row.extend_from_slice(self);
    }

    fn take(decoder: &mut Decoder<'a>) -> Result<Self> {
        let length = u16::take(decoder)?;
        decoder.take(length.into(), "a text")
    }
}

/// Declares a row type with `encode` and `decode`; its fields are as visible as it is.
macro_rules! row {
    (
        $(#[$attribute:meta])* $visible:vis struct $name:ident $(<$life:lifetime>)? of $table:literal {
            $($(#[$doc:meta])* $field:ident: $kind:ty),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        $visible struct $name $(<$life>)? {
            $($(#[$doc])* $visible $field: $kind),*
        }

        impl $(<$life>)? $name $(<$life>)? {
            pub(crate) fn encode(&self) -> Vec<u8> {
                let mut row = Vec::with_capacity(0 $(+ $crate::row::Field::bytes(&self.$field))*);
                $($crate::row::Field::put(&self.$field, &mut row);)*
                row
            }

            pub(crate) fn decode(row: &$($life)? [u8]) -> $crate::error::Result<Self> {
                let mut decoder = $crate::row::Decoder::new($table, row);
                let decoded = Self { $($field: $crate::row::Field::take(&mut decoder)?),* };
                decoder.finish()?;
                Ok(decoded)
            }
        }
    };
}

pub(crate) use row;

/// Milliseconds since 1970.
pub(crate) fn timestamp() -> u64 {
    let since_epoch = tantalum_rt::wall_clock().duration_since(std::time::UNIX_EPOCH);
    since_epoch.map_or(1, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
