//! Whether the pages suit a log that is made anew from its archive.
//!
//! No page is stored before the archive has its last change, as long as the archive works. One that was set aside holds up
//! no page: then pages may hold changes that are lost together with the log's devices. Such pages must not be taken for
//! earlier or later ones than they are once the new log has grown past their LSNs.

use tantalum_log::Rebuild;
use tantalum_store::{Load, PageStore, page::header, sweep};

use super::RedoProgress;
use crate::error::{Error, ErrorKind, Result};

/// Reads all pages, and refuses `log` if one of them was changed at or past its end. What cannot be read, or is damaged,
/// does not count: redo mends it, or a later read of it fails.
///
/// # Errors
/// [`NotArchived`](ErrorKind::NotArchived).
pub fn check_pages(store: &dyn PageStore, log: &Rebuild, progress: &mut dyn FnMut(RedoProgress)) -> Result<()> {
    let end = log.end_lsn();
    let report = &mut |done_bytes, total_bytes| progress(RedoProgress { done_bytes, total_bytes });
    sweep(store, report, |id, load, page| {
        if !matches!(load, Ok(Load::Page)) || header::lsn(page) <= end {
            return Ok(());
        }
        let (file, archive) = (store.name().to_owned(), log.archive().to_owned());
        Err(Error::new(
            ErrorKind::NotArchived,
            format!(
                "{file}: page {id} was changed at LSN {lsn}, but {archive} ends at LSN {end}: the archive had been set aside before \
         the log's devices were lost; restore a base backup with the archive, which leads to its end, or another backup",
                lsn = header::lsn(page)
            ),
        ))
    })
}
