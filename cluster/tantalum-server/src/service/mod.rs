//! etcd's gRPC services, one in each file. Watch has a folder of its own; Auth is refused where they are joined.

mod check;
mod cluster;
mod kv;
mod lease;
mod maintenance;

#[cfg(test)]
pub use check::txn as check_txn;
pub use cluster::Cluster;
pub use kv::Kv;
pub use lease::Lease;
pub use maintenance::Maintenance;
