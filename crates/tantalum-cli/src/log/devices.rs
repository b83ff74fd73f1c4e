//! Finds the devices of a log, given a database's directory or the devices' paths.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum_device::{Access, Device, ErrorKind, FileDevice, Partition};
use tantalum_log::format::{BLOCK, superblock::Superblock};

use crate::{
    emulator::{Emulator, Stalled},
    error::{Error, Result},
};

/// Partitions that one device can be cut into.
const PARTITIONS_MAX: u64 = 64;

/// Opens all devices, or partitions of them, for reading.
pub fn open(paths: &[PathBuf], partitions: Option<usize>) -> Result<Vec<Arc<dyn Device>>> {
    let log = Log::named_by(paths)?;
    let emulator = Emulator::for_keeps();
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    for name in &log.names {
        let device = log.open(name, &emulator)?;
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

/// The devices of a log, by name.
struct Log {
    names: Vec<PathBuf>,
    /// Where relative paths start.
    directory: PathBuf,
    /// Bytes used of an emulated device, if known.
    bytes: Option<u64>,
}

impl Log {
    /// Replaces a database's directory by its log devices.
    fn named_by(paths: &[PathBuf]) -> Result<Self> {
        let named = Self { names: paths.to_vec(), directory: PathBuf::new(), bytes: None };
        let [dir] = paths else { return Ok(named) };
        if !dir.is_dir() {
            return Ok(named);
        }
        let log = tantalum::locate_log(dir).map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::Other(format!("{error}; give a database's directory, or the paths of the log's devices"))
            }
            _ => error.into(),
        })?;
        Ok(Self { names: log.devices, directory: dir.clone(), bytes: Some(log.device_bytes) })
    }

    fn open(&self, name: &Path, emulator: &Emulator) -> Result<Arc<dyn Device>> {
        // To read it, it need not stall.
        let stalled = name.to_str().and_then(Stalled::parse).transpose()?;
        let name = stalled.as_ref().map_or(name, |stalled| Path::new(stalled.device));
        let emulated = match name.to_str() {
            Some(name) => emulator.open(name, &self.directory, false)?,
            None => None,
        };
        let Some(device) = emulated else {
            return Ok(Arc::new(FileDevice::open(self.directory.join(name), Access::ReadOnly)?));
        };
        match self.bytes {
            Some(bytes) if bytes < device.capacity_bytes() => Ok(Arc::new(Partition::new(device, 0..bytes)?)),
            _ => Ok(device),
        }
    }
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
