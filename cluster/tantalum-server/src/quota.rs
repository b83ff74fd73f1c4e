//! The quota: how large the store's file may become. Beyond it, the alarm for space is set, and until it is reset nothing is taken that
//! needs space, as in etcd: room is made by compaction and defragmentation.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tantalum::Db;
use tokio::time::Instant;

use crate::node::blocking;

/// For so long, the size that was measured last is believed.
const BELIEVED: Duration = Duration::from_millis(100);

/// A quota, with the size of the file as it was last.
pub(crate) struct Quota {
    bytes: u64,
    measured: Mutex<Option<(Instant, u64)>>,
}

impl Quota {
    /// `None` is no quota.
    pub fn new(bytes: Option<u64>) -> Quota {
        Quota { bytes: bytes.unwrap_or(u64::MAX), measured: Mutex::default() }
    }

    /// Whether a file of this database may take so many bytes more.
    ///
    /// # Errors
    /// When the database has failed.
    pub async fn has_room(&self, db: &Db, more: u64) -> io::Result<bool> {
        if self.bytes == u64::MAX {
            return Ok(true);
        }
        let measured = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = match measured {
            Some((at, bytes)) if at.elapsed() < BELIEVED => bytes,
            _ => {
                let db = db.clone();
                let stats = blocking(move || db.stats()).await?.map_err(io::Error::other)?;
                let bytes = stats.store.capacity_bytes;
                *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), bytes));
                bytes
            }
        };
        Ok(bytes.saturating_add(more) <= self.bytes)
    }

    /// What was measured counts no more: the file may have become smaller.
    pub fn forget(&self) {
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
