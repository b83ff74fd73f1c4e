//! The engine's observer that writes a trace.

use std::{
    io::{self, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use tantalum::{PageChange, PageId, PageObserver};
use tantalum_rt::Mutex;

use super::{Record, Writer};

/// Writes what it is told between [`begin`](Recorder::begin) and [`finish`](Recorder::finish), for
/// [`Builder::observe_pages`](tantalum::Builder::observe_pages).
///
/// A failure to write does not disturb the database; [`finish`](Recorder::finish) reports it.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_lab::trace::{Header, Reader, Recorder, Writer};
///
/// # let dir = tempfile::tempdir()?;
/// let recorder = Arc::new(Recorder::new());
/// let db = tantalum::Db::builder().log_bytes(8 << 20).expert(|expert| expert.observe_pages(recorder.clone())).open(dir.path().join("db"))?;
/// let header = Header { page_bytes: 4096, buffer_pool_bytes: 64 << 20, label: "a new table".into() };
/// recorder.begin(Writer::new(Vec::new(), &header)?, u64::MAX);
/// db.table("t")?;
/// let bytes = recorder.finish()?;
/// assert!(Reader::new("example", &bytes[..])?.count() > 0);
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder<W: Write + Send> {
    is_on: AtomicBool,
    state: Mutex<State<W>>,
}

struct State<W: Write> {
    /// `None` before the trace has begun and after it has ended.
    writer: io::Result<Option<Writer<W>>>,
    /// Changes that are still to be written.
    left: u64,
}

impl<W: Write + Send> Default for Recorder<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Write + Send> Recorder<W> {
    /// A recorder that is not told to write yet.
    pub fn new() -> Self {
        Self { is_on: AtomicBool::new(false), state: Mutex::new(State { writer: Ok(None), left: 0 }) }
    }

    /// From now on what is told is written: at most so many changes, and the page writes before the last of them.
    pub fn begin(&self, writer: Writer<W>, most_changes: u64) {
        *self.state.lock() = State { writer: Ok(Some(writer)), left: most_changes };
        self.is_on.store(true, Ordering::Release);
    }

    /// Whether it has all the changes that it takes, or failed.
    pub fn is_full(&self) -> bool {
        let state = self.state.lock();
        state.left == 0 || state.writer.is_err()
    }

    /// Ends the trace, and gives its output back.
    ///
    /// # Errors
    /// The first failure to write, since the beginning.
    ///
    /// # Panics
    /// When no trace has begun, or it has ended before.
    pub fn finish(&self) -> io::Result<W> {
        self.is_on.store(false, Ordering::Release);
        let writer = std::mem::replace(&mut self.state.lock().writer, Ok(None))?;
        writer.expect("a trace that has begun ends once").finish()
    }

    fn push(&self, record: Record) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.state.lock();
        if state.left == 0 {
            return;
        }
        let Ok(Some(writer)) = &mut state.writer else { return };
        if let Err(error) = writer.push(record) {
            state.writer = Err(error);
            return;
        }
        if matches!(record, Record::Change { .. }) {
            state.left -= 1;
        }
    }
}

impl<W: Write + Send> PageObserver for Recorder<W> {
    fn changed(&self, page: PageId, change: PageChange) {
        let PageChange { operation, bytes } = change;
        self.push(Record::Change { page: page.0, operation, bytes });
    }

    fn written(&self, page: PageId) {
        self.push(Record::Write { page: page.0 });
    }
}
