//! HTML pages in one file, which need nothing from outside: elements, tables, figures, and the page around them.
//!
//! A text that is put into an element is escaped; only this module writes tags. What comes out is well-formed XML too, but
//! for the first line.

mod element;
mod figure;
mod page;
mod strip;
mod table;

pub use element::{Element, Html, element, escape};
pub use figure::{figure, ratios};
pub use page::Page;
pub use strip::strip;
pub use table::{Column, table};
