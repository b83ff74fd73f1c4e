//! Where the socket is, also where its path does not fit in a socket's address.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use crate::db::files::SOCKET;

/// A path in a socket's address has so many bytes, and a zero.
const PATH_BYTES_MAX: usize = 107;

/// A path of the socket that fits in an address, for as long as this lives.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    _directory: Option<File>,
}

impl Address {
    /// The address of the socket in `directory`. A path that is too long goes by way of the open directory.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let path = directory.join(SOCKET);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Self { path, _directory: None });
        }
        let directory = File::open(directory)?;
        let short = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(SOCKET);
        Ok(Self { path: short, _directory: Some(directory) })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}
