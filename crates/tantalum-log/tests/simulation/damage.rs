//! Bytes that changed after they were acknowledged: each change is reported or harmless, and nothing panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{Damage, Error, ErrorKind, Log, LogLayout, LogOptions, Lsn, Record, inspect, verify};

use tantalum_rt::Simulation;

use crate::plan::{LOG_ID, as_devices};

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), ..LogOptions::default() }
}

/// The comparison layouts write in blocks of 512 bytes.
fn devices(layout: LogLayout, count: usize, sections: u64) -> Vec<Arc<MemoryDevice>> {
    let logical_block = if layout == LogLayout::FlashLogging { 4096 } else { 512 };
    let profile = MemoryProfile { logical_block, ..MemoryProfile::default() };
    let bytes = (4 + sections * 16) * 4096;
    (0..count).map(|n| MemoryDevice::with_profile(format!("log-{n}"), bytes, profile.clone())).collect()
}

/// A small log, closed cleanly, with its records. Made in a simulation, so that it is always the same.
fn closed_log(layout: LogLayout, count: usize) -> (Vec<Arc<MemoryDevice>>, Vec<Record>) {
    Simulation::new(1).run(move || make_closed_log(layout, count)).expect_finished()
}

fn make_closed_log(layout: LogLayout, count: usize) -> (Vec<Arc<MemoryDevice>>, Vec<Record>) {
    let devices = devices(layout, count, 5);
    Log::create(LOG_ID, as_devices(&devices), LogOptions { layout, ..options() }).expect("create");
    let mut checkpoint = Lsn::ZERO;
    // Several sessions and rounds of the circle, so that stale sections and requests lie about.
    for session in 0..4u8 {
        let log = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("open").finish().expect("finish");
        for n in 0..40u8 {
            let record = loop {
                match log.append(&[&[session, n], &vec![n; 90 * n as usize]]) {
                    Ok(record) => break record,
                    Err(_) => log.set_checkpoint(log.durable_lsn()).expect("checkpoint"),
                }
            };
            log.flush(record.end).expect("flush");
            if n == 15 {
                checkpoint = record.end;
            }
        }
        if session == 3 {
            log.set_checkpoint(checkpoint).expect("checkpoint");
        }
        log.close().expect("close");
    }
    let records = read(&devices).expect("intact");
    assert!(records.len() > 10);
    (devices, records)
}

fn read(devices: &[Arc<MemoryDevice>]) -> Result<Vec<Record>, Error> {
    let mut recovery = Log::open(as_devices(devices), options(), &mut |_| {})?;
    let mut records = Vec::new();
    while let Some(record) = recovery.next_record()? {
        records.push(record);
    }
    Ok(records)
}

/// Damages a copy of device 0 and reads: the records are the same, or there is an error that names a device.
fn check(devices: &[Arc<MemoryDevice>], records: &[Record], what: &str, damage: impl FnOnce(&MemoryDevice)) -> bool {
    let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
    damage(&forks[0]);
    let outcome = catch_unwind(AssertUnwindSafe(|| read(&forks))).unwrap_or_else(|_| panic!("{what}: panicked"));
    let verified = verify(&as_devices(&forks));
    match outcome {
        Ok(found) => {
            assert!(found == records, "{what}: records changed without an error");
            assert!(verified.expect("as readable as open").damage.is_empty(), "{what}");
            true
        }
        Err(error) => {
            assert!(error.to_string().contains("log-0") || error.kind() == ErrorKind::Missing, "{what}: {error}");
            assert!(verified.is_err() || verified.is_ok_and(|verified| !verified.damage.is_empty()), "{what}");
            false
        }
    }
}

/// Flips a bit in all bytes of the structures, and in some of the payloads, padding and unused space.
fn flip_bytes(layout: LogLayout, count: usize) {
    let (devices, records) = closed_log(layout, count);
    let (mut harmless, mut reported) = (0, 0);
    let image = devices[0].image();
    let starts: Vec<usize> = (0..image.len()).step_by(8).filter(|&at| image[at..].starts_with(b"TNTL")).collect();
    let interesting = |&offset: &usize| {
        let before = starts.partition_point(|&start| start <= offset).checked_sub(1).map(|at| starts[at]);
        before.is_some_and(|start| offset - start < 130) || offset.is_multiple_of(509)
    };
    for offset in (0..image.len()).filter(interesting) {
        let flip = |device: &MemoryDevice| device.corrupt(offset as u64, 1, |bytes| bytes[0] ^= 1 << (offset % 8));
        match check(&devices, &records, &format!("byte {offset}"), flip) {
            true => harmless += 1,
            false => reported += 1,
        }
    }
    assert!(harmless > 1000 && reported > 1000, "{harmless} harmless, {reported} reported");
}

#[test]
fn every_flipped_byte_on_one_device_is_reported_or_harmless() {
    flip_bytes(LogLayout::FlashLogging, 1);
}

#[test]
fn every_flipped_byte_on_one_of_two_devices_is_reported_or_harmless() {
    flip_bytes(LogLayout::FlashLogging, 2);
}

#[test]
fn every_flipped_byte_of_a_packed_log_is_reported_or_harmless() {
    flip_bytes(LogLayout::Single, 1);
}

#[test]
fn every_flipped_byte_on_one_of_two_striped_devices_is_reported_or_harmless() {
    flip_bytes(LogLayout::Striped { unit_bytes: 4096 }, 2);
}

#[test]
fn lost_and_misdirected_blocks_are_reported_or_harmless() {
    let (devices, records) = closed_log(LogLayout::FlashLogging, 2);
    let image = devices[0].image();
    let blocks = image.len() / 4096;
    let mut reported = 0;
    for block in 0..blocks {
        let offset = block as u64 * 4096;
        let zero = |device: &MemoryDevice| device.corrupt(offset, 4096, |bytes| bytes.fill(0));
        reported += usize::from(!check(&devices, &records, &format!("block {block} zeroed"), zero));
        let other = (block * 7 + 5) % blocks;
        let copy = image[other * 4096..(other + 1) * 4096].to_vec();
        let misdirect = |device: &MemoryDevice| device.corrupt(offset, 4096, |bytes| bytes.copy_from_slice(&copy));
        check(&devices, &records, &format!("block {block} overwritten by {other}"), misdirect);
        let noise = |device: &MemoryDevice| device.corrupt(offset, 4096, |bytes| bytes.fill(block as u8));
        let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
        noise(&forks[0]);
        inspect(&as_devices(&forks)).ok(); // whatever it says, it does not panic
    }
    assert!(reported > 10);
}

#[test]
fn another_version_is_refused_with_its_number() {
    let (devices, _) = closed_log(LogLayout::FlashLogging, 1);
    let read_as = |version| {
        for offset in [0, 4096] {
            devices[0].corrupt(offset + 8, 1, |at| at[0] = version);
        }
        read(&devices).unwrap_err()
    };
    let error = read_as(7);
    assert!(error.to_string().contains("has format version 7, this program reads up to 2; use a"), "{error}");
    let error = read_as(1);
    assert!(error.to_string().contains("has format version 1, this program reads version 2 only; read"), "{error}");
}

#[test]
fn a_truncated_device_is_refused() {
    let (devices, _) = closed_log(LogLayout::FlashLogging, 1);
    let image = devices[0].image();
    for blocks in [0, 1, 2, 3, 4, 5, 20, image.len() / 4096 - 1] {
        let short = MemoryDevice::new("short", 4096);
        short.load(&image[..blocks * 4096]);
        let error = read(std::slice::from_ref(&short)).unwrap_err();
        let expected = matches!(error.kind(), ErrorKind::Mismatch | ErrorKind::NotAMember);
        assert!(expected && error.to_string().contains("short"), "{blocks} blocks: {error}");
        assert_eq!(short.capacity_bytes(), blocks as u64 * 4096);
    }
}

#[test]
fn a_damaged_superblock_is_read_from_its_copy() {
    let (devices, records) = closed_log(LogLayout::FlashLogging, 1);
    assert!(check(&devices, &records, "first copy", |device| device.corrupt(100, 10, |bytes| bytes.fill(1))));
    assert!(check(&devices, &records, "first copy", |device| device.corrupt(0, 4096, |bytes| bytes.fill(0))));
    let both = |device: &MemoryDevice| device.corrupt(20, 4100, |bytes| bytes.fill(1));
    assert!(!check(&devices, &records, "both copies", both));
}

/// A log that was not closed: every request but the last is proven by what came later, on its device or on another.
#[test]
fn a_damaged_request_is_taken_for_a_torn_one_only_at_the_very_end() {
    let flash_logging = [1, 2, 3].map(|count| (LogLayout::FlashLogging, count));
    for (layout, count) in flash_logging.into_iter().chain([(LogLayout::Single, 1)]) {
        let devices = devices(layout, count, 6);
        Log::create(LOG_ID, as_devices(&devices), LogOptions { layout, ..options() }).expect("create");
        let log = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("open").finish().expect("finish");
        for n in 0..30u8 {
            let record = log.append(&[&vec![n; 100 + 300 * n as usize]]).expect("append");
            log.flush(record.end).expect("flush");
        }
        drop(log);
        let records = read(&devices).expect("intact");
        let inspection = inspect(&as_devices(&devices)).expect("inspect");
        let mut requests = 0;
        for (at, device) in inspection.devices.iter().enumerate() {
            for request in &device.requests {
                for damaged in [0, 60, 100] {
                    let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
                    forks[at].corrupt(request.offset + damaged, 1, |bytes| bytes[0] ^= 4);
                    match read(&forks) {
                        Err(error) if error.cause::<Damage>().is_some() => {}
                        Err(error) => panic!("{error}"),
                        Ok(found) => {
                            assert!(request.start == records[29].start, "record at {} vanished", request.start);
                            assert!(found == records[..29]);
                        }
                    }
                }
                requests += 1;
            }
        }
        assert_eq!(requests, 30);
    }
}
