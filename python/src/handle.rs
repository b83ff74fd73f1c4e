//! [`Handle`]: what Python objects hold of the engine.
//!
//! Invariants: a process that was forked does not use, and does not drop, what its parent had opened, since it has neither the parent's
//! threads nor its locks; and nothing of the engine is dropped while the thread is attached to the interpreter, because closing a database
//! waits for a task that may be about to call Python.

use std::{
    mem,
    sync::atomic::{AtomicU32, Ordering},
};

use pyo3::prelude::*;

use crate::errors::refusal;

/// How often this process, or one that it was forked from, was forked: the last fork's child is in the next generation.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Called by Python in the child of a fork.
#[pyfunction]
fn after_fork_in_child() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Has Python tell of forks.
pub fn watch_forks(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let arguments = pyo3::types::PyDict::new(py);
    arguments.set_item("after_in_child", wrap_pyfunction!(after_fork_in_child, module)?)?;
    py.import("os")?.call_method("register_at_fork", (), Some(&arguments)).map(drop)
}

/// Something of the engine, of the process that made it.
pub struct Handle<T: Send> {
    /// `None` once it was taken out.
    inner: Option<T>,
    generation: u32,
}

impl<T: Send> Handle<T> {
    pub fn new(inner: T) -> Self {
        Self { inner: Some(inner), generation: GENERATION.load(Ordering::Relaxed) }
    }

    fn is_of_this_process(&self) -> bool {
        self.generation == GENERATION.load(Ordering::Relaxed)
    }

    fn check(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_of_this_process() {
            return Ok(());
        }
        let what = "the database was opened before this process was forked, and belongs to the parent process; open databases after the \
                    fork, or start processes with the method \"spawn\"";
        Err(refusal(py, "Forked", what))
    }

    /// What it holds.
    ///
    /// # Errors
    /// `Forked`; `Closed`, with this message, once it was taken out.
    #[inline]
    pub fn get(&self, py: Python<'_>, over: &str) -> PyResult<&T> {
        self.check(py)?;
        self.inner.as_ref().ok_or_else(|| refusal(py, "Closed", over))
    }

    /// As [`get`](Self::get).
    #[inline]
    pub fn get_mut(&mut self, py: Python<'_>, over: &str) -> PyResult<&mut T> {
        self.check(py)?;
        self.inner.as_mut().ok_or_else(|| refusal(py, "Closed", over))
    }

    /// Takes out what it holds.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn take(&mut self, py: Python<'_>, over: &str) -> PyResult<T> {
        self.check(py)?;
        self.inner.take().ok_or_else(|| refusal(py, "Closed", over))
    }

    /// Whether it was taken out.
    pub fn is_over(&self) -> bool {
        self.inner.is_none()
    }

    /// Lets go of what it holds.
    pub fn release(&mut self) {
        let Some(inner) = self.inner.take() else { return };
        if !self.is_of_this_process() {
            return mem::forget(inner);
        }
        let mut inner = Some(inner);
        // Where there is no interpreter any more, no thread is attached to it.
        Python::try_attach(|py| py.detach(|| drop(inner.take())));
    }
}

impl<T: Send> Drop for Handle<T> {
    fn drop(&mut self) {
        self.release();
    }
}
