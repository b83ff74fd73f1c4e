//! The bytes on the devices: pure encoding and decoding, with every check that needs no other bytes.
//!
//! All integers are little-endian. Every structure starts with a magic number, the format version and the log's
//! identity, and is guarded by a CRC-32C. Decoding never panics and never allocates what a length field asks for.

pub mod archive;
pub mod request;
pub mod section;
pub mod slot;
pub mod superblock;

use std::time::{Duration, SystemTime};

/// The unit of all structures and offsets on a log device, in bytes.
pub const BLOCK: usize = 4096;

/// The format version that this code writes and reads.
pub const VERSION: u16 = 2;

/// The most devices of a log: the slots' bitmap has one bit for each.
pub const MAX_DEVICES: usize = 64;

/// Numbers and LSNs on a device are below this, so that counting on from them cannot overflow.
pub const NUMBER_LIMIT: u64 = 1 << 62;

/// Why bytes are not the structure that was asked for.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Too few bytes.
    Short {
        /// Bytes given.
        found: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// Another structure, or none.
    Magic,
    /// Written by a newer program.
    NewerVersion {
        /// The version found.
        found: u16,
    },
    /// Written before the format was settled.
    OlderVersion {
        /// The version found.
        found: u16,
    },
    /// The bytes changed since they were written.
    Checksum {
        /// What is stored.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A field has a value that no writer writes.
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
}

impl std::error::Error for DecodeError {}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short { found, needed } => write!(f, "{found} bytes are too few, {needed} are needed"),
            Self::Magic => f.write_str("the magic number is absent"),
            Self::NewerVersion { found } => write!(f, "format version {found} is newer than {VERSION}"),
            Self::OlderVersion { found } => write!(f, "format version {found} is older than {VERSION}"),
            Self::Checksum { stored, computed } => {
                write!(f, "the checksum is {computed:#010x}, but {stored:#010x} was stored")
            }
            Self::Field { field, value } => write!(f, "field {field} has the impossible value {value}"),
        }
    }
}

/// `value` rounded up to whole blocks.
pub fn round_up(value: usize) -> usize {
    value.next_multiple_of(BLOCK)
}

/// Writes fields one after another into a structure's bytes.
pub(crate) struct Encoder<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Encoder<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Encoder { bytes, at: 0 }
    }

    pub(crate) fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u128(&mut self, value: u128) {
        self.put(&value.to_le_bytes());
    }

    /// Ends the structure with the checksum of everything before it.
    pub(crate) fn checksum(&mut self) {
        self.u32(crc32c::crc32c(&self.bytes[..self.at]));
    }
}

/// Reads fields one after another; reading past the end is an error.
pub(crate) struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Decoder { bytes, at: 0 }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let end = self.at + N;
        let short = DecodeError::Short { found: self.bytes.len(), needed: end };
        let field = self.bytes.get(self.at..end).and_then(|field| field.try_into().ok()).ok_or(short)?;
        self.at = end;
        Ok(field)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        self.take().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn u128(&mut self) -> Result<u128, DecodeError> {
        self.take().map(u128::from_le_bytes)
    }

    /// Reads the magic number and the version.
    pub(crate) fn preamble(&mut self, magic: u64) -> Result<(), DecodeError> {
        if self.u64()? != magic {
            return Err(DecodeError::Magic);
        }
        match self.u16()? {
            found if found > VERSION => Err(DecodeError::NewerVersion { found }),
            0 => Err(DecodeError::Field { field: "version", value: 0 }),
            found if found < VERSION => Err(DecodeError::OlderVersion { found }),
            _ => Ok(()),
        }
    }

    /// Compares the checksum stored here with that of everything before it.
    pub(crate) fn checksum(&mut self) -> Result<(), DecodeError> {
        let computed = crc32c::crc32c(&self.bytes[..self.at]);
        let stored = self.u32()?;
        if stored == computed { Ok(()) } else { Err(DecodeError::Checksum { stored, computed }) }
    }
}

/// Ok if every number is below [`NUMBER_LIMIT`].
pub(crate) fn check_numbers(numbers: impl IntoIterator<Item = u64>) -> Result<(), DecodeError> {
    numbers.into_iter().try_for_each(|number| check(number < NUMBER_LIMIT, "number or LSN", number))
}

/// Ok if `valid`, otherwise an error naming the field.
pub(crate) fn check(valid: bool, field: &'static str, value: u64) -> Result<(), DecodeError> {
    if valid { Ok(()) } else { Err(DecodeError::Field { field, value }) }
}

/// Microseconds since the Unix epoch; 0 if the clock stands before it.
pub(crate) fn wall_clock_us() -> u64 {
    let since = tantalum_rt::wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX).min(NUMBER_LIMIT - 1)
}

/// The time that so many microseconds since the Unix epoch are.
pub(crate) fn from_us(us: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(us)
}

#[cfg(test)]
mod tests;
