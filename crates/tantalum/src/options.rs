//! What a database can be told: by the [`Builder`], or by `tantalum.toml` in its directory. Both have the same keys; the
//! builder wins. What fixes the format (page size, log layout, devices and their partitions) must not differ from what the
//! database was created with.

mod declared;
mod settings;

use std::{
    fmt::{self, Debug},
    path::Path,
    sync::Arc,
};

use tantalum_device::Device;
use tantalum_store::PageObserver;

use crate::{
    db::{Db, DeviceOpener, DeviceUse, Devices, Plan, Wrap},
    error::Result,
};
pub(crate) use declared::Settings;
pub use declared::{SETTINGS, Setting, SettingKind};
pub(crate) use settings::wrong_number_of_files;

/// How concurrent transactions may see each other's work.
///
/// ```
/// assert_eq!(tantalum::Isolation::default(), tantalum::Isolation::Serializable);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Isolation {
    /// As if transactions ran one after the other: strict two-phase locking on keys, and on the ranges that scans
    /// cover.
    #[default]
    Serializable,
    /// Reads see the state at the transaction's start and take no locks; of two transactions that write the same key
    /// the second fails with [`WriteConflict`](crate::ErrorKind::WriteConflict). Write skew is possible.
    SnapshotIsolation,
}

impl Isolation {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Serializable, Self::SnapshotIsolation];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Serializable => "serializable",
            Self::SnapshotIsolation => "snapshot-isolation",
        }
    }
}

tantalum_device::named_field!(Isolation);

/// How pages survive a power cut in the middle of their write.
///
/// ```
/// assert_eq!(tantalum::TornPageProtection::default(), tantalum::TornPageProtection::Auto);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
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

impl TornPageProtection {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Auto, Self::DoubleWrite, Self::FullPageImages, Self::Device, Self::TrustDevice];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::DoubleWrite => "double-write",
            Self::FullPageImages => "full-page-images",
            Self::Device => "device",
            Self::TrustDevice => "trust-device",
        }
    }
}

tantalum_device::named_field!(TornPageProtection);

/// Whether devices are told to flush their caches, which makes a write durable where a completed one is not
/// ("Durable Write Cache in Flash Memory SSD for Relational and NoSQL Databases", section 2.2).
///
/// ```
/// use tantalum::Barriers;
/// assert_eq!(Barriers::default(), Barriers::Auto);
/// assert_eq!("trust-device".parse(), Ok(Barriers::TrustDevice));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Barriers {
    /// `Off` for each device that says that its cache survives a power cut or that it has none, `On` for all others. Asked
    /// again at each open.
    #[default]
    Auto,
    /// Every device is flushed, whether it needs that or not.
    On,
    /// No device is ever flushed; refused where one does not say that it needs none.
    Off,
    /// As `Off`, on the user's word, whatever the devices say. On a device that loses what it has completed, a power cut
    /// costs acknowledged commits and damages the database.
    TrustDevice,
}

impl Barriers {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::On, Self::Off, Self::TrustDevice];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::TrustDevice => "trust-device",
        }
    }
}

tantalum_device::named_field!(Barriers);

/// What happens to log writes that take more than twice as long as usual, where the log stands on several devices
/// (FlashLogging, section 3.4).
///
/// ```
/// assert_eq!(tantalum::LogHiding::default(), tantalum::LogHiding::On);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LogHiding {
    /// Another device writes the same into an area set aside for that when the log was created; the commit returns when either
    /// has it.
    #[default]
    On,
    /// The threads that wait for the write go on waiting.
    Off,
}

impl LogHiding {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::On, Self::Off];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

tantalum_device::named_field!(LogHiding);

impl From<LogHiding> for tantalum_log::Hiding {
    fn from(hiding: LogHiding) -> Self {
        match hiding {
            LogHiding::On => Self::On,
            LogHiding::Off => Self::Off,
        }
    }
}

/// Where opening a database is. See [`Builder::progress`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
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

/// Calls the callback, if there is one.
pub(crate) fn reporter(callback: &mut Option<Progress>) -> impl FnMut(OpenProgress) {
    move |progress| {
        if let Some(callback) = callback {
            callback(progress);
        }
    }
}

/// Opens a database with settings other than the defaults.
///
/// Each setting ([`SETTINGS`]) can also stand in the file `tantalum.toml` in the database's directory, under the method's name
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
    pub(crate) read_only: bool,
    pub(crate) rebuilds_log: bool,
    pub(crate) lost_log_device: Option<String>,
    pub(crate) progress: Option<Progress>,
    pub(crate) opener: Option<Box<dyn DeviceOpener>>,
    pub(crate) archive_device: Option<Arc<dyn Device>>,
    pub(crate) page_observer: Option<Arc<dyn PageObserver>>,
    pub(crate) wrap_devices: Option<Wrap>,
    /// The database is a copy that is to be small: its log grows no more than its data asks for.
    pub(crate) is_copy: bool,
}

impl Builder {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what few databases need.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let builder = tantalum::Db::builder().log_bytes(8 << 20).expert(|expert| expert.version_bytes(1 << 20).log_gather(false));
    /// # builder.open(dir.path().join("db"))?.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn expert(self, set: impl FnOnce(Expert) -> Expert) -> Self {
        set(Expert { builder: self }).builder
    }

    /// Sets one of [`SETTINGS`] by its name: for programs that take settings on their command line. A path is added to those that were
    /// given before, where a setting has several.
    ///
    /// ```
    /// let builder = tantalum::Db::builder().set("buffer_pool_bytes", "16777216")?;
    /// assert!(builder.set("isolation", "none").unwrap_err().to_string().contains("snapshot-isolation"));
    /// # Ok::<(), tantalum::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for a name that is none, or a value that it cannot have.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self> {
        self.settings.set(name, value)?;
        Ok(self)
    }

    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.settings
    }

    /// Whether a database that does not exist is created; default true.
    pub fn create_if_missing(mut self, create: bool) -> Self {
        self.refuses_to_create = !create;
        self
    }

    /// Whether the database is opened for reading only; default false. Then nothing on any of its devices changes, also if it was not
    /// closed: what recovery does stays in memory, at most [`read_only_memory_bytes`](Expert::read_only_memory_bytes), and goes with
    /// the handle. The directory need not be writable. Other readers can open it at the same time, writers cannot. What would change
    /// the database fails with [`ReadOnly`](crate::ErrorKind::ReadOnly); one that does not exist is not created.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?.table("accounts")?;
    /// let db = tantalum::Db::builder().read_only(true).open(dir.path())?;
    /// assert_eq!(db.tables()?, ["accounts"]);
    /// assert_eq!(db.table("new").unwrap_err().kind(), tantalum::ErrorKind::ReadOnly);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
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
    /// [`InUse`](crate::ErrorKind::InUse) when another process has it open; [`InvalidInput`](crate::ErrorKind::InvalidInput)
    /// for a bad `tantalum.toml`; [`Missing`](crate::ErrorKind::Missing) when one of its files is gone; whatever recovery finds
    /// damaged.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        let db = Db::of_plan(Plan::in_directory(self, path.as_ref())?)?;
        #[cfg(feature = "control")]
        crate::control::serve(&db, path.as_ref());
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
        Db::of_plan(Plan::on_devices(self, devices)?)
    }
}

/// What few databases need: settings beyond those of [`Builder`], and hooks. From [`Builder::expert`].
#[must_use]
#[derive(Debug)]
pub struct Expert {
    builder: Builder,
}

impl Expert {
    fn settings_mut(&mut self) -> &mut Settings {
        &mut self.builder.settings
    }

    /// The device on which the log is archived, for [`Builder::open_on`].
    pub fn log_archive_on(mut self, device: Arc<dyn Device>) -> Self {
        self.builder.archive_device = Some(device);
        self
    }

    /// All of the log's devices are lost: opening makes new ones, at the places of [`log_devices`](Builder::log_devices), from the
    /// [archive](Builder::log_archive), as far as that goes. What was acknowledged by a device of the log and not archived yet is
    /// lost with them; the old devices are refused from then on. A database that does not exist is not created.
    ///
    /// Refused while any of the log's devices is still there: then [`Db::replace_log_device`] is the way. Refused, after reading
    /// all pages, if the archive had been set aside and pages hold changes that it lacks.
    pub fn rebuild_log(mut self) -> Self {
        self.builder.rebuilds_log = true;
        self
    }

    /// This device of the log, by its path or number, is lost for good. After an orderly end of the database it opens without it,
    /// if nothing on it is needed; then take it out of the log ([`Db::remove_log_device`]). Otherwise opening names the records
    /// that are missing, and changes nothing.
    pub fn give_up_log_device(mut self, device: impl Into<String>) -> Self {
        self.builder.lost_log_device = Some(device.into());
        self
    }

    /// The opener of the devices of [`data_device`](Builder::data_device) and [`log_devices`](Builder::log_devices) that are not
    /// files: emulated ones, for example. Default: all are paths.
    pub fn device_opener(mut self, opener: impl DeviceOpener + 'static) -> Self {
        self.builder.opener = Some(Box::new(opener));
        self
    }

    /// The observer that receives every change of a page and every page that is written, for traces, but not what recovery repeats.
    /// Default: none.
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
    /// let db = tantalum::Db::builder().log_bytes(8 << 20);
    /// let db = db.expert(|expert| expert.observe_pages(counter.clone())).open(dir.path().join("db"))?;
    /// db.table("t")?;
    /// db.close()?;
    /// assert!(counter.0.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe_pages(mut self, observer: Arc<dyn PageObserver>) -> Self {
        self.builder.page_observer = Some(observer);
        self
    }

    /// What is put between the database and each of its devices: to count its requests, trace or throttle them. Called once for
    /// each device that opening uses, and for each that joins the log later; a log device is given in its partitions. What is
    /// put there must be a device like the one that it is given: the same bytes, capabilities and hardware. Reads that find out
    /// what is on a device are made before. An archive in a directory is files, which come and go, and no device.
    ///
    /// ```
    /// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
    /// use tantalum::{Device, DeviceUse, Ending, ObservedDevice, Request, RequestKind, RequestObserver};
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
    /// let db = tantalum::Db::builder().log_bytes(8 << 20).expert(|expert| expert.wrap_devices(wrap));
    /// let db = db.open(dir.path().join("db"))?;
    /// db.table("t")?;
    /// db.close()?;
    /// assert!(log.0.load(Ordering::Relaxed) > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wrap_devices(
        mut self,
        wrap: impl Fn(DeviceUse, Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync + 'static,
    ) -> Self {
        self.builder.wrap_devices = Some(Arc::new(wrap));
        self
    }
}

impl Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
