//! Flash translation layers: how logical sectors find their place on flash that is erased in blocks.

pub mod hybrid;
pub mod page_mapped;
