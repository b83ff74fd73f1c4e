//! [`Table`]: rows as a dict has them, of the database, of a transaction or of a snapshot.

use pyo3::{
    exceptions::PyKeyError,
    prelude::*,
    types::{PyBytes, PyMemoryView},
};
use tantalum::{Error, ErrorKind, Reader, Result as EngineResult, Value};

use crate::{
    arguments::{BytesLike, Keys},
    database::Database,
    errors::{OrRaise, refusal},
    rows::{Order, Part, Rows, Source},
    snapshot::Snapshot,
    transaction::Transaction,
    view::view,
};

/// What a table is read and written through.
pub enum Through {
    Database(Py<Database>),
    Transaction(Py<Transaction>),
    Snapshot(Py<Snapshot>),
}

/// A table that a transaction is asked for.
#[derive(FromPyObject)]
pub enum TableOrName {
    Name(String),
    Table(Py<Table>),
}

impl TableOrName {
    /// The table in the engine; a missing one is created, or not.
    pub fn resolve(self, py: Python<'_>, database: &Database, create: bool) -> PyResult<tantalum::Table> {
        match self {
            Self::Name(name) => database.open_table(py, &name, create),
            Self::Table(table) => Ok(table.get().table.clone()),
        }
    }
}

/// An ordered map from keys to values, both bytes, much as a dict.
///
/// A table of a Database shows what is committed, and each of its writes is a transaction, durable when it returns; one of a Transaction
/// shows and makes that transaction's writes; one of a Snapshot is read only. Keys and values are bytes, or anything with the buffer
/// protocol; values are returned as bytes.
#[pyclass(frozen, module = "tantalum_db")]
pub struct Table {
    through: Through,
    table: tantalum::Table,
}

/// Evaluates an expression that reads, with `$from` as what it reads from, while other threads of Python run.
macro_rules! read {
    ($self:expr, $py:expr, |$from:ident| $read:expr) => {
        match &$self.through {
            Through::Database(database) => {
                let $from = database.get().engine($py)?;
                $py.detach(move || $read)
            }
            Through::Transaction(transaction) => {
                let mut transaction = Transaction::borrow(transaction.bind($py))?;
                let $from = transaction.running($py)?;
                $py.detach(move || $read)
            }
            Through::Snapshot(snapshot) => {
                let snapshot = Snapshot::shared(snapshot.bind($py))?;
                let $from = &*snapshot;
                $py.detach(move || $read)
            }
        }
        .or_raise($py)
    };
}

impl Table {
    pub fn new(through: Through, table: tantalum::Table) -> Self {
        Self { through, table }
    }

    #[inline]
    fn value(&self, py: Python<'_>, key: &BytesLike<'_>) -> PyResult<Option<Value>> {
        let (table, key) = (&self.table, key.as_bytes());
        read!(self, py, |from| from.get(table, key))
    }

    /// Writes: in the transaction, or in one of its own.
    pub fn write<T: Send>(
        &self,
        py: Python<'_>,
        mut write: impl FnMut(&mut tantalum::Transaction, &tantalum::Table) -> EngineResult<T> + Send,
    ) -> PyResult<T> {
        let table = &self.table;
        match &self.through {
            Through::Database(database) => {
                let db = database.get().engine(py)?;
                py.detach(|| db.transact(|transaction| write(transaction, table)))
            }
            Through::Transaction(transaction) => {
                let mut transaction = Transaction::borrow(transaction.bind(py))?;
                let transaction = transaction.changing(py)?;
                py.detach(move || write(transaction, table))
            }
            Through::Snapshot(_) => {
                let what = "a snapshot's table cannot be written to; write to that of the database or of a transaction";
                Err(Error::new(ErrorKind::ReadOnly, what))
            }
        }
        .or_raise(py)
    }

    /// What iterates over rows: in the transaction, or in a snapshot.
    fn source(&self, py: Python<'_>) -> PyResult<Source> {
        match &self.through {
            Through::Database(database) => Ok(Source::Snapshot(Py::new(py, Snapshot::of(database.bind(py))?)?)),
            Through::Transaction(transaction) => {
                Transaction::borrow(transaction.bind(py))?.running(py)?;
                Ok(Source::Transaction(transaction.clone_ref(py)))
            }
            Through::Snapshot(snapshot) => {
                Snapshot::shared(snapshot.bind(py))?;
                Ok(Source::Snapshot(snapshot.clone_ref(py)))
            }
        }
    }

    fn rows(&self, py: Python<'_>, part: Part, range: Range<'_>) -> PyResult<Rows> {
        let Range { prefix, start, end, reverse, limit } = range;
        let order = Order { keys: Keys::new(prefix, start, end), reverse, limit: limit.unwrap_or(usize::MAX) };
        Ok(Rows::new(self.source(py)?, self.table.clone(), part, order))
    }

    fn row_at_an_end<'py>(&self, py: Python<'py>, is_first: bool) -> PyResult<Row<'py>> {
        let table = &self.table;
        let row = read!(self, py, |from| if is_first { from.first(table) } else { from.last(table) })?;
        Ok(row.map(|(key, value)| (PyBytes::new(py, &key), PyBytes::new(py, &value))))
    }
}

type Row<'py> = Option<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>;

/// The arguments of calls that iterate over rows.
struct Range<'py> {
    prefix: Option<BytesLike<'py>>,
    start: Option<BytesLike<'py>>,
    end: Option<BytesLike<'py>>,
    reverse: bool,
    limit: Option<usize>,
}

pub fn bytes_or_none(py: Python<'_>, value: Option<Value>) -> Option<Bound<'_, PyBytes>> {
    value.map(|value| PyBytes::new(py, &value))
}

pub fn key_error(py: Python<'_>, key: &BytesLike<'_>) -> PyErr {
    PyKeyError::new_err((PyBytes::new(py, key.as_bytes()).unbind(),))
}

/// Reads.
#[pymethods]
impl Table {
    /// The table's name.
    #[getter]
    fn name(&self) -> &str {
        self.table.name()
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: BytesLike<'py>) -> PyResult<Bound<'py, PyBytes>> {
        bytes_or_none(py, self.value(py, &key)?).ok_or_else(|| key_error(py, &key))
    }

    fn __contains__(&self, py: Python<'_>, key: BytesLike<'_>) -> PyResult<bool> {
        let (table, key) = (&self.table, key.as_bytes());
        read!(self, py, |from| from.contains(table, key))
    }

    /// The number of rows, which are counted: this reads all keys. See `check` of the database for all tables at once.
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let table = &self.table;
        read!(self, py, |from| count(from, table))
    }

    /// Whether there is a row.
    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        let table = &self.table;
        read!(self, py, |from| Ok(from.range(table, ..)?.next_key().transpose()?.is_some()))
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, false, None)
    }

    fn __reversed__(&self, py: Python<'_>) -> PyResult<Rows> {
        self.keys(py, None, None, None, true, None)
    }

    /// The value of a key, or the default. In a transaction it locks the key for reading; with for_update=True for writing, so that
    /// two transactions that read a key and then write it do not deadlock.
    #[pyo3(signature = (key, default=None, *, for_update=false))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'py>,
        default: Option<Bound<'py, PyAny>>,
        for_update: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let value = match for_update {
            false => self.value(py, &key)?,
            true => {
                let Through::Transaction(transaction) = &self.through else {
                    let what = "for_update locks the key until the transaction ends; use it on a transaction's table";
                    return Err(refusal(py, "InvalidInput", what));
                };
                let mut transaction = Transaction::borrow(transaction.bind(py))?;
                let (from, table, key) = (transaction.running(py)?, &self.table, key.as_bytes());
                py.detach(move || from.get_for_update(table, key)).or_raise(py)?
            }
        };
        Ok(bytes_or_none(py, value).map(Bound::into_any).or(default))
    }

    /// The values of keys, in their order, with None for each that is not there; all of one moment.
    fn get_many<'py>(&self, py: Python<'py>, keys: Vec<BytesLike<'py>>) -> PyResult<Vec<Option<Bound<'py, PyBytes>>>> {
        let (table, keys) = (&self.table, keys.iter().map(BytesLike::as_bytes).collect::<Vec<_>>());
        let values = read!(self, py, |from| from.get_many(table, keys))?;
        Ok(values.into_iter().map(|value| bytes_or_none(py, value)).collect())
    }

    /// A part of a value, as far as it goes: only the pages with it are read. None if the key is not there.
    #[pyo3(signature = (key, start=0, end=None))]
    fn get_range<'py>(
        &self,
        py: Python<'py>,
        key: BytesLike<'py>,
        start: u64,
        end: Option<u64>,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (table, key, end) = (&self.table, key.as_bytes(), end.unwrap_or(u64::MAX).max(start));
        Ok(bytes_or_none(py, read!(self, py, |from| from.get_range(table, key, start..end))?))
    }

    /// The value of a key as a memoryview of the engine's memory, without a copy for Python; None if the key is not there. It stays
    /// what it is, whatever is written later.
    fn view<'py>(&self, py: Python<'py>, key: BytesLike<'py>) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        self.value(py, &key)?.map(|value| view(py, value)).transpose()
    }

    /// The row with the lowest key, a pair, or None.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        self.row_at_an_end(py, true)
    }

    /// The row with the highest key, a pair, or None.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Row<'py>> {
        self.row_at_an_end(py, false)
    }

    /// Iterates over rows, pairs of a key and a value, in the order of the keys: those that have the prefix, are not below `start` and
    /// below `end`; from the end with reverse=True; `limit` rows at most.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, limit=None))]
    fn items(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike<'_>>,
        start: Option<BytesLike<'_>>,
        end: Option<BytesLike<'_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Rows> {
        self.rows(py, Part::Item, Range { prefix, start, end, reverse, limit })
    }

    /// As `items`, the keys alone. Large values are not read.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, limit=None))]
    fn keys(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike<'_>>,
        start: Option<BytesLike<'_>>,
        end: Option<BytesLike<'_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Rows> {
        self.rows(py, Part::Key, Range { prefix, start, end, reverse, limit })
    }

    /// As `items`, the values alone.
    #[pyo3(signature = (*, prefix=None, start=None, end=None, reverse=false, limit=None))]
    fn values(
        &self,
        py: Python<'_>,
        prefix: Option<BytesLike<'_>>,
        start: Option<BytesLike<'_>>,
        end: Option<BytesLike<'_>>,
        reverse: bool,
        limit: Option<usize>,
    ) -> PyResult<Rows> {
        self.rows(py, Part::Value, Range { prefix, start, end, reverse, limit })
    }

    fn __repr__(&self) -> String {
        let through = match &self.through {
            Through::Database(_) => "of the database",
            Through::Transaction(_) => "of a transaction",
            Through::Snapshot(_) => "of a snapshot",
        };
        format!("<tantalum_db.Table {:?} {through}>", self.name())
    }
}

/// Counts rows.
fn count(from: &impl Reader, table: &tantalum::Table) -> EngineResult<usize> {
    let mut rows = from.rows(table, ..)?;
    let mut count = 0;
    while rows.next_key().transpose()?.is_some() {
        count += 1;
    }
    Ok(count)
}
