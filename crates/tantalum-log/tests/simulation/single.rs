//! The single layout: its writes overlap, and nothing is lost by it.

use std::sync::Arc;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{ErrorKind, Log, LogLayout, LogOptions, inspect};
use tantalum_rt::Simulation;

use crate::plan::LOG_ID;
use crate::recorder::{Recorder, Write};

fn options(layout: LogLayout) -> LogOptions {
    LogOptions { section_bytes: Some(65536), layout, ..LogOptions::default() }
}

/// The writes of `count` flushed records of 100 bytes, and where on the device the requests lie.
fn write(layout: LogLayout, logical_block: u32, count: u8) -> (Vec<Write>, Vec<(u64, u64)>) {
    let profile = MemoryProfile { logical_block, ..MemoryProfile::default() };
    let device = Recorder::new(MemoryDevice::with_profile("log", 1 << 20, profile));
    let devices: Vec<Arc<dyn Device>> = vec![device.clone()];
    Log::create(LOG_ID, devices.clone(), options(layout)).expect("create");
    let log = Log::open(devices.clone(), options(layout), &mut |_| {}).expect("open").finish().expect("finish");
    device.clear();
    for n in 0..count {
        log.flush(log.append(&[&[n; 100]]).expect("append").end).expect("flush");
    }
    drop(log);
    let mut recovery = Log::open(devices.clone(), options(layout), &mut |_| {}).expect("open");
    for n in 0..count {
        assert_eq!(recovery.next_record().expect("readable").map(|record| record.bytes), Some(vec![n; 100]));
    }
    assert_eq!(recovery.next_record().expect("readable"), None);
    let inspected = inspect(&devices).expect("inspect").devices.remove(0);
    assert_eq!(inspected.layout, layout);
    let requests = inspected.requests.iter().map(|request| (request.offset, request.bytes)).collect();
    (device.section_writes(), requests)
}

#[test]
fn every_write_takes_the_partly_filled_block_along() {
    for block in [512, 4096] {
        Simulation::new(1)
            .run(move || {
                let (writes, requests) = write(LogLayout::Single, block, 100);
                assert_eq!((writes.len(), requests.len()), (100, 100), "one write for each request");
                let block = u64::from(block);
                assert!(requests.iter().all(|&(_, bytes)| bytes == 96 + 4 + 100), "packed byte after byte");
                for n in 1..100 {
                    let (before, write, request) = (&writes[n - 1], &writes[n], requests[n].0);
                    if write.bytes.starts_with(b"TNTLSECT") {
                        continue; // a section begins with a block of its own
                    }
                    assert_eq!(request, requests[n - 1].0 + requests[n - 1].1);
                    assert_eq!(write.offset, request / block * block);
                    if request.is_multiple_of(block) {
                        assert_eq!(write.offset, before.range().end);
                        continue;
                    }
                    assert_eq!(write.offset, before.range().end - block, "the last block is written again");
                    let again = (request - write.offset) as usize;
                    let last = &before.bytes[before.bytes.len() - block as usize..];
                    assert!(write.bytes[..again] == last[..again], "with the same bytes");
                }
                let overlaps = writes.windows(2).filter(|pair| pair[1].offset < pair[0].range().end).count();
                assert!(overlaps > 90, "{overlaps} of 99 writes overlap the one before");
            })
            .expect_finished();
    }
}

#[test]
fn flash_logging_never_writes_a_block_twice() {
    Simulation::new(1)
        .run(|| {
            let (writes, _) = write(LogLayout::FlashLogging, 512, 100);
            assert!(writes.windows(2).all(|pair| pair[1].offset >= pair[0].range().end));
        })
        .expect_finished();
}

#[test]
fn it_has_one_device() {
    let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 1 << 20), MemoryDevice::new("b", 1 << 20)];
    let error = Log::create(LOG_ID, devices, options(LogLayout::Single)).unwrap_err();
    assert!(error.to_string().contains("log option devices is 2, but "), "{error}");
}

#[test]
fn blocks_are_no_smaller_than_the_devices() {
    for (wanted, logical_block) in [(256, 512), (1000, 512), (8192, 512), (512, 4096)] {
        let profile = MemoryProfile { logical_block, ..MemoryProfile::default() };
        let device: Arc<dyn Device> = MemoryDevice::with_profile("log", 1 << 20, profile);
        let options = LogOptions { block_bytes: Some(wanted), ..options(LogLayout::FlashLogging) };
        let error = Log::create(LOG_ID, vec![device], options).unwrap_err();
        assert!(error.to_string().contains("log option block_bytes is "), "{error}");
    }
    // Formatted on a device of smaller blocks, then copied.
    let profile = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
    let small = MemoryDevice::with_profile("small", 1 << 20, profile);
    Log::create(LOG_ID, vec![small.clone()], options(LogLayout::Single)).expect("create");
    let large = MemoryDevice::new("large", 1 << 20);
    large.load(&small.image());
    let error = Log::open(vec![large], options(LogLayout::Single), &mut |_| {}).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported, "{error}");
}
