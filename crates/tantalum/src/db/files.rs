//! The files of a database in a directory: which there are, who may have them open, how they are made.
//!
//! Invariant: the directory's lock is held for as long as any of its files is open for writing.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::{Access, AlignedBuffer, Device, FileDevice, Partition};

use super::Devices;
use crate::{
    error::{Error, Result},
    options::{OpenPhase, OpenProgress, Progress, Settings},
    store::{Protection, Superblock, in_place::double_write::DoubleWrite},
};

const SETTINGS: &str = "tantalum.toml";
const DATA: &str = "data";
const DOUBLE_WRITE: &str = "doublewrite";
const LOG: &str = "log-0";
const LOCK: &str = "LOCK";
/// There while a database is being made: until it is gone, what else is there holds nothing of worth.
const CREATING: &str = "CREATING";

/// What a fresh data file has room for.
const INITIAL_DATA_BYTES: u64 = 1 << 20;
/// So much of a block device must be zero before it is taken: file systems and partition tables show within it.
const BLANK_BYTES: u64 = 128 << 10;

/// An existing directory that this process has locked.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    /// Held open: its lock goes with it.
    _lock: File,
}

impl Directory {
    /// Locks the directory `path`, made if it does not exist and `create` allows it.
    pub fn open(path: &Path, create: bool) -> Result<Self> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(Error::io(path, "open", ErrorKind::NotADirectory.into())),
            Err(error) if error.kind() == ErrorKind::NotFound && create => make_directory(path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(no_database(path)),
            Err(error) => return Err(Error::io(path, "look at", error)),
        }
        if !create && !path.join(DATA).exists() {
            return Err(no_database(path));
        }
        Ok(Self { path: path.into(), _lock: lock(&path.join(LOCK))? })
    }

    /// The settings that the directory's `tantalum.toml` has, if there is one.
    pub fn settings(&self) -> Result<Settings> {
        Ok(Settings::read(&self.path.join(SETTINGS))?.unwrap_or_default())
    }

    /// The superblock of the data file; `None` when the database does not exist or its creation did not end.
    pub fn superblock(&self) -> Result<Option<Superblock>> {
        let path = self.path.join(DATA);
        if self.path.join(CREATING).exists() {
            return Ok(None);
        }
        if path.exists() {
            let data = FileDevice::open(&path, Access::ReadOnly)?;
            let superblock = Superblock::read(&data)?;
            // Never taken for a fresh file: then a file that was truncated or overwritten would cost all the others.
            return superblock.map(Some).ok_or_else(|| Error::Superblock {
                file: path.display().to_string(),
                what: "the superblock is blank, so the file was truncated or overwritten; restore the database from a \
                       backup, or remove its directory to begin anew"
                    .into(),
            });
        }
        // The data file is made before all others, so others without it were a database once.
        for name in [LOG, DOUBLE_WRITE] {
            if self.path.join(name).exists() {
                return Err(Error::Missing { file: path.display().to_string() });
            }
        }
        Ok(None)
    }

    /// Opens the files of an existing database.
    pub fn open_files(&self, settings: &Settings, superblock: &Superblock) -> Result<Devices> {
        let open = |path: PathBuf| -> Result<Arc<dyn Device>> {
            if !path.exists() {
                return Err(Error::Missing { file: path.display().to_string() });
            }
            Ok(Arc::new(FileDevice::open(&path, Access::ReadWrite)?))
        };
        let double_write = match superblock.protection {
            Protection::DoubleWrite => Some(open(self.path.join(DOUBLE_WRITE))?),
            Protection::FullPageImages | Protection::Device => None,
        };
        let log = self.log_paths(settings).into_iter().map(open).collect::<Result<Vec<_>>>()?;
        Ok(Devices { data: open(self.path.join(DATA))?, double_write, log: partition(log, settings)? })
    }

    /// Makes the files of a new database, over the remains of one whose creation did not end.
    pub fn create_files(&self, settings: &Settings, progress: &mut Option<Progress>) -> Result<Devices> {
        let mark = self.path.join(CREATING);
        let marked = File::create(&mark).and_then(|mark| mark.sync_all()).and_then(|()| self.sync());
        marked.map_err(|error| Error::io(&mark, "create", error))?;
        let path = self.path.join(DATA);
        let data = make_file(&path, INITIAL_DATA_BYTES, true, progress)?;
        // Always made: whether it is needed depends on what the devices say.
        let area_bytes = DoubleWrite::area_bytes(settings.page_size() as usize);
        let double_write = make_file(&self.path.join(DOUBLE_WRITE), area_bytes, true, progress)?;
        let bytes = settings.log_bytes().next_multiple_of(4096);
        let mut log = Vec::new();
        for path in self.log_paths(settings) {
            log.push(make_file(&path, bytes, path.parent() == Some(&*self.path), progress)?);
        }
        Ok(Devices { data, double_write: Some(double_write), log: partition(log, settings)? })
    }

    /// Makes it known, durably, that the database has been made.
    pub fn end_creation(&self) -> Result<()> {
        let mark = self.path.join(CREATING);
        fs::remove_file(&mark).and_then(|()| self.sync()).map_err(|error| Error::io(&mark, "remove", error))
    }

    fn sync(&self) -> std::io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// Writes `tantalum.toml`, unless there is one, with what fixes the format spelt out: defaults may change.
    pub fn keep_settings(&self, settings: &Settings) -> Result<()> {
        let path = self.path.join(SETTINGS);
        if path.exists() {
            return Ok(());
        }
        let text = settings.with_format_spelt_out().to_toml()?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create_new(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            self.sync()
        };
        write().map_err(|error| Error::io(&path, "write", error))
    }

    fn log_paths(&self, settings: &Settings) -> Vec<PathBuf> {
        match &settings.log_devices {
            // Joining an absolute path gives that path.
            Some(paths) => paths.iter().map(|path| self.path.join(path)).collect(),
            None => vec![self.path.join(LOG)],
        }
    }
}

fn no_database(path: &Path) -> Error {
    Error::NotFound { path: path.display().to_string() }
}

fn make_directory(path: &Path) -> Result<()> {
    fs::create_dir(path).map_err(|error| Error::io(path, "create", error))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let synced = File::open(parent).and_then(|parent| parent.sync_all());
    synced.map_err(|error| Error::io(parent, "make durable", error))
}

/// Locks the lock file and leaves this process's number in it.
fn lock(path: &Path) -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = opened.map_err(|error| Error::io(path, "open", error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // Whatever it holds, or if it cannot be read: the answer is that somebody has it.
            let _read = (&mut file).take(20).read_to_string(&mut holder);
            let pid = holder.trim().parse().unwrap_or(0);
            return Err(Error::InUse { path: path.display().to_string(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(Error::io(path, "lock", error)),
    }
    let write = |file: &mut File| {
        file.set_len(0)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    };
    write(&mut file).map_err(|error| Error::io(path, "write", error))?;
    Ok(file)
}

/// Makes a file. The remains of a creation that did not end are replaced; anything else that is there is left alone. A
/// block device is taken if it is blank.
fn make_file(path: &Path, bytes: u64, is_ours: bool, progress: &mut Option<Progress>) -> Result<Arc<dyn Device>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() && is_ours => {
            fs::remove_file(path).map_err(|error| Error::io(path, "replace", error))?;
        }
        Ok(metadata) if metadata.is_file() => return Err(Error::Exists { path: path.display().to_string() }),
        Ok(_) => {
            let device = FileDevice::open(path, Access::ReadWrite)?;
            let mut start = AlignedBuffer::zeroed(BLANK_BYTES.min(device.capacity_bytes()) as usize);
            device.read(0, &mut start)?;
            if start.iter().any(|byte| *byte != 0) {
                return Err(Error::NotBlank { path: path.display().to_string() });
            }
            return Ok(Arc::new(device));
        }
        Err(_) => {}
    }
    let mut report = |done_bytes, total_bytes| {
        if let Some(callback) = progress {
            callback(OpenProgress { phase: OpenPhase::Create, done_bytes, total_bytes });
        }
    };
    Ok(Arc::new(FileDevice::create(path, bytes, Some(&mut report))?))
}

fn partition(devices: Vec<Arc<dyn Device>>, settings: &Settings) -> Result<Vec<Arc<dyn Device>>> {
    let mut log: Vec<Arc<dyn Device>> = Vec::new();
    for device in devices {
        match settings.log_partitions() {
            1 => log.push(device),
            count => {
                let parts = Partition::split(device, count as usize)?;
                log.extend(parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>));
            }
        }
    }
    Ok(log)
}
