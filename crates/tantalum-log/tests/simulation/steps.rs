//! Helpers for tests of one scenario each: a simulation for each seed, and numbered records.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::MemoryDevice;
use tantalum_log::{Error, Log, LogOptions, Lsn, MissingDevice, Recovery};
use tantalum_rt::{Simulation, now};

use crate::plan::as_devices;

pub const MS: Duration = Duration::from_millis(1);

pub fn simulate(seeds: u64, run: impl Fn(u64) + Clone + 'static) {
    for seed in 0..seeds {
        let run = run.clone();
        Simulation::new(seed).time_limit(Duration::from_secs(100)).run(move || run(seed)).expect_finished();
    }
}

/// All records, and then the log.
pub fn read(mut recovery: Recovery) -> Result<(Log, Vec<Vec<u8>>), Error> {
    let mut records = Vec::new();
    while let Some(record) = recovery.next_record()? {
        records.push(record.bytes);
    }
    Ok((recovery.finish()?, records))
}

/// The log with the numbers that its records begin with.
pub fn open_as(devices: &[Arc<MemoryDevice>], options: LogOptions) -> Result<(Log, Vec<u32>), Error> {
    let (log, records) = read(Log::open(as_devices(devices), options, &mut |_| {})?)?;
    Ok((log, numbers(&records)))
}

/// Whether a log was refused because this device is missing, the first of those that are.
pub fn is_missing(error: &Error, ordinal: u32) -> bool {
    error.cause::<MissingDevice>().is_some_and(|missing| missing.ordinal == ordinal)
}

pub fn numbers(records: &[Vec<u8>]) -> Vec<u32> {
    records.iter().map(|record| u32::from_le_bytes(record[..4].try_into().expect("four bytes"))).collect()
}

pub fn append(log: &Log, n: u32) -> Lsn {
    log.append(&[&n.to_le_bytes(), &[7; 500]]).expect("append").end
}

/// Appends and flushes `n`. Returns how long that took.
pub fn flush(log: &Log, n: u32) -> Duration {
    let start = now();
    log.flush(append(log, n)).expect("flush");
    start.elapsed()
}
