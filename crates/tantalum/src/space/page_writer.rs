//! The task that writes [unnamed pages](super::unnamed) while others are being filled.

use std::{collections::VecDeque, fmt, sync::Arc};

use tantalum_rt::{Condvar, JoinHandle, Mutex, may_wait};
use tantalum_store::PageBatch;

use crate::{
    buffer::BufferPool,
    error::{Error, ErrorKind, Result},
};

/// Batches that are written at a time.
const BATCHES_AT_A_TIME: usize = 8;
/// Batches that may wait for that.
const BATCHES_WAITING: usize = 8;

/// Runs a function as an operation that closing the database waits for, if it is open.
pub type InOperation = Arc<dyn Fn(&mut dyn FnMut() -> Result<()>) -> Result<()> + Send + Sync>;

/// The task. Dropping it ends it, after the writes under way.
pub(super) struct PageWriter {
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

struct Shared {
    pool: BufferPool,
    in_operation: InOperation,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<PageBatch>,
    /// Empty ones.
    spare: Vec<PageBatch>,
    is_writing: bool,
    error: Option<Error>,
    is_over: bool,
}

impl PageWriter {
    pub fn start(pool: &BufferPool, in_operation: InOperation) -> Self {
        let shared =
            Arc::new(Shared { pool: pool.clone(), in_operation, state: Mutex::default(), changed: Condvar::default() });
        let task = tantalum_rt::spawn("tantalum-page-writer", {
            let shared = Arc::clone(&shared);
            move || shared.run()
        });
        Self { shared, task: Some(task) }
    }

    /// Has a batch written, after at most so many others, and returns an empty one.
    ///
    /// # Errors
    /// Why a batch before could not be written.
    pub fn write(&self, batch: PageBatch) -> Result<PageBatch> {
        may_wait("pages to be written");
        let page_size = self.shared.pool.page_size();
        let mut state = self.shared.state.lock();
        while state.waiting.len() >= BATCHES_WAITING && state.error.is_none() {
            self.shared.changed.wait(&mut state);
        }
        state.check()?;
        state.waiting.push_back(batch);
        self.shared.changed.notify_all();
        Ok(state.spare.pop().unwrap_or_else(|| PageBatch::new(page_size)))
    }

    /// Waits until all batches are written, and makes them durable.
    ///
    /// # Errors
    /// Why that was not possible.
    pub fn finish(&self) -> Result<()> {
        may_wait("pages to be written");
        let mut state = self.shared.state.lock();
        while state.error.is_none() && (state.is_writing || !state.waiting.is_empty()) {
            self.shared.changed.wait(&mut state);
        }
        state.check()?;
        drop(state);
        (self.shared.in_operation)(&mut || self.shared.pool.store().flush())
    }

    /// Runs a function as an operation.
    pub fn in_operation(&self, f: &mut dyn FnMut() -> Result<()>) -> Result<()> {
        (self.shared.in_operation)(f)
    }
}

impl State {
    fn check(&self) -> Result<()> {
        self.error.clone().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut state = self.state.lock();
            while state.waiting.is_empty() {
                if state.is_over {
                    return;
                }
                self.changed.wait(&mut state);
            }
            let count = state.waiting.len().min(BATCHES_AT_A_TIME);
            let mut batches: Vec<PageBatch> = state.waiting.drain(..count).collect();
            state.is_writing = true;
            drop(state);
            self.changed.notify_all();
            let written = (self.in_operation)(&mut || self.write_all(&mut batches));
            let mut state = self.state.lock();
            state.is_writing = false;
            match written {
                Ok(()) => state.spare.extend(batches),
                Err(error) => {
                    state.waiting.clear();
                    state.error.get_or_insert(error);
                }
            }
            self.changed.notify_all();
        }
    }

    fn write_all(&self, batches: &mut [PageBatch]) -> Result<()> {
        self.pool.check_poison()?;
        let store = self.pool.store();
        let mut writes = Vec::with_capacity(batches.len());
        for batch in &mut *batches {
            batch.seal();
            writes.push(store.write_unnamed(batch));
        }
        // All are waited for, also after an error: no write may be under way when the pages are stored again.
        let waited: Vec<Result<()>> = writes.into_iter().map(|writes| writes?.wait()).collect();
        waited.into_iter().collect::<Result<()>>()?;
        for batch in batches {
            // A read by an old page number may have brought in what was stored before.
            for page in batch.ids() {
                while !self.pool.discard_clean(*page) {
                    tantalum_rt::yield_now();
                }
            }
            batch.clear();
        }
        Ok(())
    }
}

impl Drop for PageWriter {
    fn drop(&mut self) {
        {
            let mut state = self.shared.state.lock();
            state.is_over = true;
            state.waiting.clear();
            state.error.get_or_insert_with(|| Error::new(ErrorKind::Aborted, "the load was given up"));
            self.shared.changed.notify_all();
        }
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tracing::error!("the task that writes the pages of a load panicked");
        }
    }
}

impl fmt::Debug for PageWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWriter").finish_non_exhaustive()
    }
}
