//! [`Rows`]: iteration over the rows of a table, a batch at a time.
//!
//! An iterator of the engine borrows its transaction, which Python objects cannot. So each batch has an iterator of its own, which begins
//! behind the row that was returned last; a batch that was read before the transaction wrote is not used any more.

use std::ops;

use pyo3::{prelude::*, types::PyBytes};
use tantalum::Reader;

use crate::{arguments::Keys, errors::OrRaise, snapshot::Snapshot, transaction::Transaction};

/// A batch ends with the row that makes it this large.
const BATCH_BYTES: usize = 64 << 10;
/// The first batch has one row, since a transaction locks what it reads; each further one twice as many, up to this.
const BATCH_ROWS: usize = 1024;

/// What rows are read from.
pub enum Source {
    Snapshot(Py<Snapshot>),
    Transaction(Py<Transaction>),
}

/// What of a row is returned.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Item,
    Key,
    Value,
}

/// How rows are iterated over.
pub struct Order {
    pub keys: Keys,
    pub reverse: bool,
    /// The most rows.
    pub limit: usize,
}

/// Rows that were read.
#[derive(Default)]
struct Batch {
    /// The keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Where each row's key and value end.
    ends: Vec<(usize, usize)>,
    /// No rows are behind it.
    is_last: bool,
}

impl Batch {
    fn read(from: &impl Reader, table: &tantalum::Table, order: Order, part: Part) -> tantalum::Result<Self> {
        let mut batch = Self::default();
        let mut rows = from.rows(table, order.keys)?;
        while batch.ends.len() < order.limit && batch.bytes.len() < BATCH_BYTES {
            let is_read = match (part, order.reverse) {
                (Part::Key, false) => rows.next_key().transpose()?.map(|key| batch.add(&key, &[])),
                (Part::Key, true) => rows.next_back_key().transpose()?.map(|key| batch.add(&key, &[])),
                (_, false) => rows.next_borrowed().transpose()?.map(|(key, value)| batch.add(key, value)),
                (_, true) => rows.next_back_borrowed().transpose()?.map(|(key, value)| batch.add(key, value)),
            };
            if is_read.is_none() {
                batch.is_last = true;
                break;
            }
        }
        Ok(batch)
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// The key and the value of a row.
    fn row(&self, at: usize) -> (&[u8], &[u8]) {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key_end, end) = self.ends[at];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }
}

/// An iterator over the rows of a table, or their keys or values: of `items`, `keys` and `values`.
///
/// Rows are read some at a time. Of a table of the database, it shows one moment, that of the call; in a transaction, what that has
/// written meanwhile too.
#[pyclass(module = "tantalum_db")]
pub struct Rows {
    /// `None` after the last row.
    source: Option<Source>,
    table: tantalum::Table,
    part: Part,
    /// What was not read yet, and how many rows may still be returned.
    order: Order,
    batch: Batch,
    /// The row of the batch that is returned next.
    next: usize,
    /// The most rows of the next batch.
    size: usize,
    /// How often the transaction had written when the batch was read.
    changes: u64,
}

impl Rows {
    pub fn new(source: Source, table: tantalum::Table, part: Part, order: Order) -> Self {
        Self { source: Some(source), table, part, order, batch: Batch::default(), next: 0, size: 1, changes: 0 }
    }

    /// Discards the batch. What is left begins behind the row that was returned last.
    fn discard(&mut self) {
        if let Some(last) = self.next.checked_sub(1) {
            let key = ops::Bound::Excluded(self.batch.row(last).0.to_vec());
            match self.order.reverse {
                false => self.order.keys.lower = key,
                true => self.order.keys.upper = key,
            }
        }
        (self.batch, self.next) = (Batch::default(), 0);
    }

    /// Discards a batch that does not show what the transaction has written since.
    fn discard_stale(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(Source::Transaction(transaction)) = &self.source else { return Ok(()) };
        let changes = Transaction::borrow(transaction.bind(py))?.changes();
        if changes != self.changes {
            self.discard();
            (self.changes, self.size) = (changes, 1);
        }
        Ok(())
    }

    fn read_batch(&mut self, py: Python<'_>) -> PyResult<()> {
        self.discard();
        let order = Order {
            keys: self.order.keys.clone(),
            limit: self.size.min(self.order.limit),
            reverse: self.order.reverse,
        };
        let (table, part) = (&self.table, self.part);
        let batch = match &self.source {
            None => return Ok(()),
            Some(Source::Snapshot(snapshot)) => {
                let from = Snapshot::shared(snapshot.bind(py))?;
                py.detach(|| Batch::read(&*from, table, order, part))
            }
            Some(Source::Transaction(transaction)) => {
                let mut transaction = Transaction::borrow(transaction.bind(py))?;
                let from = transaction.running(py)?;
                py.detach(move || Batch::read(from, table, order, part))
            }
        };
        self.batch = batch.or_raise(py)?;
        self.size = (self.size * 2).min(BATCH_ROWS);
        Ok(())
    }
}

#[pymethods]
impl Rows {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.discard_stale(py)?;
        if self.next == self.batch.ends.len() && !self.batch.is_last && self.order.limit > 0 {
            self.read_batch(py)?;
        }
        if self.next == self.batch.ends.len() || self.order.limit == 0 {
            self.source = None;
            self.batch.is_last = true;
            return Ok(None);
        }
        let (key, value) = self.batch.row(self.next);
        let row = match self.part {
            Part::Item => (PyBytes::new(py, key), PyBytes::new(py, value)).into_pyobject(py)?.into_any(),
            Part::Key => PyBytes::new(py, key).into_any(),
            Part::Value => PyBytes::new(py, value).into_any(),
        };
        self.next += 1;
        self.order.limit -= 1;
        Ok(Some(row))
    }
}
