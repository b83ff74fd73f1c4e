//! What a change group needs beside the pages that it changes: other pages in memory, free frames, space in the log.
//!
//! Under its latches a group waits for no device and for no other task's work. Where it lacks something it fails with an error that
//! says what ([`Lack`](crate::error::Lack)); its owner lets go of everything, has the
//! [`Space`](crate::space::Space) supply it, and starts over with it.
//!
//! A group that needs more log space than is given at once, images of its pages included, may find that the rest was taken by others.
//! Its owner [cuts it](crate::transaction::Manager::append) if it can; else it is tried a bounded number of times.

use std::sync::Arc;

use tantalum_log::SpaceRequest;
use tantalum_rt::Mutex;
use tantalum_store::PageId;

use super::{BufferPool, PinnedPage};
use crate::error::Result;

/// So often a group is tried that needs more log space than is given at once.
const TRIES: u32 = 64;

/// What was got for a change group. Dropping it gives back what no group took.
#[derive(Debug)]
pub struct Reservation {
    pool: BufferPool,
    got: Mutex<Got>,
}

#[derive(Debug, Default)]
struct Got {
    pages: Vec<PinnedPage>,
    frames: Vec<usize>,
    log: Option<SpaceRequest>,
    /// How often less log space was given than was asked for.
    given_less: u32,
}

impl Reservation {
    /// Nothing yet.
    pub fn new(pool: &BufferPool) -> Arc<Self> {
        Arc::new(Self { pool: pool.clone(), got: Mutex::default() })
    }

    /// Keeps a page in memory.
    pub fn keep(&self, page: PinnedPage) {
        self.got.lock().pages.push(page);
    }

    /// Waits until there are so many frames for fresh pages. No latch may be held.
    ///
    /// # Errors
    /// [`PoolExhausted`](crate::ErrorKind::PoolExhausted), and what the devices report.
    pub fn get_frames(&self, wanted: usize) -> Result<()> {
        while self.got.lock().frames.len() < wanted {
            let frame = self.pool.shared.take_frame()?.frame;
            self.got.lock().frames.push(frame);
        }
        Ok(())
    }

    /// Waits for space in the log, for so many bytes that were refused. No latch may be held. Gives back everything else, which
    /// the task that makes space may need.
    ///
    /// # Errors
    /// As [`BufferPool::wait_for_log_space`]. [`TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge) when more is needed than the
    /// log gives at once, and the rest was not there in many tries.
    pub fn get_log_space(&self, needed: usize) -> Result<()> {
        self.clear();
        let limit = self.pool.space_limit();
        if needed > limit.bytes {
            let tries = {
                let mut got = self.got.lock();
                got.given_less += 1;
                got.given_less
            };
            if tries > TRIES {
                return Err(limit.refuse(needed));
            }
            let log = self.pool.log();
            let record = needed.min(log.max_record_bytes());
            if log.must_grow_for(record)
                && let Err(error) = log.wait_until_grown(record)
            {
                tantalum_rt::tracing::debug!(%error, "the log stays as it is");
            }
        }
        let space = self.pool.wait_for_log_space(needed)?;
        self.got.lock().log = space;
        Ok(())
    }

    /// Gives back everything, and waits until the log has grown so that it takes a record of so many bytes. No latch may be held.
    ///
    /// # Errors
    /// When the log cannot grow.
    pub fn wait_for_larger_log(&self, record: usize) -> Result<()> {
        self.clear();
        self.pool.log().wait_until_grown(record)
    }

    /// Waits until no task has a page latched. No latch may be held.
    pub fn wait_for_latch(&self, page: PageId) {
        self.pool.wait_for_latch(page);
    }

    /// Gives back everything.
    pub fn clear(&self) {
        let (pages, frames, log) = {
            let mut got = self.got.lock();
            (std::mem::take(&mut got.pages), std::mem::take(&mut got.frames), got.log.take())
        };
        drop((pages, log));
        self.pool.shared.free_list.give(frames);
    }

    pub(super) fn take_frame(&self) -> Option<usize> {
        self.got.lock().frames.pop()
    }

    pub(super) fn take_log_space(&self) -> Option<SpaceRequest> {
        self.got.lock().log.take()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.clear();
    }
}
