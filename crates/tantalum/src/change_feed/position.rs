//! Where a reader of the change feed stands, in a form that it can store.

use std::{fmt, str::FromStr};

use tantalum_log::Lsn;

use crate::error::{Error, ErrorKind, Result};

/// A position in the change feed of a database: everything before it was read. A consumer stores it, as [bytes](Self::to_bytes) or as
/// text, together with what it has made of the changes, and [goes on](crate::Db::changes) from there.
///
/// It says of which database it is, and in which session that had everything before it, so that one of another database, or of a log
/// that was lost since, is refused.
///
/// ```
/// use tantalum::FeedPosition;
///
/// # let dir = tempfile::tempdir()?;
/// # let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let position = db.feed_position()?;
/// assert_eq!(FeedPosition::from_bytes(&position.to_bytes())?, position);
/// assert_eq!(position.to_string().parse::<FeedPosition>()?, position);
/// assert!(FeedPosition::from_bytes(b"something else").is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FeedPosition {
    pub(super) log_id: u128,
    pub(super) session: u64,
    pub(super) lsn: Lsn,
}

impl FeedPosition {
    /// Bytes of a stored position.
    pub const BYTES: usize = 16 + 8 + 8 + 4;

    /// What to store.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..16].copy_from_slice(&self.log_id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.session.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.lsn.get().to_le_bytes());
        let checksum = crc32c::crc32c(&bytes[..32]);
        bytes[32..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// A stored position.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for bytes that are none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::decode(bytes).ok_or_else(|| {
            let what = "these bytes are no position in a change feed; pass what FeedPosition::to_bytes returned";
            Error::new(ErrorKind::InvalidInput, what)
        })
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (body, checksum) = bytes.split_last_chunk::<4>()?;
        let (log_id, rest) = body.split_first_chunk::<16>()?;
        let (session, lsn) = rest.split_first_chunk::<8>()?;
        let lsn: [u8; 8] = lsn.try_into().ok()?;
        let is_whole = crc32c::crc32c(body) == u32::from_le_bytes(*checksum);
        is_whole.then(|| Self {
            log_id: u128::from_le_bytes(*log_id),
            session: u64::from_le_bytes(*session),
            lsn: Lsn::new(u64::from_le_bytes(lsn)),
        })
    }

    /// The place in the log: of two positions of a database, the one with the lower number comes first. That of a commit's changes is
    /// [`Commit::position`](crate::Commit::position).
    pub fn lsn(&self) -> u64 {
        self.lsn.get()
    }
}

/// As text: the bytes in hexadecimal digits.
impl fmt::Display for FeedPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for FeedPosition {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let digits = text.as_bytes().chunks(2);
        let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.map(byte).collect();
        Self::from_bytes(&bytes.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_was_changed_is_none() {
        let position = FeedPosition { log_id: 7 << 100, session: 3, lsn: Lsn::new(1 << 40) };
        let bytes = position.to_bytes();
        assert_eq!(FeedPosition::from_bytes(&bytes).unwrap(), position);
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 4;
            assert_eq!(FeedPosition::from_bytes(&changed).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        for text in ["", "0", "zz", "é", "00ff"] {
            assert!(text.parse::<FeedPosition>().is_err(), "{text}");
        }
    }
}
