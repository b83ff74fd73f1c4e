//! The devices whose raw speed `bench kv` puts beside the engine's: a file, or twins of the emulated log devices.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tantalum_device::{AlignedBuffer, Device, Durability, FileDevice, Partition, WithoutBarriers, WriteCache};
use tantalum_flash::{EmulatedDevice, EmulatedSpec};
use tantalum_workloads::kv::raw::durable_writes_per_second;

use super::simulate::divide;
use crate::{
    error::{Error, Result},
    stalled::Stalled,
};

/// Bytes of the file.
const FILE_BYTES: u64 = 64 << 20;
/// Bytes used of each twin: they are written once before, which takes a slow device its time.
const TWIN_BYTES: u64 = 16 << 20;

/// Written devices.
pub struct Raw {
    /// For one writer.
    one: [Arc<dyn Device>; 1],
    /// For as many as the log has.
    all: Vec<Arc<dyn Device>>,
    /// Removed at the end.
    file: Option<PathBuf>,
}

impl Raw {
    /// A file of zeros in `directory`, written by `writers` at once.
    pub fn in_directory(directory: &Path, writers: usize) -> Result<Self> {
        let path = directory.join(format!("raw-limit-{}", std::process::id()));
        let device: Arc<dyn Device> = Arc::new(FileDevice::create(&path, FILE_BYTES, None)?);
        let file = Some(path);
        let parts = Partition::split(Arc::clone(&device), writers)?;
        Ok(Self { one: [device], all: parts.into_iter().map(|part| Arc::new(part) as _).collect(), file })
    }

    /// Devices like the log's, if these are emulated; cut into as many partitions.
    pub fn twins(log: &[PathBuf], partitions: u32) -> Result<Option<Self>> {
        let mut twins: Vec<Arc<dyn Device>> = Vec::new();
        for path in log {
            let stalled = path.to_str().and_then(Stalled::parse).transpose()?;
            // What a device can do, it can do between its stalls.
            let name = stalled.as_ref().map_or(path.to_str(), |stalled| Some(stalled.device));
            let Some(spec) = name.and_then(EmulatedSpec::parse) else { return Ok(None) };
            let profile = spec?.profile()?;
            let twin = EmulatedDevice::new(format!("twin of {}", path.display()), profile.build()?);
            fill(&*twin)?;
            // As the engine uses it: what survives on completion is durable without a flush.
            twins.push(match twin.capabilities().write_cache {
                WriteCache::None => Arc::new(WithoutBarriers::new(twin)),
                WriteCache::Volatile | WriteCache::Unknown => twin,
            });
        }
        let Some(first) = twins.first().cloned() else { return Ok(None) };
        let [one] = &divide(vec![first], TWIN_BYTES, 1)?[..] else { unreachable!("one device in one part") };
        Ok(Some(Self { one: [Arc::clone(one)], all: divide(twins, TWIN_BYTES, partitions)?, file: None }))
    }

    /// Writes in a second by one writer, and by one for each of the log's devices.
    pub fn measure(&self, write_bytes: usize, slice: Duration) -> Result<(f64, f64)> {
        let one = durable_writes_per_second(&self.one, write_bytes, slice)?;
        let all = if self.all.len() == 1 { one } else { durable_writes_per_second(&self.all, write_bytes, slice)? };
        Ok((one, all))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(path) = &self.file
            && let Err(error) = std::fs::remove_file(path)
        {
            eprintln!("cannot remove {}: {error}; remove it by hand", path.display());
        }
    }
}

fn fill(device: &dyn Device) -> Result<(), Error> {
    const STEP: u64 = 256 << 10;
    let zeros = AlignedBuffer::zeroed(STEP as usize);
    let end = TWIN_BYTES.min(device.capacity_bytes());
    for offset in (0..end).step_by(STEP as usize) {
        let bytes = STEP.min(end - offset) as usize;
        device.write(offset, &[&zeros[..bytes]], Durability::Cached)?;
    }
    Ok(device.flush()?)
}
