//! Whether the pages suit a log that is made anew from its archive.
//!
//! No page is stored before the archive has its last change, as long as the archive works. One that was set aside holds up
//! nobody: then pages may hold changes that are lost together with the log's devices. Such pages must not be taken for
//! earlier or later ones than they are once the new log has grown past their LSNs.

use tantalum_device::AlignedBuffer;
use tantalum_log::Rebuild;

use super::RedoProgress;
use crate::{
    error::{Error, Result},
    page::{PageId, header},
    store::{Load, PageStore, Superblock},
};

/// Pages between two calls of the progress.
const REPORT_PAGES: u64 = 1024;

/// Reads all pages, and refuses `log` if one of them was changed at or past its end. What cannot be read, or is damaged,
/// does not count: redo mends it, or whoever asks for it is told.
///
/// # Errors
/// [`Error::BeyondArchive`].
pub fn check_pages(store: &dyn PageStore, log: &Rebuild, progress: &mut dyn FnMut(RedoProgress)) -> Result<()> {
    let end = log.end_lsn();
    let (pages, page_size) = (store.capacity_pages(), store.page_size());
    let bytes_of = |pages: u64| pages * page_size as u64;
    let mut page = AlignedBuffer::zeroed(page_size);
    for id in (Superblock::PAGES..pages).map(PageId) {
        if id.0.is_multiple_of(REPORT_PAGES) {
            progress(RedoProgress { done_bytes: bytes_of(id.0), total_bytes: bytes_of(pages) });
        }
        let is_whole = matches!(store.load(id, &mut page), Ok(Load::Page));
        if is_whole && header::lsn(&page) > end {
            let (file, archive) = (store.name().to_owned(), log.archive().to_owned());
            return Err(Error::BeyondArchive { file, page: id, lsn: header::lsn(&page), archive, end });
        }
    }
    progress(RedoProgress { done_bytes: bytes_of(pages), total_bytes: bytes_of(pages) });
    Ok(())
}
