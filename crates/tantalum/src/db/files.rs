//! The files of a database in a directory: which there are, which process may have them open, how they are made.
//!
//! Invariant: the directory's lock is held for as long as any of its files is open for writing.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::{
    Access, AlignedBuffer, Device,
    files::{self, FileKind},
};
use tantalum_log::ArchiveTarget;
use tantalum_rt::{Random, random_seed};
use tantalum_store::{DoubleWrite, Protection, StoreKind, Superblock};

use super::{
    DeviceOpener, Devices,
    creation::{CREATING, CreationMark},
    log_devices::{Gathered, LogPlaces, RECORD, log_files},
};
use crate::{
    error::{self, Error, Result},
    options::{OpenPhase, OpenProgress, Settings},
};

pub(crate) const SETTINGS: &str = "tantalum.toml";
/// The socket for commands from other processes.
pub(crate) const SOCKET: &str = "control.sock";
pub(crate) const DATA: &str = "data";
pub(crate) const DOUBLE_WRITE: &str = "doublewrite";
pub(crate) const LOCK: &str = "LOCK";

/// What a fresh data file has room for.
const INITIAL_DATA_BYTES: u64 = 256 << 10;
/// Slots of a fresh double-write area. It grows with the data.
const INITIAL_SLOTS: u32 = 1;
/// Erase units that a fresh data file has room for.
const INITIAL_UNITS: u64 = 32;
/// So much of a block device must be zero before it is taken: file systems and partition tables show within it.
const BLANK_BYTES: u64 = 128 << 10;

/// An existing directory that this process has locked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// None in a simulation, which has a file system of its own.
    locks: Vec<File>,
    /// What `tantalum.toml` says, if there is one. One that a creation wrote which did not end does not count.
    pub settings: Option<Settings>,
    /// The creation that did not end.
    interrupted: Option<CreationMark>,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing the file is not enough: a process that is being started holds it, too, until it is another program.
        if let Some(error) = self.locks.iter().find_map(|lock| lock.unlock().err()) {
            tantalum_rt::tracing::warn!(path = %self.path.display(), %error, "the lock could not be given up before its file is closed");
        }
    }
}

impl Directory {
    /// Locks the directory `path`, made if it does not exist and `create` allows it. Many may read it, or one writes.
    pub fn open(path: &Path, create: bool, access: Access) -> Result<Self> {
        match files::kind(path).map_err(|error| error::io(path, "look at", error))? {
            Some(FileKind::Directory) => {}
            Some(_) => return Err(error::io(path, "open", ErrorKind::NotADirectory.into())),
            None if create => match files::create_directory(path) {
                // Another process was faster, and may have the lock.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                created => created.map_err(|error| error::io(path, "create", error))?,
            },
            None => return Err(error::not_found(path.display())),
        }
        // The data may be on a device that the settings name.
        if !create && ![DATA, SETTINGS].iter().any(|name| files::exists(&path.join(name))) {
            return Err(error::not_found(path.display()));
        }
        let locks = if files::is_simulated() { Vec::new() } else { lock(path, access)? };
        let mut directory = Self { path: path.into(), locks, settings: None, interrupted: None };
        directory.interrupted = CreationMark::read(path)?;
        directory.settings = directory.read_settings()?;
        Ok(directory)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn read_settings(&self) -> Result<Option<Settings>> {
        let path = self.path.join(SETTINGS);
        let written = self.interrupted.as_ref().and_then(|mark| mark.settings.as_deref());
        match files::read(&path) {
            // An empty one says nothing: a creation of an earlier version may have left it.
            Ok(bytes) if bytes.is_empty() || written.is_some_and(|written| written.as_bytes() == bytes) => Ok(None),
            Ok(_) => Settings::read(&path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error::io(&path, "read", error)),
        }
    }

    /// What `tantalum.toml` is to hold; `None` if there is one. What fixes the format is spelt out: defaults may change.
    fn new_settings(&self, settings: &Settings) -> Result<Option<String>> {
        match self.settings {
            Some(_) => Ok(None),
            None => settings.with_format_spelt_out().to_toml().map(Some),
        }
    }

    /// Writes `tantalum.toml`, unless there is one.
    pub fn keep_settings(&self, settings: &Settings) -> Result<()> {
        self.new_settings(settings)?.map_or(Ok(()), |text| self.write_settings(&text))
    }

    fn write_settings(&self, text: &str) -> Result<()> {
        let path = self.path.join(SETTINGS);
        files::replace(&path, text.as_bytes()).map_err(|error| error::io(&path, "write", error))
    }

    /// Makes it known, durably, that the database has been made, with the settings that it was given. Not before: settings that
    /// name devices which are not there would outlive a failure.
    pub fn end_creation(&self, mark: &CreationMark) -> Result<()> {
        mark.settings.as_deref().map_or(Ok(()), |text| self.write_settings(text))?;
        self.remove(CREATING)
    }

    /// Removes a file, durably, if it is there.
    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path.join(name);
        let removed = match files::remove(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| files::sync_directory(&self.path)),
        };
        removed.map_err(|error| error::io(&path, "remove", error))
    }
}

/// Where a database's bytes are: the files in its directory, and the devices that its settings name.
pub(crate) struct Places<'a> {
    directory: &'a Directory,
    pub log: LogPlaces<'a>,
    /// The device of the setting `data_device`. Opened once: to open a device in memory again would give another.
    data_device: Option<Arc<dyn Device>>,
}

impl<'a> Places<'a> {
    /// Opens the data device, if the settings name one; it may be made if the database may be.
    pub fn new(
        directory: &'a Directory,
        settings: &'a Settings,
        opener: Option<&'a dyn DeviceOpener>,
        may_create: bool,
        access: Access,
    ) -> Result<Self> {
        let log = LogPlaces { directory: &directory.path, settings, opener, access };
        let mut places = Self { directory, log, data_device: None };
        if let Some(name) = &settings.data_device {
            places.data_device = Some(match log.ask_opener(name, may_create, None)? {
                Some(device) => device,
                None => places.open_data_path(&directory.path.join(name))?,
            });
        }
        Ok(places)
    }

    /// The superblock; `None` when the database does not exist or its creation did not end.
    pub fn superblock(&self) -> Result<Option<Superblock>> {
        let in_directory = |name: &Path| self.directory.path.join(name);
        if self.directory.interrupted.is_some() {
            return Ok(None);
        }
        // The data is made before all other files, so others without it were a database once.
        let double_write = Some(PathBuf::from(DOUBLE_WRITE)).filter(|name| files::exists(&in_directory(name)));
        let other = log_files(&self.directory.path)?.into_iter().chain(double_write).next();
        let path = in_directory(Path::new(DATA));
        let (found, name) = match &self.data_device {
            Some(device) => (Superblock::read(&**device)?, device.name().to_owned()),
            None if files::exists(&path) => {
                let data = files::open(&path, Access::ReadOnly)?;
                (Superblock::read(&*data)?, path.display().to_string())
            }
            None if other.is_some() => return Err(error::missing(path.display())),
            None => return Ok(None),
        };
        // Never taken for a fresh file: then a file that was truncated or overwritten would cost all the others.
        if found.is_none() && (self.data_device.is_none() || other.is_some()) {
            return Err(error::superblock(
                name,
                "the superblock is blank, so the file was truncated or overwritten; restore the database from a \
                       backup, or remove its directory to begin anew",
            ));
        }
        Ok(found)
    }

    /// Opens everything of an existing database; if it `rebuilds_log`, everything but its log, for which it makes new devices.
    pub fn open(
        self,
        superblock: &Superblock,
        rebuilds_log: bool,
        report: &mut dyn FnMut(OpenProgress),
    ) -> Result<(Devices, Gathered)> {
        let gathered = match rebuilds_log {
            true => Gathered::made(self.log.make_in_place_of_lost(superblock.log_id, report)?),
            false => Gathered::open(&self.log, superblock.log_id)?,
        };
        let log = gathered.devices.clone();
        if let Some(device) = self.data_device {
            let devices = Devices::on_data_device_for(device, self.log.settings, Some(superblock), log)?;
            return Ok((devices, gathered));
        }
        // Whether it is used from now on depends on what the data device says today.
        let may_lack_area = match superblock.protection {
            Protection::DoubleWrite => false,
            Protection::Store => true,
            Protection::FullPageImages | Protection::Device => !files::exists(&self.directory.path.join(DOUBLE_WRITE)),
        };
        let double_write = if may_lack_area { None } else { Some(self.log.open_path(Path::new(DOUBLE_WRITE))?) };
        Ok((Devices { data: self.log.open_path(Path::new(DATA))?, double_write, log }, gathered))
    }

    /// Makes everything of a new database, over the remains of one whose creation did not end. The mark of the creation stays until
    /// it [ends](Directory::end_creation).
    pub fn create(self, report: &mut dyn FnMut(OpenProgress)) -> Result<(Devices, Gathered, CreationMark)> {
        let (directory, settings) = (self.directory, self.log.settings);
        let interrupted = directory.interrupted.clone().unwrap_or_default();
        let mut named = Vec::new();
        let mut log = Vec::new();
        if let (Some(device), Some(name)) = (&self.data_device, &settings.data_device) {
            if !interrupted.names(name) || interrupted.is_foreign_data(&**device) {
                check_blank(&**device)?;
            }
            named.push(name.clone());
        }
        for name in self.log.names() {
            log.push(self.log.claim(&name, &interrupted)?);
            named.push(name);
        }
        let log_id = Random::with_seed(random_seed()).u128(..);
        let mark = interrupted.next(log_id, named, directory.new_settings(settings)?);
        mark.write(&directory.path)?;
        // What an earlier database recorded there.
        directory.remove(RECORD)?;
        let in_directory = match &self.data_device {
            Some(device) => {
                Superblock::wipe(&**device)?;
                None
            }
            None => Some(make_data_files(&directory.path, settings, report)?),
        };
        let mut made = Vec::new();
        for (name, claim) in self.log.names().into_iter().zip(log) {
            made.push((name, self.log.make(claim, report)?));
        }
        let log = made.iter().flat_map(|(_, devices)| devices.clone()).collect();
        let devices = match (in_directory, self.data_device) {
            (Some(files), _) => Devices { log, ..files },
            (None, Some(device)) => Devices::on_data_device_for(device, settings, None, log)?,
            (None, None) => unreachable!("without a data device the data is in the directory"),
        };
        Ok((devices, Gathered::made(made), mark))
    }

    /// Where the log is archived: a device of the opener, a block device, or a directory.
    pub fn archive(&self, may_create: bool) -> Result<Option<ArchiveTarget>> {
        let Some(name) = &self.log.settings.log_archive else { return Ok(None) };
        if let Some(device) = self.log.ask_opener(name, may_create, None)? {
            return Ok(Some(ArchiveTarget::Device(device)));
        }
        let path = self.directory.path.join(name);
        match files::kind(&path).map_err(|error| error::io(&path, "look at", error))? {
            Some(FileKind::File | FileKind::Other) => {
                Ok(Some(ArchiveTarget::Device(files::open(&path, self.log.access)?)))
            }
            Some(FileKind::Directory) | None => Ok(Some(ArchiveTarget::Directory(path))),
        }
    }

    fn open_data_path(&self, path: &Path) -> Result<Arc<dyn Device>> {
        if !files::exists(path) {
            let what = "does not exist; name a block device, or a file as large as the database may become";
            return Err(error::option(format!("data_device: {} {what}", path.display())));
        }
        files::open(path, self.log.access)
    }
}

/// Makes durable that `path` is there.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    let parent = files::parent(path);
    files::sync_directory(parent).map_err(|error| error::io(parent, "make durable", error))
}

/// Locks the directory, and the file `LOCK` in it, in which a writer leaves its process's number. The lock on the directory is for
/// readers where that file is missing; that on the file, for versions which know no other.
fn lock(directory: &Path, access: Access) -> Result<Vec<File>> {
    let path = directory.join(LOCK);
    let opened = match access {
        Access::ReadWrite => {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map(Some)
        }
        Access::ReadOnly => match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            opened => opened.map(Some),
        },
    };
    let mut file = opened.map_err(|error| error::io(&path, "open", error))?;
    let try_lock = |file: &File| match access {
        Access::ReadWrite => file.try_lock(),
        Access::ReadOnly => file.try_lock_shared(),
    };
    let directory_file = File::open(directory).map_err(|error| error::io(directory, "open", error))?;
    for lock in file.iter().chain([&directory_file]) {
        match try_lock(lock) {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(not_locked(&path, lock, file.as_ref())),
            Err(TryLockError::Error(error)) => return Err(error::io(&path, "lock", error)),
        }
    }
    if let Some(file) = file.as_mut().filter(|_| access == Access::ReadWrite) {
        let mut write = || {
            file.set_len(0)?;
            file.write_all(format!("{}\n", std::process::id()).as_bytes())
        };
        write().map_err(|error| error::io(&path, "write", error))?;
    }
    Ok(file.into_iter().chain([directory_file]).collect())
}

/// Why a lock was not granted: another process writes, which `LOCK` names, or some read.
fn not_locked(path: &Path, lock: &File, lock_file: Option<&File>) -> Error {
    if lock.try_lock_shared().is_ok() {
        let what = "processes have the database open for reading only; end them, or open it with read_only";
        return Error::new(error::ErrorKind::InUse, format!("{}: {what}", path.display()));
    }
    let mut holder = String::new();
    // Whatever it holds, or if it cannot be read: the answer is that the directory is in use.
    let _read = lock_file.map(|file| file.take(20).read_to_string(&mut holder));
    in_use(path, holder.trim().parse().unwrap_or(0))
}

/// Makes the data file of a new database, and the double-write area of one in place: whether that is needed depends on what the
/// devices say. The log's devices are not among them yet.
pub(super) fn make_data_files(
    directory: &Path,
    settings: &Settings,
    report: &mut dyn FnMut(OpenProgress),
) -> Result<Devices> {
    let page_bytes = settings.page_size() as usize;
    let (data_bytes, area_bytes) = match settings.page_store() {
        StoreKind::InPlace => (INITIAL_DATA_BYTES, Some(DoubleWrite::area_bytes(page_bytes, INITIAL_SLOTS))),
        StoreKind::InPageLogging => (INITIAL_UNITS * u64::from(settings.unit_sizes(4096).unit), None),
        StoreKind::LogStructured => (settings.segment_sizes(None).initial_bytes(page_bytes), None),
    };
    let path = directory.join(DATA);
    let data = match settings.page_store() {
        // It needs many segments, however few are written.
        StoreKind::LogStructured => make_by(&path, || files::create_sparse(&path, data_bytes))?,
        StoreKind::InPlace | StoreKind::InPageLogging => make_file(&path, data_bytes, report)?,
    };
    let area = |bytes| make_file(&directory.join(DOUBLE_WRITE), bytes, report);
    let double_write = area_bytes.map(area).transpose()?;
    Ok(Devices { data, double_write, log: Vec::new() })
}

/// Makes a file, in place of the remains of a creation that did not end. A block device is taken if it is blank.
pub(crate) fn make_file(path: &Path, bytes: u64, report: &mut dyn FnMut(OpenProgress)) -> Result<Arc<dyn Device>> {
    let mut zeroed =
        |done_bytes, total_bytes| report(OpenProgress { phase: OpenPhase::Create, done_bytes, total_bytes });
    make_by(path, || files::create(path, bytes, Some(&mut zeroed)))
}

/// As [`make_file`], by `create`.
fn make_by(path: &Path, create: impl FnOnce() -> Result<Arc<dyn Device>>) -> Result<Arc<dyn Device>> {
    match files::kind(path) {
        Ok(Some(FileKind::File)) => {
            files::remove(path).map_err(|error| error::io(path, "replace", error))?;
        }
        Ok(Some(FileKind::Directory | FileKind::Other)) => {
            let device = files::open(path, Access::ReadWrite)?;
            check_blank(&*device)?;
            return Ok(device);
        }
        Ok(None) | Err(_) => {}
    }
    create()
}

/// Whether a file holds nothing but zeros, as far as it is looked at.
pub(crate) fn begins_with_zeros(path: &Path) -> std::io::Result<bool> {
    let bytes = files::read(path)?;
    Ok(bytes.iter().take(BLANK_BYTES as usize).all(|byte| *byte == 0))
}

/// Refuses a device that seems to hold something.
pub(crate) fn check_blank(device: &dyn Device) -> Result<()> {
    let bytes = BLANK_BYTES.min(device.capacity_bytes());
    let mut start = AlignedBuffer::zeroed((bytes - bytes % u64::from(device.capabilities().logical_block)) as usize);
    device.read(0, &mut start)?;
    // Erased flash is all ones.
    if ![0, 0xff].iter().any(|blank| start.iter().all(|byte| byte == blank)) {
        return Err(Error::new(
            error::ErrorKind::AlreadyExists,
            format!(
                "{path} is not blank; if nothing on it is needed, write zeros to its first 128 KiB, or give another",
                path = device.name()
            ),
        ));
    }
    Ok(())
}

/// Another process, or this one, has the database open for writing; `pid` is 0 when it did not say.
fn in_use(path: &Path, pid: u32) -> Error {
    let what = match pid {
        0 => "the database is in use by another process; close it there first".into(),
        own if own == std::process::id() => {
            "this process has the database open already; close it first: use a clone of its handle, or call close, or drop all \
             handles and end all transactions"
                .into()
        }
        other => format!("the database is in use by process {other}; close it there first"),
    };
    Error::new(error::ErrorKind::InUse, format!("{}: {what}", path.display())).with_subject(path.display().to_string())
}
