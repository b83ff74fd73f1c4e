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
            state.is_writing = true;
            drop(state);
            let written = (self.in_operation)(&mut || self.write_waiting());
            let mut state = self.state.lock();
            state.is_writing = false;
            if let Err(error) = written {
                state.waiting.clear();
                state.error.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }

    /// Writes what waits, and what comes meanwhile.
    fn write_waiting(&self) -> Result<()> {
        let mut under_way = VecDeque::new();
        let mut result = Ok(());
        loop {
            let next = if result.is_ok() && under_way.len() < BATCHES_AT_A_TIME { self.next() } else { None };
            if let Some(mut batch) = next {
                // A database that is being closed waits for this, but not for all that is to come.
                result = (self.in_operation)(&mut || self.pool.check_poison());
                if result.is_ok() {
                    batch.seal();
                    let writes = self.pool.store().write_unnamed(&batch);
                    under_way.push_back((batch, writes));
                }
            } else if let Some((batch, writes)) = under_way.pop_front() {
                // All are waited for, also after an error: no write may be under way when the pages are stored again.
                let written = writes.and_then(|mut writes| writes.wait());
                result = result.and(written.map(|()| self.put_away(batch)));
            } else {
                return result;
            }
        }
    }

    fn next(&self) -> Option<PageBatch> {
        let next = self.state.lock().waiting.pop_front();
        if next.is_some() {
            self.changed.notify_all();
        }
        next
    }

    /// The pages of a batch are written.
    fn put_away(&self, mut batch: PageBatch) {
        // A read by an old page number may have brought in what was stored before.
        for page in batch.ids() {
            while !self.pool.discard_clean(*page) {
                tantalum_rt::yield_now();
            }
        }
        batch.clear();
        self.state.lock().spare.push(batch);
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
            tantalum_rt::tracing::error!("the task that writes the pages of a load panicked");
        }
    }
}

impl fmt::Debug for PageWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageWriter").finish_non_exhaustive()
    }
}
