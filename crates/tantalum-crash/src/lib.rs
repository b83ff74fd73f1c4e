//! The crash search: random transactions on simulated devices, power cuts at random instants, recovery, and a model of
//! what must hold afterwards.
//!
//! One seed decides everything: the devices and their timing, the engine's options, what the clients do, how tasks are
//! scheduled, when the power goes, and what then survives of the writes that were not yet durable. [`search`] runs a
//! seed; a failing one fails again.
//!
//! How a seed runs: `search` prepares the devices (`machine`) and starts simulations on them, one after another; inside
//! each, `round` recovers and checks the database and lets the clients (`client`) loose until the cut; what they did and
//! saw comes out as events (`history`), and `model` judges it against what the next recovery finds.

mod client;
mod config;
mod content;
mod history;
mod machine;
mod model;
mod report;
mod round;
mod search;
mod session;

pub use config::{Config, Load, LogLayout, Protection};
pub use report::{Failure, Report};
pub use search::search;
