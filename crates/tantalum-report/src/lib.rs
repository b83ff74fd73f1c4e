//! How Tantalum's programs show results: [`Table`]s for people, [JSON](json) for programs, [`Progress`] while they
//! wait, and numbers in human [`units`].

pub mod json;
pub mod progress;
pub mod table;
pub mod units;

pub use json::{Error, print_json, to_json_file};
pub use progress::Progress;
pub use table::Table;
pub use units::Unit;
