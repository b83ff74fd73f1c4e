//! Beginning the streams: in fresh segments, behind a checkpoint that says where.
//!
//! Done before the first append after opening, and after an append that failed. What stands behind the last whole append of
//! the old streams belongs to a session that is over, and is never looked at again.

use std::sync::atomic::Ordering;

use tantalum_rt::{Random, random_seed};

use super::{Shared, root::Position, table::Table};
use crate::Result;

impl Shared {
    /// Begins the streams, if they must. Nothing is appended to that of new pages meanwhile.
    ///
    /// # Errors
    /// When no segments are free, or the checkpoint cannot be written: then nothing can be stored.
    pub(super) fn begin_streams(&self) -> Result<()> {
        let _maintenance = self.maintenance.lock();
        if !self.must_begin() {
            return Ok(());
        }
        {
            let mut table = self.table.write();
            table.leave_streams();
            let positions = table.open_streams().ok_or_else(|| self.full())?;
            table.positions = Some(positions);
            table.session = Random::with_seed(random_seed()).u64(..);
        }
        self.checkpoint()?;
        self.must_begin.store(false, Ordering::Release);
        tracing::debug!(device = self.device.name(), "appends begin in fresh segments");
        Ok(())
    }
}

impl Table {
    /// Closes what the streams had open.
    fn leave_streams(&mut self) {
        self.forget_exhausted();
        for Position { segment, block, next, .. } in self.positions.take().into_iter().flatten() {
            self.segments.close(segment, block > 0);
            self.segments.close(next, false);
        }
        if let Some((segment, block)) = self.map_position.take() {
            self.segments.close_map(segment, block > 0);
        }
    }

    fn open_streams(&mut self) -> Option<[Position; 2]> {
        let mut opened = Vec::with_capacity(4);
        while opened.len() < 4 {
            match self.segments.open(0) {
                Some(segment) => opened.push(segment),
                None => {
                    opened.into_iter().for_each(|segment| self.segments.close(segment, false));
                    return None;
                }
            }
        }
        let position = |at: usize| Position { segment: opened[at], block: 0, next: opened[at + 1], after: 0 };
        Some([position(0), position(2)])
    }
}
