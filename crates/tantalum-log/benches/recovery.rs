//! How fast recovery reads a log of 900 MB on 1, 2 and 4 files ("FlashLogging", section 5.4), beside the raw rate at
//! which the same files are read in order, one thread a file. In the temporary directory (set `TMPDIR` to choose the
//! file system).
//!
//! `cargo bench -p tantalum-log --bench recovery`. The two are interleaved, and the ratio is the median of the rounds'
//! ratios. Run it on a quiet machine.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, FileDevice};
use tantalum_log::{Log, LogOptions, Lsn, Recovery};
use tantalum_report::Table;
use tantalum_rt::{now, spawn};

const LOG_BYTES: u64 = 900_000_000;
const RECORD_BYTES: usize = 4096;
const REQUEST_BYTES: usize = 64 << 10;
const READ_BYTES: usize = 1 << 20;
const ROUNDS: usize = 7;

fn main() {
    let mut table = Table::new(["files", "raw MB/s", "recovery MB/s", "recovery / raw"]);
    for count in [1, 2, 4] {
        let directory = tempfile::tempdir().expect("the temporary directory can be written");
        let share = (LOG_BYTES / count + (64 << 20)).next_multiple_of(1 << 20);
        let devices: Vec<Arc<dyn Device>> = (0..count)
            .map(|n| FileDevice::create(directory.path().join(format!("log-{n}")), share, None))
            .map(|file| Arc::new(file.expect("the space is free")) as Arc<dyn Device>)
            .collect();
        let end = fill(&devices);
        let mut rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (raw_rate(&devices), scan_rate(&devices, end))).collect();
        rounds.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let (raw, scan) = rounds[ROUNDS / 2];
        let figure = |value: f64| format!("{value:.0}");
        table.row([count.to_string(), figure(raw), figure(scan), format!("{:.2}", scan / raw)]);
    }
    println!("{table}");
}

/// Writes the log from two tasks a device, so that every device gets its share. Returns its end.
fn fill(devices: &[Arc<dyn Device>]) -> Lsn {
    Log::create(1, devices.to_vec(), LogOptions::default()).expect("the devices take a log");
    let log = open(devices).finish().expect("the log starts");
    let write = |n| {
        let log = log.clone();
        spawn(format!("writer-{n}"), move || {
            let record = [7; RECORD_BYTES];
            while log.end_lsn().get() < LOG_BYTES {
                for _ in 0..REQUEST_BYTES / RECORD_BYTES {
                    log.append(&[&record]).expect("the devices have room for the log");
                }
                log.flush(log.end_lsn()).expect("the devices write");
            }
        })
    };
    let writers: Vec<_> = (0..2 * devices.len()).map(write).collect();
    writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
    log.flush(log.end_lsn()).expect("the devices write");
    log.durable_lsn()
}

fn open(devices: &[Arc<dyn Device>]) -> Recovery {
    Log::open(devices.to_vec(), LogOptions::default(), &mut |_| {}).expect("the log opens")
}

/// Megabytes of the log a second, of [`Log::open`] as a whole.
fn scan_rate(devices: &[Arc<dyn Device>], end: Lsn) -> f64 {
    let start = now();
    let recovery = open(devices);
    let elapsed = start.elapsed();
    assert_eq!(recovery.end_lsn(), end, "all of the log is found");
    end.get() as f64 / elapsed.as_secs_f64() / 1e6
}

/// Megabytes a second of reading as many bytes from the same files, a thread a file.
fn raw_rate(devices: &[Arc<dyn Device>]) -> f64 {
    let start = now();
    let share = LOG_BYTES / devices.len() as u64;
    let read = |(n, device): (usize, &Arc<dyn Device>)| {
        let device = Arc::clone(device);
        spawn(format!("reader-{n}"), move || {
            let mut buffer = AlignedBuffer::zeroed(READ_BYTES);
            for offset in (0..share).step_by(READ_BYTES) {
                device.read(offset, &mut buffer).expect("the file is that long");
            }
        })
    };
    let readers: Vec<_> = devices.iter().enumerate().map(read).collect();
    readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    LOG_BYTES as f64 / start.elapsed().as_secs_f64() / 1e6
}
