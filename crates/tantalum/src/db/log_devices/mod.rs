//! The log's devices while the database is open: what they are called, and how they come and go.

mod change;
mod gather;
mod growth;
mod places;
mod record;
mod shrinking;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use tantalum_device::Access;
use tantalum_log::{Log, LogLayout, LogStats};
use tantalum_rt::Mutex;

pub use change::{LogChange, LogChangePhase, LogChangeProgress, NewLogDevice};
pub(crate) use gather::{Gathered, lost_by_number};
pub(crate) use growth::{LogGrower, log_files};
pub(crate) use places::{Claimed, LOG, LogPlaces};
pub(crate) use record::{RECORD, read as read_record, stamp as stamp_record};

use crate::{
    db::{DeviceOpener, barriers::BarrierPolicy, files::SETTINGS},
    error::{self, Result},
    options::Settings,
};
use record::{Entry, Record};

/// Where the log of a database is, from [`locate_log`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLocation {
    /// Paths, relative ones from the database's directory on, or names of the [opener](DeviceOpener).
    pub devices: Vec<PathBuf>,
    /// Whether the database recorded them when it was last open. A device whose joining or leaving was interrupted may be among
    /// them then. Otherwise they are those of the settings.
    pub is_recorded: bool,
    /// How many bytes of a device of the opener are used.
    pub device_bytes: u64,
    /// Where the log is archived, in the same way.
    pub archive: Option<PathBuf>,
}

/// Where the log of the database in `directory` is, as its files tell.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?.close()?;
/// let log = tantalum::locate_log(dir.path())?;
/// assert_eq!((log.devices, log.is_recorded, log.device_bytes), (vec!["log-0".into()], true, 4 << 20));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`NotFound`](crate::ErrorKind::NotFound) where there is no `tantalum.toml`; when the files cannot be read.
pub fn locate_log(directory: &Path) -> Result<LogLocation> {
    let path = directory.join(SETTINGS);
    let settings = Settings::read(&path)?.ok_or_else(|| error::not_found(directory.display()))?;
    let places = LogPlaces { directory, settings: &settings, opener: None, access: Access::ReadWrite };
    let recorded = record::read(directory)?;
    let is_recorded = recorded.is_some();
    let devices = match recorded {
        Some(record) => record.devices.into_iter().map(|entry| entry.path).collect(),
        None => places.names(),
    };
    Ok(LogLocation { devices, is_recorded, device_bytes: places.device_bytes(), archive: settings.log_archive.clone() })
}

/// The log's devices by name. Of a database that was opened on devices, these are the devices' own.
pub(crate) struct LogDevices {
    /// Where the record is; absent if nothing is recorded.
    directory: Option<PathBuf>,
    settings: Settings,
    log_id: u128,
    /// The present session of the log.
    session: u64,
    /// Held while an operator changes the devices, or lets the log shrink, or waits for the log's growth to be interrupted.
    operator: Mutex<()>,
    operator_waits: AtomicBool,
    /// Held while the devices change.
    opener: Mutex<Option<Box<dyn DeviceOpener>>>,
    entries: Mutex<Vec<Entry>>,
    /// Devices that join are asked, too.
    pub barriers: Arc<BarrierPolicy>,
}

impl LogDevices {
    /// The devices of a database in a directory, whose log was opened on what was `gathered`. Corrects the record, and keeps it up
    /// to date, if there is a `directory` to record them in.
    pub fn of_directory(
        directory: Option<PathBuf>,
        settings: &Settings,
        opener: Option<Box<dyn DeviceOpener>>,
        gathered: Gathered,
        log: &Log,
        barriers: Arc<BarrierPolicy>,
    ) -> Self {
        let (session, recorded) = (log.stats().epoch, gathered.recorded.clone());
        // The log knows the devices of an array as one; they never change, so the settings go on to name them.
        let is_array = matches!(log.layout(), LogLayout::Striped { .. });
        let entries = if is_array { Vec::new() } else { gathered.settle(&log.stats()) };
        let recorded = recorded.map(|record| record.devices);
        if !is_array
            && recorded.as_ref() != Some(&entries)
            && let Some(directory) = &directory
            && let Err(error) = record::write(directory, &Record { session: Some(session), devices: entries.clone() })
        {
            tantalum_rt::tracing::warn!(%error, "the places of the log's devices could not be recorded; they are as the settings say");
        }
        Self {
            directory,
            settings: settings.clone(),
            log_id: log.log_id(),
            session,
            operator: Mutex::new(()),
            operator_waits: AtomicBool::new(false),
            opener: Mutex::new(opener),
            entries: Mutex::new(entries),
            barriers,
        }
    }

    /// The devices of a database that was opened on devices.
    pub fn of_devices(settings: &Settings, log: &Log, barriers: Arc<BarrierPolicy>) -> Self {
        let entry = |device: tantalum_log::LogDeviceStats| Entry::new(device.name.into(), vec![device.device_id]);
        let entries = log.stats().devices.into_iter().filter(|device| !device.name.is_empty()).map(entry).collect();
        Self {
            directory: None,
            settings: settings.clone(),
            log_id: log.log_id(),
            session: log.stats().epoch,
            operator: Mutex::new(()),
            operator_waits: AtomicBool::new(false),
            opener: Mutex::new(None),
            entries: Mutex::new(entries),
            barriers,
        }
    }

    /// What the device with this identity is called.
    pub fn name_of(&self, device_id: u64) -> Option<PathBuf> {
        let entries = self.entries.lock();
        entries.iter().find(|entry| entry.ids.contains(&device_id)).map(|entry| entry.path.clone())
    }

    /// Records which devices the log goes on without, when that has changed.
    pub fn follow(&self, stats: &LogStats) {
        let mut entries = self.entries.lock();
        let mut followed = entries.clone();
        followed.iter_mut().for_each(|entry| entry.follow(stats));
        if followed == *entries {
            return;
        }
        *entries = followed;
        if let Some(directory) = &self.directory
            && let Err(error) = self.write_record(directory, &entries)
        {
            tantalum_rt::tracing::warn!(%error, "which devices of the log were left behind could not be recorded");
        }
    }

    /// Replaces the record by what the entries are after `change`.
    fn record(&self, change: impl FnOnce(&mut Vec<Entry>)) -> Result<()> {
        let mut entries = self.entries.lock();
        change(&mut entries);
        match &self.directory {
            Some(directory) => self.write_record(directory, &entries),
            None => Ok(()),
        }
    }

    fn write_record(&self, directory: &Path, entries: &[Entry]) -> Result<()> {
        record::write(directory, &Record { session: Some(self.session), devices: entries.to_vec() })
    }
}
