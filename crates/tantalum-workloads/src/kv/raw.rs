//! What a device gives to a plain loop of durable overwrites: the limit that a durable commit is measured against.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::now;

use crate::error::{Error, Result};
use crate::tasks;

/// Measures durable overwrites of `write_bytes` each on a device whose whole range has been written before:
/// `queue_depth` tasks, each with one write under way, each going round its own part of the device.
///
/// Gives the writes in a second, of all tasks together.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// let device = tantalum_device::MemoryDevice::new("memory", 1 << 20);
/// let rate = tantalum_workloads::kv::raw::durable_writes_per_second(device, 4096, 2, Duration::from_millis(2))?;
/// assert!(rate > 0.0);
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
pub fn durable_writes_per_second(
    device: Arc<dyn Device>,
    write_bytes: usize,
    queue_depth: usize,
    duration: Duration,
) -> Result<f64> {
    let places = device.capacity_bytes() / (write_bytes as u64).max(1) / (queue_depth as u64).max(1);
    if places == 0 || queue_depth == 0 {
        let value = format!("{queue_depth} of {write_bytes} bytes");
        return Err(Error::OutOfRange { name: "queue depth", value, expected: "writes that fit the device" });
    }
    let started = now();
    let end = started + duration;
    let writer = |number: u64| {
        let device = device.clone();
        let write = move || {
            let mut buffer = AlignedBuffer::zeroed(write_bytes);
            let mut count: u64 = 0;
            while now() < end {
                // Each write differs, as a log's do.
                let stamped = write_bytes.min(8);
                buffer[..stamped].copy_from_slice(&count.to_le_bytes()[..stamped]);
                let place = number * places + count % places;
                device.write(place * write_bytes as u64, &[&buffer], Durability::Durable)?;
                count += 1;
            }
            Ok(count)
        };
        (format!("raw writer {number}"), write)
    };
    let writers = (0..queue_depth as u64).map(writer).collect();
    let counts = tasks::run_all(writers, &mut || duration.max(Duration::from_millis(1)))?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(counts.iter().sum::<u64>() as f64 / seconds.max(1e-9))
}
