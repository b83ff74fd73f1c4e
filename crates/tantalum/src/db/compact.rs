//! Compaction: giving back the space that a database does not need.

use super::Db;
use crate::error::Result;

impl Db {
    /// Gives back the space that the log has grown by, and returns how many bytes: its file is as small again as it began, and grows
    /// as it needs to. Nothing is done to devices that [`log_devices`](crate::Builder::log_devices) names. Transactions go on.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tantalum::Db::open(dir.path())?;
    /// assert_eq!(db.compact()?, 0, "the log has not grown");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a device cannot be written; [`NoSpace`](crate::ErrorKind::NoSpace) where there is none for the smaller file.
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Closed`](crate::ErrorKind::Closed).
    pub fn compact(&self) -> Result<u64> {
        self.core().shrink_log()
    }
}
