//! A page: a header, slots with cells, and the changes that turn one state of it into the next.
//!
//! Nothing here knows what a cell means, where a page is stored, or which task may look at it. A page is a `[u8]` of the
//! database's page size; every function that takes one relies on that size being one of [`PAGE_SIZES`], and on nothing
//! else: the bytes may be hostile.

pub mod change;
pub mod header;
mod id;
mod patch;
pub mod record;
pub mod slots;
pub mod status_record;
#[cfg(test)]
mod tests;
pub mod varint;

pub use change::{Change, ChangeError};
pub use header::PageKind;
pub use id::{PageId, TableId};
pub use patch::Patch;

/// The page sizes that a database can have, in bytes.
pub const PAGE_SIZES: [u32; 3] = [4096, 8192, 16384];
