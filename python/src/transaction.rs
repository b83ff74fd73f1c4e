//! [`Transaction`] and [`Savepoint`].

use std::sync::Mutex;

use pyo3::{prelude::*, types::PyAny};
use tantalum::ErrorKind;

use crate::{
    database::Database,
    errors::{OrRaise, refusal},
    handle::Handle,
    table::{Table, TableOrName, Through},
    ticket::{Ready, Ticket},
};

const OVER: &str = "the transaction is over; begin another";

/// A read-write transaction, made by `Database.transaction`: committed at the end of its `with` block, rolled back by an exception in it.
///
/// It is used by one thread at a time. After a Conflict it is rolled back; `Database.transact` runs such transactions again. Its tables
/// show its own writes.
#[pyclass(module = "tantalum_db")]
pub struct Transaction {
    /// The lock makes it what an object of Python must be; a mutable borrow of the object goes before it, so it is never locked.
    inner: Handle<Mutex<tantalum::Transaction>>,
    database: Py<Database>,
    /// How often it has changed what it sees.
    changes: u64,
}

impl Transaction {
    pub fn new(inner: tantalum::Transaction, database: Py<Database>) -> Self {
        Self { inner: Handle::new(Mutex::new(inner)), database, changes: 0 }
    }

    /// For use by this thread.
    ///
    /// # Errors
    /// `InUse` while another thread uses it.
    #[inline]
    pub fn borrow<'py>(slf: &Bound<'py, Self>) -> PyResult<PyRefMut<'py, Self>> {
        slf.try_borrow_mut().map_err(|_| {
            let what = "the transaction is in use by another thread; let each thread have a transaction of its own";
            refusal(slf.py(), "InUse", what)
        })
    }

    /// What it is in the engine.
    #[inline]
    pub fn running(&mut self, py: Python<'_>) -> PyResult<&mut tantalum::Transaction> {
        Ok(self.inner.get_mut(py, OVER)?.get_mut().expect("it is never locked"))
    }

    /// As [`running`](Self::running), to change what it sees.
    pub fn changing(&mut self, py: Python<'_>) -> PyResult<&mut tantalum::Transaction> {
        self.changes += 1;
        self.running(py)
    }

    /// How often it has changed what it sees.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What it is in the engine, which the object then has no longer.
    pub fn take(&mut self, py: Python<'_>) -> PyResult<tantalum::Transaction> {
        Ok(self.inner.take(py, OVER)?.into_inner().expect("it is never locked"))
    }
}

#[pymethods]
impl Transaction {
    /// A table as the transaction sees it: of this name, or one of the database's.
    ///
    /// A table that is missing is created, which is durable at once and not part of the transaction; with create=False, NotFound is
    /// raised.
    #[pyo3(signature = (table, *, create=true))]
    fn table(slf: &Bound<'_, Self>, table: TableOrName, create: bool) -> PyResult<Table> {
        let py = slf.py();
        let table = {
            let mut transaction = Self::borrow(slf)?;
            transaction.running(py)?;
            table.resolve(py, transaction.database.get(), create)?
        };
        Ok(Table::new(Through::Transaction(slf.clone().unbind()), table))
    }

    fn __getitem__(slf: &Bound<'_, Self>, table: TableOrName) -> PyResult<Table> {
        Self::table(slf, table, true)
    }

    /// Commits. When it returns, everything that the transaction wrote and read survives a power cut. Returns the commit's place in the
    /// log, None if nothing was written.
    fn commit(slf: &Bound<'_, Self>) -> PyResult<Option<u64>> {
        let py = slf.py();
        let inner = Self::borrow(slf)?.take(py)?;
        Ok(py.detach(|| inner.commit()).or_raise(py)?.position())
    }

    /// Commits without waiting for durability, which the ticket tells: `ticket.wait()`, or `await ticket`.
    ///
    /// The call itself may still wait for pages that the commit needs.
    fn commit_async(slf: &Bound<'_, Self>) -> PyResult<Ticket> {
        let py = slf.py();
        let inner = Self::borrow(slf)?.take(py)?;
        py.detach(|| inner.commit_async()).or_raise(py).map(Ticket::new)
    }

    /// Forgets everything that the transaction wrote, and ends it. Does nothing if it is over.
    fn rollback(slf: &Bound<'_, Self>) -> PyResult<()> {
        Self::borrow(slf)?.inner.release();
        Ok(())
    }

    /// A place to come back to: `savepoint.rollback()`, or an exception in the `with` block of the savepoint, undoes the writes since.
    fn savepoint(slf: &Bound<'_, Self>) -> PyResult<Savepoint> {
        let py = slf.py();
        let savepoint = Self::borrow(slf)?.running(py)?.savepoint();
        Ok(Savepoint { savepoint, transaction: slf.clone().unbind() })
    }

    /// Whether it was committed or rolled back.
    #[getter]
    fn is_over(slf: &Bound<'_, Self>) -> PyResult<bool> {
        Ok(Self::borrow(slf)?.inner.is_over())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[expect(unused_variables, reason = "Python gives them")]
    fn __exit__(
        slf: &Bound<'_, Self>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        match exc_type.is_none() && !Self::is_over(slf)? {
            true => Self::commit(slf).map(drop),
            false => Self::rollback(slf),
        }
    }

    fn __aenter__(slf: Bound<'_, Self>) -> Ready {
        Ready { value: Some(slf.into_any().unbind()) }
    }

    /// Commits, and has durability awaited.
    #[expect(unused_variables, reason = "Python gives them")]
    fn __aexit__<'py>(
        slf: &Bound<'py, Self>,
        exc_type: &Bound<'py, PyAny>,
        exc_value: &Bound<'py, PyAny>,
        traceback: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if exc_type.is_none() && !Self::is_over(slf)? {
            return Ok(Bound::new(py, Self::commit_async(slf)?)?.into_any());
        }
        Self::rollback(slf)?;
        Ok(Bound::new(py, Ready { value: None })?.into_any())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<&'static str> {
        Ok(if Self::is_over(slf)? { "<tantalum_db.Transaction over>" } else { "<tantalum_db.Transaction running>" })
    }
}

/// A place in a transaction to come back to, made by `Transaction.savepoint`.
#[pyclass(frozen, module = "tantalum_db")]
pub struct Savepoint {
    savepoint: tantalum::Savepoint,
    transaction: Py<Transaction>,
}

#[pymethods]
impl Savepoint {
    /// Takes back every write since. The savepoint can be rolled back to again, later ones no longer. Locks are kept.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        let mut transaction = Transaction::borrow(self.transaction.bind(py))?;
        let inner = transaction.changing(py)?;
        py.detach(move || inner.rollback_to(&self.savepoint)).or_raise(py)
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// After an exception, rolls back to the savepoint, unless the transaction is over.
    #[expect(unused_variables, reason = "Python gives them")]
    fn __exit__(
        &self,
        py: Python<'_>,
        exc_type: &Bound<'_, PyAny>,
        exc_value: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let mut transaction = Transaction::borrow(self.transaction.bind(py))?;
        if exc_type.is_none() || transaction.inner.is_over() {
            return Ok(());
        }
        let inner = transaction.changing(py)?;
        match py.detach(move || inner.rollback_to(&self.savepoint)) {
            // By the exception that is on its way, a Conflict say.
            Err(error) if error.kind() == ErrorKind::Aborted => Ok(()),
            rolled_back => rolled_back.or_raise(py),
        }
    }
}
