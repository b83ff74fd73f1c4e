//! Devices that fail: a wrapper over any model that does what a plan says, at the host's interface.
//!
//! Timing, contents and faults stay apart: the model below knows nothing of them. What it holds is pristine, and damage
//! lies over it as an overlay, so that an oracle is exact.
//!
//! Promises: a fault does what [`FaultKind::doc`] says, no more. None that is [`Survival::Survivable`] changes what the
//! device had promised to keep: it touches only writes at stake, and leaves whole what the device writes atomically. All
//! faults of a plan compose. What happened is in the [`FaultLog`].

mod around;
mod cut;
mod history;
mod kind;
mod log;
mod model;
mod overlay;
mod plan;
mod schedule;
mod text;

pub use kind::{FaultKind, Survival};
pub use log::{Event, FaultLog};
pub use model::FaultyModel;
pub use plan::{Parameters, Plan, Planned, When};
