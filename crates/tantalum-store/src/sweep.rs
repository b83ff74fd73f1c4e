//! All pages of a store, one after the other, read in runs.

use tantalum_device::AlignedBuffer;

use super::{Load, PageStore, Superblock};
use crate::{PageId, Result};

/// Bytes that are read at once: sequential reads of most devices are not much faster with more.
const RUN_BYTES: usize = 256 << 10;

/// Shows `visit` every page that there is room for when this begins, with what was found of it, in ascending order;
/// `report` hears before each run, and at the end, how many bytes are done, of how many.
///
/// # Errors
/// What `visit` returns. A page that cannot be read is `visit`'s to judge.
pub fn sweep<E>(
    store: &dyn PageStore,
    report: &mut dyn FnMut(u64, u64),
    mut visit: impl FnMut(PageId, Result<Load>, &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let (pages, page_size) = (store.capacity_pages(), store.page_size());
    let bytes_of = |pages: u64| pages * page_size as u64;
    let mut buffer = AlignedBuffer::zeroed(RUN_BYTES);
    let mut next = Superblock::PAGES;
    while next < pages {
        report(bytes_of(next), bytes_of(pages));
        let count = (RUN_BYTES / page_size).min((pages - next) as usize);
        let run = &mut buffer[..count * page_size];
        let loaded = match store.load_run(PageId(next), run) {
            Ok(loaded) => loaded.into_iter().map(Ok).collect(),
            // One of them cannot be read, perhaps.
            Err(_) => {
                (next..).zip(run.chunks_exact_mut(page_size)).map(|(id, page)| store.load(PageId(id), page)).collect()
            }
        };
        let loaded: Vec<Result<Load>> = loaded;
        for ((id, page), load) in (next..).zip(run.chunks_exact_mut(page_size)).zip(loaded) {
            visit(PageId(id), load, page)?;
        }
        next += count as u64;
    }
    report(bytes_of(pages), bytes_of(pages));
    Ok(())
}
