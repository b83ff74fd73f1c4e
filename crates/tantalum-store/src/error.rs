//! Why a page store failed: what is wrong, where, and what to do about it.

use crate::{PageId, page::header};

/// The result of a call of a page store.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a page store failed.
#[non_exhaustive]
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A device refused a read, a write or a flush.
    #[error(transparent)]
    Device(#[from] tantalum_device::Error),

    /// A page does not hold what it must.
    #[error("{file}: page {page} (at byte {offset}) is damaged: {what}; restore the database from a backup")]
    Corrupt {
        /// The data file or device.
        file: String,
        /// The page.
        page: PageId,
        /// Where the page starts in the file, in bytes.
        offset: u64,
        /// What was found, and what was expected.
        what: String,
    },

    /// What a store needs to know of itself is damaged, or is not one of ours: the superblock, a root, a stamp.
    #[error("{file}: {what}")]
    Superblock {
        /// The data file or device.
        file: String,
        /// What was found, what was expected, and what to do.
        what: String,
    },

    /// The torn-page protection asked for is not possible here.
    #[error("{file}: torn-page protection is not possible this way: {what}")]
    Protection {
        /// The device.
        file: String,
        /// What is missing, and what to do.
        what: String,
    },

    /// The data file cannot grow.
    #[error("{file}: no space left for more pages ({source}); free some space or delete rows and try again")]
    DiskFull {
        /// The data file or device.
        file: String,
        /// What the device said.
        source: tantalum_device::Error,
    },

    /// A setting, or what was asked for, is not possible here.
    #[error("option {what}")]
    Option {
        /// The option, and what is wrong.
        what: String,
    },

    /// The store was closed.
    #[error("the database is closed; open it again")]
    Closed,
}

impl Error {
    /// Says that `page`, read correctly from its device, holds what no page of ours holds.
    pub fn corrupt_page(page: &[u8], what: impl Into<String>) -> Self {
        let id = header::page_id(page);
        Self::Corrupt {
            file: "the data file".into(),
            page: id,
            offset: id.0.saturating_mul(page.len() as u64),
            what: what.into(),
        }
    }
}
