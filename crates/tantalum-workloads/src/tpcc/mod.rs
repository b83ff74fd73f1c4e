//! TPC-C (revision 5.11) on Tantalum: nine tables, the load of clause 4.3, five transactions, twelve conditions.
//!
//! What deviates from the specification, and why:
//! - Terminals have no keying and think times (clause 5.2.5) and no screens; each client is a terminal bound to one
//!   warehouse (and, for stock-level, one district). So results are not comparable with audited ones.
//! - Delivery runs at once in its client, not in a queue (clause 2.7.2), as one transaction over all ten districts.
//! - Order-status and stock-level, which only read, run on a snapshot unless [`Reads::Transaction`] is chosen. A
//!   snapshot is a state between two commits, so both stay serializable, which is more than stock-level needs.
//! - Condition 11 holds in clause 3.3.2.11 for a fresh database only; see [`consistency`] for the form checked here.
//! - tpmC counts committed new-orders only, without those rolled back on purpose.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tantalum_workloads::driver::{self, Options};
//! use tantalum_workloads::tpcc::{Mix, Parameters, Scale, Tpcc, consistency};
//!
//! let directory = tempfile::tempdir()?;
//! let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path())?;
//! let parameters = Parameters { warehouses: 1, scale: Scale::tiny(), seed: 1 };
//! let tpcc = Tpcc::load_or_reuse(&db, parameters, 2, &mut |_| ())?;
//! let tpcc = Arc::new(tpcc.with_mix(Mix::Normal));
//! driver::run(&tpcc, Options::transactions(2, 10), &mut |_| ())?;
//! assert!(consistency::check(&db)?.iter().all(|condition| condition.is_ok()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod consistency;
mod delivery;
mod mix;
mod new_order;
mod payment;
mod population;
mod random;
mod read_only;
mod schema;
mod session;
mod terminal;
mod units;

#[cfg(test)]
mod tests;

pub use mix::{Kind, Mix};
pub use population::{Parameters, Scale};
pub use schema::{TABLE_NAMES, Tables};
pub use terminal::{BeforeCall, Call, Observer, Output, Reads, Terminal, Tpcc};
