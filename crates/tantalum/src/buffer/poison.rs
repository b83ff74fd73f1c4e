//! Poison: after a panic between two states that must change together, nothing more is read, logged or stored until the
//! database is opened again, which makes one of them from the other.
//!
//! Every such place holds a [`PoisonGuard`] from before the first of the two changes until after the last. It is declared after the
//! latch or lock that keeps others from the half-changed state, so it is dropped, and the pool poisoned, before that is released.
//! A place that returns an error in between has taken its first change back, or not made it. The places:
//!
//! | what | with what | where |
//! |---|---|---|
//! | a group's record in the log, or its changes in the in-memory log sectors | the old versions that snapshots need, the pages | `ChangeSink::append`, from before the append until the last page is stamped (`change_group.rs`) |
//! | changes taken from their pages to be stored | their status in the log | `commit_status_log.rs`, a round and `store_changes_of` |
//! | a batch in the store, with what the store knows of it | the frames' dirt | `write_back.rs`, `store_copies` |
//! | a page's entry in the page table | its bytes in the frame | `pinning.rs`, `Loading` |
//! | the catalog's record of a table | the table in memory | `db/catalog.rs` |
//! | what the log has reserved, sealed or given to a device | what came of it | `tantalum-log`, `scheduler/mod.rs` |
//!
//! What waits for others to finish such work looks here before it waits again.
//!
//! Other pairs need no guard. A transaction's locks and pins are given back by destructors. The hints of `space/mod.rs`, `hints.rs`
//! and `tree/insert_runs.rs` are checked against the page where they are used. The steps of `tree/drop.rs` are groups, and the catalog's
//! row says until the last that the table is being dropped. A number of a commit that is not used is no matter.

use std::sync::{
    OnceLock,
    atomic::{AtomicBool, Ordering},
};

use super::{BufferPool, pool::Shared};
use crate::error::{Error, Result};

/// Whether memory can be trusted, and why not.
#[derive(Debug, Default)]
pub(super) struct Poison {
    is_set: AtomicBool,
    cause: OnceLock<Error>,
}

/// Two states are being changed together. Dropping it poisons the pool.
#[derive(Debug)]
#[must_use = "dropping it poisons the pool"]
pub(crate) struct PoisonGuard<'p> {
    shared: &'p Shared,
    what: &'static str,
}

impl PoisonGuard<'_> {
    /// Both have changed, or neither.
    pub fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for PoisonGuard<'_> {
    fn drop(&mut self) {
        self.shared.poison(format!("a panic while {}", self.what));
    }
}

impl Shared {
    /// Begins to change two states together; `what` completes "a panic while ...".
    pub fn poison_unless_ended(&self, what: &'static str) -> PoisonGuard<'_> {
        PoisonGuard { shared: self, what }
    }

    /// Memory cannot be trusted any more. Returns the first cause, as later calls get it.
    pub fn poison(&self, what: String) -> Error {
        let cause = self.poison.cause.get_or_init(|| {
            tantalum_rt::tracing::error!(%what, "the database stops, and must be opened again");
            tantalum_log::error::poisoned(tantalum_log::error::interrupted(&what))
        });
        self.poison.is_set.store(true, Ordering::Release);
        if let Some(log) = self.log.get() {
            log.poison(what);
        }
        drop(self.store_ended.0.lock());
        self.store_ended.1.notify_all();
        self.sink.wake_for_poison();
        cause.clone()
    }

    /// # Errors
    /// The first cause, when memory cannot be trusted. A task that has latched what was half changed learns it.
    pub fn check_poison(&self) -> Result<()> {
        if self.poison.is_set.load(Ordering::Acquire) { Err(self.poisoned()) } else { Ok(()) }
    }

    #[cold]
    fn poisoned(&self) -> Error {
        self.poison.cause.get().expect("it is set after its cause").clone()
    }
}

impl BufferPool {
    /// # Errors
    /// The first cause, when a panic has left memory and log apart: nothing that was read since counts.
    pub fn check_poison(&self) -> Result<()> {
        self.shared.check_poison()
    }

    /// Begins to change two states together; `what` completes "a panic while ...".
    pub(crate) fn poison_unless_ended(&self, what: &'static str) -> PoisonGuard<'_> {
        self.shared.poison_unless_ended(what)
    }
}
