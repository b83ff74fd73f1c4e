//! What writes to a [`Table`]: in its transaction, or in one of its own, which is durable when the call returns.

use pyo3::{
    prelude::*,
    types::{PyAny, PyBytes},
};

use crate::{
    arguments::{BytesLike, Keys},
    table::{Table, bytes_or_none, key_error},
};

#[pymethods]
impl Table {
    fn __setitem__(&self, py: Python<'_>, key: BytesLike<'_>, value: BytesLike<'_>) -> PyResult<()> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.write(py, |transaction, table| transaction.put(table, key, value))
    }

    fn __delitem__(&self, py: Python<'_>, key: BytesLike<'_>) -> PyResult<()> {
        match self.delete(py, key.clone())? {
            true => Ok(()),
            false => Err(key_error(py, &key)),
        }
    }

    /// Deletes a key. Returns whether it was there.
    fn delete(&self, py: Python<'_>, key: BytesLike<'_>) -> PyResult<bool> {
        let key = key.as_bytes();
        self.write(py, |transaction, table| transaction.delete(table, key))
    }

    /// Sets the value of a key that is not there; raises AlreadyExists if it is.
    fn insert(&self, py: Python<'_>, key: BytesLike<'_>, value: BytesLike<'_>) -> PyResult<()> {
        let (key, value) = (key.as_bytes(), value.as_bytes());
        self.write(py, |transaction, table| transaction.insert(table, key, value))
    }

    /// Sets the value of a key unless it has one. Returns the value that it then has.
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'py>,
        default: BytesLike<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (key, value) = (key.as_bytes(), default.as_bytes());
        let before = self.write(py, |transaction, table| {
            let before = transaction.get_for_update(table, key)?;
            if before.is_none() {
                transaction.put(table, key, value)?;
            }
            Ok(before)
        })?;
        Ok(bytes_or_none(py, before).unwrap_or_else(|| PyBytes::new(py, value)))
    }

    /// Deletes a key and returns the value that it had. If it is not there, returns the default, or raises KeyError without one.
    #[pyo3(signature = (key, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'py>,
        default: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bytes = key.as_bytes();
        let before = self.write(py, |transaction, table| {
            let before = transaction.get_for_update(table, bytes)?;
            if before.is_some() {
                transaction.delete(table, bytes)?;
            }
            Ok(before)
        })?;
        let before = bytes_or_none(py, before).map(Bound::into_any);
        before.or_else(|| default.into_iter().next()).ok_or_else(|| key_error(py, &key))
    }

    /// Sets the values of keys, from what has `items`, such as a dict or a table, or from pairs of a key and a value: all of them, or
    /// none.
    fn update(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = match rows.getattr_opt("items")? {
            Some(items) => items.call0()?.try_iter()?,
            None => rows.try_iter()?,
        };
        let rows = rows.map(|row| row?.extract()).collect::<PyResult<Vec<(BytesLike<'_>, BytesLike<'_>)>>>()?;
        let rows = rows.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect::<Vec<_>>();
        self.write(py, |transaction, table| rows.iter().try_for_each(|(key, value)| transaction.put(table, key, value)))
    }

    /// Deletes the rows of a range, as `items` takes it, and returns how many there were. A range must be given; `clear` deletes all.
    #[pyo3(signature = (*, prefix=None, start=None, end=None))]
    fn delete_range(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike<'_>>,
        start: Option<BytesLike<'_>>,
        end: Option<BytesLike<'_>>,
    ) -> PyResult<u64> {
        if prefix.is_none() && start.is_none() && end.is_none() {
            let what = "delete_range takes a prefix, a start or an end; use clear to delete all rows";
            return Err(pyo3::exceptions::PyTypeError::new_err(what));
        }
        let keys = Keys::new(prefix, start, end);
        self.write(py, |transaction, table| transaction.delete_range(table, keys.clone()))
    }

    /// Deletes all rows, and returns how many there were.
    fn clear(&self, py: Python<'_>) -> PyResult<u64> {
        self.write(py, |transaction, table| transaction.delete_range(table, ..))
    }

    /// Sets the value of a key to `new` if it is `expected`, and returns whether it was; None stands for a key that is not there.
    fn compare_and_swap(
        &self,
        py: Python<'_>,
        key: BytesLike<'_>,
        expected: Option<BytesLike<'_>>,
        new: Option<BytesLike<'_>>,
    ) -> PyResult<bool> {
        let (key, expected, new) =
            (key.as_bytes(), expected.as_ref().map(BytesLike::as_bytes), new.as_ref().map(BytesLike::as_bytes));
        self.write(py, |transaction, table| transaction.compare_and_swap(table, key, expected, new))
    }

    /// Adds to the number that a key has as its value, and returns the sum. A key that is not there counts as 0. The value has eight
    /// bytes: int.from_bytes(value, "little", signed=True).
    #[pyo3(signature = (key, by=1))]
    fn increment(&self, py: Python<'_>, key: BytesLike<'_>, by: i64) -> PyResult<i64> {
        let key = key.as_bytes();
        self.write(py, |transaction, table| transaction.increment(table, key, by))
    }
}
