//! How Tantalum's programs show results: [`Table`]s for people, [JSON](json) for programs, [plots](plot) as
//! SVG, [`Progress`] while they wait, and numbers in human [`units`].

pub mod html;
pub mod json;
pub mod plot;
pub mod progress;
pub mod table;
pub mod units;

pub use json::{Error, print_json, to_json_file};
pub use progress::Progress;
pub use table::Table;
pub use units::Unit;
