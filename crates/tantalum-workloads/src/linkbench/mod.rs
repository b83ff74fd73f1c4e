//! LinkBench on Tantalum: a social graph of nodes, links in lists by time, and counts; ten operations in the mix that
//! Facebook measured (Armstrong et al., "LinkBench: a Database Benchmark Based on the Facebook Social Graph", SIGMOD
//! 2013).
//!
//! What deviates, and why:
//! - The degrees of nodes follow a curve through some points of the published table, not the whole table.
//! - A hidden link has no entry in the list; LinkBench's index keeps one that no query reads.
//! - Reads are of a snapshot; each write is one transaction with its list and count.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tantalum_workloads::driver::{self, Options};
//! use tantalum_workloads::linkbench::{LinkBench, Parameters, consistency};
//!
//! let directory = tempfile::tempdir()?;
//! let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path())?;
//! let parameters = Parameters { nodes: 100, seed: 1 };
//! let linkbench = Arc::new(LinkBench::load_or_reuse(&db, parameters, 2, &mut |_| ())?);
//! driver::run(&linkbench, Options::transactions(2, 50), &mut |_| ())?;
//! assert!(consistency::check(&db)?.iter().all(|condition| condition.is_ok()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod access;
pub mod consistency;
mod degree;
mod graph;
mod initial_graph;
mod request;
mod requester;
mod schema;

#[cfg(test)]
mod tests;

use tantalum_rt::Random;

use crate::choice::{bytes, log_normal};

pub use initial_graph::Parameters;
pub use request::{Request, Requests};
pub use requester::{Kind, LinkBench, Requester};
pub use schema::TABLE_NAMES;

/// The data of a node: 128 bytes in the median.
fn node_data(random: &mut Random) -> Vec<u8> {
    let length = log_normal(random, 128.0, 16 << 10);
    bytes(random, length, 50, 219)
}

/// The data of a link: 8 bytes in the median.
fn link_data(random: &mut Random) -> Vec<u8> {
    let length = log_normal(random, 8.0, 255);
    bytes(random, length, 32, 99)
}
