//! A disk for benchmarks and tests that stalls, is full or is lost when it is told to: an ext4 file system on a loop device. Nothing is
//! written to one that is frozen (`fsfreeze`), and what is under way waits, as with a drive that cleans up. Needs root.
//!
//! ```no_run
//! use std::{path::Path, thread::sleep, time::Duration};
//! use tantalum_loop_disk::{Frozen, LoopDisk};
//!
//! let disk = LoopDisk::new(Path::new("disk.image"), "disk".into(), 1 << 30)?;
//! std::fs::write(disk.path().join("file"), "on the disk")?;
//! let frozen = Frozen::new(disk.path().to_owned())?;
//! sleep(Duration::from_millis(200)); // all writes wait
//! drop(frozen);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::fs;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file system on a loop device; given back when this is dropped, which must be after its files are closed.
#[derive(Debug)]
pub struct LoopDisk {
    mounted_at: PathBuf,
    device: String,
}

impl LoopDisk {
    /// Makes one of so many bytes, in a new file that takes little space, mounted at a new directory.
    ///
    /// # Errors
    /// What a file or a program of the system reports.
    pub fn new(image: &Path, mounted_at: PathBuf, bytes: u64) -> Result<Self> {
        let file = fs::File::create_new(image).map_err(|error| at(error, image))?;
        file.set_len(bytes).map_err(|error| at(error, image))?;
        fs::create_dir(&mounted_at).map_err(|error| at(error, &mounted_at))?;
        let device = run("losetup", &["--find", "--show", &image.display().to_string()])?;
        let disk = Self { mounted_at, device };
        run("mkfs.ext4", &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", &disk.device])?;
        run("mount", &[&disk.device, &disk.mounted_at.display().to_string()])?;
        Ok(disk)
    }

    /// The directory of the file system.
    pub fn path(&self) -> &Path {
        &self.mounted_at
    }

    /// Fails all writes from now on, until [`LoopDisk::recover`].
    ///
    /// # Errors
    /// What `mount` reports.
    pub fn lose(&self) -> Result<()> {
        run("mount", &["-o", "remount,abort", &self.mounted_at.display().to_string()]).map(drop)
    }

    /// Makes a lost file system work again, when its files are closed.
    ///
    /// # Errors
    /// What `umount` and `mount` report, for example that a file is open.
    pub fn recover(&self) -> Result<()> {
        let mounted_at = self.mounted_at.display().to_string();
        run("umount", &[&mounted_at])?;
        run("mount", &[&self.device, &mounted_at]).map(drop)
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // What is not there any more needs no giving back.
        let _ = run("umount", &[&self.mounted_at.display().to_string()]);
        let _ = run("losetup", &["--detach", &self.device]);
    }
}

/// A file system whose writes wait until this is dropped.
#[derive(Debug)]
pub struct Frozen(PathBuf);

impl Frozen {
    /// Freezes the file system that is mounted there.
    ///
    /// # Errors
    /// What `fsfreeze` reports.
    pub fn new(mounted_at: PathBuf) -> Result<Self> {
        run("fsfreeze", &["--freeze", &mounted_at.display().to_string()])?;
        Ok(Self(mounted_at))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        if let Err(error) = run("fsfreeze", &["--unfreeze", &self.0.display().to_string()]) {
            eprintln!("error: {error}");
        }
    }
}

/// A file system without any free space until this is dropped: a file has it.
#[derive(Debug)]
pub struct Full(PathBuf);

impl Full {
    /// Fills the file system that is mounted there.
    ///
    /// # Errors
    /// What a file reports, but that there is no space.
    pub fn new(mounted_at: &Path) -> Result<Self> {
        let path = mounted_at.join("filler");
        let mut file = fs::File::create_new(&path).map_err(|error| at(error, &path))?;
        let full = Self(path);
        // In ever smaller pieces, so that no block is left.
        for piece in [1 << 20, 1 << 12] {
            let zeros = vec![0; piece];
            loop {
                match file.write_all(&zeros) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(at(error, &full.0)),
                }
            }
        }
        Ok(full)
    }
}

impl Drop for Full {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            eprintln!("error: {}: {error}", self.0.display());
        }
    }
}

fn at(error: Error, path: &Path) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Runs a program of the system and returns what it prints.
fn run(program: &str, arguments: &[&str]) -> Result<String> {
    let command = || format!("{program} {}", arguments.join(" "));
    let ran = Command::new(program).args(arguments).output();
    let output = ran.map_err(|error| Error::new(error.kind(), format!("{}: {error}", command())))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::other(format!("{}: {said}", command())))
}
