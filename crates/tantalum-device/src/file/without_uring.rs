//! What stands in for io_uring where this crate is built without the feature `io-uring`: it takes no write, so that a task makes
//! it, and reads follow one after the other, as on a system that forbids io_uring.

use std::sync::Arc;

use super::Shared;
use super::pending::Write;
use super::raw::RawFile;
use crate::{PendingWrite, Result};

/// No rings for writes.
#[derive(Debug)]
pub(super) struct RingPool;

impl RingPool {
    pub(super) fn new() -> Self {
        Self
    }

    #[cfg(test)]
    pub(super) fn unavailable() -> Self {
        Self
    }

    /// Gives the write back.
    pub(super) fn submit(_shared: &Arc<Shared>, write: Write) -> std::result::Result<Box<dyn PendingWrite>, Write> {
        Err(write)
    }

    /// There is nothing to wait for.
    pub(super) fn drain(&self, _file: &RawFile) {}
}

/// No rings for reads.
#[derive(Debug)]
pub(super) struct ReadRings;

impl ReadRings {
    pub(super) fn new() -> Self {
        Self
    }

    #[cfg(test)]
    pub(super) fn unavailable() -> Self {
        Self
    }

    /// Fills all buffers, one after the other.
    pub(super) fn read(&self, file: &RawFile, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        reads.iter_mut().try_for_each(|(offset, buffer)| file.read(*offset, buffer))
    }
}
