//! Workloads for Tantalum, the driver that runs them, and a checker of histories.
//!
//! - [`driver`]: clients as tasks, measured, on real threads or in the simulation.
//! - [`tpcc`]: TPC-C: load, five transactions, twelve consistency conditions.
//! - [`linkbench`]: LinkBench: a social graph, ten operations, three conditions.
//! - [`ycsb`]: YCSB: the core workloads A to F.
//! - [`append_only`]: an append-only copy-on-write tree, to compare with.
//! - [`kv`]: durable updates of small values.
//! - [`history`]: were these concurrent transactions serializable?

pub mod append_only;
pub mod choice;
mod conditions;
pub mod driver;
pub mod error;
pub mod history;
pub mod kv;
pub mod linkbench;
mod load;
mod row;
mod tasks;
pub mod tpcc;
pub mod ycsb;

pub use conditions::Condition;
pub use error::{Error, ErrorKind, Result};
pub use load::LoadProgress;
pub use tasks::map_by_tasks;
