//! The log's devices while the database is open: what they are called, and how they come and go.

mod change;
mod gather;
mod places;
mod record;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_log::{Log, LogLayout, LogStats};
use tantalum_rt::Mutex;

pub use change::{LogChange, LogChangePhase, LogChangeProgress, NewLogDevice};
pub(crate) use gather::{Gathered, lost_by_number};
pub(crate) use places::{Claimed, LOG, LogPlaces};
pub(crate) use record::{RECORD, read as read_record, stamp as stamp_record};

use crate::{
    db::{DeviceOpener, barriers::BarrierPolicy},
    error::Result,
    options::Settings,
};
use record::{Entry, Record};

/// Where the log's devices of the database in `directory` are, by name, as the database recorded it when it was last open.
/// `None` where there is no record. A device whose joining or leaving was interrupted may be among them.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// tantalum::Db::builder().log_bytes(4 << 20).open(dir.path())?.close()?;
/// assert_eq!(tantalum::recorded_log_devices(dir.path())?, Some(vec!["log-0".into()]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the record cannot be read.
pub fn recorded_log_devices(directory: &Path) -> Result<Option<Vec<PathBuf>>> {
    Ok(record::read(directory)?.map(|record| record.devices.into_iter().map(|entry| entry.path).collect()))
}

/// The log's devices by name. Of a database that was opened on devices, these are the devices' own.
pub(crate) struct LogDevices {
    /// Where the record is; absent if the database was opened on devices.
    directory: Option<PathBuf>,
    settings: Settings,
    log_id: u128,
    /// The present session of the log.
    session: u64,
    /// Held while the devices change.
    opener: Mutex<Option<Box<dyn DeviceOpener>>>,
    entries: Mutex<Vec<Entry>>,
    /// Devices that join are asked, too.
    barriers: Arc<BarrierPolicy>,
}

impl LogDevices {
    /// The devices of a database in a directory, whose log was opened on what was `gathered`. Corrects the record.
    pub fn of_directory(
        directory: PathBuf,
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
            && let Err(error) = record::write(&directory, &Record { session: Some(session), devices: entries.clone() })
        {
            tracing::warn!(%error, "the places of the log's devices could not be recorded; they are as the settings say");
        }
        Self {
            directory: Some(directory),
            settings: settings.clone(),
            log_id: log.log_id(),
            session,
            opener: Mutex::new(opener),
            entries: Mutex::new(entries),
            barriers,
        }
    }

    /// The devices of a database that was opened on devices.
    pub fn of_devices(settings: &Settings, log: &Log, barriers: Arc<BarrierPolicy>) -> Self {
        let entry = |device: tantalum_log::DeviceStats| Entry::new(device.name.into(), vec![device.device_id]);
        let entries = log.stats().devices.into_iter().filter(|device| !device.name.is_empty()).map(entry).collect();
        Self {
            directory: None,
            settings: settings.clone(),
            log_id: log.log_id(),
            session: log.stats().epoch,
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
            tracing::warn!(%error, "which devices of the log were left behind could not be recorded");
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
