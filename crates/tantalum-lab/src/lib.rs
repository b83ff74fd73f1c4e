//! The laboratory: how fast a device is, and whether a model of it behaves as the papers published.
//!
//! - [`micro`]: micro benchmarks of one device, on the real clock or in a simulation's virtual time.
//! - [`published`]: every number that the papers publish.
//! - [`experiments`]: those of them that run here, on emulated devices; [`finding`]: what they found, and how far it is
//!   from what was published.

mod error;
pub mod experiments;
pub mod finding;
pub mod micro;
pub mod published;

pub use error::{Error, Result};
