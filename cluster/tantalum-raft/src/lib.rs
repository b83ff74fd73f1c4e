//! The raft logs of any number of groups in one flash log ([`tantalum_log`]): group commits that all groups share, several devices of
//! which a slow one holds nothing up, entries written once.
//!
//! - [`RaftLog`] is the log, [`Group`] the part of one raft group: append, vote, truncate, purge, read.
//! - A change returns a position; it is durable when the log is durable up to there: [`RaftLog::flush`] waits, and
//!   [`RaftLog::on_durable`] calls.
//!
//! An entry is one record of the log. In memory a small index says where each entry lies, and the newest entries are cached; others are
//! read from the log's devices. When a checkpoint is due, what is still needed of the log's beginning is appended again at its end: so
//! groups that are idle or lag behind do not keep the log from going round. The example is at [`RaftLog`].

mod cache;
mod group;
mod log;
mod notifier;
#[cfg(feature = "openraft")]
pub mod openraft_storage;
#[cfg(feature = "raft-rs")]
pub mod raft_rs_storage;
mod read;
mod record;
mod replay;
mod rewrite;
mod state;
#[cfg(any(feature = "openraft", feature = "raft-rs"))]
mod state_snapshot;
#[cfg(any(feature = "openraft", feature = "raft-rs"))]
mod state_tables;

pub use group::{Bounds, Entry, Group};
pub use log::{RaftLog, RaftLogOptions, RaftLogStats};
#[cfg(any(feature = "openraft", feature = "raft-rs"))]
pub use state_snapshot::StateSnapshot;
pub use tantalum_log::{Error, ErrorKind, Lsn, Result};

/// The Rust code in the document compiles.
#[cfg(all(doctest, feature = "openraft"))]
#[doc = include_str!("../../README.md")]
mod document {}
