//! [`Ticket`]: a commit on its way, for threads and for tasks of `asyncio`.

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{exceptions::PyStopIteration, prelude::*, sync::PyOnceLock};
use tantalum::Commit;

use crate::{errors::OrRaise, handle::Handle};

/// A ticket holds its commit for good.
const OVER: &str = "the ticket is over";

/// A commit on its way to the devices, made by `Transaction.commit_async`.
///
/// `wait` blocks until it is durable, `await` does so without blocking the event loop. Both return the commit's place in the log, or
/// None for a transaction that wrote nothing. A ticket that is dropped does not take its commit back.
#[pyclass(frozen, module = "tantalum_db")]
pub struct Ticket {
    handle: Handle<tantalum::Ticket>,
}

impl Ticket {
    pub fn new(ticket: tantalum::Ticket) -> Self {
        Self { handle: Handle::new(ticket) }
    }
}

#[pymethods]
impl Ticket {
    /// Blocks until the commit is durable, and returns its place in the log.
    ///
    /// Raises OutcomeUnknown when the log failed.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        let ticket = self.handle.get(py, OVER)?.clone();
        Ok(py.detach(|| ticket.wait()).or_raise(py)?.position())
    }

    /// Whether the outcome is known, so that `wait` does not block.
    #[getter]
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let ticket = self.handle.get(py, OVER)?;
        Ok(py.detach(|| ticket.try_wait().is_some()))
    }

    /// The commit's place in the log, also before it is durable: of two transactions that wrote, the one with the lower place comes
    /// first in the serial order. None for one that wrote nothing.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.handle.get(py, OVER)?.position())
    }

    fn __await__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let ticket = self.handle.get(py, OVER)?.clone();
        if let Some(outcome) = ticket.try_wait() {
            let position = outcome.or_raise(py)?.position().into_pyobject(py)?;
            return Ok(Bound::new(py, Ready { value: Some(position.unbind()) })?.into_any());
        }
        let event_loop = py.import("asyncio")?.call_method0("get_running_loop")?;
        let future = event_loop.call_method0("create_future")?;
        let outcomes = Outcomes::of(&event_loop)?;
        let settle = Settle {
            known: Arc::clone(&outcomes.get().known),
            event_loop: event_loop.unbind(),
            future: future.clone().unbind(),
            outcomes: outcomes.unbind(),
        };
        py.detach(|| ticket.on_durable(move |outcome| settle.soon(outcome)));
        future.call_method0("__await__")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<tantalum_db.Ticket {}>", if self.done(py)? { "done" } else { "on its way" }))
    }
}

/// Futures whose outcome is known.
type Known = Arc<Mutex<Vec<(Py<PyAny>, tantalum::Result<Commit>)>>>;

/// The outcomes of commits that tasks of one event loop await, until the loop takes them. The loop is woken for the first of them only, so
/// that what tells of commits need not wait for the interpreter at each.
#[pyclass(frozen, weakref, module = "tantalum_db._engine")]
#[derive(Default)]
struct Outcomes {
    known: Known,
}

#[pymethods]
impl Outcomes {
    /// Gives the outcomes to their futures. Runs in the event loop.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        for (future, outcome) in take(&self.known) {
            // The task that awaits may have been cancelled.
            if future.call_method0(py, "done")?.is_truthy(py)? {
                continue;
            }
            match outcome.or_raise(py) {
                Ok(commit) => future.call_method1(py, "set_result", (commit.position(),))?,
                Err(error) => future.call_method1(py, "set_exception", (error,))?,
            };
        }
        Ok(())
    }
}

impl Outcomes {
    /// Those of an event loop, which goes before them.
    fn of<'py>(event_loop: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Self>> {
        static BY_LOOP: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let py = event_loop.py();
        let make = || py.import("weakref")?.call_method0("WeakKeyDictionary").map(Bound::unbind);
        let by_loop = BY_LOOP.get_or_try_init(py, make)?.bind(py);
        let found = by_loop.call_method1("get", (event_loop,))?;
        if !found.is_none() {
            return Ok(found.cast_into()?);
        }
        let outcomes = Bound::new(py, Self::default())?;
        by_loop.set_item(event_loop, &outcomes)?;
        Ok(outcomes)
    }
}

fn take<T>(queue: &Mutex<Vec<T>>) -> Vec<T> {
    mem::take(&mut *queue.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Has the outcome of a commit given to a future of an event loop.
struct Settle {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
    outcomes: Py<Outcomes>,
    known: Known,
}

impl Settle {
    /// Called by the task of the database that tells of commits.
    fn soon(self, outcome: tantalum::Result<Commit>) {
        let Self { event_loop, future, outcomes, known } = self;
        let is_first = {
            let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
            known.push((future, outcome));
            known.len() == 1
        };
        if !is_first {
            return;
        }
        let woken = Python::try_attach(|py| {
            let settle = outcomes.getattr(py, "settle")?;
            event_loop.call_method1(py, "call_soon_threadsafe", (settle,))
        });
        // The loop is closed, or there is no interpreter any more: nothing awaits these commits.
        if !matches!(woken, Some(Ok(_))) {
            drop(take(&known));
        }
    }
}

/// What is awaited without waiting.
#[pyclass(module = "tantalum_db._engine")]
pub struct Ready {
    pub value: Option<Py<PyAny>>,
}

#[pymethods]
impl Ready {
    fn __await__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&mut self) -> PyResult<()> {
        Err(PyStopIteration::new_err((self.value.take(),)))
    }
}
