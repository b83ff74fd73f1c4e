//! Pages in memory: which task may read and change them, and when they go back to the store.
//!
//! - A page is used by pinning it ([`BufferPool::pin`]), which keeps it in memory, and latching it
//!   ([`PinnedPage::read`], [`PinnedPage::write`]); or by latching it for reading ([`BufferPool::read`]), which keeps it too.
//! - A page is changed by a [`ChangeGroup`] only, which logs the changes of all its pages as one atomic record first.
//! - The write-ahead rule: a page is stored only when the log is durable up to the page's LSN ([`write_back`]). Where the
//!   store keeps the changes, it is the other way round: their status is logged only when they are stored ([`change_sink`]).
//!
//! The order of latches, which keeps their holders from waiting in a circle:
//!
//! 1. inner pages from the root down; no task waits for an inner page while holding a leaf;
//! 2. leaves by ascending number, each checked at once after it was latched;
//! 3. overflow pages after their leaf;
//! 4. space-map pages last and ascending; after them only fresh pages may be waited for.
//!
//! A task that holds a latch waits for other latches only, never for a device or a frame: a page that is not in memory is read while
//! nothing is latched ([`BufferPool::read_in_memory`] says that it is not), and a change group that lacks something fails and is
//! begun anew with a [`Reservation`]. ARCHITECTURE.md has the table of what may be held while what is waited for.

mod admission;
mod change_group;
mod change_sink;
mod cleaner;
mod commit_status_log;
mod dirty_frames;
mod eviction;
mod frame;
mod free_list;
mod hints;
mod latches;
mod page_copy;
mod page_table;
mod pending_redo;
mod pin_budget;
mod pinning;
mod poison;
mod pool;
mod read_ahead;
mod redo_log;
mod redo_point;
mod reservation;
#[cfg(test)]
mod tests;
mod write_back;

pub use change_group::ChangeGroup;
pub use cleaner::{Cleaner, PageCleaning};
pub use commit_status_log::CommitStatusLog;
pub use frame::{PageReadGuard, PageView, PageWriteGuard, PinnedPage};
pub use hints::HintKey;
pub use latches::SNAPSHOT_GATE;
pub use page_copy::PageCopy;
pub use pending_redo::{RedoIndex, redo_page};
pub use pin_budget::Pins;
pub use pool::{BufferPool, PoolOptions, PoolStats};
pub use reservation::Reservation;
