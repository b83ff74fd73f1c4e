//! Where `device bench` and `probe` measure: a file of its own, or what exists already if its contents may go.
//!
//! Promise: without the destructive flag nothing that existed before is written to, and nothing stays behind.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tantalum_device::{Device, FileDevice};
use tantalum_report::{Progress, Unit};

use super::overwrite;
use crate::error::{Error, Result};

/// Opens the device to measure.
///
/// The file that is made where there is none loses its name at once, so that it goes away however the program ends.
pub fn open(path: &Path, size_bytes: u64, destroy_contents: bool) -> Result<Arc<dyn Device>> {
    if path.is_dir() {
        return create(&path.join(file_name()), size_bytes);
    }
    match (path.exists(), destroy_contents) {
        (false, _) => create(path, size_bytes),
        (true, true) => Ok(Arc::new(overwrite::open(path)?)),
        (true, false) => Err(would_be_lost(path)),
    }
}

fn would_be_lost(path: &Path) -> Error {
    Error::Other(format!(
        "{} exists and would be overwritten; name a file that does not exist, or a directory, or give \
         --destroy-contents to lose what it holds",
        path.display()
    ))
}

/// The file with an emulated device's contents; it goes away again if it was not there before.
pub struct Contents(Option<PathBuf>);

impl Contents {
    /// Refuses a file that is there, unless what it holds may be lost.
    pub fn of(file: PathBuf, destroy_contents: bool) -> Result<Self> {
        match (file.exists(), destroy_contents) {
            (false, _) => Ok(Self(Some(file))),
            (true, true) => Ok(Self(None)),
            (true, false) => Err(would_be_lost(&file)),
        }
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        if let Some(file) = self.0.take_if(|file| file.exists())
            && let Err(error) = std::fs::remove_file(&file)
        {
            eprintln!("cannot remove {}: {error}; remove it by hand", file.display());
        }
    }
}

/// As [`open`] where there is nothing yet, but no larger than can be written in about `time`: at least as large as `least_bytes`.
pub fn create_within(path: &Path, least_bytes: u64, size_bytes: u64, time: Duration) -> Result<Arc<dyn Device>> {
    let path = match path.is_dir() {
        true => &path.join(file_name()),
        false => path,
    };
    let started = tantalum_rt::now();
    let device = create(path, least_bytes.min(size_bytes))?;
    while device.capacity_bytes() < size_bytes {
        let (has, took) = (device.capacity_bytes(), started.elapsed());
        let more = has.min(size_bytes - has);
        if took.mul_f64((has + more) as f64 / has as f64) > time {
            break;
        }
        device.grow(has + more)?;
    }
    Ok(device)
}

/// The file in a directory; hidden, and another for each process.
fn file_name() -> String {
    format!(".tantalum-bench-{}", std::process::id())
}

fn create(path: &Path, size_bytes: u64) -> Result<Arc<dyn Device>> {
    let bar = Progress::bar("creating the file", size_bytes, Unit::Bytes);
    let device = FileDevice::create(path, size_bytes, Some(&mut |done, _| bar.set(done)))?;
    bar.finish();
    std::fs::remove_file(path).map_err(|error| Error::file("remove", path, error))?;
    Ok(Arc::new(device))
}
