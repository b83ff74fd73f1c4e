//! `--trace` and `--io-trace`: what happens to the database's pages, and what its devices are asked for, in a run, in files.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum::{Builder, Db, DeviceUse, PageObserver};
use tantalum_device::Device;
use tantalum_lab::{
    io_trace::{self, Totals},
    trace::{Header, Recorder, Writer},
};
use tantalum_report::units;

use super::{counters::DeviceReport, storage::StorageReport};
use crate::error::{Error, Result};

/// A file for a trace.
struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    /// Creates the file, before anything takes time.
    fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::file("create", path, error))?;
        Ok(Self { path: path.into(), file })
    }

    /// What a trace is written to.
    fn out(&self) -> io::Result<BufWriter<File>> {
        Ok(BufWriter::new(self.file.try_clone()?))
    }

    /// Says how long the trace is.
    fn end(&self) -> Result<()> {
        let bytes = self.file.metadata().map_err(|error| self.failed(error))?.len();
        eprintln!("the trace in {} has {}", self.path.display(), units::bytes(bytes));
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::file("write", &self.path, error)
    }
}

/// A trace of pages that is to be written.
pub struct Trace {
    file: TraceFile,
    recorder: Arc<Recorder<BufWriter<File>>>,
}

impl Trace {
    /// Creates the file.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { file: TraceFile::create(path)?, recorder: Arc::default() })
    }

    /// Who is to be told of pages.
    pub fn observer(&self) -> Arc<dyn PageObserver> {
        Arc::clone(&self.recorder) as Arc<dyn PageObserver>
    }

    /// From now on what happens to pages is written.
    pub fn begin(&self, db: &Db, label: String) -> Result<()> {
        let stats = db.stats()?;
        let buffer_pool_bytes = stats.pool.frames * u64::from(stats.page_bytes);
        let header = Header { page_bytes: stats.page_bytes, buffer_pool_bytes, label };
        let start = || Writer::new(self.file.out()?, &header);
        self.recorder.begin(start().map_err(|error| self.file.failed(error))?, u64::MAX);
        Ok(())
    }

    /// Ends the trace.
    pub fn end(self) -> Result<()> {
        self.recorder.finish().map_err(|error| self.file.failed(error))?;
        self.file.end()
    }
}

/// A trace of requests to devices that is to be written.
pub struct IoTrace {
    file: TraceFile,
    recorder: Arc<io_trace::Recorder<BufWriter<File>>>,
}

impl IoTrace {
    /// Creates the file.
    pub fn create(path: &Path) -> Result<Self> {
        Ok(Self { file: TraceFile::create(path)?, recorder: io_trace::Recorder::new() })
    }

    /// A database whose devices are traced.
    pub fn wrap(&self, builder: Builder) -> Builder {
        let recorder = Arc::clone(&self.recorder);
        builder.expert(|expert| expert.wrap_devices(move |used_for, device| recorder.trace(used_for, device)))
    }

    /// A device that is traced.
    pub fn wrap_device(&self, used_for: DeviceUse, device: Arc<dyn Device>) -> Arc<dyn Device> {
        self.recorder.trace(used_for, device)
    }

    /// From now on requests are written.
    pub fn begin(&self, label: &str) -> Result<()> {
        const MOST_BYTES: usize = 255;
        let label = &label[..label.floor_char_boundary(MOST_BYTES)];
        let start = || io_trace::Writer::new(self.file.out()?, label);
        self.recorder.begin(start().map_err(|error| self.file.failed(error))?);
        Ok(())
    }

    /// Ends the trace of a database, which did that meanwhile.
    pub fn end_with(&self, transactions: u64, storage: &StorageReport, emulated: &[DeviceReport]) -> Result<()> {
        self.end(Totals {
            transactions: Some(transactions),
            media: emulated.iter().map(DeviceReport::medium).collect(),
            ..storage.totals()
        })
    }

    /// Ends the trace.
    pub fn end(&self, totals: Totals) -> Result<()> {
        self.recorder.finish(totals).map_err(|error| self.file.failed(error))?;
        self.file.end()
    }
}
