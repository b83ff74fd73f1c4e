//! Adding, removing and replacing the log's devices while the database is open.
//!
//! The record is always a step ahead or behind of the log in the safe direction ([`record`](super::record)), and the log
//! itself survives a crash at any moment of a change, so the database opens after one, with the devices from before or
//! from after.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use tantalum_device::{Access, Device};
use tantalum_log::{Log, LogDeviceStats, LogLayout};

use super::{LogDevices, places::LogPlaces, record::Entry};
use crate::{
    db::{DeviceOpener, DeviceUse},
    error::{self, Error, ErrorKind, Result},
    options::OpenProgress,
};

/// A device that is to become part of the log.
///
/// ```
/// let device = tantalum::NewLogDevice::from("/mnt/fast/log");
/// assert!(matches!(device, tantalum::NewLogDevice::Path(_)));
/// ```
#[derive(Clone, Debug)]
pub enum NewLogDevice {
    /// For a database in a directory: a path, which starts there, or a name that its
    /// [`DeviceOpener`](crate::DeviceOpener) knows. A missing file is created.
    Path(PathBuf),
    /// For a database that was [opened on devices](crate::Builder::open_on).
    Device(Arc<dyn Device>),
}

impl<T: AsRef<Path> + ?Sized> From<&T> for NewLogDevice {
    fn from(path: &T) -> Self {
        Self::Path(path.as_ref().into())
    }
}

impl From<PathBuf> for NewLogDevice {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<Arc<dyn Device>> for NewLogDevice {
    fn from(device: Arc<dyn Device>) -> Self {
        Self::Device(device)
    }
}

/// What to do with the log's devices, for [`Db::change_log_devices`](crate::Db::change_log_devices).
///
/// ```
/// let change = tantalum::LogChange::Remove { old: "log-1".into() };
/// assert!(matches!(change, tantalum::LogChange::Remove { old } if old == "log-1"));
/// ```
#[derive(Clone, Debug)]
pub enum LogChange {
    /// Let another device take requests.
    Add {
        /// The device.
        new: NewLogDevice,
    },
    /// Take a device out of the log.
    Remove {
        /// Its path, or its name or number as the statistics tell it; of a partition, its device goes.
        old: String,
    },
    /// Put a device in the place of another, or of itself, formatted anew.
    Replace {
        /// The path, name or number of the device that goes.
        old: String,
        /// The device that comes.
        new: NewLogDevice,
    },
}

/// How far a change of the log's devices is.
///
/// ```
/// use tantalum::{LogChangePhase, LogChangeProgress};
/// let progress = LogChangeProgress { phase: LogChangePhase::Create, done_bytes: 1, total_bytes: 2 };
/// assert!(progress.done_bytes <= progress.total_bytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LogChangeProgress {
    /// What is being done.
    pub phase: LogChangePhase,
    /// Bytes done in this phase; 0 where there are none.
    pub done_bytes: u64,
    /// Bytes to do in this phase; 0 where there are none.
    pub total_bytes: u64,
}

/// What a change of the log's devices is at.
///
/// ```
/// assert_ne!(tantalum::LogChangePhase::Join, tantalum::LogChangePhase::Leave);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum LogChangePhase {
    /// Writing zeros to a new file.
    Create,
    /// The new device is formatted, and all devices are told of it.
    Join,
    /// The old device takes no more requests, and waits for a checkpoint.
    Leave,
}

type Report<'a> = &'a mut dyn FnMut(LogChangeProgress);

fn report_phase(report: Report<'_>, phase: LogChangePhase) {
    report(LogChangeProgress { phase, done_bytes: 0, total_bytes: 0 });
}

/// A device of the log, as it is called and as the log numbers its partitions.
pub(super) struct Known {
    pub(super) path: PathBuf,
    pub(super) ordinals: Vec<u32>,
}

impl LogDevices {
    /// Changes the devices of `log`.
    pub fn change(&self, log: &Log, change: LogChange, report: Report<'_>) -> Result<()> {
        if log.layout() != LogLayout::FlashLogging {
            return Err(tantalum_log::error::fixed_devices(log.layout()));
        }
        let Some(_operator) = self.operator.try_lock() else {
            return Err(tantalum_log::error::change_under_way());
        };
        // The log's growth makes way, unless it is about to end.
        self.operator_waits.store(true, Ordering::Release);
        let opener = self.opener.lock();
        self.operator_waits.store(false, Ordering::Release);
        let change_under_way = UnderWay { own: self, log, opener: opener.as_deref() };
        match change {
            LogChange::Add { new } => change_under_way.add(new, report),
            LogChange::Remove { old } => change_under_way.remove(&old, report),
            LogChange::Replace { old, new } => change_under_way.replace(&old, new, report),
        }
    }
}

/// A change of the devices, by an operator or the log's growth.
pub(super) struct UnderWay<'a> {
    pub(super) own: &'a LogDevices,
    pub(super) log: &'a Log,
    pub(super) opener: Option<&'a dyn DeviceOpener>,
}

impl UnderWay<'_> {
    fn add(&self, new: NewLogDevice, report: Report<'_>) -> Result<()> {
        let (path, devices) = self.take(new, report)?;
        self.enter(&path)?;
        report_phase(report, LogChangePhase::Join);
        let added = self.log.add_devices(&devices);
        self.settle(&path, added.as_deref().unwrap_or_default());
        added.map(drop)
    }

    fn remove(&self, old: &str, report: Report<'_>) -> Result<()> {
        let old = self.find(old)?;
        report_phase(report, LogChangePhase::Leave);
        self.log.remove_devices(&old.ordinals)?;
        self.settle(&old.path, &[]);
        Ok(())
    }

    fn replace(&self, old: &str, new: NewLogDevice, report: Report<'_>) -> Result<()> {
        let old = self.find(old)?;
        if let (NewLogDevice::Path(path), Some(places)) = (&new, self.places())
            && places.is_same(path, &old.path)
        {
            return self.format_anew(old, report);
        }
        let (path, devices) = self.take(new, report)?;
        self.enter(&path)?;
        report_phase(report, LogChangePhase::Join);
        let replaced = self.log.replace_devices(&old.ordinals, &devices);
        let ordinals = self.ordinals_of(&devices);
        self.settle(&path, &ordinals);
        self.settle(&old.path, &[]);
        replaced.map(drop)
    }

    /// Takes a device out of the log, and back into it as a new one. It is opened anew in between: a device that failed
    /// may refuse everything until then, and a block device cannot be opened twice.
    fn format_anew(&self, old: Known, report: Report<'_>) -> Result<()> {
        let stats = self.log.stats().devices;
        let writing = |device: &&LogDeviceStats| old.ordinals.contains(&device.ordinal) && device.still_writing > 0;
        if let Some(device) = stats.iter().find(writing) {
            return Err(tantalum_log::error::still_writing(&device.name));
        }
        report_phase(report, LogChangePhase::Leave);
        self.log.remove_devices(&old.ordinals)?;
        let path = old.path;
        let path_shown = path.display().to_string();
        self.add(NewLogDevice::Path(path), report)
            .map_err(|cause| {
                let what = format!(
                    "log device {path_shown} was taken out of the log and could not be taken in again: {cause}; add it when that is put right"
                );
                Error::new(ErrorKind::Missing, what).with_source(cause)
            })
    }

    pub(super) fn places(&self) -> Option<LogPlaces<'_>> {
        let directory = self.own.directory.as_deref()?;
        Some(LogPlaces { directory, settings: &self.own.settings, opener: self.opener, access: Access::ReadWrite })
    }

    /// Opens or makes the device that is to join, with or without barriers as the others.
    fn take(&self, new: NewLogDevice, report: Report<'_>) -> Result<(PathBuf, Vec<Arc<dyn Device>>)> {
        let (path, devices) = self.open_new(new, report)?;
        let devices =
            devices.into_iter().map(|device| self.own.barriers.over(DeviceUse::Log, device)).collect::<Result<_>>()?;
        Ok((path, devices))
    }

    fn open_new(&self, new: NewLogDevice, report: Report<'_>) -> Result<(PathBuf, Vec<Arc<dyn Device>>)> {
        match (new, self.places()) {
            (NewLogDevice::Device(device), None) => Ok((device.name().into(), vec![device])),
            (NewLogDevice::Path(path), Some(places)) => {
                let mut create = |progress: OpenProgress| {
                    let OpenProgress { done_bytes, total_bytes, .. } = progress;
                    report(LogChangeProgress { phase: LogChangePhase::Create, done_bytes, total_bytes });
                };
                let devices = places.take(&path, self.own.log_id, &mut create)?;
                Ok((path, devices))
            }
            (NewLogDevice::Device(device), Some(_)) => {
                let what = format!("{}: this database lies in a directory; name the device by its path", device.name());
                Err(error::log_device(what))
            }
            (NewLogDevice::Path(path), None) => {
                let what = format!("{}: this database was opened on devices; give the device itself", path.display());
                Err(error::log_device(what))
            }
        }
    }

    /// Records a device that is about to join.
    pub(super) fn enter(&self, path: &Path) -> Result<()> {
        let entered = self.own.record(|entries| {
            if entries.iter().all(|entry| entry.path != path) {
                entries.push(Entry::new(path.into(), Vec::new()));
            }
        });
        if entered.is_err() {
            self.settle(path, &[]);
        }
        entered
    }

    /// Records which of the log's devices a path stands for, after a change: those of these ordinals, and those that it
    /// stood for and that the log still lists; none strikes it off. If that fails, the record names too much, and the next
    /// open finds out.
    pub(super) fn settle(&self, path: &Path, ordinals: &[u32]) {
        let devices = self.log.stats().devices;
        let of_ordinal = |ordinal: &u32| devices.iter().find(|device| device.ordinal == *ordinal);
        let settled = self.own.record(|entries| {
            let Some(entry) = entries.iter_mut().find(|entry| entry.path == path) else { return };
            entry.ids.retain(|id| devices.iter().any(|device| device.device_id == *id));
            entry.ids.extend(ordinals.iter().filter_map(of_ordinal).map(|device| device.device_id));
            entries.retain(|entry| entry.path != path || !entry.ids.is_empty());
        });
        if let Err(error) = settled {
            tantalum_rt::tracing::warn!(%error, "the places of the log's devices could not be recorded");
        }
    }

    /// The numbers under which the log lists these devices.
    pub(super) fn ordinals_of(&self, devices: &[Arc<dyn Device>]) -> Vec<u32> {
        let is_one = |stats: &&LogDeviceStats| devices.iter().any(|device| device.name() == stats.name);
        self.log.stats().devices.iter().filter(is_one).map(|stats| stats.ordinal).collect()
    }

    /// The device that the user calls `name`.
    pub(super) fn find(&self, name: &str) -> Result<Known> {
        let devices = self.log.stats().devices;
        let entries = self.own.entries.lock().clone();
        let is_named = |entry: &&Entry| match self.places() {
            Some(places) => places.is_same(&entry.path, Path::new(name)),
            None => entry.path == Path::new(name),
        };
        // As the statistics tell it: of a partition, its device is meant.
        let as_reported = || {
            let number = name.parse::<u32>().ok();
            let is_it = |device: &&LogDeviceStats| device.name == name || Some(device.ordinal) == number;
            let id = devices.iter().filter(|_| !name.is_empty()).find(is_it)?.device_id;
            Some(entries.iter().find(|entry| entry.ids.contains(&id)).cloned().unwrap_or_else(|| {
                // No entry has its path.
                Entry::new(PathBuf::new(), vec![id])
            }))
        };
        let Some(entry) = entries.iter().find(is_named).cloned().or_else(as_reported) else {
            let known: Vec<_> = entries.iter().map(|entry| entry.path.display().to_string()).collect();
            let what = format!("{name} is no device of the log; it has {}", known.join(", "));
            return Err(error::log_device(what));
        };
        let is_it = |device: &&LogDeviceStats| entry.ids.contains(&device.device_id);
        let ordinals = devices.iter().filter(is_it).map(|device| device.ordinal).collect();
        Ok(Known { path: entry.path, ordinals })
    }
}
