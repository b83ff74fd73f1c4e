//! The devices whose raw speed `bench kv` puts beside the engine's: a file, or twins of the emulated log devices.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tantalum_device::{AlignedBuffer, Device, Durability, FileDevice, Partition, WithoutBarriers, WriteCache};
use tantalum_flash::{EmulatedDevice, EmulatedSpec};
use tantalum_workloads::driver::{self, Completed, Recorder, Workload};

use super::simulate::divide;
use crate::{
    emulator::Stalled,
    error::{Error, Result},
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
        let per_second = |devices: &[Arc<dyn Device>]| -> Result<f64> {
            let options = driver::Options::timed(devices.len(), Duration::ZERO, slice);
            let overwrites = Arc::new(Overwrites { devices: devices.to_vec(), write_bytes });
            Ok(driver::run(&overwrites, options, &mut |_| ())?.total.per_second)
        };
        let one = per_second(&self.one)?;
        let all = if self.all.len() == 1 { one } else { per_second(&self.all)? };
        Ok((one, all))
    }

    /// As many as the log has devices.
    pub fn writers(&self) -> usize {
        self.all.len()
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

/// Durable overwrites by a client for each device, one under way, going round it: the limit that a durable commit is measured
/// against. Partitions of one device give it as many writes at a time.
struct Overwrites {
    devices: Vec<Arc<dyn Device>>,
    write_bytes: usize,
}

struct Writer<'a> {
    device: &'a dyn Device,
    buffer: AlignedBuffer,
    count: u64,
}

impl Workload for Overwrites {
    type Client<'a> = Writer<'a>;

    fn kinds(&self) -> &'static [&'static str] {
        &["write"]
    }

    fn client(&self, number: usize, _seed: u64) -> tantalum_workloads::Result<Writer<'_>> {
        let (device, buffer) = (&*self.devices[number], AlignedBuffer::zeroed(self.write_bytes));
        if device.capacity_bytes() < self.write_bytes as u64 {
            let value = format!("{} bytes on {}", self.write_bytes, device.name());
            let expected = "a write that fits the device";
            return Err(tantalum_workloads::error::out_of_range("raw write", value, expected));
        }
        Ok(Writer { device, buffer, count: 0 })
    }

    fn step(&self, writer: &mut Writer<'_>, recorder: &mut Recorder) -> tantalum_workloads::Result<()> {
        let Writer { device, buffer, count } = writer;
        let places = device.capacity_bytes() / self.write_bytes as u64;
        let offset = *count % places * self.write_bytes as u64;
        // Each write differs, as a log's do.
        buffer[..8].copy_from_slice(&count.to_le_bytes());
        *count += 1;
        let write = || {
            device.write(offset, &[&buffer[..]], Durability::Durable)?;
            Ok(Completed::Committed)
        };
        recorder.run(0, write).map(drop)
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
