//! Errors that the page stores and the engine make in more than one place.

use std::fmt::Display;

use crate::{Error, ErrorKind, PageId, page::header};

/// A page does not hold what it must.
///
/// `offset` is where the page starts in `file`, in bytes; `what` says what was found and what was expected.
pub fn corrupt(file: impl Display, page: PageId, offset: u64, what: impl Display) -> Error {
    let remedy = "restore the database from a backup";
    Error::new(ErrorKind::Corrupt, format!("{file}: page {page} (at byte {offset}) is damaged: {what}; {remedy}"))
}

/// Says that `page`, read correctly from its device, holds what no page of ours holds.
pub fn corrupt_page(page: &[u8], what: impl Display) -> Error {
    let id = header::page_id(page);
    corrupt("the data file", id, id.0.saturating_mul(page.len() as u64), what)
}

/// What a store needs to know of itself is damaged, or is not one of ours: the superblock, a root, a stamp.
pub fn superblock(file: impl Display, what: impl Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{file}: {what}"))
}

/// The torn-page protection asked for is not possible here; `what` says what is missing, and what to do.
pub fn protection(file: impl Display, what: impl Display) -> Error {
    Error::new(ErrorKind::Unsupported, format!("{file}: torn-page protection is not possible this way: {what}"))
}

/// The device has zones, in which only a log-structured store's pages can lie.
pub fn has_zones(file: &str) -> Error {
    Error::has_zones(
        file,
        "of the page stores, log-structured is for that: set page_store to it, or use another device",
    )
}

/// The data file cannot grow.
pub fn disk_full(file: impl Display, source: Error) -> Error {
    let what = format!("{file}: no space left for more pages ({source}); free some space or delete rows and try again");
    Error::new(ErrorKind::StoreFull, what).with_source(source)
}

/// A setting, or what was asked for, is not possible here.
pub fn option(what: impl Display) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("option {what}"))
}

/// The database was closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the database is closed; open it again")
}
