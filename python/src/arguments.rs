//! What calls take: bytes, ranges of keys, settings.

use std::ops;

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyBool, PyBytes, PyDict, PyInt, PyList, PyMemoryView, PyString, PyTuple},
};
use tantalum::{Builder, Isolation, KeyRange, Prefix};

use crate::errors::{OrRaise, refusal};

/// A key or a value. `bytes` are read where they are, which nothing changes; of what else has the buffer protocol a copy is made, since
/// other threads may write to it.
#[derive(Clone)]
pub struct BytesLike<'py>(Bound<'py, PyBytes>);

impl BytesLike<'_> {
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl<'py> FromPyObject<'_, 'py> for BytesLike<'py> {
    type Error = PyErr;

    #[inline]
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self(bytes.to_owned())),
            Err(_) => copy_of(&object),
        }
    }
}

#[cold]
fn copy_of<'py>(object: &Bound<'py, PyAny>) -> PyResult<BytesLike<'py>> {
    if object.is_instance_of::<PyString>() {
        let what = "keys and values are bytes, not str; encode it, as in key.encode()";
        return Err(PyTypeError::new_err(what));
    }
    let Ok(view) = PyMemoryView::from(object) else {
        let what = format!("keys and values are bytes, or have the buffer protocol; not {}", object.get_type().name()?);
        return Err(PyTypeError::new_err(what));
    };
    Ok(BytesLike(view.call_method0("tobytes")?.cast_into()?))
}

/// A range of keys that the engine and iterators take.
#[derive(Clone)]
pub struct Keys {
    pub lower: ops::Bound<Vec<u8>>,
    pub upper: ops::Bound<Vec<u8>>,
}

impl Keys {
    /// The keys that have the prefix, and are at or above `start` and below `end`.
    pub fn new(prefix: Option<BytesLike<'_>>, start: Option<BytesLike<'_>>, end: Option<BytesLike<'_>>) -> Self {
        let (mut lower, mut upper) = match prefix {
            Some(prefix) => Prefix(prefix.as_bytes()).into_bounds(),
            None => (ops::Bound::Unbounded, ops::Bound::Unbounded),
        };
        if let Some(start) = start.as_ref().map(BytesLike::as_bytes)
            && !matches!(&lower, ops::Bound::Included(at) if **at >= *start)
        {
            lower = ops::Bound::Included(start.to_vec());
        }
        if let Some(end) = end.as_ref().map(BytesLike::as_bytes)
            && !matches!(&upper, ops::Bound::Excluded(at) if **at <= *end)
        {
            upper = ops::Bound::Excluded(end.to_vec());
        }
        Self { lower, upper }
    }
}

impl KeyRange for Keys {
    fn into_bounds(self) -> (ops::Bound<Vec<u8>>, ops::Bound<Vec<u8>>) {
        (self.lower, self.upper)
    }
}

/// An isolation by its name.
pub fn isolation(py: Python<'_>, name: Option<&str>) -> PyResult<Option<Isolation>> {
    match name {
        None => Ok(None),
        Some("serializable") => Ok(Some(Isolation::Serializable)),
        Some("snapshot-isolation") => Ok(Some(Isolation::SnapshotIsolation)),
        Some(other) => {
            let what = format!("isolation cannot be {other:?}; it is \"serializable\" or \"snapshot-isolation\"");
            Err(refusal(py, "InvalidInput", &what))
        }
    }
}

/// The builder with these settings, by the names that they have in `tantalum.toml`.
pub fn with_settings(mut builder: Builder, settings: Option<&Bound<'_, PyDict>>) -> PyResult<Builder> {
    let Some(settings) = settings else { return Ok(builder) };
    for (name, value) in settings {
        let name = name.extract::<String>()?;
        let values = match (value.cast::<PyList>(), value.cast::<PyTuple>()) {
            (Ok(list), _) => list.iter().collect(),
            (_, Ok(tuple)) => tuple.iter().collect(),
            _ => vec![value],
        };
        for value in values {
            builder = builder.set(&name, &text_of(&name, &value)?).or_raise(value.py())?;
        }
    }
    Ok(builder)
}

/// A value of a setting as a command line has it.
fn text_of(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(flag.is_true().to_string());
    }
    if value.is_instance_of::<PyInt>() {
        return Ok(value.str()?.to_string());
    }
    let path = value.py().import("os")?.call_method1("fspath", (value,));
    path.and_then(|path| path.extract()).map_err(|_| {
        let what = format!("the setting {name} is an int, a bool, a str, a path, or a list of paths");
        PyTypeError::new_err(what)
    })
}
