//! [`Snapshot`]: the state of one moment.

use std::sync::Arc;

use pyo3::{prelude::*, types::PyAny};

use crate::{
    database::Database,
    errors::{OrRaise, refusal},
    handle::Handle,
    table::{Table, Through},
};

const OVER: &str = "the snapshot was closed; take another";

/// A read-only view of everything that was committed when it was made by `Database.snapshot`.
///
/// It takes no locks, and several threads may read from it. While it lives, the old row versions that it sees are kept: close it, or use
/// it in a `with` block.
#[pyclass(module = "tantalum_db")]
pub struct Snapshot {
    handle: Handle<Arc<tantalum::Snapshot>>,
    database: Py<Database>,
}

impl Snapshot {
    /// The state of the database now.
    pub fn of(database: &Bound<'_, Database>) -> PyResult<Self> {
        let py = database.py();
        let db = database.get().engine(py)?;
        let snapshot = py.detach(|| db.snapshot()).or_raise(py)?;
        Ok(Self { handle: Handle::new(Arc::new(snapshot)), database: database.clone().unbind() })
    }

    /// What reads take, which outlives a call that closes the snapshot meanwhile.
    pub fn shared(slf: &Bound<'_, Self>) -> PyResult<Arc<tantalum::Snapshot>> {
        let py = slf.py();
        let borrowed = slf.try_borrow().map_err(|_| refusal(py, "InUse", "the snapshot is being closed"))?;
        borrowed.handle.get(py, OVER).cloned()
    }
}

#[pymethods]
impl Snapshot {
    /// The table of that name, which must be there, as it was at that moment.
    fn table(slf: &Bound<'_, Self>, name: &str) -> PyResult<Table> {
        Self::shared(slf)?;
        let table = slf.borrow().database.get().open_table(slf.py(), name, false)?;
        Ok(Table::new(Through::Snapshot(slf.clone().unbind()), table))
    }

    fn __getitem__(slf: &Bound<'_, Self>, name: &str) -> PyResult<Table> {
        Self::table(slf, name)
    }

    /// Lets go of what it sees. Closing twice does nothing.
    fn close(&mut self) {
        self.handle.release();
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __exit__(&mut self, _type: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>, _traceback: &Bound<'_, PyAny>) {
        self.close();
    }

    fn __repr__(&self) -> &'static str {
        if self.handle.is_over() { "<tantalum_db.Snapshot closed>" } else { "<tantalum_db.Snapshot>" }
    }
}
