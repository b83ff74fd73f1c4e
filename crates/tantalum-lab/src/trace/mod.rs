//! What happened to a database's pages in a run, in a file; and what in-page logging would have made of it ("In-Page Logging",
//! section 4.2).
//!
//! A [`Recorder`] observes the engine's pages and a [`Writer`] keeps what it is told; a [`Reader`] gives it back, from bytes that
//! may be anything. An [`Analysis`] is the paper's simulator and its locality.

mod analysis;
mod format;
mod locality;
mod plots;
mod reader;
mod recorder;
#[cfg(test)]
mod tests;
mod writer;

use tantalum::PageOperation;

pub use analysis::{Analysis, ERASE_UNIT_BYTES, MERGE, Operations, REGION_BYTES, Region, SECTOR_BYTES, SECTOR_WRITE};
pub use locality::{Locality, Shares, WINDOW};
pub use plots::plots;
pub use reader::Reader;
pub use recorder::Recorder;
pub use writer::Writer;

pub use crate::framing::{Damage, TraceKind};

/// Of what database a trace is.
///
/// ```
/// let header = tantalum_lab::trace::Header { page_bytes: 8192, buffer_pool_bytes: 20 << 20, label: "1G.20M.100u".into() };
/// assert!(header.label.len() < 256);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of the buffer pool.
    pub buffer_pool_bytes: u64,
    /// For people: at most 255 bytes.
    pub label: String,
}

/// One thing that happened to a page.
///
/// ```
/// use tantalum::PageOperation;
/// use tantalum_lab::trace::Record;
///
/// let change = Record::Change { page: 7, operation: PageOperation::Update, bytes: 49 };
/// assert_eq!(change.page(), 7);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// A change was logged: an update log record of the paper.
    Change {
        /// The page.
        page: u64,
        /// What was done.
        operation: PageOperation,
        /// Bytes of the change in the log.
        bytes: u32,
    },
    /// The page was written to its store.
    Write {
        /// The page.
        page: u64,
    },
}

impl Record {
    /// The page that it is about.
    pub fn page(&self) -> u64 {
        match *self {
            Self::Change { page, .. } | Self::Write { page } => page,
        }
    }
}
