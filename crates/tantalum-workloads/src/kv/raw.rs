//! What devices give to a plain loop of durable overwrites: the limit that a durable commit is measured against.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::now;

use crate::error::{Error, Result};
use crate::tasks;

/// Measures durable overwrites of `write_bytes` each on devices whose whole range has been written before: a task for
/// each device, with one write under way, going round it. Partitions of one device give it as many writes at a time.
///
/// Gives the writes in a second, of all tasks together.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_workloads::kv::raw::durable_writes_per_second;
///
/// let devices = ["a", "b"].map(|name| MemoryDevice::new(name, 1 << 20) as Arc<dyn Device>);
/// println!("{:.0} writes a second", durable_writes_per_second(&devices, 4096, Duration::from_millis(2))?);
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
pub fn durable_writes_per_second(devices: &[Arc<dyn Device>], write_bytes: usize, duration: Duration) -> Result<f64> {
    let started = now();
    let end = started + duration;
    let writer = |(number, device): (usize, &Arc<dyn Device>)| {
        let device = Arc::clone(device);
        let places = device.capacity_bytes() / (write_bytes as u64).max(1);
        if places == 0 {
            let value = format!("{write_bytes} bytes on {}", device.name());
            return Err(Error::OutOfRange { name: "raw write", value, expected: "a write that fits the device" });
        }
        let write = move || {
            let mut buffer = AlignedBuffer::zeroed(write_bytes);
            let mut count: u64 = 0;
            while now() < end {
                // Each write differs, as a log's do.
                let stamped = write_bytes.min(8);
                buffer[..stamped].copy_from_slice(&count.to_le_bytes()[..stamped]);
                device.write(count % places * write_bytes as u64, &[&buffer], Durability::Durable)?;
                count += 1;
            }
            Ok(count)
        };
        Ok((format!("raw writer {number}"), write))
    };
    let writers = devices.iter().enumerate().map(writer).collect::<Result<Vec<_>>>()?;
    let counts = tasks::run_all(writers, &mut || duration.max(Duration::from_millis(1)))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(counts.iter().sum::<u64>() as f64 / seconds.max(1e-9))
}
