//! How Tantalum's programs show results: [`Table`]s for people, [JSON](json) for programs, [plots](plot) as
//! SVG, [HTML](html) pages in one file, [`Progress`] while they wait, and numbers in human [`units`].

pub mod html;
pub mod json;
mod out_file;
pub mod plot;
pub mod progress;
pub mod table;
pub mod units;

pub use json::{Error, from_json_file, print_json, to_json_file};
pub use out_file::OutFile;
pub use progress::Progress;
pub use table::Table;
pub use units::Unit;
