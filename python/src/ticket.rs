//! [`Ticket`]: a commit on its way, for threads and for tasks of `asyncio`.

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
        let settle = Settle { event_loop: event_loop.unbind(), future: future.clone().unbind() };
        py.detach(|| ticket.on_durable(move |outcome| settle.soon(outcome)));
        future.call_method0("__await__")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("<tantalum_db.Ticket {}>", if self.done(py)? { "done" } else { "on its way" }))
    }
}

/// Has the outcome of a commit given to a future of an event loop.
struct Settle {
    event_loop: Py<PyAny>,
    future: Py<PyAny>,
}

impl Settle {
    /// Called by the task of the database that tells of commits.
    fn soon(self, outcome: tantalum::Result<Commit>) {
        // Where there is no interpreter any more, or the loop is closed, nothing awaits the commit.
        Python::try_attach(|py| {
            let settle = settle_function(py)?;
            let (position, error) = match outcome.or_raise(py) {
                Ok(commit) => (commit.position(), None),
                Err(error) => (None, Some(error)),
            };
            let arguments = (settle, self.future, position, error);
            self.event_loop.call_method1(py, "call_soon_threadsafe", arguments)
        });
    }
}

fn settle_function(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FUNCTION: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let function =
        FUNCTION.get_or_try_init(py, || wrap_pyfunction!(settle, py).map(|made| made.into_any().unbind()))?;
    Ok(function.bind(py))
}

/// Runs in the event loop.
#[pyfunction]
fn settle(future: &Bound<'_, PyAny>, position: Option<u64>, error: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    // The task that awaits may have been cancelled.
    if future.call_method0("done")?.is_truthy()? {
        return Ok(());
    }
    match error {
        Some(error) => future.call_method1("set_exception", (error,)),
        None => future.call_method1("set_result", (position,)),
    }
    .map(drop)
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
