//! Numbers that must not be mixed up.

use std::fmt;

/// The number of a page: its position in the data file, counted in pages.
///
/// ```
/// assert_eq!(tantalum_store::PageId(17).to_string(), "17");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId(pub u64);

impl fmt::Display for PageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The number of a table, never used twice in the life of a database. Every page carries its table's.
///
/// ```
/// assert!(tantalum_store::TableId(1) < tantalum_store::TableId(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u32);

impl fmt::Display for TableId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
