//! The laboratory: how fast a device is, and whether a model of it behaves as the papers published.
//!
//! - [`micro`]: micro benchmarks of one device, on the real clock or in a simulation's virtual time.
//! - [`probe`]: measures a device and says how a database should be set up on it.
//! - [`published`]: every number that the papers publish, and what it answers.
//! - [`experiments`]: those of them that run here, on emulated devices; [`finding`]: what they found, and how far it is
//!   from what was published; [`agreement`]: what that amounts to.
//! - [`trace`]: what happens to a database's pages and devices, in files, and what it says.
//! - [`runs`]: experiments that have run, in files; [`report`]: as a page, and in the tables of documents.

pub mod agreement;
mod error;
pub mod experiments;
pub mod finding;
pub mod micro;
pub mod probe;
pub mod published;
pub mod report;
pub mod runs;
mod scenario;
pub mod trace;

pub use error::{Error, Result};
