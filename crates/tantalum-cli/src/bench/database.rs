//! The database that a benchmark runs on: where it is, how it is opened, and what device is below it.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::Args;
use serde::{Serialize, Serializer};
use tantalum::{
    Barriers, Builder, Db, LogHiding, LogLayout, LogSummary, MetadataWrites, PageCleaning, PageObserver, StoreKind,
    TornPageProtection, limits,
};
use tantalum_device::{Access, Device, FileDevice};
use tantalum_flash::Counters;

use super::{counters::DeviceReport, documents, parse_bytes, simulate, storage::StorageReport, trace::IoTrace};
use crate::emulator::{Emulator, with_absolute_profile};
use crate::error::{Error, Result};
use crate::opening;

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
    /// Bytes of a page: 4096, 8192 or 16384.
    #[arg(long, value_parser = parse_bytes)]
    page_size: Option<u64>,
    /// Bytes of memory for pages, such as 64M.
    #[arg(long, value_parser = parse_bytes)]
    #[serde(rename = "buffer_pool_bytes")]
    buffer_pool: Option<u64>,
    /// A file, block device or emulated:PROFILE[:FILE] for the log; give it again for each device. Default: one file in
    /// DIR. With stalled:200ms/1s: before it, its writes stand still for 200 ms of every second.
    #[arg(long, value_name = "PATH")]
    #[serde(rename = "log_devices")]
    log: Vec<PathBuf>,
    /// A directory, block device or emulated:PROFILE[:FILE] on which the log is archived, a little behind its end. Default:
    /// none.
    #[arg(long, value_name = "PATH")]
    #[serde(rename = "log_archive", skip_serializing_if = "Option::is_none")]
    archive: Option<PathBuf>,
    /// A block device or emulated:PROFILE[:FILE] for the data. Default: a file in DIR.
    #[arg(long, value_name = "PATH")]
    #[serde(rename = "data_device")]
    data: Option<PathBuf>,
    /// Partitions of each log device.
    #[arg(long)]
    log_partitions: Option<u32>,
    /// Bytes of each log file, and used of each emulated log device.
    #[arg(long, value_parser = parse_bytes)]
    log_bytes: Option<u64>,
    /// What happens to log writes that take more than twice as long as usual, with several log devices. Default: on.
    #[arg(long, value_enum)]
    log_hiding: Option<Hiding>,
    /// On how many log devices a commit must be before it is acknowledged: 1 or 2. Default: 1.
    #[arg(long, value_name = "N")]
    log_copies: Option<u8>,
    /// What was measured of the log devices: a file for each --log, in their order.
    #[arg(long, value_name = "FILE")]
    log_characteristics: Vec<PathBuf>,
    /// How the log lies on its devices: flash-logging, single (one device, overlapping writes), or striped:64KiB
    /// (round robin, units of 512B to 256KiB).
    #[arg(long, value_name = "LAYOUT")]
    #[serde(serialize_with = "as_text")]
    log_layout: Option<LogLayout>,
    /// Bytes of which each write to the log is a multiple: 512 to 4096.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    #[serde(rename = "log_block_bytes")]
    log_block: Option<u64>,
    /// Release a transaction's locks when its commit is durable, not already when it is in the log.
    #[arg(long)]
    late_lock_release: bool,
    /// How torn pages are prevented.
    #[arg(long, value_enum)]
    protection: Option<Protection>,
    /// Whether devices are told to flush their caches: auto (where they say that they need it), on, off, or trust-device (never,
    /// on your word). Default: auto.
    #[arg(long, value_name = "SETTING")]
    #[serde(skip_serializing_if = "Option::is_none")]
    barriers: Option<Barriers>,
    /// Make each page durable by a write of its own, as servers do that open their files with O_DSYNC.
    #[arg(long)]
    durable_page_writes: bool,
    /// Who writes dirty pages to make room: ahead (a task in the background), or on-demand (whoever reads a page). Default:
    /// ahead.
    #[arg(long, value_name = "WHEN")]
    #[serde(skip_serializing_if = "Option::is_none")]
    page_cleaning: Option<PageCleaning>,
    /// How many batches of dirty pages may be on their way to the data device at a time. Default: 4, and with cleaning on demand
    /// 128, of one page each.
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    write_back_batches: Option<u32>,
    /// How pages are stored: in-place; in-page-logging, which writes changes beside their page; or log-structured, which appends
    /// pages to segments. Default: in-place.
    #[arg(long, value_name = "STORE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    page_store: Option<StoreKind>,
    /// With in-page-logging: bytes of an erase unit. Default: 128K.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    #[serde(rename = "erase_unit_bytes", skip_serializing_if = "Option::is_none")]
    erase_unit: Option<u64>,
    /// With in-page-logging: bytes of each erase unit that are for log sectors. Default: 16 blocks of the device, at most
    /// half of the unit.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    #[serde(rename = "log_region_bytes", skip_serializing_if = "Option::is_none")]
    log_region: Option<u64>,
    /// With in-page-logging: how much of a unit's log sectors a merge carries over at most, in percent. Default: 50.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(0..=100))]
    #[serde(rename = "carry_over_percent", skip_serializing_if = "Option::is_none")]
    carry_over: Option<u32>,
    /// With log-structured: bytes of a segment. Default: 1M.
    #[arg(long, value_parser = parse_bytes, value_name = "BYTES")]
    #[serde(rename = "segment_bytes", skip_serializing_if = "Option::is_none")]
    segment: Option<u64>,
    /// With log-structured: how much of all segments live pages may take, in percent. Default: 80.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(10..=95))]
    #[serde(rename = "segment_fill_percent", skip_serializing_if = "Option::is_none")]
    segment_fill: Option<u32>,
    /// With log-structured: tell the device which segments are not needed.
    #[arg(long)]
    discard_segments: bool,
    /// With log-structured: what is written beside pages: own (what it needs), or nilfs2 (as much as that file system wrote).
    /// Default: own.
    #[arg(long, value_name = "WHAT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_writes: Option<MetadataWrites>,
    /// Write every request to the database's devices, from the end of the load to the end of the run, into this file, for
    /// `tantalum lab io-trace`.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    io_trace: Option<PathBuf>,
}

/// [`LogHiding`] on the command line.
#[derive(Clone, Copy, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Hiding {
    /// Another device writes the same, into an area set aside for that.
    On,
    /// They are waited for.
    Off,
    /// As on, without such areas.
    Naive,
}

impl From<Hiding> for LogHiding {
    fn from(hiding: Hiding) -> Self {
        match hiding {
            Hiding::On => Self::On,
            Hiding::Off => Self::Off,
            Hiding::Naive => Self::Naive,
        }
    }
}

/// [`TornPageProtection`] on the command line.
#[derive(Clone, Copy, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Protection {
    /// The device if it writes pages atomically, else double-write.
    Auto,
    /// Every page is written to a second place first.
    DoubleWrite,
    /// Whole pages go to the log after each checkpoint.
    FullPageImages,
    /// The device says that it writes pages atomically.
    Device,
    /// You say that it does.
    TrustDevice,
}

impl From<Protection> for TornPageProtection {
    fn from(protection: Protection) -> Self {
        match protection {
            Protection::Auto => Self::Auto,
            Protection::DoubleWrite => Self::DoubleWrite,
            Protection::FullPageImages => Self::FullPageImages,
            Protection::Device => Self::Device,
            Protection::TrustDevice => Self::TrustDevice,
        }
    }
}

/// An open database.
pub struct Database {
    pub db: Db,
    /// What the device below the data says of itself.
    pub device: String,
    /// None in a simulation.
    directory: Option<Directory>,
    emulator: Emulator,
    io_trace: Option<IoTrace>,
}

/// What emulated devices had done at some time.
pub struct Mark(Vec<Counters>);

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
    /// Opens the database, or creates it; `observer` is told of its pages.
    pub fn open(&self, observer: Option<Arc<dyn PageObserver>>) -> Result<Database> {
        let io_trace = self.io_trace()?;
        let directory = match &self.dir {
            Some(path) => Directory { path: path.clone(), is_temporary: false },
            None => Directory { path: own_directory()?, is_temporary: !self.keep },
        };
        let emulator = if directory.is_temporary { Emulator::for_this_run() } else { Emulator::for_keeps() };
        let builder = self.builder(observer, io_trace.as_ref())?;
        let mut builder = builder.create_if_missing(!self.reuse).device_opener(emulator.clone());
        if !self.log.is_empty() {
            builder = builder.log_devices(self.log.iter().map(|path| with_absolute_profile(path)));
        }
        if let Some(path) = &self.data {
            builder = builder.data_device(with_absolute_profile(path));
        }
        if let Some(path) = &self.archive {
            builder = builder.log_archive(with_absolute_profile(path));
        }
        let started = tantalum_rt::now();
        let db = builder.progress(opening::show()).open(&directory.path)?;
        eprintln!("opened {} in {:.2} s", directory.path.display(), started.elapsed().as_secs_f64());
        let device = db.stats()?.data_device;
        Ok(Database { db, device, directory: Some(directory), emulator, io_trace })
    }

    /// Makes the database on new emulated devices, within a simulation.
    pub fn open_simulated(&self, observer: Option<Arc<dyn PageObserver>>) -> Result<Database> {
        let (io_trace, emulator) = (self.io_trace()?, Emulator::for_this_run());
        let devices = simulate::Wanted {
            page_size: self.page_size()?.unwrap_or(limits::PAGE_SIZES[0]),
            log_bytes: self.log_bytes(),
            log_partitions: self.log_partitions(),
            page_store: self.page_store.unwrap_or_default(),
            data: self.data.as_deref(),
            log: &self.log,
        };
        let devices = devices.devices(&emulator)?;
        let device = format!("{}: {}", devices.data.name(), devices.data.capabilities());
        let mut builder = self.builder(observer, io_trace.as_ref())?;
        if let Some(path) = &self.archive {
            builder = builder.log_archive_on(simulate::new_device(&emulator, path)?);
        }
        let db = builder.open_on(devices)?;
        Ok(Database { db, device, directory: None, emulator, io_trace })
    }

    /// What holds for a database in a directory and for one in a simulation.
    fn builder(&self, observer: Option<Arc<dyn PageObserver>>, io_trace: Option<&IoTrace>) -> Result<Builder> {
        let mut builder = Db::builder();
        if let Some(io_trace) = io_trace {
            builder = io_trace.wrap(builder);
        }
        if let Some(observer) = observer {
            builder = builder.observe_pages(observer);
        }
        if let Some(bytes) = self.page_size()? {
            builder = builder.page_size(bytes);
        }
        if let Some(bytes) = self.buffer_pool {
            builder = builder.buffer_pool_bytes(bytes);
        }
        if let Some(partitions) = self.log_partitions {
            builder = builder.log_partitions(partitions);
        }
        if let Some(bytes) = self.log_bytes {
            builder = builder.log_bytes(bytes);
        }
        if let Some(hiding) = self.log_hiding {
            builder = builder.log_hiding(hiding.into());
        }
        if let Some(copies) = self.log_copies {
            builder = builder.log_copies(copies);
        }
        if !self.log_characteristics.is_empty() {
            let absolute = |path| std::path::absolute(path).map_err(|error| Error::file("find", path, error));
            let files = self.log_characteristics.iter().map(absolute).collect::<Result<Vec<_>>>()?;
            builder = builder.log_characteristics(files);
        }
        if let Some(layout) = self.log_layout {
            builder = builder.log_layout(layout);
        }
        if let Some(bytes) = self.log_block {
            let bytes = u32::try_from(bytes).map_err(|_| format!("--log-block {bytes} is too large"))?;
            builder = builder.log_block_bytes(bytes);
        }
        if self.late_lock_release {
            builder = builder.early_lock_release(false);
        }
        if let Some(protection) = self.protection {
            builder = builder.torn_page_protection(protection.into());
        }
        if let Some(barriers) = self.barriers {
            builder = builder.barriers(barriers);
        }
        if self.durable_page_writes {
            builder = builder.durable_page_writes(true);
        }
        if let Some(cleaning) = self.page_cleaning {
            builder = builder.page_cleaning(cleaning);
        }
        if let Some(batches) = self.write_back_batches {
            builder = builder.write_back_batches(batches);
        }
        if let Some(store) = self.page_store {
            builder = builder.page_store(store);
        }
        if let Some(bytes) = narrow("--erase-unit", self.erase_unit)? {
            builder = builder.erase_unit_bytes(bytes);
        }
        if let Some(bytes) = narrow("--log-region", self.log_region)? {
            builder = builder.log_region_bytes(bytes);
        }
        if let Some(percent) = self.carry_over {
            builder = builder.carry_over_percent(percent);
        }
        if let Some(bytes) = narrow("--segment", self.segment)? {
            builder = builder.segment_bytes(bytes);
        }
        if let Some(percent) = self.segment_fill {
            builder = builder.segment_fill_percent(percent);
        }
        if self.discard_segments {
            builder = builder.discard_segments(true);
        }
        if let Some(writes) = self.metadata_writes {
            builder = builder.metadata_writes(writes);
        }
        Ok(builder)
    }

    /// The trace of requests that is asked for.
    pub fn io_trace(&self) -> Result<Option<IoTrace>> {
        self.io_trace.as_deref().map(IoTrace::create).transpose()
    }

    /// Memory for pages, if it was given.
    pub fn buffer_pool_bytes(&self) -> Option<u64> {
        self.buffer_pool
    }

    /// Refuses what means nothing to an append-only tree.
    pub fn check_for_documents(&self) -> Result<()> {
        let given = serde_json::to_value(self).map_err(|error| Error::Other(error.to_string()))?;
        let means_nothing = |(key, value): (&String, &serde_json::Value)| {
            let is_given = match value {
                serde_json::Value::Null => false,
                serde_json::Value::Bool(is_given) => *is_given,
                serde_json::Value::Array(given) => !given.is_empty(),
                _ => true,
            };
            (is_given && !["dir", "data_device", "buffer_pool_bytes"].contains(&&**key)).then(|| key.replace('_', "-"))
        };
        match given.as_object().and_then(|given| given.iter().find_map(means_nothing)) {
            Some(option) => Err(Error::Other(format!(
                "{option} is of the engine; --store append-only takes --dir or --data, and --buffer-pool for its nodes"
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
                .data
                .as_deref()
                .ok_or_else(|| "--simulate needs a device for the tree: --data emulated:PROFILE".to_owned())?;
            let device = simulate::new_device(&emulator, path)?;
            return Ok((documents::Place { device, may_hold_tree: false }, None));
        }
        if let Some(path) = &self.data {
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

    fn page_size(&self) -> Result<Option<u32>> {
        narrow("--page-size", self.page_size)
    }

    fn log_bytes(&self) -> u64 {
        self.log_bytes.unwrap_or(limits::DEFAULT_LOG_BYTES)
    }

    /// Partitions of each log device.
    pub fn log_partitions(&self) -> u32 {
        self.log_partitions.unwrap_or(1)
    }

    /// What was given as log devices.
    pub fn log(&self) -> &[PathBuf] {
        &self.log
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

/// A number of bytes that fits 32 bits.
fn narrow(option: &str, bytes: Option<u64>) -> Result<Option<u32>> {
    let narrow = |bytes| u32::try_from(bytes).map_err(|_| format!("{option} {bytes} is too large").into());
    bytes.map(narrow).transpose()
}

impl Database {
    /// Log devices, each partition counted as one.
    pub fn log_device_count(&self) -> Result<usize> {
        Ok(self.log()?.devices.len())
    }

    /// What the log did since it was opened.
    pub fn log(&self) -> Result<LogSummary> {
        Ok(self.db.stats()?.log)
    }

    /// The database's directory; the current one in a simulation.
    pub fn path(&self) -> &Path {
        self.directory.as_ref().map_or(Path::new(""), |directory| &directory.path)
    }

    /// What the emulated devices have done so far.
    pub fn mark(&self) -> Mark {
        Mark(self.emulator.opened().iter().map(|device| device.counters()).collect())
    }

    /// What the emulated devices have done since then.
    pub fn since(&self, Mark(before): &Mark) -> Vec<DeviceReport> {
        let devices = self.emulator.opened();
        before.iter().zip(&devices).map(|(before, device)| DeviceReport::since(before, device)).collect()
    }

    /// From now on requests to the devices are traced, if that is asked for.
    pub fn begin_io_trace(&self, label: &str) -> Result<()> {
        self.io_trace.as_ref().map_or(Ok(()), |io_trace| io_trace.begin(label))
    }

    /// Ends that; the database did so much meanwhile.
    pub fn end_io_trace(&self, transactions: u64, storage: &StorageReport, emulated: &[DeviceReport]) -> Result<()> {
        let end = |io_trace: &IoTrace| io_trace.end_with(transactions, storage, emulated);
        self.io_trace.as_ref().map_or(Ok(()), end)
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

fn as_text<S: Serializer>(layout: &Option<LogLayout>, serializer: S) -> Result<S::Ok, S::Error> {
    layout.map(|layout| layout.to_string()).serialize(serializer)
}

/// In the current directory, not the system's for temporary files: that may lie in memory.
fn own_directory() -> Result<PathBuf> {
    let path = PathBuf::from(format!("tantalum-bench-{}", std::process::id()));
    std::fs::create_dir(&path).map_err(|error| Error::file("create", &path, error))?;
    Ok(path)
}
