//! [`ValueBytes`]: a value of the engine as memory that Python reads where it is, behind a `memoryview`.

use std::ffi::c_int;

use pyo3::{exceptions::PyBufferError, ffi, prelude::*, types::PyMemoryView};
use tantalum::Value;

/// The bytes of a value. The engine never changes them, and they live as long as this object.
#[pyclass(frozen, module = "tantalum_db._engine")]
struct ValueBytes {
    value: Value,
}

#[pymethods]
impl ValueBytes {
    #[expect(unsafe_code, reason = "the buffer protocol consists of pointers")]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("there is no view to fill"));
        }
        let bytes: &[u8] = &slf.get().value;
        // A slice is at most isize::MAX bytes long.
        let (start, length) = (bytes.as_ptr().cast_mut().cast(), bytes.len() as ffi::Py_ssize_t);
        // SAFETY: `view` is Python's to be filled. The bytes are those of a `Value` in a frozen object, which nothing moves or changes;
        // the view, which is read-only, gets a reference to that object, and so they live as long as it. Where the request is refused,
        // an exception is set.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A view of a value, without a copy.
pub fn view(py: Python<'_>, value: Value) -> PyResult<Bound<'_, PyMemoryView>> {
    PyMemoryView::from(Bound::new(py, ValueBytes { value })?.as_any())
}
