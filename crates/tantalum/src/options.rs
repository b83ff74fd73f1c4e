//! What a database can be told: by the [`Builder`], or by `tantalum.toml` in its directory. Both have the same keys; the
//! builder wins. What fixes the format (page size, log layout, devices and their partitions) must not differ from what the
//! database was created with.

use std::{
    fmt::{self, Debug},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tantalum_device::Device;
use tantalum_log::{ArchiveOptions, ArchiveTarget, LogLayout};

use crate::{
    control,
    db::{Db, DeviceOpener, Devices},
    error::{Error, Result},
    limits, log_layout,
    observer::PageObserver,
    store::{StoreKind, UnitSizes},
};

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
    /// the second fails with [`Error::WriteConflict`]. Write skew is possible.
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
    /// `Device` where the device says that it writes a page atomically, else `DoubleWrite`.
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
    /// Repeating the changes that the log holds.
    Redo,
}

pub(crate) type Progress = Box<dyn FnMut(OpenProgress) + Send>;

/// The keys of `tantalum.toml`; absent ones have their defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub buffer_pool_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_device: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_devices: Option<Vec<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_partitions: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<u64>,
    #[serde(default, with = "log_layout", skip_serializing_if = "Option::is_none")]
    pub log_layout: Option<LogLayout>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_block_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_hiding: Option<LogHiding>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_request_per_flush: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_copies: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_characteristics: Option<Vec<PathBuf>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_archive: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_archive_keep_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_archive_keep_hours: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torn_page_protection: Option<TornPageProtection>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_store: Option<StoreKind>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub erase_unit_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_region_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carry_over_percent: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_lock_release: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_socket: Option<bool>,
}

const DEFAULT_POOL_BYTES: u64 = 64 << 20;
const DEFAULT_LOCK_TIMEOUT_MS: u64 = 10_000;
/// Smallest log partition: four sections of 64 KiB and the blocks before them.
const MIN_PARTITION_BYTES: u64 = 512 << 10;
const MAX_LOG_DEVICES: u32 = 64;
/// In-page logging, section 3.2: a unit of large-block flash, of which 16 sectors are for the log.
const DEFAULT_UNIT_BYTES: u32 = 128 << 10;
const DEFAULT_REGION_SECTORS: u32 = 16;
const DEFAULT_CARRY_OVER_PERCENT: u32 = 50;

impl Settings {
    /// Reads `tantalum.toml`. `None` when there is none.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let text = match std::fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, "read", error)),
        };
        let settings = Self::parse(&text).and_then(|settings: Self| match settings.problem() {
            Some((key, what)) => Err((line_of(&text, key), format!("{key}: {what}"))),
            None => Ok(settings),
        });
        settings.map(Some).map_err(|(line, what)| Error::Config { file: path.display().to_string(), line, what })
    }

    /// On failure, the line (from 1) and what is wrong there.
    fn parse(text: &[u8]) -> Result<Self, (usize, String)> {
        let line_at = |byte: usize| 1 + text.iter().take(byte).filter(|&&b| b == b'\n').count();
        let text =
            str::from_utf8(text).map_err(|error| (line_at(error.valid_up_to()), "this is not UTF-8".to_owned()))?;
        toml::from_str(text).map_err(|error| {
            let line = line_at(error.span().map_or(0, |span| span.start));
            let key =
                text.lines().nth(line - 1).and_then(|text| text.split_once('=')).map_or("", |(key, _)| key.trim());
            let what = error.message().trim().replace('\n', " ");
            (line, if key.is_empty() || what.contains(key) { what } else { format!("{key}: {what}") })
        })
    }

    /// The file's text: the given keys, one a line.
    pub fn to_toml(&self) -> Result<String> {
        let keys = toml::to_string(self).map_err(|error| Error::Option { what: error.to_string() })?;
        Ok(format!("# Tantalum's settings; every key is explained at tantalum::Builder.\n{keys}"))
    }

    /// These settings with a value for each that must not differ at a later open.
    pub fn with_format_spelt_out(&self) -> Self {
        let (page_size, log_partitions) = (Some(self.page_size()), Some(self.log_partitions()));
        Self { page_size, log_partitions, log_bytes: Some(self.log_bytes()), ..self.clone() }
    }

    /// What another database can have too: nothing that says where this one's files are, or how they lie there.
    pub fn without_places(&self) -> Self {
        let &Self { buffer_pool_bytes, log_bytes, lock_timeout_ms, early_lock_release, isolation, .. } = self;
        Self { buffer_pool_bytes, log_bytes, lock_timeout_ms, early_lock_release, isolation, ..Self::default() }
    }

    /// These settings, with those of `file` where they say nothing.
    pub fn over(self, file: Self) -> Self {
        Self {
            page_size: self.page_size.or(file.page_size),
            buffer_pool_bytes: self.buffer_pool_bytes.or(file.buffer_pool_bytes),
            data_device: self.data_device.or(file.data_device),
            log_devices: self.log_devices.or(file.log_devices),
            log_partitions: self.log_partitions.or(file.log_partitions),
            log_bytes: self.log_bytes.or(file.log_bytes),
            log_hiding: self.log_hiding.or(file.log_hiding),
            log_request_per_flush: self.log_request_per_flush.or(file.log_request_per_flush),
            log_copies: self.log_copies.or(file.log_copies),
            log_characteristics: self.log_characteristics.or(file.log_characteristics),
            log_layout: self.log_layout.or(file.log_layout),
            log_block_bytes: self.log_block_bytes.or(file.log_block_bytes),
            log_archive: self.log_archive.or(file.log_archive),
            log_archive_keep_bytes: self.log_archive_keep_bytes.or(file.log_archive_keep_bytes),
            log_archive_keep_hours: self.log_archive_keep_hours.or(file.log_archive_keep_hours),
            torn_page_protection: self.torn_page_protection.or(file.torn_page_protection),
            page_store: self.page_store.or(file.page_store),
            erase_unit_bytes: self.erase_unit_bytes.or(file.erase_unit_bytes),
            log_region_bytes: self.log_region_bytes.or(file.log_region_bytes),
            carry_over_percent: self.carry_over_percent.or(file.carry_over_percent),
            lock_timeout_ms: self.lock_timeout_ms.or(file.lock_timeout_ms),
            early_lock_release: self.early_lock_release.or(file.early_lock_release),
            isolation: self.isolation.or(file.isolation),
            control_socket: self.control_socket.or(file.control_socket),
        }
    }

    /// The first key with a value that cannot be, and why.
    fn problem(&self) -> Option<(&'static str, String)> {
        if let Some(size) = self.page_size
            && !limits::PAGE_SIZES.contains(&size)
        {
            return Some(("page_size", format!("{size} is not 4096, 8192 or 16384")));
        }
        let pool_min = limits::MIN_POOL_PAGES as u64 * u64::from(self.page_size());
        if self.buffer_pool_bytes() < pool_min {
            let pages = limits::MIN_POOL_PAGES;
            return Some(("buffer_pool_bytes", format!("it must be at least {pool_min}, room for {pages} pages")));
        }
        if usize::try_from(self.buffer_pool_bytes()).is_err() {
            return Some(("buffer_pool_bytes", "it is more than this machine can address".into()));
        }
        if self.log_devices.as_ref().is_some_and(Vec::is_empty) {
            return Some(("log_devices", "a log needs at least one device".into()));
        }
        let partitions = u64::from(self.log_partitions());
        let devices = self.log_devices.as_ref().map_or(1, Vec::len) as u64;
        if partitions == 0 || partitions.saturating_mul(devices) > u64::from(MAX_LOG_DEVICES) {
            return Some(("log_partitions", format!("there must be 1 to {MAX_LOG_DEVICES} partitions in all")));
        }
        if let (Some(files), Some(devices)) = (&self.log_characteristics, &self.log_devices)
            && files.len() != devices.len()
        {
            return Some(("log_characteristics", wrong_number_of_files(files.len(), devices.len())));
        }
        if self.log_layout() == LogLayout::Single && partitions.saturating_mul(devices) != 1 {
            return Some(("log_layout", "the single layout has one log device and one partition".into()));
        }
        if !(1..=2).contains(&self.log_copies()) {
            return Some(("log_copies", format!("{} was asked for; it must be 1 or 2", self.log_copies())));
        }
        if self.log_copies() > 1 && self.log_layout() != LogLayout::FlashLogging {
            return Some(("log_copies", "only the layout flash-logging keeps more than one copy".into()));
        }
        if self.log_bytes() / partitions < MIN_PARTITION_BYTES {
            return Some(("log_bytes", format!("each partition needs at least {MIN_PARTITION_BYTES} bytes")));
        }
        self.problem_of_store()
    }

    fn problem_of_store(&self) -> Option<(&'static str, String)> {
        let sizes = [
            ("erase_unit_bytes", self.erase_unit_bytes),
            ("log_region_bytes", self.log_region_bytes),
            ("carry_over_percent", self.carry_over_percent),
        ];
        let is_other = self.page_store.is_some_and(|store| store != StoreKind::InPageLogging);
        if let Some((key, _)) = sizes.into_iter().find(|(_, value)| is_other && value.is_some()) {
            return Some((key, "it is a setting of the page store in-page-logging".into()));
        }
        if self.page_store != Some(StoreKind::InPageLogging) {
            return None;
        }
        if self.carry_over_percent() > 100 {
            return Some(("carry_over_percent", "it is a part of a unit's log sectors, 100 at most".into()));
        }
        if self.torn_page_protection() != TornPageProtection::Auto {
            return Some(("torn_page_protection", "the page store in-page-logging needs none; leave it out".into()));
        }
        None
    }

    /// Refuses values that cannot be.
    pub fn check(&self) -> Result<()> {
        match self.problem() {
            Some((key, what)) => Err(Error::Option { what: format!("{key}: {what}") }),
            None => Ok(()),
        }
    }

    pub fn page_size(&self) -> u32 {
        self.page_size.unwrap_or(limits::PAGE_SIZES[0])
    }

    pub fn buffer_pool_bytes(&self) -> u64 {
        self.buffer_pool_bytes.unwrap_or(DEFAULT_POOL_BYTES)
    }

    /// Partitions that each log device is cut into.
    pub fn log_partitions(&self) -> u32 {
        self.log_partitions.unwrap_or(1)
    }

    pub fn log_bytes(&self) -> u64 {
        self.log_bytes.unwrap_or(limits::DEFAULT_LOG_BYTES)
    }

    pub fn log_hiding(&self) -> LogHiding {
        self.log_hiding.unwrap_or_default()
    }

    pub fn log_copies(&self) -> u8 {
        self.log_copies.unwrap_or(1)
    }

    pub fn log_layout(&self) -> LogLayout {
        self.log_layout.unwrap_or_default()
    }

    /// The options of an archive at `target`.
    pub fn archive(&self, target: ArchiveTarget) -> ArchiveOptions {
        let keep_time = self.log_archive_keep_hours.map(|hours| Duration::from_secs(hours.saturating_mul(3600)));
        ArchiveOptions { keep_bytes: self.log_archive_keep_bytes, keep_time, ..ArchiveOptions::at(target) }
    }

    pub fn lock_timeout(&self) -> Duration {
        Duration::from_millis(self.lock_timeout_ms.unwrap_or(DEFAULT_LOCK_TIMEOUT_MS))
    }

    pub fn early_lock_release(&self) -> bool {
        self.early_lock_release.unwrap_or(true)
    }

    pub fn control_socket(&self) -> bool {
        self.control_socket.unwrap_or(true)
    }

    pub fn isolation(&self) -> Isolation {
        self.isolation.unwrap_or_default()
    }

    pub fn page_store(&self) -> StoreKind {
        self.page_store.unwrap_or_default()
    }

    /// The sizes of in-page logging on a device with such blocks.
    pub fn unit_sizes(&self, logical_block: u32) -> UnitSizes {
        let sector = logical_block.max(512);
        let unit = self.erase_unit_bytes.unwrap_or(DEFAULT_UNIT_BYTES);
        UnitSizes {
            unit,
            // What is left of the unit must be whole pages.
            region: self
                .log_region_bytes
                .unwrap_or((DEFAULT_REGION_SECTORS * sector).min(unit / 2).next_multiple_of(self.page_size())),
            sector,
        }
    }

    /// How much of a unit's log sectors a merge carries over at most.
    pub fn carry_over_percent(&self) -> u32 {
        self.carry_over_percent.unwrap_or(DEFAULT_CARRY_OVER_PERCENT)
    }

    pub fn torn_page_protection(&self) -> TornPageProtection {
        self.torn_page_protection.unwrap_or_default()
    }
}

/// What is wrong if each log device does not have its file.
pub(crate) fn wrong_number_of_files(files: usize, devices: usize) -> String {
    format!("{files} files are given for {devices} log devices; give one for each, in their order")
}

/// The line of the file that sets `key`.
fn line_of(text: &[u8], key: &str) -> usize {
    let sets_key = |line: &[u8]| line.trim_ascii_start().starts_with(key.as_bytes());
    text.split(|&byte| byte == b'\n').position(sets_key).map_or(1, |index| index + 1)
}

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
    /// writes in the pool at the same time.
    pub fn buffer_pool_bytes(mut self, bytes: u64) -> Self {
        self.settings.buffer_pool_bytes = Some(bytes);
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

    /// On how many log devices, on different hardware, a commit must be before it is acknowledged: 1, the default, or 2. With 2,
    /// losing any one log device loses nothing, and the database opens without it. While only one is left it goes on with
    /// one copy and says so ([`LogSummary::keeps_copies`](crate::LogSummary::keeps_copies)). Can be changed from one open to
    /// the next.
    pub fn log_copies(mut self, copies: u8) -> Self {
        self.settings.log_copies = Some(copies);
        self
    }

    /// What was measured of the log devices: a file for each (`docs/characteristics.md`), in the order of
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

    /// How pages survive a power cut in the middle of their write.
    pub fn torn_page_protection(mut self, protection: TornPageProtection) -> Self {
        self.settings.torn_page_protection = Some(protection);
        self
    }

    /// How pages are stored; default [`StoreKind::InPlace`]. Fixed when the database is created.
    ///
    /// [`StoreKind::InPageLogging`] writes changes beside their page ("In-Page Logging", SIGMOD 2007): for flash without a
    /// translation layer, and devices on which small writes are dear. It keeps no redo in the log, so it cannot be archived.
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

    /// How long a transaction waits for a lock before it fails with [`Error::LockTimeout`]; default 10 s. Deadlocks are
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
    /// Refused while any of the log's devices is still there: then [`Db::replace_log_device`] is the way.
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
    pub fn observe_pages(mut self, observer: Arc<dyn PageObserver>) -> Self {
        self.page_observer = Some(observer);
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
    /// [`Error::InUse`] when another process has it open; [`Error::Config`] for a bad `tantalum.toml`;
    /// [`Error::Missing`] when one of its files is gone; whatever recovery finds damaged.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &str) -> (usize, String) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        match Settings::read(file.path()) {
            Err(Error::Config { line, what, .. }) => (line, what),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let settings = Settings {
            page_size: Some(8192),
            data_device: Some("/dev/c".into()),
            log_devices: Some(vec!["a".into(), "/dev/b".into()]),
            torn_page_protection: Some(TornPageProtection::FullPageImages),
            isolation: Some(Isolation::SnapshotIsolation),
            log_hiding: Some(LogHiding::Naive),
            log_request_per_flush: Some(true),
            log_copies: Some(2),
            log_characteristics: Some(vec!["a.toml".into(), "/etc/b.toml".into()]),
            log_archive: Some("/archive".into()),
            log_archive_keep_hours: Some(48),
            lock_timeout_ms: Some(5),
            log_layout: Some(LogLayout::Striped { unit_bytes: 512 }),
            log_block_bytes: Some(512),
            ..Settings::default()
        };
        assert_eq!(Settings::parse(settings.to_toml().unwrap().as_bytes()), Ok(settings));
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        let (line, what) = error_of("page_size = 4096\n\nbufer_pool_bytes = 1\n");
        assert_eq!(line, 3);
        assert!(what.contains("bufer_pool_bytes"), "{what}");
        let (line, what) = error_of("# comment\npage_size = 5000\n");
        assert_eq!(line, 2);
        assert!(what.contains("page_size") && what.contains("5000"), "{what}");
        let (line, what) = error_of("page_size = 4096\nearly_lock_release = 3\n");
        assert_eq!(line, 2);
        assert!(what.contains("bool"), "{what}");
        assert_eq!(error_of("page_size = 4096\nlog_devices = []\n").0, 2);
        let (line, what) = error_of("page_size = 4096\nlog_layout = \"double\"\n");
        assert!(line == 2 && what.contains("flash-logging"), "{what}");
        assert_eq!(error_of("log_partitions = 2\nlog_layout = \"single\"\n").0, 2);
        assert_eq!(error_of("log_bytes = 99\n").0, 1);
        assert_eq!(error_of("log_partitions = 65\n").0, 1);
        assert_eq!(error_of("buffer_pool_bytes = 9\n").0, 1);
        assert_eq!(error_of("isolation = \"none\"\n").0, 1);
        assert_eq!(error_of("log_hiding = \"maybe\"\n").0, 1);
        assert_eq!(error_of("log_copies = 3\n").0, 1);
        let (line, what) = error_of("log_devices = [\"a\", \"b\"]\nlog_characteristics = [\"a.toml\"]\n");
        assert!(line == 2 && what.contains("1 files are given for 2 log devices"), "{what}");
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error() {
        assert_eq!(Settings::parse(b"page_size = 4096\n\xff"), Err((2, "this is not UTF-8".into())));
    }

    #[test]
    fn the_builder_wins() {
        let builder = Settings { page_size: Some(8192), ..Settings::default() };
        let file = Settings { page_size: Some(4096), log_bytes: Some(1 << 20), ..Settings::default() };
        let both = builder.over(file);
        assert_eq!((both.page_size(), both.log_bytes()), (8192, 1 << 20));
    }
}
