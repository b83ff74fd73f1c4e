//! [`Database`]: opening and closing, tables, transactions, maintenance.

use std::{mem, path::PathBuf};

use pyo3::{
    exceptions::PyTypeError,
    prelude::*,
    types::{PyAny, PyDict},
};
use serde::Serialize;
use tantalum::{Db, Isolation, TransactOptions};

use crate::{
    arguments::{BytesLike, isolation, with_settings},
    errors::{OrRaise, from_exception, refusal},
    handle::Handle,
    snapshot::Snapshot,
    table::{Table, Through},
    transaction::Transaction,
};

/// The handle is kept when the database is closed: the engine then says so to every caller.
const OVER: &str = "the database was closed; open it again";

/// So many rows of a bulk load are taken from Python at a time.
const LOADED_AT_A_TIME: usize = 512;

/// An open database, made by `open`: a directory with tables. Threads may share it.
///
/// Used in a `with` block, it is closed at its end.
#[pyclass(frozen, weakref, module = "tantalum_db")]
pub struct Database {
    handle: Handle<Db>,
    path: PathBuf,
}

/// Opens the database in the directory `path`, or creates it.
///
/// Settings have the names and meanings that they have in the file tantalum.toml of the directory, which is read first:
/// `buffer_pool_bytes=256 << 20`. SETTINGS lists them.
#[pyfunction]
#[pyo3(signature = (path, *, create=true, read_only=false, **settings))]
pub fn open_database(
    py: Python<'_>,
    path: PathBuf,
    create: bool,
    read_only: bool,
    settings: Option<&Bound<'_, PyDict>>,
) -> PyResult<Database> {
    let builder = with_settings(Db::builder().create_if_missing(create).read_only(read_only), settings)?;
    let db = py.detach(|| builder.open(&path)).or_raise(py)?;
    Ok(Database { handle: Handle::new(db), path })
}

impl Database {
    /// What it is in the engine.
    #[inline]
    pub fn engine(&self, py: Python<'_>) -> PyResult<&Db> {
        self.handle.get(py, OVER)
    }

    pub fn open_table(&self, py: Python<'_>, name: &str, create: bool) -> PyResult<tantalum::Table> {
        let db = self.engine(py)?;
        py.detach(|| if create { db.table(name) } else { db.open_table(name) }).or_raise(py)
    }
}

#[pymethods]
impl Database {
    /// The directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The table of that name: reads show what is committed, and each write is a transaction of its own, durable when it returns.
    ///
    /// A table that is missing is created; with create=False, NotFound is raised.
    #[pyo3(signature = (name, *, create=true))]
    fn table(slf: &Bound<'_, Self>, name: &str, create: bool) -> PyResult<Table> {
        let table = slf.get().open_table(slf.py(), name, create)?;
        Ok(Table::new(Through::Database(slf.clone().unbind()), table))
    }

    fn __getitem__(slf: &Bound<'_, Self>, name: &str) -> PyResult<Table> {
        Self::table(slf, name, true)
    }

    /// The names of all tables, in order.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let db = self.engine(py)?;
        py.detach(|| db.tables()).or_raise(py)
    }

    /// Drops a table and everything in it, durably.
    ///
    /// Raises InUse while a transaction or snapshot that has used the table is alive; an iterator over its rows is one.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let db = self.engine(py)?;
        py.detach(|| db.drop_table(name)).or_raise(py)
    }

    /// Begins a transaction, to be used in a `with` block: its end commits it, an exception rolls it back.
    ///
    /// Isolation: "serializable" or "snapshot-isolation"; by default what the setting `isolation` says.
    #[pyo3(signature = (*, isolation=None))]
    fn transaction(slf: &Bound<'_, Self>, isolation: Option<&str>) -> PyResult<Transaction> {
        let (py, isolation) = (slf.py(), self::isolation(slf.py(), isolation)?);
        let db = slf.get().engine(py)?;
        let begun = py.detach(|| isolation.map_or_else(|| db.begin(), |isolation| db.begin_with(isolation)));
        Ok(Transaction::new(begun.or_raise(py)?, slf.clone().unbind()))
    }

    /// Calls the function with a transaction, commits that, and returns what the function returned, when it is durable.
    ///
    /// If the transaction loses against others (Conflict), the function is called again with a new one, after a short random pause,
    /// `tries` times at most; so it should change nothing else that it must not change several times. An exception in it rolls the
    /// transaction back and is raised.
    #[pyo3(signature = (function, *, tries=32, isolation=None))]
    fn transact(
        slf: &Bound<'_, Self>,
        function: Py<PyAny>,
        tries: u32,
        isolation: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        let (py, isolation) = (slf.py(), self::isolation(slf.py(), isolation)?);
        let options = TransactOptions::default().tries(tries);
        let options = isolation.into_iter().fold(options, TransactOptions::isolation);
        let db = slf.get().engine(py)?;
        let database = slf.clone().unbind();
        let call = |transaction: &mut tantalum::Transaction| {
            Python::attach(|py| lend(py, db, &database, transaction, &function))
        };
        py.detach(|| db.transact_with(options, call)).or_raise(py)
    }

    /// A view of everything that is committed now.
    fn snapshot(slf: &Bound<'_, Self>) -> PyResult<Snapshot> {
        Snapshot::of(slf)
    }

    /// Loads rows, pairs of a key and a value, into a table that is new or empty: the quickest way to fill one. All of them are there
    /// when it returns, or none.
    ///
    /// The rows come in the ascending order of their keys, each key once. Meanwhile the table is in use. Returns a dict: `rows`,
    /// `row_bytes`, `pages`.
    fn bulk_load<'py>(&self, py: Python<'py>, table: &str, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.engine(py)?;
        let mut rows = rows.try_iter()?;
        let mut load = py.detach(|| db.begin_bulk_load(table)).or_raise(py)?;
        // Dropping it waits for pages that are being written.
        let loaded = (|| loop {
            let batch = rows.by_ref().take(LOADED_AT_A_TIME).map(|row| row?.extract());
            let batch = batch.collect::<PyResult<Vec<(BytesLike<'_>, BytesLike<'_>)>>>()?;
            if batch.is_empty() {
                return Ok(());
            }
            let slices = batch.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect::<Vec<_>>();
            py.detach(|| slices.into_iter().try_for_each(|(key, value)| load.add(key, value))).or_raise(py)?;
        })();
        if let Err(error) = loaded {
            py.detach(|| drop(load));
            return Err(error);
        }
        let report = py.detach(|| load.finish()).or_raise(py)?;
        as_dict(py, &report)
    }

    /// Writes a copy of the database, as of now, into the new directory `path`, while transactions go on.
    fn backup(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let db = self.engine(py)?;
        py.detach(|| db.backup(path)).or_raise(py)
    }

    /// Reads every page and checks that the database is sound. Returns a dict; its list `problems` is empty if all is well.
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.engine(py)?;
        let report = py.detach(|| db.check()).or_raise(py)?;
        as_dict(py, &report)
    }

    /// What the database is, and counters since it was opened, as a dict.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.engine(py)?;
        let stats = py.detach(|| db.stats()).or_raise(py)?;
        as_dict(py, &stats)
    }

    /// Gives the space back that the database does not need. Transactions go on. Returns a dict with what was done.
    fn compact<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let db = self.engine(py)?;
        let report = py.detach(|| db.compact(&mut |_| {})).or_raise(py)?;
        as_dict(py, &report)
    }

    /// Stores everything that was committed before the call in the data file, so that the next open has nothing to recover of it.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.engine(py)?;
        py.detach(|| db.checkpoint()).or_raise(py)
    }

    /// Closes the database for all its tables, transactions and snapshots. Closing twice does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let db = self.engine(py)?.clone();
        py.detach(|| db.close()).or_raise(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[expect(unused_variables, reason = "Python gives them")]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<tantalum_db.Database {:?}>", self.path)
    }
}

/// Calls a function of Python with a transaction that the engine has lent: as an object, which has it until the function returns.
fn lend(
    py: Python<'_>,
    db: &Db,
    database: &Py<Database>,
    lent: &mut tantalum::Transaction,
    function: &Py<PyAny>,
) -> tantalum::Result<Py<PyAny>> {
    // The engine has this one meanwhile. It writes nothing, so its commit does nothing if the function ends the lent one itself.
    let empty = db.begin_with(Isolation::Serializable)?;
    let object = Transaction::new(mem::replace(lent, empty), database.clone_ref(py));
    let called = Bound::new(py, object).and_then(|object| {
        let returned = function.call1(py, (&object,));
        let mut object = Transaction::borrow(&object)?;
        if let Ok(inner) = object.take(py) {
            *lent = inner;
        }
        returned
    });
    let returned = called.map_err(|raised| from_exception(py, raised))?;
    if returned.bind(py).hasattr("__await__").unwrap_or(false) {
        let what = "transact calls a function, and does not await it: use `async with db.transaction()`, or call transact in a thread";
        return Err(from_exception(py, PyTypeError::new_err(what)));
    }
    Ok(returned)
}

/// What is documented as JSON (docs/use/json.md), as a dict.
fn as_dict<'py>(py: Python<'py>, report: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(report).map_err(|error| refusal(py, "Error", &error.to_string()))?;
    py.import("json")?.call_method1("loads", (text,))
}
