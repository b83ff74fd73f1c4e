//! `--trace`: what happens to the database's pages in a run, in a file.

use std::{
    fs::File,
    io::BufWriter,
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum::{Db, PageObserver};
use tantalum_lab::trace::{Header, Recorder, Writer};
use tantalum_report::units;

use crate::error::{Error, Result};

/// A trace that is to be written.
pub struct Trace {
    path: PathBuf,
    file: File,
    recorder: Arc<Recorder<BufWriter<File>>>,
}

impl Trace {
    /// Creates the file, before anything takes time.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).map_err(|error| Error::file("create", path, error))?;
        Ok(Self { path: path.into(), file, recorder: Arc::default() })
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
        let start = || Writer::new(BufWriter::new(self.file.try_clone()?), &header);
        self.recorder.begin(start().map_err(|error| self.failed(error))?, u64::MAX);
        Ok(())
    }

    /// Ends the trace.
    pub fn end(self) -> Result<()> {
        self.recorder.finish().map_err(|error| self.failed(error))?;
        let bytes = self.file.metadata().map_err(|error| self.failed(error))?.len();
        eprintln!("the trace in {} has {}", self.path.display(), units::bytes(bytes));
        Ok(())
    }

    fn failed(&self, error: std::io::Error) -> Error {
        Error::file("write", &self.path, error)
    }
}
