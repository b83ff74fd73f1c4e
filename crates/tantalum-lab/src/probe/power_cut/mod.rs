//! What a power cut leaves of writes that were acknowledged, in the way of diskchecker.
//!
//! [`write`](fn@write) writes blocks at random, each durably, and reports each that was acknowledged, to another machine. After the plug was
//! pulled, [`check`] reads all blocks and holds them against the [`Record`] of what was reported. Every 512 bytes of a block name the
//! write that they belong to, so that an old block is told from a torn one.

mod block;
mod check;
mod record;
mod writer;

pub use check::{Outcome, check};
pub use record::{Header, Record, RecordError};
pub use writer::write;
