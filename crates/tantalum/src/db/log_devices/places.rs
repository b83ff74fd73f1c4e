//! Where the log's devices are: which opener opens them, how they are made, and what is not taken for one.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::{
    Access, Device, Partition,
    files::{self, FileKind},
};
use tantalum_log::{LogLayout, Standing, standings};

use super::{
    growth::{is_log_file, log_files},
    record::{self, Entry, RECORD, RECORD_FRESH},
};
use crate::{
    db::{
        DeviceOpener, DeviceRequest,
        creation::{CREATING, CreationMark},
        files::{DATA, DOUBLE_WRITE, LOCK, SETTINGS, SOCKET, begins_with_zeros, check_blank, make_file, sync_parent},
    },
    error::{self, Error, ErrorKind, Result},
    options::{OpenProgress, Settings},
};

/// The log of a database for which no devices are named.
pub(crate) const LOG: &str = "log-0";

/// The names of a database's other files. One that is not there may be needed later, or mean something by being there.
const RESERVED: [&str; 10] =
    [CREATING, "CREATING.new", DATA, DOUBLE_WRITE, LOCK, RECORD, RECORD_FRESH, SETTINGS, "tantalum.toml.new", SOCKET];

/// A device that was made, by name and cut into its partitions.
pub(crate) type Made = (PathBuf, Vec<Arc<dyn Device>>);

/// A device that a new database's log may have, or the place for one.
pub(crate) enum Claimed {
    Device(Arc<dyn Device>),
    /// A file; what may be there is the remains of a creation that did not end.
    File(PathBuf),
}

/// The devices that names in a database's settings stand for. Names are paths, which start at the directory, unless the
/// opener knows them.
#[derive(Clone, Copy)]
pub(crate) struct LogPlaces<'a> {
    pub directory: &'a Path,
    pub settings: &'a Settings,
    pub opener: Option<&'a dyn DeviceOpener>,
    pub access: Access,
}

impl LogPlaces<'_> {
    /// The devices that the settings name.
    pub fn names(&self) -> Vec<PathBuf> {
        self.settings.log_devices.clone().unwrap_or_else(|| vec![LOG.into()])
    }

    /// The devices that a log may have of which nothing is recorded: those that the settings name, or the log's files.
    pub fn names_without_record(&self) -> Result<Vec<PathBuf>> {
        let files = if self.settings.log_devices.is_none() { log_files(self.directory)? } else { Vec::new() };
        Ok(if files.is_empty() { self.names() } else { files })
    }

    /// Opens a device that exists, cut into its partitions.
    pub fn open(&self, name: &Path) -> Result<Vec<Arc<dyn Device>>> {
        let device = match self.open_named(name, false)? {
            Some(device) => device,
            None => self.open_path(name)?,
        };
        self.partition(device)
    }

    /// Finds the device of a new database, or the place for its file. What is there must be blank, or be what the `interrupted`
    /// creation left.
    pub fn claim(&self, name: &Path, interrupted: &CreationMark) -> Result<Claimed> {
        let path = self.directory.join(name);
        let device = match self.open_named(name, true)? {
            Some(device) => device,
            None => {
                self.check_not_taken(&path)?;
                match files::kind(&path).map_err(|error| error::io(&path, "look at", error))? {
                    Some(FileKind::File) if path.parent() != Some(self.directory) && !interrupted.names(name) => {
                        return Err(error::exists(path.display()));
                    }
                    Some(FileKind::File) | None => return Ok(Claimed::File(path)),
                    Some(FileKind::Directory | FileKind::Other) => files::open(&path, Access::ReadWrite)?,
                }
            }
        };
        if !interrupted.names(name) || interrupted.is_foreign_log(&device) {
            check_blank(&*device)?;
        }
        Ok(Claimed::Device(device))
    }

    /// Makes a device for a new database, cut into its partitions.
    pub fn make(&self, claimed: Claimed, report: &mut dyn FnMut(OpenProgress)) -> Result<Vec<Arc<dyn Device>>> {
        match claimed {
            Claimed::Device(device) => self.partition(device),
            Claimed::File(path) => self.partition(make_file(&path, self.initial_bytes(), report)?),
        }
    }

    /// Opens a device that is to join the log, or makes its file, cut into its partitions. What exists must be blank,
    /// or have been a device of the log before.
    pub fn take(
        &self,
        name: &Path,
        log_id: u128,
        report: &mut dyn FnMut(OpenProgress),
    ) -> Result<Vec<Arc<dyn Device>>> {
        let device = match self.open_named(name, true)? {
            Some(device) => device,
            None => {
                let path = self.directory.join(name);
                self.check_not_taken(&path)?;
                if !files::exists(&path) {
                    self.make_whole(&path, report)?;
                }
                self.open_path(name)?
            }
        };
        let parts = self.partition(Arc::clone(&device))?;
        let is_of_log = |standing: &Standing| matches!(standing, Standing::Member { .. } | Standing::NotListed);
        if !standings(log_id, &parts).iter().any(is_of_log) {
            check_blank(&*device)?;
        }
        // It may be what the log began with.
        if is_log_file(name) && self.settings.log_can_grow() && device.capacity_bytes() < self.file_bytes() {
            device.grow(self.file_bytes())?;
            return self.partition(device);
        }
        Ok(parts)
    }

    /// Makes the devices that the settings name for a log whose devices are lost. None of those may be there: what they hold
    /// and the archive does not would be given up.
    pub fn make_in_place_of_lost(&self, log_id: u128, report: &mut dyn FnMut(OpenProgress)) -> Result<Vec<Made>> {
        let recorded = record::read(self.directory)?.unwrap_or_default();
        for name in recorded.devices.iter().map(|entry| entry.path.clone()).chain(self.names()) {
            let parts = self.open(&name).unwrap_or_default();
            if standings(log_id, &parts).iter().any(|standing| matches!(standing, Standing::Member { .. })) {
                let what = format!(
                    "{} is there, and a device of the log: the log is not lost. Open the database with it, and replace what is \
                     lost; or, to give up what it holds and the archive does not, move it away or remove it",
                    name.display()
                );
                return Err(error::log_device(what));
            }
        }
        // Before they are devices of the log, so that whatever interrupts this, it opens on them if it lists them.
        let is_array = matches!(self.settings.log_layout(), LogLayout::Striped { .. });
        let mut record = recorded;
        let is_new = |name: &PathBuf| !record.devices.iter().any(|entry| entry.path == *name);
        let new: Vec<_> = self.names().into_iter().filter(is_new).map(|name| Entry::new(name, Vec::new())).collect();
        if !is_array && !new.is_empty() {
            record.devices.extend(new);
            record::write(self.directory, &record)?;
        }
        self.names().into_iter().map(|name| Ok((name.clone(), self.take(&name, log_id, report)?))).collect()
    }

    /// Makes a file that is there as a whole or not at all, whenever the power goes.
    fn make_whole(&self, path: &Path, report: &mut dyn FnMut(OpenProgress)) -> Result<()> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        // What an earlier attempt left behind holds zeros.
        if files::exists(&partial)
            && !begins_with_zeros(&partial).map_err(|error| error::io(&partial, "read", error))?
        {
            return Err(error::exists(partial.display()));
        }
        make_file(&partial, self.file_bytes(), report)?;
        files::rename(&partial, path).map_err(|error| error::io(path, "create", error))?;
        sync_parent(path)
    }

    /// How much of a device of the opener is used: as much as a log file has.
    pub fn device_bytes(&self) -> u64 {
        self.settings.log_bytes() / 4096 * 4096
    }

    pub fn file_bytes(&self) -> u64 {
        self.settings.log_bytes().next_multiple_of(4096)
    }

    /// How large the file of a new database is.
    fn initial_bytes(&self) -> u64 {
        self.settings.initial_log_bytes().unwrap_or_else(|| self.file_bytes())
    }

    /// A device that the opener knows, as much of it as is used.
    fn open_named(&self, name: &Path, may_create: bool) -> Result<Option<Arc<dyn Device>>> {
        let bytes = self.device_bytes();
        let Some(device) = self.ask_opener(name, may_create, Some(bytes))? else { return Ok(None) };
        if device.capacity_bytes() <= bytes {
            return Ok(Some(device));
        }
        Ok(Some(Arc::new(Partition::new(device, 0..bytes)?)))
    }

    /// The device of that name, if the opener knows it; `bytes` of it are used, if that is known.
    pub fn ask_opener(&self, name: &Path, may_create: bool, bytes: Option<u64>) -> Result<Option<Arc<dyn Device>>> {
        let (Some(opener), Some(name)) = (self.opener, name.to_str()) else { return Ok(None) };
        let request =
            DeviceRequest { access: self.access, ..DeviceRequest::new(name, self.directory, may_create, bytes) };
        let opened = opener.open(request).transpose();
        opened.map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot open the device {name}: {error}")).with_boxed_source(error)
        })
    }

    /// A file, or a block device, that exists.
    pub fn open_path(&self, name: &Path) -> Result<Arc<dyn Device>> {
        // Joining an absolute path gives that path.
        let path = self.directory.join(name);
        if !files::exists(&path) {
            return Err(error::missing(path.display()));
        }
        files::open(&path, self.access)
    }

    /// Whether two names stand for the same file or device.
    pub fn is_same(&self, a: &Path, b: &Path) -> bool {
        let place = |name: &Path| files::canonicalize(&self.directory.join(name)).ok();
        a == b || place(a).is_some_and(|a| place(b) == Some(a))
    }

    /// Refuses a log device that holds the data, or has the name of another of the database's files.
    fn check_not_taken(&self, log: &Path) -> Result<()> {
        let is_data = self.settings.data_device.as_ref().is_some_and(|name| self.is_same(name, log));
        let is_named = log.file_name().is_some_and(|name| RESERVED.iter().any(|reserved| name == *reserved));
        let what = match is_data {
            true => "the data device",
            false if is_named && self.is_inside(log) => "a file of the database",
            // By way of a link.
            false if RESERVED.iter().any(|name| self.is_same(Path::new(name), log)) => "a file of the database",
            false => return Ok(()),
        };
        Err(error::option(format!("log_devices: {} is {what}; give another", log.display())))
    }

    /// Whether a path leads to a file right in the database's directory, which need not exist.
    fn is_inside(&self, path: &Path) -> bool {
        let directory = files::canonicalize(self.directory).ok();
        let parent = path.parent().and_then(|parent| files::canonicalize(parent).ok());
        parent.is_some() && parent == directory
    }

    fn partition(&self, device: Arc<dyn Device>) -> Result<Vec<Arc<dyn Device>>> {
        match self.settings.log_partitions() {
            1 => Ok(vec![device]),
            count => {
                let parts = Partition::split(device, count as usize)?;
                Ok(parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect())
            }
        }
    }
}
