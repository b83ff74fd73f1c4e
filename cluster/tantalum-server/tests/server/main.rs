//! Servers, in this process and of their own, and clients of them.

mod api;
mod common;
mod crash;
mod differential;
mod earlier_versions;
mod etcdctl;
mod operation;
mod snapshots;
mod turns;
mod watching;
