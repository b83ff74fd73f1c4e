//! etcd's gRPC services, one in each file. Watch has a folder of its own; Auth is refused where they are joined.

mod check;
mod cluster;
mod election;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod turns;

pub use check::is_short_enough;
#[cfg(test)]
pub use check::txn as check_txn;
pub use cluster::Cluster;
pub use election::Election;
pub use kv::Kv;
pub use lease::Lease;
pub use lock::Lock;
pub use maintenance::Maintenance;
