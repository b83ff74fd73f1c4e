//! The database that a benchmark runs on: where it is, how it is opened, and what device is below it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::Serialize;
use tantalum::{Builder, Db, limits};
use tantalum_device::{Access, Device, FileDevice};
use tantalum_lab::trace::{Header, Totals};

use super::{
    counters::{Activity, Mark},
    documents,
    settings::Settings,
    simulate,
    trace::Trace,
};
use crate::emulator::Emulator;
use crate::error::{Error, Result};
use crate::{interrupt, progress};

/// Options that all benchmarks share.
#[derive(Args, Clone, Debug, Serialize)]
pub struct Options {
    /// The database's directory, which stays. A database loaded there with the same parameters is used again. Default:
    /// a new directory tantalum-bench-PID in the current one, removed at the end.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Keep the directory that is made when --dir is not given.
    #[arg(long)]
    #[serde(skip)]
    keep: bool,
    /// Fail if DIR holds no loaded database, instead of loading one.
    #[arg(long, requires = "dir")]
    #[serde(skip)]
    reuse: bool,
    /// The settings that were given, as in `tantalum.toml`.
    #[command(flatten)]
    #[serde(flatten)]
    settings: Settings,
    /// Write what happens to the database's pages in the run to this file: every change in the log and every page that is
    /// written. For `tantalum lab trace`.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    trace: Option<PathBuf>,
    /// Write every request to the database's devices, from the end of the load to the end of the run, into this file, for
    /// `tantalum lab io-trace`.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    io_trace: Option<PathBuf>,
}

/// An open database.
pub struct Database {
    pub db: Db,
    /// What the device below the data says of itself.
    pub device: String,
    /// None in a simulation.
    directory: Option<Directory>,
    emulator: Emulator,
    page_trace: Option<Trace>,
    io_trace: Option<Trace>,
}

/// The directory; removed on drop if it is only for this run.
struct Directory {
    path: PathBuf,
    is_temporary: bool,
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.is_temporary
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("cannot remove {}: {error}; remove it by hand", self.path.display());
        }
    }
}

impl Options {
    /// Opens the database, or creates it: in its directory, or within a simulation on new emulated devices.
    pub fn open(&self, is_simulated: bool) -> Result<Database> {
        // Before anything takes time.
        let page_trace = self.trace.as_deref().map(Trace::create).transpose()?;
        let io_trace = self.io_trace()?;
        let mut builder = Db::builder().control_socket(true);
        if let Some(io_trace) = &io_trace {
            builder = io_trace.wrap(builder);
        }
        if let Some(page_trace) = &page_trace {
            builder = builder.expert(|expert| expert.observe_pages(page_trace.observer()));
        }
        let builder = self.settings.apply(builder)?;
        let open = if is_simulated { Self::open_simulated } else { Self::open_directory };
        Ok(Database { page_trace, io_trace, ..open(self, builder)? })
    }

    fn open_directory(&self, builder: Builder) -> Result<Database> {
        let directory = match &self.dir {
            Some(path) => Directory { path: path.clone(), is_temporary: false },
            None => Directory { path: own_directory()?, is_temporary: !self.keep },
        };
        let emulator = if directory.is_temporary { Emulator::for_this_run() } else { Emulator::for_keeps() };
        let builder = self.settings.apply_devices(builder)?;
        let builder = builder.create_if_missing(!self.reuse).expert(|expert| expert.device_opener(emulator.clone()));
        let started = tantalum_rt::now();
        let db = builder.progress(progress::show_opening()).open(&directory.path)?;
        eprintln!("opened {} in {:.2} s", directory.path.display(), started.elapsed().as_secs_f64());
        let device = db.stats()?.data_device;
        Ok(Database { db, device, directory: Some(directory), emulator, page_trace: None, io_trace: None })
    }

    fn open_simulated(&self, mut builder: Builder) -> Result<Database> {
        let (data, log, emulator) = (self.data(), self.log(), Emulator::for_this_run());
        let devices = simulate::Wanted {
            page_size: self.page_size(),
            log_bytes: self.settings.number("log_bytes").unwrap_or(limits::DEFAULT_LOG_BYTES),
            log_partitions: self.log_partitions(),
            page_store: self.settings.page_store(),
            data: data.as_deref(),
            log: &log,
        };
        let devices = devices.devices(&emulator)?;
        let device = format!("{}: {}", devices.data.name(), devices.data.capabilities());
        if let Some(path) = self.settings.paths("log_archive").last() {
            let archive = simulate::new_device(&emulator, path)?;
            builder = builder.expert(|expert| expert.log_archive_on(archive));
        }
        let db = builder.open_on(devices)?;
        Ok(Database { db, device, directory: None, emulator, page_trace: None, io_trace: None })
    }

    /// The trace of requests that is asked for.
    pub fn io_trace(&self) -> Result<Option<Trace>> {
        self.io_trace.as_deref().map(Trace::create).transpose()
    }

    /// Memory for pages, if it was given.
    pub fn buffer_pool_bytes(&self) -> Option<u64> {
        self.settings.number("buffer_pool_bytes")
    }

    /// Refuses what means nothing to an append-only tree.
    pub fn check_for_documents(&self) -> Result<()> {
        if self.trace.is_some() {
            return Err(Error::Other("--trace is of the engine's pages; give --io-trace".to_owned()));
        }
        match self.settings.names().find(|name| !["data_device", "buffer_pool_bytes"].contains(name)) {
            Some(setting) => Err(Error::Other(format!(
                "--{} is a setting of the engine; --store append-only takes --dir or --data, and --buffer-pool for its nodes",
                setting.replace('_', "-")
            ))),
            None => Ok(()),
        }
    }

    /// Where an append-only tree is or can be: the data device, or a file of so many bytes in the directory, which goes when
    /// what is returned beside is dropped, if it is only for this run.
    pub fn place_for_documents(
        &self,
        is_simulated: bool,
        tree_bytes: u64,
    ) -> Result<(documents::Place, Option<impl Drop + use<>>)> {
        let for_this_run = is_simulated || self.dir.is_none();
        let emulator = if for_this_run { Emulator::for_this_run() } else { Emulator::for_keeps() };
        if is_simulated {
            let path = self
                .data()
                .ok_or_else(|| "--simulate needs a device for the tree: --data emulated:PROFILE".to_owned())?;
            let device = simulate::new_device(&emulator, &path)?;
            return Ok((documents::Place { device, may_hold_tree: false }, None));
        }
        if let Some(path) = &self.data() {
            let emulated = emulator.open(&path.display().to_string(), Path::new(""), true)?;
            let device: Arc<dyn Device> = match emulated {
                Some(device) => device,
                None => Arc::new(FileDevice::open(path, Access::ReadWrite)?),
            };
            return Ok((documents::Place::on(device)?, None));
        }
        let directory = match &self.dir {
            Some(path) => {
                std::fs::create_dir_all(path).map_err(|error| Error::file("create", path, error))?;
                Directory { path: path.clone(), is_temporary: false }
            }
            None => Directory { path: own_directory()?, is_temporary: !self.keep },
        };
        Ok((documents::Place::in_directory(&directory.path, tree_bytes)?, Some(directory)))
    }

    fn page_size(&self) -> u32 {
        let given = self.settings.number("page_size").and_then(|bytes| u32::try_from(bytes).ok());
        given.unwrap_or(limits::PAGE_SIZES[0])
    }

    /// Partitions of each log device.
    pub fn log_partitions(&self) -> u32 {
        self.settings.number("log_partitions").and_then(|partitions| u32::try_from(partitions).ok()).unwrap_or(1)
    }

    /// What was given as log devices.
    pub fn log(&self) -> Vec<PathBuf> {
        self.settings.paths("log_devices")
    }

    fn data(&self) -> Option<PathBuf> {
        self.settings.paths("data_device").pop()
    }

    /// Refuses to load when --reuse was given.
    pub fn may_load(&self) -> Result<()> {
        match (self.reuse, &self.dir) {
            (true, Some(dir)) => {
                let dir = dir.display();
                Err(Error::Other(format!(
                    "{dir} holds no loaded database of this benchmark; leave out --reuse to load it"
                )))
            }
            _ => Ok(()),
        }
    }
}

impl Database {
    /// Log devices, each partition counted as one.
    pub fn log_device_count(&self) -> Result<usize> {
        Ok(self.db.stats()?.log.devices.len())
    }

    /// The database's directory; the current one in a simulation.
    pub fn path(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new(""), |directory| &directory.path)
    }

    /// The counters now.
    pub fn mark(&self) -> Result<Mark> {
        Mark::of(&self.db, &self.emulator)
    }

    /// What was done since `before`, in a run of so many transactions.
    pub fn since(&self, before: &Mark, transactions: u64) -> Result<Activity> {
        Activity::since(before, &self.db, &self.emulator, transactions)
    }

    /// From now on pages and requests to the devices are traced, if that is asked for.
    pub fn begin_traces(&self, label: &str) -> Result<()> {
        self.io_trace.as_ref().map_or(Ok(()), |trace| trace.begin(&Header::new(label)))?;
        self.page_trace.as_ref().map_or(Ok(()), |trace| trace.begin_pages(&self.db, label.to_owned()))
    }

    /// Ends that; the database did so much meanwhile.
    pub fn end_traces(&self, transactions: u64, activity: &Activity) -> Result<()> {
        self.page_trace.as_ref().map_or(Ok(()), |trace| trace.end(Totals::default()))?;
        self.io_trace
            .as_ref()
            .map_or(Ok(()), |trace| trace.end(Totals { transactions: Some(transactions), ..activity.totals() }))
    }

    /// Closes the database and removes a directory of this run only.
    pub fn close(self) -> Result<()> {
        let Self { db, directory, .. } = self;
        db.close()?;
        if let Some(directory) = directory.filter(|directory| !directory.is_temporary) {
            eprintln!("the database stays in {}", directory.path.display());
        }
        Ok(())
    }
}

/// In the current directory, not the system's for temporary files: that may lie in memory.
fn own_directory() -> Result<PathBuf> {
    let path = PathBuf::from(format!("tantalum-bench-{}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| Error::file("create", &path, error))?;
    interrupt::remove_directory(path.clone());
    Ok(path)
}
