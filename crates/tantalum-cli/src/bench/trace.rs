//! `--trace` and `--io-trace`: what happens to the database's pages, and what its devices are asked for, in a run, in files.

use std::{
    fs::File,
    io::{self, BufWriter},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum::{Builder, Db, DeviceUse, PageObserver};
use tantalum_device::Device;
use tantalum_lab::trace::{Database, Header, Recorder, Totals, Writer};
use tantalum_report::units;

use crate::error::{Error, Result};

/// A trace that is to be written: of pages, or of requests to devices.
pub struct Trace {
    path: PathBuf,
    file: File,
    recorder: Arc<Recorder<BufWriter<File>>>,
}

impl Trace {
    /// Creates the file, before anything takes time.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::file("create", path, error))?;
        Ok(Self { path: path.into(), file, recorder: Recorder::new() })
    }

    /// The observer of a database's pages.
    pub fn observer(&self) -> Arc<dyn PageObserver> {
        Arc::clone(&self.recorder) as Arc<dyn PageObserver>
    }

    /// A database whose devices are observed.
    pub fn wrap(&self, builder: Builder) -> Builder {
        let recorder = Arc::clone(&self.recorder);
        builder.expert(|expert| expert.wrap_devices(move |used_for, device| recorder.observe(used_for, device)))
    }

    /// A device that is observed.
    pub fn wrap_device(&self, used_for: DeviceUse, device: Arc<dyn Device>) -> Arc<dyn Device> {
        self.recorder.observe(used_for, device)
    }

    /// From now on what happens to the pages of this database is written.
    pub fn begin_pages(&self, db: &Db, label: String) -> Result<()> {
        let stats = db.stats()?;
        let buffer_pool_bytes = stats.pool.frames * u64::from(stats.page_bytes);
        let database = Some(Database { page_bytes: stats.page_bytes, buffer_pool_bytes });
        self.begin(&Header { label, database })
    }

    /// From now on what happens is written.
    pub fn begin(&self, header: &Header) -> Result<()> {
        let start = || Writer::new(BufWriter::new(self.file.try_clone()?), header);
        self.recorder.begin(start().map_err(|error| self.failed(error))?, u64::MAX);
        Ok(())
    }

    /// Ends the trace, and says how long it is.
    pub fn end(&self, totals: Totals) -> Result<()> {
        self.recorder.finish(totals).map_err(|error| self.failed(error))?;
        let bytes = self.file.metadata().map_err(|error| self.failed(error))?.len();
        eprintln!("the trace in {} has {}", self.path.display(), units::bytes(bytes));
        Ok(())
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::file("write", &self.path, error)
    }
}
