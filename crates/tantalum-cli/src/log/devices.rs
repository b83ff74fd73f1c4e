//! Finds the devices of a log, given a database's directory or the devices' paths.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::{Access, Device, FileDevice, Partition};
use tantalum_log::format::{BLOCK, superblock::Superblock};

use crate::error::{Error, Result};

/// Partitions that one device can be cut into.
const PARTITIONS_MAX: u64 = 64;

/// Opens all devices, or partitions of them, for reading.
pub fn open(paths: &[PathBuf], partitions: Option<usize>) -> Result<Vec<Arc<dyn Device>>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for path in log_files(paths)? {
        let device: Arc<dyn Device> = Arc::new(FileDevice::open(&path, Access::ReadOnly)?);
        match partitions.unwrap_or_else(|| count_partitions(&*device)) {
            1 => devices.push(device),
            count => {
                let partitions = Partition::split(device, count)?;
                devices.extend(partitions.into_iter().map(|partition| Arc::new(partition) as Arc<dyn Device>));
            }
        }
    }
    Ok(devices)
}

/// Replaces a database's directory by its log devices.
fn log_files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let [dir] = paths else { return Ok(paths.to_vec()) };
    if !dir.is_dir() {
        return Ok(paths.to_vec());
    }
    let settings_path = dir.join("tantalum.toml");
    let settings = match std::fs::read_to_string(&settings_path) {
        Ok(text) => text.parse::<toml::Table>().map_err(|error| Error::file("understand", &settings_path, error))?,
        Err(error) => {
            let what = format!("{error}; give a database's directory, or the paths of the log's devices");
            return Err(Error::file("read", &settings_path, what));
        }
    };
    match settings.get("log_devices") {
        None => Ok(vec![dir.join("log-0")]),
        Some(value) => named(value, dir)
            .ok_or_else(|| Error::file("understand", &settings_path, "log_devices is not a list of paths")),
    }
}

/// The paths in a list of them; relative ones start at `dir`.
fn named(value: &toml::Value, dir: &Path) -> Option<Vec<PathBuf>> {
    value.as_array()?.iter().map(|path| Some(dir.join(path.as_str()?))).collect()
}

/// How many partitions a device was cut into: as many as fit the size that its first superblock tells, and as most
/// superblocks stand for. One where the first cannot be read: then the log itself will say what is wrong.
fn count_partitions(device: &dyn Device) -> usize {
    let Some(first) = superblock(device, 0) else { return 1 };
    let capacity = device.capacity_bytes();
    let share = |count: u64| capacity / count / BLOCK as u64 * BLOCK as u64;
    let fits = |count: &u64| {
        let slack = share(*count).checked_sub(first.area_bytes);
        slack.is_some_and(|slack| slack < 2 * u64::from(first.section_bytes))
    };
    let found_per_mille = |count: u64| {
        (0..count).filter(|n| superblock(device, n * share(count)).is_some()).count() as u64 * 1000 / count
    };
    let best = (1..=PARTITIONS_MAX).filter(fits).max_by_key(|&count| (found_per_mille(count), count));
    best.map_or(1, |count| count as usize)
}

/// The superblock of the log device that starts at `offset`, or its copy.
fn superblock(device: &dyn Device, offset: u64) -> Option<Superblock> {
    let mut blocks = vec![0; 2 * BLOCK];
    device.read(offset, &mut blocks).ok()?;
    let (first, copy) = blocks.split_at(BLOCK);
    Superblock::decode(first).or_else(|_| Superblock::decode(copy)).ok()
}
