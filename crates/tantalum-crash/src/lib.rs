//! The crash search: random transactions on simulated devices, power cuts at random instants, recovery, and a model of
//! what must hold afterwards.
//!
//! One seed decides everything: the devices, which may be any that `tantalum-flash` emulates, and their faults, the
//! engine's options, what the clients do, how tasks are scheduled, when the power goes, and what then survives of the
//! writes that were not yet durable. [`search()`] runs a seed; a failing one fails again.
//!
//! How a seed runs: `scope` knows the devices to choose from, `config` chooses. `search` prepares them (`machine`) and
//! starts simulations on them, one after another; inside each, `round` recovers and checks the database and lets the
//! clients (`client`, which read through `rows`) loose until the cut, beside an `operator` task that adds, removes and
//! replaces log devices. What they did and saw comes out as events (`history`), as does what stopped them (`stop`), and
//! `model` judges it against what the next recovery finds. What then counts as a failure depends on the `faults` that
//! there were.
//!
//! Before some starts the database is opened for `reading` only: its devices must stay as they are, and what it shows is what is
//! then recovered.
//!
//! Beside that, each seed makes a database in a directory (`directory`), on a file system in memory: its creation is cut, and old
//! copies of its files must be refused.
//!
//! Half of the seeds archive the log. Some of those lose all log devices at power cuts and have the log made anew: then what the
//! archive was seen to have must be there, and commits behind its end may be gone, even acknowledged ones.

mod beside;
mod checks;
mod client;
mod config;
mod content;
mod description;
mod directory;
mod faults;
mod feed;
mod history;
mod load;
mod machine;
mod model;
mod operator;
mod reading;
mod report;
mod round;
mod rows;
mod scope;
mod search;
mod segments;
mod session;
mod stop;
mod writing;

pub use config::Protection;
pub use report::{Failure, FaultCounts, ProfileCounts, Report};
pub use scope::{Faults, Options, Scope};
pub use search::search;
