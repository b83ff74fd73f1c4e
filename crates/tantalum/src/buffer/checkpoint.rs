//! Checkpoints: store what the log's older part speaks of, and let go of that part.
//!
//! Fuzzy: pages are changed while a checkpoint runs. Redo from the checkpoint finds every change that is not stored,
//! because a page is marked dirty before its change is appended, with an LSN at or before the record.

use std::time::Duration;

use tantalum_log::{Lsn, SpaceRequest};

use super::BufferPool;
use crate::error::Result;

/// How long somebody rests who needs room in the log that a checkpoint did not make.
const PAUSE: Duration = Duration::from_millis(1);

impl BufferPool {
    /// Stores everything that was logged before the call and frees the log up to there. Returns the LSN from which redo
    /// would start. Callers at the same time share a checkpoint. No latch may be held.
    ///
    /// # Errors
    /// When a page or the log's checkpoint cannot be written. Nothing is lost; the log stays longer.
    pub fn checkpoint(&self) -> Result<Lsn> {
        tantalum_rt::may_wait("a checkpoint");
        self.shared.checkpoints.run(|| self.run_checkpoint())
    }

    /// Frees as much of the log as can be freed: a [`checkpoint`](Self::checkpoint), but it never waits for log space itself. No
    /// latch may be held.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint).
    pub fn relieve_log(&self) -> Result<Lsn> {
        match self.shared.statuses() {
            Some(statuses) => self.shared.renew_status(statuses),
            None => self.checkpoint(),
        }
    }

    /// Waits until the log has `needed` bytes, which were refused with [`Error::LogFull`](crate::Error::LogFull), after all who
    /// asked before; then try again with them. No latch may be held.
    ///
    /// # Errors
    /// As [`checkpoint`](Self::checkpoint): then there is no hope that the log gets room.
    pub fn wait_for_log_space(&self, needed: usize) -> Result<Option<SpaceRequest>> {
        tantalum_rt::may_wait("space in the log");
        if let Some(statuses) = self.shared.statuses() {
            // Changes are not in the log: what has no room is what no status record covers, and a round covers it.
            self.shared.force(statuses, statuses.end())?;
            return Ok(None);
        }
        tracing::debug!(needed, "waiting for a checkpoint to make room in the log");
        let request = self.log().request_space(needed as u64)?;
        loop {
            let before = self.shared.checkpoints.last();
            // One that runs makes room too.
            let lsn = self.shared.checkpoints.join_or_run(|| self.run_checkpoint())?;
            // If it let go of nothing, room comes from elsewhere, such as a device that is joining. That takes time, which must
            // not be spent on checkpoints.
            let is_in_vain = matches!(before, Some(Ok(before)) if before == lsn);
            if request.wait(if is_in_vain { PAUSE } else { Duration::ZERO })? {
                return Ok(Some(request));
            }
        }
    }

    fn run_checkpoint(&self) -> Result<Lsn> {
        self.check_poison()?;
        let log = self.log();
        if let Some(statuses) = self.shared.statuses() {
            self.flush(statuses.end())?;
            return self.shared.renew_status(statuses);
        }
        let start = {
            let mut redo_point = self.shared.redo_point.write();
            redo_point.advance(log, &**self.store(), self.shared.protection);
            redo_point.lsn
        };
        tantalum_rt::interleave();
        self.shared.write_back_all_before(start)?;
        log.flush(start)?;
        log.set_checkpoint(start)?;
        tracing::debug!(lsn = start.get(), "checkpoint");
        Ok(start)
    }
}
