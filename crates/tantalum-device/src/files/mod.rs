//! What databases and archives do with directories and the files in them, beside reading and writing devices.
//!
//! On threads these are the operations of the file system. In a simulation to which a [`SimulatedFiles`] is
//! [attached](SimulatedFiles::attach) they happen in its memory, which loses power as a file system does.

mod simulated;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use simulated::{AttachedFiles, SimulatedFiles};

use crate::{Access, Device, FileDevice, Result};

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// Something else: a block device, or what is none of ours.
    Other,
}

/// What `path` leads to; `None` where there is nothing.
///
/// # Errors
/// When it cannot be looked at.
pub fn kind(path: &Path) -> io::Result<Option<FileKind>> {
    if let Some(simulated) = simulated::attached() {
        return Ok(simulated.kind(path));
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(Some(FileKind::Directory)),
        Ok(metadata) if metadata.is_file() => Ok(Some(FileKind::File)),
        Ok(_) => Ok(Some(FileKind::Other)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether there is something at `path` that can be looked at.
pub fn exists(path: &Path) -> bool {
    kind(path).is_ok_and(|kind| kind.is_some())
}

/// The path without links, of what exists.
///
/// # Errors
/// When it does not.
pub fn canonicalize(path: &Path) -> io::Result<PathBuf> {
    match simulated::attached() {
        Some(simulated) => simulated.kind(path).map(|_| path.into()).ok_or_else(|| io::ErrorKind::NotFound.into()),
        None => fs::canonicalize(path),
    }
}

/// The bytes of a file.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    match simulated::attached() {
        Some(simulated) => simulated.read(path),
        None => fs::read(path),
    }
}

/// The names in a directory.
///
/// # Errors
/// When it cannot be listed.
pub fn list(path: &Path) -> io::Result<Vec<OsString>> {
    match simulated::attached() {
        Some(simulated) => simulated.list(path),
        None => fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect(),
    }
}

/// Makes a directory, and makes its name durable.
///
/// # Errors
/// When it exists, or cannot be made.
pub fn create_directory(path: &Path) -> io::Result<()> {
    match simulated::attached() {
        Some(simulated) => simulated.create_directory(path)?,
        None => fs::create_dir(path)?,
    }
    sync_directory(parent(path))
}

/// Removes a file. Its directory is not synchronized.
///
/// # Errors
/// When it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match simulated::attached() {
        Some(simulated) => simulated.remove(path),
        None => fs::remove_file(path),
    }
}

/// Gives a file or directory another name in the same directory, in the place of a file that may have it. The directory is not
/// synchronized.
///
/// # Errors
/// When it cannot be renamed.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match simulated::attached() {
        Some(simulated) => simulated.rename(from, to),
        None => fs::rename(from, to),
    }
}

/// Makes durable which names are in a directory.
///
/// # Errors
/// When it cannot be synchronized.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    match simulated::attached() {
        Some(simulated) => simulated.sync_directory(path),
        None => File::open(path)?.sync_all(),
    }
}

/// The directory that a path is in.
pub fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Makes a file with these bytes, in the place of one that may be there, durably: at each moment it is there as before or as a
/// whole. Meanwhile it has `.new` appended to its name.
///
/// ```
/// use tantalum_device::files;
/// # let directory = tempfile::tempdir()?;
/// let path = directory.path().join("settings");
/// files::replace(&path, b"a = 1")?;
/// files::replace(&path, b"a = 2")?;
/// assert_eq!(files::read(&path)?, b"a = 2");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// When it cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    match simulated::attached() {
        Some(simulated) => simulated.write(&fresh, bytes)?,
        None => {
            let mut file = File::create(&fresh)?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
    }
    rename(&fresh, path)?;
    sync_directory(parent(path))
}

/// As [`FileDevice::open`].
///
/// # Errors
/// Those of [`FileDevice::open`].
pub fn open(path: &Path, access: Access) -> Result<Arc<dyn Device>> {
    match simulated::attached() {
        Some(simulated) => simulated.open(path),
        None => Ok(Arc::new(FileDevice::open(path, access)?)),
    }
}

/// As [`FileDevice::create`].
///
/// # Errors
/// Those of [`FileDevice::create`].
pub fn create(path: &Path, size_bytes: u64, progress: Option<&mut dyn FnMut(u64, u64)>) -> Result<Arc<dyn Device>> {
    match simulated::attached() {
        Some(simulated) => simulated.create(path, size_bytes),
        None => Ok(Arc::new(FileDevice::create(path, size_bytes, progress)?)),
    }
}

/// As [`FileDevice::create_sparse`].
///
/// # Errors
/// Those of [`FileDevice::create_sparse`].
pub fn create_sparse(path: &Path, size_bytes: u64) -> Result<Arc<dyn Device>> {
    match simulated::attached() {
        Some(simulated) => simulated.create(path, size_bytes),
        None => Ok(Arc::new(FileDevice::create_sparse(path, size_bytes)?)),
    }
}

/// Whether files are in the memory of a simulation.
pub fn is_simulated() -> bool {
    simulated::attached().is_some()
}
