//! What a database can be told: by the [`Builder`], or by `tantalum.toml` in its directory. Both have the same keys; the
//! builder wins. What fixes the format (page size, log layout, devices and their partitions) must not differ from what the
//! database was created with.

mod segments;
mod settings;
mod writing;

use std::{
    fmt::{self, Debug},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tantalum_device::Device;
use tantalum_log::LogLayout;
use tantalum_store::{PageObserver, StoreKind};

use crate::{
    control,
    db::{Db, DeviceOpener, DeviceUse, Devices, Wrap},
    error::Result,
};
pub(crate) use settings::{Settings, wrong_number_of_files};
pub use writing::Barriers;

/// How concurrent transactions may see each other's work.
///
/// ```
/// assert_eq!(tantalum::Isolation::default(), tantalum::Isolation::Serializable);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// As if transactions ran one after the other: strict two-phase locking on keys, and on the ranges that scans
    /// cover.
    #[default]
    Serializable,
    /// Reads see the state at the transaction's start and take no locks; of two transactions that write the same key
    /// the second fails with [`Error::WriteConflict`](crate::Error::WriteConflict). Write skew is possible.
    SnapshotIsolation,
}

/// How pages survive a power cut in the middle of their write.
///
/// ```
/// assert_eq!(tantalum::TornPageProtection::default(), tantalum::TornPageProtection::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TornPageProtection {
    /// `Device` where the device says that it writes a page atomically, else `DoubleWrite`. Asked again at each open.
    #[default]
    Auto,
    /// Every page is written to a second place first.
    DoubleWrite,
    /// The first change of a page after a checkpoint puts the whole page into the log.
    FullPageImages,
    /// The device writes a page atomically; refused where it does not say so.
    Device,
    /// As `Device`, on the user's word, whatever the device says.
    TrustDevice,
}

/// What happens to log writes that take more than twice as long as usual, where the log stands on several devices
/// (FlashLogging, section 3.4).
///
/// ```
/// assert_eq!(tantalum::LogHiding::default(), tantalum::LogHiding::On);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogHiding {
    /// Another device writes the same into an area set aside for that; the commit returns when either has it.
    #[default]
    On,
    /// Whoever waits for the write waits on.
    Off,
    /// As `On` without such areas: another device takes the write only if it has not gone on meanwhile. For comparisons.
    Naive,
}

impl From<LogHiding> for tantalum_log::Hiding {
    fn from(hiding: LogHiding) -> Self {
        match hiding {
            LogHiding::On => Self::On,
            LogHiding::Off => Self::Off,
            LogHiding::Naive => Self::Naive,
        }
    }
}

/// Where opening a database is. See [`Builder::progress`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct OpenProgress {
    /// What is being done.
    pub phase: OpenPhase,
    /// Bytes done in this phase.
    pub done_bytes: u64,
    /// Bytes to do in this phase, as far as known; 0 when it is not.
    pub total_bytes: u64,
}

/// What opening a database is doing.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OpenPhase {
    /// Writing zeros to new files.
    Create,
    /// Finding the end of the log.
    ScanLog,
    /// Seeing whether all pages suit a log that is made anew from its archive.
    CheckPages,
    /// Repeating the changes that the log holds.
    Redo,
}

pub(crate) type Progress = Box<dyn FnMut(OpenProgress) + Send>;

/// Opens a database with settings other than the defaults.
///
/// Each setting can also stand in the file `tantalum.toml` in the database's directory, under the method's name
/// (`lock_timeout` as `lock_timeout_ms`); what is set here wins. Creating a database writes the file.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder()
///     .page_size(8192)
///     .buffer_pool_bytes(16 << 20)
///     .log_bytes(16 << 20)
///     .open(dir.path().join("accounts.db"))?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
#[derive(Default)]
pub struct Builder {
    pub(crate) settings: Settings,
    pub(crate) refuses_to_create: bool,
    pub(crate) rebuilds_log: bool,
    pub(crate) lost_log_device: Option<String>,
    pub(crate) progress: Option<Progress>,
    pub(crate) opener: Option<Box<dyn DeviceOpener>>,
    pub(crate) archive_device: Option<Arc<dyn Device>>,
    pub(crate) page_observer: Option<Arc<dyn PageObserver>>,
    pub(crate) wrap_devices: Option<Wrap>,
}

impl Builder {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes of a page: 4096 (the default), 8192 or 16384. Fixed when the database is created.
    pub fn page_size(mut self, bytes: u32) -> Self {
        self.settings.page_size = Some(bytes);
        self
    }

    /// Bytes of memory for pages; default 64 MiB, at least 64 pages. A transaction's commit needs all the pages that it
    /// writes in the pool at the same time, those of large values too: three quarters of the pool at most, or all but 16 pages if that
    /// is more. Where keys were found is remembered in 1.6 % as much memory beside it, 3.1 % if the
    /// number of pages is no power of two (of pages of 4096 bytes).
    pub fn buffer_pool_bytes(mut self, bytes: u64) -> Self {
        self.settings.buffer_pool_bytes = Some(bytes);
        self
    }

    /// Bytes of memory for old versions of rows that snapshots see; default a quarter of the
    /// [buffer pool](Self::buffer_pool_bytes), at least 16 KiB. What exceeds it goes to free pages of the data device while the snapshots
    /// live. Beyond it may be what one transaction overwrites.
    pub fn version_bytes(mut self, bytes: u64) -> Self {
        self.settings.version_bytes = Some(bytes);
        self
    }

    /// The raw block device that holds the pages, instead of a file in the directory; a file that exists does too. Its
    /// end is the double-write area, its size the database's largest. A relative path starts at the directory.
    pub fn data_device(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.data_device = Some(path.into());
        self
    }

    /// Files or raw block devices that hold the log, in any order; missing files are created together with the
    /// database. Default: one file `log-0` in the directory. Relative paths start at the directory.
    ///
    /// The database remembers where they are, and which came and went later ([`Db::add_log_device`]). Naming them again
    /// is needed only for those that were moved.
    pub fn log_devices(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.settings.log_devices = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// Into how many partitions each log device is cut; the log writes to all at the same time (FlashLogging, section
    /// 3 and Figure 17). Default 1: more pay on a device that serves several durable writes at once in hardly more time
    /// than one, and make commits slower on others; `tantalum bench kv` tells. Fixed when the database is created.
    pub fn log_partitions(mut self, partitions: u32) -> Self {
        self.settings.log_partitions = Some(partitions);
        self
    }

    /// Bytes of each log file that is created, and used of each device of a [`DeviceOpener`]; default 256 MiB. It bounds
    /// recovery time, and the largest transaction: about an eighth of an eighth of a partition.
    pub fn log_bytes(mut self, bytes: u64) -> Self {
        self.settings.log_bytes = Some(bytes);
        self
    }

    /// What happens to log writes that take much longer than usual; default [`LogHiding::On`]. It makes a difference only
    /// where the log stands on several devices. A database that was created with `On` has areas set aside for it on its
    /// log devices.
    pub fn log_hiding(mut self, hiding: LogHiding) -> Self {
        self.settings.log_hiding = Some(hiding);
        self
    }

    /// Whether each commit that finds its records in no log request yet makes one of its own at once, as FlashLogging does
    /// (section 3.5), instead of sharing one with all commits that come while no log device is free. For comparisons;
    /// default false.
    pub fn log_request_per_flush(mut self, per_flush: bool) -> Self {
        self.settings.log_request_per_flush = Some(per_flush);
        self
    }

    /// Whether a commit that could be written at once waits a moment for those that follow what the last write completed: for less
    /// than half of what a write takes, and only where others do come. Without it, a few clients that commit one transaction after
    /// the other often wait for two writes each. Default true.
    pub fn log_gather(mut self, gather: bool) -> Self {
        self.settings.log_gather = Some(gather);
        self
    }

    /// On how many log devices, on different hardware, a commit must be before it is acknowledged: 1, the default, or 2. With 2,
    /// losing any one log device loses nothing, and the database opens without it. While only one is left it goes on with
    /// one copy and says so ([`LogSummary::keeps_copies`](crate::LogSummary::keeps_copies)). Can be changed from one open to
    /// the next.
    pub fn log_copies(mut self, copies: u8) -> Self {
        self.settings.log_copies = Some(copies);
        self
    }

    /// What was measured of the log devices: a file for each (`docs/use/devices.md#characteristics-files`), in the order of
    /// [`log_devices`](Self::log_devices). Relative paths start at the directory. Default: how long writes usually take is
    /// learnt from the writes.
    pub fn log_characteristics(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Self {
        self.settings.log_characteristics = Some(paths.into_iter().map(Into::into).collect());
        self
    }

    /// How the log lies on its devices: as FlashLogging does (the default), or in a layout to compare it with. In the
    /// file `"flash-logging"`, `"single"`, `"striped:64KiB"` or `{ striped = "64KiB" }`. Fixed when the database is
    /// created.
    pub fn log_layout(mut self, layout: LogLayout) -> Self {
        self.settings.log_layout = Some(layout);
        self
    }

    /// Bytes of which each write to the log is a multiple: a power of two from 512, or the log devices' logical block,
    /// to 4096. Default 4096, in the comparison layouts the logical block. Fixed when the database is created.
    ///
    /// Small blocks waste less on small commits; but where a device's physical block is larger, it rewrites earlier
    /// commits beside a write, and a power cut may then take those along.
    pub fn log_block_bytes(mut self, bytes: u32) -> Self {
        self.settings.log_block_bytes = Some(bytes);
        self
    }

    /// Where the whole log is kept once more, a little behind its end (FlashLogging, section 3.7): a directory, a raw block
    /// device, or a device of the [`DeviceOpener`]. It completes commits when it is faster than the log's devices, and keeps
    /// what checkpoints release. A relative path starts at the directory. Default: nowhere. A new archive begins when the database is opened with it.
    pub fn log_archive(mut self, path: impl Into<PathBuf>) -> Self {
        self.settings.log_archive = Some(path.into());
        self
    }

    /// The oldest files of an archive in a directory are removed while all take more than this, except for what opening
    /// the database needs. Default: never.
    pub fn log_archive_keep_bytes(mut self, bytes: u64) -> Self {
        self.settings.log_archive_keep_bytes = Some(bytes);
        self
    }

    /// Files of an archive in a directory are removed when all that they hold is older than so many hours, except for what
    /// opening the database needs. Default: never.
    pub fn log_archive_keep_hours(mut self, hours: u64) -> Self {
        self.settings.log_archive_keep_hours = Some(hours);
        self
    }

    /// The device on which the log is archived, for [`open_on`](Self::open_on).
    pub fn log_archive_on(mut self, device: Arc<dyn Device>) -> Self {
        self.archive_device = Some(device);
        self
    }

    /// How pages survive a power cut in the middle of their write. Except for full page images, which stay what they are, it can
    /// be changed from one open to the next.
    pub fn torn_page_protection(mut self, protection: TornPageProtection) -> Self {
        self.settings.torn_page_protection = Some(protection);
        self
    }

    /// How pages are stored; default [`StoreKind::InPlace`]. Fixed when the database is created.
    ///
    /// [`StoreKind::InPageLogging`] writes changes beside their page ("In-Page Logging", SIGMOD 2007): for flash without a
    /// translation layer, and devices on which small writes are dear. It keeps no redo in the log, so it cannot be archived.
    /// [`StoreKind::LogStructured`] appends pages in large writes and cleans up behind itself: for devices on which writes
    /// anywhere cost much more than writes one behind the other.
    pub fn page_store(mut self, store: StoreKind) -> Self {
        self.settings.page_store = Some(store);
        self
    }

    /// Bytes of an erase unit of in-page logging: a power of two, and on raw flash a multiple of its erase block; default
    /// 128 KiB. Fixed when the database is created.
    pub fn erase_unit_bytes(mut self, bytes: u32) -> Self {
        self.settings.erase_unit_bytes = Some(bytes);
        self
    }

    /// Bytes of each erase unit that are for log sectors; default 16 of the device's logical blocks, but at most half of the
    /// unit, and whole pages. A larger region means fewer merges and room for fewer pages. Fixed when the database is created.
    pub fn log_region_bytes(mut self, bytes: u32) -> Self {
        self.settings.log_region_bytes = Some(bytes);
        self
    }

    /// How many of a unit's log sectors, in percent, a merge may carry over because their change groups are not committed
    /// yet; with more, sectors go to an overflow unit ("In-Page Logging", section 5.3). Default 50.
    pub fn carry_over_percent(mut self, percent: u32) -> Self {
        self.settings.carry_over_percent = Some(percent);
        self
    }

    /// How long a transaction waits for a lock before it fails with [`Error::LockTimeout`](crate::Error::LockTimeout); default 10 s. Deadlocks are
    /// found at once, whatever the value.
    pub fn lock_timeout(mut self, timeout: Duration) -> Self {
        self.settings.lock_timeout_ms = Some(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// Whether a committing transaction releases its locks before its log record is durable; default true. Nobody is
    /// ever told of a commit that is not durable: whoever reads its writes waits for it at the end.
    pub fn early_lock_release(mut self, early: bool) -> Self {
        self.settings.early_lock_release = Some(early);
        self
    }

    /// The isolation of [`Db::begin`]; default [`Isolation::Serializable`].
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.settings.isolation = Some(isolation);
        self
    }

    /// Whether the database takes orders at the socket `control.sock` in its directory, from processes of the same user
    /// ([`control`](crate::control)); default true. The program `tantalum` changes the log's devices that way.
    pub fn control_socket(mut self, control: bool) -> Self {
        self.settings.control_socket = Some(control);
        self
    }

    /// Whether a database that does not exist is created; default true.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.refuses_to_create = !create;
        self
    }

    /// All of the log's devices are lost: opening makes new ones, at the places of [`log_devices`](Self::log_devices), from the
    /// [archive](Self::log_archive), as far as that goes. What was acknowledged by a device of the log and not archived yet is
    /// lost with them; the old devices are refused from then on. A database that does not exist is not created.
    ///
    /// Refused while any of the log's devices is still there: then [`Db::replace_log_device`] is the way. Refused, after reading
    /// all pages, if the archive had been set aside and pages hold changes that it lacks.
    pub fn rebuild_log(mut self) -> Self {
        self.rebuilds_log = true;
        self
    }

    /// This device of the log, by its path or number, is lost for good. After an orderly end of the database it opens without it,
    /// if nothing on it is needed; then take it out of the log ([`Db::remove_log_device`]). Otherwise opening names the records
    /// that are missing, and changes nothing.
    pub fn give_up_log_device(mut self, device: impl Into<String>) -> Self {
        self.lost_log_device = Some(device.into());
        self
    }

    /// Who opens the devices of [`data_device`](Self::data_device) and [`log_devices`](Self::log_devices) that are not
    /// files: emulated ones, for example. Default: all are paths.
    pub fn device_opener(mut self, opener: impl DeviceOpener + 'static) -> Self {
        self.opener = Some(Box::new(opener));
        self
    }

    /// Who is told of every change of a page and of every page that is written, for traces: not of what recovery repeats.
    /// Default: nobody.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use tantalum::{PageChange, PageId, PageObserver};
    ///
    /// #[derive(Default)]
    /// struct Counter(AtomicU64);
    ///
    /// impl PageObserver for Counter {
    ///     fn changed(&self, _page: PageId, change: PageChange) {
    ///         self.0.fetch_add(u64::from(change.bytes), Ordering::Relaxed);
    ///     }
    ///     fn written(&self, _page: PageId) {}
    /// }
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let counter = Arc::new(Counter::default());
    /// let db = tantalum::Db::builder().log_bytes(8 << 20).observe_pages(counter.clone()).open(dir.path().join("db"))?;
    /// db.table("t")?;
    /// db.close()?;
    /// assert!(counter.0.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe_pages(mut self, observer: Arc<dyn PageObserver>) -> Self {
        self.page_observer = Some(observer);
        self
    }

    /// What is put between the database and each of its devices: to count its requests, trace or throttle them. Called once for
    /// each device that opening uses, and for each that joins the log later; a log device is given in its partitions. What is
    /// put there must be a device like the one that it is given: the same bytes, capabilities and hardware. Reads that find out
    /// what is on a device are made before. An archive in a directory is files, which come and go, and no device.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use tantalum::DeviceUse;
    /// use tantalum_device::{Device, Ending, ObservedDevice, Request, RequestKind, RequestObserver};
    ///
    /// #[derive(Debug, Default)]
    /// struct Written(AtomicU64);
    ///
    /// impl RequestObserver for Written {
    ///     fn began(&self, request: Request) -> u64 {
    ///         if matches!(request.kind, RequestKind::Write(_)) {
    ///             self.0.fetch_add(request.len, Ordering::Relaxed);
    ///         }
    ///         0
    ///     }
    ///     fn ended(&self, _number: u64, _ending: Ending) {}
    /// }
    ///
    /// # let dir = tempfile::tempdir()?;
    /// let log = Arc::new(Written::default());
    /// let meter = log.clone();
    /// let wrap = move |used_for, device: Arc<dyn Device>| match used_for {
    ///     DeviceUse::Log => Arc::new(ObservedDevice::new(device, meter.clone())) as Arc<dyn Device>,
    ///     _ => device,
    /// };
    /// let db = tantalum::Db::builder().log_bytes(8 << 20).wrap_devices(wrap).open(dir.path().join("db"))?;
    /// db.table("t")?;
    /// db.close()?;
    /// assert!(log.0.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wrap_devices(
        mut self,
        wrap: impl Fn(DeviceUse, Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync + 'static,
    ) -> Self {
        self.wrap_devices = Some(Arc::new(wrap));
        self
    }

    /// Called again and again while the database is created or recovered.
    pub fn progress(mut self, callback: impl FnMut(OpenProgress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// Opens the database in the directory `path`, or creates it.
    ///
    /// # Errors
    /// [`Error::InUse`](crate::Error::InUse) when another process has it open; [`Error::Config`](crate::Error::Config) for a bad `tantalum.toml`;
    /// [`Error::Missing`](crate::Error::Missing) when one of its files is gone; whatever recovery finds damaged.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let db = crate::db::open_directory(self, path.as_ref())?;
        control::serve(&db, path.as_ref());
        Ok(db)
    }

    /// Opens the database on these devices, or creates it where the data device holds nothing but zeros.
    ///
    /// For devices that are not files, such as emulated ones. Nothing keeps two processes from opening the same devices,
    /// and no `tantalum.toml` is read.
    ///
    /// # Errors
    /// Whatever recovery finds missing or damaged.
    pub fn open_on(self, devices: Devices) -> Result<Db> {
        crate::db::open_devices(self, devices)
    }
}

impl Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
