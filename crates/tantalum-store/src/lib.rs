//! Pages, and the stores that keep them on a device.
//!
//! [`page`] is the bytes of a page and the changes that are made to it. A [`PageStore`] keeps pages on a device and promises that a
//! page it has stored is found whole again, whenever the power fails. Which of three stores a database has, its [`Superblock`] says;
//! [`open`] makes that one, and only the trait is visible from then on.

mod batch;
mod changes;
mod commit_status;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
mod in_page_logging;
mod in_place;
mod inspection;
mod log_structured;
mod observer;
mod open;
pub mod page;
mod page_set;
mod page_store;
pub mod position;
mod superblock;
mod sweep;
#[cfg(test)]
mod tests;

pub use batch::PageBatch;
pub use changes::PageChanges;
pub use commit_status::{Horizon, Session, Status, Watermarks};
pub use in_page_logging::InPageStats;
pub use in_place::double_write::DoubleWrite;
pub use inspection::{
    AppendInspection, EntryInspection, RecordInspection, SectorInspection, SegmentInspection, UnitInspection,
};
pub use log_structured::{LogStructuredStats, MetadataWrites, PageCompression, PageStreams};
pub use observer::{Observer, PageChange, PageObserver, PageOperation};
pub use open::{StoreDevices, StoreOptions, format, open};
pub use page::{Change, ChangeError, PAGE_SIZES, PageId, PageKind, TableId};
pub use page_set::PageSet;
pub use page_store::{Load, Logging, PackProgress, PageStore, Protection, StoreStats, WritesUnderWay};
pub use superblock::{NoSuperblock, SegmentSizes, StoreKind, Superblock, UnitSizes};
pub use sweep::sweep;
pub use tantalum_device::{Error, ErrorKind, Result};
