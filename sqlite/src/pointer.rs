//! The pointer file: what a SQLite database in Tantalum is to the file system. A small file of text with the path that programs open; it
//! names the Tantalum database and the identity of the SQLite database in there. SQLite without the VFS says of it that it is no database.
//!
//! The catalog remembers the inode of the pointer file, so a copy is not taken for it (decision 104).

use std::{
    fs::{self, File},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use libsqlite3_sys as ffi;
use tempfile::NamedTempFile;

use crate::failure::{Failure, Result};

const FIRST_LINE: &str =
    "# A SQLite database in Tantalum: open it with vfs=tantalum. Remove, copy or restore it with its directory.";
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";
/// A pointer file is shorter.
const MOST_BYTES: u64 = 16 << 10;

/// The identity of a SQLite database, for its whole life.
pub(crate) type Id = u128;

/// What a pointer file says.
pub(crate) struct Pointer {
    pub id: Id,
    /// The directory of the Tantalum database.
    pub directory: PathBuf,
    /// The file's own.
    pub inode: u64,
    /// The process may write the file, and so the database.
    pub is_writable: bool,
}

/// What a path leads to.
pub(crate) enum Found {
    Pointer(Pointer),
    /// No file, or an empty one.
    Nothing,
}

/// Looks at a path.
pub(crate) fn find(path: &Path) -> Result<Found> {
    let failure = |what: String| Failure::cannot_open(format!("{}: {what}", path.display()));
    let of_os =
        |error: std::io::Error| Failure { code: ffi::SQLITE_CANTOPEN, ..Failure::from(error).context(path.display()) };
    let mut is_writable = true;
    let mut opened = File::options().read(true).write(true).open(path);
    if let Err(error) = &opened
        && matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
    {
        is_writable = false;
        opened = File::open(path);
    }
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(of_os(error)),
    };
    let inode = file.metadata().map_err(of_os)?.ino();
    let mut bytes = Vec::new();
    (&file).take(MOST_BYTES).read_to_end(&mut bytes).map_err(of_os)?;
    if bytes.is_empty() {
        if !is_writable {
            return Err(failure("it is empty, and its permissions do not let this process write it".into()));
        }
        return Ok(Found::Nothing);
    }
    if bytes.starts_with(SQLITE_MAGIC) {
        return Err(failure(
            "it is an ordinary SQLite database, which the VFS tantalum does not open; open it without, or copy it into a new one".into(),
        ));
    }
    let text = String::from_utf8_lossy(&bytes);
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(" = "));
        lines.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let id = value("id").and_then(|id| Id::from_str_radix(id, 16).ok());
    let (Some(id), Some(directory)) = (id, value("database")) else {
        return Err(failure("it is neither a SQLite database in Tantalum nor empty; choose another path".into()));
    };
    Ok(Found::Pointer(Pointer { id, directory: parent(path).join(directory), inode, is_writable }))
}

/// A pointer file that has no name yet.
pub(crate) struct NewPointer {
    file: NamedTempFile,
    pub inode: u64,
}

impl NewPointer {
    /// Writes the file beside the path that it is to have.
    pub fn write(path: &Path, id: Id, directory: &Path) -> Result<Self> {
        // Relative where it can be, so that both may be moved together.
        let directory = directory.strip_prefix(parent(path)).unwrap_or(directory);
        let Some(directory) = directory.to_str().filter(|directory| !directory.contains('\n')) else {
            let reason =
                format!("the directory {} cannot be named in a file of text; choose another", directory.display());
            return Err(Failure::cannot_open(reason));
        };
        // With the permissions that SQLite gives its files, less what the process's mask takes away.
        let permissions = fs::Permissions::from_mode(0o666);
        let mut file = tempfile::Builder::new().permissions(permissions).tempfile_in(parent(path))?;
        write!(file, "{FIRST_LINE}\nid = {id:032x}\ndatabase = {directory}\n")?;
        file.as_file().sync_all()?;
        let inode = file.as_file().metadata()?.ino();
        Ok(Self { file, inode })
    }

    /// Gives it its name, durably. An empty file of that name is replaced, another one is not: then false.
    pub fn name(self, path: &Path) -> Result<bool> {
        // Locked until it is replaced, so that of several processes that replace it the first alone does.
        let found = File::open(path).ok();
        if let Some(found) = &found {
            found.lock()?;
            let is_there = fs::metadata(path)
                .is_ok_and(|file| file.len() == 0 && file.ino() == found.metadata().map_or(0, |found| found.ino()));
            if !is_there {
                return Ok(false);
            }
        }
        let named = if found.is_some() { self.file.persist(path) } else { self.file.persist_noclobber(path) };
        match named {
            Err(error) if error.error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(Failure::cannot_open(format!("{}: {}", path.display(), error.error))),
            Ok(_) => {}
        }
        File::open(parent(path))?.sync_all()?;
        Ok(true)
    }
}

/// Whether the file of that inode is not at the path any more.
pub(crate) fn has_moved(path: &Path, inode: u64) -> bool {
    fs::metadata(path).map_or(true, |file| file.ino() != inode)
}

/// The directory that a file is in.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
