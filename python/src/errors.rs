//! Errors of the engine as exceptions of Python, and back: an exception in a function that the engine runs passes through it.
//!
//! The classes are declared in `_errors.py`, which also explains them.

use std::{error::Error as StdError, fmt};

use pyo3::{prelude::*, sync::PyOnceLock, types::PyType};
use tantalum::{Error, ErrorKind};

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// A class of `_errors.py`.
fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyType>> {
    let module = CLASSES.get_or_try_init(py, || py.import("tantalum_db._errors").map(Bound::unbind))?;
    Ok(module.bind(py).getattr(name)?.cast_into()?)
}

/// The class for a kind of errors.
fn class_name(kind: ErrorKind) -> &'static str {
    use ErrorKind::*;
    match kind {
        Deadlock => "Deadlock",
        LockTimeout => "LockTimeout",
        WriteConflict => "WriteConflict",
        SnapshotTooOld => "SnapshotTooOld",
        Aborted => "Aborted",
        NotFound => "NotFound",
        AlreadyExists => "AlreadyExists",
        InUse | Busy => "InUse",
        InvalidInput | OutOfRange => "InvalidInput",
        TooLarge | TransactionTooLarge => "TooLarge",
        ReadOnly => "ReadOnly",
        Unsupported => "Unsupported",
        StoreFull | NoSpace | LogFull | PoolExhausted => "Full",
        Closed => "Closed",
        Missing | Mismatch | Stale | NotAMember | NotArchived | Corrupt | Truncated | Unreadable => "Damaged",
        Io | TimedOut | PowerLost | WritesLost | Poisoned => "DeviceFailed",
        OutcomeUnknown => "OutcomeUnknown",
        _ => "Error",
    }
}

/// The kinds of the class `Conflict`, which a transaction that is run again survives.
const CONFLICTS: [ErrorKind; 4] =
    [ErrorKind::Deadlock, ErrorKind::LockTimeout, ErrorKind::WriteConflict, ErrorKind::SnapshotTooOld];

/// An exception of a class of `_errors.py`.
pub fn exception(py: Python<'_>, class_name: &str, message: &str, kind: &str) -> PyErr {
    match class(py, class_name) {
        Ok(class) => PyErr::from_type(class, (message.to_owned(), kind.to_owned())),
        Err(error) => error,
    }
}

/// An exception that the engine does not know: of the class and kind of this name.
pub fn refusal(py: Python<'_>, class_name: &str, message: &str) -> PyErr {
    exception(py, class_name, message, class_name)
}

/// Results of the engine as those of Python.
pub trait OrRaise<T> {
    /// The result, with the error as an exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for tantalum::Result<T> {
    #[inline]
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| to_exception(py, &error))
    }
}

#[cold]
fn to_exception(py: Python<'_>, error: &Error) -> PyErr {
    if let Some(Raised(raised)) = error.cause::<Raised>()
        && error.kind() == ErrorKind::Application
    {
        return raised.clone_ref(py);
    }
    let exception = exception(py, class_name(error.kind()), &error.to_string(), &format!("{:?}", error.kind()));
    if let Some(Raised(raised)) = error.first_cause().cause::<Raised>() {
        exception.set_cause(py, Some(raised.clone_ref(py)));
    }
    exception
}

/// An exception of Python on its way through the engine.
#[derive(Debug)]
struct Raised(PyErr);

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Raised {}

/// An exception as an error of the engine. A `Conflict` has its kind, so that the transaction is run again.
pub fn from_exception(py: Python<'_>, raised: PyErr) -> Error {
    let kind_of = |name: String| CONFLICTS.into_iter().find(|kind| format!("{kind:?}") == name);
    let is_conflict = class(py, "Conflict").is_ok_and(|class| raised.is_instance(py, &class));
    let kind = match is_conflict {
        true => raised.value(py).getattr("kind").and_then(|kind| kind.extract().map(kind_of)).unwrap_or_default(),
        false => None,
    };
    match kind {
        Some(kind) => Error::new(kind, raised.value(py).to_string()).with_source(Raised(raised)),
        None => Error::application(Raised(raised)),
    }
}
