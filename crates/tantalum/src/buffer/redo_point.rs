//! Where redo starts, and which pages it makes anew from the log alone.

use tantalum_log::{Log, Lsn};
use tantalum_store::{PageId, PageStore, Protection};

/// What redo would find after the checkpoint that runs, or ran last.
#[derive(Clone, Copy, Debug)]
pub(super) struct RedoPoint {
    /// Where it would start.
    pub lsn: Lsn,
    /// The first page that was not used by then.
    unused_from: PageId,
    /// The same at the beginning of the checkpoint before.
    unused_before_from: PageId,
}

impl Default for RedoPoint {
    /// Before and during redo: it may need any page.
    fn default() -> Self {
        let none = PageId(u64::MAX);
        Self { lsn: Lsn::ZERO, unused_from: none, unused_before_from: none }
    }
}

impl RedoPoint {
    /// A checkpoint begins, or redo is done: moves to the end of the log.
    pub fn advance(&mut self, log: &Log, store: &dyn PageStore, protection: Protection) {
        self.lsn = log.end_lsn();
        // It makes a difference to the double-write area alone.
        if protection == Protection::DoubleWrite {
            self.unused_before_from = self.unused_from;
            // Read after the log's end: a page with a change before that end is one that there was room for.
            self.unused_from = PageId(store.capacity_pages());
        }
    }

    /// Pages before this one are in use, or about to be, of which the log does not have every change.
    pub fn lacks_pages_before(&mut self, end: PageId) {
        self.unused_from = self.unused_from.max(end);
        self.unused_before_from = self.unused_before_from.max(end);
    }

    /// Whether redo needs nothing of the page that is stored: of all its changes from the one that formatted it, the log has
    /// every one, so it may be torn. `lsn` is that of the version that is about to be stored.
    ///
    /// Once this checkpoint is done redo no longer sees what came before it. But it waits until all is stored that was changed
    /// last by then, so what is stored while it runs may be torn as before.
    pub fn is_fresh(&self, id: PageId, lsn: Lsn) -> bool {
        id >= self.unused_from || (id >= self.unused_before_from && lsn <= self.lsn)
    }
}
