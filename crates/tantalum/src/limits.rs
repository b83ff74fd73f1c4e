//! What the engine accepts at most. Larger requests are refused with an error that names the limit.

pub use tantalum_store::PAGE_SIZES;

use crate::error::{Error, ErrorKind, Result};

/// Largest value, in bytes: 1 GiB.
pub const MAX_VALUE_BYTES: usize = 1 << 30;

/// Larger values are written before their transaction's commit, in records of their own.
pub(crate) const MAX_VALUE_IN_COMMIT_BYTES: usize = 1 << 20;

/// Longest table name, in bytes of UTF-8.
pub const MAX_TABLE_NAME_BYTES: usize = 255;

/// Bytes of each log device in use where [`Builder::log_bytes`](crate::Builder::log_bytes) is not set: 256 MiB.
pub const DEFAULT_LOG_BYTES: u64 = 256 << 20;

/// Smallest buffer pool, in pages. A split under load needs about a dozen at once.
pub const MIN_POOL_PAGES: usize = 64;

/// Longest key in bytes for a page size: an eighth of a page, so that a page holds several and the tree stays flat.
///
/// ```
/// assert_eq!(tantalum::limits::max_key_bytes(4096), 512);
/// ```
pub const fn max_key_bytes(page_size: u32) -> usize {
    page_size as usize / 8
}

/// How much one change group, and so one transaction, can change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupLimit {
    /// Bytes.
    pub bytes: usize,
    /// What raises the limit, if anything does.
    pub remedy: Option<&'static str>,
}

impl GroupLimit {
    /// The error for a group of so many bytes.
    pub fn refuse(self, bytes: usize) -> Error {
        let (limit, remedy) = (self.bytes, self.remedy.map_or_else(String::new, |remedy| format!(", or {remedy}")));
        Error::new(
            ErrorKind::TransactionTooLarge,
            format!(
                "a transaction of {bytes} bytes is too large, it can have at most {limit}; cut it into several{remedy}"
            ),
        )
    }
}

/// Refuses keys that no page takes.
pub(crate) fn check_key(key: &[u8], page_size: u32) -> Result<()> {
    let limit = max_key_bytes(page_size);
    if key.len() > limit {
        return Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "a key of {bytes} bytes is too long, at most {limit} are possible with this page size",
                bytes = key.len()
            ),
        ));
    }
    Ok(())
}

/// As [`check_key`], for a value.
pub(crate) fn check_value(value: &[u8]) -> Result<()> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(value_too_large());
    }
    Ok(())
}

/// The error for a value that is longer than possible.
pub(crate) fn value_too_large() -> Error {
    Error::new(
        ErrorKind::TooLarge,
        format!("a value of more than {MAX_VALUE_BYTES} bytes is too long; cut it into several rows"),
    )
}

/// Refuses table names that are empty, too long, or hold control characters.
pub(crate) fn check_table_name(name: &str) -> Result<()> {
    let what = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_TABLE_NAME_BYTES {
        "it is longer than 255 bytes"
    } else if name.chars().any(char::is_control) {
        "it holds a control character"
    } else {
        return Ok(());
    };
    Err(Error::new(
        ErrorKind::InvalidInput,
        format!("\"{}\" cannot be a table's name: {what}", name.escape_debug().take(80).collect::<String>()),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive() {
        assert!(check_key(&[0; 512], 4096).is_ok());
        assert!(check_key(&[0; 513], 4096).is_err());
        assert!(check_value(&vec![0; MAX_VALUE_BYTES]).is_ok());
        assert!(check_value(&vec![0; MAX_VALUE_BYTES + 1]).is_err());
        assert!(check_table_name(&"a".repeat(255)).is_ok());
        for bad in ["", "a\nb", &"a".repeat(256)] {
            assert!(matches!(check_table_name(bad), Err(error) if error.kind() == ErrorKind::InvalidInput), "{bad:?}");
        }
    }
}
