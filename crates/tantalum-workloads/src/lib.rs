//! Workloads for Tantalum, the driver that runs them, and a checker of histories.
//!
//! - [`driver`]: clients as tasks, measured, on real threads or in the simulation.
//! - [`tpcc`]: TPC-C: load, five transactions, twelve consistency conditions.
//! - [`kv`]: durable updates of small values, and the raw limit of the device beside them.
//! - [`history`]: were these concurrent transactions serializable?

pub mod driver;
mod error;
pub mod history;
pub mod kv;
mod tasks;
pub mod tpcc;

pub use error::{Error, Result};
