//! The module `tantalum_db._engine`: the engine's API for Python. `tantalum_db/__init__.py` exports it.
//!
//! Every call that may wait, for a lock, a page or the log, lets other threads of Python run meanwhile. What a call takes is copied out
//! of Python's memory, or cannot change (`arguments.rs`); what it returns is Python's own, but for the views of `view.rs`.

mod arguments;
mod database;
mod errors;
mod handle;
mod rows;
mod snapshot;
mod table;
mod ticket;
mod transaction;
mod view;
mod writes;

use pyo3::{prelude::*, types::PyDict};
use tantalum::SETTINGS;

#[pymodule(gil_used = false)]
fn _engine(module: &Bound<'_, PyModule>) -> PyResult<()> {
    handle::watch_forks(module)?;
    module.add_class::<database::Database>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<transaction::Transaction>()?;
    module.add_class::<transaction::Savepoint>()?;
    module.add_class::<snapshot::Snapshot>()?;
    module.add_class::<ticket::Ticket>()?;
    module.add_function(wrap_pyfunction!(database::open_database, module)?)?;
    let settings = PyDict::new(module.py());
    for setting in SETTINGS {
        settings.set_item(setting.name, format!("{}\nDefault: {}.", setting.help.trim(), setting.default))?;
    }
    module.add("SETTINGS", settings)
}
